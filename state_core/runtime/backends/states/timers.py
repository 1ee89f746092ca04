"""Timers of an operator: registered under the current key, and fired in order of their times.

A service has two queues, one of event time and one of processing time, which are states of the
backend: they are in its snapshots, under the names that Flink gives them.

Source: `InternalTimerServiceImpl`, `InternalTimeServiceManagerImpl`, `TimerHeapInternalTimer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from statelake.state_core.errors import KeyGroupError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.runtime.backends.states.keys import KeyContext
from statelake.state_core.runtime.backends.states.tables import ValueTable
from statelake.state_core.runtime.backends.states.timer_queues import TimerElements
from statelake.state_core.serializers.composite.wrappers import TimerSerializer

NO_WATERMARK = -(1 << 63)


@dataclass(frozen=True)
class Timer:
    """A timer: its time, key and namespace."""

    timestamp: int
    key: Any
    namespace: Any = None


class InternalTimerQueue:
    """A queue of timers, of all keys of the subtask.

    Args:
        context: The current key, and the key groups.
        layout: The layout of timers.
        table: The table of timers.
        elements: The queue of their bytes.
    """

    def __init__(
        self,
        context: KeyContext,
        layout: KeyedLayout,
        table: ValueTable,
        elements: TimerElements,
    ) -> None:
        self.context = context
        self.table = table
        self.elements = elements
        self._serializer = TimerSerializer(layout.key, layout.namespace)

    def add(self, timer: Timer) -> None:
        """Add a timer, unless it exists."""
        self.elements.add(*self._located(timer))

    def remove(self, timer: Timer) -> None:
        """Remove a timer, if it exists."""
        self.elements.remove(*self._located(timer))

    def poll_until(self, timestamp: int) -> Timer | None:
        """Remove and return the first timer, None if it is later than `timestamp`."""
        first = self.elements.peek()
        if first is None or int.from_bytes(first[1][:8], "big") + NO_WATERMARK > timestamp:
            return None
        self.elements.remove(*first)
        return self._read(first[1])

    def __iter__(self) -> Iterator[Timer]:
        for group in self.context.key_groups:
            yield from map(self._read, self.table.keys(group))

    def __len__(self) -> int:
        return sum(1 for group in self.context.key_groups for _ in self.table.keys(group))

    def _located(self, timer: Timer) -> tuple[int, bytes]:
        current = timer.key is self.context.key and self.context.group >= 0
        group = self.context.group if current else self.context.locate(timer.key)[0]
        out = DataOutput()
        self._serializer.write((timer.timestamp, timer.key, timer.namespace), out)
        return group, out.to_bytes()

    def _read(self, element: bytes) -> Timer:
        timer = self._serializer.read(DataInput(element, "timer"))
        return Timer(timer["timestamp"], timer["key"], timer["namespace"])


class InternalTimerService:
    """The timers of one service, in event and in processing time.

    Args:
        context: The current key, which is set before a timer fires.
        event: The queue of event time.
        processing: The queue of processing time.
    """

    def __init__(
        self,
        context: KeyContext,
        event: InternalTimerQueue,
        processing: InternalTimerQueue,
    ) -> None:
        self.context = context
        self.event = event
        self.processing = processing
        self.current_watermark = NO_WATERMARK

    def register_event_time(self, timestamp: int, namespace: Any = None) -> None:
        """Call `on_event_timer` for the current key when the watermark has reached that time."""
        self.event.add(self._timer(timestamp, namespace))

    def delete_event_time(self, timestamp: int, namespace: Any = None) -> None:
        """Delete the timer of event time of the current key at that time."""
        self.event.remove(self._timer(timestamp, namespace))

    def register_processing_time(self, timestamp: int, namespace: Any = None) -> None:
        """Call `on_processing_timer` for the current key in the first run at that time or later."""
        self.processing.add(self._timer(timestamp, namespace))

    def delete_processing_time(self, timestamp: int, namespace: Any = None) -> None:
        """Delete the timer of processing time of the current key at that time."""
        self.processing.remove(self._timer(timestamp, namespace))

    def advance_watermark(self, timestamp: int) -> Iterator[Timer]:
        """Yield the timers of event time that are due, each with its key as the current one.

        Timers that are registered meanwhile and are due fire too.
        """
        self.current_watermark = timestamp
        return self._due(self.event, timestamp)

    def advance_processing_time(self, timestamp: int) -> Iterator[Timer]:
        """Yield the timers of processing time that are due, each with its key as current."""
        return self._due(self.processing, timestamp)

    def _due(self, queue: InternalTimerQueue, timestamp: int) -> Iterator[Timer]:
        while (timer := queue.poll_until(timestamp)) is not None:
            self.context.set(timer.key)
            yield timer

    def _timer(self, timestamp: int, namespace: Any) -> Timer:
        if self.context.group < 0:
            raise KeyGroupError("a timer needs a current key")
        return Timer(timestamp, self.context.key, namespace)
