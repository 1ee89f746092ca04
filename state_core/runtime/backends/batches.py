"""Many keys at once: columns of keys, and of their values.

The kernels that write snapshots compute the key bytes of entries for a whole column, and convert
values from and to Arrow; in between there is one look-up for each key. For value, reducing and
aggregating state (their values, or accumulators), and lists::

    batch = encode_keys(backend, state, keys)               # a column
    before = get_many(batch)                                # null without a value
    put_many(batch, pc.add(pc.fill_null(before, 0), sums))  # null removes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.writing.rehash import assign_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends.backend import AnyState, KeyedStateBackend
from statelake.state_core.runtime.backends.states.states import MapState
from statelake.state_core.runtime.backends.states.tables import ListTable, ValueTable, cut_column
from statelake.state_core.runtime.backends.states.ttl import LastAccess, access_times
from statelake.state_core.serializers.framework.columns import Cursor, I64Array, U8Array


@dataclass(frozen=True)
class KeyBatch:
    """A column of keys, with their bytes in one state's entries.

    Attributes:
        layout: The layout of the state's entries.
        table: The table of the state.
        access: Checks the times of values, if they expire.
        groups: The key group of each key.
        keys: The bytes of each key.
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
        """The type of the columns of values."""
        return self.layout.schema.field("value").type


def encode_keys(
    backend: KeyedStateBackend,
    state: AnyState,
    keys: pa.Array | pa.ChunkedArray,
    namespaces: pa.Array | pa.ChunkedArray | None = None,
) -> KeyBatch:
    """Return the bytes of many keys in a state's entries.

    Args:
        backend: The backend of the state.
        state: The state, of any kind but a map.
        keys: The keys, one per row.
        namespaces: The namespace of each key; may be left out if the type has one value.

    Raises:
        EncodeError: A key or namespace is invalid.
        KeyGroupError: A key belongs to another subtask.
    """
    place = f"state {state.name!r}"
    layout: KeyedLayout = state.layout
    if isinstance(state, MapState) or layout.opaque_key:
        raise EncodeError("its keys can't be read or written as a column", place=place)
    count = len(keys)
    columns = {
        "key": _column(keys, layout.key.arrow_type, place),
        "namespace": pa.nulls(count, layout.namespace.arrow_type)
        if namespaces is None
        else _column(namespaces, layout.namespace.arrow_type, place),
    }
    if columns["key"].null_count:
        raise EncodeError("a key is null", place=place, remedy="remove it: no key in Flink is")
    schema = pa.schema([field for field in layout.schema if field.name not in ("value", "ttl")])
    batch = pa.RecordBatch.from_arrays(
        [
            columns[field.name] if field.name in columns
            else pa.array(np.zeros(count, np.int32)) if field.name == "key_group"
            else pa.nulls(count, field.type)
            for field in schema
        ],
        schema=schema,
    )  # fmt: skip
    rows = StateRows(0, state.name, layout, batch)
    groups = assign_key_groups(rows, backend.configuration.max_parallelism)
    backend.configuration.check_key_groups(groups, place)
    encoded = layout.key_writer(batch).to_binary()
    return KeyBatch(layout, state.table, state.access, groups.tolist(), cut_column(encoded))


def get_many(batch: KeyBatch) -> pa.Array:
    """Return the value of each key; null without one, or if it has expired."""
    stored = batch.table.get_many(batch.groups, batch.keys)
    present = np.fromiter((value is not None for value in stored), np.uint8, len(stored))
    encoded = [value for value in stored if value is not None]
    lengths = np.zeros(len(stored), np.int64)
    lengths[present != 0] = np.fromiter(map(len, encoded), np.int64, len(encoded))
    bounds = np.zeros(len(stored) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    data = np.frombuffer(b"".join(encoded), np.uint8)
    columns = _decoded(batch.layout, data, bounds, present)
    access = batch.access
    if access is None:
        return columns[0]
    values, times = columns
    oldest = access.clock() - access.millis
    if batch.layout.kind is StateKind.LIST:
        living = _living_elements(values, times, oldest)
    else:
        expired = pc.fill_null(pc.less_equal(times, oldest), False)
        living = pc.if_else(expired, pa.scalar(None, values.type), values)
    if access.on_read:
        put_many(batch, living)
    else:
        _remove(batch, pc.and_(values.is_valid(), living.is_null()))
    return values if access.return_expired else living


def put_many(batch: KeyBatch, values: pa.Array | pa.ChunkedArray) -> None:
    """Set the value of each key; null or an empty list removes it.

    If a key occurs twice, the last value counts.

    Args:
        batch: The keys.
        values: The value of each key.

    Raises:
        EncodeError: A value is invalid.
    """
    layout = batch.layout
    column = _column(values, batch.value_type, "values")
    if len(column) != len(batch):
        raise EncodeError(f"{len(column)} values for {len(batch)} keys")
    present = column.is_valid()
    if layout.kind is StateKind.LIST:
        present = pc.and_(present, pc.fill_null(pc.greater(pc.list_value_length(column), 0), False))
        if column.filter(present).flatten().null_count:
            raise EncodeError("an element is null, and no element of a list in Flink is")
    some = column if present.false_count == 0 else column.filter(present)
    schema = pa.schema(
        [field for field in layout.schema if field.name in ("value", "ttl", "raw_value")]
    )
    columns = {"value": some, "raw_value": pa.nulls(len(some), pa.binary())}
    if batch.access is not None:
        columns["ttl"] = access_times(layout, some, batch.access.clock())
    rows = pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
    written: list[bytes | None] = list(cut_column(layout.value_writer(rows).to_binary()))
    if len(written) < len(batch):
        given = iter(written)
        written = [next(given) if value else None for value in present.to_pylist()]
    batch.table.put_many(batch.groups, batch.keys, written)


def _column(values: pa.Array | pa.ChunkedArray, kind: pa.DataType, place: str) -> pa.Array:
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EncodeError(
            f"the column is {column.type}, not {kind} ({error})", place=place
        ) from error


def _decoded(
    layout: KeyedLayout, data: U8Array, bounds: I64Array, present: U8Array
) -> list[pa.Array]:
    """Return the columns of the values, null for absent rows."""
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


def _living_elements(values: pa.Array, times: pa.Array, oldest: int) -> pa.Array:
    """Return lists without their expired elements; null if all have expired."""
    living: list[Any] = []
    for value, time in zip(values.to_pylist(), times.to_pylist(), strict=True):
        pairs = zip(value or (), time or (), strict=True)
        living.append([element for element, at in pairs if at > oldest] or None)
    return pa.array(living, values.type)


def _remove(batch: KeyBatch, dead: pa.Array) -> None:
    rows = np.flatnonzero(np.asarray(dead.cast(pa.uint8()))).tolist()
    if rows:
        groups, keys = [batch.groups[row] for row in rows], [batch.keys[row] for row in rows]
        batch.table.put_many(groups, keys, [None] * len(rows))
