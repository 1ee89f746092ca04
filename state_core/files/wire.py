"""Java's `DataInput` and `DataOutput`, bounds-checked: the primitives below every format here.

All numbers are big-endian two's complement. `read_utf` is `DataInput.readUTF` (an unsigned 16-bit
byte length, then modified UTF-8); `read_string` is Flink's own `StringValue` encoding
(`org.apache.flink.types.StringValue`), the one used in state. A length is checked against the bytes
that are left before anything is allocated.

Python strings stand for Java's UTF-16: a lone surrogate stays a lone surrogate.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from statelake.state_core.bounds import EMPTY_ELEMENTS, MEMBERS, THINGS, Bound, Budget
from statelake.state_core.errors import (
    CorruptSnapshotError,
    EncodeError,
    TruncatedError,
    UnsupportedFormatError,
)
from statelake.state_core.printable import is_text

_SHORT = struct.Struct(">h")
_CHAR = struct.Struct(">H")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")

MAX_UTF_BYTES = 0xFFFF
FEW_UNITS = 64
_REMEDY = "the file is damaged or was not copied whole: fetch it again"


class DataInput:
    """A reader of Java primitives from bytes, whose errors name the offset.

    Args:
        data: The bytes.
        source: Their origin, for messages (a file name, a state's name).
        base: The offset of `data[0]` in that source, added to every offset in messages.

    Attributes:
        position: The offset of the next byte in `data`.
        has_more: Whether a value was read that holds more than its column: one of a subclass.
        nesting: The depth of a recursive format's reader, so that it can be bounded.
        unknown: Reads the payload of a serializer snapshot of an unknown class, given the class,
            the version and this input; None if nothing can.
        budget: The rest of what the snapshot may declare; None for values, which declare nothing
            beyond their bytes.
    """

    __slots__ = (
        "base", "budget", "data", "has_more", "limit", "nesting", "position", "source", "unknown",
    )  # fmt: skip

    def __init__(
        self,
        data: bytes | memoryview,
        source: str = "bytes",
        base: int = 0,
        budget: Budget | None = None,
    ) -> None:
        self.data = memoryview(data)
        self.source = source
        self.base = base
        self.position = 0
        self.nesting = 0
        self.has_more = False
        self.unknown: Callable[[str, int, DataInput], Any] | None = None
        self.budget = budget
        self.limit = len(self.data)

    @property
    def remaining(self) -> int:
        """Return the number of bytes left."""
        return self.limit - self.position

    @property
    def place(self) -> str:
        """Position of the next byte, for messages."""
        return f"{self.source}, offset {self.base + self.position}"

    def fault(self, problem: str, *, remedy: str = _REMEDY) -> CorruptSnapshotError:
        """Return the error for content that makes no sense."""
        return CorruptSnapshotError(problem, place=self.place, remedy=remedy)

    def _advance(self, count: int) -> int:
        start = self.position
        if count > self.limit - start:
            raise TruncatedError(
                f"{count} bytes wanted, {self.limit - start} left", place=self.place, remedy=_REMEDY
            )
        self.position = start + count
        return start

    def read_byte(self) -> int:
        """Read a signed byte."""
        value = self.data[self._advance(1)]
        return value - 256 if value > 127 else value

    def read_unsigned_byte(self) -> int:
        """Read a byte as 0..255."""
        return self.data[self._advance(1)]

    def read_boolean(self) -> bool:
        """Read one byte; as in Java, anything but 0 is true."""
        return self.data[self._advance(1)] != 0

    def read_short(self) -> int:
        """Read a signed 16-bit number."""
        return int(_SHORT.unpack_from(self.data, self._advance(2))[0])

    def read_char(self) -> int:
        """Read a UTF-16 code unit."""
        return int(_CHAR.unpack_from(self.data, self._advance(2))[0])

    def read_int(self) -> int:
        """Read a signed 32-bit number."""
        return int(_INT.unpack_from(self.data, self._advance(4))[0])

    def read_long(self) -> int:
        """Read a signed 64-bit number."""
        return int(_LONG.unpack_from(self.data, self._advance(8))[0])

    def read_longs(self, count: int) -> tuple[int, ...]:
        """Read `count` 64-bit numbers."""
        return struct.unpack_from(f">{count}q", self.data, self._advance(8 * count))

    def read_float(self) -> float:
        """Read an IEEE-754 single."""
        return float(_FLOAT.unpack_from(self.data, self._advance(4))[0])

    def read_double(self) -> float:
        """Read an IEEE-754 double."""
        return float(_DOUBLE.unpack_from(self.data, self._advance(8))[0])

    def read_bytes(self, count: int) -> bytes:
        """Read `count` bytes."""
        if count < 0:
            raise self.fault(f"a length of {count}")
        start = self._advance(count)
        return bytes(self.data[start : start + count])

    def read_rest(self) -> bytes:
        """Read all bytes that are left."""
        return self.read_bytes(self.remaining)

    def read_length(self, what: str, bytes_each: int = 1) -> int:
        """Read a 32-bit count of bytes, or of numbers, which declare nothing else.

        Raises:
            CorruptSnapshotError: The length is negative.
            TruncatedError: Fewer bytes are left.
        """
        return self._fitting(self.read_int(), 4, what, bytes_each)

    def read_count(self, what: str, least_bytes_each: int = 1) -> int:
        """Read a 32-bit count of things that take at least `least_bytes_each` bytes each.

        Raises:
            CorruptSnapshotError: The count is negative.
            TruncatedError: Fewer bytes are left than so many things need.
            OversizedError: The count is too large for things that take no bytes, or the snapshot
                declares too many things.
        """
        count = self._fitting(self.read_int(), 4, what, least_bytes_each)
        self.declare(count)
        return count

    def read_short_count(self, what: str, least_bytes_each: int, bound: Bound) -> int:
        """Read a 16-bit count, with the checks of `read_members`."""
        count = self._fitting(self.read_short(), 2, what, least_bytes_each)
        bound.check(count, self)
        self.declare(count)
        return count

    def read_members(self, what: str, least_bytes_each: int, bound: Bound = MEMBERS) -> int:
        """Read a count as `read_count` does, of the parts of a type.

        Raises:
            OversizedError: No type has so many parts.
        """
        count = self._fitting(self.read_int(), 4, what, least_bytes_each)
        bound.check(count, self)
        self.declare(count)
        return count

    def declare(self, count: int = 1) -> None:
        """Charge things that the snapshot declares to the budget.

        Raises:
            OversizedError: The snapshot declares too many.
        """
        self.spend(THINGS, count)

    def spend(self, bound: Bound, count: int) -> None:
        """Charge a number of things to the budget of a bound.

        Raises:
            OversizedError: The snapshot declares too many.
        """
        if self.budget is not None:
            self.budget.spend(bound, count, self)

    def _fitting(self, count: int, width: int, what: str, least_bytes_each: int) -> int:
        """Return a count of `width` bytes if enough bytes are left for it."""
        if count < 0 or count * least_bytes_each > self.remaining:
            kind = TruncatedError if count > 0 else CorruptSnapshotError
            problem = f"{count} {what} declared, {self.remaining} bytes left"
            raise kind(problem, place=self._before(width), remedy=_REMEDY)
        if least_bytes_each == 0:
            EMPTY_ELEMENTS.check(count, self)
        return count

    def _before(self, count: int) -> str:
        return f"{self.source}, offset {self.base + self.position - count}"

    def read_utf(self) -> str:
        """Read `DataInput.readUTF`: a 16-bit length and modified UTF-8."""
        raw = self.read_bytes(self.read_char())
        try:
            return decode_modified_utf8(raw)
        except ValueError:
            problem, at = "not modified UTF-8 where a name should be", self._before(len(raw) + 2)
            raise CorruptSnapshotError(problem, place=at, remedy=_REMEDY) from None

    def read_varint(self) -> int:
        """Read an unsigned LEB128 number of at most 32 bits."""
        value = shift = 0
        while True:
            byte = self.read_unsigned_byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise self.fault("a variable-length number of more than 5 bytes")

    def read_string(self) -> str | None:
        """Read Flink's `StringValue`: LEB128 of (length + 1), then LEB128 UTF-16 code units."""
        length = self.read_varint()
        if length == 0:
            return None
        if length - 1 > self.remaining:
            raise self.fault(f"a string of {length - 1} characters, {self.remaining} bytes left")
        run = bytes(self.data[self.position : self.position + length - 1])
        if run.isascii():
            self.position += len(run)
            return run.decode("ascii")
        units = self._read_units(length - 1)
        if max(units) > 0xFFFF:
            raise self.fault("a character above U+FFFF in a string of UTF-16 code units")
        raw = np.array(units, "<u2").tobytes()
        return raw.decode("utf-16-le", "surrogatepass")

    def _read_units(self, count: int) -> list[int] | npt.NDArray[np.int64]:
        """Read `count` LEB128 numbers, many at once."""
        start = self.position
        data = np.frombuffer(self.data[start : min(self.limit, start + 5 * count)], np.uint8)
        most = count if count > FEW_UNITS else 0
        ends: npt.NDArray[np.int64] = np.flatnonzero(data < 0x80)[:most].astype(np.int64)
        starts: npt.NDArray[np.int64] = np.zeros(len(ends), np.int64)
        starts[1:] = ends[:-1] + 1
        if len(ends) < count or (ends - starts).max() > 4:
            return [self.read_varint() for _ in range(count)]  # reports the fault
        units = np.zeros(count, np.int64)
        for step in range(int((ends - starts).max()) + 1):
            rows = np.flatnonzero(ends - starts >= step)
            units[rows] |= (data[starts[rows] + step].astype(np.int64) & 0x7F) << 7 * step
        self.position = start + int(ends[-1]) + 1
        return units


class DataOutput:
    """A writer of Java primitives into a growing buffer."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray()

    def __len__(self) -> int:
        return len(self.buffer)

    def to_bytes(self) -> bytes:
        """Return the bytes written so far."""
        return bytes(self.buffer)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Write bytes as they are."""
        self.buffer += data

    def write_sized(self, data: bytes | memoryview) -> None:
        """Write a 32-bit length, and as many bytes."""
        self.write_int(len(data))
        self.write_bytes(data)

    def write_byte(self, value: int) -> None:
        """Write one byte, signed or not."""
        self.buffer.append(value & 0xFF)

    def write_boolean(self, value: bool) -> None:
        """Write one byte, 0 or 1."""
        self.buffer.append(1 if value else 0)

    def write_short(self, value: int) -> None:
        """Write a signed 16-bit number."""
        self.buffer += _SHORT.pack(value)

    def write_char(self, value: int) -> None:
        """Write a UTF-16 code unit."""
        self.buffer += _CHAR.pack(value)

    def write_int(self, value: int) -> None:
        """Write a signed 32-bit number."""
        self.buffer += _INT.pack(value)

    def write_long(self, value: int) -> None:
        """Write a signed 64-bit number."""
        self.buffer += _LONG.pack(value)

    def write_float(self, value: float) -> None:
        """Write an IEEE-754 single."""
        self.buffer += _FLOAT.pack(value)

    def write_double(self, value: float) -> None:
        """Write an IEEE-754 double."""
        self.buffer += _DOUBLE.pack(value)

    def write_utf(self, text: str) -> None:
        """Write text as `DataOutput.writeUTF` does.

        Raises:
            EncodeError: It takes more than 65,535 bytes, the format's limit.
        """
        raw = encode_modified_utf8(text)
        if len(raw) > MAX_UTF_BYTES:
            raise EncodeError(
                f"a name of {len(raw)} bytes, and Flink's format holds at most {MAX_UTF_BYTES}",
                remedy="shorten it",
            )
        self.write_char(len(raw))
        self.buffer += raw

    def write_varint(self, value: int) -> None:
        """Write an unsigned LEB128 number."""
        while value >= 0x80:
            self.buffer.append(value & 0x7F | 0x80)
            value >>= 7
        self.buffer.append(value)

    def write_string(self, text: str | None) -> None:
        """Write text as Flink's `StringValue`."""
        if text is None:
            self.buffer.append(0)
            return
        raw = text.encode("utf-16-le", "surrogatepass")
        units = struct.unpack(f"<{len(raw) // 2}H", raw)
        self.write_varint(len(units) + 1)
        for unit in units:
            self.write_varint(unit)


def check_names(names: Iterable[str], what: str) -> None:
    """Refuse names that columns can't have.

    Args:
        names: The names.
        what: The kind of thing, for messages.

    Raises:
        UnsupportedFormatError: A name is not valid text: it has half a surrogate pair.
        CorruptSnapshotError: A name occurs twice.
    """
    known: set[str] = set()
    for name in names:
        if not is_text(name):
            raise UnsupportedFormatError(
                f"{what} is called {name!r}, in which half a surrogate pair is no text",
                remedy="give it another name in the job, and take a new savepoint",
            )
        if name in known:
            raise CorruptSnapshotError(f"{what} {name!r} a second time", remedy=_REMEDY)
        known.add(name)


def decode_modified_utf8(raw: bytes) -> str:
    """Decode Java's modified UTF-8: U+0000 as C0 80, supplementary characters as two surrogates.

    Raises:
        ValueError: The bytes are not modified UTF-8.
    """
    if raw.isascii():
        return raw.decode("ascii")
    if any(byte >= 0xF0 for byte in raw):
        raise ValueError("four-byte sequences do not occur in modified UTF-8")
    text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encode_modified_utf8(text: str) -> bytes:
    """Encode text as Java's modified UTF-8."""
    if text.isascii():
        return text.encode("ascii").replace(b"\0", b"\xc0\x80")
    units = text.encode("utf-16-le", "surrogatepass")
    chars = (chr(units[i] | units[i + 1] << 8) for i in range(0, len(units), 2))
    return "".join(chars).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
