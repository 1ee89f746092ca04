"""Check of every entry of keyed state: key and value decode, and the key group is right.

Many key groups are read at once. If reading fails, they are halved until the fault is in one; if a
batch does not decode, its rows are halved likewise. So sound entries are checked fast, and every
fault is found.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from statelake.state_core.errors import (
    CorruptSnapshotError,
    KeyGroupError,
    StateError,
    UnsupportedFormatError,
    UnwalkableError,
)
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.writing.rehash import assign_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.integrity.findings import FaultKind, Findings, Place
from statelake.state_core.integrity.keyed_sources import KeyedSource
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import fixed_values
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer


class Keeper(Protocol):
    """A keeper of sound entries."""

    def mark(self) -> int:
        """Return a mark of the entries kept so far."""

    def forget(self, mark: int) -> None:
        """Forget the entries kept since a mark, as they are read again."""

    def keep(self, entries: Entries) -> None:
        """Keep entries of one state."""

    def close(self) -> None:
        """End: no more entries follow."""


def examine(
    source: KeyedSource,
    key_groups: KeyGroupRange,
    state: int | None,
    keeper: Keeper | None = None,
) -> Findings:
    """Check the entries of some key groups.

    Args:
        source: The source of the entries.
        key_groups: The key groups to check.
        state: The id of the only state to check; None checks all.
        keeper: Receives the sound entries.
    """
    findings = Findings()
    pass_ = _Pass(source, findings, keeper)
    mark = keeper.mark() if keeper is not None else 0
    place = replace(source.where, key_groups=key_groups)
    if state is not None:
        place = replace(place, state=source.header.states[state].name)
    error = _read(source, key_groups, state, pass_)
    if error is not None:
        if len(key_groups) > 1:
            if keeper is not None:
                keeper.forget(mark)
            return _halved(source, key_groups, state, keeper)
        if isinstance(error, UnwalkableError):
            for name in sorted(error.states):
                why = f"entries that can't be found: {error.why}"
                findings.skip(Place(place.operator, None, name), why, unread=True)
        elif isinstance(error, UnsupportedFormatError):
            findings.skip(replace(place, subtask=None, key_groups=None), error.problem, unread=True)
        else:
            findings.fault(FaultKind.KEY_GROUP, place, error)
        stored = source.stored(key_groups)
        size = None
        if stored is not None:
            size = stored if source.header.compressed else max(0, stored - pass_.passed)
        findings.lose(place, error.problem, size=size)
    pass_.finish()
    return findings


def _read(
    source: KeyedSource, key_groups: KeyGroupRange, state: int | None, pass_: _Pass
) -> StateError | None:
    """Read the entries of some key groups; return a copy of the error that ended it, or None."""
    try:
        for entries in source.read(key_groups, state):
            pass_.take(entries)
    except StateError as error:
        return copy(error)
    return None


def _halved(
    source: KeyedSource,
    key_groups: KeyGroupRange,
    state: int | None,
    keeper: Keeper | None,
) -> Findings:
    middle = (key_groups.first + key_groups.last) // 2
    findings = examine(source, KeyGroupRange(key_groups.first, middle), state, keeper)
    findings.add(examine(source, KeyGroupRange(middle + 1, key_groups.last), state, keeper))
    return findings


@dataclass
class _Bad:
    """Entries of one state and key group that have the same fault.

    The error is a copy without its traceback, whose frames hold the entries that were read.
    """

    error: StateError
    entries: int = 0
    size: int = 0


class _Pass:
    """A pass over some key groups."""

    def __init__(self, source: KeyedSource, findings: Findings, keeper: Keeper | None) -> None:
        self.source = source
        self.findings = findings
        self.keeper = keeper
        self.bad: dict[tuple[int, int, FaultKind, str], _Bad] = {}
        self.passed = 0
        self.unhashed: set[int] = set()

    def take(self, entries: Entries) -> None:
        """Check entries, and pass on the sound ones."""
        head = 8 + (2 if self.source.max_parallelism > 128 else 1)
        self.passed += int(entries.payload_bytes().sum()) + head * len(entries)
        for state in np.unique(entries.state_of).tolist():
            if state in self.source.faulty:
                continue
            mine = entries.of_state(state)
            layout = self.source.layouts[state]
            sound = mine if layout is None else self._sound(state, layout, mine)
            self.findings.checked.entries += len(sound)
            if self.keeper is not None and len(sound):
                self.keeper.keep(sound)

    def finish(self) -> None:
        """Note the faults of single entries, key group by key group."""
        for (state, group, kind, _), bad in sorted(self.bad.items(), key=_order):
            name = self.source.header.states[state].name
            groups = KeyGroupRange(group, group)
            where = replace(self.source.where, state=name, key_groups=groups)
            self.findings.fault(kind, where, bad.error, bad.entries)
            self.findings.lose(where, bad.error.problem, entries=bad.entries, size=bad.size)

    def _sound(self, state: int, layout: KeyedLayout, entries: Entries) -> Entries:
        """Return the sound entries of one state."""
        keep = np.ones(len(entries), bool)
        pending = [(0, len(entries))]
        while pending:
            low, high = pending.pop()
            try:
                wrong = self._check(state, layout, entries.take(slice(low, high)))
            except UnsupportedFormatError as error:
                self.findings.skip(self._where(state), error.problem)
                continue
            except StateError as error:
                if high - low > 1:
                    middle = (low + high) // 2
                    pending += [(middle, high), (low, middle)]
                    continue
                self._note(FaultKind.ENTRY, error, entries, low)
                keep[low] = False
                continue
            for row, problem in wrong:
                place = entries.place(int(entries.key_start[low + row]))
                fault = CorruptSnapshotError(
                    problem, place=place, remedy="the key was damaged, or moved by hand"
                )
                self._note(FaultKind.KEY, fault, entries, low + row)
                keep[low + row] = False
        return entries if keep.all() else entries.take(np.flatnonzero(keep))

    def _check(self, state: int, layout: KeyedLayout, entries: Entries) -> list[tuple[int, str]]:
        """Decode entries to the last byte; return the rows in a wrong key group, with the reason.

        Raises:
            StateError: An entry does not decode.
        """
        batch = layout.decode(entries)
        wrong = [] if state in self.unhashed else self._misplaced(state, layout, batch)
        stored = layout.stored_value()
        unread = [part for part in (stored, layout.value) if isinstance(part, OpaqueSerializer)]
        if unread:
            what = f"values of {unread[-1].name}, which are not decoded"
            self.findings.skip(self._where(state), what)
        elif stored is not None:
            self.findings.checked.values += len(entries)
        return wrong

    def _misplaced(
        self, state: int, layout: KeyedLayout, batch: pa.RecordBatch
    ) -> list[tuple[int, str]]:
        name = self.source.header.states[state].name
        try:
            right = assign_key_groups(
                StateRows(state, name, layout, batch), self.source.max_parallelism
            )
        except KeyGroupError as error:
            self.unhashed.add(state)
            self.findings.skip(self._where(state), f"the key groups of its keys: {error.problem}")
            return []
        self.findings.checked.hashed += len(batch)
        groups = fixed_values(batch.column("key_group"), np.int32)
        keys = batch.column("key")
        return [
            (row, f"key {keys[row].as_py()!r} is here, but its hash is of key group {right[row]}")
            for row in np.flatnonzero(right != groups).tolist()
        ]

    def _where(self, state: int) -> Place:
        return Place(self.source.where.operator, None, self.source.header.states[state].name)

    def _note(self, kind: FaultKind, error: StateError, entries: Entries, row: int) -> None:
        state, group = int(entries.state_of[row]), int(entries.group_of[row])
        problem = error.problem if kind is FaultKind.ENTRY else ""
        bad = self.bad.setdefault((state, group, kind, problem), _Bad(copy(error)))
        bad.entries += 1
        bad.size += int(entries.take(slice(row, row + 1)).payload_bytes()[0])


def _order(item: tuple[tuple[int, int, FaultKind, str], _Bad]) -> tuple[int, int, str]:
    (state, group, kind, _), _ = item
    return group, state, kind.value
