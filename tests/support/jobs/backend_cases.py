"""Backends to run the contract over, and what the tests ask them for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.model.handles import KeyedHandle
from statelake.state_core.model.key_groups import key_group_ranges, operator_id_of_uid
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
    heap_backend,
    restore_backend,
    rocksdb_backend,
)
from statelake.state_core.runtime.declarations import StateTtlConfig, StateVisibility, UpdateType
from tests.support.savepoints.native_checkpoints import native_checkpoint

MakeBackend = Callable[[BackendConfiguration], KeyedStateBackend]
# RocksDB syncs its files whenever a state is made: memory is quicker at that than a disk
MEMORY = Path("/dev/shm")  # noqa: S108 - a directory with a random name is made in it


def _rocksdb_in_memory(configuration: BackendConfiguration) -> KeyedStateBackend:
    return rocksdb_backend(configuration, MEMORY if MEMORY.is_dir() else None)


BACKENDS: dict[str, MakeBackend] = {"heap": heap_backend, "rocksdb": _rocksdb_in_memory}


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        """The time."""
        return self.now


class Average:
    """Sum and count of what was added."""

    def create_accumulator(self) -> dict[str, int]:
        """Of nothing."""
        return {"f0": 0, "f1": 0}

    def add(self, value: int, accumulator: dict[str, int]) -> dict[str, int]:
        """One more."""
        return {"f0": accumulator["f0"] + value, "f1": accumulator["f1"] + 1}

    def get_result(self, accumulator: dict[str, int]) -> float:
        """Their mean."""
        return accumulator["f0"] / accumulator["f1"]

    def merge(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        """Both."""
        return {"f0": a["f0"] + b["f0"], "f1": a["f1"] + b["f1"]}


def total(first: int, two: int) -> int:
    """What reducing states do here."""
    return first + two


def time_to_live(
    millis: int, *, on_read: bool = False, return_expired: bool = False
) -> StateTtlConfig:
    """A time to live, renewed by reads or not; and whether what expired is shown once more."""
    return StateTtlConfig(
        millis,
        UpdateType.ON_READ_AND_WRITE if on_read else UpdateType.ON_CREATE_AND_WRITE,
        StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        if return_expired
        else StateVisibility.NEVER_RETURN_EXPIRED,
    )


def descriptor(kind: str, ttl: StateTtlConfig | None = None, name: str = "") -> StateDescriptor:
    """A state of each kind, named after it."""
    value = {"list": "String", "aggregating": "Tuple2<Long, Long>"}.get(kind, "Long")
    return StateDescriptor(
        name or kind,
        StateKind(kind),
        value,
        "String" if kind == "map" else "",
        ttl,
        total if kind == "reducing" else None,
        Average() if kind == "aggregating" else None,
    )


def taken(
    backend: KeyedStateBackend,
    directory: Directory,
    shared: Directory | None = None,
    *,
    canonical: bool = True,
) -> KeyedHandle | None:
    """What a snapshot of a backend is written as, or a checkpoint in the backend's own form."""
    if canonical:
        return backend.snapshot(directory).run()
    return native_checkpoint(backend, directory, shared)


def write_savepoint(
    backends: Sequence[KeyedStateBackend],
    directory: Path,
    uid: str = "operator",
    *,
    canonical: bool = True,
) -> Path:
    """A whole savepoint of one operator, a backend a subtask; or in the backends' own form."""
    target = SavepointDirectory(directory)
    subtasks = {
        index: SubtaskState(managed_keyed=taken(backend, target.directory, canonical=canonical))
        for index, backend in enumerate(backends)
    }
    most = backends[0].configuration.max_parallelism
    operator = OperatorMetadata(
        operator_id_of_uid(uid), len(backends), most, uid, uid, None, subtasks
    )
    target.commit(CheckpointMetadata(3, 1, [operator]))
    return directory


def restored_at(
    make: MakeBackend,
    handles: Sequence[KeyedHandle | None],
    directory: Path | Directory,
    parallelism: int,
    key: Any = "String",
    max_parallelism: int = 128,
) -> list[KeyedStateBackend]:
    """A backend for every subtask of an operator that is restored at a parallelism."""
    made = []
    for key_groups in key_group_ranges(max_parallelism, parallelism):
        backend = make(BackendConfiguration(key, key_groups, max_parallelism))
        where = directory if isinstance(directory, Directory) else Directory(directory)
        restore_backend(backend, handles, where)
        made.append(backend)
    return made
