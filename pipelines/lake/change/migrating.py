"""Migrate a snapshot: give states new types, or time to live, in a new one; the old one stays.

Compatibility is resolved first, and what is incompatible is refused with its reasons. Then every
file of a state's table is read with the old serializer and written with the new one; every value
is read back from its bytes before anything is registered. Expressions over old values are DuckDB's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import (
    NOW,
    TAKEN_AT,
    Change,
    TtlChange,
    ValueChange,
    by_expressions,
    digest_of,
    is_needed,
    resolve_changes,
)
from statelake.pipelines.lake.change.field_words import literal
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import (
    ChildSnapshot,
    Derivation,
    TableChange,
    TableLayout,
    TableRewriter,
    Transform,
    derive,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.tables.records import (
    AnyState,
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
)
from statelake.pipelines.times import Times, phase
from statelake.state_core.errors import IncompatibleError
from statelake.state_core.formats.layout.keyed_layout import KEY, VALUE
from statelake.state_core.formats.layout.keyed_states import (
    value_snapshot,
    with_ttl_bytes,
    with_value_bytes,
)
from statelake.state_core.formats.layout.meta_info import parse_state_meta_info
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.ttl_switch import switch_off, switch_on
from statelake.state_core.formats.rewriting.value_migration import (
    BY_BYTES,
    decode_rows,
    migrate_rows,
    null_value_fields,
    refuse_inexact,
    validate_rows,
    with_values,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.nested import column_path, field_name
from statelake.state_core.serializers.contents.sayings import holding
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Compatibility, worst_of
from statelake.state_core.serializers.framework.opaque_values import DecodedSerializer, undecoded
from statelake.state_core.serializers.type_spec import TypeSpec, parse_type

if TYPE_CHECKING:
    from statelake.pipelines.lake.query.session import Session
    from statelake.pipelines.lake.query.statements import PreparedExpression


@dataclass(frozen=True)
class MigrationResult:
    """The result of a migration.

    Attributes:
        record: The new snapshot; the old one if there was nothing to do.
        result: The compatibility of old and new, of several states the worst.
        entries: The number of values that were migrated.
        times: The times of the stages.
    """

    record: SnapshotRecord
    result: Compatibility
    entries: int
    times: Times | None = None


def migrate_snapshot(
    child: ChildSnapshot, *changes: Change, inexact: bool = False
) -> MigrationResult:
    """Register a new snapshot in which states have new value types: all of them, or none.

    Args:
        child: The new snapshot.
        changes: The new types, and switches of time to live; of each kind one for a state.
        inexact: Whether expressions go by what columns show of values that they don't hold in full.

    Raises:
        IncompatibleError: The old values can't become the new ones, or the copies of a broadcast
            state differ.
        ConflictError: The id is taken.
        InexactError: An expression reads values that columns don't hold in full.
        QueryError: An expression can't be parsed, or evaluated.
        EncodeError: A value can't be converted; nothing was registered.
    """
    record = child.parent_record
    resolved = resolve_changes(record, changes)
    for change, operator, state, result in resolved:
        if not change.expressions and not result.usable:
            raise IncompatibleError(
                "; ".join(str(reason) for reason in result.reasons) or "the types are incompatible",
                place=f"state {operator.label}/{state.name}",
                remedy="give an expression for the field that says how its old value becomes the"
                " new",
            )
    worst = worst_of(by_expressions(change, result) for change, _, _, result in resolved)
    needed = [one for one in resolved if is_needed(one[0], one[3])]
    if not needed:
        return MigrationResult(record, worst, 0)
    for _, operator, state, _ in needed:
        refuse_disagreeing(operator, state)
    states = {state.table: state for _, _, state, _ in needed}
    work = _Migration(
        child.lake,
        changes,
        {
            path: (state, [change for change, _, of, _ in needed if of.table == path])
            for path, state in states.items()
        },
        inexact=inexact,
    )
    done = derive(child, record, work, paths=[*states])
    entries = sum(state.entries for state in states.values())
    return MigrationResult(done.record, worst, entries, done.times)


@dataclass(frozen=True)
class Example:
    """A value before and after a migration."""

    before: Any
    after: Any


def example_of(
    lake: Catalog,
    record: SnapshotRecord,
    operator: OperatorRecord,
    state: AnyState,
    change: ValueChange,
    *,
    inexact: bool = False,
) -> Example | None:
    """Return the first value of a state before and after its migration; None if there is none.

    Raises:
        StateError: The value can't be migrated.
    """
    work = _Migration(lake, [change], {state.table: (state, [change])}, inexact=inexact)
    work.begin(record)
    planned = work.change(operator, operator.table_of(state))
    if planned is None:
        return None
    read: Iterator[Any] = (rows for piece in planned.pieces for rows in planned.layout.read(piece))
    for rows in read:
        if len(rows.batch):
            migrated = first = replace(rows, batch=rows.batch.slice(0, 1))
            for transform in planned.transforms:
                migrated = transform.apply(migrated)
            validate_rows(migrated)
            return Example(*(each.batch.column(VALUE)[0].as_py() for each in (first, migrated)))
    return None


class _Migration(Derivation):
    """A migration of some states, by the paths of their tables."""

    origin = "migrate"

    def __init__(
        self,
        lake: Catalog,
        changes: Sequence[Change],
        needed: Mapping[str, tuple[AnyState, Sequence[Change]]],
        *,
        inexact: bool = False,
    ) -> None:
        self.lake = lake
        self.inexact = inexact
        self.changes = changes
        self.needed = needed
        self.session: Session | None = None
        self.times: dict[str, int] = {}

    def begin(
        self, record: SnapshotRecord, rewriter: TableRewriter | None = None
    ) -> Sequence[OperatorRecord]:
        """Open DuckDB over the snapshot, if there are expressions; read the clock."""
        self.times = {
            NOW: time.time_ns() // 1_000_000,
            TAKEN_AT: round(record.taken_at.timestamp() * 1000),
        }
        if any(change.expressions for change in self.changes):
            from statelake.pipelines.lake.edit.sql_editing import session_over  # noqa: PLC0415 - DuckDB

            self.session = session_over(self.lake, record)
        return record.operators

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table whose state gets new values."""
        if table.path not in self.needed:
            return None
        state, changes = self.needed[table.path]
        layout = layout_of(self.lake, operator, table)
        meta_info = state.meta_info
        transforms: list[Transform] = []
        for change in changes:
            if isinstance(change, ValueChange):
                meta_info = with_value_bytes(meta_info, change.value)
                transforms.append(self._new_values(operator, state, change, layout, meta_info))
        for change in changes:
            if isinstance(change, TtlChange):
                meta_info = with_ttl_bytes(meta_info, on=change.on)
                last_access = self.times.get(change.last_access, change.last_access)
                transforms.append(SwitchedTtl(change.on, last_access))
        return TableChange(layout.with_meta_info(meta_info), pieces_of(table), transforms)

    def _new_values(
        self,
        operator: OperatorRecord,
        state: AnyState,
        change: ValueChange,
        layout: TableLayout,
        meta_info: bytes,
    ) -> NewValues:
        """Return the transform to a new type, which `meta_info` has."""
        expression = None
        if self.session is not None and change.expressions:
            value = value_type(state.meta_info).restore_serializer()
            keyed = isinstance(state, StateRecord)
            if keyed and layout.plain and isinstance(value, DecodedSerializer):
                raise IncompatibleError(
                    "the snapshot was imported without the decoder, so that an expression would see"
                    " bytes",
                    place=f"state {operator.label}/{state.name}",
                    remedy="import it again under another id with the decoder, and migrate that",
                )
            migrated = layout.with_meta_info(meta_info)
            expression = _expression(
                self.session, operator, state, change.expressions, layout, migrated
            )
        content = operator.names_of(state).content if isinstance(state, StateRecord) else ""
        return NewValues(
            state.meta_info, meta_info, change.spec, layout.plain, expression, content, self.inexact
        )

    def finish(self, record: SnapshotRecord) -> SnapshotRecord:
        """Return the record, with the changes that were applied."""
        return replace(record, applied=digest_of(self.changes))


