"""What every backend does with every kind of state: the edges that Flink has, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from statelake.state_core.errors import (
    DeclarationError,
    EncodeError,
    IncompatibleError,
    KeyGroupError,
    NotFoundError,
)
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import key_group_of, key_groups_of_hashes
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
)
from statelake.state_core.runtime.backends.heap import HeapValueTable
from statelake.state_core.runtime.backends.states import keys as keys_module
from statelake.state_core.runtime.backends.states.tables import FLUSHED_LISTS, ListTable
from tests.support.jobs.backend_cases import MakeBackend, descriptor

KINDS = ("value", "list", "map", "reducing", "aggregating")


@pytest.fixture
def state(backend: KeyedStateBackend) -> Callable[..., Any]:
    """A state of a kind, of the key `a`."""

    def made(kind: str, namespace: str = "VoidNamespace") -> Any:
        backend.set_current_key("a")
        return backend.state(descriptor(kind), namespace)

    return made


def test_a_value_is_there_until_it_is_null(state: Callable[..., Any]) -> None:
    """Nothing before an update, the value behind it, nothing after null or a clear."""
    value = state("value")
    assert value.value() is None
    value.update(7)
    assert value.value() == 7
    value.update(None)
    assert value.value() is None
    value.update(8)
    value.clear()
    assert value.value() is None


def test_keys_do_not_see_each_other(backend: KeyedStateBackend, state: Callable[..., Any]) -> None:
    """Every kind of state is one of the current key."""
    value, items = state("value"), state("list")
    value.update(1)
    items.add("of a")
    backend.set_current_key("b")
    assert value.value() is None
    assert items.get() == []
    value.update(2)
    backend.set_current_key("a")
    assert (value.value(), items.get(), backend.current_key) == (1, ["of a"], "a")


def test_a_list_of_nothing_is_no_list(
    backend: KeyedStateBackend, state: Callable[..., Any]
) -> None:
    """Adding nothing changes nothing, updating by nothing clears; the key is gone."""
    items = state("list")
    items.add_all([])
    assert items.get() == []
    assert list(backend.keys("list")) == []
    items.add("x")
    items.add_all(["y", "", "a,b"])
    assert items.get() == ["x", "y", "", "a,b"]
    items.update(["z"])
    assert items.get() == ["z"]
    items.update([])
    assert items.get() == []
    assert list(backend.keys("list")) == []


def test_a_list_has_no_null(state: Callable[..., Any]) -> None:
    """A null element is refused, whichever way it comes, and the list stays."""
    items = state("list")
    items.add("x")
    for change in (lambda: items.add(None), lambda: items.add_all(["y", None]),
                   lambda: items.update([None])):  # fmt: skip
        with pytest.raises(EncodeError, match="state 'list'"):
            change()
    assert items.get() == ["x"]


def test_a_map_may_hold_null(backend: KeyedStateBackend, state: Callable[..., Any]) -> None:
    """A null value is there, and a key that was removed is not."""
    entries = state("map")
    assert entries.is_empty()
    entries.put("x", None)
    entries.put_all({"y": 1, "z": 2})
    assert entries.get("x") is None
    assert entries.contains("x")
    assert not entries.contains("nothing")
    assert sorted(entries.entries()) == [("x", None), ("y", 1), ("z", 2)]
    assert sorted(entries.keys()) == ["x", "y", "z"]
    assert sorted(entries.values(), key=str) == [1, 2, None]
    entries.remove("y")
    entries.remove("nothing")
    assert not entries.contains("y")
    entries.remove("x")
    entries.remove("z")
    assert entries.is_empty()
    assert list(backend.keys("map")) == []


def test_a_map_may_change_while_it_is_walked(state: Callable[..., Any]) -> None:
    """What was begun is walked to its end, as it was."""
    entries = state("map")
    entries.put_all((str(index), index) for index in range(20))
    for user_key, _ in entries.entries():
        entries.remove(user_key)
    assert entries.is_empty()


def test_maps_of_keys_that_begin_alike_are_apart(
    backend: KeyedStateBackend, state: Callable[..., Any]
) -> None:
    """Clearing one key's map leaves that of a key whose bytes begin in the same way."""
    entries = state("map")
    keys = ["", "a", "a\0", "ab", "b", "aa", "\0"]
    for key in keys:
        backend.set_current_key(key)
        entries.put_all({"u": 1, key: 2})
    backend.set_current_key("a")
    entries.clear()
    assert entries.is_empty()
    for key in keys:
        backend.set_current_key(key)
        assert entries.is_empty() == (key == "a")
        assert key == "a" or entries.get(key) == 2
    assert sorted(backend.keys("map")) == sorted(set(keys) - {"a"})


