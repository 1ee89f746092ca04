"""The lake as one object: a snapshot in, changed, compared, out, and gone again."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake import StateError
from statelake.pipelines.lake.api import Lake
from tests.support.lakes import DEMO, LOCAL, edit, entries


def test_a_snapshot_goes_in_is_edited_compared_exported_and_dropped(tmp_path: Path) -> None:
    """Each step by one method, with the results of the functions behind it."""
    lake = Lake(tmp_path / "lake")
    assert lake.snapshots() == []
    imported = lake.import_snapshot(
        DEMO / "monday", "demo", snapshot_id="monday", engine=LOCAL, note="first"
    )
    assert (imported.new, imported.record.note) == (True, "first")
    edit(lake, "demo/keyed/kinds/total").delete("value = 14280")
    lake.commit("demo", "erased", "monday", engine=LOCAL)
    assert [record.snapshot_id for record in lake.snapshots("demo")] == ["monday", "erased"]
    differing = [
        state for state in lake.diff("demo", "monday", "erased", engine=LOCAL)
        if state.status != "same"
    ]  # fmt: skip
    assert [(state.state, state.removed) for state in differing] == [("total", 1)]
    lake.export("demo", "monday", tmp_path / "out", parallelism=3, engine=LOCAL)
    assert entries(tmp_path / "out") == entries(DEMO / "monday")
    assert lake.drop("demo", keep=1).dropped == ["monday"]
    assert [record.snapshot_id for record in lake.snapshots()] == ["erased"]


def test_storage_options_of_a_local_lake_are_refused(tmp_path: Path) -> None:
    """An option that can't be obeyed is an error, not a silence."""
    with pytest.raises(StateError, match="storage options are for s3"):
        Lake(tmp_path, storage_options={"AWS_REGION": "x"})
