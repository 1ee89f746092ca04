"""Many keys at once: columns of keys, and of what they have.

What a key is kept under is made for a whole column by the kernels that write snapshots, and values
go in and out of Arrow the same way; between them is one look-up a key. For value, reducing and
aggregating state (their values, or accumulators), and for lists as lists::

    batch = encode_keys(backend, state, keys)               # a column
    before = get_many(batch)                                # nulls where there is nothing
    put_many(batch, pc.add(pc.fill_null(before, 0), sums))  # null removes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state_core.backends.backend import AnyState, KeyedStateBackend
from state_core.backends.states.states import MapState, State
from state_core.backends.states.tables import ListTable, ValueTable, cut_pieces
from state_core.backends.states.ttl import LastAccess
from state_core.errors import EncodeError, KeyGroupError
from state_core.formats.layout.keyed_layout import KeyedLayout
from state_core.formats.writing.rehash import assign_key_groups
from state_core.formats.writing.unified_encode import StateRows
from state_core.model.snapshot import StateKind
from state_core.serializers.framework.columns import Cursor, I64Array, U8Array

__all__ = ["KeyBatch", "encode_keys", "get_many", "put_many"]


@dataclass(frozen=True)
class KeyBatch:
    """A column of keys, as one state keeps them.

    Attributes:
        layout: The state's.
        table: The state's.
        access: Looks at times, if values live for a while.
        groups: Each key's group.
        keys: What each is kept under.
    """

    layout: KeyedLayout
    table: ValueTable | ListTable
    access: LastAccess | None
    groups: list[int]
    keys: list[bytes]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def value_type(self) -> pa.DataType:
        """Of the columns that are got and put."""
        return self.layout.schema.field("value").type


def encode_keys(
    backend: KeyedStateBackend,
    state: AnyState,
    keys: pa.Array | pa.ChunkedArray,
    namespaces: pa.Array | pa.ChunkedArray | None = None,
) -> KeyBatch:
    """What a state keeps many keys under.

    Args:
        backend: The state's.
        state: Any but a map.
        keys: They.
        namespaces: Theirs; left out where the namespace has one value.

    Raises:
        EncodeError: A key or namespace that can't be one.
        KeyGroupError: A key belongs to another subtask.
    """
    inner: Any = state if isinstance(state, State) else state.original
    place = f"state {inner.name!r}"
    layout: KeyedLayout = inner.layout
    if isinstance(inner, MapState) or layout.opaque_key:
        raise EncodeError("its keys can't be asked for by the column", place=place)
    count = len(keys)
    columns = {
        "key": _column(keys, layout.key.arrow_type, place),
        "namespace": pa.nulls(count, layout.namespace.arrow_type)
        if namespaces is None
        else _column(namespaces, layout.namespace.arrow_type, place),
    }
    if columns["key"].null_count:
        raise EncodeError("a null key", place=place, remedy="in Flink no key is")
    schema = pa.schema([one for one in layout.schema if one.name not in ("value", "ttl")])
    batch = pa.RecordBatch.from_arrays(
        [
            columns[one.name] if one.name in columns
            else pa.array(np.zeros(count, np.int32)) if one.name == "key_group"
            else pa.nulls(count, one.type)
            for one in schema
        ],
        schema=schema,
    )  # fmt: skip
    rows = StateRows(0, inner.name, layout, batch)
    groups = assign_key_groups(rows, backend.configuration.max_parallelism)
    own = backend.configuration.key_groups
    if count and not own.first <= groups.min() <= groups.max() <= own.last:
        raise KeyGroupError(
            f"keys of key groups {groups.min()} to {groups.max()}, and this subtask has {own}",
            place=place,
            remedy="send every key to the subtask that owns its key group",
        )
    access = None if isinstance(state, State) else state.access
    encoded = layout.key_writer(batch).to_binary()
    return KeyBatch(layout, inner.table, access, groups.tolist(), _pieces(encoded))


def get_many(batch: KeyBatch) -> pa.Array:
    """What each key has, null where it has nothing that lives."""
    found = batch.table.get_many(batch.groups, batch.keys)
    present = np.fromiter((one is not None for one in found), np.uint8, len(found))
    held = [one for one in found if one is not None]
    lengths = np.zeros(len(found), np.int64)
    lengths[present != 0] = np.fromiter(map(len, held), np.int64, len(held))
    bounds = np.zeros(len(found) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    data = np.frombuffer(b"".join(held), np.uint8)
    columns = _decoded(batch.layout, data, bounds, present)
    if batch.access is None:
        return columns[0]
    values, times = columns
    now = batch.access.clock()
    if batch.layout.kind is StateKind.LIST:
        return _living_elements(batch, values, times, now)
    expired = pc.fill_null(pc.less_equal(times, now - batch.access.ttl.millis), False)
    if batch.access.ttl.return_expired:
        shown = values
    else:
        shown = pc.if_else(expired, pa.scalar(None, values.type), values)
    if batch.access.ttl.on_read:
        _renew(batch, pc.if_else(expired, pa.scalar(None, values.type), values))
    else:
        _remove(batch, expired)
    return shown


def put_many(batch: KeyBatch, values: pa.Array | pa.ChunkedArray) -> None:
    """Let each key have its value, or nothing where that is null or an empty list.

    Of a key that is there twice, the last counts.

    Raises:
        EncodeError: A value that can't be one.
    """
    layout = batch.layout
    column = _column(values, batch.value_type, "values")
    if len(column) != len(batch):
        raise EncodeError(f"{len(column)} values for {len(batch)} keys")
    held = column.is_valid()
    if layout.kind is StateKind.LIST:
        held = pc.and_(held, pc.fill_null(pc.greater(pc.list_value_length(column), 0), False))
        if column.filter(held).flatten().null_count:
            raise EncodeError("a null element, and lists have none")
    some = column if held.false_count == 0 else column.filter(held)
    schema = pa.schema([one for one in layout.schema if one.name in ("value", "ttl", "raw_value")])
    columns = {"value": some, "raw_value": pa.nulls(len(some), pa.binary())}
    if batch.access is not None:
        columns["ttl"] = _times(layout, some, batch.access.clock())
    rows = pa.RecordBatch.from_arrays([columns[one.name] for one in schema], schema=schema)
    written: list[bytes | None] = list(_pieces(layout.value_writer(rows).to_binary()))
    if len(written) < len(batch):
        given = iter(written)
        written = [next(given) if one else None for one in held.to_pylist()]
    batch.table.put_many(batch.groups, batch.keys, written)


def _column(values: pa.Array | pa.ChunkedArray, kind: pa.DataType, place: str) -> pa.Array:
    found = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if found.type == kind:
        return found
    try:
        return found.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EncodeError(
            f"a column of {found.type} where {kind} belongs ({error})", place=place
        ) from error


def _pieces(encoded: pa.Array) -> list[bytes]:
    """Each row's bytes."""
    _, offsets, data = encoded.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(encoded) + 1).tolist()
    whole = b"" if data is None else data.to_pybytes()
    return cut_pieces(whole, bounds[:-1], bounds[1:])