def test_reducing_and_aggregating_call_their_functions(state: Callable[..., Any]) -> None:
    """Nothing before the first, the function's result behind it, nothing after null."""
    summed, mean = state("reducing"), state("aggregating")
    assert (summed.get(), mean.get()) == (None, None)
    for number in (1, 2, 6):
        summed.add(number)
        mean.add(number)
    assert (summed.get(), mean.get()) == (9, 3.0)
    summed.add(None)
    mean.add(None)
    assert (summed.get(), mean.get()) == (None, None)


def put(kind: str, held: Any, number: int) -> None:
    """A number into a state of a kind."""
    if kind == "value":
        held.update(number)
    elif kind == "map":
        held.put("k", number)
    else:
        held.add(str(number) if kind == "list" else number)


def got(kind: str, held: Any) -> Any:
    """What `put` has put."""
    if kind == "value":
        return held.value()
    return held.get("k") if kind == "map" else held.get()


@pytest.mark.parametrize("kind", KINDS)
def test_namespaces_are_apart(
    kind: str, backend: KeyedStateBackend, state: Callable[..., Any]
) -> None:
    """What is put into one namespace is not in another; keys are listed by namespace."""
    held = state(kind, "TimeWindow")
    windows = [{"start": at, "end": at + 10} for at in (-10, 0, 10)]
    for number, window in enumerate(windows[:2]):
        held.set_current_namespace(window)
        put(kind, held, number + 1)
    seen = []
    for window in windows:
        held.set_current_namespace(window)
        seen.append(got(kind, held))
    assert seen == ([["1"], ["2"], []] if kind == "list" else [1, 2, None])
    assert list(backend.keys(kind, windows[0])) == ["a"]
    assert list(backend.keys(kind, windows[2])) == []


