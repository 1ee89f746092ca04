"""Where values end that only their class could walk, found by the structure around them.

The heap's format has no lengths. But behind a value stands what is known: the next entry's
namespace and key, whose hash code must be of this key group, or the next state's id and number of
entries; every state is there once, and the last one ends where the key group does. Where that
leaves one way to cut the bytes, it is the right one. Where it leaves two, nothing in the file says
which, and it is refused.

Each entry but the last is one of a chain of places where an entry may begin. Of a state with n
entries the cut is settled if the longest chain has n places, and there is one such. Finding that
takes one pass over the bytes of the key group for each state of this kind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from state_core.bounds import RECOVERY_WORK
from state_core.errors import CorruptSnapshotError, StateError, UnknownHashError
from state_core.files.wire import DataInput
from state_core.model.key_groups import key_group_of
from state_core.serializers.composite.namespaces import VoidNamespaceSerializer
from state_core.serializers.framework.base import TypeSerializer
from state_core.serializers.framework.columns import I64Array

__all__ = ["AmbiguousError", "Chains", "StateCut", "entry_starts", "recover_states"]

HEAD = 6  # i16 state id, i32 number of entries
_WHY = "of which only their class knows where they end"


class AmbiguousError(CorruptSnapshotError):
    """Bytes that can be cut in more ways than one, or in none."""


@dataclass(frozen=True)
class StateCut:
    """The entries of one state.

    Attributes:
        state: Its id.
        start: Where its first entry begins.
        end: Where its last entry ends.
        count: How many there are.
        starts: Where each entry begins, if only their class walks its values; else None.
    """

    state: int
    start: int
    end: int
    count: int
    starts: I64Array | None


class Chains:
    """Chains of places where entries may begin, the first of which is given.

    Args:
        starts: The places, ascending; the first is where the first entry begins.
        bodies: Where what is known of an entry at each place ends: its value begins there.
    """

    def __init__(self, starts: Sequence[int], bodies: Sequence[int]) -> None:
        self.starts = starts
        self.longest = [0] * len(starts)
        self.ways = [0] * len(starts)
        self.before = [-1] * len(starts)
        waiting = sorted(range(len(starts)), key=bodies.__getitem__)
        self.ends = [bodies[place] for place in waiting]
        # of the places whose known part ends so early: the longest chain, its ways, its last place
        self.best: list[tuple[int, int, int]] = []
        sums, taken = (0, 0, -1), 0
        for place, start in enumerate(starts):
            # a known part is never empty, so what ends by here began before
            while taken < len(waiting) and bodies[waiting[taken]] <= start:
                sums = self._with(sums, waiting[taken])
                self.best.append(sums)
                taken += 1
            length, ways, last = sums
            if place == 0:
                self.longest[place], self.ways[place] = 1, 1
            elif length:
                self.longest[place], self.ways[place] = length + 1, ways
                self.before[place] = last
        for place in waiting[taken:]:
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
        """In how many ways `count` entries can end here: 0, 1, or 2 for more."""
        behind = bisect_right(self.ends, end)
        length, ways, _ = self.best[behind - 1] if behind else (0, 0, -1)
        if length < count:
            return 0
        return 1 if count == 1 else ways if length == count else 2

    def cut(self, end: int, count: int) -> I64Array:
        """Where the entries begin, of which there is one way to end here."""
        if count == 1:
            return np.array(self.starts[:1], np.int64)
        place = self.best[bisect_right(self.ends, end) - 1][2]
        starts = []
        while place >= 0:
            starts.append(self.starts[place])
            place = self.before[place]
        return np.array(starts[::-1], np.int64)


def entry_starts(
    data: bytes,
    parts: tuple[TypeSerializer, TypeSerializer],
    group: int,
    max_parallelism: int,
) -> tuple[list[int], list[int]]:
    """Where entries may begin, and where the value would begin of each.

    Args:
        data: The key group's content.
        parts: The serializers of namespace and key.
        group: The key group that keys must be of.
        max_parallelism: How many key groups there are.

    Raises:
        AmbiguousError: It takes too much work to know.
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
            after = source.position
            try:
                of_group = key_group_of(key.hash_code_at(source), max_parallelism) == group
            except UnknownHashError:  # its class alone knows: that restricts nothing
                source.position, of_group = after, True
                key.skip(source)
        except (StateError, ValueError, ArithmeticError):
            of_group = False
        read += source.position - position
        if read > most:
            raise AmbiguousError(f"values {_WHY}, and too many places where they might")
        if of_group and source.position > position:
            starts.append(position)
            bodies.append(source.position)
    return starts, bodies


