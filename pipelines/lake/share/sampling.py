"""Samples of keys: whole keys, the same ones in every state and timer.

A key is in or out by a hash of its serialized bytes and a seed. So operators with keys of one type
agree on each key, and a larger sample of the same seed has all that a smaller one has.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import DeclarationError
from statelake.state_core.formats.writing.unified_encode import StateRows, key_bytes
from statelake.state_core.kernels.hashing import fingerprint_entries

U64Array: TypeAlias = npt.NDArray[np.uint64]

_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def parse_share(text: str) -> float:
    """Parse a share as people write it: `1%`, `0.01`.

    Raises:
        DeclarationError: The text is not a share above 0% and up to 100%.
    """
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise DeclarationError(
            f"{text!r} is no share above 0% and up to 100%", remedy="write 1%, or 0.01"
        )
    return share


@dataclass(frozen=True)
class Sample:
    """A share of all keys.

    Attributes:
        share: The fraction, above 0 and up to 1.
        seed: The seed: another one selects other keys.
    """

    share: float
    seed: int = 0

    def has(self, rows: StateRows) -> pa.BooleanArray:
        """Return whether the key of each row is in the sample.

        Raises:
            EncodeError: A key can't be separated from the namespace that follows it.
        """
        keys = key_bytes(rows)
        bounds = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, keys.offset * 8)
        data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
        low, high = np.zeros(len(keys), np.uint64), np.zeros(len(keys), np.uint64)
        starts, ends = bounds[:-1].copy(), bounds[1:].copy()
        slots = np.arange(len(keys), dtype=np.int64)
        fingerprint_entries(data, starts, ends, ends, ends, slots, low, high)
        return pa.array(self._mixed(low + high * np.uint64(3)) < np.uint64(self._limit))

    @property
    def _limit(self) -> int:
        return min(int(self.share * 2**53), 2**53) << 10

    def _mixed(self, hashes: U64Array) -> U64Array:
        """Return the hashes mixed with the seed, as numbers of 63 bits."""
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=8).digest()
        mixed: U64Array = hashes ^ np.uint64(int.from_bytes(digest, "little"))
        for shift, factor in zip((30, 27), _FACTORS, strict=True):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        numbers: U64Array = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)
        return numbers
