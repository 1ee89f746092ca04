"""Restored states that are asked for as something else: migrated, or refused, as Flink would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake.state_core.errors import CorruptSnapshotError, DeclarationError, IncompatibleError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
    restore_backend,
)
from statelake.state_core.runtime.declarations import StateDeclarations
from tests.support.jobs.backend_cases import MakeBackend, descriptor

ALL = KeyGroupRange(0, 127)
OLD = {"pojo": "some.Class", "fields": {"a": "int", "b": "String", "c": "long"}}
NEW = {"pojo": "some.Class", "fields": {"c": "long", "b": "String", "d": "double"}}
BEFORE = {"a": 1, "b": "x", "c": 7}
BEHIND = {"b": "x", "c": 7, "d": 0.0}
COLORS = {"enum": "some.Color", "constants": ["RED", "BLUE"]}
MORE_COLORS = {"enum": "some.Color", "constants": ["BLUE", "GREEN", "RED"]}


def moved(
    backend: KeyedStateBackend, make: MakeBackend, directory: Path, key: str = "String"
) -> KeyedStateBackend:
    """A backend that is restored of another's savepoint."""
    where = Directory(directory)
    handle = backend.snapshot(where).run()
    again = make(BackendConfiguration(key, ALL, 128))
    restore_backend(again, [handle], where)
    return again


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_a_pojo_may_gain_and_lose_fields(
    kind: str, backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Values, elements and map values are read as they were and written as they are to be."""
    user_key = "String" if kind == "map" else ""
    state: Any = backend.state(StateDescriptor("s", StateKind(kind), OLD, user_key))
    backend.set_current_key("k")
    if kind == "map":
        state.put_all({"u": BEFORE, "n": None})
    elif kind == "list":
        state.add_all([BEFORE, BEFORE])
    else:
        state.update(BEFORE)
    with moved(backend, make_backend, tmp_path) as again:
        after: Any = again.state(StateDescriptor("s", StateKind(kind), NEW, user_key))
        again.set_current_key("k")
        found = after.value() if kind == "value" else None
        if kind != "value":
            found = dict(after.entries()) if kind == "map" else after.get()
        assert found == {"map": {"u": BEHIND, "n": None}, "list": [BEHIND, BEHIND]}.get(
            kind, BEHIND
        )


def test_an_enum_may_be_reordered(
    backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Where Flink reconfigures a serializer, the values are still the same ones."""
    state: Any = backend.state(StateDescriptor("s", StateKind.VALUE, COLORS))
    for color in COLORS["constants"]:
        backend.set_current_key(color)
        state.update(color)
    with moved(backend, make_backend, tmp_path) as again:
        after: Any = again.state(StateDescriptor("s", StateKind.VALUE, MORE_COLORS))
        for color in COLORS["constants"]:
            again.set_current_key(color)
            assert after.value() == color
        again.set_current_key("new")
        after.update("GREEN")
        assert after.value() == "GREEN"


def test_what_can_not_follow_is_refused(
    backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Another type, kind, namespace or user key; and the state stays what it was."""
    backend.set_current_key("k")
    value: Any = backend.state(descriptor("value", name="s"))
    value.update(5)
    entries: Any = backend.state(descriptor("map", name="m"))
    entries.put("u", 1)
    with moved(backend, make_backend, tmp_path) as again:
        for name, kind, of, user_key, namespace in (
            ("s", StateKind.VALUE, "String", "", "VoidNamespace"),
            ("s", StateKind.LIST, "Long", "", "VoidNamespace"),
            ("s", StateKind.VALUE, "Long", "", "TimeWindow"),
            ("m", StateKind.MAP, "Long", "Long", "VoidNamespace"),
        ):
            with pytest.raises(IncompatibleError, match=f"state '{name}'"):
                again.state(StateDescriptor(name, kind, of, user_key), namespace)
        again.set_current_key("k")
        same: Any = again.state(descriptor("value", name="s"))
        assert same.value() == 5


def test_keys_of_another_type_are_refused(
    backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Before any entry is read."""
    backend.state(descriptor("value"))
    with pytest.raises(IncompatibleError, match="the key"):
        moved(backend, make_backend, tmp_path, "Long")


def test_timers_of_another_namespace_are_refused(
    backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """A service keeps the type of its windows."""
    backend.set_current_key("k")
    backend.timer_service().register_event_time(5)
    with moved(backend, make_backend, tmp_path) as again:
        with pytest.raises(IncompatibleError, match="timer"):
            again.timer_queue("event", namespace="TimeWindow")
        assert [timer.timestamp for timer in again.timer_queue("event")] == [5]


def test_a_damaged_file_is_an_error(
    backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Bytes that are no entries are not taken for some."""
    state: Any = backend.state(descriptor("map"))
    for number in range(50):
        backend.set_current_key(str(number))
        state.put("u", number)
    where = Directory(tmp_path)
    handle: Any = backend.snapshot(where).run()
    path = tmp_path / handle.stream.path
    data = bytearray(path.read_bytes())
    at = next(offset for offset in handle.offsets if offset) + 2
    data[at : at + 4] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    again = make_backend(BackendConfiguration("String", ALL, 128))
    with again, pytest.raises(CorruptSnapshotError):
        restore_backend(again, [handle], where)


def test_a_restore_comes_first(
    backend: KeyedStateBackend, make_backend: MakeBackend, tmp_path: Path
) -> None:
    """Behind the first use of a state it is refused: it would be two states' entries in one."""
    state: Any = backend.state(descriptor("value"))
    backend.set_current_key("k")
    state.update(1)
    where = Directory(tmp_path)
    handle = backend.snapshot(where).run()
    with make_backend(BackendConfiguration("String", ALL, 128)) as again:
        again.state(descriptor("list", name="value"))
        with pytest.raises(IncompatibleError, match="used before the restore"):
            restore_backend(again, [handle], where)


def concatenated(first: str, two: str) -> str:
    """Of two values."""
    return first + two


def test_declared_states_are_asked_for_as_they_are_declared(backend: KeyedStateBackend) -> None:
    """A declaration becomes the descriptor of its kind, types, function and time to live."""
    declared = StateDeclarations.reducing_state_builder("text", "String", concatenated).build()
    state: Any = backend.state(StateDescriptor.from_declaration(declared))
    backend.set_current_key("k")
    state.add("a")
    state.add("b")
    assert state.get() == "ab"
    mapped = StateDeclarations.map_state("m", "String", "Long")
    entries: Any = backend.state(StateDescriptor.from_declaration(mapped))
    entries.put("u", 3)
    assert entries.get("u") == 3
    shared = StateDeclarations.map_state_builder("b", "String", "Long").broadcast().build()
    with pytest.raises(DeclarationError, match="not keyed state"):
        StateDescriptor.from_declaration(shared)
