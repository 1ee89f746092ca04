"""`scan`: what snapshots there are below a directory, and which Flink can start from."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import statelake as sl
from statelake.state_core.errors import MissingFileError
from statelake.state_core.files.compression import compress_snappy
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.object_stores import not_read
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    canonical_savepoint_properties,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.stream_map import moved_streams
from statelake.state_core.model.handles import FileHandle, IncrementalHandle, StreamHandle
from tests.support.command import run
from tests.support.savepoints.checkpoint_trees import FAMILIES, MadeSnapshot, MadeTree, made_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty directory for a tree."""
    return tmp_path / "flink"


def made(root: Path, **options: object) -> MadeTree:
    """Make a tree, and write it."""
    tree = made_tree(f"file:{root}", **options)  # type: ignore[arg-type] - as each test says
    tree.write(root)
    return tree


def is_sound(root: Path, snapshot: MadeSnapshot, directory: str, length: int) -> bool:
    """Whether Flink finds all that a snapshot needs, by what the file system says.

    Args:
        root: The tree.
        snapshot: What it needs.
        directory: Where it is by now.
        length: Of its `_metadata`.
    """

    def has(path: Path, size: int) -> bool:
        return path.is_file() and path.stat().st_size >= size

    return (
        has(root / directory / "_metadata", length)
        and all(has(root / directory / name, size) for name, size in snapshot.beside.items())
        and all(has(root / path, size) for path, size in snapshot.elsewhere.items())
    )


def test_every_kind_is_told(root: Path) -> None:
    """With Flink's ids, the bytes and what is shared, the newest first."""
    tree = made(root, jobs=len(FAMILIES), each=3)
    found = sl.scan(root)
    assert [each.path for each in found.snapshots] == [
        made.path for made in reversed(tree.snapshots)
    ]
    by_path = {each.path: each for each in found.snapshots}
    for one in tree.snapshots:
        each = by_path[one.path]
        assert (each.state, each.checkpoint_id, each.job) == ("restorable", one.number, one.job)
        assert each.time.timestamp() == one.time
        assert each.location == str(root / one.path)
        assert 0 < each.incremental_bytes <= each.bytes
    traits = Counter((each.kind, each.traits) for each in found.snapshots)
    assert traits == {
        ("checkpoint", ("incremental",)): 6,
        ("checkpoint", ("incremental", "file-merged")): 3,
        ("checkpoint", ("changelog",)): 6,
        ("checkpoint", ("unaligned",)): 3,
        ("checkpoint", ()): 3,
        ("savepoint", ()): 7,
    }
    formats = {each.format for each in found.snapshots if each.kind == "savepoint"}
    assert formats == {"canonical", "native"}
    assert any(each.incremental_bytes < each.bytes for each in found.snapshots)
    shares = {each.path for each in found.snapshots if each.shared_bytes}
    incremental = next(each for each in found.snapshots if each.traits == ("incremental",))
    assert incremental.path in shares
    assert not shares & {each.path for each in found.snapshots if each.kind == "savepoint"}


def test_bytes_are_those_that_a_snapshot_says(tmp_path: Path) -> None:
    """As `inspect` counts them."""
    tree = made(tmp_path / "flink", jobs=len(FAMILIES), each=1)
    for each in sl.scan(tmp_path / "flink").snapshots:
        described = sl.open_snapshot(each.location, allow_external=[str(tmp_path / "flink")])
        assert each.operators == len(described.operators)
        assert each.checkpoint_id == described.checkpoint_id
        assert each.parallelism == max(o.parallelism for o in described.operators)
    assert len(tree.snapshots) == 2 * len(FAMILIES)


