"""Verify a checkpoint log: restore every marker into a temporary directory.

Restoring checks each file against its size and checksum. A log may be of a running job, whose next
commit removes files of the one before: a task that has committed meanwhile is verified again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from statelake.state_core.errors import StateError
from statelake.state_core.printable import Printed, Table, bytes_text
from statelake.state_core.runtime.commit import (
    CheckpointLog,
    CheckpointV2,
    KeyValueStore,
    PosixDisk,
    StateBackendFactory,
    StoreSpec,
    TaskContext,
    TaskStores,
)
from statelake.state_core.runtime.commit.logs.checkpoint_records import (
    SHORT,
    last_records,
    read_records,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import TaskRecord
from statelake.state_core.runtime.commit.records.records import CHANGELOG_FACTORY, SNAPSHOT_FACTORY

SOUND, UNSOUND, NOT_LOOKED_AT = "sound", "unsound", "not looked at"
LOOKS = 3
Snapshots = Callable[[str], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of one marker.

    Attributes:
        task: The task's name.
        checkpoint: The commit's id.
        store: The store's name.
        backend: The factory's name.
        outcome: `sound`, `unsound` or `not looked at`.
        size: The restored bytes.
        why: The fault.
    """

    task: str
    checkpoint: str
    store: str
    backend: str
    outcome: str
    size: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedLog(Printed):
    """The results of all markers that were verified."""

    JSON = ("sound=!faults", "faults", "markers")

    markers: list[Verified]

    @property
    def faults(self) -> list[str]:
        """The faults: markers that can't be restored, and stores without a verified marker."""
        faults = [
            f"task {marker.task}, store {marker.store}, checkpoint {marker.checkpoint}:"
            f" {marker.why}"
            for marker in self.markers
            if marker.outcome == UNSOUND
        ]
        stores: dict[tuple[str, str, str], set[str]] = {}
        for marker in self.markers:
            of_store = stores.setdefault((marker.task, marker.store, marker.checkpoint), set())
            of_store.add(marker.outcome)
        return faults + [
            f"task {task}, store {store}, checkpoint {checkpoint}: no marker of it was looked at"
            for (task, store, checkpoint), outcomes in stores.items()
            if outcomes == {NOT_LOOKED_AT}
        ]

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        rows = [
            (marker.task, marker.checkpoint, marker.store,
             SHORT.get(marker.backend, marker.backend), marker.outcome,
             bytes_text(marker.size) if marker.size else "", marker.why)
            for marker in self.markers
        ]  # fmt: skip
        title = f"{len(self.markers)} markers, {len(self.faults)} faults"
        columns = ("<task", "<checkpoint", "<store", "<backend", "<outcome", ">restored", "<why")
        yield Table(title, columns, rows)


def verify_log(
    log: CheckpointLog,
    backends: Iterable[StateBackendFactory],
    *,
    snapshots: Snapshots | None = None,
    tasks: Iterable[str] = (),
    every: bool = False,
) -> VerifiedLog:
    """Restore all markers of a log.

    Args:
        log: The log.
        backends: The available backends; markers of others are not verified.
        snapshots: Returns the bytes of a snapshot of the lake and its faults, empty without any;
            None if there is no lake.
        tasks: Only these; all by default.
        every: Whether to verify every record of version 2; otherwise the last of each task, of
            version 2 if it has one.

    Raises:
        CheckpointRecordError: A record is broken.
        NotFoundError: A task has no record.
    """
    factories = {backend.name: backend for backend in backends}
    wanted = tuple(tasks)
    done: list[Verified] = []
    for chosen in _chosen(log, wanted, every=every):
        record, verified = chosen, list(_verify(chosen, factories, snapshots))
        for _ in range(0 if every else LOOKS):
            if not any(marker.outcome == UNSOUND for marker in verified):
                break
            (again,) = _chosen(log, (record.task,), grouper=record.key.grouper)
            if again.record.message == record.record.message:
                break
            record, verified = again, list(_verify(again, factories, snapshots))
        done += verified
    return VerifiedLog(done)


def _chosen(
    log: CheckpointLog, tasks: Iterable[str], *, every: bool = False, grouper: str | None = None
) -> list[TaskRecord]:
    records = [
        read_record
        for read_record in read_records(log)
        if grouper in {None, read_record.key.grouper}
    ]
    last = last_records(records, tasks)
    if every:
        return [
            record for record in records
            if record.checkpoint.version == 2 and (record.key.grouper, record.task) in last
        ]  # fmt: skip
    return [versions[max(versions)] for versions in last.values()]


def _verify(
    record: TaskRecord, factories: dict[str, StateBackendFactory], snapshots: Snapshots | None
) -> Iterator[Verified]:
    checkpoint = record.checkpoint
    if not isinstance(checkpoint, CheckpointV2):
        # it has no markers, and its offsets of changelogs are not distinguished
        yield Verified(record.task, str(record.id or ""), "(all)", CHANGELOG_FACTORY, NOT_LOOKED_AT)
        return
    for name, stores in record.backends.items():
        for store in stores:
            facts = (record.task, str(checkpoint.id), store, name)
            if name == SNAPSHOT_FACTORY and snapshots is not None:
                size, why = snapshots(checkpoint.markers[name][store])
                yield Verified(*facts, UNSOUND if why else SOUND, size, why)
                continue
            if name not in factories:
                yield Verified(*facts, NOT_LOOKED_AT)
                continue
            try:
                size = _restore(factories[name], checkpoint, record.task, store)
            except (StateError, OSError) as error:
                yield Verified(*facts, UNSOUND, why=str(error))
            else:
                yield Verified(*facts, SOUND, size)


def _restore(factory: StateBackendFactory, checkpoint: CheckpointV2, task: str, store: str) -> int:
    """Restore one store into a temporary directory, and return its bytes."""
    with tempfile.TemporaryDirectory() as path, ThreadPoolExecutor(1) as pool:
        counted = _CountedStore()
        stores = TaskStores(PosixDisk(path), task, [StoreSpec(store, lambda *_: counted)])
        context = TaskContext("", "1", task, stores, pool)
        manager = factory.restore_manager(context, [store])
        try:
            manager.init(checkpoint)
            manager.restore()
        finally:
            manager.close()
        return context.measures["bytes_restored"] + counted.size


class _CountedStore(KeyValueStore):
    """Counts the bytes of restored changes, and forgets them: a changelog may be of any job."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def apply(self, key: bytes, value: bytes | None) -> None:
        self.size += len(key) + len(value or b"")

    def get(self, key: bytes) -> bytes | None:
        return None

    def items(self) -> Iterable[tuple[bytes, bytes]]:
        return ()
