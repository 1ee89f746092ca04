"""Keys as bytes: a key to look up, and the keys of entries.

The key bytes of an entry begin with its key (of a timer: behind the timestamp), and a namespace and
a map's user key follow. A self-delimiting serializer never writes one key as the beginning of
another, so that an entry belongs to a key if it begins with the key's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    UnknownHashError,
    UnsupportedFormatError,
)
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import (
    KeyedLayout,
    RowPart,
    RowWriter,
    trailer_sizes,
)
from statelake.state_core.formats.layout.keyed_states import with_row_names
from statelake.state_core.formats.layout.meta_info import parse_key_serializer
from statelake.state_core.kernels.encode import copy_ranges
from statelake.state_core.kernels.skip import UNKNOWN, locate_counted
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.key_groups import EncodedKey, key_group_of
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    MAX_COLUMN_BYTES,
    Cursor,
    I64Array,
    U8Array,
)
from statelake.state_core.serializers.framework.opaque_values import (
    OpaqueSerializer,
    restore_key,
    written_by,
)

TIMESTAMP_BYTES = 8
COMPARED_BYTES = 32  # bytes of a key to compare in all entries, before the rest
COMPARED_KEYS = 8  # keys from which those bytes are chosen
FEW_ROWS = 64  # rows that are compared as a whole at once
SHOWN = 200


def key_serializer_of(snapshot: bytes, flink: int = 0, names: Sequence[str] = ()) -> TypeSerializer:
    """Return the key serializer of an operator from the bytes of its snapshot.

    Args:
        snapshot: The bytes.
        flink: The major version of the Flink that wrote it; 0 if it is not known.
        names: The names of the fields of a row of Flink SQL's; none by default.
    """
    with written_by(flink):
        return restore_key(with_row_names(parse_key_serializer(snapshot).snapshot, names))


def encode_keys(key: TypeSerializer, column: pa.Array) -> pa.LargeBinaryArray:
    """Return a column of keys as their serializer writes them.

    Raises:
        EncodeError: A value is not of the key's type.
    """
    return RowWriter([RowPart(key, column)], len(column), ALL_PRESENT, None).to_binary()


def encode_key(key: TypeSerializer, value: object, max_parallelism: int) -> EncodedKey:
    """Return a key as its serializer writes it, with the key group in which Flink looks for it.

    Args:
        key: The operator's key serializer.
        value: The key, as returned by Arrow's `to_pylist`, or an Arrow scalar.
        max_parallelism: The operator's max parallelism.

    Raises:
        EncodeError: The value is not of the key's type.
    """
    stored = _stored(key, value.as_py() if isinstance(value, pa.Scalar) else value)
    encoded = DataOutput()
    key.write(stored, encoded)  # for one key, kernels would take longer to load
    try:
        group = key_group_of(key.hash_code(stored), max_parallelism)
    except UnknownHashError:
        return EncodedKey(encoded.to_bytes(), None)
    return EncodedKey(encoded.to_bytes(), group)


def _stored(key: TypeSerializer, value: object) -> Any:
    """Return a key in the form of a column of keys.

    Raises:
        EncodeError: The value is not of the key's type.
    """
    try:
        stored = pa.scalar(value, key.arrow_type).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise _no_key(key, value, str(error)) from error
    if stored is None:
        raise _no_key(key, value, "no key of Flink's is null")
    if stored != value and repr(stored) != repr(value):  # NaN differs from itself
        raise _no_key(key, value, f"it would be {stored!r:.{SHOWN}}")
    return stored


def _no_key(key: TypeSerializer, value: object, why: str) -> EncodeError:
    return EncodeError(
        f"{value!r:.{SHOWN}} is not a key of type {key.name} ({why})",
        remedy=f"give it as a column of Arrow's {key.arrow_type} has it in Python",
    )


def rows_of_key(layout: KeyedLayout, entries: Entries, key: EncodedKey) -> npt.NDArray[np.intp]:
    """Return the rows of a key among entries of one state.

    If the key's end can't be found, these are the rows whose whole key bytes are the key.
    """
    key_bytes = np.frombuffer(key.encoded, np.uint8)
    starts = _key_starts(layout, entries)
    sizes = entries.key_end - starts
    if layout.opaque_key:
        rows = np.flatnonzero(sizes == key_bytes.size)
    elif layout.key.self_delimiting:
        rows = np.flatnonzero(sizes >= key_bytes.size)
    else:
        rows = np.flatnonzero(sizes == key_bytes.size + layout.namespace.wire_length)
    for offset in _telling_bytes(entries.data, starts[rows], key_bytes):
        if rows.size <= FEW_ROWS:
            break
        rows = rows[entries.data[starts[rows] + offset] == key_bytes[offset]]
    data = entries.data
    equal = [
        data[start : start + key_bytes.size].tobytes() == key.encoded
        for start in starts[rows].tolist()
    ]
    chosen: npt.NDArray[np.intp] = rows[np.array(equal, bool)]
    return chosen


def _telling_bytes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], key_bytes: npt.NDArray[np.uint8]
) -> npt.NDArray[np.intp]:
    """Return positions in a key that distinguish it, as keys may share their beginning and end.

    First positions at which some keys differ from it, then some that are spread over it.
    """
    some = starts[:: max(len(starts) // COMPARED_KEYS, 1)][:COMPARED_KEYS]
    keys = data[some[:, None] + np.arange(key_bytes.size)]
    differing = np.flatnonzero((keys != key_bytes).any(axis=0))[-COMPARED_BYTES:]
    spread = np.linspace(key_bytes.size - 1, 0, min(key_bytes.size, COMPARED_BYTES), dtype=np.intp)
    return np.concatenate((differing[::-1], spread))


def keys_of(layout: KeyedLayout, entries: Entries) -> pa.LargeBinaryArray:
    """Return the key of each entry of one state, as its serializer wrote it.

    If the key's end can't be found, it is all of the key bytes.

    Raises:
        CorruptSnapshotError: A key does not fit into its bytes.
        UnsupportedFormatError: There are more bytes than a column can hold.
    """
    starts = _key_starts(layout, entries)
    return pieces_of(entries, starts, _key_ends(layout, entries, starts))


def namespaced_keys_of(layout: KeyedLayout, entries: Entries) -> pa.LargeBinaryArray:
    """Return the key bytes of each entry of one map without the user key: key and namespace.

    Raises:
        CorruptSnapshotError: A key or namespace does not fit into its bytes.
    """
    starts = _key_starts(layout, entries)
    ends = _key_ends(layout, entries, starts)
    for part in (None, layout.namespace):
        begins = starts if part is None else ends
        if part is not None:
            ends = _behind(part, entries, begins)
        if layout.ambiguous:
            ends = ends + trailer_sizes(ends - begins)
    return pieces_of(entries, starts, np.minimum(ends, entries.key_end))


def decode_keys(layout: KeyedLayout, keys: pa.LargeBinaryArray) -> tuple[pa.Array, U8Array]:
    """Return keys of `keys_of` as a typed column, and 1 for each that it does not hold exactly."""
    bounds = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    starts, ends = bounds[:-1].copy(), bounds[1:].copy()
    serializer = OpaqueSerializer() if layout.opaque_key else layout.key
    cursor = Cursor(data, starts, ends, lambda at: f"byte {at} of keys")
    return serializer.decode(cursor), cursor.inexact


def _key_starts(layout: KeyedLayout, entries: Entries) -> I64Array:
    """Return the start of each entry's key."""
    timers = layout.kind is StateKind.TIMERS and not layout.opaque_key
    return entries.key_start + TIMESTAMP_BYTES if timers else entries.key_start