def test_keys_and_namespaces_of_any_length_are_told_apart(backend: KeyedStateBackend) -> None:
    """Where both are of variable size, lengths keep `a` in `bc` from being `ab` in `c`."""
    entries: Any = backend.state(descriptor("map"), "String")
    pairs = [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc"), ("x" * 300, "y" * 70_000)]
    for number, (key, namespace) in enumerate(pairs):
        backend.set_current_key(key)
        entries.set_current_namespace(namespace)
        entries.put(key + namespace, number)
    for number, (key, namespace) in enumerate(pairs):
        backend.set_current_key(key)
        entries.set_current_namespace(namespace)
        assert list(entries.entries()) == [(key + namespace, number)]
    assert sorted(backend.keys_and_namespaces("map")) == sorted(pairs)


@pytest.mark.parametrize("kind", ["list", "reducing", "aggregating"])
def test_namespaces_merge(kind: str, backend: KeyedStateBackend, state: Callable[..., Any]) -> None:
    """The target has what all had, the sources have nothing."""
    held = state(kind, "String")
    for number, namespace in ((1, "x"), (2, "y"), (6, "target")):
        held.set_current_namespace(namespace)
        held.add(str(number) if kind == "list" else number)
    held.merge_namespaces("target", ["x", "y", "none"])
    held.set_current_namespace("target")
    wanted = {"list": ["6", "1", "2"], "reducing": 9, "aggregating": 3.0}[kind]
    assert held.get() == wanted
    assert list(backend.keys_and_namespaces(kind)) == [("a", "target")]
    held.merge_namespaces("new", ["target"])
    held.set_current_namespace("new")
    assert held.get() == wanted


def test_what_is_handed_out_is_ones_own(backend: KeyedStateBackend) -> None:
    """Changing a value that was read, or was written, changes no state."""
    backend.set_current_key("a")
    value: Any = backend.state(StateDescriptor("v", StateKind.VALUE, "List<Long>"))
    mine = [1, 2]
    value.update(mine)
    mine.append(3)
    value.value().append(4)
    assert value.value() == [1, 2]


def test_a_state_is_asked_for_again(backend: KeyedStateBackend) -> None:
    """The same descriptor gives the same state; another of its name is refused."""
    first = backend.state(descriptor("value"))
    assert backend.state(descriptor("value")) is first
    with pytest.raises(IncompatibleError, match="'value'"):
        backend.state(StateDescriptor("value", StateKind.VALUE, "String"))
    with pytest.raises(NotFoundError, match="there are: 'value'"):
        list(backend.keys("nothing"))


def test_keys_that_can_not_be(make_backend: MakeBackend) -> None:
    """No key, null, another subtask's, another type: each is refused, and says why."""
    with make_backend(BackendConfiguration("Long", KeyGroupRange(0, 63), 128)) as backend:
        value: Any = backend.state(descriptor("value"))
        with pytest.raises(KeyGroupError, match="no key is set"):
            value.value()
        with pytest.raises(KeyGroupError, match="null"):
            backend.set_current_key(None)
        other = next(key for key in range(50) if key_group_of(key, 128) > 63)
        with pytest.raises(KeyGroupError, match="this subtask has 0-63"):
            backend.set_current_key(other)
        with pytest.raises(EncodeError):
            backend.set_current_key("text")


def test_lists_in_memory_are_not_written_again_for_each_element() -> None:
    """However many elements wait, each is joined once, when the list is read."""

    class Counted(HeapValueTable):
        written = 0

        def put_many(self, groups: Any, keys: Any, values: Any) -> None:
            self.written += sum(map(len, values))
            super().put_many(groups, keys, values)

    table = Counted(KeyGroupRange(0, 0))
    lists = ListTable(table)
    keys = [b"%d" % number for number in range(3 * FLUSHED_LISTS)]
    for _ in range(30):
        for key in keys:
            lists.append(0, key, b"x" * 99)
    assert table.written == 0
    assert dict(lists.items(0)) == dict.fromkeys(keys, b",".join([b"x" * 99] * 30))
    assert table.written == len(keys) * (30 * 100 - 1)
    assert dict(lists.items(0)).keys() == set(keys)
    assert table.written == len(keys) * (30 * 100 - 1)


def test_keys_that_come_again_are_the_same(
    backend: KeyedStateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few keys are remembered; what is no plain key is not, and looks like none."""
    monkeypatch.setattr(keys_module, "LOCATED_KEYS", 2)
    value: Any = backend.state(descriptor("value"))
    for turn in range(3):
        for number, key in enumerate("abcde"):
            backend.set_current_key(key)
            assert value.value() == (number + turn - 1 if turn else None)
            value.update(number + turn)
    with pytest.raises(EncodeError):
        backend.set_current_key(1)
    with pytest.raises(EncodeError):
        backend.set_current_key(1)
    assert backend.current_key == "e"


def test_functions_are_needed() -> None:
    """A reducing or aggregating state without its function is no descriptor."""
    for kind in (StateKind.REDUCING, StateKind.AGGREGATING, StateKind.TIMERS):
        with pytest.raises(DeclarationError, match="state 'x'"):
            StateDescriptor("x", kind, "Long")


@pytest.mark.parametrize("most", [1, 7, 128, 32768])
def test_the_key_group_of_one_hash_is_that_of_many(most: int) -> None:
    """The scalar form of the hash agrees with the kernel, at the ends of the range too."""
    codes = np.random.default_rng(most).integers(-(1 << 31), 1 << 31, 5000).astype(np.int32)
    codes[:3] = -(1 << 31), (1 << 31) - 1, 0
    assert [key_group_of(code, most) for code in codes.tolist()] == key_groups_of_hashes(
        codes, most
    ).tolist()
