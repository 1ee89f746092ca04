"""Counts, bytes and fingerprints of entries, by state and key group.

A fingerprint is a sum of 128-bit hashes of entries, so it does not depend on their order: the heap
backend writes its entries in hash-map order, which changes between two snapshots of the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from pipelines.lake.records import KeyGroupRecord
from pipelines.lake.units import Unit
from state_core.handles import KeyGroupRange
from state_core.kernels.hashing import fingerprint_entries
from state_core.snapshot import Entries

__all__ = ["Measure"]


class Measure:
    """Sums over entries.

    Args:
        states: Names of states, by the ids that entries have.
        key_groups: The key groups that are looked at.
    """

    def __init__(self, states: Sequence[str], key_groups: KeyGroupRange) -> None:
        self.states = states
        self.key_groups = key_groups
        cells = len(states) * len(key_groups)
        self.low, self.high = np.zeros(cells, np.uint64), np.zeros(cells, np.uint64)
        self.counts, self.sizes = np.zeros(cells, np.int64), np.zeros(cells, np.int64)

    def add(self, entries: Entries) -> None:
        """Take entries into account."""
        groups = entries.group_of - self.key_groups.first
        slot = entries.state_of.astype(np.int64) * len(self.key_groups) + groups
        fingerprint_entries(
            entries.data, entries.key_start, entries.key_end, entries.value_start,
            entries.value_end, slot, self.low, self.high,
        )  # fmt: skip
        self.counts += np.bincount(slot, minlength=len(self.counts))
        weights = entries.payload_bytes()
        self.sizes += np.bincount(slot, weights, len(self.sizes)).astype(np.int64)

    def _cells(self, names: Iterable[str], unit: Unit) -> list[tuple[str, slice]]:
        first = unit.first - self.key_groups.first
        last = unit.last - self.key_groups.first
        width = len(self.key_groups)
        starts = {name: index * width for index, name in enumerate(self.states)}
        return [
            (name, slice(starts[name] + first, starts[name] + last + 1))
            for name in sorted(set(names) & starts.keys())
        ]

    def fingerprint(self, names: Iterable[str], unit: Unit) -> bytes:
        """The content of some states in a unit: equal bytes mean equal entries."""
        digest = blake2b(digest_size=16)
        for name, cells in self._cells(names, unit):
            if self.counts[cells].any():
                digest.update(name.encode())
                for column in (self.counts, self.low, self.high):
                    digest.update(np.ascontiguousarray(column[cells]).tobytes())
        return digest.digest()

    def rows(self, names: Iterable[str], unit: Unit) -> int:
        """How many entries some states have in a unit."""
        return sum(int(self.counts[cells].sum()) for _, cells in self._cells(names, unit))

    def records(self, name: str) -> list[KeyGroupRecord]:
        """A state's key groups that have entries."""
        width, index = len(self.key_groups), list(self.states).index(name)
        counts = self.counts[index * width : (index + 1) * width]
        sizes = self.sizes[index * width : (index + 1) * width]
        return [
            KeyGroupRecord(self.key_groups.first + group, int(counts[group]), int(sizes[group]))
            for group in np.flatnonzero(counts).tolist()
        ]
