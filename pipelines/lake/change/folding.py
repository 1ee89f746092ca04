"""New columns of an aggregate of Flink SQL, computed in full from the rows that another node holds.

The rows below are read once, piece by piece; each task adds up its rows by the aggregate's groups,
and stages what they come to by the groups' key groups. Then the aggregate's rows get their columns
from there, and the views of MIN and MAX their entries. As many rows as the aggregate has counted of
each group must be there: else one of both states is not complete, and nothing is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.change.sql_rows import (
    COLUMNS,
    COUNTS,
    constant,
    first_rows,
    grouped,
    merged_column,
    merged_rows,
)
from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.pieces import Parts, Piece, Rows, Staged, parts_by_piece
from statelake.pipelines.lake.edit.rewriting import (
    STAGED,
    TableRewriter,
    Transform,
    piece_of,
    slices_of,
)
from statelake.pipelines.lake.tables.file_spans import KEY_GROUP, FileSpan
from statelake.pipelines.lake.tables.names import new_folder
from statelake.pipelines.lake.tables.records import by_span
from statelake.pipelines.lake.tables.table_rows import TableReader, open_data_file
from statelake.pipelines.times import phase
from statelake.state_core.errors import EncodeError, IncompatibleError, StateError
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    USER_KEY,
    VALUE,
    KeyedLayout,
)
from statelake.state_core.formats.rewriting.value_migration import refuse_inexact, with_columns
from statelake.state_core.formats.writing.rehash import assign_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows, key_bytes
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.plans.data_views import EMPTY_VIEW, EXTREMES
from statelake.state_core.plans.expressions import Emits, Expression, StoredColumn, evaluated
from statelake.state_core.plans.matches import Fold
from statelake.state_core.plans.states import MAX_DECIMAL, Added
from statelake.state_core.serializers.framework.columns import I64Array

COUNT = Added("count", -1)
BLOCK = 1 << 20  # rows of a join that are made at a time
# what rows come to by group, in the order of key groups; and each view's entries
Folded: TypeAlias = "tuple[pa.Table, list[StateRows]]"
_WITHOUT = (
    "leave the new columns out of the query, or let all of them start with it: --accept"
    " lost=OPERATOR"
)
_REMEDY = f"one of both states is not complete: {_WITHOUT}"


@dataclass(frozen=True)
class FoldedColumn:
    """A new column of an accumulator row.

    Attributes:
        index: Its place in the row.
        adds: What rows add up to it.
        view: The name of the state that holds how often each value is there; empty without one.
        meta_info: The meta info of that state.
        alias: What the plan calls it.
    """

    index: int
    adds: Added
    view: str = ""
    meta_info: bytes = b""
    alias: str = ""


@dataclass(frozen=True)
class FoldUpgrade:
    """What is computed in full of an operator of a snapshot.

    Attributes:
        source: The operator that holds the rows.
        fold: What is read of it.
        columns: The columns that are computed.
        count: The column that counts all rows of a group.
    """

    source: str
    fold: Fold
    columns: tuple[FoldedColumn, ...]
    count: int

    @property
    def views(self) -> list[FoldedColumn]:
        """The columns with a state of their own."""
        return [each for each in self.columns if each.view]


@dataclass(frozen=True)
class FoldTask:
    """Some key groups of the rows that are added up.

    Attributes:
        sources: The tables that hold the rows: one, or those of both sides of a join.
        key_groups: What is read of them.
        upgrade: What is computed.
        target: The layout of the aggregate's new table.
        views: Those of the views' tables.
        spans: The pieces of all of these.
        prefix: The directory of new files, below that of all data.
    """

    sources: tuple[TableReader, ...]
    key_groups: KeyGroupRange
    upgrade: FoldUpgrade
    target: KeyGroupLayout
    views: tuple[KeyGroupLayout, ...]
    spans: tuple[FileSpan, ...]
    prefix: str


def stage_folded(
    rewriter: TableRewriter,
    upgrade: FoldUpgrade,
    sources: Sequence[TableReader],
    target: KeyGroupLayout,
    views: Sequence[KeyGroupLayout],
    pieces: Sequence[Piece],
) -> tuple[tuple[Parts, ...], list[tuple[Parts, ...]]]:
    """Add up the rows that a node holds, by the groups of an aggregate.

    Args:
        rewriter: The rewriter of tables.
        upgrade: What is computed.
        sources: The tables that hold the rows.
        target: The layout of the aggregate's new table.
        views: Those of the views' tables.
        pieces: The pieces of the aggregate's table.

    Returns:
        The files of what rows come to, and those of each view, by piece.

    Raises:
        IncompatibleError: A group of them is not among the aggregate's.
    """
    spans = tuple(piece.span for piece in pieces)
    source_pieces = [piece_of(files) for files in by_span(sources[0].units).values()]
    tasks = [
        FoldTask(
            tuple(sources), KeyGroupRange(part[0].span.first, part[-1].span.last), upgrade, target,
            tuple(views), spans, rewriter.token,
        )
        for part in slices_of(source_pieces)
        if part
    ]  # fmt: skip
    done = rewriter.stopwatch.run_timed(
        rewriter.engine, fold_rows, tasks, [0] * len(tasks), rewriter.progress,
        rest="transformed", name=lambda task: task.sources[0].path,
    )  # fmt: skip
    staged = [
        parts_by_piece([each[at] for each in done], len(pieces)) for at in range(1 + len(views))
    ]
    for piece, parts in zip(pieces, staged[0], strict=True):
        if parts and not piece.files:
            raise IncompatibleError(
                f"{upgrade.fold.label} keeps rows of groups that the aggregate does not have",
                place=target.place(piece.span), remedy=_REMEDY,
            )  # fmt: skip
    return staged[0], staged[1:]


def fold_rows(task: FoldTask) -> list[Staged]:
    """Add up the rows of a task, and stage them: what they come to, and then each view.

    Raises:
        EncodeError: Of a row only the exact bytes are known, or values can't be added up.
    """
    try:
        with phase("read"):
            sides = [_side(table, task.key_groups) for table in task.sources]
        added, views = _folded(task, sides)
        with phase("wrote"):
            folder = f"{task.prefix}/{STAGED}"
            paths = [f"{new_folder(folder)}/folded" for _ in range(1 + len(views))]
            staged = [task.target.stage_table(added, task.spans, paths[0])]
            for layout, rows, path in zip(task.views, views, paths[1:], strict=True):
                staged.append(layout.stage([rows], task.spans, path))
    except StateError as error:
        raise error.within(task.sources[0].path) from error
    except pa.ArrowException as error:
        raise EncodeError(
            f"rows can't be added up ({error})", place=task.sources[0].path, remedy=_WITHOUT
        ) from error
    return staged


# --------------------------------------------------------------------------- rows that are held


def _folded(task: FoldTask, sides: Sequence[StateRows]) -> Folded:
    """Return what the rows that a node emits come to, of which some are made at a time."""
    fold = task.upgrade.fold
    made: list[Folded] = []
    pending = 0
    for taken in _joined(fold, sides) if len(sides) > 1 else ({},):
        made.append(_added(task, *_read(task, sides, taken)))
        pending += _size(made[-1])
        if len(made) > 1 and pending > max(BLOCK, _size(made[0])):
            made, pending = [_together(made)], 0
    return _together(made)


def _size(folded: Folded) -> int:
    return len(folded[0]) + sum(len(each.batch) for each in folded[1])


def _together(made: Sequence[Folded]) -> Folded:
    """Return what parts of the rows come to, as that of all."""
    if len(made) == 1:
        return made[0]
    added = _merged(pa.concat_tables([each for each, _ in made]))
    views = [
        merged_rows(replace(each[0], batch=_batch(each[0], [part.batch for part in each])), COUNTS)
        for each in zip(*(views for _, views in made), strict=True)
    ]
    return added.sort_by(KEY_GROUP), views


def _read(
    task: FoldTask, sides: Sequence[StateRows], taken: Mapping[str, pa.Array]
) -> tuple[pa.Array, Mapping[int, pa.Array]]:
    """Return the key of each row that a node emits, and what is added up."""
    fold, layout = task.upgrade.fold, _layout(task.target)
    rows = {side.state: each for side, each in zip(fold.sides, sides, strict=True)}
    kind = layout.schema.field(KEY).type
    fields = [kind.field(at) for at in range(kind.num_fields)]
    length = len(next(iter(taken.values()))) if taken else len(sides[0].batch)

    def column(stored: StoredColumn) -> pa.Array:
        return _column(rows[stored.state], stored, taken.get(stored.state))

    def value(of: Expression) -> pa.Array:
        made = evaluated(of, column)
        return pa.repeat(made, length) if isinstance(made, pa.Scalar) else made

    columns = [
        value(each).cast(field.type)
        for each, field in zip(fold.keys, fields, strict=False)  # without a key a placeholder
    ]
    if not columns:  # one group for all rows
        columns = [pa.nulls(length, each.type) for each in fields]
    keys = pa.StructArray.from_arrays(columns, fields=fields)
    arguments = {index: value(each) for index, each in fold.arguments.items()}
    if not fold.conditions:
        return keys, arguments
    passed = pa.array(np.ones(length, bool))
    for each in fold.conditions:
        passed = pc.and_(passed, pc.fill_null(value(each), False))
    at = pc.indices_nonzero(passed)
    return keys.take(at), {index: each.take(at) for index, each in arguments.items()}


def _side(table: TableReader, key_groups: KeyGroupRange) -> StateRows:
    """Return the rows of a state, of which typed columns must say all.

    Raises:
        InexactError: A row is more than its columns say.
    """
    ((index, table_state),) = table.states
    state, layout = table.parse(table_state)
    parts = table.read(key_groups)
    empty = pa.RecordBatch.from_pylist([], layout.schema)
    made = StateRows(index, state.name, layout, empty)
    made = replace(made, batch=_batch(made, [each.batch for each in parts]))
    for column in (KEY, VALUE):
        refuse_inexact(made, column, _WITHOUT)
    return made


def _batch(rows: StateRows, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return parts of a state's rows as one."""
    made = pa.Table.from_batches(parts, rows.batch.schema).combine_chunks().to_batches()
    if len(made) > 1:  # each part of a table is far smaller
        raise EncodeError("more than 2 GiB of texts in a key group", place=f"state {rows.name!r}")
    return made[0] if made else rows.batch.slice(0, 0)


