"""Rows of Flink SQL's state, and what becomes of them in another query: one transform, `Select`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform
from statelake.state_core.errors import EncodeError
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    RAW_KEY,
    RAW_VALUE,
    USER_KEY,
    VALUE,
)
from statelake.state_core.formats.layout.meta_info import parse_key_serializer
from statelake.state_core.formats.rewriting.value_migration import (
    OF_BYTES,
    OF_VALUES,
    refuse_inexact,
    with_columns,
    with_kinds,
)
from statelake.state_core.formats.writing.rehash import check_key_groups, rehash_rows
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.plans.states import MAX_DECIMAL, ValuePlace
from statelake.state_core.serializers.composite.collections import ListSerializer
from statelake.state_core.serializers.composite.structs import TupleSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.sql.binary.projected import projected_row, reserved_bytes
from statelake.state_core.serializers.sql.row_data import row_in
from statelake.state_core.serializers.sql.types.logical_types import LogicalType

COLUMNS = {ValuePlace.KEY: KEY, ValuePlace.USER_KEY: USER_KEY, ValuePlace.VALUE: VALUE}
COUNTS = ("count", "first")  # how values of a map are merged: a count, and maybe what is beside it
TIME_BYTES = 8  # of a timer, before its key
LENGTH_BYTES = 4  # of a row, before it


@dataclass(frozen=True)
class NewColumn:
    """A column of a new row: an old one, or a constant.

    Attributes:
        old: The index of the old column that it continues; -1 if it is new.
        initial: Its value if it is new, or filled.
        filled: Whether that also stands where the old column is null.
        counted: The index of an old column, where which is 0 it is null; -1 without one.
        values: The old values that stay, each with the new one; empty if all stay as they are. Rows
            of others are left out.
    """

    old: int = -1
    initial: Any = None
    filled: bool = False
    counted: int = -1
    values: tuple[tuple[int, int], ...] = ()

    def of(self, rows: pa.StructArray, kind: pa.DataType) -> pa.Array:
        """Return the column of some rows."""
        if self.old < 0:
            return constant(self.initial, kind, len(rows))
        column = rows.field(self.old)
        if self.values:
            olds, news = (pa.array(each, column.type) for each in zip(*self.values, strict=True))
            column = news.take(pc.index_in(column, olds))
        column = column.cast(kind)
        if self.filled:
            return pc.fill_null(column, pa.scalar(self.initial, kind))
        if self.counted >= 0:
            some = pc.not_equal(rows.field(self.counted), 0)
            return pc.if_else(some, column, pa.scalar(None, kind))
        return column


@dataclass(frozen=True)
class Bits:
    """The bits that a value of a set of distinct values has, one for each call.

    Attributes:
        bits: For each new bit the old ones that must all be set; a bit without any is 0.
    """

    bits: tuple[tuple[int, ...], ...]

    def of(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the values with the bits of the new calls.

        Raises:
            EncodeError: A value has none.
        """
        if values.null_count:
            raise EncodeError("a distinct value without bits")
        old = values.to_numpy()
        new = np.zeros(len(old), np.int64)
        for at, bits in enumerate(self.bits):
            wanted = sum(1 << bit for bit in bits)
            if wanted:
                new |= (old & wanted == wanted).astype(np.int64) << at
        return pa.array(new, kind)


# the columns of a row, or a value that is no row
NewPart: TypeAlias = "tuple[NewColumn, ...] | NewColumn | Bits"


