"""State in two backends at once: committed in two phases, and restored from either."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.names import stream_of
from statelake.pipelines.runtime import RunOptions, commits, run_job
from statelake.pipelines.runtime.commit_measures import CommitReports
from statelake.pipelines.runtime.commits import CommitTargets, checkpoint_manager
from statelake.pipelines.runtime.subtask_store import SubtaskFiles, SubtaskStore
from statelake.state_core.errors import CommitError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata
from statelake.state_core.runtime.commit import CheckpointV2, FileChangelogs, FileSystemBlobStore
from statelake.state_core.runtime.commit.backends.blob_backend import read_index
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    SNAPSHOT_FACTORY,
)
from statelake.state_core.runtime.commit.records.snapshot_index import (
    DirIndex,
    write_snapshot_index,
)
from statelake.state_core.runtime.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.runtime.process import (
    Collector,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StreamJob,
)
from statelake.state_core.runtime.process.jobs import Stream
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows, state_rows

alerts = alerts_module()
COUNT = StateDeclarations.value_state("count", int)


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
        parallelism=parallelism, engine="local", commit_to=commit_to,
        restore_from=restore_from, **more,
    )  # fmt: skip
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
@pytest.mark.full
def test_restored_from_a_backend_at_any_parallelism(
    source: str, compressed: bool, tmp_path: Path
) -> None:
    """From markers that were written at another; the lake has the same all along."""
    for part, parallelism in enumerate((2, 3, 1, 4)):
        run(tmp_path, part, parallelism, source, compressed=compressed)
    check(tmp_path, 4)


@pytest.mark.full
def test_a_job_moves_from_a_changelog_to_a_blob_store(tmp_path: Path) -> None:
    """Over three runs, as SEP-28 has it: the old one alone, both, the new one alone."""
    run(tmp_path, 0, 2, "lake", ("changelog",))
    run(tmp_path, 1, 2, "changelog", ("changelog", "blob"))
    run(tmp_path, 2, 2, "blob", ("blob",))
    check(tmp_path, 3)


@pytest.mark.full
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
        assert SNAPSHOT_FACTORY not in {CHANGELOG_FACTORY, BLOB_STORE_FACTORY}
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
        run_job(job, lake, RunOptions(parallelism=2, engine="local", observe=observe))
    assert run_job(job, lake, RunOptions(parallelism=2, engine="local")).run == 2
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


def test_a_changelog_that_missed_a_run_is_not_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end is the state of an older run, although nothing in it is damaged."""
    run(tmp_path, 0, 2, "lake", ("changelog",))
    run(tmp_path, 1, 2, "lake", ())
    run(tmp_path, 2, 2, "changelog", ("changelog",))
    assert "not the state that the last run committed" in caplog.text
    check(tmp_path, 3)


def test_tasks_whose_records_are_gone_are_not_restored_as_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other tasks' state is not the job's: the lake is restored from instead."""
    run(tmp_path, 0, 2)
    log = Directory(tmp_path / "lake" / "alerts" / "_runs" / "checkpoints")
    for name in log.names():
        if b'"alert-1"' in log.read(name):
            log.delete(name)
    run(tmp_path, 1, 2)
    assert "has no record of task alert-1" in caplog.text
    check(tmp_path, 2)


@pytest.mark.parametrize("swapped", ["alert-0", "alert-1", "count-by-rule-0"])
@pytest.mark.full
def test_a_marker_of_another_task_or_run_is_not_restored(
    swapped: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that names the blobs of another task, or those of the run before."""
    directory = Directory(tmp_path / "lake" / "alerts" / "_runs")
    run(tmp_path, 0, 2)
    older = checkpoint_manager(directory).read_last("alert-0")
    run(tmp_path, 1, 2)
    records = checkpoint_manager(directory)
    last, other = records.read_last("alert-0"), records.read_last(swapped)
    if swapped == "alert-0":
        other = older
    assert isinstance(last, CheckpointV2)
    assert isinstance(other, CheckpointV2)
    markers = {**last.markers, BLOB_STORE_FACTORY: other.markers[BLOB_STORE_FACTORY]}
    records.write("alert-0", replace(last, markers=markers))
    run(tmp_path, 2, 2)
    assert "the snapshot index is that of another commit" in caplog.text
    check(tmp_path, 3)