def _column(rows: StateRows, stored: StoredColumn, taken: pa.Array | None) -> pa.Array:
    """Return a column as a node emits it, of its rows or of those that a join takes."""
    row = rows.batch.column(COLUMNS[stored.place])
    column = row.field(stored.index)
    null = pa.scalar(None)
    if stored.emits is Emits.EXTREME:
        column = pc.if_else(pc.greater(column.field(1), 0), column.field(0), null)
    elif stored.emits is not Emits.VALUE:
        count = row.field(stored.other)
        some = pc.not_equal(count, 0)
        column = pc.if_else(some, column, null)
        if stored.emits is Emits.AVERAGE:  # to zero, as in Java
            column = pc.divide(column, pc.if_else(some, count, null))
    return column if taken is None else column.take(taken)


def _joined(fold: Fold, sides: Sequence[StateRows]) -> Iterator[dict[str, pa.Array]]:
    """Yield which rows of each side an inner join emits, as often as it does, some at a time."""
    rows = [_matched(fold, each) for each in sides]
    keys = pa.concat_arrays(
        [key_bytes(each).take(at) for each, at in zip(sides, rows, strict=True)]
    )
    ids = keys.dictionary_encode().indices.to_numpy()
    left, right = ids[: len(rows[0])], ids[len(rows[0]) :]
    order = np.argsort(right, kind="stable")
    first = np.searchsorted(right, left, "left", sorter=order)
    times = np.searchsorted(right, left, "right", sorter=order) - first
    for at_left, within in _spread(times):
        at_right = order[first[at_left] + within]
        pairs = [rows[0].take(pa.array(at_left)), rows[1].take(pa.array(at_right))]
        often = np.ones(len(at_left), np.int64)
        for side, of_side, taken in zip(fold.sides, sides, pairs, strict=True):
            if side.counted:
                often *= of_side.batch.column(VALUE).take(taken).to_numpy()
        for at, _ in _spread(np.maximum(often, 0)):
            repeated = pa.array(at)
            yield {
                side.state: taken.take(repeated)
                for side, taken in zip(fold.sides, pairs, strict=True)
            }


