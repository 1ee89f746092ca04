"""The file source: its splits, assigned and pending.

::

    split, version 1     UTF id, path, i64 offset, length, modification time, size of the file;
                         i32 n, n * UTF host; boolean, then i64 position, i64 records to skip
    pending, version 1   all little-endian: i32 0xDEADBEEF, i32 version of splits, i32 n, i32 m,
                         n * (i32 length, split), m * (i32 length, path as UTF-8)
    path                 boolean; scheme, user, host, i32 port, path, query, fragment

A position is that of the reader within the file: it resumes there, and skips a number of records.

Source: `FileSourceSplitSerializer` and `PendingSplitsCheckpointSerializer` in
`org.apache.flink.connector.file.src`, `Path.write`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from statelake.state_core.connectors.versioned import read_exactly
from statelake.state_core.files.wire import DataInput, DataOutput

_VERSION = 1
_MAGIC = 0xDEADBEEF
_HEAD = struct.Struct("<IIII")
_LENGTH = struct.Struct("<I")
_NO_PORT = _NO_POSITION = -1


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path as its URI's parts, decoded."""

    scheme: str | None
    user: str | None
    host: str | None
    port: int
    path: str | None
    query: str | None
    fragment: str | None

    def __str__(self) -> str:
        scheme = "" if self.scheme is None else f"{self.scheme}:"
        if self.host is None:
            return f"{scheme}{self.path or ''}"
        user = "" if self.user is None else f"{self.user}@"
        port = "" if self.port == _NO_PORT else f":{self.port}"
        return f"{scheme}//{user}{self.host}{port}{self.path or ''}"


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A part of a file.

    Attributes:
        split_id: Its name.
        path: The file; None without a path.
        start: The first byte of the part.
        length: Its bytes.
        modified: The file's modification time, in milliseconds since 1970.
        size: The bytes of the whole file.
        hosts: The hosts of its blocks.
        position: The byte at which the reader resumes, and the number of records to skip there;
            None if it has not begun. The byte is -1 for a format without positions.
    """

    kind: ClassVar[str] = "file"
    version: ClassVar[int] = _VERSION

    split_id: str
    path: FilePath | None
    start: int
    length: int
    modified: int
    size: int
    hosts: tuple[str, ...]
    position: tuple[int, int] | None

    def encode(self) -> bytes:
        """Return the bytes of version 1."""
        out = DataOutput()
        out.write_utf(self.split_id)
        _write_path(self.path, out)
        for number in (self.start, self.length, self.modified, self.size):
            out.write_long(number)
        out.write_int(len(self.hosts))
        for host in self.hosts:
            out.write_utf(host)
        out.write_boolean(self.position is not None)
        for number in self.position or ():
            out.write_long(number)
        return out.to_bytes()

    def columns(self) -> dict[str, object]:
        """Return its content by name."""
        position, skipped = self.position or (None, None)
        return {
            "split_id": self.split_id, "path": None if self.path is None else str(self.path),
            "start": self.start, "length": self.length,
            "position": None if position == _NO_POSITION else position,
            "records_after_position": skipped, "file_size": self.size, "modified_ms": self.modified,
        }  # fmt: skip


def read_file_split(version: int, data: bytes) -> FileSplit | None:
    """Return a split of the file source; None if the bytes are not one."""
    return read_exactly(_read_split, data) if version == _VERSION else None


def _read_split(source: DataInput) -> FileSplit:
    split_id, path = source.read_utf(), _read_path(source)
    start, length, modified, size = source.read_longs(4)
    hosts = tuple(source.read_utf() for _ in range(source.read_count("hosts", 2)))
    position = None
    if source.read_boolean():
        at, skipped = source.read_longs(2)
        position = at, skipped
    return FileSplit(split_id, path, start, length, modified, size, hosts, position)


def _read_path(source: DataInput) -> FilePath | None:
    if not source.read_boolean():
        return None
    scheme, user, host = (_read_nullable(source) for _ in range(3))
    port = source.read_int()
    path, query, fragment = (_read_nullable(source) for _ in range(3))
    return FilePath(scheme, user, host, port, path, query, fragment)


def _read_nullable(source: DataInput) -> str | None:
    return source.read_string() if source.read_boolean() else None


def _write_path(path: FilePath | None, out: DataOutput) -> None:
    out.write_boolean(path is not None)
    if path is None:
        return
    for text in (path.scheme, path.user, path.host):
        _write_nullable(text, out)
    out.write_int(path.port)
    for text in (path.path, path.query, path.fragment):
        _write_nullable(text, out)


def _write_nullable(text: str | None, out: DataOutput) -> None:
    out.write_boolean(text is not None)
    if text is not None:
        out.write_string(text)


@dataclass(frozen=True, slots=True)
class PendingFiles:
    """The state of the enumerator.

    Attributes:
        splits: The unassigned splits.
        processed: Files that a continuous source has seen.
    """

    kind: ClassVar[str] = "file"
    version: ClassVar[int] = _VERSION

    splits: tuple[FileSplit, ...]
    processed: tuple[str, ...]

    def encode(self) -> bytes:
        """Return the bytes of version 1."""
        pieces = [split.encode() for split in self.splits]
        pieces += [path.encode("utf-8") for path in self.processed]
        out = bytearray(_HEAD.pack(_MAGIC, _VERSION, len(self.splits), len(self.processed)))
        for piece in pieces:
            out += _LENGTH.pack(len(piece))
            out += piece
        return bytes(out)


def read_pending_files(version: int, data: bytes) -> PendingFiles | None:
    """Return the state of a file source's enumerator; None if the bytes are not one."""
    return read_exactly(_read_pending, data) if version == _VERSION else None


def _read_pending(source: DataInput) -> PendingFiles:
    magic, version, splits, paths = _HEAD.unpack(source.read_bytes(_HEAD.size))
    if magic != _MAGIC or version != _VERSION or 4 * (splits + paths) > source.remaining:
        raise source.fault("no pending splits of files")
    pieces = []
    for _ in range(splits + paths):
        (length,) = _LENGTH.unpack(source.read_bytes(_LENGTH.size))
        pieces.append(source.read_bytes(length))
    read = [_read_split(DataInput(piece)) for piece in pieces[:splits]]
    try:
        processed = tuple(piece.decode("utf-8") for piece in pieces[splits:])
    except UnicodeDecodeError:
        raise source.fault("a path that is no UTF-8") from None
    return PendingFiles(tuple(read), processed)
