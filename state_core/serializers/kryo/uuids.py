"""UUIDs that Kryo wrote, a column at a time, as they are frequent.

Kryo 2.24 in Flink 1 writes each half as a signed number of variable length; Kryo 5.6 in Flink 2 as
eight bytes, low byte first. Both are behind the class and the mark of a new object.

Source: `com.twitter.chill.java.UUIDSerializer`, and Kryo 5's `DefaultSerializers.UUIDSerializer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.framework.columns import I64Array, U8Array, arrow_buffer
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.wire import LAST, KryoVersion

if TYPE_CHECKING:
    from statelake.state_core.serializers.kryo.decoding import KryoValues

UUID = "java.util.UUID"
TEXT_BYTES = 36
NO_UUID = "00000000-0000-0000-0000-000000000000"
LONGEST = 9  # bytes of a half in Flink 1: the ninth has eight bits
U64Array: TypeAlias = npt.NDArray[np.uint64]
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_VALUES = np.full(256, LAST, np.uint8)  # of hexadecimal digits; LAST for what is none
_VALUES[_HEX] = np.arange(16)
_HYPHENS = np.array([8, 13, 18, 23])
_DIGITS = np.array([at for at in range(TEXT_BYTES) if at not in _HYPHENS])


class KryoUuids:
    """The form of UUIDs in a state's values.

    Args:
        values: The reader and writer of the values.
        version: The Kryo that writes them.
    """

    def __init__(self, values: KryoValues, version: KryoVersion) -> None:
        self.older = version is KryoVersion.FLINK_1
        try:  # without the last bytes, which are the halves of a UUID of zeros
            self.head = values.write(Item(UUID, NO_UUID), version)[: -2 if self.older else -16]
        except EncodeError:
            self.head = b""

    def read(
        self, data: U8Array, start: I64Array, end: I64Array
    ) -> tuple[U64Array, I64Array] | None:
        """Read a new UUID of each row; None if a row has something else, such as null.

        Args:
            data: The bytes of all rows.
            start: The start of each row.
            end: The position that each row does not pass.

        Returns:
            The halves of each UUID, of shape (rows, 2), and the positions behind them.
        """
        head = np.frombuffer(self.head, np.uint8)
        at = start + len(head)
        if not head.size or (at > end).any():
            return None
        if (data[start[:, None] + np.arange(len(head))] != head).any():
            return None
        halves = []
        for _ in range(2):
            half, at = _zigzags(data, at, end) if self.older else _longs(data, at, end)
            if len(half) < len(at):
                return None
            halves.append(half)
        return np.stack(halves, 1), at

    def write(self, halves: U64Array) -> tuple[U8Array, I64Array]:
        """Return the bytes of UUIDs as Kryo 5.6 writes them, one behind the other, and sizes."""
        head = np.broadcast_to(np.frombuffer(self.head, np.uint8), (len(halves), len(self.head)))
        longs = np.ascontiguousarray(halves.astype("<u8")).view(np.uint8)
        rows = np.concatenate((head, longs.reshape(len(halves), 16)), 1)
        return rows.reshape(-1), np.full(len(halves), rows.shape[1], np.int64)


def uuid_texts(halves: U64Array, present: U8Array) -> pa.Array:
    """Return UUIDs as text, and null.

    Args:
        halves: Those of the rows that are not null.
        present: One byte a row, 0 for null; of size 0 if all are present.
    """
    digits = halves.astype(">u8").view(np.uint8).reshape(len(halves), 16)
    text = np.full((len(halves), TEXT_BYTES), ord("-"), np.uint8)
    text[:, _DIGITS[::2]] = _HEX[digits >> 4]
    text[:, _DIGITS[1::2]] = _HEX[digits & 15]
    there = np.ones(len(halves), np.int64) if present.size == 0 else present.astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(there * TEXT_BYTES))).astype(np.int32)
    texts = pa.Array.from_buffers(
        pa.string(), len(there), [None, arrow_buffer(offsets), arrow_buffer(text.reshape(-1))]
    )
    if present.size == 0 or present.all():
        return texts
    import pyarrow.compute as pc  # noqa: PLC0415 - it takes time, which opening a snapshot need not

    return pc.if_else(pa.array(present.astype(np.bool_)), texts, pa.scalar(None, pa.string()))


def uuid_halves(texts: pa.Array) -> U64Array | None:
    """Return the halves of UUIDs in Java's text, without nulls; None if one has another form."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    if len(texts) == 0 or texts.null_count or (np.diff(offsets) != TEXT_BYTES).any():
        return None
    data = np.frombuffer(texts.buffers()[2], np.uint8)[int(offsets[0]) : int(offsets[-1])]
    text = data.reshape(len(texts), TEXT_BYTES)
    digits = _VALUES[text[:, _DIGITS]]
    if (digits == LAST).any() or (text[:, _HYPHENS] != ord("-")).any():
        return None
    joined = np.ascontiguousarray(digits[:, ::2] << 4 | digits[:, 1::2])
    halves: U64Array = joined.view(">u8").astype(np.uint64)
    return halves


def _longs(data: U8Array, at: I64Array, end: I64Array) -> tuple[U64Array, I64Array]:
    """Read a fixed number of each row, low byte first; no number if one does not fit."""
    if (at + 8 > end).any():
        return np.empty(0, np.uint64), at
    return data[at[:, None] + np.arange(8)].view("<u8").ravel(), at + 8


def _zigzags(data: U8Array, at: I64Array, end: I64Array) -> tuple[U64Array, I64Array]:
    """Read a signed number of each row, of variable length; no number if one has another form.

    Returns:
        The numbers, and the positions behind them.
    """
    value = np.zeros(len(at), np.uint64)
    last = np.zeros(len(at), np.uint8)
    more = np.ones(len(at), np.bool_)
    behind = at.copy()
    for index in range(LONGEST):
        if (more & (behind >= end)).any():
            return value[:0], at
        byte = data[np.where(more, behind, 0)]
        part = byte if index == LONGEST - 1 else byte & (LAST - 1)
        value |= np.where(more, part, 0).astype(np.uint64) << np.uint64(7 * index)
        last = np.where(more, byte, last)
        behind += more
        more &= byte >= LAST
    if ((last == 0) & (behind > at + 1)).any():  # longer than it need be
        return value[:0], at
    return value >> np.uint64(1) ^ -(value & np.uint64(1)), behind