def _spread(times: I64Array) -> Iterator[tuple[I64Array, I64Array]]:
    """Yield each index as often as its count, with a number for each time; in batches."""
    ends = np.cumsum(times)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, max(total, 1), BLOCK):
        flat = np.arange(start, min(start + BLOCK, total))
        at = np.searchsorted(ends, flat, "right")
        yield at, flat - (ends - times)[at]


def _matched(fold: Fold, rows: StateRows) -> pa.Array:
    """Return the rows that may match another one: those without NULL in a key that must not be."""
    key = rows.batch.column(KEY)
    valid = pa.array(np.ones(len(key), bool))
    for index in fold.not_null:
        valid = pc.and_(valid, key.field(index).is_valid())
    return pc.indices_nonzero(valid).cast(pa.int64())


# --------------------------------------------------------------------------- what they come to


def _layout(target: KeyGroupLayout) -> KeyedLayout:
    ((_, state),) = target.after.states
    return target.after.parse(state)[1]


def _named(adds: Added) -> str:
    return f"{adds.function} {adds.argument} {adds.only}"


def _sums(upgrade: FoldUpgrade) -> list[Added]:
    """Return what is added up without a view, each once."""
    wanted = [each.adds for each in upgrade.columns if not each.view and each.adds != COUNT]
    return list(dict.fromkeys(wanted))


