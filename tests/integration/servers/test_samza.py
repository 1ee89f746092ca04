"""Real Samza 1.8 reads what is written here, and what it writes is read here."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit import FileCheckpointLog, PosixDisk, TaskStores
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    ChangelogMarker,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV1,
    CheckpointV2,
    SystemStreamPartition,
)
from statelake.state_core.runtime.commit.records.serdes import (
    read_changelog_marker,
    read_checkpoint_v1,
    read_checkpoint_v2,
    read_key,
    write_changelog_marker,
    write_checkpoint_v1,
    write_checkpoint_v2,
    write_key,
)
from statelake.state_core.runtime.commit.records.snapshot_index import (
    DirIndex,
    FileBlob,
    FileIndex,
    FileMetadata,
    SnapshotIndex,
    SnapshotMetadata,
    read_snapshot_index,
    successor,
    write_snapshot_index,
)
from tests.integration.samza.distribution import ask_samza
from tests.support.jobs.alert_orders import alerts_module, feed
from tests.support.jobs.commit_tasks import GROUPER, Job
from tests.support.jobs.doubles import segments

pytestmark = [pytest.mark.samza, pytest.mark.full]

CASES = 60
BLOBS = {"stores.store.backup.factories": "blob_store"}
STORE = f"store/task={'Partition%203'}"


def text(rng: random.Random) -> str:
    """Letters of several scripts, quotes and what JSON escapes."""
    return "".join(rng.choice('abcZ09 _-/:"\\\néß漢😀') for _ in range(rng.randint(1, 9)))


def partition(rng: random.Random) -> SystemStreamPartition:
    """Of a stream without dots: Samza itself can't read back one that has some."""
    stream = text(rng).replace(".", "")
    return SystemStreamPartition("kafka", stream, rng.randrange(2**31))


def identifier(rng: random.Random) -> CheckpointId:
    """Any."""
    return CheckpointId(rng.randrange(2**62), rng.randrange(10**6))


def marker(rng: random.Random) -> ChangelogMarker:
    """Of a changelog, which may be empty."""
    return ChangelogMarker(partition(rng), rng.choice([None, str(rng.randrange(2**62))]))


def version_1(rng: random.Random) -> CheckpointV1:
    """Some inputs, of which some have no offset."""
    offsets = [None, text(rng), f"{identifier(rng)}:{rng.randrange(10**9)}"]
    return CheckpointV1({partition(rng): rng.choice(offsets) for _ in range(rng.randrange(5))})


def version_2(rng: random.Random) -> CheckpointV2:
    """Some inputs, some backends, some stores."""
    changelogs = {text(rng): write_changelog_marker(marker(rng)) for _ in range(rng.randrange(4))}
    blobs = {text(rng): text(rng) for _ in range(rng.randrange(4))}
    return CheckpointV2(
        identifier(rng),
        {partition(rng): text(rng) for _ in range(rng.randrange(5))},
        {CHANGELOG_FACTORY: changelogs, BLOB_STORE_FACTORY: blobs, text(rng): {}},
    )


def key(rng: random.Random) -> CheckpointLogKey:
    """Of types that are not known too."""
    return CheckpointLogKey(text(rng), text(rng), rng.choice(["checkpoint", "checkpoint-v2", "x"]))


def index(rng: random.Random) -> SnapshotIndex:
    """Directories in directories, with what is gone since another such."""

    def files(salt: str) -> dict[str, FileIndex]:
        names = [f"{'d/' * rng.randrange(3)}{number}.sst" for number in range(rng.randrange(6))]
        metadata = FileMetadata(1, 2, rng.randrange(2**40), "u", "g", "rw-r--r--")
        return {
            path: FileIndex(
                path.rpartition("/")[2],
                tuple(FileBlob(f"{salt}{path}{part}", part * 10) for part in range(2)),
                metadata,
                rng.randrange(2**32),
            )
            for path in names
        }

    directory = successor(files("new"), successor(files("old"), DirIndex.of()))
    metadata = SnapshotMetadata(str(identifier(rng)), "job", "1", "Partition 3", "störe")
    return SnapshotIndex(
        rng.randrange(2**50), metadata, directory, rng.choice([None, "the one before"])
    )


def said(offsets: dict[SystemStreamPartition, str | None]) -> str:
    """As a Java map prints itself, sorted."""
    parts = sorted((str(ssp), offset) for ssp, offset in offsets.items())
    inside = ", ".join(f"{ssp}={'null' if offset is None else offset}" for ssp, offset in parts)
    return f"{{{inside}}}"


