"""The heaviest keys: exact, in memory proportional to the keys of one key group.

All entries of a key are in one key group. So keys are summed up key group by key group, and only
the heaviest of each are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import OversizedError, StateError, UnwalkableError
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.formats.layout.keyed_layout import (
    NAMESPACE,
    RAW_KEY,
    TTL,
    VALUE,
    KeyedLayout,
)
from statelake.state_core.formats.layout.keys import keys_of, namespaced_keys_of
from statelake.state_core.formats.printed_rows import printed_column, printed_keys
from statelake.state_core.model.entries import Entries, KeyedFile, entries_of_state, plan_slices
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import Operator, StateKind

__all__ = [
    "Expiry",
    "HeavyKey",
    "LongCollection",
    "StateWeights",
    "expired_until",
    "heaviest_key",
    "weigh_operator",
    "weigh_readable",
]

GROUP, KEY, ENTRIES, SIZE = "key_group", "key", "entries", "size"
MANY_ROWS = 1 << 20  # sums of windows, which are merged before there are more
COLLECTIONS = (StateKind.LIST, StateKind.MAP)


@dataclass(frozen=True)
class HeavyKey:
    """A key and what one state, or all of them, hold for it.

    Attributes:
        key: The key, as Arrow gives it to Python.
        key_group: Its key group.
        entries: Its entries: of a map each of its own.
        size: The bytes of their keys and values.
    """

    JSON = ("key", "key_group", "entries", "bytes=size")

    key: Any
    key_group: int
    entries: int
    size: int


@dataclass(frozen=True)
class LongCollection:
    """A list or a map of one key and namespace.

    Attributes:
        key: The key.
        namespace: The namespace.
        key_group: The key's key group.
        length: Elements of the list, entries of the map.
        size: Its bytes, including the key's.
    """

    JSON = ("key", "namespace", "key_group", "length", "bytes=size")

    key: Any
    namespace: Any
    key_group: int
    length: int
    size: int


@dataclass
class Expiry:
    """The amount of state that was last accessed at a time or before.

    Attributes:
        until: The time, in milliseconds since 1970.
        entries: Entries, or elements of lists.
        size: Bytes of keys and values; of lists only if all elements are that old.
    """

    until: int
    entries: int = 0
    size: int = 0


@dataclass
class StateWeights:
    """The heaviest keys of one state; entries are added in order of key group.

    Attributes:
        layout: The layout of the state's entries.
        most: The number of keys, and of lists or maps, to keep.
        expiries: The expired part of a state with TTL, for each requested time.
        keys: The number of keys.
        entries: The number of entries.
        size: The bytes of their keys and values.
        elements: The number of elements of its lists.
    """

    layout: KeyedLayout
    most: int
    expiries: list[Expiry] = field(default_factory=list)
    keys: int = 0
    entries: int = 0
    size: int = 0
    elements: int = 0
    _keys: _Sums = field(init=False, repr=False)
    _collections: _Sums = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._keys = _Sums((SIZE, ENTRIES), self.most)
        self._collections = _Sums((ENTRIES,), self.most)
        if not self.layout.with_ttl or TTL not in self.layout.schema.names:
            self.expiries = []

    def add(self, entries: Entries) -> None:
        """Add entries of the state."""
        sizes = entries.payload_bytes()
        self.entries += len(entries)
        self.size += int(sizes.sum())
        ones = np.ones(len(entries), np.int64)
        self._keys.add(entries, keys_of(self.layout, entries), ones, sizes)
        if self.layout.kind in COLLECTIONS and not self.layout.opaque_key:
            self._add_collections(entries, ones, sizes)
        if self.expiries:
            self._add_times(entries, sizes)

    def _add_collections(self, entries: Entries, lengths: Any, sizes: Any) -> None:
        if self.layout.kind is StateKind.LIST:
            lists = self.layout.decode(entries, [VALUE]).column(0)
            if not pa.types.is_list(lists.type):
                return  # elements whose end only the job's class can find
            lengths = pc.fill_null(lists.value_lengths(), 0).to_numpy().astype(np.int64)
            self.elements += int(lengths.sum())
        self._collections.add(entries, namespaced_keys_of(self.layout, entries), lengths, sizes)

    def _add_times(self, entries: Entries, sizes: Any) -> None:
        times = self.layout.decode(entries, [TTL]).column(0)
        owners, spans = np.arange(len(times)), np.ones(len(times), np.int64)
        if pa.types.is_list(times.type):
            spans = pc.fill_null(times.value_lengths(), 0).to_numpy().astype(np.int64)
            owners, times = np.repeat(owners, spans), times.flatten()
        for expiry in self.expiries:
            gone = pc.fill_null(pc.less_equal(times.cast(pa.int64()), expiry.until), False)
            counts = np.bincount(owners[gone.to_numpy(zero_copy_only=False)], minlength=len(spans))
            expiry.entries += int(counts.sum())
            expiry.size += int(sizes[(counts == spans) & (spans > 0)].sum())

    def close(self) -> None:
        """Include the last key group's keys, once all its entries are added."""
        self._keys.close()
        self._collections.close()
        self.keys = self._keys.rows

    def merge(self, other: StateWeights) -> None:
        """Include the result for other key groups; both are closed."""
        self.keys += other.keys
        self.entries += other.entries
        self.size += other.size
        self.elements += other.elements
        self._keys.merge(other._keys)
        self._collections.merge(other._collections)
        for expiry, more in zip(self.expiries, other.expiries, strict=True):
            expiry.entries += more.entries
            expiry.size += more.size

    def forget_keys(self) -> None:
        """Keep sums alone, as which keys are the heaviest can't be shown."""
        for sums in (self._keys, self._collections):
            sums.best = {name: best[:0] for name, best in sums.best.items()}

    def heaviest(self) -> list[HeavyKey]:
        """Return the keys with the most bytes, the heaviest first."""
        return _heavy_keys(self.layout, self._keys.best[SIZE])

    def busiest(self) -> list[HeavyKey]:
        """Return the keys with the most entries, the one with the most first."""
        return _heavy_keys(self.layout, self._keys.best[ENTRIES])

    def longest(self) -> list[LongCollection]:
        """Return the longest lists or maps, the longest first; empty for other kinds of state."""
        best = self._collections.best[ENTRIES]
        if not len(best):
            return []
        keys, namespaces = self._decode(best.column(KEY))
        rows = zip(keys, namespaces, *_numbers(best), strict=True)
        return [LongCollection(*row) for row in rows]

    def _decode(self, keys: pa.ChunkedArray) -> tuple[list[Any], list[Any]]:
        """Decode keys and namespaces of key bytes without user keys."""
        stored = _one_chunk(keys)
        bounds = np.frombuffer(stored.buffers()[1], np.int64)[: len(stored) + 1]
        data = np.frombuffer(stored.buffers()[2] or b"", np.uint8)
        none = np.zeros(len(stored), np.int64)
        entries = Entries(
            data, none.astype(np.int16), none, bounds[:-1].copy(), bounds[1:].copy(), none, none,
            lambda at: f"byte {at} of keys",
        )  # fmt: skip
        layout = replace(self.layout, kind=StateKind.VALUE, user_key=None)
        rows = layout.decode(entries, [KEY, NAMESPACE, RAW_KEY])
        typed, namespaces = (
            printed_column(layout, rows, name, RAW_KEY) for name in (KEY, NAMESPACE)
        )
        return typed, namespaces


