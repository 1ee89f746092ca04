"""Encode typed columns in the unified format: whole key groups at once, in place.

Sizes are computed for all rows of all states, positions follow from them, and then every column of
every state is written directly to the buffer of the file.

Source: `org.apache.flink.runtime.state.FullSnapshotAsyncWriter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    RAW_KEY,
    KeyedLayout,
    RowPart,
    RowWriter,
)
from statelake.state_core.kernels.encode import copy_pieces, write_entry_heads, write_values_heads
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.columns import (
    ALL_PRESENT,
    I64Array,
    U8Array,
    fixed_values,
)

I32Array: TypeAlias = npt.NDArray[np.int32]

LENGTH_BYTES = 4
STATE_ID_BYTES = 2
END_OF_KEY_GROUP = b"\xff\xff"


@dataclass(frozen=True)
class StateRows:
    """Rows of one state to write.

    Attributes:
        state: Its id in the header.
        name: Its name, for messages.
        layout: The layout of its entries.
        batch: Its rows, in order of key group.
    """

    state: int
    name: str
    layout: KeyedLayout
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """The position of one key group in the encoded buffer."""

    group: int
    start: int
    end: int


@dataclass(frozen=True)
class _Sized:
    """A state's rows with their sizes, and their runs, one for each key group."""

    rows: StateRows
    groups: I32Array
    keys: RowWriter
    values: RowWriter
    within: I64Array
    run_start: npt.NDArray[np.intp]
    run_group: I32Array
    run_bytes: I64Array


def encode_key_groups(states: list[StateRows], prefix: int) -> tuple[U8Array, list[EncodedGroup]]:
    """Encode whole key groups, each with all its states.

    Args:
        states: Each state's rows; a state without rows may be left out.
        prefix: Bytes of the key-group prefix.

    Returns:
        A buffer, and the position of each key group with data in it, in ascending order.

    Raises:
        EncodeError: A value that its serializer can't write.
    """
    sized = [_size(state, prefix) for state in states if len(state.batch)]
    if not sized:
        return np.empty(0, np.uint8), []
    groups = np.concatenate([state.run_group for state in sized])
    ids = np.concatenate([np.full(len(state.run_group), i) for i, state in enumerate(sized)])
    order = np.lexsort((ids, groups))
    run_bytes = np.concatenate([state.run_bytes for state in sized])[order] + STATE_ID_BYTES
    groups, ids = groups[order], ids[order]
    last_of_group = np.append(groups[1:] != groups[:-1], True)
    behind = np.cumsum(run_bytes + len(END_OF_KEY_GROUP) * last_of_group)
    starts = np.concatenate((np.zeros(1, np.int64), behind[:-1]))
    out = np.empty(int(behind[-1]), np.uint8)
    for index, state in enumerate(sized):
        mine = starts[ids == index]
        _write_big_endian16(out, mine, state.rows.state)
        first = mine + STATE_ID_BYTES - state.within[state.run_start]
        counts = np.diff(np.append(state.run_start, len(state.groups)))
        last = np.zeros(len(state.groups), np.uint8)
        last[state.run_start + counts - 1] = 1
        _write_entries(state, out, np.repeat(first, counts) + state.within[:-1], last, prefix)
    _write_big_endian16(out, behind[last_of_group] - len(END_OF_KEY_GROUP), 0xFFFF)
    ends = behind[last_of_group].tolist()
    return out, [
        EncodedGroup(group, start, end)
        for group, start, end in zip(
            groups[last_of_group].tolist(), [0, *ends[:-1]], ends, strict=True
        )
    ]


def encode_rows(rows: StateRows, prefix: int) -> Entries:
    """Encode entries one after the other, without state ids, flags or marks.

    Each begins with four bytes and the prefix in front of its key.
    """
    sized = _size(rows, prefix)
    out = np.empty(int(sized.within[-1]), np.uint8)
    no_flags = np.zeros(len(sized.groups), np.uint8)
    starts = sized.within[:-1]
    _write_entries(sized, out, starts.copy(), no_flags, prefix)
    keys = starts + (LENGTH_BYTES + prefix)
    behind = keys + sized.keys.sizes
    return Entries(
        out,
        np.full(len(starts), rows.state, np.int16),
        sized.groups.astype(np.int64),
        keys,
        behind,
        behind + LENGTH_BYTES,
        sized.within[1:],
        lambda at: f"state {rows.name!r}, encoded byte {at}",
    )