@pytest.mark.parametrize("damages", [20, pytest.param(200, marks=pytest.mark.full)])
def test_the_newest_sound_one_is_right_after_random_damage(
    damages: int, root: Path, tmp_path: Path
) -> None:
    """Cut, lost, moved and half-deleted: what is told is what Flink would find."""
    tree = made(root, jobs=3, each=4, families=("incremental", "merged", "changelog"))
    lengths = {
        snapshot.path: len(tree.files[f"{snapshot.path}/_metadata"][0])
        for snapshot in tree.snapshots
    }
    rng = random.Random(20261126)
    told = Counter[str]()
    for _ in range(damages):
        damaged = tmp_path / "damaged"
        shutil.copytree(root, damaged, copy_function=os.link)
        # the tree lies where handles say
        root.rename(tmp_path / "aside")
        damaged.rename(root)
        places = {snapshot.path: snapshot.path for snapshot in tree.snapshots}
        for _ in range(rng.randint(1, 6)):
            damage(root, rng, places)
        sound = [
            snapshot
            for snapshot in tree.snapshots
            if is_sound(root, snapshot, places[snapshot.path], lengths[snapshot.path])
        ]
        newest = sl.scan(root, latest=True, sound=True)
        expected = [places[snapshot.path] for snapshot in sound[-1:]]
        assert [found.path for found in newest.snapshots] == expected, places
        everything = sl.scan(root)
        restorable = {found.path for found in everything.snapshots if found.restorable}
        assert restorable == {places[snapshot.path] for snapshot in sound}
        assert all(found.problems for found in everything.snapshots if not found.restorable)
        told.update(found.state for found in everything.snapshots)
        told["newest is not sound"] += newest.skipped != ()
        shutil.rmtree(root)
        (tmp_path / "aside").rename(root)
    assert min(told.values()) >= damages // 10
    assert told.keys() == {
        "restorable", "moved", "incomplete", "damaged", "newest is not sound",
    }  # fmt: skip


