"""Keyed state of the changelog backend: read where nothing came after what it wraps.

What real Flink writes with `state.changelog.enabled` is looked at in
`tests/integration/test_changelog_and_merging.py`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from state_core import open_snapshot
from state_core.errors import UnsupportedFormatError
from state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    KeyedHandle,
    KeyGroupsHandle,
)
from tests.support.savepoints.expected_contents import assert_contents, tables_of
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CASES = golden_cases("kinds", "wordcount", form="native")
every_case = pytest.mark.parametrize("golden", CASES, ids=lambda one: one.name)


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
def test_without_changes_it_is_what_it_wraps(golden: GoldenCase, tmp_path: Path) -> None:
    """So Flink writes native savepoints: all is in the backend below."""
    assert_contents(golden, tables_of(open_snapshot(wrapped(golden, tmp_path / "savepoint"))))


@pytest.mark.parametrize(
    "change",
    [
        ChangelogByteHandle(0, 64, 0, 1, ((3, b"change"),), "id"),
        ChangelogFileHandle(0, 64, ((0, None),), 6, 6, "id"),
    ],
    ids=["in memory", "in files"],
)
def test_changes_are_not_left_out(change: KeyedHandle, tmp_path: Path) -> None:
    """State that would lack its latest changes is refused, with what to do instead."""
    with pytest.raises(UnsupportedFormatError, match="changes lie in a log") as found:
        open_snapshot(wrapped(CASES[0], tmp_path / "savepoint", change))
    assert "flink savepoint" in found.value.remedy
    assert "subtask 0" in found.value.place


@pytest.mark.parametrize("copies", [0, 2])
def test_not_just_one_snapshot_below(copies: int, tmp_path: Path) -> None:
    """None at all is state that is in the log; several, of a job that was rescaled, may overlap."""
    with pytest.raises(UnsupportedFormatError, match="changelog"):
        open_snapshot(wrapped(CASES[0], tmp_path / "savepoint", copies=copies))


def test_key_groups_of_others_are_not_read_twice(tmp_path: Path) -> None:
    """A subtask of a rescaled job may hold files with key groups that are another's now."""
    savepoint = wrapped(CASES[0], tmp_path / "savepoint")
    metadata = read_metadata((savepoint / "_metadata").read_bytes())
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            held = subtask.managed_keyed
            if isinstance(held, ChangelogHandle):
                (below,) = held.materialized
                assert isinstance(below, KeyGroupsHandle)
                below = replace(below, offsets=(*below.offsets, 0))
                subtask.managed_keyed = replace(held, materialized=(below,))
    (savepoint / "_metadata").write_bytes(write_metadata(metadata))
    with pytest.raises(UnsupportedFormatError, match="changelog"):
        open_snapshot(savepoint)
