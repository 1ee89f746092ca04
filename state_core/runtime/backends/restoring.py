"""Restore of a backend: this subtask's key groups, from a snapshot of any backend.

The type of a handle determines how it is read, as in Flink:

=================================  ===========================================================
`SavepointKeyGroupsStateHandle`    the unified format, of any backend
`KeyGroupsStateHandle`             the heap backend's native format, or the unified format
`IncrementalKeyedStateHandle`      RocksDB's files: taken over unchanged if nothing was
                                   rescaled and the backend is RocksDB; otherwise entries are read
=================================  ===========================================================

A backend may get any number of handles, of any subtasks: nothing else is needed to rescale.

Spec: FLIP-41. Source: `HeapKeyedStateBackendBuilder.getRestoreOperation`,
`RocksDBKeyedStateBackendBuilder.getRocksDBRestoreOperation`, `StateAssignmentOperation`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np

from statelake.state_core.errors import IncompatibleError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.keyed_files import open_keyed, open_raw_timers
from statelake.state_core.formats.layout.meta_info import (
    parse_key_serializer,
    parse_state_meta_info,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.handles import IncrementalHandle, KeyedHandle, KeyGroupRange
from statelake.state_core.model.snapshot import Entries, KeyedFile
from statelake.state_core.runtime.backends.backend import KeyedStateBackend
from statelake.state_core.runtime.backends.states.registry import RegisteredState, StateRegistry


@runtime_checkable
class TakesFiles(Protocol):
    """A storage that can take over the files of a handle."""

    def adopt(self, handle: IncrementalHandle, files: StateFiles) -> bool:
        """Take over the handle's files, if they are RocksDB's, and return whether it did."""


def handles_for(
    handles: Iterable[KeyedHandle | None], key_groups: KeyGroupRange
) -> list[KeyedHandle]:
    """Return the handles, of all subtasks, with some of these key groups."""
    return [
        handle
        for handle in handles
        if handle is not None and len(handle.key_groups.intersection(key_groups))
    ]


def restore_backend(
    backend: KeyedStateBackend,
    handles: Iterable[KeyedHandle | None],
    directory: Directory | StateFiles,
    raw: Iterable[KeyedHandle | None] = (),
) -> None:
    """Restore a backend's key groups from handles.

    Args:
        backend: A backend of which no state was requested yet.
        handles: The handles of any subtasks of the operator.
        directory: The snapshot's directory, the base of relative handles.
        raw: Raw keyed state of any subtasks, where RocksDB jobs may have heap timers.

    Raises:
        IncompatibleError: The keys are of another type, or a state was requested before.
        SnapshotError: A file can't be read.
    """
    if not all(state.restored for state in backend.registry):
        raise IncompatibleError("a state was used before the restore")
    files = directory if isinstance(directory, StateFiles) else StateFiles(directory)
    key_groups = backend.configuration.key_groups
    needed = handles_for(handles, key_groups)
    whole = len(needed) == 1 and needed[0].key_groups == key_groups
    for handle in needed:
        opened = open_keyed(handle, files, backend.configuration.max_parallelism)
        if opened is None:
            continue
        storage = backend.storage
        adopted = (
            whole
            and isinstance(handle, IncrementalHandle)
            and isinstance(storage, TakesFiles)
            and storage.adopt(handle, files)
        )
        restore_file(backend.registry, opened, key_groups, with_entries=not adopted)
    for handle in handles_for(raw, key_groups):
        timers = open_raw_timers(handle, files, backend.configuration.max_parallelism)
        if timers is not None:
            restore_file(backend.registry, timers, key_groups)


def restore_file(
    registry: StateRegistry,
    file: KeyedFile,
    key_groups: KeyGroupRange,
    *,
    with_entries: bool = True,
) -> None:
    """Restore the tables of a backend's key groups from a file.

    Args:
        registry: The registry of the tables.
        file: The file, of any format.
        key_groups: The key groups of the backend.
        with_entries: Whether entries are read; if not, the tables have them already.

    Raises:
        IncompatibleError: The keys are of another type.
        SnapshotError: The file can't be read.
    """
    registry.check_key(parse_key_serializer(file.key_serializer))
    states = [registry.restore(parse_state_meta_info(state.meta_info)) for state in file.states]
    if not with_entries:
        return
    for entries in file.entries(file.key_groups.intersection(key_groups)):
        for index in np.unique(entries.state_of).tolist():
            _load(states[index], entries.of_state(index))


def _load(state: RegisteredState, entries: Entries) -> None:
    try:
        state.table.load(entries)
    except StateError as error:
        raise error.within(f"state {state.info.name!r}") from error
