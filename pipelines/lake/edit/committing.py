"""Register edited tables as a new snapshot: how a user changes state with Spark SQL.

The tables' current versions are compared with the parent's. Partitions whose files are not the
parent's any more are read, checked (types, nulls, duplicates, every key in its key group), written
again as statelake's own files, which no VACUUM takes, and measured. Nothing is registered unless
all of it can be exported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema

from pipelines.engine import Engine, Progress, choose_engine
from pipelines.lake.catalog.attempts import UNDO, Attempt, recover_attempts
from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.edit.operator_changes import commit_operator_table
from pipelines.lake.tables.names import check_names
from pipelines.lake.tables.records import (
    KeyGroupRecord,
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
    UnitRecord,
    key_group_records,
)
from pipelines.lake.tables.table_rows import TableRows, parse_recorded, table_rows
from pipelines.lake.tables.tables import TableFile, table_directory
from pipelines.lake.tables.unit_writer import UnitWriter, table_batch, table_columns
from pipelines.lake.tables.units import Partitioning, Unit
from state_core.errors import ConflictError, EncodeError, KeyGroupError, LakeError, StateError
from state_core.formats.operator_state.operator_reader import parse_operator_state
from state_core.formats.writing.rehash import check_key_groups
from state_core.formats.writing.unified_encode import StateRows, encode_rows
from state_core.model.key_groups import prefix_bytes
from state_core.model.measure import Measure
from state_core.model.snapshot import KeyedState

__all__ = ["CommitResult", "commit_snapshot"]


@dataclass(frozen=True)
class CommitResult:
    """What a commit registered.

    Attributes:
        record: The snapshot.
        changed: By state: entries before and after, of the states whose table was edited.
    """

    record: SnapshotRecord
    changed: dict[str, tuple[int, int]]


def commit_snapshot(
    lake: Lake,
    job: str,
    snapshot_id: str,
    parent: str,
    *,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> CommitResult:
    """Register the current versions of a job's tables as a new snapshot.

    Args:
        lake: The lake.
        job: The job.
        snapshot_id: What the new snapshot is to be called.
        parent: The snapshot whose tables were edited.
        note: Kept with it; say why.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Told of finished partitions.

    Raises:
        ConflictError: The id is taken, or another snapshot was imported into the tables since.
        KeyGroupError: A key is not in its key group.
        EncodeError: A value can't be written back to Flink.
        LakeError: The tables' columns are not the state's any more.
    """
    check_names(job, snapshot_id)
    record = lake.snapshot(job, parent)
    if lake.has(job, snapshot_id):
        raise ConflictError(
            f"job {job!r} has a snapshot {snapshot_id!r} already",
            remedy="choose another id with --snapshot",
        )
    recover_attempts(lake, job)
    chosen = choose_engine(engine, record.state_bytes) if isinstance(engine, str) else engine
    paths = [table.path for operator in record.operators for table in operator.tables]
    lake.check_tables(paths)
    with Attempt(lake, job, snapshot_id, paths, leans_on=[parent]) as attempt:
        record = lake.snapshot(job, parent)
        work = _Commit(lake, record, attempt.token, chosen, progress)
        operators = [work.operator(one) for one in record.operators]
        made = record.followed_by(snapshot_id, "commit", operators, work.written, note)
        lake.append(made)
    return CommitResult(made, work.changed)


@dataclass(frozen=True)
class _Task:
    """An edited partition: its files now, which become one of ours."""

    rows: TableRows
    unit: Unit
    attempt: str


@dataclass
class _Result:
    unit: UnitRecord | None
    key_groups: dict[str, list[KeyGroupRecord]]


class _Commit:
    def __init__(
        self,
        lake: Lake,
        record: SnapshotRecord,
        attempt: str,
        engine: Engine,
        progress: Progress | None,
    ) -> None:
        self.lake = lake
        self.record = record
        self.attempt = attempt
        self.engine = engine
        self.progress = progress
        self.changed: dict[str, tuple[int, int]] = {}
        self.written = 0

    def operator(self, operator: OperatorRecord) -> OperatorRecord:
        """The operator with the tables as they are now."""
        tables, states = [], {state.name: state for state in operator.states}
        others = {state.table: state for state in operator.operator_states}
        for table in operator.tables:
            if table.path in others:
                committed, others[table.path] = self._operator_table(
                    operator, table, others[table.path]
                )
                tables.append(committed)
                continue
            held = [state for state in operator.states if state.table == table.path]
            new_table, new_states = self._table(operator, table, held)
            tables.append(new_table)
            states |= {state.name: state for state in new_states}
        return replace(
            operator,
            tables=tables,
            states=[states[one.name] for one in operator.states],
            operator_states=[others[one.table] for one in operator.operator_states],
        )

    def _operator_table(
        self, operator: OperatorRecord, table: TableRecord, state: OperatorStateRecord
    ) -> tuple[TableRecord, OperatorStateRecord]:
        """A table of operator state as it is now."""
        now = self._files_now(table)
        if now.keys() == {unit.path for unit in table.units}:
            return table, state
        self._check_columns(table, parse_operator_state(state.meta_info)[0].schema)
        made, changed = commit_operator_table(
            self.lake, operator, state, list(now.values()), self.attempt
        )
        self.written += sum(unit.size for unit in made.units)
        self.changed[f"{operator.label}/{state.name}"] = (state.elements, changed.elements)
        return made, changed

    def _table(
        self, operator: OperatorRecord, table: TableRecord, states: list[StateRecord]
    ) -> tuple[TableRecord, list[StateRecord]]:
        now = self._files_now(table)
        before = {unit.path: unit for unit in table.units}
        if now.keys() == before.keys():
            return table, states
        partitioning = Partitioning(operator.max_parallelism)
        wanted = partitioning.table_schema(table_columns(_parsed(operator, states[0])))
        self._check_columns(table, wanted)
        touched = {before[path].partition for path in before.keys() - now.keys()}
        touched |= {now[path].partition for path in now.keys() - before.keys()}
        _check_partitions(touched, partitioning, self.lake.table(table.path).uri)
        ids = {state.name: index for index, state in enumerate(states)}
        whole = table_rows(self.lake.location, operator, table, ids)
        tasks = []
        for partition in sorted(touched):
            unit = _unit_of(partition, operator.max_parallelism)
            files = [
                UnitRecord(file.path, partition, unit.first, unit.last, file.rows, file.size, b"")
                for file in now.values()
                if file.partition == partition
            ]
            tasks.append(_Task(replace(whole, units=tuple(files)), unit, self.attempt))
        results = self.engine.map(_commit_partition, tasks, self.progress)
        units = [unit for unit in table.units if unit.partition not in touched]
        units += [one.unit for one in results if one.unit is not None]
        units.sort(key=lambda unit: unit.first)
        version = self.lake.table(table.path).replace_files(
            wanted,
            [TableFile(one.path, one.size, one.rows, one.partition) for one in units],
            partition_by=partitioning.column,
            attempt=self.attempt,
        )
        self.written += sum(one.unit.size for one in results if one.unit is not None)
        moved = [unit for task in tasks for unit in range(task.unit.first, task.unit.last + 1)]
        new_states = [_recount(state, set(moved), results) for state in states]
        for old, new in zip(states, new_states, strict=True):
            self.changed[f"{operator.label}/{old.name}"] = (old.entries, new.entries)
        return replace(table, version=version, units=units), new_states

    def _files_now(self, table: TableRecord) -> dict[str, TableFile]:
        """The files of the table's latest version, which must go back to the parent's."""
        state_table = self.lake.table(table.path)
        latest = state_table.require()
        undone: set[str] = set()
        for version in range(latest.version(), table.version, -1):
            entry = state_table.commit_info(version)
            restored = entry.get("operationParameters", {}).get("version")
            if entry.get("operation") == "RESTORE" and str(restored) == str(table.version):
                break
            maker = state_table.maker(version)
            if maker.startswith(UNDO):
                undone.add(maker.removeprefix(UNDO))
            elif maker and maker not in undone:
                raise ConflictError(
                    f"statelake itself wrote version {version} after the parent's"
                    f" version {table.version}, so the edits are of another snapshot",
                    place=state_table.uri,
                    remedy=f"name that one as parent, or RESTORE TABLE ... TO VERSION AS OF"
                    f" {table.version} and edit again",
                )
        return {file.path: file for file in state_table.files(latest.version())}

    def _check_columns(self, table: TableRecord, wanted: pa.Schema) -> None:
        """The table's columns must be the state's still."""
        found = pa.schema(self.lake.table(table.path).require().schema().to_arrow())
        stored = pa.schema(Schema.from_arrow(wanted).to_arrow())
        for field in stored:
            at = found.get_field_index(field.name)
            if at < 0 or found.field(at).type != field.type:
                change = "was dropped" if at < 0 else f"is {found.field(at).type} now"
                raise LakeError(
                    f"column {field.name!r} {change}, and the state has {field.type}",
                    place=self.lake.table(table.path).uri,
                    remedy="change values, not columns; `statelake migrate` changes types",
                )
        extra = sorted(set(found.names) - set(wanted.names))
        if extra:
            raise LakeError(
                f"column {extra[0]!r} was added, and the state has no place for it",
                place=self.lake.table(table.path).uri,
                remedy="drop it: only the state's own columns go back to Flink",
            )


def _check_partitions(partitions: set[int], partitioning: Partitioning, place: str) -> None:
    """Rows can only be in partitions that key groups have."""
    last = partitioning.partition_of(partitioning.max_parallelism - 1)
    for partition in partitions:
        if not 0 <= partition <= last:
            raise KeyGroupError(
                f"rows whose {partitioning.column} is {partition}, and it goes from 0 to {last}",
                place=place,
                remedy="a row must keep its key group; for a new key, compute it",
            )


def _commit_partition(task: _Task) -> _Result:
    """Check an edited partition, and write it as one file of ours."""
    rows, unit = task.rows, task.unit
    key_groups = unit.key_groups
    by_state = rows.read(key_groups)
    held = sum(len(one.batch) for one in by_state)
    stored = sum(file.rows for file in rows.units if file.rows >= 0)
    if held < stored:
        raise KeyGroupError(
            f"{stored - held} rows in the partition of key groups {key_groups} are of another",
            place=rows.path,
            remedy="a row's key group follows from its key: leave the column as it is",
        )
    names = [rows.parse(meta)[0].name for _, meta in rows.states]
    measure = Measure(names, key_groups)
    partitioning = Partitioning(rows.max_parallelism)
    writer = UnitWriter(table_directory(rows.lake, rows.path), task.attempt, partitioning)
    for one in by_state:
        try:
            _check_rows(one, rows.max_parallelism)
            measure.add(encode_rows(one, prefix_bytes(rows.max_parallelism)))
        except StateError as error:
            raise error.within(f"{rows.path}, key groups {key_groups}") from error
        state, _ = rows.parse(dict(rows.states)[one.state])
        writer.append(table_batch(state, one.batch), unit)
    path, size = writer.close(unit)
    if not path:
        return _Result(None, {name: [] for name in names})
    content = measure.fingerprint(names, key_groups)
    record = UnitRecord(path, unit.partition, unit.first, unit.last, held, size, content)
    return _Result(record, {name: key_group_records(measure, name) for name in names})


def _check_rows(rows: StateRows, max_parallelism: int) -> None:
    """Every key once, and in its key group as far as its hash is known."""
    missing = pc.and_(rows.batch.column("key").is_null(), rows.batch.column("raw_key").is_null())
    if pc.any(missing).as_py():
        raise EncodeError(
            f"state {rows.name!r} has a key that is null", remedy="a key is never null in Flink"
        )
    keys = rows.layout.key_writer(rows.batch).to_binary()
    if pc.count_distinct(keys).as_py() != len(keys):
        counts = pc.value_counts(keys)
        doubled = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"]
        row = pc.index(keys, doubled).as_py()
        shown = rows.batch.column("key")[row].as_py()
        raise EncodeError(
            f"state {rows.name!r} has key {shown!r} more than once",
            remedy="keep one row of each key, namespace and user key",
        )
    try:
        check_key_groups(rows, max_parallelism)
    except KeyGroupError as error:
        if "can't be derived" not in error.problem and "hash is not known" not in error.problem:
            raise


def _parsed(operator: OperatorRecord, state: StateRecord) -> KeyedState:
    return parse_recorded(operator, state)


def _unit_of(partition: int, max_parallelism: int) -> Unit:
    partitioning = Partitioning(max_parallelism)
    groups = [g for g in range(max_parallelism) if partitioning.partition_of(g) == partition]
    return Unit(partition, groups[0], groups[-1])


def _recount(state: StateRecord, moved: set[int], results: Iterable[_Result]) -> StateRecord:
    """A state's counts with those of the rewritten key groups replaced."""
    groups = [one for one in state.key_groups if one.key_group not in moved]
    groups += [one for result in results for one in result.key_groups.get(state.name, [])]
    return state.with_key_groups(groups)
