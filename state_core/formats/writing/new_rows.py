"""Rows of a new state: columns cast to the state's types, checked, and assigned to key groups.

Rows are processed a batch at a time, in bounded memory. An empty list is not written, as Flink does
not keep one either. Rows that Flink could not have written are refused: a null key, value or
element, or a column of another kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError, KeyGroupError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.conforming import conform, to_millis
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import parse_keyed_state
from statelake.state_core.formats.layout.meta_info import parse_key_serializer
from statelake.state_core.formats.writing.rehash import assign_key_groups
from statelake.state_core.formats.writing.spills import Spill, spill_rows
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.composite.wrappers import SingletonSerializer

BATCH_BYTES = 16 << 20
BATCH_ROWS = 1 << 18
KEY_GROUP, RAW_KEY, RAW_VALUE = "key_group", "raw_key", "raw_value"
TIMES = ("timestamp", "ttl")
NEVER_NULL = ("timestamp", "ttl")


@dataclass(frozen=True)
class SpillTask:
    """A picklable task: spill the rows of one new state.

    Attributes:
        directory: The directory of the spill.
        operator: The operator's uid, for messages.
        name: Its name, for messages.
        state: Its id in the header.
        meta_info: Its meta info in the header.
        key_serializer: The key serializer, as in the header.
        max_parallelism: The number of key groups.
        attempt: The prefix of the spill's name, from a `SavepointDirectory`.
    """

    directory: str
    operator: str
    name: str
    state: int
    meta_info: bytes
    key_serializer: bytes
    max_parallelism: int
    attempt: str = ""

    @property
    def layout(self) -> KeyedLayout:
        """The layout of its entries."""
        return parse_keyed_state(self.meta_info, self.key_serializer, without_decoders=True)[1]


class RemoteRows(Protocol):
    """Rows that other processes have: tasks of a cluster call `spill_batches` for them."""

    def spill(self, task: SpillTask) -> list[Spill]:
        """Spill all rows, and return the spills in their final order."""


def spill_batches(task: SpillTask, batches: Iterable[pa.RecordBatch]) -> Spill:
    """Check rows, sort them by key group and write them to a spill.

    Raises:
        EncodeError: A column is missing, or the state can't hold a value.
        KeyGroupError: The hash of the key's type can't be derived.
    """
    layout = task.layout
    place = f"state {task.name!r}"
    reserved = _reserved_fields(task.key_serializer)
    rows = (
        _sorted(StateRows(task.state, task.name, layout, batch), task.max_parallelism)
        for batch in _conforming(layout, batches, place)
        if _has_no_reserved_null(batch, reserved, place)
    )
    try:
        directory = Directory(task.directory).confined()
        return spill_rows(directory, rows, prefix_bytes(task.max_parallelism), task.attempt)
    except StateError as error:
        raise error.within(f"operator {task.operator}") from error


def batches_of(rows: object, place: str) -> Iterator[pa.RecordBatch]:
    """Yield rows in any Arrow form as batches of a suitable size.

    Raises:
        EncodeError: The rows are not in an Arrow form.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = [rows]
    if isinstance(rows, pa.Table):
        rows = rows.to_batches()
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | dict):
        raise EncodeError(
            f"rows that are a {type(rows).__name__}",
            place=place,
            remedy="give a pyarrow.Table, a RecordBatchReader, or batches",
        )
    pending: list[pa.RecordBatch] = []
    size = count = 0
    for row in rows:
        if not isinstance(row, pa.RecordBatch):
            raise EncodeError(f"a {type(row).__name__} among batches", place=place)
        for piece in _pieces(row):
            if pending and (size + piece.nbytes > BATCH_BYTES or count + len(piece) > BATCH_ROWS):
                yield _joined(pending, place)
                pending, size, count = [], 0, 0
            pending.append(piece)
            size += piece.nbytes
            count += len(piece)
    if pending:
        yield _joined(pending, place)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of a suitable size."""
    cuts = max(-(-batch.nbytes // BATCH_BYTES), -(-len(batch) // BATCH_ROWS), 1)
    rows = max(1, -(-len(batch) // cuts))
    for at in range(0, len(batch), rows):
        yield batch.slice(at, rows)


def _joined(batches: list[pa.RecordBatch], place: str) -> pa.RecordBatch:
    try:
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"batches of unlike columns ({error})", place=place) from error


def _conforming(
    layout: KeyedLayout, batches: Iterable[pa.RecordBatch], place: str
) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches_of(batches, place):
        conformed = _conform(layout, batch, place)
        _check_nulls(layout, conformed, place, first)
        first += len(batch)
        yield _without_empty_lists(layout, conformed)


def _conform(layout: KeyedLayout, batch: pa.RecordBatch, place: str) -> pa.RecordBatch:
    """Return the batch with the columns of the layout; missing key groups are null."""
    schema = layout.schema
    given = batch.schema.names
    optional = {KEY_GROUP, RAW_KEY, RAW_VALUE}
    if isinstance(layout.namespace, SingletonSerializer) or layout.opaque_key:
        optional.add("namespace")
    unknown = [name for name in given if name not in schema.names]
    missing = [name for name in schema.names if name not in given and name not in optional]
    if unknown or missing or len(set(given)) != len(given):
        required = ", ".join(name for name in schema.names if name not in optional)
        problem = f"no column {missing[0]!r}" if missing else f"columns {', '.join(given)}"
        raise EncodeError(problem, place=place, remedy=f"give the columns {required}")
    columns = []
    for field in schema:
        where = f"{place}, column {field.name!r}"
        if field.name not in given:
            columns.append(pa.nulls(len(batch), field.type))
        elif field.name in TIMES and pa.types.is_integer(field.type):
            columns.append(to_millis(batch.column(field.name), where))
        else:
            columns.append(conform(batch.column(field.name), field.type, where))
    fields = [field.with_nullable(True) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _check_nulls(layout: KeyedLayout, batch: pa.RecordBatch, place: str, first: int) -> None:
    """Refuse nulls where Flink has none; a null with exact bytes stands for a value."""
    names = batch.schema.names
    _refuse_nulls(batch, "key", RAW_KEY, place, first)
    if not isinstance(layout.namespace, SingletonSerializer) and not layout.opaque_key:
        _refuse_nulls(batch, "namespace", RAW_KEY, place, first)
    for name in NEVER_NULL:
        if name in names:
            _refuse_nulls(batch, name, RAW_VALUE if name == "ttl" else "", place, first)
    if layout.kind in (StateKind.MAP, StateKind.TIMERS):
        return
    _refuse_nulls(batch, "value", RAW_VALUE, place, first)
    if layout.kind is not StateKind.LIST:
        return
    for name in ("value", "ttl"):
        column = batch.column(name) if name in names else None
        if column is None or not pa.types.is_list(column.type):
            continue
        lists = column if RAW_VALUE not in names else column.filter(batch[RAW_VALUE].is_null())
        if lists.flatten().null_count:
            raise EncodeError(
                f"a null element of {name!r}",
                place=place,
                remedy="Flink's lists have no null elements",
            )


def _reserved_fields(key_serializer: bytes) -> tuple[int, ...]:
    """Return the columns of a row key of Flink SQL whose NULL has bytes known only to its job."""
    snapshot = parse_key_serializer(key_serializer).snapshot
    if not snapshot.java_class.endswith("$RowDataSerializerSnapshot"):
        return ()
    from statelake.state_core.serializers.sql.binary.projected import (  # noqa: PLC0415 - of SQL
        reserved_bytes,
    )
    from statelake.state_core.serializers.sql.row_data import row_in  # noqa: PLC0415 - likewise

    types = row_in(snapshot).types
    return tuple(at for at, each in enumerate(types) if reserved_bytes(each.type))


def _has_no_reserved_null(batch: pa.RecordBatch, reserved: tuple[int, ...], place: str) -> bool:
    """Return true; a key in another key group than the job's would never be found.

    Raises:
        EncodeError: A key has such a NULL, and exact bytes are missing.
    """
    for at in reserved:
        field = batch.column("key").field(at)
        wrong = pc.and_(field.is_null(), batch.column(RAW_KEY).is_null())
        if pc.any(wrong).as_py():
            name = batch.schema.field("key").type.field(at).name
            raise EncodeError(
                f"a key with NULL in {name}: a long DECIMAL or TIMESTAMP, whose NULL"
                " has different bytes in a key of Flink SQL",
                place=place,
                remedy="give the exact bytes as `raw_key`, or leave such rows out",
            )
    return True


def _refuse_nulls(batch: pa.RecordBatch, name: str, raw: str, place: str, first: int) -> None:
    column = batch.column(name)
    if not column.null_count:
        return
    null = column.is_null()
    if raw in batch.schema.names:
        null = pc.and_(null, batch.column(raw).is_null())
    row = pc.index(null, value=True).as_py()
    if row >= 0:
        raise EncodeError(
            f"row {first + row} has no {name}",
            place=place,
            remedy="leave such rows out: in Flink a key without a value has no entry",
        )


def _without_empty_lists(layout: KeyedLayout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Remove lists without elements, which have no entry."""
    if layout.kind is not StateKind.LIST or not pa.types.is_list(batch["value"].type):
        return batch
    empty = pc.and_(pc.equal(pc.list_value_length(batch["value"]), 0), batch[RAW_VALUE].is_null())
    return batch.filter(pc.invert(pc.fill_null(empty, False)))


