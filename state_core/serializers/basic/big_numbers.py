"""`BigInteger` and `BigDecimal`: numbers of any size.

A `BigInteger` is a decimal of 38 digits, the most that Spark has; a larger one keeps its exact
bytes beside a null. Every `BigDecimal` has its own scale, and 1.0 is not 1.00: its column is the
text of `BigDecimal.toString`, which is converted back to the same number; SQL casts it. A number of
more than `BIG_NUMBER_BYTES` is a null with its bytes beside it: converting a number to text takes
time quadratic in its length.

Java distinguishes the constants 0, 1 and 10 from equal numbers, and writes them shorter: of the two
forms the longer one keeps its exact bytes.

Source: `BigIntSerializer`, `BigDecSerializer` in `org.apache.flink.api.common.typeutils.base`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from statelake.state_core.bounds import BIG_NUMBER_BYTES
from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, to_int32
from statelake.state_core.serializers.framework.columns import Cursor
from statelake.state_core.serializers.framework.layouts import BIG_DECIMAL, BIG_INTEGER
from statelake.state_core.serializers.framework.snapshots import simple_snapshot

BASE = "org.apache.flink.api.common.typeutils.base."
MAX_DIGITS = 38
LARGEST = 10**MAX_DIGITS
CONSTANTS = {1: 0, 2: 1, 3: 10}
TAGS = {number: tag for tag, number in CONSTANTS.items()}
FIRST_LENGTH = 4
MOST_DIGITS = BIG_NUMBER_BYTES.most * 5 // 2
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


class BigIntegerSerializer(TypeSerializer):
    """`BigInteger`: i32 0 for null, 1 to 3 for constants, or its bytes' count + 4 and the bytes."""

    name = "BigInteger"
    arrow_type = pa.decimal128(MAX_DIGITS, 0)
    byte_layout = BIG_INTEGER

    def read(self, source: DataInput) -> Decimal | None:
        """Read one number; None also for a number with too many bytes."""
        number = read_big_integer(source)
        return None if number is None or _is_oversized(number) else Decimal(number)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one number, or None."""
        if isinstance(value, Decimal):
            _check_digits(value)
        if value is not None and (isinstance(value, float) or value != int(value)):
            raise EncodeError(f"{value!r} is no BigInteger")
        write_big_integer(None if value is None else int(value), out)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read numbers of up to 38 digits; others are null and inexact."""

        def read(source: DataInput) -> Decimal | None:
            number = read_big_integer(source)
            fits = number is not None and number.bit_length() < 128 and abs(number) < LARGEST
            return Decimal(number) if number is not None and fits else None

        return pa.array(_decode_numbers(cursor, read), self.arrow_type)

    def hash_code(self, value: Any) -> int:
        """Return `31 * h + word` over the magnitude's 32-bit words, times the sign."""
        return _integer_hash(int(value))

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next number, however large."""
        number = read_big_integer(source)
        return 0 if number is None else _integer_hash(number)


class BigDecimalSerializer(TypeSerializer):
    """`BigDecimal`: its unscaled `BigInteger`, then an i32 scale unless it is null."""

    name = "BigDecimal"
    arrow_type = pa.string()
    byte_layout = BIG_DECIMAL

    def read(self, source: DataInput) -> str | None:
        """Read one number, as text; None also for a number with too many bytes."""
        unscaled = read_big_integer(source)
        if unscaled is None:
            return None
        scale = source.read_int()
        return None if _is_oversized(unscaled) else _decimal_text(unscaled, scale)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one number, or None."""
        if value is None:
            write_big_integer(None, out)
            return
        unscaled, scale = _parse(str(value))
        write_big_integer(unscaled, out)
        out.write_int(scale)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read numbers as text."""
        return pa.array(_decode_numbers(cursor, self.read), self.arrow_type)

    def hash_code(self, value: Any) -> int:
        """Return `31 * hash(unscaled) + scale`; small unscaled values hash as longs do."""
        return decimal_hash(*_parse(str(value)))

    def hash_code_at(self, source: DataInput) -> int:
        """Return the hash code of the next number, however large."""
        unscaled = read_big_integer(source)
        return 0 if unscaled is None else decimal_hash(unscaled, source.read_int())


def _integer_hash(number: int) -> int:
    magnitude = abs(number)
    size = (magnitude.bit_length() + 31) // 32
    code = 0
    for word in struct.unpack(f">{size}I", magnitude.to_bytes(4 * size, "big")):
        code = (31 * code + word) & 0xFFFFFFFF
    return to_int32(code if number >= 0 else -code)


def decimal_hash(unscaled: int, scale: int) -> int:
    """Return `BigDecimal.hashCode`: `31 * hash(unscaled) + scale`."""
    if -(1 << 63) < unscaled < 1 << 63:
        magnitude = abs(unscaled)
        code = to_int32((magnitude >> 32) * 31 + (magnitude & 0xFFFFFFFF))
        return to_int32(31 * (code if unscaled >= 0 else -code) + scale)
    return to_int32(31 * _integer_hash(unscaled) + scale)


def _is_oversized(number: int) -> bool:
    return number.bit_length() > 8 * BIG_NUMBER_BYTES.most


def _check_digits(number: Decimal) -> None:
    """Refuse a number whose bytes would take too long to find.

    Raises:
        EncodeError: The number has too many digits.
    """
    if number.is_finite() and number.adjusted() >= MOST_DIGITS:
        raise EncodeError(
            f"a number of {number.adjusted() + 1} digits, and at most {MOST_DIGITS} are written",
            remedy="give its exact bytes instead",
        )


def _decode_numbers(cursor: Cursor, read: Callable[[DataInput], Any]) -> list[Any]:
    """Read value by value; a row that should not be null, or has another form, is inexact."""
    numbers: list[Any] = [None] * cursor.rows
    for row in range(cursor.rows):
        if cursor.present.size and not cursor.present[row]:
            continue
        start, end = int(cursor.position[row]), int(cursor.end[row])
        source = DataInput(cursor.data.data[start:end], cursor.place(start))
        numbers[row] = read(source)
        cursor.position[row] = start + source.position
        source.position = 0
        number, size = read_big_integer(source), source.position
        out = DataOutput()
        write_big_integer(number, out)
        if out.buffer != source.data[:size] or (numbers[row] is None and number is not None):
            cursor.inexact[row] = 1
    return numbers


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
    """Write one `BigInteger`, in the shorter form if there are two."""
    if number is None:
        out.write_int(0)
    elif number in TAGS:
        out.write_int(TAGS[number])
    else:
        size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
        out.write_int(size + FIRST_LENGTH)
        out.write_bytes(number.to_bytes(size, "big", signed=True))


def _decimal_text(unscaled: int, scale: int) -> str:
    """Return the text of `BigDecimal.toString`, which is the same in Python."""
    return str(Decimal(unscaled).scaleb(-scale, _EXACT))


def _parse(text: str) -> tuple[int, int]:
    """Return unscaled value and scale, as in `new BigDecimal(text)`."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise EncodeError(f"{text!r} is no BigDecimal") from error
    if not isinstance(exponent, int) or not -(1 << 31) <= -exponent < 1 << 31:
        raise EncodeError(f"{text!r} is no BigDecimal")
    _check_digits(Decimal((0, digits, 0)))
    return int(Decimal((sign, digits, 0))), -exponent


simple_snapshot(f"{BASE}BigIntSerializer$BigIntSerializerSnapshot", BigIntegerSerializer)
simple_snapshot(f"{BASE}BigDecSerializer$BigDecSerializerSnapshot", BigDecimalSerializer)
