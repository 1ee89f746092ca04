"""Any sequence of updates, snapshots and restores, on every backend, against plain dictionaries.

A snapshot's synchronous part notes what the model holds; its asynchronous part runs some steps
later, with updates in between, and must still give what was noted: to a backend of the other kind
as well, at another parallelism as well, and to the tests' own reader.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.runtime.backends import (
    BackendConfiguration,
    KeyedStateBackend,
    SnapshotTask,
    Timer,
)
from tests.support.jobs.backend_cases import BACKENDS, descriptor, restored_at
from tests.support.savepoints.native_checkpoints import native_checkpoint

KINDS = ("value", "list", "map", "reducing", "aggregating")
KEYS = ["", "a", "ab", "a\0", "größe", "x" * 130, "b", "c", "d"]
NAMESPACES = ["", "n", "a", "b" * 200]
MAX_PARALLELISM = 200  # key groups of two bytes
Model = dict[str, dict[Any, Any]]


class BackendMachine(RuleBasedStateMachine):
    """One backend and its model; states have namespaces, and keys of any length."""

    kind = "heap"

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="statelake-machine-"))
        self.model: Model = {kind: {} for kind in (*KINDS, "timers")}
        self.running: list[tuple[SnapshotTask[Any], Directory, Model]] = []
        self.taken = 0
        self.key, self.namespace = "a", "n"

    @initialize(compressed=st.booleans())
    def begin(self, compressed: bool) -> None:
        """A backend in which there is nothing."""
        self.compressed = compressed
        self.use(self.made(self.kind))
        self.choose(self.key, self.namespace)

    def made(self, kind: str) -> KeyedStateBackend:
        """A backend of all key groups."""
        groups = KeyGroupRange(0, MAX_PARALLELISM - 1)
        return BACKENDS[kind](
            BackendConfiguration("String", groups, MAX_PARALLELISM, compressed=self.compressed)
        )

    def use(self, backend: KeyedStateBackend) -> None:
        """Go on with this backend."""
        self.backend = backend
        self.states: dict[str, Any] = {
            kind: backend.state(descriptor(kind), "String") for kind in KINDS
        }
        self.timers = backend.timer_queue("event", namespace="String")

    @property
    def at(self) -> tuple[str, str]:
        """Where the model keeps what is current."""
        return self.key, self.namespace

    @rule(key=st.sampled_from(KEYS), namespace=st.sampled_from(NAMESPACES))
    def choose(self, key: str, namespace: str) -> None:
        """Another key and namespace."""
        self.key, self.namespace = key, namespace
        self.backend.set_current_key(key)
        for state in self.states.values():
            state.set_current_namespace(namespace)

    @rule(value=st.none() | st.integers(-(1 << 63), (1 << 63) - 1))
    def update_value(self, value: int | None) -> None:
        """A value, or none."""
        self.states["value"].update(value)
        self.model["value"].pop(self.at, None)
        if value is not None:
            self.model["value"][self.at] = value

    @rule(elements=st.lists(st.text(max_size=5), max_size=4), replace=st.booleans())
    def change_list(self, elements: list[str], replace: bool) -> None:
        """Elements behind, or instead of, what is there."""
        if replace:
            self.states["list"].update(elements)
            self.model["list"].pop(self.at, None)
        else:
            self.states["list"].add_all(elements)
        if elements:
            self.model["list"].setdefault(self.at, []).extend(elements)

    @rule(user_key=st.text(max_size=3), value=st.none() | st.integers(-9, 9), put=st.booleans())
    def change_map(self, user_key: str, value: int | None, put: bool) -> None:
        """An entry is put or removed."""
        held = self.model["map"].setdefault(self.at, {})
        if put:
            self.states["map"].put(user_key, value)
            held[user_key] = value
        else:
            self.states["map"].remove(user_key)
            held.pop(user_key, None)
        if not held:
            del self.model["map"][self.at]

    @rule(value=st.integers(-1000, 1000), kind=st.sampled_from(["reducing", "aggregating"]))
    def add(self, value: int, kind: str) -> None:
        """One more value."""
        self.states[kind].add(value)
        if kind == "reducing":
            held = self.model[kind].get(self.at, 0)
            self.model[kind][self.at] = held + value
        else:
            self.model[kind].setdefault(self.at, []).append(value)

    @rule(kind=st.sampled_from(KINDS))
    def clear(self, kind: str) -> None:
        """Nothing is left."""
        self.states[kind].clear()
        self.model[kind].pop(self.at, None)

    @rule(source=st.sampled_from(NAMESPACES), into=st.sampled_from(NAMESPACES))
    def merge(self, source: str, into: str) -> None:
        """One namespace's list and sum go to another."""
        if source == into:
            return
        for kind in ("list", "reducing"):
            self.states[kind].merge_namespaces(into, [source])
            moved = self.model[kind].pop((self.key, source), None)
            if moved is not None:
                target = self.key, into
                before = self.model[kind].get(target)
                self.model[kind][target] = moved if before is None else before + moved

    @rule(at=st.integers(-5, 5), register=st.booleans())
    def change_timer(self, at: int, register: bool) -> None:
        """A timer is registered or deleted."""
        timer = Timer(at, self.key, self.namespace)
        if register:
            self.timers.add(timer)
            self.model["timers"][timer] = True
        else:
            self.timers.remove(timer)
            self.model["timers"].pop(timer, None)

    @rule(until=st.integers(-6, 6))
    def fire(self, until: int) -> None:
        """All due timers come, in order of time."""
        fired = []
        while (timer := self.timers.poll_until(until)) is not None:
            fired.append(timer)
        due = [timer for timer in self.model["timers"] if timer.timestamp <= until]
        assert [fired_timer.timestamp for fired_timer in fired] == sorted(
            due_timer.timestamp for due_timer in due
        )
        assert set(fired) == set(due)
        for timer in due:
            del self.model["timers"][timer]

    @rule()
    def look(self) -> None:
        """What is current is what the model says."""
        expected = self.expected(self.model)
        assert self.seen(self.states, self.at) == {k: expected[k].get(self.at) for k in KINDS}

    @rule(savepoint=st.booleans())
    @precondition(lambda self: len(self.running) < 3)
    def begin_snapshot(self, savepoint: bool) -> None:
        """The synchronous part; or a whole checkpoint in the backend's own form."""
        self.taken += 1
        directory = Directory(self.directory / f"chk-{self.taken}")
        directory.create()
        if savepoint:
            task = self.backend.snapshot(directory)
        else:  # a checkpoint in the backend's own form is written at once
            handle = native_checkpoint(
                self.backend, directory, Directory(self.directory / "shared")
            )
            task = SnapshotTask(lambda: handle, lambda: None)
        self.running.append((task, directory, copy.deepcopy(self.model)))

    @rule(which=st.integers(0, 2), kind=st.sampled_from(sorted(BACKENDS)),
          parallelism=st.integers(1, 3), go_on=st.booleans())  # fmt: skip
    @precondition(lambda self: self.running)
    def finish_snapshot(self, which: int, kind: str, parallelism: int, go_on: bool) -> None:
        """The asynchronous part, and a restore of what it gave, with which the job may go on."""
        task, directory, model = self.running.pop(which % len(self.running))
        handle = task.run()
        backends = restored_at(
            BACKENDS[kind], [handle], directory, parallelism, max_parallelism=MAX_PARALLELISM
        )
        self.check(backends, model)
        for backend in backends:
            backend.close()
        if go_on and not self.running:
            (again,) = restored_at(
                BACKENDS[self.kind], [handle], directory, 1, max_parallelism=MAX_PARALLELISM
            )
            self.backend.close()
            self.model = model
            self.use(again)
            self.choose(self.key, self.namespace)

    @rule()
    @precondition(lambda self: self.running)
    def cancel_snapshot(self) -> None:
        """A snapshot that comes to nothing."""
        task, _, _ = self.running.pop()
        task.cancel()

    def seen(self, states: dict[str, Any], at: tuple[str, str]) -> dict[str, Any]:
        """What the states say, None where they say nothing."""
        del at
        return {
            "value": states["value"].value(),
            "list": states["list"].get() or None,
            "map": dict(states["map"].entries()) or None,
            "reducing": states["reducing"].get(),
            "aggregating": states["aggregating"].get(),
        }

    def expected(self, model: Model) -> Model:
        """What states say of the model."""
        means = {at: sum(held) / len(held) for at, held in model["aggregating"].items()}
        return {**model, "aggregating": means}

    def check(self, backends: list[KeyedStateBackend], model: Model) -> None:
        """The backends together hold the model, and nothing else."""
        expected = self.expected(model)
        timers = []
        for kind in KINDS:
            found = [pair for backend in backends for pair in backend.keys_and_namespaces(kind)]
            assert sorted(found) == sorted(expected[kind])
        for backend in backends:
            states: dict[str, Any] = {
                kind: backend.state(descriptor(kind), "String") for kind in KINDS
            }
            for key, namespace in {at for kind in KINDS for at in expected[kind]}:
                if _group(self.backend, key) in backend.context.key_groups:
                    backend.set_current_key(key)
                    for state in states.values():
                        state.set_current_namespace(namespace)
                    at = key, namespace
                    wanted = {kind: expected[kind].get(at) for kind in KINDS}
                    assert self.seen(states, at) == wanted
            timers += list(backend.timer_queue("event", namespace="String"))
        assert sorted(timers, key=repr) == sorted(model["timers"], key=repr)

    def teardown(self) -> None:
        """Nothing is left."""
        for task, _, _ in self.running:
            task.cancel()
        if hasattr(self, "backend"):
            self.backend.close()
        shutil.rmtree(self.directory)


def _group(backend: KeyedStateBackend, key: str) -> int:
    return backend.context.locate(key)[0]


@pytest.mark.parametrize("kind", sorted(BACKENDS))
@pytest.mark.full
def test_any_sequence_agrees_with_the_model(kind: str) -> None:
    """Updates, snapshots amid updates, restores into either backend, rescaled or not."""
    machine = type("Machine", (BackendMachine,), {"kind": kind})
    profile = settings()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine, settings=settings(max_examples=2 * profile.max_examples, stateful_step_count=60)
    )
