"""The file source: its splits, assigned and pending.

::

    pending, version 1   all little-endian: i32 0xDEADBEEF, i32 version of splits, i32 n, i32 m,
                         n * (i32 length, split), m * (i32 length, path as UTF-8)

A position is that of the reader within the file: it resumes there, and skips a number of records.

Source: `FileSourceSplitSerializer` and `PendingSplitsCheckpointSerializer` in
`org.apache.flink.connector.file.src`, `Path.write`.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import ClassVar

from statelake.state_core.connectors.records import INT, LONG, TEXT, UTF, many, optional, record
from statelake.state_core.connectors.versioned import encoded, reader_of
from statelake.state_core.files.wire import DataInput

_VERSION = 1
_MAGIC = 0xDEADBEEF
_HEAD = struct.Struct("<IIII")
_LENGTH = struct.Struct("<I")
_NO_PORT = _NO_POSITION = -1


# the bytes of a path, and of a split of version 1
_TEXT = optional(TEXT)
_PATH = record(
    scheme=_TEXT, user=_TEXT, host=_TEXT, port=INT, path=_TEXT, query=_TEXT, fragment=_TEXT
)
_SPLIT = record(
    split_id=UTF, path=optional(_PATH), start=LONG, length=LONG, modified=LONG, size=LONG,
    hosts=many(UTF), position=optional(record(byte=LONG, records=LONG)),
)  # fmt: skip


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
        path = None if self.path is None else astuple(self.path)
        numbers = self.start, self.length, self.modified, self.size
        return encoded(_SPLIT, (self.split_id, path, *numbers, list(self.hosts), self.position))

    def columns(self) -> dict[str, object]:
        """Return its content by name."""
        position, skipped = self.position or (None, None)
        return {
            "split_id": self.split_id, "path": None if self.path is None else str(self.path),
            "start": self.start, "length": self.length,
            "position": None if position == _NO_POSITION else position,
            "records_after_position": skipped, "file_size": self.size, "modified_ms": self.modified,
        }  # fmt: skip


def _read_split(_: int, source: DataInput) -> FileSplit:
    split = _SPLIT.read(source)
    path = split["path"]
    position = split["position"]
    return FileSplit(
        **split
        | {
            "path": None if path is None else FilePath(**path),
            "hosts": tuple(split["hosts"]),
            "position": None if position is None else tuple(position.values()),
        }
    )


# reads a split of the file source
read_file_split = reader_of((_VERSION,), _read_split)


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


def _read_pending(_: int, source: DataInput) -> PendingFiles:
    magic, version, splits, paths = _HEAD.unpack(source.read_bytes(_HEAD.size))
    if magic != _MAGIC or version != _VERSION or 4 * (splits + paths) > source.remaining:
        raise source.fault("no pending splits of files")
    pieces = []
    for _ in range(splits + paths):
        (length,) = _LENGTH.unpack(source.read_bytes(_LENGTH.size))
        pieces.append(source.read_bytes(length))
    read = [_read_split(_VERSION, DataInput(piece)) for piece in pieces[:splits]]
    try:
        processed = tuple(piece.decode("utf-8") for piece in pieces[splits:])
    except UnicodeDecodeError:
        raise source.fault("a path that is no UTF-8") from None
    return PendingFiles(tuple(read), processed)


# reads the state of a file source's enumerator
read_pending_files = reader_of((_VERSION,), _read_pending)
