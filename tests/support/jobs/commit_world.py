"""Hosts that die and pools that choose: the world that `commit_simulation` has its tasks live in.

Every operation on a disk, a blob store, a changelog or the checkpoint log asks a `Fate` first. The
pool is a list of what is to be run. No thread and no clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from statelake.state_core.runtime.commit import (
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.backends.changelog import Change, Changelog, never_cancel
from tests.support.jobs.doubles import (
    MemoryBackend,
    MemoryBlobStore,
    MemoryChangelogs,
    MemoryCheckpointLog,
    MemoryDisk,
)

_T = TypeVar("_T")


class KilledError(BaseException):
    """The host is gone: nothing catches this."""


class Fate:
    """What happens to one life: it is asked about every operation that leaves a mark.

    Args:
        kill_at: The operation at which the host is gone; never, if 0.
        late: Whether it is gone after that operation, not before.
        fail_at: The operation that fails; none, if 0.
        kill_before: The step of a commit before which the host is gone, and at which commit.
    """

    def __init__(
        self,
        kill_at: int = 0,
        *,
        late: bool = False,
        fail_at: int = 0,
        kill_before: tuple[str, int] | None = None,
    ) -> None:
        self.kill_at, self.late, self.fail_at = kill_at, late, fail_at
        self.kill_before = kill_before
        self.count = 0
        self.steps: list[str] = []
        self.failed = False
        self.between: Callable[[], None] = lambda: None

    def __call__(self, do: Callable[[], _T]) -> _T:
        """One operation."""
        self.count += 1
        here = self.count == self.kill_at
        if self.count == self.fail_at:
            self.failed = True
            raise OSError("the schedule says that this fails")
        if here and not self.late:
            raise KilledError
        result = do()
        if here:
            raise KilledError
        self.between()
        return result

    def step(self, name: str) -> None:
        """A step of a commit."""
        self.steps.append(name)
        if self.kill_before == (name, self.steps.count(name)):
            raise KilledError


@dataclass
class Remote:
    """What outlives every host."""

    fate: Fate = field(default_factory=Fate)
    now: int = 1_700_000_000_000_000_000

    def __post_init__(self) -> None:
        self.log = _Log(self)
        self.blobs = _Blobs(self)
        self.changelogs = _Changelogs(self)
        self.copies = MemoryBackend()
        self.hosts = [_Disk(self), _Disk(self)]

    def nanos(self) -> int:
        """A clock that no two readings of are the same."""
        self.now += 1
        return self.now

    def millis(self) -> int:
        """The same in milliseconds."""
        return self.now // 1_000_000


class _Log(MemoryCheckpointLog):
    def __init__(self, remote: Remote) -> None:
        super().__init__(remote.millis)
        self._remote = remote

    def append(self, key: bytes, message: bytes) -> None:
        self._remote.fate(lambda: super(_Log, self).append(key, message))


class _Blobs(MemoryBlobStore):
    def __init__(self, remote: Remote) -> None:
        super().__init__(remote.millis, ttl=50_000)
        self._remote = remote

    def put(self, folder: str, name: str, chunks: Iterable[bytes]) -> str:
        return self._remote.fate(lambda: super(_Blobs, self).put(folder, name, chunks))

    def delete(self, blob: str) -> None:
        self._remote.fate(lambda: super(_Blobs, self).delete(blob))

    def make_permanent(self, folder: str) -> None:
        self._remote.fate(lambda: super(_Blobs, self).make_permanent(folder))

    def get(self, blob: str) -> Iterator[bytes]:
        self._remote.fate(lambda: None)
        return super().get(blob)


class _Changelogs(MemoryChangelogs):
    def __init__(self, remote: Remote) -> None:
        super().__init__()
        self._remote = remote

    def open(self, partition: SystemStreamPartition) -> Changelog:
        return _Changelog(self._remote, super().open(partition))


class _Changelog:
    """What is killed in mid-flush leaves the changes before."""

    def __init__(self, remote: Remote, log: Changelog) -> None:
        self._remote, self._log = remote, log
        self._buffer: list[tuple[bytes, bytes | None]] = []

    def append(self, key: bytes, value: bytes | None) -> None:
        self._buffer.append((key, value))

    def flush(self) -> None:
        for change in self._buffer:
            self._log.append(*change)
            self._remote.fate(self._log.flush)
        self._buffer.clear()

    def newest(self) -> int | None:
        return self._log.newest()

    def read(
        self, start: int = 0, end: int | None = None, waiting: Callable[[], None] = never_cancel
    ) -> Iterator[Change]:
        return self._log.read(start, end, waiting)

    def compact(self, end: int) -> None:
        self._remote.fate(lambda: self._log.compact(end))

    def close(self) -> None:
        self._log.close()


class _Disk(MemoryDisk):
    def __init__(self, remote: Remote) -> None:
        super().__init__()
        self._remote = remote

    def write(self, path: str, data: bytes) -> None:
        self._remote.fate(lambda: super(_Disk, self).write(path, data))

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        self._remote.fate(lambda: super(_Disk, self).create(path, chunks))

    def link(self, source: str, target: str) -> None:
        self._remote.fate(lambda: super(_Disk, self).link(source, target))

    def remove(self, path: str) -> None:
        # a tree goes file by file
        for name, _ in self.files(path):
            self._remote.fate(lambda name=name: self.contents.pop(f"{path}/{name}"))
        self.contents.pop(path, None)


class Pool:
    """What is to be run later, in any order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.waiting: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, function: Callable[[], _T], /) -> Future[_T]:
        """Later."""
        future: Future[_T] = Future()
        self.waiting.append((function, future))
        return future

    def step(self) -> None:
        """Run one."""
        function, future = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - as a pool does
            future.set_exception(error)
        else:
            future.set_result(result)

    def wait(self, future: Future[Any], seconds: float) -> None:
        """Run until a result is there."""
        while not future.done():
            assert self.waiting, "nothing is left to run, and the result is not there"
            self.step()