def refuse_disagreeing(operator: OperatorRecord, state: AnyState) -> None:
    """Refuse a migration that would decide between different copies of a broadcast state.

    Raises:
        IncompatibleError: The copies of some subtasks differ from the one in the table.
    """
    if isinstance(state, OperatorStateRecord) and state.disagreeing:
        who = ", ".join(map(str, state.disagreeing))
        raise IncompatibleError(
            f"the copies of the subtasks {who} differ from the first one's, which is the only one"
            " in the lake",
            place=f"state {operator.label}/{state.name}",
            remedy="if that one is right, set it first: `statelake sql --edit` with UPDATE ... SET"
            " value = value makes a snapshot, which can be migrated",
        )


def _expression(
    session: Session,
    operator: OperatorRecord,
    state: AnyState,
    expressions: Mapping[str, str],
    before: TableLayout,
    after: TableLayout,
) -> PreparedExpression:
    """Return the prepared expression of a state's new values, after a try with no rows."""
    from statelake.pipelines.lake.query import statements  # noqa: PLC0415 - DuckDB

    old, new = (layout.schema.field(VALUE).type for layout in (before, after))
    is_list = isinstance(state, StateRecord) and state.kind == StateKind.LIST.value
    if is_list and pa.types.is_list(old) and pa.types.is_list(new):
        text = _value_expression(old.value_type, new.value_type, expressions)
        text = f"[{text} for old in {VALUE}]"
    else:
        text = _value_expression(old, new, expressions)
    shown = ", ".join(f"{name}: {sql}" if name else sql for name, sql in expressions.items())
    expression = statements.PreparedExpression(
        session, text, f"state {operator.label}/{state.name}, {shown}"
    )
    expression.try_over(before.schema, new)
    return expression


def _value_expression(old: pa.DataType, new: pa.DataType, expressions: Mapping[str, str]) -> str:
    """Return one SQL expression for the whole new value.

    A field without an expression is the old field of its name.

    Args:
        old: The old value's type.
        new: The new value's type.
        expressions: By field; the empty name stands for the whole value.

    Raises:
        IncompatibleError: There is no such field, or a new field has no expression.
    """
    if "" in expressions:
        return f"({expressions['']}\n)"
    return _struct_expression(old, new, expressions, "old", "")


