"""Dagster over checkpoints: savepoints restored elsewhere, commits watched, logs migrated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.verify import verified_savepoints as savepoints
from statelake.pipelines.lake.verify.verified_savepoints import (
    keep_savepoints,
    take_savepoint,
    verify_savepoint,
)
from statelake.pipelines.orchestration import ops
from statelake.pipelines.orchestration.definitions import definitions
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.runtime.commit_measures import CommitReports, total
from statelake.state_core.errors import NotFoundError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import FileCheckpointLog
from tests.support.jobs.committed_job import CommittedJob
from tests.support.lakes import (
    KINDS,
    WORDS,
    entries,
    files_of,
    import_as,
    import_golden,
    raw_savepoint,
)
from tests.support.savepoints.golden_cases import golden_cases
from tests.support.steps import do_at

pytestmark = pytest.mark.full

PICTURE = re.compile(r"!\[[^\]]+\]\(data:image/svg\+xml;base64,PHN2Zy[A-Za-z0-9+/=]+\)\n\n.+\.")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster of its own."""
    home = tmp_path / "dagster"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home), {"telemetry": {"enabled": False}}) as instance:
        yield instance


@pytest.fixture
def locations(tmp_path: Path) -> Locations:
    """Places below the test's own; the job has two snapshots, taken at one time, in the lake."""
    taken_at = datetime(2026, 11, 20, tzinfo=timezone.utc)
    imports = ("snap-0", WORDS), ("snap-1", KINDS)
    import_golden(Catalog(tmp_path / "lake"), *imports, taken=taken_at)
    return Locations(
        lake=str(tmp_path / "lake"),
        exports=str(tmp_path / "exports"),
        checkpoints=str(tmp_path / "logs"),
        job="orders",
    )


def launched(
    instance: dg.DagsterInstance, locations: Locations, job: str, config: dict[str, Any]
) -> dg.ExecuteInProcessResult:
    """A job with its ops' configuration."""
    return definitions.resolve_job_def(job).execute_in_process(
        run_config={"ops": {name: {"config": values} for name, values in config.items()}},
        resources={"locations": locations},
        instance=instance,
        raise_on_error=False,
    )


def saved(
    instance: dg.DagsterInstance, locations: Locations, keep: int = 7
) -> dg.ExecuteInProcessResult:
    """A run of `savepoint_and_verify`."""
    local = {"engine": "local"}
    config = {"export_savepoint": local, "restore_elsewhere": local, "keep_exports": {"keep": keep}}
    return launched(instance, locations, "savepoint_and_verify", config)


def told(done: dg.ExecuteInProcessResult, op: str) -> dict[str, Any]:
    """The metadata of an op's outputs."""
    events = [event for event in done.events_for_node(op) if event.is_successful_output]
    return {
        name: value.value
        for event in events
        for name, value in event.step_output_data.metadata.items()
    }


def ticked(name: str, locations: Locations) -> Any:
    """What a schedule asks for."""
    context = dg.build_schedule_context(
        resources={"locations": locations}, repository_def=definitions.get_repository_def()
    )
    return definitions.resolve_schedule_def(name).evaluate_tick(context)


def failure(done: dg.ExecuteInProcessResult, op: str) -> Any:
    """How an op failed."""
    assert not done.success
    (event,) = [event for event in done.events_for_node(op) if event.is_step_failure]
    return event.step_failure_data.user_failure_data


def test_a_savepoint_is_taken_and_restored_elsewhere(
    instance: dg.DagsterInstance, locations: Locations, tmp_path: Path
) -> None:
    """Of the newest snapshot; it holds what Flink's own holds, and the lake is as it was."""
    before = files_of(tmp_path / "lake")
    done = saved(instance, locations)
    assert done.success
    (name,) = done.output_for_node("keep_exports")
    assert name.endswith("-snap-1")
    savepoint = tmp_path / "exports" / "orders" / name
    assert entries(savepoint) == entries(KINDS)
    assert savepoint.with_name(f"{name}.verified").is_file()
    record = locations.open_lake().catalog.snapshot("orders", "snap-1")
    assert told(done, "restore_elsewhere")["entries restored"] == record.entries > 0
    assert told(done, "export_savepoint")["restore it with"].startswith("flink run -s ")
    assert files_of(tmp_path / "lake") == before


