"""Migrate a snapshot: states under new types, as a new snapshot; the old one stays.

Compatibility is resolved first, and what is incompatible is refused with its reasons. Then every
file of a state's table is read with the old serializer and written with the new one; every value
is read back from its bytes before anything is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.changes import ValueChange, digest_of, is_needed, resolve_changes
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import (
    TableRewriter,
    Transform,
    layout_of,
    pieces_of,
    successor_of,
)
from statelake.pipelines.lake.tables.records import (
    AnyState,
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
)
from statelake.pipelines.times import Times
from statelake.state_core.errors import IncompatibleError, StateError
from statelake.state_core.formats.layout.keyed_states import value_snapshot, with_value_bytes
from statelake.state_core.formats.layout.meta_info import parse_state_meta_info
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.value_migration import (
    decode_rows,
    exact_values,
    migrate_rows,
    null_value_fields,
    validate_rows,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Compatibility, worst_of
from statelake.state_core.serializers.opaque.decoders import DecodedSerializer, undecoded
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type

__all__ = ["MigrationResult", "ValueStaging", "migrate_snapshot", "refuse_disagreeing"]

# of a table, a change and a token: the directory of the rows with new values of each partition, or
# of each subtask where the table has no partitions
ValueStaging = Callable[[OperatorRecord, TableRecord, ValueChange, str], Mapping[int, str]]


@dataclass(frozen=True)
class MigrationResult:
    """What a migration did.

    Attributes:
        record: The new snapshot; the old one if nothing had to be done.
        result: The compatibility of old and new, of several states the worst.
        entries: How many values were migrated.
        times: Where time went.
    """

    record: SnapshotRecord
    result: Compatibility
    entries: int
    times: Times | None = None


def migrate_snapshot(
    lake: Catalog,
    job: str,
    parent: str,
    snapshot_id: str,
    *changes: ValueChange,
    staging: ValueStaging | None = None,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> MigrationResult:
    """Register a new snapshot in which states have new value types: all of them, or none.

    Args:
        lake: The lake.
        job: The job.
        parent: The snapshot to migrate.
        snapshot_id: What the new one is to be called.
        changes: The new types, one a state.
        staging: Computes a change's expressions: for a table, writes its rows with the new value
            below a directory, and names the directory of each partition, or of each subtask.
        note: Kept with it.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) after each task of a table.

    Raises:
        IncompatibleError: The old values can't become the new ones, or the copies of a broadcast
            state differ.
        ConflictError: The id is taken.
        EncodeError: A value can't be carried over; nothing was registered.
    """
    record = lake.snapshot(job, parent)
    resolved = resolve_changes(record, changes)
    for change, operator, state, result in resolved:
        if not change.expressions and not result.usable:
            raise IncompatibleError(
                "; ".join(str(reason) for reason in result.reasons) or "the types are incompatible",
                place=f"state {operator.label}/{state.name}",
                remedy="give an expression for the field that says how its old value becomes the"
                " new",
            )
    worst = worst_of(result for _, _, _, result in resolved)
    needed = [one for one in resolved if is_needed(one[0], one[3])]
    if not needed:
        return MigrationResult(record, worst, 0)
    for _, operator, state, _ in needed:
        refuse_disagreeing(operator, state)
    paths = [state.table for _, _, state, _ in needed]
    with successor_of(
        lake, job, record, snapshot_id, paths=paths, engine=engine, progress=progress
    ) as (record, rewriter):
        operators = {operator.operator_id: operator for operator in record.operators}
        for change, operator, state, _ in needed:
            operators[operator.operator_id] = _migrate_table(
                rewriter, operators[operator.operator_id], state, change, staging
            )
        migrated = replace(
            record.followed_by(
                snapshot_id, "migrate", list(operators.values()), rewriter.written, note
            ),
            applied=digest_of(changes),
        )
        migrated = rewriter.commit(migrated)
    entries = sum(state.entries for _, _, state, _ in needed)
    return MigrationResult(migrated, worst, entries, rewriter.stopwatch.times())


def refuse_disagreeing(operator: OperatorRecord, state: AnyState) -> None:
    """Raise where a migration would settle which copy of a broadcast state counts.

    Raises:
        IncompatibleError: The copies of some subtasks are not the one in the table.
    """
    if isinstance(state, OperatorStateRecord) and state.disagreeing:
        who = ", ".join(map(str, state.disagreeing))
        raise IncompatibleError(
            f"the copies of the subtasks {who} differ from the first one's, which is the only one"
            " in the lake",
            place=f"state {operator.label}/{state.name}",
            remedy="if that one is right, say so first: `statelake sql --edit` with UPDATE ... SET"
            " value = value makes a snapshot, which can be migrated",
        )


def _migrate_table(
    rewriter: TableRewriter,
    operator: OperatorRecord,
    state: AnyState,
    change: ValueChange,
    staging: ValueStaging | None,
) -> OperatorRecord:
    """Migrate a state's table, and return its operator."""
    table = operator.table_of(state)
    layout = layout_of(rewriter.lake, operator, table)
    staged = None
    if change.expressions:
        value = _value_of(state.meta_info).restore_serializer()
        keyed = isinstance(state, StateRecord)
        if keyed and layout.plain and isinstance(value, DecodedSerializer):
            raise IncompatibleError(
                "the snapshot was imported without the decoder, so that an expression would see"
                " bytes",
                place=f"state {operator.label}/{state.name}",
                remedy="import it again under another id with the decoder, and migrate that",
            )
        if staging is None:
            raise StateError("expressions need Spark, and no session was given")
        rewriter.stopwatch.end_step("planned")
        staged = staging(operator, table, change, rewriter.token)
        rewriter.stopwatch.end_step("expressions")
    meta_info = with_value_bytes(state.meta_info, change.value)
    values = NewValues(state.meta_info, meta_info, change.spec, layout.plain, staged is not None)
    pieces = pieces_of(rewriter.lake, table, staged)
    layout = layout.with_meta_info(meta_info)
    return rewriter.rewrite_table(operator, table, layout, pieces, [values])


