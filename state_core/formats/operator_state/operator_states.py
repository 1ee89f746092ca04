"""Operator state as columns, and back into a file.

A list state's rows are its elements: subtask, position, value. A broadcast state's rows are its
entries: key and value; every subtask has a copy, and one is shown. A value that a typed column
can't hold exactly is kept beside it as bytes, as in keyed state.

Source: `PartitionableListState`, `HeapBroadcastState` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.files.compression import IDENTIFIER, compress_pieces
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import (
    RowPart,
    RowWriter,
    exact_rows,
    raw_column,
)
from statelake.state_core.formats.layout.meta_info import (
    DISTRIBUTION_MODE,
    KEY_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
)
from statelake.state_core.formats.operator_state.operator_file import (
    ElementBounds,
    OperatorFile,
    OperatorHeader,
    write_operator_header,
)
from statelake.state_core.kernels.skip import UNKNOWN, locate_counted
from statelake.state_core.model.handles import DistributionMode, PartitionOffsets
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor, I64Array
from statelake.state_core.serializers.framework.opaque_values import (
    finding_ends,
    restore_bounded,
    restore_key,
    written_by,
)

SUBTASK, POSITION, KEY, VALUE = "subtask", "position", "key", "value"
RAW_KEY, RAW_VALUE = "raw_key", "raw_value"


@dataclass(frozen=True)
class OperatorLayout:
    """One operator state's bytes as columns.

    Attributes:
        mode: Its redistribution mode.
        value: The serializer of elements, or of a broadcast state's values.
        key: The serializer of a broadcast state's keys; None for lists.
        walkers: What finds the ends of a broadcast state's keys and values, if these are bytes
            whose ends their own serializers do not find: for Flink 1, and for Flink 2.
        kind: The kind of keyed state whose values are stored in the same form.
    """

    kind: ClassVar[StateKind] = StateKind.VALUE

    mode: DistributionMode
    value: TypeSerializer
    key: TypeSerializer | None = None
    walkers: tuple[tuple[TypeSerializer, TypeSerializer], ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns, in order."""
        value = pa.field(VALUE, self.value.arrow_type)
        if self.key is not None:
            key = pa.field(KEY, self.key.arrow_type)
            raw = [pa.field(RAW_KEY, pa.binary()), pa.field(RAW_VALUE, pa.binary())]
            return pa.schema([key, value, *raw])
        place = [pa.field(SUBTASK, pa.int32()), pa.field(POSITION, pa.int64())]
        return pa.schema([*place, value, pa.field(RAW_VALUE, pa.binary())])

    def decode(self, file: OperatorFile, state: str, subtask: int) -> pa.RecordBatch:
        """Return one subtask's part of the state.

        Raises:
            CorruptSnapshotError: An element does not match its serializer.
        """
        if self.key is not None:
            return self._decode_broadcast(file, state)
        elements = file.elements(state)
        count = len(elements.starts)
        column, raw = _column(self.value, file, elements.starts, elements.ends)
        place = [
            pa.array(np.full(count, subtask, np.int32)),
            pa.array(np.arange(count, dtype=np.int64)),
        ]
        return pa.RecordBatch.from_arrays([*place, column, raw], schema=self.schema)

    def _decode_broadcast(self, file: OperatorFile, state: str) -> pa.RecordBatch:
        assert self.key is not None  # noqa: S101 - by the caller
        elements = file.elements(state)
        if len(elements.starts) == 0:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        start, end = int(elements.starts[0]), int(elements.ends[0])
        count = self.count(file, elements)
        keys = self._key_bounds(file, start + 4, end, count)
        key, raw_key = _column(self.key, file, keys[0], keys[1])
        behind = np.append(keys[0][1:], end) if count else keys[0]
        value, raw_value = _column(self.value, file, keys[1], behind)
        return pa.RecordBatch.from_arrays([key, value, raw_key, raw_value], schema=self.schema)

    def count(self, file: OperatorFile, elements: ElementBounds) -> int:
        """The entries of a broadcast state's copy.

        Raises:
            CorruptSnapshotError: Its bytes are too few for as many as it says.
        """
        assert self.key is not None  # noqa: S101 - by the callers
        start, end = int(elements.starts[0]), int(elements.ends[0])
        entries = DataInput(file.content[start:end].data, file.place(start))
        return entries.read_count("broadcast entries", self.key.min_length + self.value.min_length)

    def _key_bounds(
        self, file: OperatorFile, start: int, end: int, count: int
    ) -> tuple[I64Array, I64Array]:
        """Return the start and end of each entry's key; its value follows."""
        assert self.key is not None  # noqa: S101 - by the caller
        programs = self.key.skip_program(), self.value.skip_program()
        if programs[0] is None or programs[1] is None:
            return self._walk(file, start, end, count)
        position, ends = np.array([start], np.int64), np.array([end], np.int64)
        words = np.array([*programs[0], *programs[1]], np.int32)
        starts, behind = np.empty(count, np.int64), np.empty(count, np.int64)
        counts, first = np.array([count], np.int64), np.zeros(1, np.int64)
        failed = locate_counted(file.content, position, ends, counts, first, words, starts, behind)
        if failed >= 0 or position[0] == UNKNOWN:
            return self._walk(file, start, end, count)
        key_ends = np.empty(count, np.int64)
        again, ones = starts.copy(), np.ones(count, np.int64)
        spare = np.empty(count, np.int64)
        words = np.array(programs[0], np.int32)
        locate_counted(
            file.content, again, behind, ones, np.arange(count, dtype=np.int64), words, spare,
            key_ends,
        )  # fmt: skip
        _check_end(file, int(position[0]), end)
        return starts, key_ends

    def _walk(
        self, file: OperatorFile, start: int, end: int, count: int
    ) -> tuple[I64Array, I64Array]:
        """Do the same entry by entry, for types that only their serializer can walk."""
        assert self.key is not None  # noqa: S101 - by the caller
        problem: StateError | None = None
        for key, value in self.walkers or ((self.key, self.value),):
            try:
                return _walked(file, start, end, count, key, value)
            except StateError as error:  # noqa: PERF203 - two at most
                problem = problem or error
        assert problem is not None  # noqa: S101 - of the first walkers
        raise problem

    def entries(self, file: OperatorFile, state: str) -> frozenset[tuple[bytes, bytes]]:
        """Return a broadcast state's entries as bytes, by which copies are compared."""
        return frozenset(self.pairs(self._decode_broadcast(file, state)))

    def pairs(self, batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
        """Return the bytes of each row: a broadcast entry's key and value, or an element."""
        values = self.value_writer(batch).to_binary().to_pylist()
        if self.key is None:
            return [(b"", value) for value in values]
        keys = self.key_writer(batch).to_binary().to_pylist()
        return list(zip(keys, values, strict=True))

    def encode(self, batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        """Return the elements, or a broadcast state as one element, in the form of a file.

        Raises:
            EncodeError: A value that its serializer can't write, or a null in a list.
        """
        values = self.value_writer(batch).to_binary()
        if self.key is None:
            _refuse_nulls(batch)
            return values
        keys = self.key_writer(batch).to_binary()
        if pc.count_distinct(keys).as_py() != len(keys):
            raise EncodeError(
                "a broadcast state with a key more than once", remedy="keep one row of each key"
            )
        pairs = zip(keys.to_pylist(), values.to_pylist(), strict=True)
        entries = b"".join(part for pair in pairs for part in pair)
        return pa.array([len(keys).to_bytes(4, "big") + entries], pa.large_binary())

    def key_writer(self, batch: pa.RecordBatch) -> RowWriter:
        """Return the writer of each key of a broadcast state."""
        assert self.key is not None  # noqa: S101 - by the callers
        return _writer(batch, KEY, RAW_KEY, self.key)

    def value_writer(self, batch: pa.RecordBatch) -> RowWriter:
        """Return the writer of each row's element, or of its entry's value."""
        return _writer(batch, VALUE, RAW_VALUE, self.value)

    def stored_value(self) -> TypeSerializer:
        """The serializer of these bytes."""
        return self.value

    def decode_key(self, cursor: Cursor) -> list[pa.Array]:
        """Return the `key` column of a broadcast state from the bytes of its keys alone."""
        assert self.key is not None  # noqa: S101 - by the caller
        column = self.key.decode(cursor)
        cursor.check_at_end()
        return [column]

    def decode_values(self, cursor: Cursor) -> list[pa.Array]:
        """Return the `value` column from these bytes alone."""
        column = self.value.decode(cursor)
        cursor.check_at_end()
        return [column]


def _walked(
    file: OperatorFile, start: int, end: int, count: int, key: TypeSerializer, value: TypeSerializer
) -> tuple[I64Array, I64Array]:
    """Return the start and end of each key of a broadcast state's copy, entry by entry.

    Raises:
        UnsupportedFormatError: Something is behind a key, or a value, whose end is not known.
        StateError: They do not end where the copy does.
    """
    for each, followed in ((key, count > 0), (value, count > 1)):
        if followed and not each.self_delimiting:
            raise UnsupportedFormatError(
                f"a broadcast state with {each.name}, of which nobody knows where one ends",
                place=file.place(start),
                remedy="register its serializer or its decoder, see --plugins, or say its class in"
                " a file for --kryo; where Kryo has default serializers of the job's own for types"
                " of the JDK, only a decoder with the length of a value tells",
            )
    source = DataInput(file.content[start:end].tobytes(), file.place(start))
    starts, key_ends = np.empty(count, np.int64), np.empty(count, np.int64)
    for index in range(count):
        starts[index] = start + source.position
        key.skip(source)
        key_ends[index] = start + source.position
        value.skip(source)
    _check_end(file, start + source.position, end)
    return starts, key_ends


@dataclass(frozen=True)
class ElementRows:
    """Rows of one operator state, as `StateRows` are of keyed state.

    Attributes:
        name: The state's name.
        layout: The layout of its elements.
        batch: Its rows.
    """

    name: str
    layout: OperatorLayout
    batch: pa.RecordBatch


def operator_layout(state: StateMetaInfo) -> OperatorLayout:
    """Return the layout of one operator state.

    Raises:
        CorruptSnapshotError: A serializer that its kind needs is missing, or the mode is unknown.
    """
    try:
        mode = DistributionMode[state.options[DISTRIBUTION_MODE]]
        value = restore_bounded(state.serializers[VALUE_SERIALIZER].snapshot)
        if state.kind is not BackendStateType.BROADCAST:
            return OperatorLayout(mode, value)
        snapshots = [
            state.serializers[each].snapshot for each in (KEY_SERIALIZER, VALUE_SERIALIZER)
        ]
        key = restore_key(snapshots[0])
    except KeyError as error:
        raise CorruptSnapshotError(
            f"operator state without a valid {error}", place=f"state {state.name!r}"
        ) from error
    if key.self_delimiting and value.self_delimiting:
        return OperatorLayout(mode, value, key)
    walkers = []
    for flink in (1, 2):  # no file of operator state says which one wrote it
        with finding_ends(), written_by(flink):
            walkers.append((snapshots[0].restore_nested(), snapshots[1].restore_nested()))
    return OperatorLayout(mode, value, key, tuple(walkers))


def encode_operator_file(
    header: OperatorHeader, states: Sequence[tuple[StateMetaInfo, pa.LargeBinaryArray]]
) -> tuple[bytes, dict[str, PartitionOffsets]]:
    """Return one subtask's file, and the offsets for its handle.

    Args:
        header: The file's header, which determines whether it is compressed.
        states: Each state's elements, in the order of the header.
    """
    out = DataOutput()
    write_operator_header(header, out)
    if header.compressed:
        out.write_bytes(IDENTIFIER)
    offsets = {}
    for state, elements in states:
        begin = len(out)
        bounds, data = _content(elements)
        if header.compressed:
            framed, lengths = compress_pieces(data, bounds)
            out.write_bytes(framed)
        else:
            lengths = np.diff(bounds)
            out.write_bytes(data)
        starts = begin + np.cumsum(lengths) - lengths
        mode = DistributionMode[state.options[DISTRIBUTION_MODE]]
        offsets[state.name] = PartitionOffsets(mode, tuple(starts.tolist()))
    return out.to_bytes(), offsets


def _content(elements: pa.LargeBinaryArray) -> tuple[I64Array, bytes]:
    """Return the bounds of elements, and their bytes in one piece."""
    if not len(elements):
        return np.zeros(1, np.int64), b""
    _, offsets, data = elements.buffers()
    bounds = np.frombuffer(offsets, np.int64)[elements.offset : elements.offset + len(elements) + 1]
    piece = b"" if data is None else data[int(bounds[0]) : int(bounds[-1])].to_pybytes()
    return bounds - bounds[0], piece


def _column(
    serializer: TypeSerializer, file: OperatorFile, starts: I64Array, ends: I64Array
) -> tuple[pa.Array, pa.Array]:
    """Return the values between bounds, and the exact bytes of those that need them."""
    cursor = Cursor(file.content, starts.copy(), ends, file.place)
    column = serializer.decode(cursor)
    cursor.check_at_end()
    return column, raw_column(cursor, starts, ends)


def _writer(
    batch: pa.RecordBatch, name: str, raw_name: str, serializer: TypeSerializer
) -> RowWriter:
    def decode(cursor: Cursor) -> list[pa.Array]:
        return [serializer.decode(cursor)]

    exact = exact_rows(batch, raw_name, [name], decode)
    part = RowPart(serializer, batch.column(name))
    return RowWriter([part], len(batch), exact, batch.column(raw_name))


def _refuse_nulls(batch: pa.RecordBatch) -> None:
    """Refuse nulls in lists, as Flink does on a restore even if the serializer could write them."""
    missing = pc.and_(pc.is_null(batch.column(VALUE)), pc.is_null(batch.column(RAW_VALUE)))
    row = pc.index(missing, value=True).as_py()
    if row >= 0:
        raise EncodeError(
            f"row {row} has no element, and a list in Flink's state holds no null",
            remedy="set a value, or delete the row",
        )


def _check_end(file: OperatorFile, reached: int, end: int) -> None:
    if reached != end:
        raise CorruptSnapshotError(
            f"{end - reached} bytes behind the last broadcast entry", place=file.place(reached)
        )
