"""Many keys at once give what they give one by one, on every backend."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import EncodeError, KeyGroupError
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
)
from statelake.state_core.runtime.backends.batches import encode_keys, get_many, put_many
from tests.support.jobs.backend_cases import (
    BACKENDS,
    Clock,
    MakeBackend,
    descriptor,
    time_to_live,
)

LIFE = 100


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@given(
    batches=st.lists(
        st.dictionaries(
            st.text(max_size=4), st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=12
        ),
        max_size=4,
    )
)
def test_columns_agree_with_single_keys(kind: str, batches: list[dict[str, int | None]]) -> None:
    """What one way puts the other gets; null removes."""
    model: dict[str, int] = {}
    configuration = BackendConfiguration("String", KeyGroupRange(0, 199), 200)
    with BACKENDS[kind](configuration) as backend:
        value: Any = backend.state(descriptor("value"))
        for turn, batch in enumerate(batches):
            columns = encode_keys(backend, value, pa.array(list(batch), pa.string()))
            assert get_many(columns).to_pylist() == [model.get(key) for key in batch]
            if turn % 2:
                for key, number in batch.items():
                    backend.set_current_key(key)
                    value.update(number)
            else:
                put_many(columns, pa.array(list(batch.values()), pa.int64()))
            model = {k: v for k, v in {**model, **batch}.items() if v is not None}
            for key in batch:
                backend.set_current_key(key)
                assert value.value() == model.get(key)
        assert sorted(backend.keys("value")) == sorted(model)


def test_a_running_sum(backend: KeyedStateBackend) -> None:
    """The way it is meant to be used."""
    state = backend.state(descriptor("reducing"))
    for batch in (["a", "b", "a"], ["b", "c"]):
        sums = pa.table({"key": batch, "one": [1] * len(batch)}).group_by("key").aggregate(
            [("one", "sum")]
        )  # fmt: skip
        columns = encode_keys(backend, state, sums["key"])
        before = pc.fill_null(get_many(columns), 0)
        put_many(columns, pc.add(before, sums["one_sum"]))
    assert get_many(encode_keys(backend, state, pa.array(["c", "b", "a", "z"]))).to_pylist() == [
        1, 2, 2, None
    ]  # fmt: skip


def test_lists_and_namespaces(backend: KeyedStateBackend) -> None:
    """Lists come and go as lists; each key in its namespace, of whatever length."""
    items: Any = backend.state(descriptor("list"), "String")
    keys, namespaces = pa.array(["a", "ab", ""]), pa.array(["bc", "c", ""])
    columns = encode_keys(backend, items, keys, namespaces)
    put_many(columns, pa.array([["x", "y,z"], [], None], pa.list_(pa.string())))
    assert get_many(columns).to_pylist() == [["x", "y,z"], None, None]
    backend.set_current_key("a")
    items.set_current_namespace("bc")
    items.add("more")
    assert get_many(columns).to_pylist() == [["x", "y,z", "more"], None, None]
    assert list(backend.keys_and_namespaces("list")) == [("a", "bc")]


@pytest.mark.parametrize("kind", ["value", "list"])
@pytest.mark.parametrize("on_read", [False, True])
@pytest.mark.parametrize("return_expired", [False, True])
def test_times_are_looked_at(
    kind: str, on_read: bool, return_expired: bool, backend: KeyedStateBackend, clock: Clock
) -> None:
    """The same that happens to single keys: seen, renewed, removed."""
    ttl = time_to_live(LIFE, on_read=on_read, return_expired=return_expired)
    state = backend.state(descriptor(kind, ttl))
    keys = pa.array(["a", "b", "c"])
    columns = encode_keys(backend, state, keys)
    old: list[Any] = [1, 2, None] if kind == "value" else [["1"], ["2"], None]
    put_many(columns, pa.array(old, columns.value_type))
    assert get_many(columns).to_pylist() == old
    clock.now += LIFE - 1
    put_many(encode_keys(backend, state, keys.slice(1, 1)), pa.array(old[1:2]))
    assert get_many(encode_keys(backend, state, keys.slice(0, 1))).to_pylist() == old[:1]
    clock.now += LIFE - 1
    first = old[0] if on_read or return_expired else None
    assert get_many(columns).to_pylist() == [first, old[1], None]
    assert sorted(backend.keys(kind)) == (["a", "b"] if on_read else ["b"])


def test_what_can_not_be(backend: KeyedStateBackend, make_backend: MakeBackend) -> None:
    """Null keys, other types, lengths that differ, maps, other subtasks' keys: refused."""
    value = backend.state(descriptor("value"))
    with pytest.raises(EncodeError, match="a key is null"):
        encode_keys(backend, value, pa.array(["a", None]))
    with pytest.raises(EncodeError, match=r"the column is list.*, not string"):
        encode_keys(backend, value, pa.array([[1]]))
    columns = encode_keys(backend, value, pa.array(["a"]))
    with pytest.raises(EncodeError, match="2 values for 1"):
        put_many(columns, pa.array([1, 2]))
    with pytest.raises(EncodeError, match="as a column"):
        encode_keys(backend, backend.state(descriptor("map")), pa.array(["a"]))
    items = encode_keys(backend, backend.state(descriptor("list")), pa.array(["a"]))
    with pytest.raises(EncodeError, match="an element is null"):
        put_many(items, pa.array([["x", None]]))
    other = make_backend(BackendConfiguration("Long", KeyGroupRange(0, 3), 128))
    with other, pytest.raises(KeyGroupError, match="this subtask has 0-3"):
        encode_keys(other, other.state(descriptor("value")), pa.array(range(100)))


def test_rows_are_values_too(backend: KeyedStateBackend) -> None:
    """Structured values, with nulls in them, by the column and one by one."""
    state: Any = backend.state(StateDescriptor("row", StateKind.VALUE, "Row<Long, String>"))
    columns = encode_keys(backend, state, pa.array(["a", "b"]))
    backend.set_current_key("a")
    state.update({"f0": None, "f1": "x", "row_kind": "+I"})
    (first, second) = get_many(columns).to_pylist()
    assert first == state.value()
    assert second is None
    put_many(columns, pa.array([first, {**first, "f0": 7}], columns.value_type))
    backend.set_current_key("b")
    assert state.value() == {**first, "f0": 7}
