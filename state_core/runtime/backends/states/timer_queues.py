"""Queues of timers: the earliest comes first, and each timer occurs once.

A timer is stored as bytes (time, key and namespace), with the sign bit of the time flipped, so that
bytes sort by time. The timers of a key group are the keys of a table, whose snapshots are those of
the backend; a queue only adds which timer is the first.

Source: `HeapPriorityQueueSet`, `RocksDBCachingPriorityQueueSet`,
`KeyGroupPartitionedPriorityQueue` in `org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import Protocol

from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.runtime.backends.states.tables import ValueTable

NOTHING = b""
CACHED = 128
SLACK = 64  # removed timers that may be in a heap before it is rebuilt


class TimerElements(Protocol):
    """A queue of timers as bytes."""

    def add(self, group: int, element: bytes) -> None:
        """Add a timer, unless it exists."""

    def remove(self, group: int, element: bytes) -> None:
        """Remove a timer, if it exists."""

    def peek(self) -> tuple[int, bytes] | None:
        """Return the first timer with its key group; None without timers."""


class HeapTimerQueue:
    """A heap over all key groups. A removed timer stays in it until it comes first.

    Args:
        table: The table of the timers.
        key_groups: The key groups of this subtask.
    """

    def __init__(self, table: ValueTable, key_groups: KeyGroupRange) -> None:
        self.table = table
        self.key_groups = key_groups
        self._heap: list[tuple[bytes, int]] = []
        self.reload()

    def reload(self) -> None:
        """Rebuild the queue from the table."""
        self._heap = [
            (element, group) for group in self.key_groups for element in self.table.keys(group)
        ]
        heapify(self._heap)
        self._count = len(self._heap)

    def add(self, group: int, element: bytes) -> None:
        """Add a timer."""
        if self.table.get(group, element) is None:
            self.table.put(group, element, NOTHING)
            heappush(self._heap, (element, group))
            self._count += 1
            if len(self._heap) > 2 * self._count + SLACK:
                self.reload()

    def remove(self, group: int, element: bytes) -> None:
        """Remove a timer."""
        if self.table.get(group, element) is not None:
            self.table.remove(group, element)
            self._count -= 1

    def peek(self) -> tuple[int, bytes] | None:
        """Return the first timer that is still in the table."""
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
        """Return the first keys of a key group, in order."""


class OrderedTimerQueue:
    """A queue of the first timers of each key group in memory, and the rest in an ordered table.

    Args:
        table: The table of all timers.
        key_groups: The key groups of this subtask.
        cached: The number of timers of a key group to keep in memory.
    """

    def __init__(
        self, table: OrderedTable, key_groups: KeyGroupRange, cached: int = CACHED
    ) -> None:
        self.table = table
        self.key_groups = key_groups
        self.cached = cached
        self._first_timers: list[list[bytes]] = []
        self._whole: list[bool] = []
        self._heads: list[tuple[bytes, int]] = []
        self.reload()

    def reload(self) -> None:
        """Rebuild the queue from the table."""
        count = len(self.key_groups)
        self._first_timers, self._whole = [[] for _ in range(count)], [False] * count
        self._heads = []
        for index in range(count):
            self._fill(index)

    def add(self, group: int, element: bytes) -> None:
        """Add a timer."""
        self.table.put(group, element, NOTHING)
        index = group - self.key_groups.first
        cached = self._first_timers[index]
        if cached and element > cached[-1] and not self._whole[index]:
            return
        at = bisect_left(cached, element)
        if at < len(cached) and cached[at] == element:
            return
        cached.insert(at, element)
        if len(cached) > self.cached:
            cached.pop()
            self._whole[index] = False
        if at == 0:
            self._push(element, group)

    def remove(self, group: int, element: bytes) -> None:
        """Remove a timer."""
        self.table.remove(group, element)
        index = group - self.key_groups.first
        cached = self._first_timers[index]
        at = bisect_left(cached, element)
        if at == len(cached) or cached[at] != element:
            return
        del cached[at]
        if not cached:
            self._fill(index)
        elif at == 0:
            self._push(cached[0], group)

    def peek(self) -> tuple[int, bytes] | None:
        """Return the first of the key groups' first timers."""
        heads = self._heads
        while heads:
            element, group = heads[0]
            cached = self._first_timers[group - self.key_groups.first]
            if cached and cached[0] == element:
                return group, element
            heappop(heads)
        return None

    def _fill(self, index: int) -> None:
        """Read the first timers of a key group."""
        if self._whole[index]:
            return
        group = self.key_groups.first + index
        cached = self._first_timers[index] = self.table.first_keys(group, self.cached)
        self._whole[index] = len(cached) < self.cached
        if cached:
            self._push(cached[0], group)

    def _push(self, element: bytes, group: int) -> None:
        heappush(self._heads, (element, group))
        if len(self._heads) > 2 * len(self._first_timers) + SLACK:
            first = self.key_groups.first
            self._heads = [
                (cached[0], first + i) for i, cached in enumerate(self._first_timers) if cached
            ]
            heapify(self._heads)
