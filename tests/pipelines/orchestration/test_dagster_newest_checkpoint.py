"""The check of the newest sound checkpoint, in a run of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dagster as dg
import pytest

from statelake.dagster import StateLake
from statelake.pipelines.orchestration.checks import newest_checkpoint
from statelake.pipelines.orchestration.settings import (
    CheckpointSettings,
    FlinkSettings,
    JobSettings,
)
from tests.support.savepoints.checkpoint_trees import MadeTree, made_tree


@pytest.fixture
def tree(tmp_path: Path) -> MadeTree:
    """Three checkpoints of one job, written 0, 60 and 120 minutes ago."""
    root = tmp_path / "checkpoints"
    made = made_tree(f"file:{root}", 1, 3, savepoints=0)
    made.write(root)
    for age, snapshot in enumerate(reversed(made.snapshots)):
        then = time.time() - 3600 * age - 60
        os.utime(root / snapshot.path / "_metadata", (then, then))
    return made


def test_the_newest_sound_checkpoint_is_young(tree: MadeTree, tmp_path: Path) -> None:
    """Those passed over are named with the reason; without one it does not pass."""
    root = tmp_path / "checkpoints"
    settings = CheckpointSettings(directory=str(root))
    passed, said = newest_checkpoint(settings, None)
    assert (passed, said["newest checkpoint"]) == (True, str(root / tree.snapshots[-1].path))
    (root / tree.snapshots[-1].path / "_metadata").unlink()
    passed, said = newest_checkpoint(settings, None)
    assert (passed, said["age"]) == (False, "61 min")
    assert "chk-3: it has no" in said["passed over"].value
    assert newest_checkpoint(settings.model_copy(update={"hours": 2}), None)[0]
    root.rename(tmp_path / "mounted")
    settings = CheckpointSettings(directory=str(tmp_path / "mounted"), hours=2)
    passed, said = newest_checkpoint(settings, None)
    assert (passed, said["newest checkpoint"]) == (False, "none can be restored")
    mapped = FlinkSettings(path_map={str(root): str(tmp_path / "mounted")})
    assert newest_checkpoint(settings, mapped)[0]


@pytest.mark.full
def test_it_has_a_job_and_a_schedule(tree: MadeTree, tmp_path: Path) -> None:
    """An import does not run it, as it is of no snapshot."""
    assert tree.snapshots
    settings = JobSettings(
        name="orders",
        savepoints=str(tmp_path / "savepoints"),
        checkpoints=CheckpointSettings(directory=str(tmp_path / "checkpoints")),
    )
    (tmp_path / "savepoints").mkdir()
    made = dg.build_defs_for_component(StateLake(lake=str(tmp_path / "lake"), jobs=[settings]))
    schedules = {each.name: each.job_name for each in made.get_repository_def().schedule_defs}
    assert schedules["orders_frequent_checkpoint"] == "orders_watch_checkpoints"
    archive = made.resolve_job_def("orders_archive_and_export")
    run_by_import = " ".join(node.name for node in archive.nodes)
    assert "integrity" in run_by_import
    assert "checkpoint" not in run_by_import
    (tmp_path / "home").mkdir()
    temporary = dg.DagsterInstance.local_temp(
        str(tmp_path / "home"), {"telemetry": {"enabled": False}}
    )
    with temporary as instance:
        done = made.resolve_job_def("orders_watch_checkpoints").execute_in_process(
            instance=instance
        )
        (judged,) = done.get_asset_check_evaluations()
        assert (judged.check_name, judged.passed) == ("checkpoint", True)
