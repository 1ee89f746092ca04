"""Options of a remote file system: as Arrow has them in a URI, and as delta-rs has them by name.

`storage_options=` of users (the names that deltalake, pyiceberg and Polars share) becomes a part of
the location, so that one text says all that another process needs to open the same directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit, urlunsplit

from state_core.errors import SnapshotError
from state_core.files.filesystem import Directory

__all__ = ["storage_options", "with_storage_options"]

_ENDPOINT, _ALLOW_HTTP = "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"
_KEY, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_S3_OPTIONS = {"endpoint_override": _ENDPOINT, "region": "AWS_REGION"}
_NAMES = (_KEY, _SECRET, *_S3_OPTIONS.values(), _ALLOW_HTTP)


def with_storage_options(
    location: str | os.PathLike[str], options: Mapping[str, str] | None
) -> str:
    """A location that says what options say.

    Args:
        location: A path or URI.
        options: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and
            `AWS_ALLOW_HTTP`, in any case, for `s3://`.

    Raises:
        SnapshotError: The file system takes no options, or there is no such option.
    """
    text = os.fspath(location)
    if not options:
        return text
    given = {name.upper(): str(value) for name, value in options.items()}
    unknown = sorted(set(given) - set(_NAMES))
    parts = urlsplit(text)
    if parts.scheme not in ("s3", "s3a") or unknown or (_KEY in given) != (_SECRET in given):
        raise SnapshotError(
            f"storage option {unknown[0]!r} is not known" if unknown
            else "storage options are for s3:// locations, access key and secret together",
            remedy=f"known are {', '.join(_NAMES)}; set others in the environment",
        )  # fmt: skip
    authority = parts.netloc.rpartition("@")[2]
    if _KEY in given:
        authority = f"{quote(given[_KEY], safe='')}:{quote(given[_SECRET], safe='')}@{authority}"
    else:
        authority = parts.netloc
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    query |= {key: given[name] for key, name in _S3_OPTIONS.items() if name in given}
    scheme, found, host = query.get("endpoint_override", "").partition("://")
    if found:
        query |= {"endpoint_override": host, "scheme": scheme}
    if given.get(_ALLOW_HTTP, "").lower() in ("true", "1"):
        query.setdefault("scheme", "http")
    return urlunsplit((parts.scheme, authority, parts.path, urlencode(query, safe=":"), ""))


def storage_options(directory: Directory) -> dict[str, str] | None:
    """The options and credentials in a directory's URI, in delta-rs's spelling.

    Credentials come from the environment where the URI has none.
    """
    if directory.local or not (directory.query or directory.credentials):
        return None
    given = {key: values[-1] for key, values in parse_qs(directory.query).items()}
    options = {name: given[key] for key, name in _S3_OPTIONS.items() if key in given}
    if directory.credentials:
        key, _, secret = directory.credentials.partition(":")
        options[_KEY], options[_SECRET] = unquote(key), unquote(secret)
    scheme = given.get("scheme")
    if scheme and _ENDPOINT in options and "://" not in options[_ENDPOINT]:
        options[_ENDPOINT] = f"{scheme}://{options[_ENDPOINT]}"
    if scheme == "http":
        options[_ALLOW_HTTP] = "true"
    return options
