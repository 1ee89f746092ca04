"""Slices whose bytes are those that the previous import read: nothing of them is decoded.

The catalog keeps a mark of each slice: a digest of its bytes as stored, and of what each table has
of it. An edit or an erasure changes the latter, so a mark says nothing of what came out of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from statelake.pipelines.lake.tables.records import OperatorRecord, PartRecord
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.measure import GroupSums
from statelake.state_core.model.snapshot import KeyedFile


def stored_digest(parts: Sequence[tuple[KeyedFile, KeyGroupRange]]) -> bytes:
    """Return a digest of the bytes of a slice as stored; empty if a format has none."""
    digests = [file.stored_digest(key_groups) for file, key_groups in parts]
    return blake2b(b"".join(digests), digest_size=16).digest() if all(digests) else b""


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
