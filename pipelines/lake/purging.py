"""Rows that go: by a predicate, or because what they hold has expired.

A file that loses no row stays the one that it was. What Flink calls expired is what its
`TtlUtils.expired` does: the time of the last access and the time to live are not after now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.engine import Engine, Progress
from pipelines.lake.catalog import Lake
from pipelines.lake.operator_changes import commit_operator_table
from pipelines.lake.records import (
    KeyGroupRecord,
    OperatorRecord,
    TableRecord,
    UnitRecord,
    key_group_records,
)
from pipelines.lake.rewriting import TableRewriting, slices_of, staged_files
from pipelines.lake.table_rows import TableRows, parse_recorded, table_rows
from pipelines.lake.tables import TableFile, table_directory
from pipelines.lake.unit_writer import UnitWriter, table_batch, table_columns
from pipelines.lake.units import Partitioning, Unit
from state_core.errors import EncodeError, StateError
from state_core.formats.unified_encode import StateRows, encode_rows
from state_core.key_groups import prefix_bytes
from state_core.measure import Measure

__all__ = ["Purge", "Staging", "purge_table"]

UNPARTITIONED = -1
TTL, VALUE, RAW_VALUE = "ttl", "value", "raw_value"
# of a table, a predicate and a token: the directory of each partition's rows that stay
Staging = Callable[[TableRecord, str, str], Mapping[int, str]]


@dataclass(frozen=True)
class Purge:
    """Which rows of a table go.

    Attributes:
        predicate: Spark SQL; rows of which it is true go. Empty for none.
        expired_until: Milliseconds since 1970: what was last accessed then or before goes.
    """

    predicate: str = ""
    expired_until: int | None = None


def purge_table(
    lake: Lake,
    operator: OperatorRecord,
    path: str,
    purge: Purge,
    staging: Staging | None,
    attempt: tuple[str, int],
    engine: Engine,
    progress: Progress | None = None,
) -> tuple[OperatorRecord, int]:
    """Rewrite what of a table loses rows: those of states that the operator has no more go, too.

    Args:
        lake: The lake.
        operator: The operator, with the states that are to stay.
        path: The table.
        purge: Which rows go.
        staging: Evaluates the predicate.
        attempt: Its token, and a number: a table may be gone through more than once.
        engine: Where files are rewritten.
        progress: Told of finished files.

    Returns:
        The operator with the new version of the table, and the bytes that were written.

    Raises:
        EncodeError: An entry can't be told to be expired or written again.
    """
    (table,) = (one for one in operator.tables if one.path == path)
    token, pass_ = attempt
    staged: Mapping[int, str] = {}
    if purge.predicate:
        if staging is None:
            raise StateError("a predicate needs Spark, and no session was given")
        staged = staging(table, purge.predicate, token)
    try:
        if any(one.table == path for one in operator.operator_states):
            return _purge_operator_state(lake, operator, table, purge, staged, token)
        work = _Purge(lake, operator, table, purge, staged if purge.predicate else None, token)
        work.files = f"{token}/{pass_}"
        return work.run(engine, progress)
    finally:
        for directory in {one.rpartition("/")[0] for one in staged.values()}:
            lake.table(path).directory.delete_tree(directory)


def _purge_operator_state(
    lake: Lake, operator: OperatorRecord, table: TableRecord, purge: Purge,
    staged: Mapping[int, str], token: str,
) -> tuple[OperatorRecord, int]:  # fmt: skip
    """Operator state has no time to live in Flink; rows go by predicate alone."""
    (state,) = (one for one in operator.operator_states if one.table == table.path)
    if purge.expired_until is not None:
        raise _no_ttl(f"{operator.label}/{state.name}")
    directory = lake.table(table.path).directory
    files = [
        TableFile(f"{path}/{name}", 0, -1, UNPARTITIONED)
        for path in staged.values()
        for name in directory.names(path)
        if name.endswith(".parquet")
    ]
    made, changed = commit_operator_table(lake, operator, state, files, token)
    written = sum(one.size for one in made.units)
    return (
        replace(
            operator,
            tables=[made if one is table else one for one in operator.tables],
            operator_states=[changed if one is state else one for one in operator.operator_states],
        ),
        written,
    )


@dataclass(frozen=True)
class _Task:
    """Some files of a table, and where the rows of each that stay are, if SQL chose them."""

    rows: TableRows
    units: tuple[tuple[UnitRecord, tuple[UnitRecord, ...] | None], ...]
    expired_until: int | None
    attempt: str


@dataclass
class _Result:
    unit: UnitRecord | None
    key_groups: dict[str, list[KeyGroupRecord]]
    written: int


class _Purge:
    def __init__(
        self, lake: Lake, operator: OperatorRecord, table: TableRecord, purge: Purge,
        staged: Mapping[int, str] | None, token: str,
    ) -> None:  # fmt: skip
        self.lake = lake
        self.operator = operator
        self.purge = purge
        self.staged = staged
        self.rewriting = TableRewriting(lake, operator, table.path, token)
        self.files = token
        self.states = [one for one in operator.states if one.table == table.path]
        lasting = [one.name for one in self.states if not one.ttl]
        if purge.expired_until is not None and lasting:
            raise _no_ttl(f"{operator.label}/{lasting[0]}")

    def run(self, engine: Engine, progress: Progress | None) -> tuple[OperatorRecord, int]:
        """The operator with the table's new version, and the bytes that were written."""
        ids = {state.name: index for index, state in enumerate(self.states)}
        whole = table_rows(self.lake.location, self.operator, self.rewriting.record, ids)
        tasks = [
            _Task(
                whole,
                tuple((unit, self._stays(unit)) for unit in units),
                self.purge.expired_until,
                self.files,
            )
            for units in slices_of(self.rewriting.record.units)
        ]
        results = [one for done in engine.map(_purge_slice, tasks, progress) for one in done]
        units = [one.unit for one in results if one.unit is not None]
        partitioning = Partitioning(self.operator.max_parallelism)
        parsed = parse_recorded(self.operator, self.states[0])
        schema = partitioning.table_schema(table_columns(parsed))
        tables = self.rewriting.replace_files(units, schema, partitioning.column)
        counted = {
            state.name: state.with_key_groups(
                group for one in results for group in one.key_groups.get(state.name, [])
            )
            for state in self.states
        }
        made = replace(
            self.operator,
            states=[counted.get(one.name, one) for one in self.operator.states],
            tables=tables,
        )
        return made, sum(one.written for one in results)

    def _stays(self, unit: UnitRecord) -> tuple[UnitRecord, ...] | None:
        """The files with the unit's rows that a predicate leaves."""
        if self.staged is None:
            return None
        return staged_files(self.rewriting.table.directory, self.staged, unit)