def damage(root: Path, rng: random.Random, places: dict[str, str]) -> None:
    """Do one thing to a tree; note where snapshots are afterwards."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    newer = sorted(path for path in files if path.name == "_metadata")
    target = rng.choice(newer if rng.random() < 0.3 and newer else files)
    kind = rng.choice(("cut", "delete", "half", "move", "move job", "move shared"))
    if kind == "cut":
        data = target.read_bytes()
        status = target.stat()
        target.unlink()  # its other name, in the whole tree, stays as it is
        target.write_bytes(data[: rng.randrange(len(data))])
        os.utime(target, (status.st_atime, status.st_mtime))
    elif kind == "delete":
        target.unlink()
    elif kind == "half":
        for path in sorted(target.parent.iterdir()):
            if path.is_file() and rng.random() < 0.5:
                path.unlink()
    elif kind == "move":
        snapshot = rng.choice(sorted(places))
        there = f"backup/{rng.randrange(10**9)}/{snapshot.rpartition('/')[2]}"
        if (root / places[snapshot]).is_dir():
            (root / there).parent.mkdir(parents=True)
            (root / places[snapshot]).rename(root / there)
            places[snapshot] = there
    elif kind == "move job":
        job = rng.choice(sorted(places)).partition("/")[0]
        if job != "savepoints" and (root / job).is_dir():
            there = f"moved-{rng.randrange(10**9)}"
            (root / job).rename(root / there)
            for snapshot, place in places.items():
                if place.startswith(f"{job}/"):
                    places[snapshot] = there + place.removeprefix(job)
    else:
        shared = sorted(path for path in root.rglob("*") if path.name in {"shared", "dstl"})
        if shared:
            rng.choice(shared).rename(root / f"files-{rng.randrange(10**9)}")


def test_a_script_gets_the_path_alone_and_the_reasons_beside(root: Path) -> None:
    """Exit code 1 if there is none."""
    tree = made(root, jobs=1, each=3, savepoints=0)
    words = ("scan", root, "--latest", "--sound", "--print-path")
    newest, before = tree.snapshots[-1], tree.snapshots[-2]
    ran = run(*words)
    assert (ran.code, ran.out, ran.err) == (0, f"{root / newest.path}\n", "")
    (root / newest.path / "_metadata").unlink()
    ran = run(*words)
    assert (ran.code, ran.out) == (0, f"{root / before.path}\n")
    assert ran.err.startswith(f"{root / newest.path} is incomplete: it has no `_metadata`")
    shutil.rmtree(root / newest.job / "shared")
    ran = run(*words)
    assert (ran.code, ran.out) == (1, "")
    assert "chk-1 is damaged: " in ran.err
    assert "is missing" in ran.err
    assert ran.err.endswith("none of the 3 snapshots can be restored\n")
    listed = run("scan", root, "--json")
    assert listed.code == 0
    assert [each["state"] for each in listed.json["snapshots"]] == [
        "incomplete", "damaged", "damaged",
    ]  # fmt: skip


def test_a_copy_is_as_old_as_its_id_says(root: Path) -> None:
    """Copying sets times anew, in any order."""
    tree = made(root, jobs=1, each=5, savepoints=0)
    (*_, last) = tree.snapshots
    os.utime(root / tree.snapshots[0].path / "_metadata", (2e9, 2e9))
    found = sl.scan(root)
    assert [each.checkpoint_id for each in found.snapshots] == [5, 4, 3, 2, 1]
    newest = sl.scan(root, latest=True).newest
    assert newest is not None
    assert newest.path == last.path


def test_where_flink_looks_counts(root: Path, tmp_path: Path) -> None:
    """A moved checkpoint is none to start from, unless the cluster has it under its name."""
    made(root, jobs=1, each=2, savepoints=0)
    root.rename(tmp_path / "mounted")
    there = tmp_path / "mounted"
    found = sl.scan(there)
    assert {each.state for each in found.snapshots} == {"moved"}
    assert "--path-map" in found.snapshots[0].reason
    path_map = f"{root}={there}"
    assert all(each.restorable for each in sl.scan(there, path_map=[path_map]).snapshots)
    ran = run(
        "scan", there, "--latest", "--sound", "--print-path", "--path-map", path_map
    )  # fmt: skip
    assert ran.out == f"{root}/{found.snapshots[0].path}\n"


def test_a_checkpoint_by_itself_has_the_files_of_its_job(root: Path) -> None:
    """And only it is told."""
    tree = made(root, jobs=1, each=3, savepoints=0)
    middle = tree.snapshots[1]
    (found,) = sl.scan(root / middle.path).snapshots
    assert (found.checkpoint_id, found.restorable) == (2, True)
    with pytest.raises(MissingFileError):
        sl.scan(root / "nothing")


def test_only_those_of_a_job(root: Path) -> None:
    """By its id, which a savepoint's name begins with."""
    tree = made(root, jobs=3, each=1)
    job = tree.snapshots[0].job
    found = sl.scan(root, job_id=job)
    assert {each.job for each in found.snapshots} == {job}
    assert {each.kind for each in found.snapshots} == {"checkpoint", "savepoint"}


@pytest.mark.full
def test_every_byte_is_read_if_wanted(root: Path) -> None:
    """A flipped byte has the right length."""
    tree = made(root, jobs=1, each=2, families=("hashmap",), savepoints=0)
    newest = tree.snapshots[-1]
    path = root / newest.path / max(newest.beside, key=newest.beside.__getitem__)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    assert all(each.restorable for each in sl.scan(root).snapshots)
    states = [each.state for each in sl.scan(root, deep=True).snapshots]
    assert states == ["damaged", "restorable"]
    ran = run("scan", root, "--deep", "--latest", "--sound", "--print-path")
    assert ran.out == f"{root / tree.snapshots[0].path}\n"


def test_a_compressed_log_is_shorter_than_its_handles_say(root: Path) -> None:
    """And one that is not compressed is damaged if it is shorter by one byte."""
    tree = made(root, jobs=1, each=1, families=("changelog",), savepoints=0)
    (snapshot,) = tree.snapshots
    (log,) = (path for path in snapshot.elsewhere if "/dstl/" in path)
    data = (root / log).read_bytes()
    (root / log).write_bytes(b"\1" + bytes(compress_snappy(data[1:])))
    assert (root / log).stat().st_size < len(data)
    assert all(each.restorable for each in sl.scan(root).snapshots)
    (root / log).write_bytes(data[:-1])
    (found,) = sl.scan(root).snapshots
    assert (found.state, f"{log} has {len(data) - 1:,} bytes" in found.reason) == ("damaged", True)


