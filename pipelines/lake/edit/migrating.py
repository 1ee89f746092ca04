"""Migrate a snapshot: one state's values under a new type, as a new snapshot; the old one stays.

Compatibility is resolved first, and what is incompatible is refused with its reasons. Then every
file of the state's table is read with the old serializer and written with the new one; every value
is read back from its bytes before anything is registered.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.engine import Engine, Progress, choose_engine
from pipelines.lake.catalog.attempts import Attempt, recover_attempts
from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.edit.changes import ValueChange, resolve_change
from pipelines.lake.edit.keyed_migrating import KeyedMigration
from pipelines.lake.edit.operator_migrating import OperatorMigration, refuse_disagreeing
from pipelines.lake.edit.rewriting import ValueStaging
from pipelines.lake.tables.names import check_names
from pipelines.lake.tables.records import (
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
)
from state_core.errors import ConflictError, IncompatibleError
from state_core.serializers.framework.compatibility import Compatibility, Verdict

__all__ = ["MigrationResult", "migrate_snapshot"]


@dataclass(frozen=True)
class MigrationResult:
    """What a migration did.

    Attributes:
        record: The new snapshot; the old one if nothing had to be done.
        result: The compatibility of old and new.
        entries: How many values were migrated.
    """

    record: SnapshotRecord
    result: Compatibility
    entries: int


def migrate_snapshot(
    lake: Lake,
    job: str,
    parent: str,
    snapshot_id: str,
    change: ValueChange,
    *,
    staging: ValueStaging | None = None,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> MigrationResult:
    """Register a new snapshot in which one state has a new value type.

    Args:
        lake: The lake.
        job: The job.
        parent: The snapshot to migrate.
        snapshot_id: What the new one is to be called.
        change: The new type.
        staging: Computes `change.expressions`: for a table, writes its rows with the new value
            below a directory, and names the directory of each partition, or of each subtask.
        note: Kept with it.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Told of finished files.

    Raises:
        IncompatibleError: The old values can't become the new ones, or the copies of a broadcast
            state differ.
        ConflictError: The id is taken.
        EncodeError: A value can't be carried over; nothing was registered.
    """
    check_names(job, snapshot_id)
    record = lake.snapshot(job, parent)
    operator, state, result = resolve_change(record, change)
    if not change.expressions and not result.usable:
        raise IncompatibleError(
            "; ".join(str(one) for one in result.reasons) or "the types are incompatible",
            place=f"state {operator.label}/{state.name}",
            remedy="give an expression for the field that says how its old value becomes the new",
        )
    if result.verdict is Verdict.COMPATIBLE_AS_IS and not change.expressions:
        return MigrationResult(record, result, 0)
    refuse_disagreeing(operator, state)
    if lake.has(job, snapshot_id):
        raise ConflictError(
            f"job {job!r} has a snapshot {snapshot_id!r} already", remedy="choose another id"
        )
    recover_attempts(lake, job)
    chosen = choose_engine(engine, record.state_bytes) if isinstance(engine, str) else engine
    lake.check_tables([state.table])
    with Attempt(lake, job, snapshot_id, [state.table], leans_on=[parent]) as attempt:
        lake.snapshot(job, parent)
        work = _migration(lake, operator, state, change, attempt.token)
        new_operator, written = work.run(chosen, staging, progress)
        operators = [
            new_operator if one.operator_id == operator.operator_id else one
            for one in record.operators
        ]
        made = record.followed_by(snapshot_id, "migrate", operators, written, note)
        lake.append(made)
    return MigrationResult(made, result, state.entries)


def _migration(
    lake: Lake, operator: OperatorRecord, state: StateRecord | OperatorStateRecord,
    change: ValueChange, token: str,
) -> KeyedMigration | OperatorMigration:  # fmt: skip
    if isinstance(state, OperatorStateRecord):
        return OperatorMigration(lake, operator, state, change, token)
    return KeyedMigration(lake, operator, state, change, token)
