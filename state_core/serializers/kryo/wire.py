"""Numbers and text of Kryo: 2.24 in Flink 1, 5.6 in Flink 2.

Variable-length numbers and text have one form in both; fixed ones are big-endian in 2.24 and
little-endian in 5.6.

Source: `com.esotericsoftware.kryo.io.Input` and `Output`.
"""

from __future__ import annotations

import enum
import re
import struct

from statelake.state_core.files.wire import DataInput, DataOutput

LAST = 0x80  # in the last character of ASCII text; in a first byte: a length in characters follows
MORE = 0x40
_LAST_CHARACTER = re.compile(rb"[\x80-\xff]")
# the longest text that is written as ASCII, without a length
LONGEST_ASCII = {1: 63, 2: 32}


class KryoVersion(enum.IntEnum):
    """The version of Kryo, by the version of Flink."""

    FLINK_1 = 1  # Kryo 2.24
    FLINK_2 = 2  # Kryo 5.6

    @property
    def order(self) -> str:
        """The byte order of fixed numbers, for `struct`."""
        return ">" if self is KryoVersion.FLINK_1 else "<"


class KryoInput:
    """A reader of Kryo's numbers and text.

    Args:
        source: The bytes.
        version: The Kryo that wrote the bytes.
    """

    def __init__(self, source: DataInput, version: KryoVersion) -> None:
        self.source = source
        self.version = version

    def fixed(self, form: str) -> int | float:
        """Read a number of fixed length, by its `struct` format character."""
        form = self.version.order + form
        value: int | float = struct.unpack(form, self.source.read_bytes(struct.calcsize(form)))[0]
        return value

    def boolean(self) -> bool:
        """Read one byte; other than in Java's own streams, anything but 1 is false."""
        return self.source.read_byte() == 1

    def varint(self) -> int:
        """Read a 32-bit number that is rarely negative, as unsigned."""
        source = self.source
        at = source.position
        if at < source.limit and source.data[at] < LAST:  # most are of one byte
            source.position = at + 1
            return source.data[at]
        value = self._unsigned(5)
        if value >> 32:
            raise self.source.fault("a variable-length number of more than 32 bits")
        return value

    def zigzag(self, bits: int) -> int:
        """Read a signed number of 32 or 64 bits; small ones of either sign are short."""
        value = self.varint() if bits == 32 else self._unsigned(9)
        return value >> 1 ^ -(value & 1)

    def varlong(self) -> int:
        """Read a signed 64-bit number that is rarely negative."""
        value = self._unsigned(9)
        return value - (1 << 64) if value >> 63 else value

    def signed_varint(self) -> int:
        """Read a signed 32-bit number that is rarely negative."""
        value = self.varint()
        return value - (1 << 32) if value >> 31 else value

    def _unsigned(self, most: int) -> int:
        source, value = self.source, 0
        data, at = source.data, source.position
        for index in range(min(most, source.remaining)):
            byte = data[at + index]
            if index == 8 or byte < LAST:  # the ninth byte has eight bits
                source.position = at + index + 1
                return value | byte << 7 * index
            value |= (byte & 0x7F) << 7 * index
        if source.remaining < most:
            source.read_bytes(source.remaining + 1)
        raise self.source.fault(f"a variable-length number of more than {most} bytes")

    def flagged(self) -> tuple[bool, int]:
        """Read a flag and a 32-bit number."""
        first = self.source.read_unsigned_byte()
        value = first & 0x3F
        if first & MORE:
            for shift in (6, 13, 20, 27):
                byte = self.source.read_unsigned_byte()
                value |= (byte & 0x7F) << shift
                if byte < LAST:
                    break
        return bool(first & LAST), value & 0xFFFFFFFF

    def string(self) -> str | None:
        """Read text."""
        source = self.source
        if source.remaining and source.data[source.position] & LAST:
            _, length = self.flagged()
            if length == 0:
                return None
            return self._characters(length - 1)
        end = _LAST_CHARACTER.search(source.data, source.position, source.limit)
        size = source.remaining + 1 if end is None else end.end() - source.position
        text = bytearray(source.read_bytes(size))
        text[-1] &= 0x7F
        return text.decode("ascii")

    def _characters(self, count: int) -> str:
        """Read `count` UTF-16 code units, each in its own UTF-8."""
        source = self.source
        if count > source.remaining:
            raise source.fault(f"a string of {count} characters, {source.remaining} bytes left")
        run = bytes(source.data[source.position : source.position + count])
        if run.isascii():
            source.position += count
            return run.decode("ascii")
        units = []
        for _ in range(count):
            byte = source.read_unsigned_byte()
            if byte >= 0xE0:
                byte = (byte & 0x0F) << 12 | self._six() << 6 | self._six()
            elif byte >= 0xC0:
                byte = (byte & 0x1F) << 6 | self._six()
            elif byte >= LAST:
                raise source.fault("a byte that begins no character")
            units.append(byte)
        return struct.pack(f"<{count}H", *units).decode("utf-16-le", "surrogatepass")

    def _six(self) -> int:
        byte = self.source.read_unsigned_byte()
        if byte & 0xC0 != LAST:
            raise self.source.fault("a byte that goes on with no character")
        return byte & 0x3F

    def length(self, what: str, count: int | None = None) -> int:
        """Return a count of things of at least a byte each, read here or before.

        Raises:
            CorruptSnapshotError: Fewer bytes are left.
        """
        count = self.varint() if count is None else count
        if count > self.source.remaining:
            left = f"{count} {what} declared, {self.source.remaining} bytes left"
            raise self.source.fault(left)
        return count


