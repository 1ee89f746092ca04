"""`BigInteger` and `BigDecimal`: numbers without a largest one.

A `BigInteger` is a decimal of 38 digits, the most that Spark has; a larger one keeps its exact
bytes beside a null. A `BigDecimal` has a scale of its own in every value, and 1.0 is not 1.00: its
column is text as `BigDecimal.toString` has it, from which the same number comes back; SQL casts it.

Java tells the constants 0, 1 and 10 from equal numbers made elsewhere, and writes them shorter: of
the two spellings the longer one keeps its exact bytes.

Source: `BigIntSerializer`, `BigDecSerializer` in `org.apache.flink.api.common.typeutils.base`.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from state_core.errors import EncodeError
from state_core.files.wire import DataInput, DataOutput
from state_core.kernels.skip import BIGDEC, BIGINT
from state_core.serializers.framework.base import TypeSerializer, to_int32
from state_core.serializers.framework.columns import Cursor
from state_core.serializers.framework.snapshots import simple_snapshot

__all__ = ["BigDecimalSerializer", "BigIntegerSerializer"]

BASE = "org.apache.flink.api.common.typeutils.base."
MAX_DIGITS = 38
CONSTANTS = {1: 0, 2: 1, 3: 10}
TAGS = {number: tag for tag, number in CONSTANTS.items()}
FIRST_LENGTH = 4
MAX_SHOWN_EXPONENT = -6


class BigIntegerSerializer(TypeSerializer):
    """`BigInteger`: i32 0 for null, 1 to 3 for constants, or its bytes' count + 4 and the bytes."""

    name = "BigInteger"
    min_length = 4
    arrow_type = pa.decimal128(MAX_DIGITS, 0)

    def read(self, source: DataInput) -> Decimal | None:
        """Read one number, however large."""
        number = read_big_integer(source)
        return None if number is None else Decimal(number)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one number, or None."""
        if value is not None and (isinstance(value, float) or value != int(value)):
            raise EncodeError(f"{value!r} is no BigInteger")
        write_big_integer(None if value is None else int(value), out)

    def skip_program(self) -> tuple[int, ...]:
        """Return the program that walks a number."""
        return (BIGINT,)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read numbers of up to 38 digits; others are null and inexact."""
        found = decode_exactly(self, cursor)
        for row, number in enumerate(found):
            if number is not None and abs(number) >= 10**MAX_DIGITS:
                found[row] = None
                cursor.inexact[row] = 1
        return pa.array(found, self.arrow_type)

    def hash_code(self, value: Any) -> int:
        """Return `31 * h + word` over the magnitude's 32-bit words, times the sign."""
        number = abs(int(value))
        code = 0
        for shift in range((number.bit_length() + 31) // 32 * 32 - 32, -1, -32):
            code = (31 * code + (number >> shift & 0xFFFFFFFF)) & 0xFFFFFFFF
        return to_int32(code if value >= 0 else -code)


class BigDecimalSerializer(TypeSerializer):
    """`BigDecimal`: its unscaled `BigInteger`, then an i32 scale unless it is null."""

    name = "BigDecimal"
    min_length = 4
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str | None:
        """Read one number, as text."""
        unscaled = read_big_integer(source)
        return None if unscaled is None else _decimal_text(unscaled, source.read_int())

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one number, or None."""
        if value is None:
            write_big_integer(None, out)
            return
        unscaled, scale = _parse(str(value))
        write_big_integer(unscaled, out)
        out.write_int(scale)

    def skip_program(self) -> tuple[int, ...]:
        """Return the program that walks a number and its scale."""
        return (BIGDEC,)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read numbers as text."""
        return pa.array(decode_exactly(self, cursor), self.arrow_type)

    def hash_code(self, value: Any) -> int:
        """Return `31 * hash(unscaled) + scale`; small unscaled values hash as longs do."""
        unscaled, scale = _parse(str(value))
        if -(1 << 63) < unscaled < 1 << 63:
            magnitude = abs(unscaled)
            code = to_int32((magnitude >> 32) * 31 + (magnitude & 0xFFFFFFFF))
            return to_int32(31 * (code if unscaled >= 0 else -code) + scale)
        return to_int32(31 * BigIntegerSerializer().hash_code(unscaled) + scale)


def decode_exactly(serializer: TypeSerializer, cursor: Cursor) -> list[Any]:
    """Read value by value, and mark rows inexact that would be written as other bytes."""
    found: list[Any] = [None] * cursor.rows
    for row in range(cursor.rows):
        if cursor.present.size and not cursor.present[row]:
            continue
        start, end = int(cursor.position[row]), int(cursor.end[row])
        source = DataInput(cursor.data[start:end].tobytes(), cursor.place(start))
        found[row] = serializer.read(source)
        out = DataOutput()
        serializer.write(found[row], out)
        if out.to_bytes() != bytes(source.data[: source.position]):
            cursor.inexact[row] = 1
        cursor.position[row] = start + source.position
    return found


def read_big_integer(source: DataInput) -> int | None:
    """Read one `BigInteger` (`BigIntSerializer.readBigInteger`)."""
    tag = source.read_int()
    if tag == 0:
        return None
    if tag in CONSTANTS:
        return CONSTANTS[tag]
    if tag <= FIRST_LENGTH:
        raise source.fault(f"a BigInteger of length {tag - FIRST_LENGTH}")
    return int.from_bytes(source.read_bytes(tag - FIRST_LENGTH), "big", signed=True)


def write_big_integer(number: int | None, out: DataOutput) -> None:
    """Write one `BigInteger`, in the shorter form where there are two."""
    if number is None:
        out.write_int(0)
    elif number in TAGS:
        out.write_int(TAGS[number])
    else:
        size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
        out.write_int(size + FIRST_LENGTH)
        out.write_bytes(number.to_bytes(size, "big", signed=True))


def _decimal_text(unscaled: int, scale: int) -> str:
    """Return the text that `BigDecimal.toString` gives."""
    digits, sign = str(abs(unscaled)), "-" if unscaled < 0 else ""
    if scale == 0:
        return sign + digits
    adjusted = len(digits) - 1 - scale
    if scale > 0 and adjusted >= MAX_SHOWN_EXPONENT:
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    exponent = f"E{adjusted:+d}" if adjusted else ""
    return f"{sign}{digits[0]}{fraction}{exponent}"


def _parse(text: str) -> tuple[int, int]:
    """Return unscaled value and scale, as `new BigDecimal(text)` has them."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise EncodeError(f"{text!r} is no BigDecimal") from error
    if not isinstance(exponent, int) or not -(1 << 31) < -exponent < 1 << 31:
        raise EncodeError(f"{text!r} is no BigDecimal")
    unscaled = int("".join(map(str, digits)) or "0")
    return (-unscaled if sign else unscaled), -exponent


simple_snapshot(f"{BASE}BigIntSerializer$BigIntSerializerSnapshot", BigIntegerSerializer)
simple_snapshot(f"{BASE}BigDecSerializer$BigDecSerializerSnapshot", BigDecimalSerializer)
