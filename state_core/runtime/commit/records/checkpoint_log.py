"""Checkpoint logs: records are appended to a log, which is read from its start.

A Kafka topic implements `CheckpointLog` too. Keys and messages are bytes here;
`checkpoint_reading` interprets them.
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from statelake.state_core.errors import CheckpointRecordError, MissingFileError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit.records.clocks import now_millis

_HEAD = struct.Struct(">IQI")  # checksum of the rest, append time, length of the key
_SUFFIX = ".record"
_NAME = re.compile(r"([0-9]{1,20})-[^/]*\.record")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a log.

    Attributes:
        offset: The position; later records have greater ones.
        key: The key, as from `serdes.write_key`.
        message: The checkpoint.
        appended_at: The time of the append, in milliseconds since 1970.
    """

    offset: int
    key: bytes
    message: bytes
    appended_at: int


class CheckpointLog(Protocol):
    """A log of records, in which the last one of each key counts, and older ones may be removed."""

    def append(self, key: bytes, message: bytes) -> None:
        """Append a record, which is durable when this returns.

        Raises:
            StateError: The record may have been appended, or not.
        """

    def read(self, after: int = -1) -> Iterable[LogRecord]:
        """Yield the records after an offset, in their order."""


class FileCheckpointLog:
    """A log on any file system: a file for each record, which appears complete or not at all.

    Files are never changed, as object stores can't append. If writers of several processes take the
    same number, neither record is lost: names end with the id of the writer.

    Args:
        directory: The directory of the records.
        clock: Returns milliseconds since 1970.
        keep: The number of records at which replaced records are first removed. Later they are
            removed when the log has twice the records that the last removal left, plus this number.
    """

    def __init__(
        self, directory: Directory, clock: Callable[[], int] = now_millis, keep: int = 1000
    ) -> None:
        self.directory = directory.confined()
        self.clock = clock
        self.keep = keep
        self._writer = uuid.uuid4().hex[:12]
        self._lock = Lock()
        self._kept = 0

    def append(self, key: bytes, message: bytes) -> None:
        """Append a record."""
        rest = _HEAD.pack(0, self.clock(), len(key))[4:] + key + message
        data = struct.pack(">I", zlib.crc32(rest)) + rest
        with self._lock:  # the tasks of a container append at the same time
            names = self._names()
            number = self._offset(names[-1]) + 1 if names else 0
            self.directory.write(f"{number:020}-{self._writer}{_SUFFIX}", data)
            if len(names) >= 2 * self._kept + self.keep:
                self.compact()

    def read(self, after: int = -1) -> Iterator[LogRecord]:
        """Yield the records after an offset.

        Raises:
            CheckpointRecordError: A file is damaged.
        """
        last = after
        for name in self._names():
            offset = self._offset(name)
            if offset <= after:
                continue
            try:
                record = self._record(name, offset)
            except MissingFileError:
                if self.directory.is_file(name):
                    raise
                # a later record replaced it since the names were listed: list them again
                yield from self.read(last)
                return
            yield record
            last = offset

    def compact(self, keep: int = 1) -> int:
        """Remove every record but the last ones of its key, and return the number of removed ones.

        Args:
            keep: How many records of each key stay.
        """
        of_key: dict[bytes, list[str]] = {}
        for name in self._names():
            try:
                key = self._record(name, self._offset(name)).key
            except MissingFileError:
                if self.directory.is_file(name):
                    raise
                continue  # another writer has just removed it
            of_key.setdefault(key, []).append(name)
        gone = [name for names in of_key.values() for name in names[:-keep]]
        for name in gone:
            self.directory.delete(name)
        self._kept = sum(map(len, of_key.values())) - len(gone)
        return len(gone)

    def _names(self) -> list[str]:
        return [name for name in self.directory.names() if name.endswith(_SUFFIX)]

    def _offset(self, name: str) -> int:
        match = _NAME.fullmatch(name)
        if not match:
            raise CheckpointRecordError(
                "this is not the name of a record",
                place=self.directory.full(name),
                remedy="remove the file",
            )
        return int(match[1])

    def _record(self, name: str, offset: int) -> LogRecord:
        data = self.directory.read(name)
        if len(data) >= _HEAD.size:
            checksum, at, length = _HEAD.unpack_from(data)
            if zlib.crc32(memoryview(data)[4:]) == checksum:
                middle = _HEAD.size + length
                return LogRecord(offset, data[_HEAD.size : middle], data[middle:], at)
        raise CheckpointRecordError(
            "the record is damaged",
            place=self.directory.full(name),
            remedy="restore the file, or remove it to go back to the record before",
        )
