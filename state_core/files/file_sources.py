"""Byte sources with random access: in memory, or pieces of files; and the threads that read them.

Files of object stores are read with few requests. Such a file is opened once. Each request costs
some ten milliseconds, whatever its size. So sequential reads, such as those of key groups, are
joined: each asks for twice as much as the one before it, up to `MOST_AHEAD`. A random read, such as
that of one key, asks for its own bytes alone. A large read is split into parts, several at once.

A file that was opened must not change. The version that was opened is known by its ETag, or else by
its size and modification time. Arrow does not notice when S3 returns less than was asked for, as it
does for a file that got shorter; so the last byte of the buffer is set before the read, and
checked.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import ChangedFileError, OversizedError, StateError, TruncatedError


class Workers(ThreadPoolExecutor):
    """A thread pool whose `with` block waits for its threads, except after Ctrl-C or SIGTERM.

    After an error, tasks that have not begun are cancelled. Tasks must not write files that the
    command deletes when it fails: they may still run then.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = kind is not None and not issubclass(kind, Exception)
        self.shutdown(wait=not ended, cancel_futures=kind is not None)


class ByteSource(Protocol):
    """Bytes with random access, readable from several threads at once."""

    @property
    def name(self) -> str:
        """Name of the source, for messages."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with the bytes from `offset` on.

        Raises:
            TruncatedError: The source is shorter.
        """


@dataclass(frozen=True)
class InlineSource:
    """Bytes in memory."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.data)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Copy from memory."""
        content = np.frombuffer(self.data, np.uint8)[offset : offset + out.size]
        if content.size < out.size:
            raise too_short(self.name, offset, out.size, content.size)
        out[:] = content


def too_short(name: str, offset: int, wanted: int, available: int) -> TruncatedError:
    """Return the error of a source that ends too soon."""
    return TruncatedError(
        f"{wanted} bytes wanted, {available} there",
        place=f"{name}, offset {offset}",
        remedy="the file was cut off: fetch it again",
    )


if TYPE_CHECKING:
    from statelake.state_core.files.filesystem import Directory

FIRST_AHEAD = 256 << 10
MOST_AHEAD = 16 << 20
PART = 4 << 20
PARTS_AT_ONCE = 4
MOST_AHEAD_OF_A_THREAD = 4 * MOST_AHEAD  # a reader that merges has several files open
MOST_FILES = 256
NOT_READ = 0xA7, 0x5C
"""The last byte of a buffer before a read, and before a second one if the first left it unchanged.

If S3 returns fewer bytes, Arrow reports a full read and leaves the rest of the buffer unchanged.
"""
MOST_PARTS = PARTS_AT_ONCE * max(4, os.cpu_count() or 1)  # for all readers, who share the threads


