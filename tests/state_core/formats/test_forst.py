"""Checkpoints of ForSt: tables in directories of its own, states of version 2."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake.api import Lake
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.ingest.importing import import_snapshot
from state_core import open_snapshot
from state_core.errors import MissingFileError
from state_core.formats.layout.keyed_states import as_key_value
from state_core.formats.layout.meta_info import BackendStateType, StateMetaInfo
from state_core.model.snapshot import Snapshot
from tests.support.savepoints.change_logs import rows_of
from tests.support.savepoints.forst import CHECKPOINTS, savepoint_of, unpack


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, in a place where Flink never wrote them."""
    return unpack(tmp_path_factory.mktemp("forst"))


def rows(snapshot: Snapshot) -> dict[tuple[str, str], list[Any]]:
    """The rows of each state; of the one with a time to live, how many there are."""
    found = rows_of(snapshot)
    return {**found, ("changes", "session"): [len(found["changes", "session"])]}


def meta_infos(snapshot: Snapshot) -> dict[tuple[str, str], StateMetaInfo]:
    """What the headers say of each state."""
    return {
        (operator.label, state.name): state
        for operator in snapshot.operators
        for file in operator.keyed_files
        for state in file.header.states  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_rows_are_those_of_the_heap(name: str, places: Path) -> None:
    """Row by row, in every state, by whatever path Flink named the tables."""
    found, wanted = (
        rows(open_snapshot(one)) for one in (places / name, savepoint_of(places / name))
    )
    assert found == wanted
    assert len(found) == 12


def test_an_export_has_the_states_that_the_heap_has(places: Path, tmp_path: Path) -> None:
    """Version 2 registers elements, and values with their user keys; version 1 lists and maps."""
    lake, target = Lake(tmp_path / "lake"), tmp_path / "out"
    import_snapshot(lake, str(places / "chk-2"), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", target, engine="local")
    held = meta_infos(open_snapshot(places / "chk-2"))
    kinds = {state.kind for state in held.values()}
    assert kinds == {BackendStateType.KEY_VALUE_V2, BackendStateType.PRIORITY_QUEUE}
    wanted = meta_infos(open_snapshot(places / "heap-2"))
    found = meta_infos(open_snapshot(target))
    for name, state in found.items():
        session = name == ("changes", "session")  # the heap has the class of version 2 there
        if state.kind is BackendStateType.KEY_VALUE and not session:
            assert {role: entry.encoded for role, entry in state.serializers.items()} == {
                role: entry.encoded for role, entry in wanted[name].serializers.items()
            }
            assert state.options == wanted[name].options
        assert as_key_value(state) == state
    assert rows(open_snapshot(target)) == rows(open_snapshot(places / "chk-2"))


def test_a_checkpoint_without_its_shared_directory(places: Path, tmp_path: Path) -> None:
    """The error says what is to be copied beside it."""
    shutil.copytree(places / "chk-2", tmp_path / "chk-2")
    with pytest.raises(MissingFileError, match="copy the whole checkpoint: chk-N with"):
        open_snapshot(tmp_path / "chk-2")
