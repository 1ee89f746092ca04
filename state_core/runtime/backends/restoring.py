"""Restore of a backend: this subtask's key groups, from a snapshot of any backend.

The type of a handle determines how it is read, as in Flink:

=================================  ===========================================================
`SavepointKeyGroupsStateHandle`    the unified format, of any backend
`KeyGroupsStateHandle`             the heap backend's native format, or the unified format
`IncrementalKeyedStateHandle`      RocksDB's files
=================================  ===========================================================

A backend may get any number of handles, of any subtasks: nothing else is needed to rescale.

Spec: FLIP-41. Source: `HeapKeyedStateBackendBuilder.getRestoreOperation`,
`RocksDBKeyedStateBackendBuilder.getRocksDBRestoreOperation`, `StateAssignmentOperation`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from statelake.state_core.errors import IncompatibleError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.keyed_files import open_keyed, open_raw_timers
from statelake.state_core.formats.layout.meta_info import (
    parse_key_serializer,
    parse_state_meta_info,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.entries import Entries, KeyedFile
from statelake.state_core.model.handles import KeyedHandle, KeyGroupRange
from statelake.state_core.runtime.backends.backend import KeyedStateBackend
from statelake.state_core.runtime.backends.states.registry import RegisteredState, StateRegistry


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
    own = backend.configuration
    for open_file, some in ((open_keyed, handles), (open_raw_timers, raw)):
        for handle in handles_for(some, own.key_groups):
            file = open_file(handle, files, own.max_parallelism)
            if file is not None:
                _restore_file(backend.registry, file, own.key_groups)


def _restore_file(registry: StateRegistry, file: KeyedFile, key_groups: KeyGroupRange) -> None:
    """Restore the tables of a backend's key groups from a file of any format."""
    registry.check_key(parse_key_serializer(file.key_serializer))
    states = [registry.restore(parse_state_meta_info(state.meta_info)) for state in file.states]
    for entries in file.entries(file.key_groups.intersection(key_groups)):
        for index in np.unique(entries.state_of).tolist():
            _load(states[index], entries.of_state(index))


def _load(state: RegisteredState, entries: Entries) -> None:
    try:
        state.table.load(entries)
    except StateError as error:
        raise error.within(f"state {state.info.name!r}") from error