@dataclass(frozen=True)
class Select(Transform):
    """Give rows of Flink SQL's state other columns and keys, and merge those that become equal.

    A new key puts a row, or a timer, into another key group.

    Attributes:
        layout: The layouts of the old rows and the new ones.
        parts: What becomes of parts of the rows; others stay.
        merged: How each column of values is merged where keys become equal, as for `merged_rows`;
            None if none do.
        inexact: Whether it goes by what columns show of values that they don't hold in full.
    """

    layout: KeyGroupLayout
    parts: Mapping[ValuePlace, NewPart] = field(default_factory=dict)
    merged: tuple[str, ...] | None = None
    inexact: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the rows.

        Raises:
            InexactError: A row is more than its columns say.
            EncodeError: Of a key only the exact bytes are known, or rows can't be merged.
            KeyGroupError: A key is not in the key group of its hash.
        """
        assert isinstance(rows, StateRows)  # noqa: S101 - Flink SQL's rows are keyed state
        if self.parts:
            rows = self._rewritten(rows)
        return rows if self.merged is None else merged_rows(rows, self.merged, self._refuse_inexact)

    def _refuse_inexact(self, rows: StateRows) -> None:
        """Refuse rows of whose values more is known by their bytes than by their columns."""
        if not self.inexact:
            refuse_inexact(rows, VALUE, OF_VALUES)

    def _rewritten(self, rows: StateRows) -> StateRows:
        """Return rows with other parts, in the order of their key groups."""
        if ValuePlace.USER_KEY in self.parts:
            refuse_inexact(rows, KEY, OF_BYTES)
        if any(place is not ValuePlace.KEY and isinstance(part, tuple)
               for place, part in self.parts.items()):  # fmt: skip
            self._refuse_inexact(rows)
        moves = ValuePlace.KEY in self.parts
        if moves:
            check_key_groups(rows, self.layout.before.max_parallelism)
            rows = self._of_sets_that_stay(rows)
        layout = self.layout.after.parse(dict(self.layout.after.states)[rows.state])[1]
        columns = {}
        for place, part in self.parts.items():
            old, kind = rows.batch.column(COLUMNS[place]), layout.schema.field(COLUMNS[place]).type
            within = rows.layout.value if place is ValuePlace.VALUE else None
            if within is not None and rows.layout.kind is StateKind.LIST:
                within = ListSerializer(within)
            columns[COLUMNS[place]] = _made(old, kind, within, part)
            columns[RAW_KEY if place is ValuePlace.KEY else RAW_VALUE] = pa.nulls(
                len(old), pa.binary()
            )
        made = replace(rows, layout=layout, batch=with_columns(rows, layout, columns))
        if not moves:
            return made
        columns[RAW_KEY] = self._exact_keys(rows, made)
        made = replace(made, batch=with_columns(rows, layout, columns))
        return rehash_rows(with_kinds(rows, made), self.layout.after.max_parallelism)

    def _of_sets_that_stay(self, rows: StateRows) -> StateRows:
        """Return the rows whose keys have values that stay."""
        part = self.parts[ValuePlace.KEY]
        for each in part if isinstance(part, tuple) else ():
            if each.values:
                column = rows.batch.column(KEY).field(each.old)
                olds = pa.array([old for old, _ in each.values], column.type)
                rows = replace(rows, batch=rows.batch.filter(pc.is_in(column, olds)))
        return rows

    def _exact_keys(self, rows: StateRows, moved: StateRows) -> pa.Array:
        """Return the bytes of new keys that typed columns do not tell; null for all others."""
        raw, kinds = rows.batch.column(RAW_KEY), _key_types(self.layout.after.key_serializer)
        keys = moved.batch.column(KEY)
        special = raw.is_valid()
        for at, kind in enumerate(kinds):
            if reserved_bytes(kind):
                special = pc.or_(special, keys.field(at).is_null())
        chosen = pc.indices_nonzero(special)
        exact: list[bytes | None] = [None] * len(raw)
        if not len(chosen):
            return pa.nulls(len(raw), pa.binary())
        before = replace(rows, batch=rows.batch.take(chosen))
        nulls = {RAW_KEY: pa.nulls(len(chosen), pa.binary())}
        before = replace(before, batch=with_columns(before, before.layout, nulls))
        old_kinds = _key_types(self.layout.before.key_serializer)
        head = TIME_BYTES if rows.layout.kind is StateKind.TIMERS else 0
        after = moved.layout.key_writer(moved.batch.take(chosen)).to_binary()
        typed = zip(before.layout.key_writer(before.batch).to_binary(), after, strict=True)
        for row, (was, now) in zip(chosen.to_pylist(), typed, strict=True):
            _, new, rest = _cut(now.as_py(), head)
            if raw[row].is_valid:
                (_, old, _), (_, actual, rest) = (
                    _cut(was.as_py(), head),
                    _cut(raw[row].as_py(), head),
                )
                if actual not in (old, projected_row(old, old_kinds)):
                    raise EncodeError(
                        "a key of which only the exact bytes are known",
                        place=f"state {rows.name!r}",
                    )
            new = projected_row(new, kinds)
            exact[row] = now.as_py()[:head] + struct.pack(">i", len(new)) + new + rest
        return pa.array(exact, pa.binary())


def _cut(key: bytes, head: int) -> tuple[bytes, bytes, bytes]:
    """Return the time of a timer's key bytes, its row, and what follows that."""
    begin = head + LENGTH_BYTES
    end = begin + int.from_bytes(key[head:begin], "big")
    return key[:head], key[begin:end], key[end:]


@lru_cache(maxsize=64)  # each piece of a table has the same
def _key_types(key: bytes) -> tuple[LogicalType, ...]:
    return tuple(each.type for each in row_in(parse_key_serializer(key).snapshot).types)


