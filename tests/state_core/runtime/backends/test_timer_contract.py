"""Timers on every backend: once each, in order of their times, with their keys, restored."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import KeyGroupError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    Timer,
)
from statelake.state_core.runtime.backends.heap import HeapValueTable
from statelake.state_core.runtime.backends.states.timer_queues import OrderedTimerQueue
from tests.support.jobs.backend_cases import BACKENDS, MakeBackend, restored_at

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def test_timers_fire_in_order_with_their_keys(backend: KeyedStateBackend) -> None:
    """Times of either sign and of any size; nothing later than the watermark."""
    service = backend.timer_service()
    times = [5, -5, 0, MOST, LEAST, 1 << 40, -(1 << 40), 4]
    for number, time in enumerate(times):
        backend.set_current_key(f"key {number}")
        service.register_event_time(time)
        service.register_event_time(time)
    fired = []
    for timer in service.advance_watermark(5):
        assert backend.current_key == timer.key
        fired.append((timer.timestamp, timer.key))
    assert fired == sorted((time, f"key {at}") for at, time in enumerate(times) if time <= 5)
    assert service.current_watermark == 5
    assert len(service.event) == 2
    assert [timer.timestamp for timer in service.advance_watermark(MOST)] == [1 << 40, MOST]


def test_event_and_processing_time_are_apart(backend: KeyedStateBackend) -> None:
    """Each has its own queue, under Flink's name."""
    service = backend.timer_service()
    backend.set_current_key("a")
    service.register_event_time(10)
    service.register_processing_time(20)
    assert [timer.timestamp for timer in service.processing] == [20]
    assert list(service.advance_processing_time(19)) == []
    assert list(service.advance_processing_time(20)) == [Timer(20, "a")]
    assert list(service.processing) == []
    service.delete_event_time(10)
    service.delete_processing_time(20)
    assert len(service.event) == 0
    assert set(backend.registry.states) == {
        "_timer_state/event_user-timers",
        "_timer_state/processing_user-timers",
    }


def test_timers_registered_while_firing_fire_too(backend: KeyedStateBackend) -> None:
    """As far as they are due."""
    service = backend.timer_service()
    backend.set_current_key("a")
    service.register_event_time(1)
    fired = []
    for timer in service.advance_watermark(5):
        fired.append(timer.timestamp)
        service.register_event_time(timer.timestamp + 2)
    assert fired == [1, 3, 5]
    assert list(service.event) == [Timer(7, "a")]


def test_timers_need_a_key(backend: KeyedStateBackend) -> None:
    """Without one, registering is refused."""
    with pytest.raises(KeyGroupError, match="needs a current key"):
        backend.timer_service().register_event_time(1)


def test_namespaces_of_timers(backend: KeyedStateBackend) -> None:
    """The same time in two windows is two timers."""
    service = backend.timer_service("window-timers", "TimeWindow")
    assert backend.timer_service("window-timers", "TimeWindow") is service
    windows = [{"start": 0, "end": 10}, {"start": 5, "end": 15}]
    backend.set_current_key("a")
    for window in windows:
        service.register_event_time(9, window)
    service.delete_event_time(9, {"start": 1, "end": 11})
    assert [timer.namespace for timer in service.advance_watermark(9)] == windows


@pytest.mark.parametrize("kind", sorted(BACKENDS))
def test_timers_are_restored_at_another_parallelism(
    kind: str, backend: KeyedStateBackend, tmp_path: Path
) -> None:
    """Each goes with its key group, and fires there in order."""
    service = backend.timer_service()
    for number in range(300):
        backend.set_current_key(str(number))
        service.register_event_time(number * 7919 % 1000)
    directory = Directory(tmp_path)
    handle = backend.snapshot(directory).run()
    fired = []
    for again in restored_at(BACKENDS[kind], [handle], directory, 3):
        with again:
            times = [
                (timer.timestamp, timer.key)
                for timer in again.timer_service().advance_watermark(MOST)
            ]
            assert [time for time, _ in times] == sorted(time for time, _ in times)
            fired += times
    assert sorted(fired) == sorted((n * 7919 % 1000, str(n)) for n in range(300))


def test_many_timers_of_one_key_group(make_backend: MakeBackend) -> None:
    """More than are cached: added, removed and fired in an order that is none."""
    with make_backend(BackendConfiguration("Long", KeyGroupRange(0, 0), 1)) as backend:
        queue = backend.timer_queue("event")
        for number in range(1000):
            queue.add(Timer(number * 7919 % 1000, number))
        for number in range(0, 1000, 3):
            queue.remove(Timer(number * 7919 % 1000, number))
        left = sorted((n * 7919 % 1000, n) for n in range(1000) if n % 3)
        half = len(left) // 2
        found = [queue.poll_until(MOST) for _ in range(half)]
        assert [(timer.timestamp, timer.key) for timer in found if timer] == left[:half]
        queue.add(Timer(-1, 5))
        assert queue.poll_until(-2) is None
        assert queue.poll_until(-1) == Timer(-1, 5)
        rest = [queue.poll_until(MOST) for _ in range(len(left) - half)]
        assert [(timer.timestamp, timer.key) for timer in rest if timer] == left[half:]
        assert queue.poll_until(MOST) is None


class OrderedHeapTable(HeapValueTable):
    """A table in memory that can be asked for its least keys."""

    def first_keys(self, group: int, count: int) -> list[bytes]:
        """They."""
        return sorted(self.groups[group - self.first])[:count]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("arp"), st.integers(0, 2), st.integers(0, 12)), max_size=60
    ),
    cached=st.integers(1, 4),
)
def test_a_queue_with_a_small_cache_is_a_sorted_set(
    steps: list[tuple[str, int, int]], cached: int
) -> None:
    """Adds, removals and polls, whatever of it is in memory."""
    groups = KeyGroupRange(0, 2)
    queue = OrderedTimerQueue(OrderedHeapTable(groups), groups, cached)
    model: set[tuple[bytes, int]] = set()
    for step, group, number in steps:
        element = bytes([number])
        if step == "a":
            queue.add(group, element)
            model.add((element, group))
        elif step == "r":
            queue.remove(group, element)
            model.discard((element, group))
        found = queue.peek()
        if step == "p" and found is not None:
            queue.remove(*found)
        least = min(model, default=None)
        assert found == (None if least is None else (least[1], least[0]))
        if step == "p" and least is not None:
            model.discard(least)
