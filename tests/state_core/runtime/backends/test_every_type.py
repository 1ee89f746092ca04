"""State of every type there is, of every kind, through both backends and all forms of snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    StateDescriptor,
    restore_backend,
)
from statelake.state_core.runtime.backends.states.states import written
from statelake.state_core.serializers.framework.base import TypeSerializer
from tests.support.jobs.backend_cases import BACKENDS, taken
from tests.support.serializers.library_samples import any_samples
from tests.support.serializers.serializer_samples import Sample

pytestmark = pytest.mark.thinned(2)

KEYS = KeyGroupRange(0, 3)
KINDS = (StateKind.VALUE, StateKind.LIST, StateKind.MAP)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Sample, list[Any]]:
    """A type and some of its values, as its serializer reads them; no null."""
    sample = draw(any_samples(1))
    serializer = sample.read_snapshot().restore_serializer()
    encoded = draw(st.lists(sample.encoded, min_size=1, max_size=4))
    values = [serializer.read(DataInput(piece, sample.name)) for piece in encoded]
    return sample, [value for value in values if value is not None]


def bytes_of(serializer: TypeSerializer, value: Any) -> bytes:
    """By which values are compared: not a number is itself then."""
    return written(serializer, value)


def fill(backend: KeyedStateBackend, sample: Sample, values: list[Any]) -> None:
    """Each value into a state of each kind, under a key of its own."""
    for kind in KINDS:
        state = asked(backend, kind, sample)
        for number, value in enumerate(values):
            backend.set_current_key(number)
            if kind is StateKind.VALUE:
                state.update(value)
            elif kind is StateKind.LIST:
                state.add_all([value, value])
            else:
                state.put_all([("one", value), ("null", None)])


def asked(backend: KeyedStateBackend, kind: StateKind, sample: Sample) -> Any:
    """A state of the type."""
    user_key = "String" if kind is StateKind.MAP else ""
    return backend.state(StateDescriptor(kind.value, kind, sample.read_snapshot(), user_key))


def check(backend: KeyedStateBackend, sample: Sample, values: list[Any]) -> None:
    """What `fill` has put is there."""
    serializer = sample.read_snapshot().restore_serializer()
    single, items, entries = (asked(backend, kind, sample) for kind in KINDS)
    for number, value in enumerate(values):
        backend.set_current_key(number)
        wanted = bytes_of(serializer, value)
        assert bytes_of(serializer, single.value()) == wanted
        assert [bytes_of(serializer, item) for item in items.get()] == [wanted] * 2
        assert bytes_of(serializer, entries.get("one")) == wanted
        assert sorted(entries.keys()) == ["null", "one"]
        assert entries.get("null") is None
    assert sorted(backend.keys("value")) == list(range(len(values)))


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("savepoint", [True, False])
@given(typed=typed_values())
def test_values_of_every_type_are_kept(
    tmp_path_factory: pytest.TempPathFactory,
    savepoint: bool,
    compressed: bool,
    typed: tuple[Sample, list[Any]],
) -> None:
    """In working state, in savepoints of one backend restored in the other, and in checkpoints."""
    sample, values = typed
    serializer = sample.read_snapshot().restore_serializer()
    if not serializer.self_delimiting or serializer.min_length == 0:
        return  # elements of a list could not be told apart
    values = [value for value in values if bytes_of(serializer, value)]
    configuration = BackendConfiguration("Integer", KEYS, 4, compressed=compressed)
    where: Path = tmp_path_factory.mktemp("types")
    handles = {}
    for name, make in BACKENDS.items():
        with make(configuration) as backend:
            fill(backend, sample, values)
            check(backend, sample, values)
            directory = Directory(where / name)
            directory.create()
            handles[name] = taken(backend, directory, canonical=savepoint)
    for name, handle in handles.items():
        for make in BACKENDS.values():
            with make(configuration) as backend:
                restore_backend(backend, [handle], Directory(where / name))
                check(backend, sample, values)
