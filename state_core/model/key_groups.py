"""Key groups: the assignment of keys to key groups, and of key groups to subtasks.

A key's group is `murmur(key.hashCode()) % max_parallelism`; a subtask owns a contiguous range of
groups. Both are Flink's own formulas, so that Flink finds state that is rewritten here.

An operator's id is another of its hashes: MurmurHash3 (x64, 128 bits, seed 0) of the uid's UTF-8
bytes. Without a uid it is a hash of the job's topology, which can't be derived from a snapshot.

Source: `org.apache.flink.runtime.state.KeyGroupRangeAssignment`, `org.apache.flink.util.MathUtils`,
`org.apache.flink.streaming.api.graph.StreamGraphHasherV2.generateUserSpecifiedHash`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from statelake.state_core.bounds import KEY_GROUPS
from statelake.state_core.errors import KeyGroupError
from statelake.state_core.kernels.hashing import assign_key_groups
from statelake.state_core.model.handles import KeyGroupRange

MAX_PARALLELISM_LIMIT = KEY_GROUPS.most
DEFAULT_LOWER_BOUND = 1 << 7
MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class EncodedKey:
    """A key to look up.

    Attributes:
        encoded: Its bytes, as its serializer writes them.
        key_group: Its key group; None if its Java hash can't be derived, so that it may be in any.
    """

    encoded: bytes
    key_group: int | None

    @property
    def key_groups(self) -> KeyGroupRange | None:
        """The key groups that may hold the key; None for all."""
        return None if self.key_group is None else KeyGroupRange(self.key_group, self.key_group)


@dataclass(frozen=True)
class SearchKey:
    """A key to find in the states of an operator.

    Attributes:
        value: The key as its column has it, as Arrow converts that to Python.
        encoded: Its bytes and its key group.
    """

    value: Any
    encoded: EncodedKey

    def may_be_among(self, first: int, last: int) -> bool:
        """Return whether it may be in one of these key groups."""
        group = self.encoded.key_group
        return group is None or first <= group <= last


def key_group_of(code: int, max_parallelism: int) -> int:
    """Return the key group of one Java hash code (`computeKeyGroupForKeyHash`)."""
    code = code * 0xCC9E2D51 & MASK
    code = (code << 15 | code >> 17) * 0x1B873593 & MASK
    code = (code << 13 | code >> 19) & MASK
    code = code * 5 + 0xE6546B64 & MASK
    code ^= 4
    code = (code ^ code >> 16) * 0x85EBCA6B & MASK
    code = (code ^ code >> 13) * 0xC2B2AE35 & MASK
    code ^= code >> 16
    if code >> 31:
        code = -code & MASK  # the least number stays negative, and is in no key group
    return (0 if code >> 31 else code) % max_parallelism


def key_groups_of_hashes(
    codes: npt.NDArray[np.int32], max_parallelism: int
) -> npt.NDArray[np.int32]:
    """Return the key group of each Java hash code (`computeKeyGroupForKeyHash`)."""
    groups = np.empty(len(codes), np.int32)
    assign_key_groups(codes, max_parallelism, groups)
    return groups


def subtask_of(key_group: int, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns a key group (`computeOperatorIndexForKeyGroup`)."""
    return key_group * parallelism // max_parallelism


def key_group_ranges(max_parallelism: int, parallelism: int) -> list[KeyGroupRange]:
    """Return the key groups of every subtask (`computeKeyGroupRangeForOperatorIndex`).

    Raises:
        KeyGroupError: The parallelism is not between 1 and the max parallelism.
    """
    check_parallelism(max_parallelism, parallelism)
    return [key_groups_of(subtask, max_parallelism, parallelism) for subtask in range(parallelism)]


def key_groups_of(subtask: int, max_parallelism: int, parallelism: int) -> KeyGroupRange:
    """Return one subtask's key groups."""
    return KeyGroupRange(
        (subtask * max_parallelism + parallelism - 1) // parallelism,
        ((subtask + 1) * max_parallelism - 1) // parallelism,
    )


def check_parallelism(max_parallelism: int, parallelism: int) -> None:
    """Refuse a max parallelism and parallelism that Flink would refuse.

    Raises:
        KeyGroupError: Not `1 <= parallelism <= max parallelism <= 32768`.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise KeyGroupError(
            f"max parallelism {max_parallelism} is not between 1 and {MAX_PARALLELISM_LIMIT}",
            remedy="choose one in that range",
        )
    if not 1 <= parallelism <= max_parallelism:
        raise KeyGroupError(
            f"parallelism {parallelism} is not between 1 and the max parallelism {max_parallelism}",
            remedy="lower the parallelism, or raise the max parallelism too",
        )


def default_max_parallelism(parallelism: int) -> int:
    """Return the max parallelism of a job that sets none (`computeDefaultMaxParallelism`)."""
    wanted = parallelism + parallelism // 2
    power = 1 << (wanted - 1).bit_length() if wanted > 1 else 1
    return min(max(power, DEFAULT_LOWER_BOUND), MAX_PARALLELISM_LIMIT)


def prefix_bytes(max_parallelism: int) -> int:
    """Return the bytes of the key-group prefix: 1 up to a max parallelism of 128, else 2."""
    return 1 if max_parallelism <= 128 else 2


_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def operator_id_of_uid(uid: str) -> str:
    """Return the operator id of a uid, as 32 hex digits."""
    return murmur3_128(uid.encode("utf-8")).hex()


def murmur3_128(data: bytes) -> bytes:
    """Return Guava's `Hashing.murmur3_128(0)` of some bytes, by which Flink makes operator ids."""
    h1 = h2 = 0
    blocks = len(data) // 16
    for index in range(blocks):
        k1, k2 = struct.unpack_from("<QQ", data, 16 * index)
        h1 = (_rotate(h1 ^ _scramble(k1, _C1, 31, _C2), 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 = (_rotate(h2 ^ _scramble(k2, _C2, 33, _C1), 31) + h1) * 5 + 0x38495AB5 & _MASK
    tail = data[16 * blocks :].ljust(16, b"\0")
    k1, k2 = struct.unpack("<QQ", tail)
    h2 ^= _scramble(k2, _C2, 33, _C1)
    h1 ^= _scramble(k1, _C1, 31, _C2)
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h1 + h2 & _MASK
    h1, h2 = _finish(h1), _finish(h2)
    h1 = h1 + h2 & _MASK
    h2 = h1 + h2 & _MASK
    return struct.pack("<QQ", h1, h2)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _scramble(word: int, first: int, bits: int, second: int) -> int:
    return _rotate(word * first & _MASK, bits) * second & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