def _added(task: FoldTask, keys: pa.Array, arguments: Mapping[int, pa.Array]) -> Folded:
    """Return what rows come to by group, in the order of key groups; and each view's entries."""
    rows = _state_rows(task.target, keys, {})
    encoded = key_bytes(rows).dictionary_encode()
    group_of = encoded.indices.to_numpy()
    at_first = replace(rows, batch=rows.batch.take(first_rows(encoded)))
    groups = assign_key_groups(at_first, task.target.after.max_parallelism)
    added = {"place": pa.array(group_of), _named(COUNT): pa.array(np.ones(len(keys), np.int64))}
    for adds in _sums(task.upgrade):
        added[_named(adds)] = _addend(arguments, adds, len(keys))
    sums = _summed(pa.table(added))
    made = pa.table({KEY_GROUP: pa.array(groups), KEY: encoded.dictionary})
    for name in sums.column_names:
        made = made.append_column(name, sums[name])
    order = pa.array(np.argsort(groups, kind="stable"))
    views = []
    for each, layout in zip(task.upgrade.views, task.views, strict=True):
        kind = _layout(layout).schema.field(USER_KEY).type
        values = _chosen(arguments, each.adds).cast(kind)
        there = pc.indices_nonzero(values.is_valid())
        entries = _state_rows(
            layout, keys.take(there),
            {
                KEY_GROUP: pa.array(groups[group_of]).take(there), USER_KEY: values.take(there),
                VALUE: pa.array(np.ones(len(there), np.int64)),
            },
        )  # fmt: skip
        views.append(merged_rows(entries, COUNTS))
    return made.take(order), views


def _chosen(arguments: Mapping[int, pa.Array], adds: Added) -> pa.Array:
    """Return the values of a column, and NULL where a row does not count."""
    values = arguments[adds.argument]
    if adds.only < 0:
        return values
    return pc.if_else(arguments[adds.only], values, pa.scalar(None, values.type))


