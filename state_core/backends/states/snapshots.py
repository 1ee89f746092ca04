"""How a backend's snapshot is taken: strategies, their resources, and what iterates over them.

A snapshot has two parts. In the synchronous one, while the job stands still, a strategy prepares
its `SnapshotResources`: a read-only view of the state and the meta infos of all states. The
asynchronous part writes them, in whatever thread runs it, and then the resources are released,
whatever happened. A backend has two strategies, one for savepoints and one for checkpoints; it is
composed of them, and inherits nothing of them.

The unified format's asynchronous part is `SavepointStrategy.async_snapshot`, and final: a backend
brings `FullSnapshotResources` alone, an iterator a state.

Spec: FLIP-41. Source: `SnapshotStrategy`, `SnapshotStrategyRunner`, `FullSnapshotResources`,
`FullSnapshotAsyncWriter`, `KeyValueStateIterator` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from threading import Lock
from typing import Generic, Protocol, TypeVar

from state_core.errors import SnapshotError
from state_core.files.filesystem import Directory
from state_core.formats.layout.meta_info import KeyedHeader
from state_core.model.handles import KeyedHandle
from state_core.model.snapshot import Entries

__all__ = [
    "FullSnapshotResources",
    "KeyedStateSnapshotIterator",
    "MergedRun",
    "SnapshotResources",
    "SnapshotRun",
    "SnapshotStrategy",
    "SnapshotTarget",
    "SnapshotTask",
    "merge_by_key_group",
    "take_snapshot",
]


@dataclass(frozen=True, slots=True)
class SnapshotTarget:
    """Where a snapshot goes.

    Attributes:
        checkpoint_id: Its number.
        directory: Its own directory.
        shared: The directory of files that several checkpoints of the job share.
    """

    checkpoint_id: int
    directory: Directory
    shared: Directory | None = None


class SnapshotResources(Protocol):
    """What the synchronous part of a snapshot prepares for the asynchronous one."""

    @property
    def header(self) -> KeyedHeader:
        """The key's serializer, and the meta infos of all states."""

    def release(self) -> None:
        """Give everything back; again is harmless."""


@dataclass(frozen=True, slots=True)
class SnapshotRun:
    """Entries of one state and one key group; not necessarily all of them."""

    key_group: int
    state_id: int
    entries: Entries


class KeyedStateSnapshotIterator(Protocol):
    """One state's entries as they were, many at a time, in order of key group."""

    @property
    def state_id(self) -> int:
        """The state's position in the header."""

    def __iter__(self) -> Iterator[SnapshotRun]:
        """The entries; none of its runs is empty."""


class FullSnapshotResources(SnapshotResources, Protocol):
    """Resources from which all entries can be read."""

    def iterators(self) -> Sequence[KeyedStateSnapshotIterator]:
        """An iterator a state."""


Resources = TypeVar("Resources", bound=SnapshotResources)


class SnapshotStrategy(Protocol, Generic[Resources]):
    """A way to take snapshots."""

    def sync_prepare_resources(self, checkpoint_id: int) -> Resources:
        """The synchronous part."""

    def async_snapshot(self, resources: Resources, target: SnapshotTarget) -> KeyedHandle | None:
        """The asynchronous part; nothing if there is no state at all."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The job's checkpoint of that number is whole: later ones may build on it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """It will never be."""


Handle = TypeVar("Handle")


class SnapshotTask(Generic[Handle]):
    """The asynchronous part of a snapshot, to be run once, by whichever thread.

    Args:
        write: Does it.
        release: Gives the resources back.
    """

    def __init__(self, write: Callable[[], Handle], release: Callable[[], None]) -> None:
        self._write: Callable[[], Handle] | None = write
        self._release = release
        self._lock = Lock()

    def run(self) -> Handle:
        """Write the snapshot, and release its resources whatever happens.

        Raises:
            SnapshotError: It was run or cancelled before.
        """
        write = self._claim()
        if write is None:
            raise SnapshotError("the snapshot was run or cancelled before")
        try:
            return write()
        finally:
            self._release()

    def cancel(self) -> None:
        """Give the snapshot up; nothing happens if it was run, or is running."""
        if self._claim() is not None:
            self._release()

    def _claim(self) -> Callable[[], Handle] | None:
        with self._lock:
            write, self._write = self._write, None
        return write


def take_snapshot(
    strategy: SnapshotStrategy[Resources], target: SnapshotTarget
) -> SnapshotTask[KeyedHandle | None]:
    """The synchronous part of a snapshot; what is left to do comes back."""
    resources = strategy.sync_prepare_resources(target.checkpoint_id)
    return SnapshotTask(lambda: strategy.async_snapshot(resources, target), resources.release)


@dataclass(frozen=True, slots=True)
class MergedRun:
    """A run with its place among the others.

    Attributes:
        run: It.
        new_key_group: Whether its key group begins with it.
        new_state: Whether its state's part of the key group does.
        state_ends: Whether that part ends with it.
        key_group_ends: Whether the key group does.
    """

    run: SnapshotRun
    new_key_group: bool
    new_state: bool
    state_ends: bool
    key_group_ends: bool


def merge_by_key_group(iterators: Iterable[KeyedStateSnapshotIterator]) -> Iterator[MergedRun]:
    """All states' runs, key group by key group, and within one by state."""
    runs = merge(*iterators, key=lambda run: (run.key_group, run.state_id))
    before: SnapshotRun | None = None
    held = next(runs, None)
    while held is not None:
        after = next(runs, None)
        yield MergedRun(
            held,
            not _same_group(before, held),
            not _same_state(before, held),
            not _same_state(held, after),
            not _same_group(held, after),
        )
        before, held = held, after


def _same_group(one: SnapshotRun | None, two: SnapshotRun | None) -> bool:
    return one is not None and two is not None and one.key_group == two.key_group


def _same_state(one: SnapshotRun | None, two: SnapshotRun | None) -> bool:
    return _same_group(one, two) and one.state_id == two.state_id  # type: ignore[union-attr]