def copy_entries(entries: Entries, prefix: int, *, ends_run: bool = False) -> Entries:
    """Copy entries of one state in the form of a file, one after the other.

    Args:
        entries: The entries, at least one.
        prefix: Bytes of the key-group prefix.
        ends_run: Whether the flag "meta data follows" is set at the last entry.
    """
    keys = entries.key_end - entries.key_start
    values = entries.value_end - entries.value_start
    sizes = keys + values + (2 * LENGTH_BYTES + prefix)
    behind = np.cumsum(sizes)
    position = behind - sizes
    key_start = position + (LENGTH_BYTES + prefix)
    out: U8Array = np.empty(int(behind[-1]), np.uint8)
    flags = np.zeros(len(entries), np.uint8)
    flags[-1] = ends_run
    write_entry_heads(entries.group_of.astype(np.int32), keys, prefix, flags, out, position)
    _copy(entries.data, entries.key_start, entries.key_end, out, position)
    write_values_heads(values, out, position)
    _copy(entries.data, entries.value_start, entries.value_end, out, position)
    key_end = key_start + keys
    return Entries(
        out, entries.state_of, entries.group_of, key_start, key_end, key_end + LENGTH_BYTES,
        behind, entries.place,
    )  # fmt: skip


def _copy(
    data: U8Array, starts: I64Array, ends: I64Array, out: U8Array, position: I64Array
) -> None:
    contiguous = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
    copy_pieces(data, *contiguous, out, position)


def _size(rows: StateRows, prefix: int) -> _Sized:
    batch = rows.batch
    groups = fixed_values(batch.column("key_group"), np.int32)
    try:
        keys, values = rows.layout.key_writer(batch), rows.layout.value_writer(batch)
    except StateError as error:
        raise error.within(f"state {rows.name!r}") from error
    sizes = keys.sizes + values.sizes + (2 * LENGTH_BYTES + prefix)
    if sizes.size and int(max(keys.sizes.max(), values.sizes.max())) >= (1 << 31):
        raise EncodeError(
            "a key or value of 2 GiB or more, which Flink's format can't say",
            place=f"state {rows.name!r}",
        )
    within = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    changes = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    run_start = np.concatenate((np.zeros(min(1, len(groups)), np.intp), changes))
    run_group = groups[run_start]
    if np.any(run_group[1:] < run_group[:-1]):
        raise EncodeError("rows that are not in order of key group", place=f"state {rows.name!r}")
    run_bytes = np.diff(np.append(within[run_start], within[-1]))
    return _Sized(rows, groups, keys, values, within, run_start, run_group, run_bytes)


def _write_entries(
    state: _Sized, out: U8Array, position: I64Array, last: U8Array, prefix: int
) -> None:
    write_entry_heads(state.groups, state.keys.sizes, prefix, last, out, position)
    state.keys.write(out, position)
    write_values_heads(state.values.sizes, out, position)
    state.values.write(out, position)


def _write_big_endian16(out: U8Array, positions: I64Array, value: int) -> None:
    out[positions] = value >> 8
    out[positions + 1] = value & 0xFF


def key_bytes(rows: StateRows) -> pa.LargeBinaryArray:
    """Return each row's key, as from `encode_keys`.

    Raises:
        EncodeError: The key's end can't be found.
    """
    layout, raw = rows.layout, rows.batch.column(RAW_KEY)
    if layout.opaque_key:
        raise EncodeError(
            f"keys of type {layout.key.name}, whose end only the job knows",
            place=f"state {rows.name!r}",
            remedy="choose rows by a predicate on the exact bytes instead",
        )
    part = RowPart(layout.key, rows.batch.column(KEY))
    if raw.null_count == len(raw):
        return RowWriter([part], len(raw), ALL_PRESENT, None).to_binary()
    exact = layout.key_writer(rows.batch).exact
    keys = [_key_in(layout, key.as_py()) if key.is_valid else None for key in raw]
    return RowWriter([part], len(raw), exact, pa.array(keys, pa.binary())).to_binary()


def _key_in(layout: KeyedLayout, data: bytes) -> bytes:
    """Return the key within the exact bytes of a key, its namespace and the rest."""
    source = DataInput(data, RAW_KEY)
    if layout.kind is StateKind.TIMERS:
        source.read_long()
    start = source.position
    if not layout.key.self_delimiting:
        return data[start : len(data) - layout.namespace.wire_length]
    layout.key.skip(source)
    return data[start : source.position]
