"""Ends of values that only their class could walk, found by the structure around them.

The heap's format has no lengths. But known bytes follow a value: the next entry's namespace and
key, whose hash code must belong to this key group, or the next state's id and number of entries;
every state occurs once, in the same order in each key group, and the last one ends where the key
group does. With compression each state is a stream of its own. All of that is true of everything
that the heap writes, so that the right cut is always among those that fit: if only one fits, it is
the right one. If two fit, the file does not determine which, and it is refused.

This is true of undamaged files: in a damaged one a wrong cut may be the only one that fits.

Each entry but the last is one of a chain of places where an entry may begin. Of a state with n
entries the cut is settled if the longest chain has n places, and there is one such. Finding that
takes one pass over the bytes of the key group for each state of this kind.

Source: `HeapSnapshotStrategy`, which iterates over the same map for each key group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from statelake.state_core.bounds import RECOVERY_WORK
from statelake.state_core.errors import (
    CorruptSnapshotError,
    SnapshotError,
    StateError,
    UnknownEndError,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.key_groups import key_group_of
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import I64Array

HEAD = 6  # i16 state id, i32 number of entries
_WHY = "of which only their class knows where they end"
_MORE_WAYS = f"values {_WHY}: they can be cut in more ways than one"
_NO_WAY = f"values {_WHY}, and entries that fit together in no way"
MOST_WAYS = 64  # that are compared


class AmbiguousError(CorruptSnapshotError):
    """Bytes that can be cut in several ways, or in no way."""


class Chains:
    """Chains of places at which entries may begin, with a given first place.

    Args:
        starts: The places, ascending; the first is where the first entry begins.
        bodies: The end of an entry's known part at each place: its value begins there.
    """

    def __init__(self, starts: Sequence[int], bodies: Sequence[int]) -> None:
        self.starts = starts
        self.longest = [0] * len(starts)
        self.ways = [0] * len(starts)
        self.before = [-1] * len(starts)
        waiting = sorted(range(len(starts)), key=bodies.__getitem__)
        self.ends = [bodies[place] for place in waiting]
        # for places whose known part ends that early: the longest chain, its number of ways, its
        # last place
        self.best: list[tuple[int, int, int]] = []
        sums, passed = (0, 0, -1), 0
        for place, start in enumerate(starts):
            # a known part is never empty, so one that ends by here began before
            while passed < len(waiting) and bodies[waiting[passed]] <= start:
                sums = self._with(sums, waiting[passed])
                self.best.append(sums)
                passed += 1
            length, ways, last = sums
            if place == 0:
                self.longest[place], self.ways[place] = 1, 1
            elif length:
                self.longest[place], self.ways[place] = length + 1, ways
                self.before[place] = last
        for place in waiting[passed:]:
            sums = self._with(sums, place)
            self.best.append(sums)

    def _with(self, sums: tuple[int, int, int], place: int) -> tuple[int, int, int]:
        length, ways, last = sums
        if self.longest[place] > length:
            return self.longest[place], self.ways[place], place
        if length and self.longest[place] == length:
            return length, min(2, ways + self.ways[place]), last
        return sums

    def ways_to(self, end: int, count: int) -> int:
        """Return the number of ways in which `count` entries can end here: 0, 1, or 2 for more."""
        behind = bisect_right(self.ends, end)
        length, ways, _ = self.best[behind - 1] if behind else (0, 0, -1)
        if length < count:
            return 0
        return 1 if count == 1 else ways if length == count else 2

    def cut(self, end: int, count: int) -> I64Array:
        """Return the starts of the entries, for an end with only one way."""
        if count == 1:
            return np.array(self.starts[:1], np.int64)
        place = self.best[bisect_right(self.ends, end) - 1][2]
        starts = []
        while place >= 0:
            starts.append(self.starts[place])
            place = self.before[place]
        return np.array(starts[::-1], np.int64)


@dataclass(frozen=True)
class StateCut:
    """The entries of one state.

    Attributes:
        state: Its id.
        start: The start of its first entry.
        end: The end of its last entry.
        count: The number of entries.
        chains: The places where they may begin, if only their class can walk its values; otherwise
            None.
    """

    state: int
    start: int
    end: int
    count: int
    chains: Chains | None = None

    @property
    def ways(self) -> int:
        """Return the number of ways to cut the entries: 0, 1, or 2 for more."""
        return 1 if self.chains is None else self.chains.ways_to(self.end, self.count)

    @cached_property
    def starts(self) -> I64Array | None:
        """Return the start of each entry if only their class walks its values; otherwise None."""
        return None if self.chains is None else self.chains.cut(self.end, self.count)


def entry_starts(
    data: bytes,
    parts: tuple[TypeSerializer, TypeSerializer],
    group: int,
    max_parallelism: int,
    *,
    counted: bool = False,
) -> tuple[list[int], list[int]]:
    """Return the places where entries may begin, and the start of each one's unknown part.

    Args:
        data: The key group's content.
        parts: The serializers of namespace and key.
        group: The key group of the keys.
        max_parallelism: The number of key groups.
        counted: Whether the number of elements follows the key, as in lists and maps.

    Raises:
        AmbiguousError: Finding them takes too much work.
    """
    namespace, key = parts
    source, read, most = DataInput(data, ""), 0, RECOVERY_WORK.most * (len(data) + HEAD)
    starts, bodies = [], []
    positions: Iterable[int] = range(len(data))
    if isinstance(namespace, VoidNamespaceSerializer):
        positions = np.flatnonzero(np.frombuffer(data, np.uint8) == 0).tolist()
    for position in positions:
        source.position = position
        try:
            namespace.skip(source)
            fits = _is_of_group(key, source, group, max_parallelism)
            fits = fits and not (counted and source.read_int() < 0)
        except (CorruptSnapshotError, UnknownEndError):
            fits = False
        read += source.position - position
        if read > most:
            raise AmbiguousError(f"values {_WHY}, and too many places where they might")
        if fits and source.position > position:
            starts.append(position)
            bodies.append(source.position)
    return starts, bodies


def _is_of_group(key: TypeSerializer, source: DataInput, group: int, max_parallelism: int) -> bool:
    """Skip a key; return whether it may belong to the key group.

    Raises:
        CorruptSnapshotError: These bytes are not a key.
    """
    begin = source.position
    try:
        return key_group_of(key.hash_code_at(source), max_parallelism) == group
    except CorruptSnapshotError:
        raise
    except (StateError, ValueError, ArithmeticError):  # an unknown hash excludes nothing
        source.position = begin
        key.skip(source)
        return True


def recover_states(
    data: bytes,
    opaque: Collection[int],
    states: int,
    walk: Callable[[int, int, int], int | None],
    places: Callable[[int], tuple[list[int], list[int]]],
    order: Sequence[int] = (),
    borders: Sequence[int] = (),
    lost: list[SnapshotError] | None = None,
) -> list[StateCut]:
    """Return the entries of all states of a key group.

    Args:
        data: The key group's content.
        opaque: The ids of states whose values only their class can walk.
        states: The number of states.
        walk: Returns the end of another state's entries, given its id, their start and number; None
            if they can't begin there.
        places: Given the id of an opaque state, as `entry_starts`.
        order: The ids of all states in the order of the file, if that is known.
        borders: The start of each state, if it is known.
        lost: Receives the error if there are several ways or none; then only the states that are
            cut equally in all ways are returned. Without it, the error is raised.

    Raises:
        AmbiguousError: They can be cut in two ways, or in no way, or finding out takes too much
            work.
    """
    search = _EntrySearch(data, frozenset(opaque), states, walk, places, order, borders)
    return search.run() if lost is None else search.sure(lost)


@dataclass
class _EntrySearch:
    data: bytes
    opaque: frozenset[int]
    states: int
    walk: Callable[[int, int, int], int | None]
    places: Callable[[int], tuple[list[int], list[int]]]
    order: Sequence[int]
    borders: Sequence[int]
    path: list[StateCut] = field(default_factory=list)  # the states so far, each at most once
    taken: set[int] = field(default_factory=set)
    work: int = 0

    def run(self) -> list[StateCut]:
        """Return the only way to cut the key group."""
        way: list[StateCut] | None = None
        for cuts in self._ways():
            if way or any(part.ways > 1 for part in cuts):
                raise AmbiguousError(_MORE_WAYS)
            way = cuts
        if not way:
            raise AmbiguousError(_NO_WAY)
        return way

    def sure(self, lost: list[SnapshotError]) -> list[StateCut]:
        """Return the states that are cut alike in every way; before any way, the first ones."""
        alike: dict[tuple[int, int, int, int], StateCut] = {}
        problem: SnapshotError = AmbiguousError(_NO_WAY)
        try:
            for number, way in enumerate(self._ways()):
                if number == MOST_WAYS:
                    alike, problem = {}, AmbiguousError(_MORE_WAYS)
                    break
                places = {(cut.state, cut.start, cut.end, cut.count): cut for cut in way}
                alike = {at: cut for at, cut in places.items() if not number or at in alike}
                problem = AmbiguousError(_MORE_WAYS)
        except (AmbiguousError, UnknownEndError) as error:
            alike, problem = {}, error
        cuts = [cut for cut in alike.values() if cut.ways == 1] if alike else list(self._first())
        if len(cuts) < self.states:
            lost.append(problem)
        return cuts

    def _first(self) -> Iterator[StateCut]:
        """Yield the states before the first one whose end is not known."""
        self.path.clear()
        self.taken.clear()
        self.work = 0
        try:
            while len(self.path) < self.states:
                at = self.path[-1].end if self.path else 0
                head = self._head(at)
                if head is None or (head[0] in self.opaque and head[1]):
                    return
                cut = next(self._nexts(at), None)
                if cut is None:
                    return
                yield cut
                self.path.append(cut)
                self.taken.add(cut.state)
        except (AmbiguousError, UnknownEndError):
            return

    def _ways(self) -> Iterator[list[StateCut]]:
        """Yield each way to cut the key group, by depth-first search."""
        nexts = [self._nexts(0)]
        while nexts:
            cut = next(nexts[-1], None)
            if cut is None:
                nexts.pop()
                if self.path:
                    self.taken.remove(self.path.pop().state)
                continue
            self._spend(HEAD)
            if len(self.path) + 1 < self.states:
                self.path.append(cut)
                self.taken.add(cut.state)
                nexts.append(self._nexts(cut.end))
            elif cut.end == len(self.data):
                yield [*self.path, cut]

    def _nexts(self, at: int) -> Iterator[StateCut]:
        """Yield the possible states that begin here."""
        head = self._head(at)
        if head is None:
            return
        state, count = head
        begin = at + HEAD
        if not count:
            yield StateCut(state, begin, begin, 0)
        elif state not in self.opaque:
            end = self.walk(state, begin, count)
            self._spend((len(self.data) if end is None else end) - begin)
            if end is not None:
                yield StateCut(state, begin, end, count)
        else:
            yield from self._opaque(state, begin, count)

    def _opaque(self, state: int, begin: int, count: int) -> Iterator[StateCut]:
        starts, bodies = self.places(state)
        first = bisect_left(starts, begin)
        if first == len(starts) or starts[first] != begin:
            return
        self._spend(len(self.data) - begin)
        chains = Chains(starts[first:], bodies[first:])
        for end in self._ends(state, bodies[first]):
            cut = StateCut(state, begin, end, count, chains)
            if cut.ways:
                yield cut

    def _ends(self, state: int, begin: int) -> Iterable[int]:
        """Return the possible ends of a state's entries: the end, or the head of another state."""
        if len(self.path) + 1 == self.states:
            return (len(self.data),)
        if self.borders:
            return self.borders[len(self.path) + 1 : len(self.path) + 2]
        heads = range(begin, len(self.data) - HEAD + 1)
        depth = len(self.path) + 1
        return (end for end in heads if self._head(end, depth, state) is not None)

    def _head(self, at: int, depth: int | None = None, before: int = -1) -> tuple[int, int] | None:
        """Return the id and number of entries of a state that may begin here, behind `before`."""
        depth = len(self.path) if depth is None else depth
        if at + HEAD > len(self.data) or (self.borders and self.borders[depth] != at):
            return None
        state = int.from_bytes(self.data[at : at + 2], "big")
        count = int.from_bytes(self.data[at + 2 : at + HEAD], "big")
        expected = state == self.order[depth] if self.order else state < self.states
        if not expected or state in self.taken or state == before:
            return None
        return None if count > len(self.data) - at - HEAD else (state, count)

    def _spend(self, size: int) -> None:
        self.work += size + HEAD
        most = RECOVERY_WORK.most * (len(self.data) + HEAD)
        if self.work > most:
            raise AmbiguousError(f"values {_WHY}, and too many places where they might")
