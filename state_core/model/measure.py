"""Counts, bytes and fingerprints of entries, by state and key group.

A fingerprint is a sum of 128-bit hashes of entries, so it does not depend on their order: the heap
backend writes its entries in hash-map order, which changes between two snapshots of the same state.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import (
    CorruptSnapshotError,
    OversizedError,
    StateError,
    UnwalkableError,
)
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.kernels.hashing import count_entries, fingerprint_entries
from statelake.state_core.model.entries import Entries, KeyedFile, entries_of_state, plan_slices
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import Operator

I64Array: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Entries and bytes of one state in the key groups with entries: arrays of one length.

    Attributes:
        key_groups: The key groups, in order.
        entries: The number of entries.
        state_bytes: The bytes of their keys and values.
    """

    key_groups: I64Array
    entries: I64Array
    state_bytes: I64Array

    def within(self, key_groups: KeyGroupRange) -> GroupSums:
        """Return those of some key groups."""
        ends = np.searchsorted(self.key_groups, [key_groups.first, key_groups.last + 1])
        inside = slice(*ends.tolist())
        return GroupSums(self.key_groups[inside], self.entries[inside], self.state_bytes[inside])


class Measure:
    """Counts, bytes and fingerprints of entries, by state and key group.

    Args:
        states: The names of the states, by the ids that entries have.
        key_groups: The key groups to measure.
        fingerprints: Whether to hash the content as well.
    """

    def __init__(
        self, states: Sequence[str], key_groups: KeyGroupRange, *, fingerprints: bool = True
    ) -> None:
        self.states = {name: index for index, name in enumerate(states)}
        self.key_groups = key_groups
        self.fingerprints = fingerprints
        cells = len(states) * len(key_groups)
        hashed = cells if fingerprints else 0
        self._low, self._high = np.zeros(hashed, np.uint64), np.zeros(hashed, np.uint64)
        self._counts, self._sizes = np.zeros(cells, np.int64), np.zeros(cells, np.int64)

    def add(self, entries: Entries) -> None:
        """Add entries to the sums.

        Raises:
            CorruptSnapshotError: An entry's state or key group is not among those measured.
        """
        if not len(entries):
            return
        slot = np.empty(len(entries), np.int64)
        bounds = entries.key_start, entries.key_end, entries.value_start, entries.value_end
        row = count_entries(
            entries.state_of, entries.group_of, self.key_groups.first, len(self.key_groups),
            len(self.states), *bounds, slot, self._counts, self._sizes,
        )  # fmt: skip
        if row >= 0:
            raise CorruptSnapshotError(
                f"an entry of state {entries.state_of[row]} and key group {entries.group_of[row]},"
                f" where {len(self.states)} states and key groups {self.key_groups} are expected",
                place=entries.place(int(entries.key_start[row])),
            )
        if self.fingerprints:
            fingerprint_entries(entries.data, *bounds, slot, self._low, self._high)

    def merge(self, other: Measure) -> None:
        """Add the measure of other entries of the same states.

        Args:
            other: The other measure; its key groups are among these.
        """
        for name in self.states:
            cells = self._cells(name, other.key_groups)
            others = other._cells(name, other.key_groups)
            self._low[cells] += other._low[others]
            self._high[cells] += other._high[others]
            self._counts[cells] += other._counts[others]
            self._sizes[cells] += other._sizes[others]

    def sums(self, name: str) -> GroupSums:
        """Return the entries and bytes of a state, where it has some."""
        counts = self.counts(name)
        (groups,) = np.nonzero(counts)
        return GroupSums(groups + self.key_groups.first, counts[groups], self.sizes(name)[groups])

    def _cells(self, name: str, within: KeyGroupRange) -> slice:
        start = self.states[name] * len(self.key_groups) - self.key_groups.first
        return slice(start + within.first, start + within.last + 1)

    def counts(self, name: str) -> I64Array:
        """Return the number of a state's entries in each key group."""
        return self._counts[self._cells(name, self.key_groups)]

    def sizes(self, name: str) -> I64Array:
        """Return the bytes of a state's keys and values in each key group."""
        return self._sizes[self._cells(name, self.key_groups)]

    def rows(self, names: Iterable[str], within: KeyGroupRange) -> int:
        """Return the number of entries of some states in some key groups."""
        return sum(int(self._counts[self._cells(name, within)].sum()) for name in names)

    def range_bytes(self, names: Iterable[str], ranges: Sequence[KeyGroupRange]) -> list[int]:
        """Return the bytes of keys and values of some states in each range of key groups.

        Args:
            names: The states.
            ranges: The ranges, which follow on each other.
        """
        behind = ranges[-1].last + 1
        starts = [within.first - ranges[0].first for within in ranges]
        total = np.zeros(len(ranges), np.int64)
        for name in names:
            sizes = self._sizes[self._cells(name, KeyGroupRange(ranges[0].first, behind - 1))]
            total += np.add.reduceat(sizes, starts)
        return [int(size) for size in total]

    def span(self, names: Iterable[str], within: KeyGroupRange) -> KeyGroupRange:
        """Return the range of key groups with entries of some states; empty without entries."""
        counts = np.zeros(len(within), np.int64)
        for name in names:
            counts += self._counts[self._cells(name, within)]
        (groups,) = np.nonzero(counts)
        if not groups.size:
            return KeyGroupRange(within.first, within.first - 1)
        return KeyGroupRange(within.first + int(groups[0]), within.first + int(groups[-1]))

    def fingerprint(self, names: Iterable[str], within: KeyGroupRange) -> bytes:
        """Return a fingerprint of some states in some key groups: equal for equal entries."""
        digest = blake2b(digest_size=16)
        for name in sorted(names):
            cells = self._cells(name, within)
            if self._counts[cells].any():
                digest.update(name.encode())
                for column in (self._counts, self._low, self._high):
                    digest.update(np.ascontiguousarray(column[cells]).tobytes())
        return digest.digest()