def _purge_slice(task: _Task) -> list[_Result]:
    """Go through some files, one after the other."""
    return [_purge_unit(task, unit, stays) for unit, stays in task.units]


def _purge_unit(task: _Task, held: UnitRecord, stays: tuple[UnitRecord, ...] | None) -> _Result:
    """Write one file's rows that stay, unless all do."""
    unit = Unit(held.partition, held.first, held.last)
    partitioning = Partitioning(task.rows.max_parallelism)
    rows = replace(task.rows, units=(held,) if stays is None else stays)
    parsed = {index: rows.parse(meta_info)[0] for index, meta_info in rows.states}
    measure = Measure([one.name for one in parsed.values()], unit.key_groups)
    directory = table_directory(rows.lake, rows.path)
    writer = UnitWriter(directory, task.attempt, partitioning)
    left, count = False, 0
    for one in rows.read(unit.key_groups):
        try:
            kept = one if task.expired_until is None else _unexpired(one, task.expired_until)
            left |= kept is not one
            if not len(kept.batch):
                continue
            measure.add(encode_rows(kept, prefix_bytes(rows.max_parallelism)))
        except StateError as error:
            raise error.within(f"{rows.path}, key groups {unit.key_groups}") from error
        count += len(kept.batch)
        writer.append(table_batch(parsed[one.state], kept.batch), unit)
    names = [one.name for one in parsed.values()]
    path, size = writer.close(unit)
    groups = {name: key_group_records(measure, name) for name in names}
    if count == held.rows and not left:
        if path:
            directory.delete(path)
        return _Result(held, groups, 0)
    if not path:
        return _Result(None, groups, 0)
    content = measure.fingerprint(names, unit.key_groups)
    made = UnitRecord(path, unit.partition, unit.first, unit.last, count, size, content)
    return _Result(made, groups, size)


def _unexpired(rows: StateRows, limit: int) -> StateRows:
    """The rows, or a list's elements, that were accessed after `limit`; the same if all were."""
    times = rows.batch.column(TTL)
    if times.null_count:
        raise EncodeError(
            f"{times.null_count} entries of state {rows.name!r} whose time of last access is"
            " within bytes that only the job can read",
            remedy="purge them by a predicate on their keys",
        )
    if not pa.types.is_list(times.type):
        stays = pc.greater(times.cast(pa.int64()), limit)
        if pc.all(stays).as_py() in (True, None):
            return rows
        return replace(rows, batch=rows.batch.filter(stays))
    return _unexpired_elements(rows, times, limit)


def _unexpired_elements(rows: StateRows, times: pa.ListArray, limit: int) -> StateRows:
    """Lists keep the elements that live; one without any goes."""
    lengths = times.value_lengths().to_numpy()
    stays = pc.greater(times.flatten().cast(pa.int64()), limit).to_numpy(zero_copy_only=False)
    if stays.all():
        return rows
    owner = np.repeat(np.arange(len(times)), lengths)
    left = np.bincount(owner[stays], minlength=len(times))
    touched = (left < lengths) & (left > 0)
    exact = rows.batch.column(RAW_VALUE).is_valid().to_numpy(zero_copy_only=False)
    if (touched & exact).any():
        raise EncodeError(
            f"a list of state {rows.name!r} with elements that only its exact bytes hold,"
            " some of them expired",
            remedy="purge it by a predicate on its key, or leave it",
        )
    offsets = pa.array(np.concatenate(([0], np.cumsum(left))).astype(np.int32))
    alive = pa.array(np.flatnonzero(stays))
    columns = dict(zip(rows.batch.schema.names, rows.batch.columns, strict=True))
    for name in (TTL, VALUE):
        kept = columns[name].flatten().take(alive)
        made = pa.ListArray.from_arrays(offsets, kept)
        columns[name] = made.cast(rows.batch.schema.field(name).type)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.batch.schema)
    return replace(rows, batch=batch.filter(pa.array(left > 0)))


def _no_ttl(state: str) -> EncodeError:
    return EncodeError(
        f"state {state} has no time to live, so nothing in it expires",
        remedy="purge it by a predicate",
    )