def _key_ends(layout: KeyedLayout, entries: Entries, starts: I64Array) -> I64Array:
    """Return the end of each entry's key, which begins at `starts`."""
    if layout.opaque_key:
        return entries.key_end
    alone = layout.user_key is None and layout.namespace.wire_length >= 0
    if alone or not layout.key.self_delimiting:  # what is behind the key has a known size
        ends = entries.key_end - layout.namespace.wire_length
        _check_fit(layout.namespace, entries, ends < starts)
        return ends
    return _behind(layout.key, entries, starts)


def _behind(part: TypeSerializer, entries: Entries, starts: I64Array) -> I64Array:
    """Return the end of a part of each entry's key bytes, which begins at `starts`."""
    rows = len(starts)
    ends: I64Array
    if part.wire_length >= 0:
        ends = starts + part.wire_length
    else:
        program = part.skip_program()
        ends = np.full(rows, UNKNOWN, np.int64)
        if program is not None:
            ones, first = np.ones(rows, np.int64), np.arange(rows, dtype=np.int64)
            position, words = starts.copy(), np.array(program, np.int32)
            locate_counted(
                entries.data, position, entries.key_end, ones, first, words,
                np.empty(rows, np.int64), ends,
            )  # fmt: skip
        for row in np.flatnonzero(ends < starts).tolist():  # without a program
            start, end = int(starts[row]), int(entries.key_end[row])
            source = DataInput(entries.data.data[max(start, 0) : end], entries.place(start))
            part.skip(source)
            ends[row] = start + source.position
    _check_fit(part, entries, ends > entries.key_end)
    return ends


def _check_fit(part: TypeSerializer, entries: Entries, wrong: npt.NDArray[np.bool_]) -> None:
    """Refuse entries whose key bytes are too short for a part of them.

    Raises:
        CorruptSnapshotError: An entry's key bytes are too short.
    """
    if wrong.any():
        raise CorruptSnapshotError(
            f"what should be {part.name} does not fit in its bytes",
            place=entries.place(int(entries.key_start[int(np.argmax(wrong))])),
            remedy="the snapshot is damaged, or its serializer is not the one it names",
        )


def behind_parts(
    parts: Sequence[TypeSerializer],
    data: npt.NDArray[np.uint8],
    starts: I64Array,
    ends: I64Array,
    place: Callable[[int], str],
) -> list[I64Array]:
    """Return the ends of consecutive parts in many pieces of bytes.

    Args:
        parts: Their serializers, which are self-delimiting.
        data: The bytes.
        starts: The start of the first part in each piece.
        ends: The end of each piece.
        place: Returns the name of a position in `data`.

    Raises:
        CorruptSnapshotError: A part does not fit into its piece.
    """
    rows = len(starts)
    none, groups = np.zeros(rows, np.int16), np.zeros(rows, np.int64)
    pieces = Entries(data, none, groups, starts, ends, ends, ends, place)
    bounds = [starts]
    for part in parts:
        bounds.append(_behind(part, pieces, bounds[-1]))
    return bounds[1:]


def pieces_of(entries: Entries, starts: I64Array, ends: I64Array) -> pa.LargeBinaryArray:
    """Return a binary column with a piece of each entry."""
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(ends - starts)))
    if bounds[-1] > MAX_COLUMN_BYTES:
        raise UnsupportedFormatError(
            f"{bounds[-1]} bytes of keys in one batch, and a column holds 2 GiB",
            place=entries.place(int(entries.key_start[0])),
            remedy="no single key this large can be read; drop the state first",
        )
    out = np.empty(int(bounds[-1]), np.uint8)
    copy_ranges(entries.data, np.ascontiguousarray(starts), np.ascontiguousarray(ends), out, bounds)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)