class KryoOutput:
    """A writer of Kryo's numbers and text."""

    def __init__(self, version: KryoVersion) -> None:
        self.version = version
        self.out = DataOutput()

    def fixed(self, form: str, value: float) -> None:
        """Write a number of fixed length."""
        self.out.write_bytes(struct.pack(self.version.order + form, value))

    def varint(self, value: int) -> None:
        """Write a 32-bit number that is rarely negative."""
        self._unsigned(value & 0xFFFFFFFF)

    def zigzag(self, value: int, bits: int) -> None:
        """Write a signed number."""
        self._unsigned((value << 1 ^ value >> bits - 1) & (1 << bits) - 1)

    def varlong(self, value: int) -> None:
        """Write a signed 64-bit number that is rarely negative."""
        self._unsigned(value & (1 << 64) - 1)

    def _unsigned(self, value: int) -> None:
        for _ in range(8):
            if value < LAST:
                break
            self.out.write_byte(value & 0x7F | LAST)
            value >>= 7
        self.out.write_byte(value)

    def flagged(self, flag: bool, value: int) -> None:
        """Write a flag and a number."""
        first = value & 0x3F | (LAST if flag else 0)
        value >>= 6
        if not value:
            self.out.write_byte(first)
            return
        self.out.write_byte(first | MORE)
        self._unsigned(value)

    def string(self, text: str | None, *, plain: bool = True, always: bool = False) -> None:
        """Write text.

        Args:
            text: The text.
            plain: Whether short ASCII is written without a length.
            always: Whether long ASCII is written without a length, too.
        """
        if text is None:
            self.out.write_byte(LAST)
            return
        raw = text.encode("utf-16-le", "surrogatepass")
        count = len(raw) // 2
        short = always or count <= LONGEST_ASCII[self.version]
        if plain and short and count > 1 and text.isascii():
            data = bytearray(text.encode("ascii"))
            data[-1] |= LAST
            self.out.write_bytes(bytes(data))
            return
        self.flagged(True, count + 1)
        if text.isascii():
            self.out.write_bytes(text.encode("ascii"))
            return
        units = "".join(map(chr, struct.unpack(f"<{count}H", raw)))
        self.out.write_bytes(units.encode("utf-8", "surrogatepass"))
