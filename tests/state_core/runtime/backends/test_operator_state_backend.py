"""Operator state of subtasks: lists and broadcasts, snapshots, and restores at any parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.writing.new_states import NewOperatorState
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.model.handles import OperatorHandle
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.backends.states.operator_state import (
    OperatorStateBackend,
    assign_operator_state,
)
from tests.support.savepoints.golden_cases import golden_cases

SPLIT, UNION, RULES = "split", "union", "rules"


def asked(backend: OperatorStateBackend) -> tuple[Any, Any, Any]:
    """The three states of these tests."""
    return (
        backend.state(NewOperatorState(SPLIT, (), "split", "String")),
        backend.state(NewOperatorState(UNION, (), "union", "Long")),
        backend.state(NewOperatorState(RULES, (), "broadcast", "Long", "String")),
    )


def rescaled(
    backends: list[OperatorStateBackend], directory: Path, parallelism: int
) -> list[OperatorStateBackend]:
    """The backends of a job that was stopped, and started again at another parallelism."""
    where = Directory(directory)
    handles = [each_backend.snapshot(where).run() for each_backend in backends]
    made = []
    for assigned in assign_operator_state(handles, parallelism):
        backend = OperatorStateBackend(compressed=backends[0].compressed)
        backend.restore(assigned, StateFiles(where))
        made.append(backend)
    return made


def test_lists_and_broadcasts_of_a_subtask() -> None:
    """What goes in comes out; null elements are refused."""
    split, union, rules = asked(OperatorStateBackend())
    assert (split.get(), union.get(), rules.entries()) == ([], [], [])
    split.add("x")
    split.add_all(["y", ""])
    union.update([1, 2])
    rules.put_all({"r": 1, "s": 2})
    assert (split.get(), union.get()) == (["x", "y", ""], [1, 2])
    assert (rules.get("r"), rules.get("t"), rules.contains("s")) == (1, None, True)
    rules.remove("r")
    rules.remove("r")
    assert rules.entries() == [("s", 2)]
    with pytest.raises(EncodeError, match="null"):
        split.add(None)
    for state in (split, union, rules):
        state.clear()
    assert (split.get(), union.get(), rules.entries()) == ([], [], [])


def test_a_snapshot_is_of_its_moment(tmp_path: Path) -> None:
    """What is changed before the asynchronous part runs is not in it."""
    backend = OperatorStateBackend()
    split, union, rules = asked(backend)
    split.add("before")
    rules.put("before", 1)
    where = Directory(tmp_path)
    task = backend.snapshot(where)
    split.add("behind")
    union.add(5)
    rules.put("behind", 2)
    again = OperatorStateBackend()
    again.restore(assign_operator_state([task.run()], 1)[0], StateFiles(where))
    split, union, rules = asked(again)
    assert (split.get(), union.get(), rules.entries()) == (["before"], [], [("before", 1)])


def test_no_state_is_no_file(tmp_path: Path) -> None:
    """A subtask without operator state leaves no handle."""
    assert OperatorStateBackend().snapshot(Directory(tmp_path)).run() is None
    assert list(tmp_path.iterdir()) == []


@given(
    data=st.data(),
    parallelism=st.integers(1, 4),
    turns=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    compressed=st.booleans(),
)
def test_nothing_is_lost_by_rescaling(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    parallelism: int,
    turns: list[int],
    compressed: bool,
) -> None:
    """Split lists stay one row of elements, dealt out evenly; union and broadcast go to all."""
    backends = [OperatorStateBackend(compressed=compressed) for _ in range(parallelism)]
    rules = data.draw(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=4))
    elements: list[str] = []
    numbers: list[int] = []
    for backend in backends:
        split, union, broadcast = asked(backend)
        mine = data.draw(st.lists(st.text(max_size=4), max_size=5))
        split.add_all(mine)
        elements += mine
        own = data.draw(st.lists(st.integers(-9, 9), max_size=3))
        union.update(own)
        numbers += own
        broadcast.put_all(rules)
    count = parallelism
    for turn in turns:
        backends = rescaled(backends, tmp_path_factory.mktemp("operator"), turn)
        found = []
        for backend in backends:
            assert backend.names == [SPLIT, UNION, RULES]
            split, union, broadcast = asked(backend)
            found.append(split.get())
            assert union.get() == numbers
            assert dict(broadcast.entries()) == rules
        if turn != count:
            assert sorted(element for part in found for element in part) == sorted(elements)
            assert max(map(len, found)) - min(map(len, found)) <= 1
        numbers = numbers * turn
        count = turn


def test_other_types_and_modes_are_refused(tmp_path: Path) -> None:
    """A state keeps its mode, and its type as far as that may follow the old one."""
    backend = OperatorStateBackend()
    split, _, _ = asked(backend)
    split.add("x")
    (again,) = rescaled([backend], tmp_path, 1)
    with pytest.raises(
        IncompatibleError, match="SPLIT list → UNION list: the mode of a list never"
    ):
        again.state(NewOperatorState(SPLIT, (), "union", "String"))
    with pytest.raises(IncompatibleError, match="element: String → Long"):
        again.state(NewOperatorState(SPLIT, (), "split", "Long"))
    assert again.state(NewOperatorState(SPLIT, (), "split", "String")).get() == ["x"]
    with pytest.raises(IncompatibleError, match="before"):
        again.state(NewOperatorState(SPLIT, (), "split", "Long"))


def test_types_that_follow_are_migrated(tmp_path: Path) -> None:
    """A POJO that lost a field is read as it was, and written as it is to be."""
    fields = {"a": "int", "b": "String"}
    backend = OperatorStateBackend()
    state = backend.state(
        NewOperatorState("pojos", (), "split", {"pojo": "some.Class", "fields": fields})
    )
    state.add({"a": 1, "b": "x"})
    (again,) = rescaled([backend], tmp_path, 1)
    after = again.state(
        NewOperatorState("pojos", (), "split", {"pojo": "some.Class", "fields": {"b": "String"}})
    )
    assert after.get() == [{"b": "x"}]


def test_flinks_own_operator_state_is_restored_and_written_back(tmp_path: Path) -> None:
    """Golden savepoints: what each subtask gets at the same parallelism is what it had."""
    looked_at = 0
    for case in golden_cases():
        snapshot = open_snapshot(case.snapshot)
        files = StateFiles(Directory(case.snapshot))
        for operator, raw in zip(snapshot.operators, snapshot.metadata.operators, strict=True):
            if not operator.operator_states or operator.finished:
                continue
            looked_at += 1
            held = [raw.subtasks.get(index) for index in range(raw.parallelism)]
            handles: list[OperatorHandle | None] = [
                None if subtask is None else subtask.managed_operator for subtask in held
            ]
            target = SavepointDirectory(tmp_path / f"{case.name}-{operator.operator_id}")
            subtasks = {}
            for index, assigned in enumerate(assign_operator_state(handles, raw.parallelism)):
                backend = OperatorStateBackend()
                backend.restore(assigned, files)
                handle = backend.snapshot(target.directory).run()
                subtasks[index] = SubtaskState(managed_operator=handle)
            operators = [
                OperatorMetadata(
                    operator_id_of_uid("o"), raw.parallelism, raw.max_parallelism, "o", "o", None,
                    subtasks,
                )
            ]  # fmt: skip
            target.commit(CheckpointMetadata(3, 1, operators))
            (again,) = open_snapshot(target.target.full()).operators
            for state in operator.operator_states:
                found = again.operator_state(state.name)
                if state.broadcast:
                    assert found.parts[0].contents() == state.parts[0].contents()
                elif state.mode.name == "SPLIT_DISTRIBUTE":
                    assert found.to_arrow().equals(state.to_arrow())
                else:
                    everything = [piece for part in state.parts for piece in part.encoded()]
                    for part in found.parts:
                        assert part.encoded() == everything
    assert looked_at > 5
