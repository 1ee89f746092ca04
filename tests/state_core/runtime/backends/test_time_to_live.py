"""Time to live on every backend: who is seen, who lives on, who is gone; by the backend's clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
    restore_backend,
)
from statelake.state_core.runtime.backends.states.states import written
from statelake.state_core.runtime.declarations import StateTtlConfig
from tests.support.jobs.backend_cases import (
    Clock,
    MakeBackend,
    descriptor,
    time_to_live,
)

LIFE = 100
KINDS = ("value", "list", "map", "reducing", "aggregating")
LISTED = {"list": ["1"], "aggregating": 1.0}


def put(kind: str, state: Any, number: int) -> None:
    """A number into a state."""
    if kind == "value":
        state.update(number)
    elif kind == "map":
        state.put("k", number)
    else:
        state.add(str(number) if kind == "list" else number)


def got(kind: str, state: Any) -> Any:
    """What a state says; None for nothing."""
    if kind == "value":
        return state.value()
    return state.get("k") if kind == "map" else state.get() or None


def asked(backend: KeyedStateBackend, kind: str, ttl: StateTtlConfig) -> Any:
    """A state of the key `a`."""
    state = backend.state(descriptor(kind, ttl))
    backend.set_current_key("a")
    return state


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_lives_until_its_time_is_over(
    kind: str, backend: KeyedStateBackend, clock: Clock
) -> None:
    """It is there a millisecond before, not at, the end; and then it is removed, not hidden."""
    state = asked(backend, kind, time_to_live(LIFE))
    put(kind, state, 1)
    clock.now += LIFE - 1
    assert got(kind, state) == LISTED.get(kind, 1)
    clock.now += 1
    assert list(backend.keys(kind)) == ["a"]
    assert got(kind, state) is None
    assert list(backend.keys(kind)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_read", [False, True])
def test_reading_renews_only_if_it_is_to(
    kind: str, on_read: bool, backend: KeyedStateBackend, clock: Clock
) -> None:
    """`OnReadAndWrite` counts a read as access, `OnCreateAndWrite` does not."""
    state = asked(backend, kind, time_to_live(LIFE, on_read=on_read))
    put(kind, state, 1)
    clock.now += LIFE - 1
    assert got(kind, state) is not None
    clock.now += LIFE - 1
    assert (got(kind, state) is not None) == on_read
    if on_read:
        clock.now += LIFE
        assert got(kind, state) is None


def test_reading_renews_null_too(backend: KeyedStateBackend, clock: Clock) -> None:
    """Flink writes it with its time, if the value's serializer writes null."""
    state: Any = backend.state(
        StateDescriptor("v", StateKind.VALUE, "String", ttl=time_to_live(LIFE, on_read=True))
    )
    backend.set_current_key("a")
    state.update("x")
    group = backend.context.group
    (key,) = state.table.keys(group)
    null = {"ttl": clock.now, "value": None}
    state.table.put(group, key, written(state.serializer, null))
    clock.now += LIFE - 1
    assert state.value() is None
    assert list(backend.keys("v")) == ["a"]
    clock.now += LIFE
    assert state.value() is None
    assert list(backend.keys("v")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_writing_renews(kind: str, backend: KeyedStateBackend, clock: Clock) -> None:
    """A write gives what is written a life of its own; of a list, only to the new element."""
    state = asked(backend, kind, time_to_live(LIFE))
    put(kind, state, 1)
    clock.now += LIFE - 1
    put(kind, state, 2)
    clock.now += LIFE - 1
    wanted = {"list": ["2"], "reducing": 3, "aggregating": 1.5}
    assert got(kind, state) == wanted.get(kind, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_what_expired_may_be_seen_once(kind: str, backend: KeyedStateBackend, clock: Clock) -> None:
    """`ReturnExpiredIfNotCleanedUp`: met once more, and cleaned up by that."""
    state = asked(backend, kind, time_to_live(LIFE, return_expired=True))
    put(kind, state, 1)
    clock.now += 5 * LIFE
    assert got(kind, state) == LISTED.get(kind, 1)
    assert got(kind, state) is None


@pytest.mark.parametrize("kind", ["reducing", "aggregating"])
def test_the_dead_count_for_nothing(kind: str, backend: KeyedStateBackend, clock: Clock) -> None:
    """What is added to a dead value or accumulator begins anew."""
    state = asked(backend, kind, time_to_live(LIFE))
    put(kind, state, 100)
    clock.now += LIFE
    put(kind, state, 2)
    put(kind, state, 4)
    assert got(kind, state) == {"reducing": 6, "aggregating": 3.0}[kind]


def test_elements_and_entries_die_one_by_one(backend: KeyedStateBackend, clock: Clock) -> None:
    """A list's elements and a map's entries have their own times."""
    items = asked(backend, "list", time_to_live(LIFE))
    entries = asked(backend, "map", time_to_live(LIFE))
    items.add_all(["old", "older"])
    entries.put_all({"old": 1, "older": 2})
    clock.now += LIFE // 2
    items.add("new")
    entries.put("new", 3)
    entries.put("old", 4)
    clock.now += LIFE // 2
    assert items.get() == ["new"]
    assert sorted(entries.entries()) == [("new", 3), ("old", 4)]
    assert not entries.contains("older")
    assert sorted(entries.keys()) == ["new", "old"]
    assert sorted(entries.values()) == [3, 4]
    clock.now += LIFE // 2
    assert items.get() == []
    assert not entries.is_empty()
    assert list(entries.entries()) == []
    assert entries.is_empty()


def test_lists_with_times_have_no_null(backend: KeyedStateBackend) -> None:
    """As those without."""
    items = asked(backend, "list", time_to_live(LIFE))
    with pytest.raises(EncodeError, match="null"):
        items.add(None)
    items.update(["x"])
    items.update([])
    assert items.get() == []


@pytest.mark.parametrize("kind", ["reducing", "aggregating", "list"])
def test_namespaces_merge_what_lives(kind: str, backend: KeyedStateBackend, clock: Clock) -> None:
    """A dead source adds nothing to the target."""
    state = backend.state(descriptor(kind, time_to_live(LIFE)), "String")
    assert not isinstance(state, int)
    backend.set_current_key("a")
    held: Any = state
    held.set_current_namespace("dead")
    put(kind, held, 50)
    clock.now += LIFE - 1
    for namespace, number in (("living", 1), ("target", 3)):
        held.set_current_namespace(namespace)
        put(kind, held, number)
    clock.now += 1
    held.merge_namespaces("target", ["dead", "living"])
    held.set_current_namespace("target")
    assert got(kind, held) == {"list": ["3", "1"], "reducing": 4, "aggregating": 2.0}[kind]
    assert list(backend.keys(kind, "dead")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_times_are_restored(
    kind: str, backend: KeyedStateBackend, make_backend: MakeBackend, clock: Clock, tmp_path: Path
) -> None:
    """Behind a restore a value lives as long as it would have."""
    put(kind, asked(backend, kind, time_to_live(LIFE)), 1)
    directory = Directory(tmp_path)
    handle = backend.snapshot(directory).run()
    for later, lives in ((LIFE - 1, True), (LIFE, False)):
        then = Clock(clock.now + later)
        configuration = BackendConfiguration("String", KeyGroupRange(0, 127), 128, clock=then)
        with make_backend(configuration) as again:
            restore_backend(again, [handle], directory)
            assert (got(kind, asked(again, kind, time_to_live(LIFE))) is not None) == lives


@pytest.mark.parametrize("kind", KINDS)
def test_time_to_live_may_be_switched_on_and_off(
    kind: str, backend: KeyedStateBackend, make_backend: MakeBackend, clock: Clock, tmp_path: Path
) -> None:
    """Values get the time of the restore, or lose theirs; as in Flink since 2.0."""
    plain: Any = backend.state(descriptor(kind))
    backend.set_current_key("a")
    put(kind, plain, 1)
    handle: Any = None
    held = backend
    for turn, ttl in enumerate((time_to_live(LIFE), None)):
        directory = Directory(tmp_path / str(turn))
        directory.create()
        handle = held.snapshot(directory).run()
        clock.now += 10 * LIFE
        configuration = BackendConfiguration("String", KeyGroupRange(0, 127), 128, clock=clock)
        held = make_backend(configuration)
        restore_backend(held, [handle], directory)
        state: Any = held.state(descriptor(kind, ttl))
        held.set_current_key("a")
        assert got(kind, state) == LISTED.get(kind, 1)
        clock.now += LIFE - 1 if ttl else 10 * LIFE
        assert got(kind, state) == LISTED.get(kind, 1)
    held.close()
