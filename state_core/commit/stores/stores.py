"""Stores of keys and values of a task.

`MemoryStore` has no files: only a changelog or the memory backend can back it up. `SegmentStore` is
the embedded persistent one: everything is in memory, each flush writes the changes since the last
one to another file, and after some files all are replaced by one. Its files never change, so a
local checkpoint is a few hard links, and an upload sends only the new ones.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping

from statelake.state_core.commit.stores.local_disk import LocalDisk, join
from statelake.state_core.errors import CorruptSnapshotError, MissingFileError, UnsafePathError
from statelake.state_core.files.confinement import shortened

_LENGTHS = struct.Struct(">Ii")  # of the key, and of the value: -1 for a deletion
MANIFEST = "SEGMENTS"
MAX_SEGMENTS = 8
_SEGMENT = re.compile(r"[0-9]{6,}\.seg")


class KeyValueStore(ABC):
    """A store of keys and values as bytes."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[bytes, bytes | None], None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key, and call the subscribers."""
        self.apply(key, value)
        for listener in self._listeners:
            listener(key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key, and call the subscribers."""
        self.apply(key, None)
        for listener in self._listeners:
            listener(key, None)

    def subscribe(self, listener: Callable[[bytes, bytes | None], None]) -> None:
        """Call a function after every put with key and value, and after every delete with None."""
        self._listeners.append(listener)

    @abstractmethod
    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key without calling subscribers, for restores."""

    def apply_all(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Set some keys, and remove those without a value, without calling subscribers."""
        for key, value in changes.items():
            self.apply(key, value)

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""

    @abstractmethod
    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value, sorted by key."""

    def flush(self) -> None:  # noqa: B027 - a store without files has nothing to do
        """Write data that is only in memory to disk."""

    def close(self) -> None:  # noqa: B027 - the same
        """Close the files."""


class PersistentStore(KeyValueStore):
    """A store with its content in a directory."""

    @abstractmethod
    def checkpoint(self, target: str) -> None:
        """Copy or link the flushed content to a new directory of the same disk."""


class MemoryStore(KeyValueStore):
    """A store without files."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[bytes, bytes] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key."""
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None without a value."""
        return self._values.get(key)

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        """Return every key with its value."""
        return sorted(self._values.items())


class SegmentStore(MemoryStore, PersistentStore):
    """A store of immutable files, read into memory when it is opened.

    Args:
        disk: The disk.
        path: The directory; created by the first flush.
        max_segments: The number of files after which all are replaced by one.

    Raises:
        CorruptSnapshotError: A file is damaged.
        MissingFileError: A file is missing.
    """

    def __init__(self, disk: LocalDisk, path: str, max_segments: int = MAX_SEGMENTS) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._max = max_segments
        self._changed: set[bytes] = set()
        self._segments: list[tuple[str, int]] = []
        self._next = 1
        self._open()

    @staticmethod
    def immutable(name: str) -> bool:
        """Return whether a file of this name never changes: segments and the list of them."""
        return name.endswith(".seg") or name == MANIFEST

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a key."""
        super().apply(key, value)
        self._changed.add(key)

    def flush(self) -> None:
        """Write the changes since the last flush to another file, or everything to a single one."""
        if not self._changed and self._segments:
            return
        full = len(self._segments) >= self._max
        keys = sorted(self._values if full else self._changed)
        data = b"".join(_frame(key, self._values.get(key)) for key in keys)
        name = f"{self._next:06}.seg"
        self._disk.write(join(self._path, name), data)
        segments = [*([] if full else self._segments), (name, zlib.crc32(data))]
        listed = {"segments": segments, "next": self._next + 1}
        self._disk.write(join(self._path, MANIFEST), json.dumps(listed).encode())
        # only now: after a failed flush everything is written again
        gone = self._segments if full else []
        self._segments, self._next = segments, self._next + 1
        self._changed.clear()
        for old, _ in gone:
            self._disk.remove(join(self._path, old))

    def checkpoint(self, target: str) -> None:
        """Link every file into a new directory."""
        for name in [*(name for name, _ in self._segments), MANIFEST]:
            self._disk.link(join(self._path, name), join(target, name))

    def _open(self) -> None:
        try:
            listed = json.loads(self._disk.read(join(self._path, MANIFEST)))
        except MissingFileError:
            return
        self._next = listed["next"]
        for name, checksum in listed["segments"]:
            if not _SEGMENT.fullmatch(str(name)):
                raise UnsafePathError(
                    f"a segment called {shortened(str(name))}",
                    place=join(self._path, MANIFEST),
                    remedy="the list was not written by a store: restore from another checkpoint",
                )
            data = self._disk.read(join(self._path, name))
            if zlib.crc32(data) != checksum:
                raise CorruptSnapshotError("damaged", place=join(self._path, name))
            self._segments.append((name, checksum))
            for key, value in _frames(data):
                super().apply(key, value)


def _frame(key: bytes, value: bytes | None) -> bytes:
    if value is None:
        return _LENGTHS.pack(len(key), -1) + key
    return _LENGTHS.pack(len(key), len(value)) + key + value


def _frames(data: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    at = 0
    while at < len(data):
        key_length, length = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        key = data[at : at + key_length]
        at += key_length
        yield key, None if length < 0 else data[at : at + length]
        at += max(0, length)
