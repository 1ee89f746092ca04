"""Mask values by a secret: equal values become equal, and different values stay different.

A value is permuted within the values of its format, by a Feistel network over exactly as many
numbers as there are such values: a text keeps the places of its letters and digits, a number its
count of digits, a date its year. So different values stay different, and keys stay keys.

A format with few values is easy to guess: one guess in ten of a masked digit is right.
"""

from __future__ import annotations

import hashlib
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import lru_cache
from math import isqrt

import numpy as np

ROUNDS = 8
TEXT_BLOCK, BYTES_BLOCK = 64, 32  # bytes of a block of a long value
HASH_BYTES = 16
# the years 1 to 9999
FIRST_MOMENT, END_OF_TIME = -62_135_596_800_000_000, 253_402_300_800_000_000
EPOCH = date(1970, 1, 1)
PAGE = 64  # characters after ASCII are exchanged within pages of that size
DIGITS, LOWER, UPPER = 10, 26, 26
# texts that programs parse
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_DATE = re.compile(r"(?!0000)\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?", re.ASCII)
# a number stays between two of these, so that it has as many digits, and fits where it was
_CUTS = sorted(
    {0, *(10**digits for digits in range(1, 80)), *(1 << bits for bits in (7, 15, 31, 63))}
)
_TENS = [10**digits for digits in range(80)]
_FLOATS = {16: ("<e", "<H", 10), 32: ("<f", "<I", 23), 64: ("<d", "<Q", 52)}


