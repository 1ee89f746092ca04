"""State in two backends at once: committed in two phases, and restored from either."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.commits.commit_measures import CommitReports
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.pipelines.runtime.commits import SNAPSHOT_FACTORY, checkpoint_manager
from statelake.state_core.commit import CheckpointV2, FileChangelogs
from statelake.state_core.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    LAKE_FACTORY,
)
from statelake.state_core.files.filesystem import Directory
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows, state_rows

alerts = alerts_module()


def run(
    work: Path,
    part: int,
    parallelism: int,
    restore_from: str = "blob",
    backends: tuple[str, ...] = ("blob", "changelog"),
    **more: Any,
) -> None:
    """The next part of the data, committed to a blob store and a changelog, too."""
    feed(work / "data", part)
    commit_to = [f"{name}={work / name}" for name in backends]
    options = RunOptions(
        parallelism, engine="local", commit_to=commit_to, restore_from=restore_from, **more
    )
    assert (
        run_job(alerts.alerts(str(work / "data")), Catalog(work / "lake"), options).run == part + 1
    )


def check(work: Path, runs: int) -> None:
    """Output and state are those of one uninterrupted run."""
    wanted, spent = expected(range(runs))
    rows = sink_rows(work / "data" / "alerts")
    assert sorted((row["customer"], row["rule"], row["spent"]) for row in rows) == sorted(wanted)
    assert state_rows(Catalog(work / "lake"), runs, "alert", "spent", work) == spent


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("source", ["blob", "changelog"])
def test_restored_from_a_backend_at_any_parallelism(
    source: str, compressed: bool, tmp_path: Path
) -> None:
    """From markers that were written at another; the lake has the same all along."""
    for part, parallelism in enumerate((2, 3, 1, 4)):
        run(tmp_path, part, parallelism, source, compressed=compressed)
    check(tmp_path, 4)


def test_a_job_moves_from_a_changelog_to_a_blob_store(tmp_path: Path) -> None:
    """Over three runs, as SEP-28 has it: the old one alone, both, the new one alone."""
    run(tmp_path, 0, 2, "lake", ("changelog",))
    run(tmp_path, 1, 2, "changelog", ("changelog", "blob"))
    run(tmp_path, 2, 2, "blob", ("blob",))
    check(tmp_path, 3)


def test_a_changelog_has_what_changed(tmp_path: Path) -> None:
    """A run appends the keys that it changed, and nothing of those that it did not."""
    counts = []
    for part in range(3):
        run(tmp_path, part, 2, "changelog", backends=("changelog",))
        logs = FileChangelogs(tmp_path / "changelog")
        changes = [
            change for partition in logs.partitions() for change in logs.open(partition).read()
        ]
        counts.append(len(changes))
    before = {change.key: change.value for change in changes[: counts[1]]}
    entries = [change for change in changes[counts[1] :] if change.key[:1] == b"e"]
    assert len(entries) > 0
    # partition by partition, so that the order of all is not that of the runs
    assert len({change.key for change in entries}) <= len(before)


def test_a_record_has_the_markers_of_all_backends(tmp_path: Path) -> None:
    """One a task; the lake's is the snapshot's id, and the offsets are the run's."""
    run(tmp_path, 0, 2)
    records = checkpoint_manager(Directory(tmp_path / "lake" / "alerts" / "_runs"))
    for task in ("alert-0", "alert-1", "count-by-rule-0", "count-by-rule-1"):
        last = records.read_last(task)
        assert isinstance(last, CheckpointV2)
        assert last.markers[SNAPSHOT_FACTORY] == {"state": "run-00000001"}
        assert set(last.markers) == {SNAPSHOT_FACTORY, BLOB_STORE_FACTORY, CHANGELOG_FACTORY}
        # a reader takes a marker for what its factory's backend writes
        assert SNAPSHOT_FACTORY not in {LAKE_FACTORY, CHANGELOG_FACTORY, BLOB_STORE_FACTORY}
        assert {input_offset.stream for input_offset in last.input_offsets} == {"orders", "rules"}


def test_what_commits_cost_is_reported(tmp_path: Path) -> None:
    """A row a task and run, told once, however often the commit is begun."""

    class Killed(BaseException):
        pass

    def observe(step: str) -> None:
        if step == "recorded":
            raise Killed

    run(tmp_path, 0, 2)
    feed(tmp_path / "data", 1)
    job, lake = alerts.alerts(str(tmp_path / "data")), Catalog(tmp_path / "lake")
    with pytest.raises(Killed):
        run_job(job, lake, RunOptions(2, engine="local", observe=observe))
    assert run_job(job, lake, RunOptions(2, engine="local")).run == 2
    reports = CommitReports(Directory(tmp_path / "lake"), "alerts").read()
    tasks = ["alert-0", "alert-1", "count-by-rule-0", "count-by-rule-1"]
    assert sorted(report.task for report in reports) == sorted(tasks * 2)
    assert [report.counts["commits"] for report in reports] == [1] * 8
    first, second = reports[:4], reports[4:]
    assert all(
        report.counts["bytes_sent"] > 0 and report.counts["files_sent"] > 0 for report in first
    )
    assert all(report.counts["bytes_sent"] == 0 for report in second)  # those had no blob store


def test_blobs_that_are_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An ERROR in the log, and the lake is restored from instead."""
    run(tmp_path, 0, 2)
    Directory(tmp_path / "blob").delete_tree()
    with caplog.at_level(logging.ERROR):
        run(tmp_path, 1, 2)
    assert "the next source is restored from instead: lake" in caplog.text
    check(tmp_path, 2)


def test_old_blobs_go(tmp_path: Path) -> None:
    """The last two snapshots stay; the rest is cleaned up behind the record."""
    sizes = []
    for part in range(5):
        run(tmp_path, part, 1, "lake")
        sizes.append(len(Directory(tmp_path / "blob").files_below()))
    assert sizes[-1] == sizes[-2] == sizes[-3]
