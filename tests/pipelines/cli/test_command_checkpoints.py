"""`statelake checkpoints`, over logs that jobs committed to."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import (
    CheckpointId,
    CheckpointManager,
    CheckpointV2,
    FileCheckpointLog,
    FileSystemBlobStore,
)
from statelake.state_core.runtime.commit.logs.checkpoint_records import read_records
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    SNAPSHOT_FACTORY,
)
from tests.support.command import run
from tests.support.jobs.alert_orders import alerts_module, expected, feed, state_rows
from tests.support.jobs.committed_job import GROUPER, INPUT, CommittedJob
from tests.support.lakes import files_of

ONE, TWO = "Partition 0", "Partition 1"


def rounds(count: int) -> list[dict[bytes, bytes]]:
    """A thousand keys, and then one after the other."""
    first = {b"%d" % number: bytes([number % 251]) * 20 for number in range(1000)}
    return [first, *({b"%d" % number: b"new"} for number in range(count - 1))]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., CommittedJob]:
    """A job over a log."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    return lambda **more: CommittedJob(tmp_path, log, **more)


def checkpoints(command: str, tmp_path: Path, *words: object) -> Any:
    """Run a command over the test's log."""
    return run("checkpoints", command, "--log", tmp_path / "log", *words)


def test_list(make: Callable[..., CommittedJob], tmp_path: Path) -> None:
    """Each task's last checkpoint of each version, and who has its stores."""
    job = make(backup=["changelog", "blob_store"], write_versions=(1, 2))
    job.run(TWO, rounds(1))
    job.run(ONE, rounds(3))
    found = checkpoints("list", tmp_path, "--json").json
    versions = [(record["task"], record["version"]) for record in found]
    assert versions == [(ONE, 1), (ONE, 2), (TWO, 1), (TWO, 2)]
    assert found[0]["checkpoint"] == found[1]["checkpoint"]
    assert found[0]["markers"] == {}
    assert found[1]["markers"] == {BLOB_STORE_FACTORY: ["counts"], CHANGELOG_FACTORY: ["counts"]}
    assert [record["offset"] for record in found] == [6, 7, 0, 1]
    assert all(record["grouper"] == GROUPER and record["age_ms"] >= 0 for record in found)
    shown = checkpoints("list", tmp_path)
    assert shown.out.startswith("2 tasks\n")
    assert "changelog: counts; blob_store: counts" in shown.out