def _decoded(
    layout: KeyedLayout, data: U8Array, bounds: I64Array, present: U8Array
) -> list[pa.Array]:
    """The value's columns, null where nothing is present."""
    every = bool(present.all())
    starts, ends = bounds[:-1], bounds[1:]
    if not every:
        rows = np.flatnonzero(present)
        starts, ends = starts[rows], ends[rows]
    cursor = Cursor(data, starts.copy(), ends.copy(), lambda at: f"byte {at} of a batch")
    columns = layout.decode_values(cursor)
    if every:
        return columns
    places = np.cumsum(present, dtype=np.int64) - 1
    which = pa.array(places, mask=present == 0)
    return [column.take(which) for column in columns]


def _times(layout: KeyedLayout, values: pa.Array, now: int) -> pa.Array:
    if layout.kind is not StateKind.LIST:
        return pa.array(np.full(len(values), now, np.int64))
    lengths = np.asarray(pc.list_value_length(values))
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))).astype(np.int32)
    held = pa.array(np.full(int(offsets[-1]), now, np.int64))
    return pa.ListArray.from_arrays(pa.array(offsets), held)


def _living_elements(batch: KeyBatch, values: pa.Array, times: pa.Array, now: int) -> pa.Array:
    """Lists without their dead elements; null where none lives."""
    assert batch.access is not None  # noqa: S101 - by the caller
    ttl = batch.access.ttl
    shown: list[Any] = []
    for value, time in zip(values.to_pylist(), times.to_pylist(), strict=True):
        pairs = zip(value or (), time or (), strict=True)
        living = [one for one, at in pairs if not ttl.expired(at, now)]
        shown.append(living or None)
    kept = pa.array(shown, batch.value_type)
    if ttl.on_read:
        _renew(batch, kept)
    else:
        _remove(batch, pc.and_(values.is_valid(), kept.is_null()))
    return values if ttl.return_expired else kept


def _renew(batch: KeyBatch, living: pa.Array) -> None:
    """What was read lives on, what was dead is gone."""
    put_many(batch, living)


def _remove(batch: KeyBatch, dead: pa.Array) -> None:
    rows = np.flatnonzero(np.asarray(dead.cast(pa.uint8()))).tolist()
    if rows:
        groups, keys = [batch.groups[row] for row in rows], [batch.keys[row] for row in rows]
        batch.table.put_many(groups, keys, [None] * len(rows))