def measure_operator(
    operator: Operator, lost: dict[str, StateError] | None = None
) -> dict[str, tuple[I64Array, I64Array]]:
    """Return entries and bytes of each state of an operator in each key group.

    All entries are read, a window at a time, without decoding.

    Args:
        operator: The operator.
        lost: Receives the error of each state whose entries can't all be located; the sums are
            those of the others. Without it, the error is raised.

    Raises:
        CorruptSnapshotError: The bytes are not entries.
        UnwalkableError: Not all entries are found.
    """
    groups = operator.max_parallelism
    totals = {
        state.name: (np.zeros(groups, np.int64), np.zeros(groups, np.int64))
        for state in operator.keyed_states
    }
    jobs = [
        (operator.keyed_files[plan_slice.file], plan_slice.key_groups)
        for plan_slice in plan_slices(operator.keyed_files)
    ]
    workers = min(len(jobs), os.cpu_count() or 1)
    with Workers(workers) if workers > 1 else nullcontext() as pool:
        run = map if pool is None else pool.map
        for measured, error in run(lambda job: _measure_slice(*job), jobs):
            if error is not None:
                if lost is None:
                    raise error
                for name in error.states:
                    lost.setdefault(name, error)
            inside = slice(measured.key_groups.first, measured.key_groups.last + 1)
            for name in measured.states:
                totals[name][0][inside] += measured.counts(name)
                totals[name][1][inside] += measured.sizes(name)
    return totals


def not_found(operator: Operator) -> UnwalkableError | None:
    """Return why not all entries of an operator's keyed state are found; None if all are.

    All entries are read up to the first file of which some are not found.

    Raises:
        CorruptSnapshotError: The bytes are not entries.
    """
    for file in operator.keyed_files:
        try:
            for _ in file.entries():
                pass
        except UnwalkableError as error:  # noqa: PERF203 - of one file
            return error
    return None


def measure_readable(
    operator: Operator, lost: dict[str, StateError]
) -> dict[str, tuple[I64Array, I64Array]]:
    """Return what `measure_operator` does for the states that can be read, whatever the others.

    If reading all of them fails, each is read by itself. `lost` gets the errors of the others.
    """
    try:
        return measure_operator(operator, lost)
    except OversizedError:
        raise  # each state would take as much again
    except StateError:
        totals = {}
    for state in operator.keyed_states:
        counts, sizes = (np.zeros(operator.max_parallelism, np.int64) for _ in range(2))
        try:
            for file, index in state.files:
                measure = Measure(
                    [each.name for each in file.states], file.key_groups, fingerprints=False
                )
                for entries in entries_of_state(file, index):
                    measure.add(entries)
                inside = slice(file.key_groups.first, file.key_groups.last + 1)
                counts[inside] += measure.counts(state.name)
                sizes[inside] += measure.sizes(state.name)
            totals[state.name] = counts, sizes
        except StateError as error:
            lost.setdefault(state.name, error)
    return totals


def _measure_slice(
    file: KeyedFile, key_groups: KeyGroupRange
) -> tuple[Measure, UnwalkableError | None]:
    measure = Measure([state.name for state in file.states], key_groups, fingerprints=False)
    try:
        for entries in file.entries(key_groups):
            measure.add(entries)
    except UnwalkableError as error:
        return measure, error
    return measure, None