def _addend(arguments: Mapping[int, pa.Array], adds: Added, length: int) -> pa.Array:
    """Return what each row adds to a column of an accumulator."""
    if adds.argument < 0:
        only = arguments.get(adds.only, pa.array(np.ones(length, bool)))
        return pc.fill_null(only, False).cast(pa.int64())
    values = _chosen(arguments, adds)
    if adds.function == "count":
        return values.is_valid().cast(pa.int64())
    if adds.function in EXTREMES:
        return values
    if pa.types.is_decimal(values.type):
        return values.cast(pa.decimal256(2 * MAX_DECIMAL, values.type.scale))
    return values.cast(pa.int64())


def _summed(rows: pa.Table) -> pa.Table:
    """Return what each column comes to by place, in their order; NULL where there is no value."""
    places = rows["place"].combine_chunks()
    made = {}
    for name in rows.column_names[1:]:
        function, column = name.split()[0], rows[name].combine_chunks()
        how = function if function in EXTREMES else "sum"
        made[name] = _extreme(column, how, places) if how != "sum" else grouped(column, how, places)
    return pa.table(made)


def _merged(rows: pa.Table) -> pa.Table:
    """Return what staged rows come to by key, each once."""
    encoded = rows[KEY].combine_chunks().dictionary_encode()
    sums = _summed(rows.drop_columns([KEY_GROUP, KEY]).add_column(0, "place", encoded.indices))
    groups = rows[KEY_GROUP].combine_chunks().take(first_rows(encoded))
    return sums.add_column(0, KEY, encoded.dictionary).add_column(0, KEY_GROUP, groups)


def _extreme(column: pa.Array, how: str, places: pa.Array) -> pa.Array:
    """Return the least or greatest value of each place.

    Raises:
        ArrowInvalid: Java has another order of these values than Arrow.
    """
    if pa.types.is_floating(column.type):
        numbers: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
        if np.any(np.signbit(numbers) & (numbers == 0)):
            raise pa.ArrowInvalid("-0.0 is not 0.0")
    return merged_column(column, how, places, column)


def _state_rows(
    target: KeyGroupLayout, keys: pa.Array, columns: Mapping[str, pa.Array]
) -> StateRows:
    """Return rows of a table, of which some columns are given; others are null."""
    ((index, table_state),) = target.after.states
    state, layout = target.after.parse(table_state)
    given = {KEY: keys, KEY_GROUP: pa.array(np.zeros(len(keys), np.int32)), **columns}
    arrays = [
        given[field.name].cast(field.type)
        if field.name in given
        else pa.nulls(len(keys), field.type)
        for field in layout.schema
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=layout.schema)
    return StateRows(index, state.name, layout, batch)


# --------------------------------------------------------------------------- the aggregate's rows


