"""Operator state for another parallelism: what each subtask gets is what Flink gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.lake.redistributing import redistribute_operator_state
from state_core import open_snapshot
from state_core.filesystem import Directory
from state_core.formats.operator_file import OperatorFile, open_operator_file
from state_core.formats.operator_states import operator_layout
from state_core.formats.state_files import StateFiles
from state_core.handles import OperatorHandle
from tests.golden_cases import GoldenCase, golden_cases

CASES = [one for one in golden_cases("operator") if (one.folder / "expected-at-p1.jsonl").exists()]
PARALLELISMS = (1, 2, 3, 4, 5, 7)


def opened(directory: Directory, handle: OperatorHandle) -> OperatorFile:
    """A file that was written."""
    assert handle.stream is not None
    return open_operator_file(StateFiles(directory).open(handle.stream), handle)


def redistributed(golden: GoldenCase, name: str, parallelism: int, to: Path) -> list[OperatorFile]:
    """The files of the operator that has a state of that name, at another parallelism."""
    snapshot = open_snapshot(golden.snapshot, uids=["opstate", "rules"])
    (operator,) = (
        one
        for one in snapshot.metadata.operators
        if any(
            part.managed_operator is not None and name in part.managed_operator.states
            for part in (one.subtasks or {}).values()
        )
    )
    files = StateFiles(Directory(golden.snapshot))
    target = Directory(to)
    target.create()
    handles = redistribute_operator_state(
        operator.subtasks, operator.parallelism, parallelism, files.open, target
    )
    return [opened(target, handles[index]) for index in sorted(handles)]


def values(file: OperatorFile, name: str, subtask: int) -> list[Any]:
    """The elements of a list state, or the entries of a broadcast state."""
    (state,) = (one for one in file.states if one.name == name)
    batch = operator_layout(state).decode(file, name, subtask)
    if "key" in batch.schema.names:
        return [[row["key"], row["value"]] for row in batch.to_pylist()]
    found = batch.column("value").to_pylist()
    return [[one["f0"], one["f1"]] if isinstance(one, dict) else one for one in found]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("golden", CASES, ids=lambda one: one.name)
def test_lists_are_split_and_united_as_by_flink(
    golden: GoldenCase, parallelism: int, tmp_path: Path
) -> None:
    """Each subtask has Flink's elements of split state; union state is there once."""
    files = redistributed(golden, "split", parallelism, tmp_path / "out")
    expected = golden.expected(f"expected-at-p{parallelism}.jsonl")
    wanted = {line["subtask"]: line for line in expected if "split" in line}
    assert len(files) == parallelism == len(wanted)
    for subtask, file in enumerate(files):
        for name in ("split", "offsets"):
            assert sorted(values(file, name, subtask)) == sorted(wanted[subtask][name])
    united = [one for index, file in enumerate(files) for one in values(file, "union", index)]
    assert all(sorted(united) == sorted(line["union"]) for line in wanted.values())


@pytest.mark.parametrize("parallelism", PARALLELISMS)
@pytest.mark.parametrize("golden", CASES, ids=lambda one: one.name)
def test_everyone_has_the_broadcast_state(
    golden: GoldenCase, parallelism: int, tmp_path: Path
) -> None:
    """A copy for each subtask, whatever their number."""
    files = redistributed(golden, "rules", parallelism, tmp_path / "out")
    expected = golden.expected(f"expected-at-p{parallelism}.jsonl")
    (rules, *others) = [line["rules"] for line in expected if "rules" in line]
    assert all(one == rules for one in others)
    assert len(files) == parallelism
    for subtask, file in enumerate(files):
        assert dict(values(file, "rules", subtask)) == rules


@pytest.mark.parametrize("golden", CASES, ids=lambda one: one.name)
def test_compression_stays(golden: GoldenCase, tmp_path: Path) -> None:
    """What was compressed is compressed again, element by element."""
    for file in redistributed(golden, "split", 5, tmp_path / "out"):
        assert file.header.compressed is golden.facts["compression"]
