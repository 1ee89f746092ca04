"""Rows as Flink's generated projections write them, such as all keys of Flink SQL.

A NULL of a DECIMAL of more than 18 digits, or of a TIMESTAMP of more than 3, has its place in the
part of variable length kept, unlike in rows that a serializer writes. The hash of a key, and so its
key group, is that of these bytes.

Source: `BinaryRowWriter.writeDecimal`, `writeTimestamp`; `CodeGenUtils.binaryRowSetNull`.
"""

from __future__ import annotations

from collections.abc import Sequence

from statelake.state_core.serializers.sql.binary.formats import LONG_DIGITS
from statelake.state_core.serializers.sql.types.logical_types import (
    DecimalType,
    LogicalType,
    TimestampType,
)

WORD = 8
HEAD_BITS = 8  # for the kind of change, before a bit for each field
DECIMAL_BYTES = 16
MILLISECOND_DIGITS = 3
EMBEDDED = 1 << 63  # the mark of up to 7 bytes that are in their field's own word
LOW = (1 << 32) - 1
FIXED = frozenset((
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DATE",
    "TIME_WITHOUT_TIME_ZONE", "INTERVAL_YEAR_MONTH", "INTERVAL_DAY_TIME",
))  # fmt: skip


def reserved_bytes(kind: LogicalType) -> int:
    """Return the bytes that a value of a type has in the part of variable length, NULL or not.

    They are 0 if that depends on the value.
    """
    if isinstance(kind, DecimalType) and kind.precision > LONG_DIGITS:
        return DECIMAL_BYTES
    if isinstance(kind, TimestampType) and kind.precision > MILLISECOND_DIGITS:
        return WORD
    return 0


def projected_row(row: bytes, kinds: Sequence[LogicalType]) -> bytes:
    """Return a row as a projection writes it.

    Args:
        row: The row as a serializer writes it, without its length.
        kinds: The types of its fields.
    """
    bits = (len(kinds) + 63 + HEAD_BITS) // 64 * WORD
    head, tail = bytearray(row[: bits + WORD * len(kinds)]), bytearray()
    for index, kind in enumerate(kinds):
        at, bit = bits + WORD * index, HEAD_BITS + index
        size, word = reserved_bytes(kind), int.from_bytes(row[at : at + WORD], "little")
        null = row[bit >> 3] >> (bit & 7) & 1
        compact = isinstance(kind, DecimalType | TimestampType) and not size
        if compact or kind.root in FIXED or (null and not size) or word & EMBEDDED:
            continue
        part = bytes(size)
        if not null:
            first = word >> 32
            part = row[first : first + (size or -(-(word & LOW) // WORD) * WORD)]
        word = (len(head) + len(tail)) << 32 | (0 if null else word & LOW)
        head[at : at + WORD] = word.to_bytes(WORD, "little")
        tail += part
    return bytes(head + tail)