@dataclass(frozen=True)
class FoldedRows(Transform):
    """Give the rows of an aggregate the columns that were added up.

    Attributes:
        upgrade: What is computed.
        target: The layout of the aggregate's new table.
        views: Those of the views' tables.
        spans: The pieces of these.
        added: The staged files of what rows come to, by piece.
        entries: Those of each view.
    """

    upgrade: FoldUpgrade
    target: KeyGroupLayout
    views: tuple[KeyGroupLayout, ...]
    spans: tuple[FileSpan, ...]
    added: tuple[Parts, ...]
    entries: tuple[tuple[Parts, ...], ...]

    def apply(self, rows: Rows) -> Rows:
        """Fill the columns.

        Raises:
            EncodeError: A row's key is known by its exact bytes alone, or a sum is too large.
            IncompatibleError: Other rows were counted than are held.
        """
        assert isinstance(rows, StateRows)  # noqa: S101 - accumulators are keyed state
        batch = rows.batch
        refuse_inexact(rows, KEY, _WITHOUT)
        keys = key_bytes(rows)
        group = batch.column(KEY_GROUP)[0].as_py()
        at = next(index for index, span in enumerate(self.spans) if span.last >= group)
        added = self._added_at(at)
        indexes = pc.index_in(keys, added[KEY].combine_chunks())
        self._refuse_other_rows(rows, added, indexes)
        value = batch.column(VALUE)
        fields = [value.type.field(index) for index in range(value.type.num_fields)]
        children = [value.field(index) for index in range(len(fields))]
        try:
            for each in self.upgrade.columns:
                kind = fields[each.index].type
                if each.view:
                    view = self.upgrade.views.index(each)
                    children[each.index] = self._extremes(view, at, keys, kind)
                    continue
                column = added[_named(each.adds)].combine_chunks().take(indexes)
                column = column.cast(kind, safe=not pa.types.is_integer(kind))
                zero = value.field(each.index)  # as a new column begins
                children[each.index] = pc.coalesce(column, zero)
        except pa.ArrowException as error:
            raise EncodeError(
                f"rows can't be added up ({error})", place=f"state {rows.name!r}",
                remedy=_WITHOUT,
            ) from error  # fmt: skip
        made = pa.StructArray.from_arrays(children, fields=fields)
        return replace(rows, batch=with_columns(rows, rows.layout, {VALUE: made}))

    def _added_at(self, at: int) -> pa.Table:
        """Return what all rows of a piece's groups come to, each once."""
        table = self.target.after
        parts = []
        for data_file, row_group in self.added[at]:
            with open_data_file(table.lake, table.path, data_file) as file:
                parts.append(file.read_row_group(row_group))
        if not parts:
            none = pa.array([], pa.int64())
            names = map(_named, (COUNT, *_sums(self.upgrade)))
            return pa.table({KEY: pa.array([], pa.large_binary()), **dict.fromkeys(names, none)})
        return _merged(pa.concat_tables(parts))

    def _refuse_other_rows(self, rows: StateRows, added: pa.Table, indexes: pa.Array) -> None:
        """Refuse groups whose rows are not as many as the aggregate has counted.

        Raises:
            IncompatibleError: There is such a group.
        """
        counted = rows.batch.column(VALUE).field(self.upgrade.count)
        there = pc.fill_null(added[_named(COUNT)].combine_chunks().take(indexes), 0)
        wrong = pc.indices_nonzero(pc.not_equal(counted, there))
        label = self.upgrade.fold.label
        if len(wrong):
            at = wrong[0].as_py()
            raise IncompatibleError(
                f"of {len(wrong)} groups, such as {rows.batch.column(KEY)[at].as_py()}, it has"
                f" counted other rows ({counted[at]}) than {label} keeps ({there[at]})",
                place=f"state {rows.name!r}", remedy=_REMEDY,
            )  # fmt: skip
        if len(added) > len(rows.batch):
            raise IncompatibleError(
                f"{label} keeps rows of {len(added) - len(rows.batch)} groups that it does not"
                " have",
                place=f"state {rows.name!r}", remedy=_REMEDY,
            )  # fmt: skip

    def _extremes(self, view: int, at: int, keys: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the least or greatest value of each group, as an object."""
        function = self.upgrade.views[view].adds.function
        assert function in EXTREMES  # noqa: S101 - others have no view
        fields = [kind.field(index) for index in range(kind.num_fields)]
        staged = self.entries[view][at]
        read = (
            self.views[view].read(Piece(self.spans[at], ()).with_staged(staged)) if staged else []
        )
        values, sizes = pa.nulls(len(keys), fields[0].type), pa.nulls(len(keys), pa.int64())
        if read:
            (rows,) = read
            rows = merged_rows(rows, COUNTS)
            column = rows.batch.column(USER_KEY).cast(fields[0].type)
            encoded = key_bytes(rows).dictionary_encode()
            indexes = pc.index_in(keys, encoded.dictionary)
            values = _extreme(column, function, encoded.indices).take(indexes)
            sizes = pa.array(np.bincount(encoded.indices.to_numpy())).take(indexes)
        map_column = constant(EMPTY_VIEW, fields[2].type, len(keys))
        children = [values, pc.fill_null(sizes.cast(pa.int64()), 0), map_column]
        return pa.StructArray.from_arrays(children, fields=fields)