def test_names_in_brackets_are_shown(tmp_path: Path) -> None:
    """As Samza calls the tasks of one partition each."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    CheckpointManager(log, GROUPER).write(str(INPUT), CheckpointV2(CheckpointId(1, 2)))
    assert "SystemStreamPartition [kafka, orders, 0]" in checkpoints("list", tmp_path).out


def test_show(make: Callable[..., CommittedJob], tmp_path: Path) -> None:
    """The last record, or one before, as it is written; else exit code 3."""
    make().run(ONE, rounds(2))
    last = checkpoints("show", tmp_path, "--task", ONE).json
    assert last["key"]["taskName"] == ONE
    assert last["offset"] == 1
    first, second = read_records(make().log)
    assert last["checkpoint"] == json.loads(second.record.message)
    words = ("--task", ONE, "--version", "2", "--checkpoint", first.id)
    shown = checkpoints("show", tmp_path, *words).json
    assert shown["checkpoint"] == json.loads(first.record.message)
    assert shown["checkpoint"] != last["checkpoint"]
    for missing in (("--task", TWO), ("--task", ONE, "--version", "1")):
        ran = checkpoints("show", tmp_path, *missing)
        assert (ran.code, ran.out) == (3, "")
        assert "no such record of task" in ran.err


def test_verify(make: Callable[..., CommittedJob], tmp_path: Path) -> None:
    """Every marker is restored, and nothing is changed by that."""
    job = make()
    job.run(ONE, rounds(3))
    job.run(TWO, rounds(1))
    before = files_of(tmp_path)
    words = ("--blobs", tmp_path / "blobs", "--changelogs", tmp_path / "changelogs")
    ran = checkpoints("verify", tmp_path, *words, "--json")
    assert ran.code == 0
    assert ran.json["sound"] is True
    found = {
        (marker["task"], marker["backend"]): marker["outcome"] for marker in ran.json["markers"]
    }
    factories = (BLOB_STORE_FACTORY, CHANGELOG_FACTORY)
    assert found == {(task, name): "sound" for task in (ONE, TWO) for name in factories}
    assert all(marker["size"] > 1000 for marker in ran.json["markers"])
    assert files_of(tmp_path) == before


def flip(path: Path) -> None:
    """Change a byte."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [(flip, "is not what was uploaded"), (Path.unlink, "is no longer there")],
)
def test_a_blob_that_is_damaged(
    tmp_path: Path, damage: Callable[[Path], object], problem: str
) -> None:
    """Is told with its task and its store, by exit code 1; the changelog's marker is sound."""
    job = CommittedJob(tmp_path, FileCheckpointLog(Directory(tmp_path / "log")))
    job.run(ONE, rounds(2))
    damage(next((tmp_path / "blobs").rglob("*.seg")))
    words = ("--blobs", tmp_path / "blobs", "--changelogs", tmp_path / "changelogs")
    ran = checkpoints("verify", tmp_path, *words, "--json")
    assert ran.code == 1
    (fault,) = ran.json["faults"]
    assert fault.startswith(f"task {ONE}, store counts, checkpoint ")
    assert problem in fault
    shown = checkpoints("verify", tmp_path, *words)
    assert shown.code == 1
    assert shown.out.startswith("2 markers, 1 faults\n")
    only = checkpoints("verify", tmp_path, *words[2:])
    assert only.code == 0
    assert "not looked at" in only.out


def test_a_store_that_nobody_looked_at(tmp_path: Path) -> None:
    """Is a fault: what was not tried is not known to be sound."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    CommittedJob(tmp_path, log, backup=["changelog"]).run(ONE, rounds(1))
    ran = checkpoints("verify", tmp_path, "--blobs", tmp_path / "blobs", "--json")
    assert ran.code == 1
    assert ran.json["faults"][0].endswith("no marker of it was looked at")


def test_version_1_alone_is_not_known_to_be_sound(tmp_path: Path) -> None:
    """Nothing in it says what could be looked at."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    job = CommittedJob(tmp_path, log, backup=["changelog"], write_versions=(1,))
    job.run(ONE, rounds(1), read_versions="1")
    ran = checkpoints("verify", tmp_path, "--blobs", tmp_path / "blobs", "--json")
    assert ran.code == 1
    assert len(ran.json["faults"]) == 1