def recover_states(
    data: bytes,
    opaque: Collection[int],
    states: int,
    walk: Callable[[int, int, int], int | None],
    places: Callable[[int], tuple[list[int], list[int]]],
) -> list[StateCut]:
    """The entries of all states of a key group.

    Args:
        data: The key group's content.
        opaque: The ids of states whose values only their class walks.
        states: How many states there are.
        walk: Given the id of another state, where its entries begin and how many there are, where
            they end; None if they can't be that.
        places: Given the id of an opaque state, as `entry_starts`.

    Raises:
        AmbiguousError: They can be cut in two ways, or in none, or it takes too much work to know.
    """
    search = _Search(data, frozenset(opaque), states, walk, places)
    found = list(islice(search.cuts(0, frozenset(range(states))), 2))
    if search.ambiguous or len(found) > 1:
        raise AmbiguousError(f"values {_WHY}: they can be cut in more ways than one")
    if not found:
        raise AmbiguousError(f"values {_WHY}, and entries that fit together in no way")
    return found[0]


@dataclass
class _Search:
    data: bytes
    opaque: frozenset[int]
    states: int
    walk: Callable[[int, int, int], int | None]
    places: Callable[[int], tuple[list[int], list[int]]]
    ambiguous: bool = False
    work: int = 0

    def cuts(self, at: int, left: frozenset[int]) -> Iterator[list[StateCut]]:
        """The ways to cut the rest of the key group into the states that are left."""
        if not left:
            if at == len(self.data):
                yield []
            return
        head = self._head(at, left)
        if head is None:
            return
        state, count = head
        begin, rest = at + HEAD, left - {state}
        if not count:
            yield from self._followed(StateCut(state, begin, begin, 0, None), rest)
        elif state not in self.opaque:
            end = self.walk(state, begin, count)
            self._spend((len(self.data) if end is None else end) - begin)
            if end is not None:
                yield from self._followed(StateCut(state, begin, end, count, None), rest)
        else:
            yield from self._opaque(state, begin, count, rest)

    def _opaque(
        self, state: int, begin: int, count: int, rest: frozenset[int]
    ) -> Iterator[list[StateCut]]:
        starts, bodies = self.places(state)
        first = bisect_left(starts, begin)
        if first == len(starts) or starts[first] != begin:
            return
        self._spend(len(self.data) - begin)
        chains = Chains(starts[first:], bodies[first:])
        for end in self._ends(bodies[first], rest):
            ways = chains.ways_to(end, count)
            if not ways:
                continue
            for behind in self.cuts(end, rest):
                if ways > 1:
                    self.ambiguous = True
                    return
                yield [StateCut(state, begin, end, count, chains.cut(end, count)), *behind]

    def _ends(self, begin: int, rest: frozenset[int]) -> Iterator[int]:
        """Where the entries of a state may end: at the end, or before the head of another one."""
        if not rest:
            yield len(self.data)
            return
        for end in range(begin, len(self.data) - HEAD + 1):
            if self.ambiguous:
                return
            if self._head(end, rest) is not None:
                yield end

    def _followed(self, cut: StateCut, rest: frozenset[int]) -> Iterator[list[StateCut]]:
        for behind in self.cuts(cut.end, rest):
            yield [cut, *behind]

    def _head(self, at: int, left: frozenset[int]) -> tuple[int, int] | None:
        if at + HEAD > len(self.data):
            return None
        state = int.from_bytes(self.data[at : at + 2], "big")
        count = int.from_bytes(self.data[at + 2 : at + HEAD], "big")
        if state not in left or count > len(self.data) - at - HEAD:
            return None
        return state, count

    def _spend(self, size: int) -> None:
        self.work += size + HEAD
        most = RECOVERY_WORK.most * (len(self.data) + HEAD)
        if self.work > most:
            raise AmbiguousError(f"values {_WHY}, and too many places where they might")
