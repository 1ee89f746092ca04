"""Queues of timers: the least comes first, and none is there twice.

A timer is its bytes, time, key and namespace, in which the sign bit of the time is flipped; so the
order of bytes is that of times. The timers of a key group are the keys of a table, whose snapshots
are those of the backend; what a queue adds is which of them is the least.

Source: `HeapPriorityQueueSet`, `RocksDBCachingPriorityQueueSet`,
`KeyGroupPartitionedPriorityQueue` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import Protocol

from state_core.backends.states.tables import ValueTable
from state_core.model.handles import KeyGroupRange

__all__ = ["HeapTimerQueue", "OrderedTable", "OrderedTimerQueue", "TimerElements"]

NOTHING = b""
CACHED = 128
SLACK = 64  # what may lie in a heap beside what counts before it is made anew


class TimerElements(Protocol):
    """A queue of timers as bytes."""

    def add(self, group: int, element: bytes) -> None:
        """Put a timer in; again is nothing."""

    def remove(self, group: int, element: bytes) -> None:
        """Take a timer out, if it is there."""

    def peek(self) -> tuple[int, bytes] | None:
        """The least timer with its key group."""

    def reload(self) -> None:
        """The table was changed behind the queue."""


class HeapTimerQueue:
    """A heap over all key groups. What was removed stays in it until it comes up.

    Args:
        table: Holds the timers.
        key_groups: Those of this subtask.
    """

    def __init__(self, table: ValueTable, key_groups: KeyGroupRange) -> None:
        self.table = table
        self.key_groups = key_groups
        self._heap: list[tuple[bytes, int]] = []
        self.reload()

    def reload(self) -> None:
        """Begin anew with what the table has."""
        groups = range(self.key_groups.first, self.key_groups.last + 1)
        self._heap = [(element, group) for group in groups for element in self.table.keys(group)]
        heapify(self._heap)
        self._count = len(self._heap)

    def add(self, group: int, element: bytes) -> None:
        """Put a timer in."""
        if self.table.get(group, element) is None:
            self.table.put(group, element, NOTHING)
            heappush(self._heap, (element, group))
            self._count += 1
            if len(self._heap) > 2 * self._count + SLACK:
                self.reload()

    def remove(self, group: int, element: bytes) -> None:
        """Take a timer out."""
        if self.table.get(group, element) is not None:
            self.table.remove(group, element)
            self._count -= 1

    def peek(self) -> tuple[int, bytes] | None:
        """The least that the table still has."""
        heap = self._heap
        while heap:
            element, group = heap[0]
            if self.table.get(group, element) is not None:
                return group, element
            heappop(heap)
        return None


class OrderedTable(ValueTable, Protocol):
    """A table whose keys are in order."""

    def first_keys(self, group: int, count: int) -> list[bytes]:
        """The least keys of a key group."""


class OrderedTimerQueue:
    """The least timers of each key group in memory, the rest in a table that is in order.

    Args:
        table: Holds all timers.
        key_groups: Those of this subtask.
        cached: How many of a key group are held in memory.
    """

    def __init__(
        self, table: OrderedTable, key_groups: KeyGroupRange, cached: int = CACHED
    ) -> None:
        self.table = table
        self.key_groups = key_groups
        self.cached = cached
        self._least: list[list[bytes]] = []
        self._whole: list[bool] = []
        self._heads: list[tuple[bytes, int]] = []
        self.reload()

    def reload(self) -> None:
        """Begin anew with what the table has."""
        count = len(self.key_groups)
        self._least, self._whole, self._heads = [[] for _ in range(count)], [False] * count, []
        for index in range(count):
            self._fill(index)

    def add(self, group: int, element: bytes) -> None:
        """Put a timer in."""
        self.table.put(group, element, NOTHING)
        index = group - self.key_groups.first
        held = self._least[index]
        if held and element > held[-1] and not self._whole[index]:
            return
        at = bisect_left(held, element)
        if at < len(held) and held[at] == element:
            return
        held.insert(at, element)
        if len(held) > self.cached:
            held.pop()
            self._whole[index] = False
        if at == 0:
            self._push(element, group)

    def remove(self, group: int, element: bytes) -> None:
        """Take a timer out."""
        self.table.remove(group, element)
        index = group - self.key_groups.first
        held = self._least[index]
        at = bisect_left(held, element)
        if at == len(held) or held[at] != element:
            return
        del held[at]
        if not held:
            self._fill(index)
        elif at == 0:
            self._push(held[0], group)

    def peek(self) -> tuple[int, bytes] | None:
        """The least of the least."""
        heads = self._heads
        while heads:
            element, group = heads[0]
            held = self._least[group - self.key_groups.first]
            if held and held[0] == element:
                return group, element
            heappop(heads)
        return None

    def _fill(self, index: int) -> None:
        """Read a key group's least timers."""
        if self._whole[index]:
            return
        group = self.key_groups.first + index
        held = self._least[index] = self.table.first_keys(group, self.cached)
        self._whole[index] = len(held) < self.cached
        if held:
            self._push(held[0], group)

    def _push(self, element: bytes, group: int) -> None:
        heappush(self._heads, (element, group))
        if len(self._heads) > 2 * len(self._least) + SLACK:
            first = self.key_groups.first
            self._heads = [(held[0], first + i) for i, held in enumerate(self._least) if held]
            heapify(self._heads)