def test_older_records_are_verified_too(tmp_path: Path) -> None:
    """If they are asked for: retention removed what the first of them needs."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    CommittedJob(tmp_path, log, backup=["blob_store"], keep=2).run(ONE, rounds(3))
    words = ("--blobs", tmp_path / "blobs", "--task", ONE, "--json")
    assert checkpoints("verify", tmp_path, *words).code == 0
    ran = checkpoints("verify", tmp_path, *words, "--all")
    assert ran.code == 1
    assert [marker["outcome"] for marker in ran.json["markers"]] == ["unsound", "sound", "sound"]


def test_drop(make: Callable[..., CommittedJob], tmp_path: Path) -> None:
    """Records beyond the last go, with the blobs of no other; the job goes on."""
    job = make(backup=["blob_store"], keep=4, write_versions=(1, 2))
    job.run(ONE, rounds(4))
    job.run(TWO, rounds(2))
    words = ("--blobs", tmp_path / "blobs", "--json")
    before = len(list((tmp_path / "blobs" / "blobs").rglob("*-*")))
    ran = checkpoints("drop", tmp_path, "--keep", "2", *words)
    assert ran.json["records"] == 4
    assert ran.json["records_kept"] == 8
    assert ran.json["blobs"] > 0
    verified = checkpoints("verify", tmp_path, "--all", *words).json
    assert verified["sound"] is True
    assert len(verified["markers"]) == 4
    again = checkpoints("drop", tmp_path, "--keep", "1", *words).json
    assert (again["records"], again["records_kept"]) == (4, 4)
    assert len(list((tmp_path / "blobs" / "blobs").rglob("*-*"))) < before
    assert checkpoints("verify", tmp_path, "--all", *words).code == 0
    nothing = checkpoints("drop", tmp_path, "--keep", "1", *words).json
    assert (nothing["records"], nothing["blobs"]) == (0, 0)
    assert job.run(ONE, rounds(1))[b"2"] == b"new"
    assert "0 records removed" in checkpoints("drop", tmp_path, "--keep", "9").out


def test_drop_leaves_what_is_being_uploaded(tmp_path: Path) -> None:
    """A blob that no record names yet stays until it expires."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    job = CommittedJob(tmp_path, log, backup=["blob_store"])
    job.run(ONE, rounds(1))
    (record,) = read_records(log)
    assert isinstance(record.checkpoint, CheckpointV2)
    marker = record.checkpoint.markers[BLOB_STORE_FACTORY]["counts"]
    folder = f"{marker.rsplit('/', 2)[0]}/9-9"
    blob = job.backends[0].blobs.put(folder, "1.seg", [b"x"])
    words = ("--keep", "1", "--blobs", tmp_path / "blobs", "--json")
    assert checkpoints("drop", tmp_path, *words).json["blobs"] == 0
    assert b"".join(job.backends[0].blobs.get(blob)) == b"x"
    job.backends[0].blobs.make_permanent(folder)
    assert checkpoints("drop", tmp_path, *words).json["blobs"] == 1