class Cipher:
    """Masks values by a secret.

    Args:
        secret: The key of the masking; with it, guesses of the original values can be verified.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.sha512(secret).digest()

    def digest(self, value: bytes) -> bytes:
        """Return a digest of 16 bytes."""
        return hashlib.blake2b(value, digest_size=HASH_BYTES, key=self._key).digest()

    def permuted(self, value: int, size: int, tweak: bytes) -> int:
        """Return another number from 0 to `size` - 1; each tweak has a permutation of its own."""
        if size <= 1:
            return value
        lefts = isqrt(size - 1) + 1
        rights = -(-size // lefts)
        # eight bytes more than a half has, so that the remainder is almost uniform
        width = (lefts.bit_length() + 7) // 8 + 8
        begun = hashlib.blake2b(tweak, digest_size=width, key=self._key)
        while True:  # a result out of range is permuted again
            left, right = divmod(value, rights)
            for turn in range(0, ROUNDS, 2):
                state = begun.copy()
                state.update(((right << 8) + turn).to_bytes(width, "little"))
                left = (left + int.from_bytes(state.digest(), "little")) % lefts
                state = begun.copy()
                state.update(((left << 8) + turn + 1).to_bytes(width, "little"))
                right = (right + int.from_bytes(state.digest(), "little")) % rights
            value = left * rights + right
            if value < size:
                return value

    def integer(self, value: int) -> int:
        """Return another integer with the same sign and the same numbers of digits and bytes."""
        negative = value < 0
        number = self._between(-(value + 1) if negative else value, _CUTS, b"whole%d" % negative)
        return -(number + 1) if negative else number

    def unscaled(self, value: int) -> int:
        """Return another unscaled decimal, with the same sign and number of digits; 0 stays."""
        if value == 0:
            return 0
        number = self._between(abs(value), _TENS, b"decimal%d" % (value < 0))
        return -number if value < 0 else number

    def _between(self, value: int, cuts: Sequence[int], tweak: bytes) -> int:
        """Return another number between the same two cuts."""
        at = bisect_right(cuts, value)
        first, behind = cuts[at - 1], cuts[at]
        return first + self.permuted(value - first, behind - first, b"%s %d" % (tweak, at))

    def wrapped(self, value: int, bits: int) -> int:
        """Return any other integer of that number of bits."""
        size = 1 << bits
        number = self.permuted(value % size, size, b"bits %d" % bits)
        return number - size if number >= size >> 1 else number

    def floating(self, value: float, bits: int) -> float:
        """Return another number of that sign and magnitude; 0, NaN and infinity stay."""
        form, number_form, mantissa = _FLOATS[bits]
        if value == 0 or not np.isfinite(value):
            return value
        (number,) = struct.unpack(number_form, struct.pack(form, value))
        head, low = divmod(number, 1 << mantissa)
        low = self.permuted(low, 1 << mantissa, b"float %d %d" % (bits, head))
        (made,) = struct.unpack(form, struct.pack(number_form, (head << mantissa) | low))
        return float(made)

    def moment(self, micros: int) -> int:
        """Return another moment of the same year (UTC), in microseconds since 1970.

        Whole seconds or milliseconds stay whole; a moment before the year 1 or after 9999 is masked
        as a number.
        """
        if not FIRST_MOMENT <= micros < END_OF_TIME:
            while FIRST_MOMENT <= (micros := self.integer(micros)) < END_OF_TIME:
                pass
            return micros
        year = np.datetime64(micros, "us").astype("M8[Y]")
        first, behind = (int((year + ahead).astype("M8[us]").astype(np.int64)) for ahead in (0, 1))
        step = _step(micros)
        at = self._walked(
            (micros - first) // step,
            (behind - first) // step,
            b"moment %d %d" % (step, first),
            lambda at: _step(first + at * step) == step,
        )
        return first + at * step

    def day(self, days: int) -> int:
        """Return another day of the same year, in days since 1970."""
        year = np.datetime64(days, "D").astype("M8[Y]")
        first, behind = (int((year + ahead).astype("M8[D]").astype(np.int64)) for ahead in (0, 1))
        return first + self.permuted(days - first, behind - first, b"day %d" % first)

    def time(self, micros: int) -> int:
        """Return another time of the day, in microseconds, with the same precision."""
        step = _step(micros)
        count = 86_400_000_000 // step
        return step * self._walked(
            micros // step, count, b"time %d" % step, lambda at: _step(at * step) == step
        )

    def octets(self, value: bytes) -> bytes:
        """Return other bytes of the same number."""
        keystream = bytearray()
        before = hashlib.blake2b(digest_size=HASH_BYTES, key=self._key)
        for at in range(0, len(value), BYTES_BLOCK):
            block = value[at : at + BYTES_BLOCK]
            # a block's permutation depends on those before, so that equal blocks are hidden
            tweak = b"octets %d " % len(value) + before.digest()
            before.update(block)
            number = self.permuted(int.from_bytes(block, "big"), 256 ** len(block), tweak)
            keystream += number.to_bytes(len(block), "big")
        return bytes(keystream)

    def text(self, value: str) -> str:
        """Return another text: a digit for each digit, a letter for each letter of the same case.

        Other ASCII characters stay, those beyond ASCII become nearby ones. A UUID becomes a UUID, a
        date one of the same year, a time another time.
        """
        parsed = _parsed(value)
        if parsed is not None:
            return parsed(self)
        while True:
            before = hashlib.blake2b(digest_size=HASH_BYTES, key=self._key)
            blocks = []
            for at in range(0, len(value), TEXT_BLOCK):
                block = value[at : at + TEXT_BLOCK]
                blocks.append(self._text_block(block, before.digest()))
                before.update(block.encode())
            value = "".join(blocks)
            if _parsed(value) is None:
                return value

    def _text_block(self, block: str, before: bytes) -> str:
        kinds = [_kind(character) for character in block]
        number, size = 0, 1
        for character, (first, count) in zip(block, kinds, strict=True):
            if count > 1:
                number = number * count + ord(character) - first
                size *= count
        number = self.permuted(number, size, b"text %r" % kinds + before)
        characters = list(block)
        for at in range(len(kinds) - 1, -1, -1):
            first, count = kinds[at]
            if count > 1:
                number, offset = divmod(number, count)
                characters[at] = chr(first + offset)
        return "".join(characters)

    def uuid(self, value: str) -> str:
        """Return another UUID."""
        number = self.permuted(int(value.replace("-", ""), 16), 1 << 128, b"uuid")
        digits = f"{number:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def date_text(self, value: date) -> str:
        """Return another date of the same year."""
        return (EPOCH + timedelta(self.day((value - EPOCH).days))).isoformat()

    def time_text(self, minutes: int, second: str, fraction: str) -> str:
        """Return another time of the day, with the same number of digits."""
        unit = 60 * 10 ** len(fraction) if second else 1
        number = minutes * unit + int((second + fraction) or 0)
        tweak = b"time text %d" % unit
        minutes, rest = divmod(self.permuted(number, 24 * 60 * unit, tweak), unit)
        digits = f"{rest:0{len(second + fraction)}d}" if second else ""
        made = f"{minutes // 60:02d}:{minutes % 60:02d}"
        return made + (f":{digits[:2]}" if second else "") + (f".{digits[2:]}" if fraction else "")

    def _walked(self, value: int, size: int, tweak: bytes, belongs: Callable[[int], bool]) -> int:
        """Permute a number within those below `size` that belong together."""
        while True:
            value = self.permuted(value, size, tweak)
            if belongs(value):
                return value


def _parsed(value: str) -> Callable[[Cipher], str] | None:
    """Return the masking of a text that programs parse; None for other texts."""
    if _UUID.fullmatch(value):
        return lambda cipher: cipher.uuid(value)
    match = _TIME.fullmatch(value)
    if match is not None:
        minutes = int(match[1]) * 60 + int(match[2])
        return lambda cipher: cipher.time_text(minutes, match[3] or "", match[4] or "")
    if _DATE.fullmatch(value):
        with suppress(ValueError):
            day = date.fromisoformat(value)
            return lambda cipher: cipher.date_text(day)
    return None


@lru_cache(4096)
def _kind(character: str) -> tuple[int, int]:
    """Return the first of a character's possible replacements, and their number."""
    number = ord(character)
    for first, count in ((ord("0"), DIGITS), (ord("a"), LOWER), (ord("A"), UPPER)):
        if first <= number < first + count:
            return first, count
    return (number, 1) if number < 0x80 else (number // PAGE * PAGE, PAGE)


def _step(micros: int) -> int:
    """Return the coarsest of second, millisecond and microsecond that divides a time."""
    return next(step for step in (1_000_000, 1000, 1) if micros % step == 0)