@dataclass(frozen=True)
class NewValues(Transform):
    """Give values another type: as Flink carries them over, or with values that SQL computed.

    Every new value is read back from its bytes.

    Attributes:
        before: The state's meta info.
        after: The meta info with the new type.
        spec: How the new type was written down, which may say more than the meta info.
        plain: Whether the table was written without the decoders of users that there are now.
        computed: Whether rows come with values that SQL computed.
    """

    keeps_count = True
    compares = True

    before: bytes
    after: bytes
    spec: TypeSpec | None
    plain: bool
    computed: bool

    def compare(self, rows: StateRows | ElementRows) -> None:
        """Refuse values that typed columns can't hold, since an expression sees only these."""
        count = pc.sum(exact_values(rows)).as_py()
        if count:
            raise IncompatibleError(
                f"{count} values that only their exact bytes hold, which an expression would not"
                " see",
                remedy="edit or delete these rows first (WHERE raw_value IS NOT NULL)",
            )

    def apply(self, rows: Rows) -> Rows:
        """Migrate the values, and read them back."""
        with undecoded() if self.plain else nullcontext():
            new = (self.spec and parse_type(self.spec)) or _value_of(self.after)
            serializer = new.restore_serializer()
        if self.computed:
            rows = replace(rows, layout=replace(rows.layout, value=serializer))
        else:
            rows = migrate_rows(self._decoded(rows), serializer)
        if self.spec is not None:  # which says of each field whether it may be null
            for null in null_value_fields(rows).values():
                raise null.error()
        validate_rows(rows)
        return rows

    def _decoded(self, rows: Rows) -> Rows:
        """Rows of keyed state, with values decoded that were imported as bytes."""
        if not self.plain or isinstance(rows, ElementRows):
            return rows
        value = _value_of(self.before).restore_serializer()
        return decode_rows(rows, value) if isinstance(value, DecodedSerializer) else rows


def _value_of(meta_info: bytes) -> TypeSerializerSnapshot:
    """The type of a state's values."""
    return value_snapshot(parse_state_meta_info(meta_info))
