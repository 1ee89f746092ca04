"""Slices whose bytes are those that the previous import read: nothing of them is decoded.

The catalog keeps a mark of each slice: a digest of its bytes as stored, and of what each table has
of it. An edit or an erasure changes the latter, so that the mark no longer fits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from statelake.pipelines.lake.tables.records import OperatorRecord, PartRecord
from statelake.state_core.kernels.hashing import fingerprint_entries
from statelake.state_core.model.entries import KeyedFile
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.measure import GroupSums
from statelake.state_core.serializers.framework.columns import U8Array

DIGESTED_BYTES = 4 << 20


def stored_digest(parts: Sequence[tuple[KeyedFile, KeyGroupRange]]) -> bytes:
    """Return a digest of the bytes of a slice as stored; empty if a format can't tell them.

    Args:
        parts: The files of the slice, and their key groups in it.

    Raises:
        SnapshotError: The bytes can't be read.
    """
    digest = blake2b(digest_size=16)
    block = np.empty(DIGESTED_BYTES, np.uint8)
    for file, key_groups in parts:
        spans = file.stored_spans(key_groups)
        if spans is None:
            return b""
        claimed = file.key_groups.intersection(key_groups)
        head = type(file).__name__, file.compressed, claimed, file.key_serializer
        states = [(each.meta_info, each.key_type, each.value_type) for each in file.states]
        digest.update(repr((head, states)).encode())
        for owner, source, start, end in spans:
            digest.update(repr((owner, end - start)).encode())
            for offset in range(start, end, len(block)):
                part = block[: end - offset]
                source.read_into(offset, part)
                digest.update(_fingerprint(part))
    return digest.digest()


def _fingerprint(data: U8Array) -> bytes:
    """Return a 128-bit hash of bytes: three times as fast as a cryptographic one."""
    bounds = np.array([0, len(data)], np.int64)
    low, high = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    first, end = bounds[:1], bounds[1:]
    fingerprint_entries(data, first, end, end, end, np.zeros(1, np.int64), low, high)
    return low.tobytes() + high.tobytes()


def slice_mark(
    stored: bytes, partitions: int | None, parts: Mapping[str, Collection[PartRecord]]
) -> bytes:
    """Return the mark of a slice.

    Args:
        stored: The digest of its bytes.
        partitions: How many partitions each table was to have; None if that was open.
        parts: What each table has of it, by the table's path.
    """
    digest = blake2b(stored + repr(partitions).encode(), digest_size=16)
    for path, of_table in sorted(parts.items()):
        spans = sorted({(*part.span, part.fingerprint) for part in of_table})
        if spans:
            digest.update(repr((path, spans)).encode("utf-8", "surrogatepass"))
    return digest.digest()


def recorded_sums(operator: OperatorRecord) -> dict[str, GroupSums]:
    """Return the entries and bytes of each state, as the catalog has them."""
    sums = {}
    for state in operator.states:
        rows = [(each.key_group, each.entries, each.state_bytes) for each in state.key_groups]
        sums[state.name] = GroupSums(*np.array(rows, np.int64).reshape(-1, 3).T)
    return sums