class _Sums:
    """Sums by key, and the rows with the largest of them.

    Args:
        ranked: The sums to rank.
        most: The number of rows to keep.
    """

    def __init__(self, ranked: Sequence[str], most: int) -> None:
        self.most = most
        self.rows = 0
        empty = pa.table(
            {
                GROUP: pa.array(np.zeros(0, np.int32)),
                KEY: pa.array([], pa.binary()),
                ENTRIES: pa.array(np.zeros(0, np.int64)),
                SIZE: pa.array(np.zeros(0, np.int64)),
            }
        )
        self.best = dict.fromkeys(ranked, empty)
        self.pending: list[pa.Table] = []
        self.open = -1  # the key group that may still get rows

    def add(self, entries: Entries, keys: pa.LargeBinaryArray, counts: Any, sizes: Any) -> None:
        """Add rows of key groups that are not closed."""
        if not len(entries):
            return
        columns = {
            GROUP: entries.group_of.astype(np.int32), KEY: keys.cast(pa.binary()),
            ENTRIES: counts, SIZE: sizes,
        }  # fmt: skip
        self.pending.append(_summed(pa.table(columns)))
        last = int(entries.group_of[-1])
        if last == self.open or (self.open < 0 and int(entries.group_of[0]) == last):
            self.open = last
            rows = sum(map(len, self.pending))
            if rows > max(MANY_ROWS, 2 * len(self.pending[0])):
                self.pending = [_summed(pa.concat_tables(self.pending))]
            return
        self.open = last
        summed = _summed(pa.concat_tables(self.pending))
        ended = pc.less(summed.column(GROUP), last)
        self._rank(summed.filter(ended))
        self.pending = [summed.filter(pc.invert(ended))]

    def close(self) -> None:
        """Rank the remaining rows."""
        if self.pending:
            self._rank(_summed(pa.concat_tables(self.pending)))
        self.pending = []

    def merge(self, other: _Sums) -> None:
        """Include the best rows of other key groups."""
        self.rows += other.rows
        for name, best in other.best.items():
            self.best[name] = self._largest(pa.concat_tables([self.best[name], best]), name)

    def _rank(self, summed: pa.Table) -> None:
        self.rows += len(summed)
        for name, best in self.best.items():
            rows = summed
            if len(best) == self.most:  # among equals the first key group's stay
                rows = rows.filter(pc.greater(rows.column(name), best.column(name)[-1]))
            if len(rows):
                self.best[name] = self._largest(pa.concat_tables([best, rows]), name)

    def _largest(self, rows: pa.Table, name: str) -> pa.Table:
        order = [(name, "descending"), (GROUP, "ascending"), (KEY, "ascending")]
        chosen = pc.select_k_unstable(rows, min(self.most, len(rows)), sort_keys=order)
        return rows.take(chosen)


