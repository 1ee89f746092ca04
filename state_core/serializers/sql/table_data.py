"""Flink SQL's strings, decimals and raw values, each by itself in state.

Source: `StringDataSerializer`, `DecimalDataSerializer` and `RawValueDataSerializer` in
`org.apache.flink.table.runtime.typeutils`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from typing_extensions import Self

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.kernels import binary_rows, binary_values, encode
from statelake.state_core.kernels import binary_rows_encode as writing
from statelake.state_core.kernels.binary_rows import ABSENT, VALUE
from statelake.state_core.serializers.basic.big_numbers import decimal_hash
from statelake.state_core.serializers.basic.text import ByteArraySerializer, SizedSerializer
from statelake.state_core.serializers.framework.base import (
    VARIABLE,
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    require_values,
)
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.layouts import ByteLayout, fixed, sized
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import composite_snapshot, simple_snapshot
from statelake.state_core.serializers.sql.binary.columns import (
    decimal_column,
    decimal_words,
    fixed_column,
    string_column,
    write_states,
)

TYPEUTILS = "org.apache.flink.table.runtime.typeutils."
LONG_DIGITS = 18
MAX_DIGITS = 38
# the widest decimal, with room to detect larger ones
_EXACT = Context(prec=60)


def locate_sized(cursor: Cursor, what: str) -> tuple[I64Array, I64Array]:
    """Return the bounds of bytes behind an i32 length; the cursor moves behind them."""
    starts, ends = np.empty(cursor.rows, np.int64), np.empty(cursor.rows, np.int64)
    failed = binary_rows.locate_sized(
        cursor.data, cursor.position, cursor.end, cursor.present, starts, ends
    )
    cursor.check(failed, what)
    return starts, ends


def presence(cursor: Cursor) -> U8Array:
    """Return for each row whether it is read: a value, or absent."""
    if cursor.present.size == 0:
        return np.full(cursor.rows, VALUE, np.uint8)
    return np.where(cursor.present == 0, ABSENT, VALUE).astype(np.uint8)


def bytes_hash_codes(data: U8Array, starts: I64Array, ends: I64Array) -> I32Array:
    """Return `BinarySection.hashCode` of each range: murmur over its bytes."""
    codes = np.empty(len(starts), np.int32)
    writing.hash_sections(data, starts, ends, codes)
    return codes


class StringDataSerializer(SizedSerializer):
    """`StringData`: an i32 length and UTF-8.

    Invalid UTF-8 becomes U+FFFD in the column, and the exact bytes are kept beside it.
    """

    name = "StringData"
    arrow_type = pa.string()

    def read(self, source: DataInput) -> str:
        """Read one string."""
        return source.read_bytes(source.read_length("bytes")).decode("utf-8", "replace")

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one string."""
        try:
            data = value.encode("utf-8")
        except (AttributeError, UnicodeEncodeError):
            raise EncodeError(f"{value!r} is no StringData") from None
        out.write_sized(data)

    def hash_code(self, value: Any) -> int:
        """Return murmur over the UTF-8."""
        data = np.frombuffer(value.encode("utf-8"), np.uint8)
        return int(bytes_hash_codes(data, np.zeros(1, np.int64), np.array([len(data)]))[0])

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read UTF-8 as it is."""
        starts, ends = locate_sized(cursor, "a StringData")
        return string_column(cursor.data, starts, ends, presence(cursor), cursor.inexact)


class DecimalDataSerializer(TypeSerializer):
    """`DecimalData`: the unscaled value, as i64 up to 18 digits, else i32 length and bytes."""

    name = named("DecimalData({precision}, {scale})")

    def __init__(self, precision: int, scale: int) -> None:
        self.precision = precision
        self.scale = scale
        self.small = precision <= LONG_DIGITS
        self.arrow_type = pa.decimal128(precision, scale)

    @property
    def wire_length(self) -> int:
        """Eight bytes up to 18 digits, though `getLength()` says otherwise."""
        return 8 if self.small else VARIABLE

    @property
    def byte_layout(self) -> ByteLayout:
        """An i64, or a length and that many bytes, of which there is one."""
        return fixed(8) if self.small else sized(least=1)

    def read(self, source: DataInput) -> Decimal | None:
        """Read one decimal; None if it has more digits than the type."""
        if self.small:
            unscaled = source.read_long()
        else:
            data = source.read_bytes(source.read_length("bytes"))
            if not data:
                raise source.fault("a DECIMAL of no bytes")
            unscaled = int.from_bytes(data, "big", signed=True)
        if abs(unscaled) >= 10**self.precision:
            return None
        return Decimal(unscaled).scaleb(-self.scale, _EXACT)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one decimal."""
        unscaled = self._unscaled(value)
        if self.small:
            out.write_long(unscaled)
            return
        data = unscaled.to_bytes(
            (unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True
        )
        out.write_sized(data)

    def _unscaled(self, value: Any) -> int:
        try:
            moved = Decimal(value).scaleb(self.scale, _EXACT)
            unscaled = int(moved)
        except (InvalidOperation, OverflowError, TypeError, ValueError):
            raise EncodeError(f"{value!r} is no {self.name}") from None
        if unscaled != moved or abs(unscaled) >= 10**self.precision:
            raise EncodeError(f"{value!r} does not fit {self.name}")
        return unscaled

    def hash_code(self, value: Any) -> int:
        """Return `BigDecimal.hashCode`: `31 * hash(unscaled) + scale`."""
        return decimal_hash(self._unscaled(value), self.scale)

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read decimals of 128 bits; null for more digits than the type has."""
        state = presence(cursor)
        if not self.small:
            starts, ends = locate_sized(cursor, f"a {self.name}")
            column, failed = decimal_column(
                self.arrow_type, cursor.data, starts, ends, state, cursor.inexact
            )
            cursor.check(failed, f"a {self.name}")
            return column
        words = np.empty(2 * cursor.rows, np.uint64)
        limit = 10**self.precision
        unscaled = cursor.read_int64(f"a {self.name}")
        binary_values.widen_decimals(unscaled, limit, state, words, cursor.inexact)
        return fixed_column(self.arrow_type, words, state)

    def _lengths(self, values: pa.Array, present: U8Array) -> I64Array:
        lengths = np.empty(len(values), np.int64)
        writing.decimal_lengths(decimal_words(values), write_states(values, present), lengths)
        return lengths

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return eight bytes, or four and those of the number."""
        require_values(values, present, self.name)
        if self.small:
            return fixed_sizes(len(values), 8, present)
        return self._lengths(values, present) + fixed_sizes(len(values), 4, present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the unscaled values."""
        words = decimal_words(values)
        if self.small:
            low = np.ascontiguousarray(words[::2]).view(np.int64)
            encode.write_fixed64(low, target.present, target.out, target.position)
            return
        lengths = self._lengths(values, target.present)
        heads = lengths.astype(np.int32)
        encode.write_fixed32(heads, target.present, target.out, target.position)
        writing.write_decimals(words, lengths, target.position, target.out)
        target.position += lengths


class RawValueDataSerializer(ByteArraySerializer):
    """`RawValueData`: an i32 size and another serializer's bytes, kept as they are."""

    def __init__(self, inner: TypeSerializer) -> None:
        self.inner = inner
        self.name = f"RawValueData<{inner.name}>"


StringDataSerializerSnapshot = simple_snapshot(
    f"{TYPEUTILS}StringDataSerializer$StringDataSerializerSnapshot", StringDataSerializer
)


class NumbersSnapshot(TypeSerializerSnapshot):
    """A snapshot that consists only of numbers, which never change.

    Attributes:
        serializer_of: Returns the serializer for the numbers; mostly its class.
        label: The type in messages, with a place for each number.
        rule: The reason to refuse other numbers.
        numbers: The numbers.
    """

    serializer_of: ClassVar[Callable[..., TypeSerializer]]
    label: ClassVar[str]
    rule: ClassVar[str]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, *numbers: int) -> Self:
        """Return the snapshot of a type with these numbers."""
        snapshot = cls()
        snapshot.numbers = numbers
        return snapshot

    @abstractmethod
    def is_valid(self, *numbers: int) -> bool:
        """Return whether these numbers make a valid type."""

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read the numbers."""
        self.check_version(version, source)
        self.numbers = tuple(source.read_int() for _ in self.numbers)
        if not self.is_valid(*self.numbers):
            raise source.fault(self.label.format(*self.numbers))

    def write_snapshot(self, out: DataOutput) -> None:
        """Write the numbers."""
        for number in self.numbers:
            out.write_int(number)

    def restore_serializer(self) -> TypeSerializer:
        """Return the serializer of the type with these numbers."""
        return type(self).serializer_of(*self.numbers)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return as is for the same numbers, else incompatible."""
        if type(old) is not type(self) or not isinstance(old, NumbersSnapshot):
            return incompatible(old.type_name, self.type_name, "the type is another one")
        if self.numbers == old.numbers:
            return as_is()
        return incompatible(old.type_name, self.type_name, self.rule)


@register
class DecimalDataSerializerSnapshot(NumbersSnapshot):
    """`DecimalDataSerializer$DecimalSerializerSnapshot`: precision and scale."""

    java_class = f"{TYPEUTILS}DecimalDataSerializer$DecimalSerializerSnapshot"
    versions = range(1, 4)
    serializer_of = DecimalDataSerializer
    label = "DECIMAL({}, {})"
    rule = "precision and scale never change"
    numbers = (MAX_DIGITS, 0)

    def is_valid(self, *numbers: int) -> bool:
        """Return whether a DECIMAL has this precision and scale."""
        precision, scale = numbers
        return 0 <= scale <= precision and 1 <= precision <= MAX_DIGITS


RawValueDataSerializerSnapshot = composite_snapshot(
    f"{TYPEUTILS}RawValueDataSerializer$RawValueDataSerializerSnapshot",
    RawValueDataSerializer,
    arity=1,
    outer_versions=range(1),
    delimited=slice(0),
)
