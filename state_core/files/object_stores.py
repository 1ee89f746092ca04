"""File systems by URI; S3 with few requests, which are retried if they fail.

The query of an S3 URI overrides the environment: `region`, `endpoint_override`, `scheme`, and the
other names in `S3_OPTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from statelake.state_core.errors import SnapshotError, StateError, UnreachableFileError

S3_SCHEMES = ("s3", "s3a", "s3n")
AZURE_SCHEMES = ("abfs", "abfss")
HDFS_SCHEMES = ("hdfs", "viewfs")
# each wait is twice as long as the one before it: 3 s in all, as in delta-rs
ATTEMPTS = 7
ANSWER_SECONDS = 30  # time to wait for an answer, as in delta-rs; a store under load is slow
STORE_REMEDY = "check the credentials, and whether the store can be reached"
_SILENT = re.compile(
    r"curlCode: (?:5|6|7|28|35)\b|timed? ?out|refused|resolve|unreachable|No route", re.IGNORECASE
)
_MISSING = re.compile("NO_SUCH|NOT_FOUND|NoSuch|NotFound|HTTP status 404")
_TEXTS = ("region", "scheme", "endpoint_override", "tls_ca_file_path", "role_arn")
_SWITCHES = (
    "allow_bucket_creation", "allow_bucket_deletion", "force_virtual_addressing", "anonymous",
)  # fmt: skip
S3_OPTIONS = (*_TEXTS, *_SWITCHES)
OTHERS_REGION = "us-east-1"  # of other stores than Amazon's, which don't look at it; as in delta-rs


def open_file_system(uri: str, keys: Iterable[str] = ()) -> tuple[fs.FileSystem, str]:
    """Open the file system of a URI; return it and the path in it.

    Args:
        uri: The URI, with all options.
        keys: For S3: access key, secret and token, if the client is not to look for them.

    Raises:
        MissingExtraError: The store needs a package that is not installed.
        ValueError: Unknown file system or option.
        OSError, ArrowException: The file system can't be reached.
    """
    parts = urlsplit(uri)
    if parts.scheme in HDFS_SCHEMES:
        from statelake.state_core.extras import require_extra  # noqa: PLC0415 - for extras alone

        require_extra("hdfs")
        from statelake.state_core.files.hdfs import open_hdfs  # noqa: PLC0415 - an extra

        return open_hdfs(uri)
    if parts.scheme not in S3_SCHEMES:
        opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
        return opened
    bucket = parts.netloc.rpartition("@")[2]
    if not bucket:
        raise ValueError("the URI names no bucket")
    given: dict[str, Any] = {
        name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
    }
    for name, value in given.items():
        if name not in S3_OPTIONS:
            raise ValueError(f"there is no option {name!r}; known are {', '.join(S3_OPTIONS)}")
        if name in _SWITCHES:
            given[name] = value.lower() in {"true", "1"}
    if "endpoint_override" in given:
        given.setdefault("region", OTHERS_REGION)
    given |= zip(("access_key", "secret_key", "session_token"), keys, strict=False)
    filesystem = fs.S3FileSystem(
        **given,
        # a small file takes one request, not an upload of one part
        allow_delayed_open=True,
        request_timeout=ANSWER_SECONDS,
        retry_strategy=fs.AwsDefaultS3RetryStrategy(max_attempts=ATTEMPTS),
    )
    return filesystem, f"{bucket}{unquote(parts.path)}"


def with_region(uri: str) -> str:
    """Return a URI of S3 with its bucket's region, which is looked up at Amazon.

    A URI that has one, or another address than Amazon's, stays as it is.

    Raises:
        OSError: Amazon has no such bucket, or can't be reached.
    """
    parts = urlsplit(uri)
    given = parse_qs(parts.query, keep_blank_values=True)
    bucket = parts.netloc.rpartition("@")[2]
    is_asked = parts.scheme in S3_SCHEMES and bucket and {*given} <= {*S3_OPTIONS}
    if not is_asked or given.get("region", [""])[-1] or "endpoint_override" in given:
        return uri
    region = {"region": [fs.resolve_s3_region(bucket)]}
    return urlunsplit(parts._replace(query=urlencode(given | region, doseq=True, safe=":")))


def may_be_missing(filesystem: fs.FileSystem, error: OSError) -> bool:
    """Return whether a failed read may mean a missing file; a failing S3 is not asked again."""
    return filesystem.type_name != "s3" or _MISSING.search(str(error)) is not None


def not_read(error: OSError, place: str) -> UnreachableFileError:
    """Return the error for a file that exists and can't be read."""
    problem = f"can't be read: {first_line(error)}"
    return UnreachableFileError(problem, place=place, remedy=STORE_REMEDY)


def is_silent(error: StateError) -> bool:
    """Return whether the whole store does not answer, so that other files need no asking."""
    return isinstance(error, UnreachableFileError) and _SILENT.search(error.problem) is not None


def remote_output(stream: pa.NativeFile, place: str) -> pa.NativeFile:
    """Return an output whose `write` and `close` raise our errors.

    S3 is first asked when data is written, or at the end.

    Args:
        stream: The output.
        place: The file's name in messages.
    """
    return pa.PythonFile(_RemoteOutput(stream, place), "w")


class _RemoteOutput:
    """An output as Arrow's `PythonFile` calls it."""

    def __init__(self, stream: pa.NativeFile, place: str) -> None:
        self._stream = stream
        self._place = place

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: bytes) -> None:
        self._tried(lambda: self._stream.write(data))

    def flush(self) -> None:
        self._tried(self._stream.flush)

    def close(self) -> None:
        self._tried(self._stream.close)

    def _tried(self, action: Callable[[], object]) -> None:
        try:
            action()
        except StateError:
            raise
        except OSError as error:
            raise not_written(error, self._place, STORE_REMEDY) from error


def not_written(
    error: OSError, place: str, remedy: str = "check permissions and space"
) -> SnapshotError:
    """Return the error for a file that can't be written."""
    return SnapshotError(f"can't be written: {first_line(error)}", place=place, remedy=remedy)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).partition("\n")[0]