def _summed(rows: pa.Table) -> pa.Table:
    """Return one row for each key."""
    if not len(rows):
        return rows
    firsts = _firsts_if_ordered(rows)
    if firsts is None:
        grouped = rows.group_by([GROUP, KEY], use_threads=False)
        return grouped.aggregate([(ENTRIES, "sum"), (SIZE, "sum")]).rename_columns(
            rows.column_names
        )
    if len(firsts) == len(rows):
        return rows
    summed = rows.take(firsts)
    for at, name in enumerate((ENTRIES, SIZE), rows.column_names.index(ENTRIES)):
        summed = summed.set_column(
            at, name, [np.add.reduceat(rows.column(name).to_numpy(), firsts)]
        )
    return summed


def _firsts_if_ordered(rows: pa.Table) -> npt.NDArray[np.int64] | None:
    """Return the first row of each key if rows are in the order of groups and keys; else None.

    RocksDB keeps that order, and so do files that were written from it.
    """
    keys = rows.column(KEY).combine_chunks()
    if isinstance(keys, pa.ChunkedArray):  # more than an array can hold
        return None
    groups = rows.column(GROUP).to_numpy()
    same_group = groups[1:] == groups[:-1]
    before, after = keys[:-1], keys[1:]
    ordered = (groups[1:] > groups[:-1]) | same_group & _as_bools(pc.less_equal(before, after))
    if not ordered.all():
        return None
    differs = ~(same_group & _as_bools(pc.equal(before, after)))
    return np.flatnonzero(np.concatenate(([True], differs)))