def test_a_restore_that_is_refused_removes_no_blob(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The index names nothing, so that a clean-up would take all blobs for garbage."""
    directory = Directory(tmp_path / "lake" / "alerts" / "_runs")
    run(tmp_path, 0, 2, backends=("blob",))
    last = checkpoint_manager(directory).read_last("alert-0")
    assert isinstance(last, CheckpointV2)
    marker = last.markers[BLOB_STORE_FACTORY]["state"]
    store = FileSystemBlobStore(Directory(tmp_path / "blob"))
    index = msgspec.structs.replace(read_index(store, marker), directory=DirIndex.of())
    store.directory.write(f"blobs/{marker}", write_snapshot_index(index))
    before = store.list("job=alerts-1")
    task = commits.RestoreTask(
        CommitTargets("alerts", str(tmp_path / "blob")), directory.confined(),
        commits.SubtaskName("alert", 0), "blob", last,
        Directory(tmp_path / "restored").confined(),
    )  # fmt: skip
    with pytest.raises(CommitError, match="nothing was restored"):
        commits.restore_task(task)
    assert store.list("job=alerts-1") == before
    run(tmp_path, 1, 2, backends=("blob",))
    assert "the next source is restored from instead" in caplog.text
    check(tmp_path, 2)


class Counted(OneInputStreamProcessFunction):
    """Counts all records of a stream, in its one partition."""

    def uses_states(self) -> set[StateDeclaration]:
        """The count."""
        return {COUNT}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """One more."""
        state = ctx.get_state(COUNT)
        state.update((state.value() or 0) + 1)
        output.collect({"count": state.value()})


@pytest.mark.parametrize("source", ["blob", "changelog"])
def test_the_one_partition_of_a_global_stream_is_restored_from_a_backend(
    source: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though its operator has one subtask, and those of the run are two."""
    (tmp_path / "orders").mkdir()
    for part in range(2):
        (tmp_path / "orders" / f"{part}.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
        job = StreamJob("counted")
        orders = job.source("orders", str(tmp_path / "orders"), format="json").to_global()
        counted = orders.process(Counted(), uid="count", output={"count": pa.int64()})
        assert isinstance(counted, Stream)
        counted.sink("counts", str(tmp_path / "counts"))
        options = RunOptions(
            parallelism=2, engine="local", commit_to=[f"{source}={tmp_path / source}"],
            restore_from=source,
        )  # fmt: skip
        run_job(job, Catalog(tmp_path / "lake"), options)
    assert "restored from instead" not in caplog.text
    assert sorted(row["count"] for row in sink_rows(tmp_path / "counts")) == [1, 2, 3, 4]


@pytest.mark.parametrize("field", ["parallelism", "max_parallelism"])
def test_parts_of_another_parallelism_are_not_merged(field: str) -> None:
    """Some of the state would be nowhere."""
    parts = [OperatorMetadata("a", 2, 128, "uid", "uid", None, {}) for _ in range(2)]
    assert len(commits.merged([(2, parts)], 3).operators) == 1
    parts[1] = replace(parts[1], **{field: 4})
    with pytest.raises(CommitError, match="a subtask's state has parallelism"):
        commits.merged([(2, parts)], 3)


def test_a_changelog_is_restored_although_the_blobs_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restore needs its source alone."""
    run(tmp_path, 0, 2)
    Directory(tmp_path / "blob").delete_tree()
    with caplog.at_level(logging.ERROR):
        run(tmp_path, 1, 2, "changelog")
    assert "restored from instead" not in caplog.text
    check(tmp_path, 2)


def test_changelogs_that_cannot_be_created_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Kafka is down before tasks begin."""

    def create(*_: Any) -> None:
        raise CommitError("no answer in time")

    monkeypatch.setattr(FileChangelogs, "create", create)
    with pytest.raises(CommitError, match="no answer in time"):
        run(tmp_path, 0, 2, "lake")
    with caplog.at_level(logging.ERROR):
        run(tmp_path, 0, 2, "lake", if_backend_fails="continue")
    assert "changelogs can't be created" in caplog.text
    check(tmp_path, 1)


@pytest.mark.full
def test_old_blobs_go(tmp_path: Path) -> None:
    """The last two snapshots stay; the rest is cleaned up behind the record."""
    sizes = []
    for part in range(5):
        run(tmp_path, part, 1, "lake")
        sizes.append(len(Directory(tmp_path / "blob").files_below()))
    assert sizes[-1] == sizes[-2] == sizes[-3]


@pytest.mark.full
def test_a_backend_that_fails_is_left_out_and_catches_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the run is told to go on; otherwise it fails, and commits nothing."""
    run(tmp_path, 0, 2)
    changelog, aside = tmp_path / "changelog", tmp_path / "aside"
    changelog.rename(aside)
    changelog.write_text("no directory")
    feed(tmp_path / "data", 1)
    with pytest.raises(StateError):
        run(tmp_path, 1, 2, "blob")
    with caplog.at_level(logging.ERROR):
        run(tmp_path, 1, 2, "blob", if_backend_fails="continue")
    assert "the commit goes on without it" in caplog.text
    records = checkpoint_manager(Directory(tmp_path / "lake" / "alerts" / "_runs"))
    last = records.read_last("alert-0")
    assert last is not None
    assert set(last.markers) == {SNAPSHOT_FACTORY, BLOB_STORE_FACTORY}
    changelog.unlink()
    aside.rename(changelog)
    run(tmp_path, 2, 2, "blob")
    run(tmp_path, 3, 2, "changelog", backends=("changelog",))
    check(tmp_path, 4)


@pytest.mark.full
def test_a_second_writer_of_a_changelog_fails_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records lie between those of the run; run again, what it wrote is undone."""
    run(tmp_path, 0, 2, "lake")
    become = SubtaskStore.become

    def beside(store: SubtaskStore, files: SubtaskFiles) -> None:
        logs = FileChangelogs(tmp_path / "changelog")
        for partition in logs.partitions():
            other = logs.open(partition)
            other.append(b"stray", b"value")
            other.flush()
        become(store, files)

    with monkeypatch.context() as patch:
        patch.setattr(SubtaskStore, "become", beside)
        with pytest.raises(StateError, match="another process has appended"):
            run(tmp_path, 1, 2, "lake")
    run(tmp_path, 1, 2, "lake")
    run(tmp_path, 2, 2, "changelog", backends=("changelog",))
    check(tmp_path, 3)


@pytest.mark.parametrize(
    ("commit_to", "restore_from", "said"),
    [
        (("blobs=x",), "lake", "'blobs=x' is not a backend"),
        (("blob",), "lake", "'blob' is not a backend"),
        (("lake=x",), "lake", "'lake=x' is not a backend"),
        (("blob=x", "lake,blob=y"), "lake", "'blob' is named twice"),
        (("lake",), "changelog", "'changelog', which is not committed to"),
    ],
)
def test_backends_that_are_not(
    commit_to: tuple[str, ...], restore_from: str, said: str, tmp_path: Path
) -> None:
    """They are refused before anything is planned."""
    feed(tmp_path / "data", 0)
    job, options = alerts.alerts(str(tmp_path / "data")), RunOptions(parallelism=2, engine="local")
    options = replace(options, commit_to=commit_to, restore_from=restore_from)
    with pytest.raises(StateError, match=said):
        run_job(job, Catalog(tmp_path / "lake"), options)
    assert not (tmp_path / "lake" / "alerts" / "_runs" / "00000001").exists()


def test_a_list_of_brokers_is_one_place() -> None:
    """Commas divide backends, not brokers."""
    targets = CommitTargets.parse(
        "j", ["changelog=kafka://a:1,b:2,lake,blob=s3://x/y"], 1, tolerant=False
    )
    assert (targets.changelog, targets.blob) == ("kafka://a:1,b:2", "s3://x/y")


@given(
    names=st.lists(
        st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=2, max_size=2, unique=True
    )
)
def test_streams_are_valid_topics_and_never_the_same(names: list[tuple[str, str]]) -> None:
    """Of other jobs or operators."""
    first, second = (stream_of(*name) for name in names)
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9._-]+", first)