def test_foreign_metadata_leads_nowhere(root: Path, tmp_path: Path) -> None:
    """A handle to a file elsewhere is not followed; nothing is read through a link."""
    made(root, jobs=1, each=1, savepoints=0)
    root.rename(tmp_path / "other")
    (metadata,) = (tmp_path / "other").rglob("_metadata")
    here = tmp_path / "tree" / "chk-1"
    here.mkdir(parents=True)
    shutil.copy(metadata, here / "_metadata")
    (found,) = sl.scan(tmp_path / "tree").snapshots
    assert found.state == "damaged"
    assert f"is not below {tmp_path / 'tree'}" in found.reason
    (here / "_metadata").unlink()
    (here / "_metadata").symlink_to(metadata)
    assert sl.scan(tmp_path / "tree").snapshots == ()
    garbage = tmp_path / "tree" / "chk-2"
    garbage.mkdir()
    (garbage / "_metadata").write_bytes(os.urandom(100))
    (found,) = sl.scan(tmp_path / "tree").snapshots
    assert found.state == "damaged"


def test_names_that_are_none_are_told(root: Path) -> None:
    """And printed escaped; nothing that lies below one is read, or an orphan."""
    for name in (b"\xff\xfe", b"a\n\x1b[31mb"):
        directory = root / os.fsdecode(name) / "chk-1"
        directory.mkdir(parents=True)
        (directory / "_metadata").write_bytes(b"x")
    found = sl.scan(root)
    assert [each.state for each in found.snapshots] == ["damaged", "damaged"]
    assert "\x1b" not in str(found)
    assert len(run("scan", root, "--json").json["snapshots"]) == 2
    left = root / ("a" * 32) / "shared" / "left"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"left")
    os.utime(left, (1e9, 1e9))
    plan = sl.orphans(root, no_cluster=True, older_than=timedelta(days=1))
    assert (plan.files, plan.kept[0].files) == ((), 1)


@pytest.mark.full
def test_two_thousand_checkpoints_take_seconds(root: Path) -> None:
    """Of 20 jobs, of every kind; the newest sound one takes less than a second."""
    tree = made(root)
    assert len(tree.snapshots) == 2020
    start = time.perf_counter()
    found = sl.scan(root)
    seconds = time.perf_counter() - start
    assert all(each.restorable for each in found.snapshots)
    assert len(found.snapshots) == 2020
    start = time.perf_counter()
    newest = sl.scan(root, latest=True, sound=True).newest
    assert newest == replace(found.snapshots[0], shared_files=None, shared_bytes=None)
    assert seconds < 10
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("words", [["scan"], ["orphans", "--no-cluster", "--older-than", "1d"]])
@pytest.mark.full
def test_a_command_that_is_told_to_end_while_it_parses_ends(words: list[str], root: Path) -> None:
    """Within a second or so, of a `_metadata` that takes many."""
    there = root / ("5" * 32) / "chk-1"
    there.mkdir(parents=True)
    handle = FileHandle(f"file:{there.parent}/shared/{'a' * 32}", 1)
    keyed = IncrementalHandle(1, "b", 0, 128, None, (("1.sst", handle),) * 1_000_000, ())
    operator = OperatorMetadata("0" * 32, 1, 128, subtasks={0: SubtaskState(managed_keyed=keyed)})
    data = write_metadata(
        CheckpointMetadata(4, 1, [operator], [], canonical_savepoint_properties())
    )
    (there / "_metadata").write_bytes(data)
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_DFL);"
        " from statelake.pipelines.cli.main import main; main()"
    )
    with subprocess.Popen([sys.executable, "-c", program, *words, str(root)]) as command:
        while command.poll() is None:
            read = Path(f"/proc/{command.pid}/io").read_text().split()[1]
            if int(read) > len(data):
                break
            time.sleep(0.05)
        time.sleep(0.3)
        command.send_signal(signal.SIGTERM)
        start = time.monotonic()
        assert command.wait() == 143
    assert time.monotonic() - start < 2