Form = tuple[
    Callable[[random.Random], object],
    Callable[..., bytes],
    Callable[[bytes], object],
    Callable[..., str],
]
FORMS: dict[str, Form] = {
    "v1": (version_1, write_checkpoint_v1, read_checkpoint_v1, lambda record: said(record.offsets)),
    "v2": (
        version_2,
        write_checkpoint_v2,
        read_checkpoint_v2,
        lambda record: f"{record.id} {said(record.input_offsets)} {{",
    ),
    "key": (key, write_key, read_key, lambda one: f"{one.task} {one.type} {one.grouper}"),
    "marker": (
        marker,
        lambda record: write_changelog_marker(record).encode(),
        lambda data: read_changelog_marker(data.decode()),
        lambda record: f"{record.changelog} {'null' if record.offset is None else record.offset}",
    ),
    "index": (
        index,
        write_snapshot_index,
        read_snapshot_index,
        lambda record: f"{record.metadata.checkpoint_id} Stats{{",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_samza_reads_ours_and_ours_reads_samzas(form: str) -> None:
    """Samza's class says of our bytes what we meant, and writes bytes that we read as the same."""
    make, write, read, says = FORMS[form]
    rng = random.Random(form)
    records = [make(rng) for _ in range(CASES)]
    answers = ask_samza([form, base64.b64encode(write(record)).decode()] for record in records)
    for record, (verdict, *answer) in zip(records, answers, strict=True):
        assert verdict == "ok", (record, answer)
        facts, again = answer
        assert base64.b64decode(facts).decode().startswith(says(record))
        assert read(base64.b64decode(again)) == record


def test_an_offset_of_a_changelog_in_version_1() -> None:
    """Samza takes it apart as we do."""
    log = SystemStreamPartition("kafka", "log", 0)
    answers = ask_samza(
        ["offset", base64.b64encode(raw.encode()).decode()] for raw in ("5-6:77", "5-6:null", "77")
    )
    assert [base64.b64decode(answer[1]) for answer in answers[:2]] == [b"5-6 77", b"5-6 null"]
    assert answers[2][0] == "error"
    assert CheckpointV1({log: "5-6:77"}).changelog_offset(log) == (CheckpointId(5, 6), "77")


def test_samza_restores_our_blobs(tmp_path: Path) -> None:
    """Its restore gets our files and finds them the same, owners and permissions too; twice."""
    with Job(tmp_path, BLOBS) as job:
        for number in range(3):
            task = job.task()
            task.put(**{f"key{number_}": f"{number}" * 100 for number_ in range(100 * number, 300)})
            task.commit()
        record = task.started.commits.last
        assert record is not None
        target = tmp_path / "found"
        store = record.markers[BLOB_STORE_FACTORY]["store"]
        ((verdict, same),) = ask_samza([["restore", str(job.root / "blobs"), store, str(target)]])
        assert (verdict, same) == ("ok", "true")
        local = job.root / "host" / STORE / str(record.id)
        names = sorted(file.name for file in target.iterdir())
        assert names == sorted(one.name for one in local.iterdir() if one.name != "CHECKPOINT-V2")
        for name in names:
            assert (target / name).read_bytes() == (local / name).read_bytes()


def test_a_task_goes_on_from_samzas_blobs(tmp_path: Path) -> None:
    """What Samza backed up is restored, the next commit sends what is new, and Samza reads that."""
    stores = TaskStores(PosixDisk(tmp_path / "old"), "any", [segments("store")])
    for number in range(50):
        stores.open("store").put(b"key%d" % number, b"samza")
    stores.flush()
    stores.checkpoint(CheckpointId(5, 6))
    source = tmp_path / "old" / stores.directory("store", CheckpointId(5, 6))
    with Job(tmp_path, BLOBS) as job:
        blobs = str(job.root / "blobs")
        ((verdict, first, *_),) = ask_samza([["backup", blobs, "", str(source), "5-6"]])
        assert verdict == "ok"
        written = CheckpointV2(CheckpointId(5, 6), {}, {BLOB_STORE_FACTORY: {"store": first}})
        samzas = CheckpointLogKey(GROUPER, "Partition 3", "checkpoint-v2")
        job.log.append(write_key(samzas), write_checkpoint_v2(written))
        task = job.task()
        assert task.content() == {f"key{number}": "samza" for number in range(50)}
        task.put(key0="ours")
        task.commit()
        assert task.context.measures["files_saved"] == 1
        record = task.started.commits.last
        assert record is not None
        marker = record.markers[BLOB_STORE_FACTORY]["store"]
        target = tmp_path / "found"
        answers = ask_samza(
            [
                ["restore", blobs, marker, str(target)],
                ["backup", blobs, marker, str(target), "7-8"],
            ]
        )
        assert answers[0] == ["ok", "true"]
        assert answers[1][0] == "ok"
        assert "filesAdded=0" in answers[1][2]


def test_samza_reads_what_a_run_commits(tmp_path: Path) -> None:
    """The records, the keys, the markers of changelogs; and it restores the blobs of a run."""
    feed(tmp_path / "data", 0)
    job = alerts_module().alerts(str(tmp_path / "data"))
    blobs = tmp_path / "blobs"
    commit_to = (f"blob={blobs}", f"changelog={tmp_path / 'changelogs'}")
    run_job(
        job,
        Catalog(tmp_path / "lake"),
        RunOptions(parallelism=2, engine="local", commit_to=commit_to),
    )
    log = FileCheckpointLog(Directory(tmp_path / "lake" / "alerts" / "_runs" / "checkpoints"))
    asked: list[list[str]] = []
    expected: list[str] = []
    for entry in log.read():
        record = read_checkpoint_v2(entry.message)
        marker = record.markers[CHANGELOG_FACTORY]["state"]
        changelog = read_changelog_marker(marker)
        asked += [
            ["v2", base64.b64encode(entry.message).decode()],
            ["key", base64.b64encode(entry.key).decode()],
            ["marker", base64.b64encode(marker.encode()).decode()],
            ["restore", str(blobs), record.markers[BLOB_STORE_FACTORY]["state"],
             str(tmp_path / f"found-{entry.offset}")],
        ]  # fmt: skip
        expected += [
            f"{record.id} {said(dict(record.input_offsets))} {{",
            f"{read_key(entry.key).task} checkpoint-v2 ",
            f"{changelog.changelog} {changelog.offset}", "",
        ]  # fmt: skip
    assert len(asked) == 4 * 4
    for words, wanted, (verdict, *answer) in zip(asked, expected, ask_samza(asked), strict=True):
        assert verdict == "ok", (words, answer)
        if words[0] == "restore":
            assert answer == ["true"]
        else:
            assert base64.b64decode(answer[0]).decode().startswith(wanted)