@pytest.mark.parametrize("moment", ["list", "expiring"])
@pytest.mark.parametrize("late", [False, True])
def test_a_job_may_commit_while_records_are_dropped(
    tmp_path: Path, moment: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after blobs are listed, or those that expire: what is in the log by then stays."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    job = CommittedJob(tmp_path, log, backup=["blob_store"])
    job.run(ONE, rounds(3))
    original = getattr(FileSystemBlobStore, moment)

    def meanwhile(store: FileSystemBlobStore, prefix: str) -> Any:
        monkeypatch.undo()
        found = original(store, prefix) if late else None
        job.run(ONE, [{b"meanwhile": b"x"}, {b"again": b"y"}])
        return found if late else original(store, prefix)

    monkeypatch.setattr(FileSystemBlobStore, moment, meanwhile)
    words = ("--blobs", tmp_path / "blobs", "--json")
    assert checkpoints("drop", tmp_path, "--keep", "1", *words).code == 0
    assert checkpoints("verify", tmp_path, *words).code == 0
    shutil.rmtree(tmp_path / "disks")
    assert job.run(ONE, [])[b"again"] == b"y"


def test_drop_removes_no_blobs_of_a_log_that_it_does_not_understand(tmp_path: Path) -> None:
    """A broken record may name any of them."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    CommittedJob(tmp_path, log, backup=["blob_store"]).run(ONE, rounds(2))
    log.append(next(iter(log.read())).key, b"{}")
    before = files_of(tmp_path)
    ran = checkpoints("drop", tmp_path, "--keep", "1", "--blobs", tmp_path / "blobs")
    assert (ran.code, ran.out) == (3, "")
    assert files_of(tmp_path) == before


def test_migrate_and_back(make: Callable[..., CommittedJob], tmp_path: Path) -> None:
    """A job of version 1 goes on with version 2, and with version 1 again; nothing is lost."""
    job = make(backup=["changelog"], write_versions=(1,))
    for task in (ONE, TWO):
        job.run(task, rounds(2), read_versions="1")
    named = ("--changelog", "counts=kafka.counts-log")
    refused = checkpoints("migrate", tmp_path, "--json")
    assert refused.code == 1
    assert [task["outcome"] for task in refused.json] == ["refused", "refused"]
    assert "name it: STORE=kafka.counts-log" in refused.json[0]["why"]
    dry = checkpoints("migrate", tmp_path, *named, "--dry-run")
    assert "2 tasks, 0 refused, nothing appended" in dry.out
    one = checkpoints("migrate", tmp_path, *named, "--task", ONE, "--json").json
    assert [(row["task"], row["outcome"]) for row in one] == [(ONE, "migrated")]
    rest = checkpoints("migrate", tmp_path, *named, "--json").json
    assert [row["outcome"] for row in rest] == ["migrated before", "migrated"]
    assert len(list(job.log.read())) == 6
    job.write_versions = (2,)
    assert len(job.run(ONE, [{b"0": b"second"}], read_versions="2")) == 1000
    back = checkpoints("migrate", tmp_path, "--rollback", "--json").json
    assert [row["outcome"] for row in back] == ["rolled back", "rolled back before"]
    job.write_versions = (1,)
    assert job.run(ONE, [{b"1": b"third"}], read_versions="1")[b"0"] == b"second"
    again = checkpoints("migrate", tmp_path, *named, "--json").json
    assert [row["outcome"] for row in again] == ["migrated", "migrated before"]
    job.write_versions = (2,)
    assert job.run(ONE, [], read_versions="2")[b"1"] == b"third"


def test_a_rollback_that_would_lose_a_store_is_refused(tmp_path: Path) -> None:
    """Version 1 has no place for the marker of a blob store."""
    log = FileCheckpointLog(Directory(tmp_path / "log"))
    CommittedJob(tmp_path, log, backup=["blob_store"]).run(ONE, rounds(1))
    ran = checkpoints("migrate", tmp_path, "--rollback")
    assert ran.code == 1
    assert "1 tasks, 1 refused" in ran.out
    assert len(list(log.read())) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("drop", "--keep", "0"),
        ("migrate", "--changelog", "counts"),
        ("migrate", "--changelog", "counts=kafka"),
    ],
    ids=" ".join,
)
def test_usage(words: tuple[str, ...], tmp_path: Path) -> None:
    """What can't be meant is exit code 2."""
    assert checkpoints(words[0], tmp_path, *words[1:]).code == 2


def test_a_topic_has_a_cluster() -> None:
    """What names none is told before anything is asked."""
    ran = run("checkpoints", "list", "--log", "kafka://topic")
    assert (ran.code, ran.out) == (3, "")
    assert "names no topic; kafka://HOST:PORT/TOPIC" in ran.err


def test_no_log(tmp_path: Path) -> None:
    """An empty directory is none, and is left as it is."""
    (tmp_path / "log").mkdir()
    ran = checkpoints("list", tmp_path)
    assert (ran.code, ran.out) == (3, "")
    assert "no checkpoint log" in ran.err
    assert list((tmp_path / "log").iterdir()) == []


@pytest.fixture
def ran(tmp_path: Path) -> tuple[object, ...]:
    """The options that name a job of which three runs committed, the last with fewer subtasks."""
    job = alerts_module().alerts(str(tmp_path / "data"))
    lake, blobs = sl.Lake(tmp_path / "lake"), f"blob={tmp_path / 'blobs'}"
    for part, parallelism in enumerate((2, 3, 2)):
        feed(tmp_path / "data", part)
        lake.run(job, engine="local", parallelism=parallelism, commit_to=[blobs])
    return "--lake", tmp_path / "lake", "--job", "alerts"


def test_the_log_of_a_job_of_ours_is_found(ran: tuple[object, ...], tmp_path: Path) -> None:
    """By lake and job: the run and the snapshot of each task, and the backends that have it."""
    listed = run("checkpoints", "list", *ran, "--json").json
    last = {record["task"]: (record["run"], record["snapshot"]) for record in listed}
    assert last == {
        f"{uid}-{subtask}": (number, f"run-{number:08d}")
        for uid in ("alert", "count-by-rule")
        for subtask, number in enumerate((3, 3, 2))
    }
    shown = run("checkpoints", "list", *ran).out
    assert shown.startswith("6 tasks\ntask")
    assert re.search(r"alert-2 +2 +run-00000002 +lake, blob_store", shown)
    record = run("checkpoints", "show", *ran, "--task", "alert-0").json
    assert record["checkpoint"]["checkpoint-id"] == listed[0]["checkpoint"]
    by_path = run(
        "checkpoints", "list", "--log", tmp_path / "lake" / "alerts" / "_runs/checkpoints"
    )
    assert by_path.out.splitlines()[1].split() == shown.splitlines()[1].split()


@pytest.mark.full
def test_a_job_of_ours_is_verified_in_the_lake_and_elsewhere(
    ran: tuple[object, ...], tmp_path: Path
) -> None:
    """The tasks of its last run; a snapshot that is gone is a fault of each."""
    words = ("checkpoints", "verify", *ran)
    found = run(*words, "--json").json
    outcomes = {(marker["backend"], marker["outcome"]) for marker in found["markers"]}
    assert outcomes == {(SNAPSHOT_FACTORY, "sound"), (BLOB_STORE_FACTORY, "not looked at")}
    assert len(found["markers"]) == 2 * 2 * 2  # operators, subtasks, backends
    found = run(*words, "--blobs", tmp_path / "blobs", "--json").json
    assert {marker["outcome"] for marker in found["markers"]} == {"sound"}
    sl.Lake(tmp_path / "lake").job("alerts").drop("run-00000002")
    assert run(*words).code == 0
    every = run(*words, "--all", "--json")
    assert every.code == 1
    assert len(every.json["faults"]) == 2 * 3
    assert all("run-00000002" in fault for fault in every.json["faults"])


@pytest.mark.full
def test_records_of_a_job_of_ours_are_dropped_and_it_goes_on(
    ran: tuple[object, ...], tmp_path: Path
) -> None:
    """One record of each task stays; the next run has what it needs."""
    words = ("--blobs", tmp_path / "blobs", "--keep", 1, "--json")
    done = run("checkpoints", "drop", *ran, *words).json
    assert (done["records"], done["records_kept"]) == (4 + 6 + 4 - 6, 6)
    feed(tmp_path / "data", 3)
    job, blobs = alerts_module().alerts(str(tmp_path / "data")), f"blob={tmp_path / 'blobs'}"
    more = sl.Lake(tmp_path / "lake").run(
        job, engine="local", commit_to=[blobs], restore_from="blob"
    )
    assert (more.run, more.records) == (4, 300)
    assert (
        state_rows(Catalog(tmp_path / "lake"), 4, "alert", "spent", tmp_path)
        == (expected(range(4))[1])
    )


@pytest.mark.parametrize("command", ["list", "show", "verify", "drop", "migrate"])
def test_a_log_is_named_in_one_way(command: str, tmp_path: Path) -> None:
    """By its place, or by lake and job."""
    more = {"show": ("--task", "a"), "drop": ("--keep", 1)}.get(command, ())
    of_job = ("--lake", tmp_path, "--job", "nobody")
    for words in ((), of_job[:2], ("--log", tmp_path, *of_job)):
        refused = run("checkpoints", command, *words, *more)
        assert (refused.code, "--log" in refused.err) == (2, True)
    missing = run("checkpoints", command, *of_job, *more)
    assert missing.code == 3
    assert "no run of the job has committed yet" in missing.err