@dataclass(frozen=True)
class FileSource:
    """A file, or `size` bytes of it from `start` on.

    Attributes:
        directory: The directory of the file.
        path: The file.
        start: Offset of the first byte.
        size: Number of bytes.
        remote: The opened file, where opening costs requests.
        version: Identifies the version of the file under its name.
    """

    directory: Directory
    path: str
    start: int
    size: int
    remote: RemoteFile | None = field(default=None, compare=False, repr=False)
    version: str = field(default="", compare=False, repr=False)

    @property
    def name(self) -> str:
        """The file's path."""
        return self.directory.full(self.path)

    def refuse_change(self) -> None:
        """Check that the file is still the one that was opened.

        Raises:
            ChangedFileError: It is another file.
            MissingFileError: It no longer exists.
        """
        if self.directory.source(self.path).version != self.version:
            raise ChangedFileError("it has changed while it was read", place=self.name)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Read from the file."""
        if offset + out.size > self.size:
            raise too_short(self.name, offset, out.size, max(0, self.size - offset))
        if self.remote is None:
            self.directory.read_into(self.path, self.start + offset, out)
            return
        try:
            self.remote.read_into(self.start + offset, out)
        except StateError:
            raise
        except OSError as error:
            raise self.directory.not_read(self.path, error) from error

    def read_all(self) -> bytes:
        """Return all bytes.

        Raises:
            OversizedError: They do not fit into memory.
        """
        try:
            out = np.empty(self.size, np.uint8)
        except (MemoryError, ValueError) as error:
            raise OversizedError(
                f"{self.size} bytes, which do not fit into memory",
                place=self.name,
                remedy="Flink writes nothing like it: fetch the file again, and do not trust it",
            ) from error
        self.read_into(0, out)
        return out.tobytes()


class _Ahead(NamedTuple):
    """Bytes that were read ahead.

    Attributes:
        start: Offset of the bytes in the file; a sequential read continues there.
        data: The bytes; may be empty.
        window: Number of bytes of the request.
    """

    start: int
    data: npt.NDArray[np.uint8]
    window: int

    @property
    def memory(self) -> int:
        """Return the number of bytes in memory: the rest of a window keeps all of the window."""
        if self.data.size == 0:
            return 0
        return int((self.data if self.data.base is None else self.data.base).nbytes)


class _ThreadReadAhead(threading.local):
    """The last read-ahead of each thread, by file: memory is bounded by threads, not files.

    Args:
        most: The bytes that a thread may keep.
    """

    def __init__(self, most: int = MOST_AHEAD_OF_A_THREAD) -> None:
        self.most = most
        self.aheads: WeakKeyDictionary[RemoteFile, _Ahead] = WeakKeyDictionary()

    def keep(self, file: RemoteFile, ahead: _Ahead) -> None:
        """Keep the read-ahead of a file, and drop the oldest ones if they are too much."""
        self.aheads[file] = ahead
        kept = sum(ahead.memory for ahead in self.aheads.values())
        for oldest, dropped in list(self.aheads.items()):
            if kept <= self.most and len(self.aheads) <= MOST_FILES:
                break
            kept -= dropped.memory
            self.aheads.pop(oldest, None)

    def largest_window(self) -> int:
        """Return how much may be read ahead of one more file, so that all open ones are kept."""
        in_hand = sum(ahead.memory > 0 for ahead in self.aheads.values())
        return min(MOST_AHEAD, self.most // (in_hand + 1))


_NONE: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
_THREAD = _ThreadReadAhead()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_PARTS, "statelake-read")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has none of its parent's threads


class RemoteFile:
    """A file that does not change while any number of threads read it.

    Args:
        file: The opened file of Arrow, which many threads may read at once.
        name: Its name in messages.
        origin: Its directory and its path there, by which it is opened in other processes.

    Attributes:
        size: Number of bytes.
        version: Identifies the version of the file under its name.
    """

    def __init__(
        self, file: pa.NativeFile, name: str, origin: tuple[Directory, str] | None = None
    ) -> None:
        self._file = file
        self._origin = origin
        self.name = name
        self.size = int(file.size())
        self.version = "" if origin is None else version_of(*origin, file)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes as a description from which it is opened anew."""
        if self._origin is None:
            raise TypeError("a file without its directory can't be pickled")
        return (_opened_again, self._origin)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with the bytes from `offset` on.

        Raises:
            TruncatedError: The file is shorter.
            ChangedFileError: Its length has changed, or it is another file.
            OSError: The store does not return them.
        """
        if offset + out.size > self.size:
            raise too_short(self.name, offset, out.size, max(0, self.size - offset))
        ahead = _THREAD.aheads.pop(self, None)
        if ahead is not None and ahead.start != offset:
            ahead = None
        ready = 0
        if ahead is not None:
            ready = min(ahead.data.size, out.size)
            out[:ready] = ahead.data[:ready]
            rest = ahead.data[ready:] if ready < ahead.data.size else _NONE
            ahead = _Ahead(offset + ready, rest, ahead.window)
        if ready < out.size:
            ahead = self._fetch(offset + ready, out[ready:], ahead)
        if ahead is None:
            ahead = _Ahead(offset + out.size, _NONE, 0)
        if ahead.start < self.size:
            _THREAD.keep(self, ahead)

    def _fetch(
        self, start: int, out: npt.NDArray[np.uint8], before: _Ahead | None
    ) -> _Ahead | None:
        """Request `out`, and read ahead if reads are sequential."""
        size = out.size
        if before is not None:
            window = min(max(2 * before.window, FIRST_AHEAD), _THREAD.largest_window())
            size = min(max(size, window), self.size - start)
        if size == out.size:
            self._ask(start, out)
            return None if before is None else _Ahead(start + size, _NONE, size)
        data = np.empty(size, np.uint8)
        self._ask(start, data)
        out[:] = data[: out.size]
        return _Ahead(start + out.size, data[out.size :], size)

    def _ask(self, start: int, out: npt.NDArray[np.uint8]) -> None:
        if out.size <= PART:
            self._ask_part(start, out)
            return
        parts = [(start + at, out[at : at + PART]) for at in range(0, out.size, PART)]
        for _ in _pool().map(lambda part: self._ask_part(*part), parts):
            pass

    def _ask_part(self, start: int, out: npt.NDArray[np.uint8]) -> None:
        if not out.size:
            return
        for unread in NOT_READ:
            out[-1] = unread
            count = self._file.get_stream(start, out.size).readinto(out)
            if count < out.size:
                raise too_short(self.name, start, out.size, count)
            if out[-1] != unread:
                return
            if self._origin is not None:
                directory, path = self._origin
                FileSource(directory, path, 0, self.size, self, self.version).refuse_change()
        raise TruncatedError(
            f"the store answered with fewer than {out.size} bytes, twice",
            place=f"{self.name}, offset {start}",
            remedy="run it again; if that does not help, check the file and any proxy in between",
        )


def version_of(directory: Directory, path: str, file: pa.NativeFile | None = None) -> str:
    """Return an identifier of a file's version, such as its ETag.

    Args:
        directory: The directory of the file.
        path: The file.
        file: The opened file, where a store returns metadata with it.
    """
    tags = {} if file is None else {name.lower(): tag for name, tag in file.metadata().items()}
    if "etag" in tags:
        return str(tags["etag"], "utf-8", "replace")
    modified, size = directory.modified_and_size(path)
    return f"{size} bytes, {modified}"


def _opened_again(directory: Directory, path: str) -> RemoteFile | None:
    return directory.source(path).remote
