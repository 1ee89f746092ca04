"""Snapshots of a backend, in the unified format, which every backend restores.

A snapshot has two parts. In the synchronous one, while the job is paused, the tables are frozen: a
read-only view of them, and the meta infos of all states. The asynchronous part writes them, in any
thread, and then releases the view, also after an error. Key group after key group, kernels encode a
run of entries, which is written to the file; only one run is in memory, and the one behind it.

Spec: FLIP-41. Source: `SnapshotStrategy`, `SnapshotStrategyRunner`, `SavepointSnapshotStrategy`,
`FullSnapshotAsyncWriter` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, pairwise
from operator import itemgetter
from threading import Lock
from typing import Any, Generic, TypeVar

from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.formats.writing.unified_encode import (
    END_OF_KEY_GROUP,
    STATE_ID_BYTES,
    copy_entries,
)
from statelake.state_core.formats.writing.writer import keyed_handle, write_keyed_part
from statelake.state_core.model.handles import KeyGroupRange, KeyGroupsHandle
from statelake.state_core.runtime.backends.states.tables import SnapshotRun

_NOTHING: Any = (None, None, None)
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


def write_tables(
    directory: Directory,
    header: KeyedHeader,
    tables: Iterable[Iterable[SnapshotRun]],
    key_groups: KeyGroupRange,
    prefix: int,
    *,
    compressed: bool,
) -> KeyGroupsHandle | None:
    """Write frozen tables to a file, and return its handle; None without tables.

    Args:
        directory: The directory of the snapshot.
        header: The key serializer, and the meta infos of all states.
        tables: The runs of each state, in order of key group.
        key_groups: The key groups of the subtask.
        prefix: Bytes of the key-group prefix.
        compressed: Whether key groups are compressed.
    """
    if not header.states:
        return None
    pieces = unified_pieces(merge(*tables, key=itemgetter(0, 1)), prefix)
    part = write_keyed_part(directory, header, pieces, compressed=compressed)
    return keyed_handle(part, key_groups)


def unified_pieces(runs: Iterable[SnapshotRun], prefix: int) -> Iterator[tuple[int | None, bytes]]:
    """Yield runs in the unified format, for `write_keyed_part`.

    Args:
        runs: Runs by key group, and within a key group by state.
        prefix: Bytes of the key-group prefix.
    """
    before = _NOTHING
    for run, after in pairwise(chain(runs, (_NOTHING,))):
        group, state, entries = run
        starts_state, ends_state = before[:2] != run[:2], after[:2] != run[:2]
        piece = b"".join(
            (
                state.to_bytes(STATE_ID_BYTES, "big") if starts_state else b"",
                copy_entries(entries, prefix, ends_run=ends_state).data.data,
                END_OF_KEY_GROUP if after[0] != group else b"",
            )
        )
        yield None if before[0] == group else group, piece
        before = run
