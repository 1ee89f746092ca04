"""File systems by URI; those of S3 opened so that requests are few, and tried again if they fail.

A URI of S3 says in its query what differs from the environment: `region`, `endpoint_override`,
`scheme`, and what else `S3_OPTIONS` has.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyarrow import fs

__all__ = ["AZURE_SCHEMES", "S3_SCHEMES", "open_file_system"]

S3_SCHEMES = ("s3", "s3a", "s3n")
AZURE_SCHEMES = ("abfs", "abfss")
# each waits twice as long as the one before it: 25 s in all, which a store that throttles needs
ATTEMPTS = 10
_TEXTS = ("region", "scheme", "endpoint_override", "tls_ca_file_path", "role_arn")
_SWITCHES = (
    "allow_bucket_creation", "allow_bucket_deletion", "force_virtual_addressing", "anonymous",
)  # fmt: skip
S3_OPTIONS = (*_TEXTS, *_SWITCHES)


def open_file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it.

    Raises:
        ValueError: There is no such file system or option.
        OSError, ArrowException: It can't be reached.
    """
    parts = urlsplit(uri)
    if parts.scheme not in S3_SCHEMES:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
        return found
    credentials, _, bucket = parts.netloc.rpartition("@")
    if not bucket:
        raise ValueError("it names no bucket")
    given: dict[str, Any] = {
        name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
    }
    for name, value in given.items():
        if name not in S3_OPTIONS:
            raise ValueError(f"there is no option {name!r}; known are {', '.join(S3_OPTIONS)}")
        if name in _SWITCHES:
            given[name] = value.lower() in {"true", "1"}
    if credentials:
        names = ("access_key", "secret_key", "session_token")
        given |= zip(names, map(unquote, credentials.split(":")), strict=False)
    if not _is_region_known(given):
        given["region"] = fs.resolve_s3_region(bucket)
    made = fs.S3FileSystem(
        **given,
        # what is small goes in one request, and not in an upload of one part
        allow_delayed_open=True,
        retry_strategy=fs.AwsDefaultS3RetryStrategy(max_attempts=ATTEMPTS),
    )
    return made, f"{bucket}{unquote(parts.path)}"


def _is_region_known(given: dict[str, Any]) -> bool:
    """Whether the region need not be asked for: other stores than Amazon's can't be."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    said = given.get("region") or given.get("endpoint_override")
    return bool(said) or any(os.environ.get(name) for name in names)
