"""A keyed state's table under a new value type: its files rewritten, key group by key group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow.compute as pc

from pipelines.engine import Engine, Progress
from pipelines.lake.catalog import Lake
from pipelines.lake.changes import ValueChange
from pipelines.lake.records import (
    KeyGroupRecord,
    OperatorRecord,
    StateRecord,
    UnitRecord,
    key_group_records,
)
from pipelines.lake.rewriting import RewrittenUnit, TableRewriting, ValueStaging
from pipelines.lake.table_rows import TableRows, table_rows
from pipelines.lake.tables import table_directory
from pipelines.lake.unit_writer import UnitWriter, table_batch, table_columns
from pipelines.lake.units import Partitioning, Unit
from state_core.errors import ConflictError, IncompatibleError, StateError
from state_core.formats.keyed_layout import RAW_VALUE, VALUE, KeyedLayout
from state_core.formats.keyed_states import parse_keyed_state, with_value
from state_core.formats.meta_info import StateMetaInfo, parse_state_meta_info, write_state_meta_info
from state_core.formats.unified_encode import StateRows, encode_rows
from state_core.formats.value_migration import (
    current_exact,
    decode_rows,
    migrate_rows,
    validate_rows,
)
from state_core.key_groups import prefix_bytes
from state_core.measure import Measure
from state_core.serializers.decoders import DecodedSerializer
from state_core.serializers.type_spec import TypeSpec, parse_type
from state_core.snapshot import KeyedState
from state_core.wire import DataOutput

__all__ = ["KeyedMigration"]


@dataclass(frozen=True)
class _Task:
    """Some files of the table, and where the rows with new values are, if SQL made them."""

    rows: TableRows
    meta_info: bytes
    spec: TypeSpec | None
    units: tuple[RewrittenUnit, ...]
    attempt: str

    def parsed(self) -> tuple[KeyedState, KeyedLayout]:
        """The migrated state, and the layout of its entries."""
        state, layout = self.rows.parse(self.meta_info)
        if self.spec is not None:
            layout = replace(layout, value=parse_type(self.spec).restore_serializer())
        return state, layout

    def decoded(self, rows: StateRows) -> StateRows:
        """The table's rows, with values decoded that were imported as bytes."""
        if not self.rows.plain:
            return rows
        ((_, meta_info),) = self.rows.states
        value = parse_keyed_state(meta_info, self.rows.key_serializer)[1].value
        return decode_rows(rows, value) if isinstance(value, DecodedSerializer) else rows


@dataclass
class _Result:
    unit: UnitRecord
    key_groups: list[KeyGroupRecord]


class KeyedMigration:
    """The migration of one keyed state.

    Args:
        lake: The lake.
        operator: The operator.
        state: Its state.
        change: The new type.
        token: Of the attempt.
    """

    def __init__(
        self, lake: Lake, operator: OperatorRecord, state: StateRecord, change: ValueChange,
        token: str,
    ) -> None:  # fmt: skip
        self.lake = lake
        self.operator = operator
        self.state = state
        self.change = change
        self.rewriting = TableRewriting(lake, operator, state.table, token)
        out = DataOutput()
        write_state_meta_info(with_value(_meta_info(state), change.value), out)
        self.meta_info = out.to_bytes()

    def run(
        self, engine: Engine, staging: ValueStaging | None, progress: Progress | None
    ) -> tuple[OperatorRecord, int]:
        """The operator with the migrated state, and the bytes that were written."""
        table = self.rewriting.record
        whole = table_rows(self.lake.location, self.operator, table, {self.state.name: 0})
        if self.change.expressions:
            self._refuse_undecoded(whole)
            self.rewriting.stage(staging)
        tasks = [
            _Task(whole, self.meta_info, self.change.spec, units, self.rewriting.token)
            for units in self.rewriting.slices()
        ]
        results = [one for done in engine.map(_migrate_slice, tasks, progress) for one in done]
        migrated, _ = whole.parse(self.meta_info)
        partitioning = Partitioning(self.operator.max_parallelism)
        units = [one.unit for one in results]
        schema = partitioning.table_schema(table_columns(migrated))
        tables = self.rewriting.replace_files(units, schema, partitioning.column)
        counted = self.state.with_key_groups(g for one in results for g in one.key_groups)
        new_state = replace(counted, value_type=migrated.value_type, meta_info=self.meta_info)
        states = [new_state if one is self.state else one for one in self.operator.states]
        written = sum(one.size for one in units)
        return replace(self.operator, states=states, tables=tables), written

    def _refuse_undecoded(self, rows: TableRows) -> None:
        """An expression would see bytes, though there is a decoder."""
        _, layout = parse_keyed_state(self.state.meta_info, rows.key_serializer)
        if rows.plain and isinstance(layout.value, DecodedSerializer):
            raise IncompatibleError(
                "the snapshot was imported without the decoder, so that an expression would see"
                " bytes",
                place=f"state {self.operator.label}/{self.state.name}",
                remedy="import it again under another id with the decoder, and migrate that",
            )


def _migrate_slice(task: _Task) -> list[_Result]:
    """Rewrite some files, one after the other."""
    return [_migrate_unit(task, unit, staged) for unit, staged in task.units]


def _migrate_unit(task: _Task, held: UnitRecord, staged: tuple[UnitRecord, ...]) -> _Result:
    """Rewrite one file."""
    old = replace(task.rows, units=(held,))
    unit = Unit(held.partition, held.first, held.last)
    partitioning = Partitioning(old.max_parallelism)
    state, layout = task.parsed()
    measure = Measure([state.name], unit.key_groups)
    writer = UnitWriter(table_directory(old.lake, old.path), task.attempt, partitioning)
    source = old
    if staged:
        source = replace(old, units=staged, states=((0, task.meta_info),))
        _refuse_exact(old, unit)
    for rows in source.read(unit.key_groups):
        try:
            moved = rows if staged else migrate_rows(task.decoded(rows), layout)
            moved = StateRows(0, state.name, layout, moved.batch)
            validate_rows(moved)
            measure.add(encode_rows(moved, prefix_bytes(old.max_parallelism)))
        except StateError as error:
            raise error.within(f"{old.path}, key groups {unit.key_groups}") from error
        writer.append(table_batch(state, moved.batch), unit)
    path, size = writer.close(unit)
    content = measure.fingerprint([state.name], unit.key_groups)
    count = measure.rows([state.name], unit.key_groups)
    if count != held.rows:
        raise ConflictError(
            f"{held.rows} rows became {count}", place=f"{old.path}, {unit.key_groups}"
        )
    record = UnitRecord(path, unit.partition, unit.first, unit.last, count, size, content)
    return _Result(record, key_group_records(measure, state.name))


def _refuse_exact(rows: TableRows, unit: Unit) -> None:
    """An expression sees typed columns only: values that these can't hold must not be lost."""
    for one in rows.read(unit.key_groups):
        raw = one.batch.column(RAW_VALUE)
        exact = pc.is_valid(current_exact(raw, one.layout.value_writer(one.batch).exact))
        if isinstance(one.layout.value, DecodedSerializer):  # whose typed values say all there is
            exact = pc.and_(exact, one.batch.column(VALUE).is_null())
        held = pc.sum(exact).as_py() or 0
        if held:
            raise IncompatibleError(
                f"{held} values in key groups {unit.key_groups} that only their exact bytes hold,"
                " which an expression would not see",
                place=rows.path,
                remedy="edit or delete these rows first (WHERE raw_value IS NOT NULL)",
            )


def _meta_info(state: StateRecord) -> StateMetaInfo:
    return parse_state_meta_info(state.meta_info, f"state {state.name!r}")