def rewritten(directory: Path, change: Callable[[StreamHandle], StreamHandle]) -> None:
    """Let the handles of a snapshot lead elsewhere."""
    file = directory / "_metadata"
    metadata = moved_streams(read_metadata(file.read_bytes()), change, lambda merged: merged)
    file.write_bytes(write_metadata(metadata))


def test_what_lies_outside_is_neither_sound_nor_damaged(root: Path, tmp_path: Path) -> None:
    """In a directory that was not given. What is not inside, and should be, is damage."""
    tree = made(root, jobs=1, each=2, families=("incremental",), savepoints=0)
    newest = tree.snapshots[-1]
    other = f"file:{tmp_path}/other/{'b' * 32}"

    def of_other(stream: StreamHandle) -> StreamHandle:
        if isinstance(stream, FileHandle) and "/shared/" in stream.uri:
            return replace(stream, uri=f"{other}/shared/{stream.uri.rpartition('/')[2]}")
        return stream

    rewritten(root / newest.path, of_other)
    for name in [name for name in newest.elsewhere if "/shared/" in name]:
        (root / name).unlink(missing_ok=True)
    found = next(each for each in sl.scan(root).snapshots if each.path == newest.path)
    assert found.state == "elsewhere"
    assert f"it needs {other}/shared" in found.reason
    assert f"which is not below {root}" in found.reason
    assert sl.scan(root, sound=True, latest=True).newest != found
    assert newest.path not in run("scan", root, "--latest", "--sound", "--print-path").out
    (root / newest.path / next(iter(newest.beside))).unlink()
    found = next(each for each in sl.scan(root).snapshots if each.path == newest.path)
    assert found.state == "damaged"


def test_a_job_that_was_moved_lacks_what_it_lost(root: Path) -> None:
    """Where its other files were found: its handles lead outside, and its files are here."""
    tree = made(root, jobs=1, each=1, families=("incremental",), savepoints=0)
    (made_one,) = tree.snapshots
    moved = root.rename(root.parent / "moved")
    (found,) = sl.scan(moved).snapshots
    assert found.state == "moved"
    lost = next(name for name in made_one.elsewhere if "/shared/" in name)
    (moved / lost).unlink()
    (found,) = sl.scan(moved).snapshots
    assert found.state == "damaged"
    assert f"{lost} is not below {moved}" in found.reason


def test_no_access_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `_metadata` that may not be read, here or in a store, and with --deep any file."""
    (snapshot,) = made(root, jobs=1, each=1, families=("hashmap",), savepoints=0).snapshots
    opened = os.open

    def refusing(path: object, *words: object, **more: object) -> int:
        if str(path).endswith(denied):
            raise PermissionError(13, "Permission denied")
        return opened(path, *words, **more)  # type: ignore[call-overload] - as it is given

    denied = "_metadata"
    monkeypatch.setattr(os, "open", refusing)
    (found,) = sl.scan(root).snapshots
    assert (found.state, "Permission denied" in found.reason) == ("elsewhere", True)
    denied = next(iter(snapshot.beside))
    (found,) = sl.scan(root, deep=True).snapshots
    assert (found.state, "Permission denied" in found.reason) == ("elsewhere", True)
    monkeypatch.undo()
    assert sl.scan(root, deep=True).snapshots[0].restorable


def test_a_store_that_refuses_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the error of whatever reads its files."""
    made(root, jobs=1, each=1, families=("hashmap",), savepoints=0)

    def refuse(_directory: Directory, path: str, _size: int) -> bytes:
        raise not_read(OSError("AWS Error ACCESS_DENIED during GetObject operation"), path)

    monkeypatch.setattr(Directory, "read_listed", refuse)
    (found,) = sl.scan(root).snapshots
    assert (found.state, "ACCESS_DENIED" in found.reason) == ("elsewhere", True)