def test_the_last_ones_stay(
    instance: dg.DagsterInstance, locations: Locations, tmp_path: Path
) -> None:
    """And nothing else is removed."""
    other = tmp_path / "exports" / "orders" / "by-hand"
    other.mkdir(parents=True)
    names = [saved(instance, locations, keep=2).output_for_node("keep_exports") for _ in range(3)]
    assert [len(name) for name in names] == [1, 2, 2]
    assert names[2][0] == names[1][1]
    found = {path.name for path in (tmp_path / "exports" / "orders").iterdir()}
    assert found == {"by-hand", *names[2], *(f"{name}.verified" for name in names[2])}


@pytest.mark.parametrize("keep", [1, 2])
def test_a_run_that_another_overtakes_names_what_is_there(
    keep: int,
    instance: dg.DagsterInstance,
    locations: Locations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest is the other's, by its time; this one's own goes if one alone is kept."""
    others: list[str] = []
    step = (ops, "verify_savepoint", "before", 1)
    do_at(monkeypatch, step, lambda: others.append(take_and_verify(locations)))
    done = saved(instance, locations, keep=keep)
    assert done.success
    metadata = told(done, "keep_exports")
    assert metadata["newest"] == others[0]
    assert Path(metadata["newest"]).is_dir()
    own = Path(told(done, "export_savepoint")["savepoint"])
    assert (own.is_dir(), metadata["removed"]) == (keep == 2, [own.name] if keep == 1 else [])


def test_a_run_whose_savepoint_another_has_removed_says_so(
    instance: dg.DagsterInstance, locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own was sound: the other one kept a newer one alone."""

    def other() -> None:
        take_and_verify(locations)
        keep_savepoints(locations.exports_location, "orders", 1)

    do_at(monkeypatch, (ops, "verify_savepoint", "before", 1), other)
    failed = failure(saved(instance, locations, keep=1), "restore_elsewhere")
    assert "was removed meanwhile, as by another run of this job" in failed.description


def take_and_verify(locations: Locations) -> str:
    """Another run's savepoint, which is verified."""
    lake = locations.open_lake().catalog
    record, done = take_savepoint(lake, "orders", locations.exports_location, engine="local")
    assert not verify_savepoint(lake, record, done.path, "local").faults
    return done.path


def test_a_faulty_export_fails_and_removes_nothing(
    instance: dg.DagsterInstance,
    locations: Locations,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run says what is wrong; the savepoints that were verified stay."""
    (first,) = saved(instance, locations, keep=1).output_for_node("keep_exports")
    original = savepoints.export_snapshot

    def damaging(*args: Any, **more: Any) -> Any:
        done = original(*args, **more)
        largest = max(Path(done.path).rglob("*"), key=lambda path: path.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-40])
        return done

    monkeypatch.setattr(savepoints, "export_snapshot", damaging)
    done = saved(instance, locations, keep=1)
    failed = failure(done, "restore_elsewhere")
    assert "is not to be relied on" in failed.description
    assert failed.metadata["faults"].value.startswith("- ")
    assert not any(event.is_step_start for event in done.events_for_node("keep_exports"))
    monkeypatch.undo()
    assert (tmp_path / "exports" / "orders" / first).is_dir()
    kept, gone, _ = keep_savepoints(str(tmp_path / "exports"), "orders", 1)
    assert (kept[0], gone) == (first, [])
    last = saved(instance, locations, keep=1).output_for_node("keep_exports")
    assert len(last) == 1
    assert len(list((tmp_path / "exports" / "orders").iterdir())) == 2


def test_a_savepoint_of_another_snapshot_is_no_copy_of_this_one(
    locations: Locations, tmp_path: Path
) -> None:
    """Sound as it is: its entries are not those of the snapshot."""
    lake = locations.open_lake().catalog
    _, done = take_savepoint(lake, "orders", str(tmp_path / "exports"), engine="local")
    other = verify_savepoint(lake, lake.snapshot("orders", "snap-0"), done.path, "local")
    assert other.faults
    assert not Path(f"{done.path}.verified").exists()
    assert (
        verify_savepoint(lake, lake.snapshot("orders", "snap-1"), done.path, "local").faults == []
    )


def test_state_without_tables_is_compared(tmp_path: Path) -> None:
    """By its bytes: nothing else could say that they are others."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, raw_savepoint(tmp_path / "raw"), "s")
    record, done = take_savepoint(lake, "orders", str(tmp_path / "exports"), engine="local")
    assert verify_savepoint(lake, record, done.path, "local").faults == []
    (carried,) = record.carried
    Path(done.path, carried.blob).write_bytes(bytes(carried.size))
    (fault,) = verify_savepoint(lake, record, done.path, "local").faults
    assert fault == f"operator {record.operators[0].operator_id} (raw): not as the snapshot has it"


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
def test_elements_are_compared_as_flink_redistributes_them(
    tmp_path: Path, parallelism: int
) -> None:
    """Split and union state at each parallelism is no false alarm, and one element less is one."""
    (case, *_) = golden_cases("operator")
    lake = import_golden(Catalog(tmp_path / "lake"), ("snap", case.snapshot))
    record, done = take_savepoint(
        lake, "orders", str(tmp_path / "exports"), parallelism=parallelism, engine="local"
    )
    assert verify_savepoint(lake, record, done.path, "local").faults == []
    split = next(
        state
        for operator in record.operators
        for state in operator.operator_states
        if state.mode == "SPLIT_DISTRIBUTE" and state.elements
    )
    subtask = next(each for each in split.subtasks if each.elements)
    subtask.elements -= 1
    assert verify_savepoint(lake, record, done.path, "local").faults


def test_without_a_snapshot(tmp_path: Path) -> None:
    """Nothing is exported, and the schedule asks for no run."""
    with pytest.raises(NotFoundError, match="has no snapshot"):
        take_savepoint(Catalog(tmp_path / "lake"), "orders", str(tmp_path / "exports"))
    empty = Locations(lake=str(tmp_path / "lake"), job="orders")
    assert "has no snapshot" in str(ticked("nightly_savepoint", empty).skip_message)


def test_schedules(locations: Locations) -> None:
    """They ask for runs of the jobs of their names."""
    for name in ("nightly_savepoint", "hourly_commits"):
        assert len(ticked(name, locations).run_requests or []) == 1
    found = {
        name: definitions.resolve_schedule_def(name).job_name
        for name in ("nightly_savepoint", "hourly_commits")
    }
    assert found == {"nightly_savepoint": "savepoint_and_verify", "hourly_commits": "watch_commits"}


class Ticking:
    """A clock that is set by hand."""

    now = 1_700_000_000_000

    def __call__(self) -> int:
        """Milliseconds."""
        return self.now


def test_reports_are_of_runs(tmp_path: Path) -> None:
    """A row for each task of a run, and no second one if the run is reported again."""
    clock = Ticking()
    reports = CommitReports(Directory(tmp_path), "orders", clock)
    reports.append({"one": {"commits": 2, "bytes_sent": 100}}, 1)
    clock.now += 60_000
    later = {"one": {"commits": 1}, "two": {"upload_ms": 5}}
    for run in (2, 2, 1):
        reports.append(later, run)
    reports.append({}, 3)
    found = reports.read()
    assert [(row.task, row.counts["commits"]) for row in found] == [
        ("one", 2), ("one", 1), ("two", 0)
    ]  # fmt: skip
    assert total(found)["bytes_sent"] == 100
    assert [row.task for row in reports.read(clock.now)] == ["one", "two"]
    assert [row.reported_at for row in reports.read(clock.now)] == [clock.now] * 2
    assert CommitReports(Directory(tmp_path), "other").read() == []


def watched(
    instance: dg.DagsterInstance, locations: Locations, **config: Any
) -> dg.ExecuteInProcessResult:
    """A run of `watch_commits`."""
    return launched(instance, locations, "watch_commits", {"report_commits": config})


def test_what_commits_cost_is_shown(
    instance: dg.DagsterInstance, locations: Locations, tmp_path: Path
) -> None:
    """Of a job that really committed: counts, a table and a picture."""
    job = CommittedJob(tmp_path, FileCheckpointLog(Directory(tmp_path / "logs")))
    job.run("Partition 0", [{b"a": b"x" * 5000}, {b"b": b"y"}])
    CommitReports(Directory(tmp_path / "lake"), "orders").append(
        {"Partition 0": job.measures.as_dict()}, 1
    )
    done = watched(instance, locations)
    assert done.success
    shown = told(done, "report_commits")
    assert shown["commits"] == 2
    assert shown["bytes_sent"] == job.measures["bytes_sent"] > 0
    assert shown["bytes_saved"] == job.measures["bytes_saved"] > 0
    assert len(PICTURE.findall(shown["over time"])) == 4
    assert "| Partition 0 | 2 | 0 | 0 |" in shown["tasks"]
    assert (
        watched(instance, locations, hours=-1.0).output_for_node("report_commits")["commits"] == 0
    )


@pytest.mark.parametrize("name", ["commits_blocked", "commits_skipped"])
def test_alarms(
    instance: dg.DagsterInstance, locations: Locations, tmp_path: Path, name: str
) -> None:
    """More than may be fail the run, with the picture; as many do not."""
    CommitReports(Directory(tmp_path / "lake"), "orders").append({"task": {name: 3}}, 1)
    limit = name.replace("commits", "max")
    assert watched(instance, locations, **{limit: 3}).success
    failed = failure(watched(instance, locations, **{limit: 2}), "report_commits")
    assert failed.description == f"{name}: 3, at most 2"
    assert len(PICTURE.findall(failed.metadata["over time"].value)) == 4


def migrated(
    instance: dg.DagsterInstance, locations: Locations, log: str, **config: Any
) -> dg.ExecuteInProcessResult:
    """A run of one partition of the backfill."""
    return definitions.resolve_job_def("migrate_checkpoint_logs").execute_in_process(
        run_config={"ops": {"migrated_checkpoint_logs": {"config": config}}},
        resources={"locations": locations},
        instance=instance,
        partition_key=log,
        raise_on_error=False,
    )


def test_logs_are_migrated_and_back(
    instance: dg.DagsterInstance, locations: Locations, tmp_path: Path
) -> None:
    """One partition each; again changes nothing; a log that is refused harms no other."""
    logs = {name: FileCheckpointLog(Directory(tmp_path / "logs" / name)) for name in ("a", "b")}
    for name, log in logs.items():
        job = CommittedJob(tmp_path / name, log, backup=["changelog"], write_versions=(1,))
        for task in ("Partition 0", "Partition 1"):
            job.run(task, [{b"a": b"1"}], read_versions="1")
    instance.add_dynamic_partitions("checkpoint_logs", list(logs))
    named = {"changelogs": {"counts": "kafka.counts-log"}}
    assert not migrated(instance, locations, "b", changelogs={}).success
    for count in (4, 4):
        done = migrated(instance, locations, "a", **named)
        assert done.success
        assert len(list(logs["a"].read())) == count
    (event,) = done.get_asset_materialization_events()
    assert event.partition == "a"
    assert event.materialization.metadata["migrated before"].value == 2
    assert len(list(logs["b"].read())) == 2
    assert migrated(instance, locations, "b", **named).success
    assert migrated(instance, locations, "b", rollback=True).success
    assert len(list(logs["b"].read())) == 4


def test_something_stays(instance: dg.DagsterInstance, locations: Locations) -> None:
    """To keep none is refused before anything is exported."""
    with pytest.raises(dg.DagsterInvalidConfigError):
        launched(instance, locations, "savepoint_and_verify", {"keep_exports": {"keep": "none"}})
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        ops.KeepConfig(keep=0)