def _made(
    values: pa.Array, kind: pa.DataType, within: TypeSerializer | None, part: NewPart
) -> pa.Array:
    """Return values, or the rows in their lists and tuples, as they become."""
    if not isinstance(part, tuple):
        return part.of(values, kind)
    mask = values.is_null() if values.null_count else None
    if isinstance(within, ListSerializer):
        inner = _made(values.values, kind.value_type, within.element, part)
        return type(values).from_arrays(values.offsets, inner, type=kind, mask=mask)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if isinstance(within, TupleSerializer):
        first = _made(values.field(0), fields[0].type, within.fields[0][1], part)
        children = [first, *(values.field(index) for index in range(1, len(fields)))]
    elif part:
        children = [each.of(values, of.type) for each, of in zip(part, fields, strict=True)]
    else:  # the columns of a row without fields have a placeholder
        children = [pa.nulls(len(values), each.type) for each in fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def constant(value: Any, kind: pa.DataType, length: int) -> pa.Array:
    """Return a column of one value."""
    if value is None:
        return pa.nulls(length, kind)
    return pa.array([value], kind).take(pa.array([0] * length, pa.int64()))


# --------------------------------------------------------------------------- rows of one key


def merged_rows(
    rows: StateRows, how: Sequence[str], refuse: Callable[[StateRows], None] | None = None
) -> StateRows:
    """Return rows without equal keys, the first of each, with their values merged.

    Args:
        rows: The rows.
        how: How each column of the values is merged, as for `merged_column`; the first value stays
            without any.
        refuse: Refuses rows whose values must not be merged.

    Raises:
        EncodeError: Rows of a key can't be merged.
    """
    batch = rows.batch
    keys = rows.layout.key_writer(batch).to_binary().dictionary_encode()
    if len(keys.dictionary) == len(batch):
        return rows
    firsts = first_rows(keys)
    taken = replace(rows, batch=batch.take(firsts))
    if not how:
        return taken
    if refuse is not None:
        refuse(rows)
    value = batch.column(VALUE)
    fields = list(value.type) if pa.types.is_struct(value.type) else []
    columns = [value.field(at) for at in range(len(fields))] or [value]
    try:
        merged = [
            merged_column(column, function, keys.indices, column.take(firsts))
            for column, function in zip(columns, how, strict=False)
        ]
    except pa.ArrowException as error:
        raise EncodeError(
            f"groups can't be merged ({error})", place=f"state {rows.name!r}"
        ) from error
    values = pa.StructArray.from_arrays(merged, fields=fields) if fields else merged[0]
    return replace(taken, batch=with_columns(taken, rows.layout, {VALUE: values}))


def first_rows(keys: pa.DictionaryArray) -> pa.Array:
    """Return the first row of each key, in the order of the dictionary."""
    firsts = np.empty(len(keys.dictionary), np.int64)
    firsts[keys.indices.to_numpy()[::-1]] = np.arange(len(keys))[::-1]
    return pa.array(firsts)


def merged_column(column: pa.Array, how: str, places: pa.Array, first: pa.Array) -> pa.Array:
    """Return the merged value of each group, in order; NULL if all its values are.

    Args:
        column: The values.
        how: `sum`, `count` for a sum that must not wrap around, `min`, `max`, or `first`.
        places: The group of each value.
        first: The first value of each group.
    """
    if how == "first":
        return first
    kind = column.type
    if how in ("sum", "count"):
        is_integer = pa.types.is_integer(kind)
        wide = pa.int64() if is_integer else kind
        if pa.types.is_decimal(kind):
            wide = pa.decimal256(2 * MAX_DECIMAL, kind.scale)
        total = grouped(column.cast(wide), "sum", places)
        # whole numbers wrap around, as in Java
        return total.cast(kind, safe=how == "count" or not is_integer)
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        raise pa.ArrowInvalid("NaN has no order")
    ranks = pc.rank(column, "ascending", tiebreaker="dense")
    ranks = pc.if_else(column.is_valid(), ranks.cast(pa.int64()), pa.scalar(None, pa.int64()))
    chosen = grouped(ranks, how, places)
    row_of = pa.array(np.arange(len(column)))
    ordered = pa.table({"rank": ranks, "row": row_of}).group_by("rank", use_threads=False)
    known = ordered.aggregate([("row", "min")])
    at = pc.index_in(chosen, known["rank"].combine_chunks(), skip_nulls=True)
    return column.take(known["row_min"].combine_chunks().take(at))


def grouped(column: pa.Array, how: str, places: pa.Array) -> pa.Array:
    """Return what the values of each place come to, in the order of places."""
    table = pa.table({"place": places, "column": column})
    done = table.group_by("place", use_threads=False).aggregate([("column", how)])
    return done.sort_by("place")[f"column_{how}"].combine_chunks()
