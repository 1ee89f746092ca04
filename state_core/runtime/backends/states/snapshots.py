"""Snapshots of a backend: strategies, their resources, and iterators over entries.

A snapshot has two parts. In the synchronous one, while the job is paused, a strategy prepares its
`SnapshotResources`: a read-only view of the state and the meta infos of all states. The
asynchronous part writes them, in any thread, and then the resources are released, also after an
error. A backend is composed of two strategies, one for savepoints and one for checkpoints, and does
not inherit from them.

The asynchronous part of the unified format is always `SavepointStrategy.async_snapshot`: a backend
only provides `FullSnapshotResources`, with one iterator for each state.

Spec: FLIP-41. Source: `SnapshotStrategy`, `SnapshotStrategyRunner`, `FullSnapshotResources`,
`FullSnapshotAsyncWriter`, `KeyValueStateIterator` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from threading import Lock
from typing import Generic, Protocol, TypeVar

from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.model.handles import KeyedHandle
from statelake.state_core.model.snapshot import Entries


@dataclass(frozen=True, slots=True)
class SnapshotTarget:
    """The target of a snapshot.

    Attributes:
        checkpoint_id: The number of the checkpoint.
        directory: The snapshot's own directory.
        shared: The directory of files that several checkpoints of the job share.
    """

    checkpoint_id: int
    directory: Directory
    shared: Directory | None = None


class SnapshotResources(Protocol):
    """The resources that the synchronous part of a snapshot prepares for the asynchronous one."""

    @property
    def header(self) -> KeyedHeader:
        """The key serializer, and the meta infos of all states."""

    def release(self) -> None:
        """Release everything; a second call does nothing."""


@dataclass(frozen=True, slots=True)
class SnapshotRun:
    """Entries of one state and one key group, not necessarily all of them."""

    key_group: int
    state_id: int
    entries: Entries


class KeyedStateSnapshotIterator(Protocol):
    """Iterates over one state's entries at the time of the snapshot, in order of key group."""

    @property
    def state_id(self) -> int:
        """The position of the state in the header."""

    def __iter__(self) -> Iterator[SnapshotRun]:
        """Yield the entries in runs, which are never empty."""


class FullSnapshotResources(SnapshotResources, Protocol):
    """Resources from which all entries can be read."""

    def iterators(self) -> Sequence[KeyedStateSnapshotIterator]:
        """Return one iterator for each state."""


Resources = TypeVar("Resources", bound=SnapshotResources)


class SnapshotStrategy(Protocol, Generic[Resources]):
    """A strategy to take snapshots."""

    def sync_prepare_resources(self, checkpoint_id: int) -> Resources:
        """Run the synchronous part."""

    def async_snapshot(self, resources: Resources, target: SnapshotTarget) -> KeyedHandle | None:
        """Run the asynchronous part; return None without state."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Note that the job's checkpoint is complete, so that later ones may refer to it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Note that the job's checkpoint was aborted."""


Handle = TypeVar("Handle")


class SnapshotTask(Generic[Handle]):
    """The asynchronous part of a snapshot, to be run once, in any thread.

    Args:
        write: Writes the snapshot.
        release: Releases the resources.
    """

    def __init__(self, write: Callable[[], Handle], release: Callable[[], None]) -> None:
        self._write: Callable[[], Handle] | None = write
        self._release = release
        self._lock = Lock()

    def run(self) -> Handle:
        """Write the snapshot, and release its resources, also after an error.

        Raises:
            SnapshotError: The task was run or cancelled before.
        """
        write = self._claim()
        if write is None:
            raise SnapshotError("the snapshot was run or cancelled before")
        try:
            return write()
        finally:
            self._release()

    def cancel(self) -> None:
        """Cancel the snapshot, unless it was run or is running."""
        if self._claim() is not None:
            self._release()

    def _claim(self) -> Callable[[], Handle] | None:
        with self._lock:
            write, self._write = self._write, None
        return write


def take_snapshot(
    strategy: SnapshotStrategy[Resources], target: SnapshotTarget
) -> SnapshotTask[KeyedHandle | None]:
    """Run the synchronous part of a snapshot, and return the asynchronous part."""
    resources = strategy.sync_prepare_resources(target.checkpoint_id)
    return SnapshotTask(lambda: strategy.async_snapshot(resources, target), resources.release)


@dataclass(frozen=True, slots=True)
class MergedRun:
    """A run of entries with its place among the others.

    Attributes:
        run: The run.
        new_key_group: Whether it is the first of its key group.
        new_state: Whether it is the first of its state in the key group.
        state_ends: Whether it is the last of its state in the key group.
        key_group_ends: Whether it is the last of its key group.
    """

    run: SnapshotRun
    new_key_group: bool
    new_state: bool
    state_ends: bool
    key_group_ends: bool


def merge_by_key_group(iterators: Iterable[KeyedStateSnapshotIterator]) -> Iterator[MergedRun]:
    """Yield the runs of all states by key group, and within a key group by state."""
    runs = merge(*iterators, key=lambda run: (run.key_group, run.state_id))
    before: SnapshotRun | None = None
    following = next(runs, None)
    while following is not None:
        after = next(runs, None)
        yield MergedRun(
            following,
            not _same_group(before, following),
            not _same_state(before, following),
            not _same_state(following, after),
            not _same_group(following, after),
        )
        before, following = following, after


def _same_group(first: SnapshotRun | None, second: SnapshotRun | None) -> bool:
    return first is not None and second is not None and first.key_group == second.key_group


def _same_state(first: SnapshotRun | None, second: SnapshotRun | None) -> bool:
    return _same_group(first, second) and first.state_id == second.state_id  # type: ignore[union-attr]