def _struct_expression(
    old: pa.DataType, new: pa.DataType, expressions: Mapping[str, str], text: str, path: str
) -> str:
    """Return the SQL expression of a new struct, whose old one is `text`, by its fields.

    Args:
        old: The old struct's type.
        new: The new struct's type.
        expressions: The expressions by the path of the field within this struct.
        text: The SQL of the old struct.
        path: What is before the names of its fields in messages.
    """
    if not pa.types.is_struct(new):
        raise IncompatibleError(
            "an expression by field, for a value without fields", remedy="give one for the value"
        )
    names = [field_name(field) for field in new]
    expressions = {column_path(new, name): sql for name, sql in expressions.items()}
    columns = {field.name for field in new}
    unknown = sorted(name for name in expressions if name.partition(".")[0] not in columns)
    if unknown:
        raise IncompatibleError(
            f"an expression for field {', '.join(repr(path + name) for name in unknown)}, which the"
            " new type does not have",
            remedy=f"its fields are: {', '.join(names)}",
        )
    before = {field_name(field): field for field in old} if pa.types.is_struct(old) else {}
    parts = []
    for field in new:
        name, was = field.name, before.get(field_name(field))
        of_old = "NULL" if was is None else f"{text}[{literal(was.name)}]"
        below = {
            inner.partition(".")[2]: sql
            for inner, sql in expressions.items()
            if inner.startswith(f"{name}.")
        }
        if name in expressions:
            sql = expressions[name]
        elif was is None:
            raise IncompatibleError(
                f"field {path + field_name(field)!r} is new and has no expression",
                remedy="give one; NULL or a constant will do",
            )
        elif below:
            kinds = was.type, field.type
            sql = _struct_expression(*kinds, below, of_old, f"{path}{name}.")
        else:
            sql = of_old
        parts.append(f"{literal(name)}: ({sql}\n)")
    return f"CASE WHEN {text} IS NULL THEN NULL ELSE {{{', '.join(parts)}}} END"


@dataclass(frozen=True)
class NewValues(Transform):
    """Convert values to another type: as Flink does, or by SQL.

    Attributes:
        before: The state's meta info.
        after: The meta info with the new type.
        spec: The text of the new type, which may say more than the meta info.
        plain: Whether the table was written without the users' decoders of now.
        expression: The SQL expression of the new values, if Flink's conversion is not used.
        content: What texts or bytes hold, also those of the new type.
        inexact: Whether the expression goes by what columns show of values that they don't hold in
            full.
    """

    keeps_count = True
    reads_back = True

    before: bytes
    after: bytes
    spec: TypeSpec | None
    plain: bool
    expression: PreparedExpression | None
    content: str = ""
    inexact: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Migrate the values."""
        with undecoded() if self.plain else nullcontext():
            new = (self.spec and parse_type(self.spec)) or value_type(self.after)
            serializer = new.restore_serializer()
        with suppress(IncompatibleError):  # numbers hold nothing
            serializer = holding(serializer, self.content)
        if self.expression is not None:
            rows = self._computed(rows, serializer, self.expression)
        else:
            rows = migrate_rows(self._decoded(rows), serializer)
        if self.spec is not None:  # which says of each field whether it may be null
            for null in null_value_fields(rows).values():
                raise null.error()
        return rows

    def _computed(self, rows: Rows, value: TypeSerializer, expression: PreparedExpression) -> Rows:
        """Return rows with values computed by SQL, which sees only typed columns.

        Raises:
            InexactError: It reads some that don't hold the value, or the key, in full.
        """
        for column in (KEY, VALUE):
            if not self.inexact and expression.uses.reads(column):
                refuse_inexact(rows, column, BY_BYTES.format(f"raw_{column}"))
        kind = replace(rows.layout, value=value).schema.field(VALUE).type
        with phase("expressions"):
            return with_values(rows, value, expression.values(rows.batch, kind))

    def _decoded(self, rows: Rows) -> Rows:
        """Return rows of keyed state, with values decoded that were imported as bytes."""
        if not self.plain or isinstance(rows, ElementRows):
            return rows
        value = value_type(self.before).restore_serializer()
        return decode_rows(rows, value) if isinstance(value, DecodedSerializer) else rows


@dataclass(frozen=True)
class SwitchedTtl(Transform):
    """Add the time of last access to each value, or remove it.

    Attributes:
        on: Whether it is added.
        last_access: The time in milliseconds, or the values' field that has it.
    """

    keeps_count = True
    reads_back = True

    on: bool
    last_access: int | str

    def apply(self, rows: Rows) -> Rows:
        """Switch time to live; the values stay."""
        assert isinstance(rows, StateRows)  # noqa: S101 - operator state is refused before
        return switch_on(rows, self.last_access) if self.on else switch_off(rows)


def value_type(meta_info: bytes) -> TypeSerializerSnapshot:
    """The type of a state's values."""
    return value_snapshot(parse_state_meta_info(meta_info))
