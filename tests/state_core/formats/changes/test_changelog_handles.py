"""Handles of the changelog backend, around the golden snapshots of other backends.

Logs that real Flink wrote are read in `test_changelog.py`.

What real Flink writes with `state.changelog.enabled` is looked at in
`tests/integration/test_changelog_and_merging.py`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    KeyedHandle,
)
from tests.support.savepoints.expected_contents import assert_contents, tables_of
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases("kinds", "wordcount", form="native")
every_case = pytest.mark.parametrize("golden", CASES, ids=lambda case: case.name)


def wrapped(golden: GoldenCase, to: Path, *changes: KeyedHandle | None, copies: int = 1) -> Path:
    """The case with each keyed handle in one of the changelog backend, with changes after it."""
    shutil.copytree(golden.snapshot, to)
    metadata = read_metadata((to / "_metadata").read_bytes())
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            held = subtask.managed_keyed
            if held is not None:
                first, count = held.key_groups.first, len(held.key_groups)
                subtask.managed_keyed = ChangelogHandle(
                    first, count, 0, (held,) * copies, changes, 1, 1, "id"
                )
    (to / "_metadata").write_bytes(write_metadata(metadata))
    return to


@every_case
@pytest.mark.full
def test_without_changes_it_is_what_it_wraps(golden: GoldenCase, tmp_path: Path) -> None:
    """So Flink writes native savepoints: all is in the backend below."""
    assert_contents(golden, tables_of(open_snapshot(wrapped(golden, tmp_path / "savepoint"))))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (ChangelogByteHandle(0, 64, 0, 1, ((3, b"change"),), "id"), "state id"),
        (ChangelogByteHandle(0, 64, 0, 1, ((-1, b"change"),), "id"), "not a state's metadata"),
        (ChangelogByteHandle(0, 64, 0, 1, ((3, b"c"),), "id"), "too short for a state id"),
        (ChangelogHandle(0, 64, 0, (), (), 1, 1, "id"), "ChangelogHandle among the changes"),
    ],
    ids=["of an unknown state", "no metadata", "of no state", "no log"],
)
def test_changes_that_are_none(change: KeyedHandle, problem: str, tmp_path: Path) -> None:
    """They are refused with where they lie, and not passed over."""
    with pytest.raises(CorruptSnapshotError, match=problem) as found:
        tables_of(open_snapshot(wrapped(CASES[0], tmp_path / "savepoint", change)))
    assert "_metadata" in found.value.place


@pytest.mark.full
def test_an_empty_log(tmp_path: Path) -> None:
    """Handles that lead to no bytes."""
    change = ChangelogFileHandle(0, 64, ((0, None),), 0, 0, "id")
    again = ChangelogByteHandle(0, 64, 0, 0, (), "id")
    savepoint = wrapped(CASES[0], tmp_path / "savepoint", change, again)
    assert_contents(CASES[0], tables_of(open_snapshot(savepoint)))


@pytest.mark.full
def test_checks_see_what_an_empty_log_is_about(tmp_path: Path) -> None:
    """All entries are checked and salvaged, and damage of them is found, as without the log."""
    change = ChangelogFileHandle(0, 64, ((0, None),), 0, 0, "id")
    plain = wrapped(CASES[0], tmp_path / "plain")
    savepoint = wrapped(CASES[0], tmp_path / "savepoint", change, None)
    report, other = check_snapshot(savepoint), check_snapshot(plain)
    assert report.sound
    assert report.checked == other.checked
    assert report.checked.entries > 1000
    salvaged = salvage_snapshot(savepoint, tmp_path / "salvaged")
    assert (salvaged.lost, salvaged.entries) == ((), report.checked.entries)
    largest = max(savepoint.iterdir(), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-100])
    assert not check_snapshot(savepoint).sound


def test_nothing_below_and_nothing_in_the_log(tmp_path: Path) -> None:
    """A subtask whose state was never touched."""
    opened = open_snapshot(wrapped(CASES[0], tmp_path / "savepoint", copies=0))
    assert [state for operator in opened.operators for state in operator.keyed_states] == []


@pytest.mark.full
def test_key_groups_of_others_are_not_read_twice(tmp_path: Path) -> None:
    """A subtask of a rescaled job may hold files with key groups that are another's now."""
    savepoint = wrapped(CASES[0], tmp_path / "savepoint")
    metadata = read_metadata((savepoint / "_metadata").read_bytes())
    for operator in metadata.operators:
        subtasks = operator.subtasks or {}
        below = tuple(
            subtask.managed_keyed for subtask in subtasks.values() if subtask.managed_keyed
        )
        wrapped_ones = [
            handle.materialized[0] for handle in below if isinstance(handle, ChangelogHandle)
        ]
        for subtask in subtasks.values():
            if isinstance(subtask.managed_keyed, ChangelogHandle):
                subtask.managed_keyed = replace(
                    subtask.managed_keyed, materialized=tuple(wrapped_ones)
                )
    (savepoint / "_metadata").write_bytes(write_metadata(metadata))
    assert_contents(CASES[0], tables_of(open_snapshot(savepoint)))
