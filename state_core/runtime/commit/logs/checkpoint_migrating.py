"""Migrate records of version 1 to version 2, task by task, and back.

Nothing is changed in place: a record of the other version is appended. So an interrupted migration
is repeated, and readers of the former version still find their records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from statelake.state_core.errors import CheckpointRecordError, DeclarationError
from statelake.state_core.printable import Printed, Table
from statelake.state_core.runtime.commit import (
    CheckpointId,
    CheckpointLog,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.logs.checkpoint_records import (
    last_records,
    read_records,
)
from statelake.state_core.runtime.commit.records.checkpoint_reading import TaskRecord
from statelake.state_core.runtime.commit.records.records import CHANGELOG_FACTORY, CHECKPOINT_TYPES
from statelake.state_core.runtime.commit.records.serdes import (
    downgrade,
    upgrade,
    write_checkpoint_v1,
    write_checkpoint_v2,
    write_key,
)

REFUSED = "refused"
_OF_A_CHANGELOG = re.compile(r"\d{1,19}-\d{1,19}:(null|\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TaskMigration:
    """The migration of one task.

    Attributes:
        task: Its name.
        outcome: `migrated`, `migrated before`, `rolled back`, `rolled back before`, `nothing to do`
            or `refused`.
        checkpoint: The id of the record that was appended, or would be.
        why: The reason of a refusal.
    """

    task: str
    outcome: str
    checkpoint: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class MigratedLog(Printed):
    """The migration of a log.

    Attributes:
        tasks: The migration of each task.
        dry_run: Whether nothing was appended.
    """

    JSON = "tasks"

    tasks: list[TaskMigration]
    dry_run: bool

    @property
    def refused(self) -> int:
        """The number of tasks that were refused."""
        return sum(task.outcome == REFUSED for task in self.tasks)

    @property
    def table(self) -> Table:
        """The tasks, as people read them."""
        title = f"{len(self.tasks)} tasks, {self.refused} refused"
        title += ", nothing appended" if self.dry_run else ""
        return Table.of(title, ("<task", "<outcome", "<checkpoint", "<why"), self.tasks)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        yield self.table


def migrate_records(
    log: CheckpointLog,
    changelogs: Mapping[str, tuple[str, str]],
    *,
    tasks: Iterable[str] = (),
    rollback: bool = False,
    dry_run: bool = False,
) -> list[TaskMigration]:
    """Append to every task's records one of the other version, unless it exists.

    Args:
        log: The log.
        changelogs: The system and stream of each store's changelog: version 1 has no other mapping
            from offsets to stores.
        tasks: Only these; all by default.
        rollback: Whether to migrate from version 2 to version 1.
        dry_run: Whether to append nothing.

    Raises:
        CheckpointRecordError: A record is broken.
        NotFoundError: A task has no record.
    """
    done = []
    for versions in last_records(read_records(log), tasks).values():
        v1, v2 = versions.get(1), versions.get(2)
        task = next(iter(versions.values())).task
        try:
            outcome, key, message, made = _back(v1, v2) if rollback else _forth(v1, v2, changelogs)
        except CheckpointRecordError as error:
            done.append(TaskMigration(task, REFUSED, why=str(error)))
            continue
        if message and not dry_run:
            log.append(key, message)
        done.append(TaskMigration(task, outcome, made))
    return done


def upgraded(record: TaskRecord, changelogs: Mapping[str, tuple[str, str]]) -> CheckpointV2:
    """Return a record's checkpoint in version 2.

    Raises:
        CheckpointRecordError: The record has offsets of changelogs that are not named.
    """
    offsets = record.checkpoint.offsets
    named = {
        store: partition
        for store, place in changelogs.items()
        for partition in offsets
        if (partition.system, partition.stream) == place
    }
    unnamed = sorted(
        partition
        for partition, offset in offsets.items()
        if offset and _OF_A_CHANGELOG.fullmatch(offset) and partition not in named.values()
    )
    if unnamed and isinstance(record.checkpoint, CheckpointV1):
        raise CheckpointRecordError(
            "an offset is a changelog's, and no store has that changelog",
            place=str(unnamed[0]),
            remedy=f"name it: STORE={unnamed[0].system}.{unnamed[0].stream}",
        )
    checkpoint = upgrade(record.checkpoint, named)
    if checkpoint.id == CheckpointId(0, 0):  # without changelogs, version 1 has no id
        checkpoint = CheckpointV2(
            CheckpointId(record.record.appended_at, 0), checkpoint.input_offsets
        )
    return checkpoint


_Step = tuple[str, bytes, bytes, str]


def _forth(
    v1: TaskRecord | None, v2: TaskRecord | None, changelogs: Mapping[str, tuple[str, str]]
) -> _Step:
    if v1 is None:
        return "nothing to do", b"", b"", ""
    checkpoint = upgraded(v1, changelogs)
    if v2 is not None and (v2.record.offset > v1.record.offset or _says(v2.checkpoint, checkpoint)):
        return "migrated before", b"", b"", str(v2.id)
    return "migrated", _key(v1, 2), write_checkpoint_v2(checkpoint), str(checkpoint.id)


def _back(v1: TaskRecord | None, v2: TaskRecord | None) -> _Step:
    if v2 is None or not isinstance(v2.checkpoint, CheckpointV2):
        return "nothing to do", b"", b"", ""
    checkpoint = v2.checkpoint
    downgraded = downgrade(checkpoint)
    if v1 is not None and (v1.record.offset > v2.record.offset or v1.checkpoint == downgraded):
        return "rolled back before", b"", b"", str(v2.id)
    marked = {store for stores in checkpoint.markers.values() for store in stores}
    lost = sorted(marked - set(checkpoint.markers.get(CHANGELOG_FACTORY, {})))
    if lost:
        raise CheckpointRecordError(
            f"store {lost[0]!r} has no changelog, and version 1 has no place for other markers",
            place=f"task {v2.task}",
            remedy="commit once with `changelog` in stores.<store>.backup.factories",
        )
    return "rolled back", _key(v2, 1), write_checkpoint_v1(downgraded), str(v2.id)


def _says(two: object, expected: CheckpointV2) -> bool:
    return (
        isinstance(two, CheckpointV2)
        and two.input_offsets == expected.input_offsets
        and (two.markers.get(CHANGELOG_FACTORY, {}) == expected.markers.get(CHANGELOG_FACTORY, {}))
    )


def _key(record: TaskRecord, version: int) -> bytes:
    return write_key(CheckpointLogKey(record.key.grouper, record.task, CHECKPOINT_TYPES[version]))


def changelog_of(text: str) -> tuple[str, tuple[str, str]]:
    """Parse a store and its changelog from `STORE=SYSTEM.STREAM`.

    Raises:
        DeclarationError: The text is not of that form.
    """
    store, _, place = text.partition("=")
    system, _, stream = place.partition(".")
    if not store or not stream:
        raise DeclarationError(f"{text!r} is not STORE=SYSTEM.STREAM")
    SystemStreamPartition(system, stream, 0)
    return store, (system, stream)