def _as_bools(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    bools: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return bools


def _one_chunk(keys: pa.ChunkedArray) -> pa.LargeBinaryArray:
    return pa.concat_arrays([pa.array([], pa.large_binary()), *keys.cast(pa.large_binary()).chunks])


def _heavy_keys(layout: KeyedLayout, best: pa.Table) -> list[HeavyKey]:
    if not len(best):
        return []
    keys = printed_keys(layout, _one_chunk(best.column(KEY)))
    return [HeavyKey(*row) for row in zip(keys, *_numbers(best), strict=True)]


def _numbers(best: pa.Table) -> list[list[int]]:
    return [best.column(name).to_pylist() for name in (GROUP, ENTRIES, SIZE)]


def weigh_operator(
    operator: Operator,
    most: int,
    *,
    states: Iterable[str] | None = None,
    until: Sequence[int] = (),
    threads: int | None = None,
) -> dict[str, StateWeights]:
    """Return the heaviest keys of each keyed state of an operator, timers included.

    All entries are read, a window at a time. Only the heaviest keys are decoded; values only if
    they are lists or, with times requested, if they have TTL.

    Args:
        operator: The operator.
        most: The number of keys, and of lists or maps, to keep for each state.
        states: The names of the states; all by default.
        until: Times in milliseconds since 1970, for `StateWeights.expiries`.
        threads: The number of threads; by default that of the cores.

    Raises:
        CorruptSnapshotError: The bytes are not entries.
    """
    chosen = {state.name for state in operator.keyed_states} if states is None else set(states)
    jobs = [
        (operator.keyed_files[piece.file], piece.key_groups)
        for piece in plan_slices(operator.keyed_files)
    ]

    def weigh(job: tuple[KeyedFile, KeyGroupRange]) -> dict[str, StateWeights]:
        return _weigh_slice(*job, most, chosen, until)

    sums: dict[str, StateWeights] = {}
    workers = min(len(jobs), threads or os.cpu_count() or 1)
    with Workers(workers) if workers > 1 else nullcontext() as pool:
        for weighed in map(weigh, jobs) if pool is None else pool.map(weigh, jobs):
            for name, weights in weighed.items():
                if name in sums:
                    sums[name].merge(weights)
                else:
                    sums[name] = weights
    return {state.name: sums[state.name] for state in operator.keyed_states if state.name in sums}


def _weigh_slice(
    file: KeyedFile, key_groups: KeyGroupRange, most: int, states: set[str], until: Sequence[int]
) -> dict[str, StateWeights]:
    weights = {
        index: StateWeights(file.layouts[index], most, [Expiry(time) for time in until])
        for index, state in enumerate(file.states)
        if state.name in states
    }
    try:
        if len(weights) == 1:
            ((index, only),) = weights.items()
            for entries in entries_of_state(file, index, key_groups):
                if len(entries):
                    only.add(entries)
        else:
            for entries in file.entries(key_groups):
                for index in np.unique(entries.state_of).tolist():
                    if index in weights:
                        weights[index].add(entries.of_state(index))
    except UnwalkableError as error:
        if any(file.states[index].name in error.states for index in weights):
            raise
    for of_state in weights.values():
        of_state.close()
    return {file.states[index].name: of_state for index, of_state in weights.items()}


def expired_until(at: datetime, lives: Iterable[timedelta]) -> list[int]:
    """Return the latest access that has expired, in epoch milliseconds, for each time to live."""
    millis = round(at.timestamp() * 1000)
    return [millis - live // timedelta(milliseconds=1) for live in lives]


def weigh_readable(
    operator: Operator,
    most: int,
    lost: dict[str, StateError],
    *,
    states: Iterable[str] | None = None,
    until: Sequence[int] = (),
) -> dict[str, StateWeights]:
    """Return what `weigh_operator` does for the states that can be read, whatever the others.

    If reading all of them fails, each is read by itself. `lost` gets the errors of the others, and
    of those whose heaviest keys can't be decoded, which have their sums alone.
    """
    chosen = {state.name for state in operator.keyed_states} if states is None else set(states)
    try:
        return _with_keys(weigh_operator(operator, most, states=chosen, until=until), lost)
    except OversizedError:
        raise  # each state would take as much again
    except StateError:
        weighed: dict[str, StateWeights] = {}
    for state in operator.keyed_states:
        if state.name in chosen:
            try:
                weighed |= weigh_operator(operator, most, states=(state.name,), until=until)
            except StateError as error:
                lost[state.name] = error
    return _with_keys(weighed, lost)


def _with_keys(
    weighed: dict[str, StateWeights], lost: dict[str, StateError]
) -> dict[str, StateWeights]:
    """Return the weights, without keys where the heaviest can't be decoded: `lost` says why."""
    for name, weights in weighed.items():
        try:
            for decoded in (weights.heaviest, weights.busiest, weights.longest):
                decoded()
        except StateError as error:  # noqa: PERF203 - each has its own
            lost[name] = error
            weights.forget_keys()
    return weighed


def heaviest_key(operator: Operator, key_group: int) -> HeavyKey | None:
    """Return the key of one key group with the most bytes in all states together.

    None if the key group has no entries, or some that are not found, or only keys without an end.

    Raises:
        CorruptSnapshotError: The bytes are not entries.
    """
    sums = _Sums((SIZE,), 1)
    layout: KeyedLayout | None = None
    try:
        for file in operator.keyed_files:
            for entries in file.entries(KeyGroupRange(key_group, key_group)):
                for index in np.unique(entries.state_of).tolist():
                    if file.layouts[index].opaque_key:
                        continue
                    layout = file.layouts[index]
                    of_state = entries.of_state(index)
                    sizes, ones = of_state.payload_bytes(), np.ones(len(of_state), np.int64)
                    sums.add(of_state, keys_of(layout, of_state), ones, sizes)
    except UnwalkableError:
        return None
    sums.close()
    return _heavy_keys(layout, sums.best[SIZE])[0] if layout is not None else None