def _sorted(rows: StateRows, max_parallelism: int) -> StateRows:
    """Return the rows ordered by their key groups."""
    groups = _key_groups(rows, max_parallelism)
    order = np.argsort(groups, kind="stable")
    batch = rows.batch.take(pa.array(order))
    columns = [*batch.columns]
    columns[batch.schema.names.index(KEY_GROUP)] = pa.array(groups[order])
    ordered = pa.RecordBatch.from_arrays(columns, schema=rows.layout.schema)
    return StateRows(rows.state, rows.name, rows.layout, ordered)


def _key_groups(rows: StateRows, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return each row's key group, from the hash of its key, or from its column."""
    given = rows.batch.column(KEY_GROUP)
    place = f"state {rows.name!r}"
    try:
        groups = assign_key_groups(rows, max_parallelism)
    except KeyGroupError as error:
        if given.null_count:
            raise KeyGroupError(
                error.problem,
                place=error.place,
                remedy="give a column `key_group`, or choose a key whose Java hash is known",
            ) from error
        groups = np.asarray(given)
        if len(groups) and not 0 <= groups.min() <= groups.max() < max_parallelism:
            raise KeyGroupError(
                f"key groups {groups.min()} to {groups.max()}",
                place=place,
                remedy=f"they are to be below the max parallelism, {max_parallelism}",
            ) from None
        return groups
    wrong = pc.index(pc.not_equal(given, pa.array(groups)), value=True).as_py()
    if wrong >= 0:
        key = rows.batch.column("key")[wrong].as_py()
        raise KeyGroupError(
            f"key {key!r} in key group {given[wrong]}, but its hash is of key group"
            f" {groups[wrong]}",
            place=place,
            remedy="leave the column out: key groups are computed",
        )
    return groups
