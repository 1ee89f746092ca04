"""`copy`: a snapshot in another place, complete and exact."""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.pipelines.find import copying
from statelake.state_core.errors import (
    DeclarationError,
    MissingFileError,
    SnapshotError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import ConfinedTree
from statelake.state_core.files.file_sources import FileSource
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    read_metadata,
    write_as_read,
    write_metadata,
)
from statelake.state_core.formats.metadata.stream_map import moved_streams, streams_of
from statelake.state_core.model.handles import FileHandle, RelativeHandle, SegmentHandle
from tests.support.command import run
from tests.support.savepoints.checkpoint_trees import FAMILIES, MadeTree, made_tree, with_uris
from tests.support.savepoints.golden_cases import GOLDEN, golden_cases


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty directory for a tree."""
    return tmp_path / "flink"


def made(root: Path, *families: str, each: int = 2) -> MadeTree:
    """Make a tree with a job of each family, and write it."""
    tree = made_tree(f"file:{root}", jobs=len(families), each=each, families=families)
    tree.write(root)
    return tree


def metadata_of(directory: Path) -> CheckpointMetadata:
    """The content of a snapshot's `_metadata`."""
    return read_metadata((directory / "_metadata").read_bytes())


def bytes_of(directory: Path) -> list[bytes]:
    """What each handle of a snapshot leads to, in the order of `_metadata`, as Flink would read it.

    No file is looked for but where the handle says.
    """
    found = []
    for stream in streams_of(metadata_of(directory)):
        if isinstance(stream, RelativeHandle):
            found.append((directory / stream.path).read_bytes())
        elif isinstance(stream, FileHandle):
            found.append(Path(stream.uri.removeprefix("file:")).read_bytes())
        elif isinstance(stream, SegmentHandle):
            data = Path(stream.uri.removeprefix("file:")).read_bytes()
            found.append(data[stream.start : stream.start + stream.size])
    return found


def without_places(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """The same without the URIs of files."""

    def placeless(handle: Any) -> Any:
        return replace(handle, uri="")

    changed: CheckpointMetadata = with_uris(metadata, placeless)
    for operator in changed.operators:
        for subtask in (operator.subtasks or {}).values():
            managed = subtask.managed_operator
            if managed is not None and managed.merged_dirs is not None:
                subtask.managed_operator = replace(managed, merged_dirs=("", ""))
    return changed


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_is_whole_in_its_new_place(family: str, root: Path, tmp_path: Path) -> None:
    """Flink's handles lead to the same bytes there, with the original gone."""
    tree = made(root, family)
    for one in tree.snapshots:
        expected, before = bytes_of(root / one.path), metadata_of(root / one.path)
        to = tmp_path / "copies" / one.path
        done = sl.copy_snapshot(root / one.path, to)
        assert (done.files, done.kept_files) == (len({*one.beside, *one.elsewhere}), 0)
        assert done.bytes == sum(each.stat().st_size for each in to.rglob("*") if
                                 each.is_file() and each.name != "_metadata")  # fmt: skip
        assert without_places(metadata_of(to)) == without_places(before)
        root.rename(tmp_path / "gone")
        assert bytes_of(to) == expected
        (found,) = sl.scan(to).snapshots
        assert found.state == "restorable", found.reason
        assert found.time.timestamp() == one.time
        assert sl.check_integrity(to).sound
        (tmp_path / "gone").rename(root)


@pytest.mark.parametrize("golden", golden_cases(), ids=lambda golden: golden.name)
def test_what_flink_wrote(golden: Any, tmp_path: Path) -> None:
    """Every golden snapshot has the same files in its new place, and a savepoint no other byte."""
    to = tmp_path / "copy"
    done = sl.copy_snapshot(golden.snapshot, to)
    is_savepoint = golden.facts["format"] != "checkpoint"
    assert done.moved_handles == 0 or not is_savepoint
    copied = {path.name: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    original = {path.name: path.read_bytes() for path in golden.snapshot.rglob("*")
                if path.is_file()}  # fmt: skip
    if is_savepoint:
        assert copied == original
    else:
        original |= {path.name: path.read_bytes() for path in golden.folder.rglob("shared/*")}
        del copied["_metadata"]
        assert copied.items() <= original.items()
        assert len(copied) == done.files
    assert sl.scan(to).snapshots[0].state == "restorable"


@pytest.mark.parametrize(
    "source", sorted((GOLDEN / "old").iterdir()), ids=lambda source: source.name
)
def test_savepoints_of_old_flinks(source: Path, tmp_path: Path) -> None:
    """Before Flink 1.11 they name their files by whole paths, in a version only Flink wrote."""
    data = (source / "_metadata").read_bytes()
    assert write_as_read(read_metadata(data)) == data
    to = tmp_path / "copy"
    done = sl.copy_snapshot(source, to)
    assert (done.moved_handles > 0) == ("flink1.8" in source.name)
    assert without_places(metadata_of(to)) == without_places(metadata_of(source))
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    assert {path.name for path in to.rglob("*") if path.is_file()} == files.keys()
    named = [stream for stream in streams_of(metadata_of(to)) if isinstance(stream, FileHandle)]
    assert all(
        Path(stream.uri[5:]).read_bytes() == files[Path(stream.uri).name] for stream in named
    )


def held(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("family", ["incremental", "merged"])
def test_a_copy_that_fails_at_any_file_is_no_snapshot_and_goes_on(
    family: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is kept, and in the end it is the same copy."""
    one = made(root, family).snapshots[0]
    to = tmp_path / "copy"
    done = sl.copy_snapshot(root / one.path, to)
    whole = held(to)
    written, left = ConfinedTree.write, 0

    def failing_write(self: ConfinedTree, path: str, chunks: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise SnapshotError("no space left", place=path)
        written(self, path, chunks)

    monkeypatch.setattr(ConfinedTree, "write", failing_write)
    for writes in range(done.files + 2):
        shutil.rmtree(to)
        left = writes
        with pytest.raises(SnapshotError, match="no space left"):
            sl.copy_snapshot(root / one.path, to, threads=1)
        assert len(held(to)) == writes
        assert "_metadata" not in held(to)
        left = done.files + 2
        # the first says what is copied
        assert sl.copy_snapshot(root / one.path, to).kept_files == max(0, writes - 1)
        assert held(to) == whole


def killed(copy: Callable[[], object], at: int) -> bool:
    """Copy in another process, which is killed at a call to the system; whether it was."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == signal.SIGKILL
    calls = itertools.count()

    def audit(event: str, _: object) -> None:
        if event in ("open", "os.rename", "os.remove", "os.mkdir") and next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    try:
        copy()
    finally:
        os._exit(0)


@pytest.mark.full
def test_a_copy_that_is_killed_goes_on(root: Path, tmp_path: Path) -> None:
    """At 20 random calls, each time again until it is done."""
    one = made(root, "incremental").snapshots[0]
    to = tmp_path / "copy"
    sl.copy_snapshot(root / one.path, to)
    whole, rng, kills = held(to), random.Random(20261126), 0
    shutil.rmtree(to)
    while kills < 20:
        if killed(partial(sl.copy_snapshot, root / one.path, to), rng.randrange(60)):
            kills += 1
            assert "_metadata" not in held(to) or held(to) == whole
        if "_metadata" in held(to) or not rng.randrange(4):
            sl.copy_snapshot(root / one.path, to)
            assert held(to) == whole
            shutil.rmtree(to)


def test_what_is_there_is_kept_only_if_it_is_the_same(root: Path, tmp_path: Path) -> None:
    """Of the right length with other bytes is copied again, unless nothing is to be compared."""
    one = made(root, "hashmap").snapshots[0]
    to = tmp_path / "copy"
    files = sl.copy_snapshot(root / one.path, to).files
    whole = held(to)
    name = max(whole.keys() - {"_metadata"}, key=lambda name: len(whole[name]))
    (to / name).write_bytes(bytes(len(whole[name])))
    done = sl.copy_snapshot(root / one.path, to, verify=False)
    assert (done.was_complete, done.kept_files) == (True, files)
    done = sl.copy_snapshot(root / one.path, to)
    assert (done.was_complete, done.kept_files) == (True, files - 1)
    assert held(to) == whole


def test_what_is_read_back_is_compared(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that loses a byte is noticed; what it holds is no snapshot."""
    one = made(root, "hashmap").snapshots[0]
    written = ConfinedTree.write

    def losing(self: ConfinedTree, path: str, chunks: Any) -> None:
        data = b"".join(bytes(chunk) for chunk in chunks)
        written(self, path, [data[:-1] + bytes([data[-1] ^ 1])])

    monkeypatch.setattr(ConfinedTree, "write", losing)
    with pytest.raises(SnapshotError, match="other bytes are read back than were written"):
        sl.copy_snapshot(root / one.path, tmp_path / "copy")
    assert not (tmp_path / "copy" / "_metadata").exists()


def test_another_snapshot_is_never_written_over(root: Path, tmp_path: Path) -> None:
    """Nor is anything else that is there."""
    first, second = made(root, "hashmap").snapshots[:2]
    to = tmp_path / "copy"
    sl.copy_snapshot(root / first.path, to)
    before = held(to)
    with pytest.raises(DeclarationError, match="is there, which is no part of this copy"):
        sl.copy_snapshot(root / second.path, to)
    for path in [path for path in to.rglob("*") if path.is_file() and path.name != "_metadata"]:
        path.unlink()
    with pytest.raises(DeclarationError, match="another snapshot is there"):
        sl.copy_snapshot(root / second.path, to)
    sl.copy_snapshot(root / first.path, to)
    assert held(to) == before
    (to / "link").symlink_to(to / "_metadata")
    with pytest.raises(DeclarationError, match="link is there, which is no part of this copy"):
        sl.copy_snapshot(root / first.path, to)


def test_a_copy_is_not_in_its_original(root: Path) -> None:
    """Nor in the directory of the job, which may be deleted as a whole, nor above it."""
    one = made(root, "incremental").snapshots[0]
    before = held(root)
    for to in (
        one.path,
        f"{one.path}/copy",
        f"{one.job}/shared/copy",
        f"{one.job}/copy",
        one.job,
        "",
    ):
        with pytest.raises(DeclarationError, match="neither into the directory"):
            sl.copy_snapshot(root / one.path, root / to)
    (root.parent / "link").symlink_to(root / one.path)
    with pytest.raises(DeclarationError, match="neither into the directory"):
        sl.copy_snapshot(root / one.path, root.parent / "link" / "copy")
    assert held(root) == before


def test_files_that_are_missing_or_short_are_told_before_anything_is_written(
    root: Path, tmp_path: Path
) -> None:
    """By their names."""
    one = made(root, "incremental").snapshots[0]
    shared = root / next(iter(one.elsewhere))
    data = shared.read_bytes()
    shared.write_bytes(data[:-1])
    with pytest.raises(SnapshotError, match=f"{len(data) - 1} bytes, and `_metadata` says"):
        sl.copy_snapshot(root / one.path, tmp_path / "copy")
    shared.unlink()
    with pytest.raises(MissingFileError, match=shared.name):
        sl.copy_snapshot(root / one.path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_log_that_was_cut_off_is_told(root: Path, tmp_path: Path) -> None:
    """Its handles count the bytes before compression; without any, its length is known."""
    one = made(root, "changelog").snapshots[-1]
    log = root / next(path for path in one.elsewhere if "/dstl/" in path)
    data = log.read_bytes()
    assert data[0] == 0
    log.write_bytes(data[: one.elsewhere[str(log.relative_to(root))] - 1])
    with pytest.raises(SnapshotError, match=f"{log.name}: [0-9]+ bytes, and `_metadata` says"):
        sl.copy_snapshot(root / one.path, tmp_path / "copy")


def test_a_link_in_a_snapshot_becomes_a_file(tmp_path: Path) -> None:
    """Of the name that its handle has; elsewhere it may lead only if that is allowed."""
    golden = golden_cases(form="canonical")[0]
    source = tmp_path / "source"
    shutil.copytree(golden.snapshot, source)
    before = held(source)
    for number, name in enumerate(sorted(before.keys() - {"_metadata"})):
        place = source if number % 2 else tmp_path / "other"
        place.mkdir(exist_ok=True)
        (source / name).rename(place / f"renamed-{number}")
        (source / name).symlink_to(place / f"renamed-{number}")
    with pytest.raises(UnsafePathError, match="a link that leads to"):
        sl.copy_snapshot(source, tmp_path / "copy")
    sl.copy_snapshot(source, tmp_path / "copy", allow_external=[str(tmp_path / "other")])
    assert held(tmp_path / "copy") == before


def test_files_from_elsewhere_are_copied_if_that_is_allowed(root: Path, tmp_path: Path) -> None:
    """Two of one name, from two directories, stay apart."""
    one = made(root, "incremental").snapshots[0]
    source = root / one.path
    places = [tmp_path / "one", tmp_path / "two"]
    uris: dict[str, str] = {}
    for path, place in zip(sorted(one.elsewhere), itertools.cycle(places), strict=False):
        place.mkdir(exist_ok=True)
        new = place / f"state-{len(uris) // 2}"
        shutil.move(root / path, new)
        uris[f"file:{root / path}"] = f"file:{new}"
    assert len(uris) >= 2

    def placed(handle: Any) -> Any:
        return replace(handle, uri=uris[handle.uri])

    (source / "_metadata").write_bytes(write_metadata(with_uris(metadata_of(source), placed)))
    expected = bytes_of(source)
    with pytest.raises(UnsafePathError, match="--allow-external"):
        sl.copy_snapshot(source, tmp_path / "copy")
    sl.copy_snapshot(source, tmp_path / "copy", allow_external=map(str, places))
    again = tmp_path / "again"
    sl.copy_snapshot(tmp_path / "copy", again)
    for place in (*places, tmp_path / "copy", root):
        shutil.rmtree(place)
    assert bytes_of(again) == expected
    assert sl.scan(again).snapshots[0].state == "restorable"


@pytest.mark.parametrize("path", ["_metadata", "../x", "/etc/passwd", "x.part", "a/../b", ""])
def test_no_name_leads_out_of_the_copy(path: str, tmp_path: Path) -> None:
    """Whatever `_metadata` says."""
    golden = golden_cases(form="canonical")[0]
    source = tmp_path / "source"
    shutil.copytree(golden.snapshot, source)
    shutil.copy(
        next(each for each in source.iterdir() if each.name != "_metadata"), source / "x.part"
    )

    def of_stream(handle: Any) -> Any:
        return replace(handle, path=path) if isinstance(handle, RelativeHandle) else handle

    changed = moved_streams(metadata_of(source), of_stream, lambda uri: uri)
    (source / "_metadata").write_bytes(write_metadata(changed))
    with pytest.raises(SnapshotError):
        sl.copy_snapshot(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_the_clusters_name_of_the_place_is_in_the_handles(root: Path, tmp_path: Path) -> None:
    """By --path-map; the command prints what it did."""
    one = made(root, "incremental").snapshots[0]
    to = tmp_path / "mounted" / "chk-1"
    ran = run(
        "copy", root / one.path, to, "--path-map", f"s3://bucket/flink={tmp_path}/mounted", "--json"
    )
    assert ran.code == 0, ran.err
    uris = {stream.uri for stream in streams_of(metadata_of(to)) if isinstance(stream, FileHandle)}
    assert uris
    assert all(uri.startswith("s3://bucket/flink/chk-1/shared/") for uri in uris)
    assert sl.scan(to, path_map=[f"s3://bucket/flink={tmp_path}/mounted"]).snapshots[0].restorable
    assert sl.check_integrity(to).sound
    assert ran.json["files"] == len(held(to)) - 1
    ran = run("copy", root / one.path, to, "--path-map", f"s3://bucket/flink={tmp_path}/mounted")
    assert f"checkpoint 1 is in {to}, which was complete" in ran.out
    assert run("copy", root / one.path, to).code == 3


JOB_FAMILIES = ("incremental", "merged", "changelog", "forst")


@pytest.mark.parametrize("family", JOB_FAMILIES)
def test_a_jobs_checkpoints_are_kept_up_to_date(family: str, root: Path, tmp_path: Path) -> None:
    """Each once, and once what they share; they lie as the job wrote them."""
    tree = made(root, family, each=4)
    checkpoints = [one for one in tree.snapshots if one.path.startswith(one.job)]
    job, to = root / checkpoints[0].job, tmp_path / "region"
    late = checkpoints[2:]
    for one in late:
        (root / one.path).rename(tmp_path / Path(one.path).name)
    first = sl.copy_checkpoints(job, to)
    assert [Path(each.to).name for each in first.copied] == ["chk-2", "chk-1"]
    assert first.copied[1].kept_files == len(
        set(checkpoints[0].elsewhere) & set(checkpoints[1].elsewhere)
    )
    for one in late:
        (tmp_path / Path(one.path).name).rename(root / one.path)
    (to / "shared").mkdir(exist_ok=True)
    second = sl.copy_checkpoints(job, to)
    assert ([Path(each.to).name for each in second.copied], second.complete) == (
        ["chk-4", "chk-3"], 2,
    )  # fmt: skip
    third = sl.copy_checkpoints(job, to)
    assert (third.copied, third.complete, third.gone) == ((), 4, ())
    expected = {one.number: bytes_of(root / one.path) for one in checkpoints}
    names = {path for path in held(to) if not path.endswith("_metadata")}
    assert names == {path for path in held(job) if not path.endswith("_metadata")}
    root.rename(tmp_path / "gone")
    for number, contents in expected.items():
        assert bytes_of(to / f"chk-{number}") == contents
    assert {found.state for found in sl.scan(to).snapshots} == {"restorable"}


def test_what_is_shared_is_read_once(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a complete copy names is not compared again."""
    tree = made(root, "incremental", each=3)
    job, to = root / tree.snapshots[0].job, tmp_path / "region"
    sl.copy_checkpoints(job, to, since=2)
    read: list[str] = []
    read_into = FileSource.read_into

    def noting(self: FileSource, offset: int, out: Any) -> None:
        read.append(self.name)
        read_into(self, offset, out)

    monkeypatch.setattr(FileSource, "read_into", noting)
    done = sl.copy_checkpoints(job, to)
    assert (len(done.copied), done.complete) == (1, 2)
    (one,) = done.copied
    assert 0 < one.kept_files < one.files
    states = [name for name in read if not name.endswith("_metadata")]
    assert len(states) == 2 * (one.files - one.kept_files)  # and what was written is read back


def test_a_merged_file_that_grew_is_copied_again(root: Path, tmp_path: Path) -> None:
    """The part that earlier checkpoints name stays as it was."""
    tree = made(root, "merged", each=2)
    one, other = (each for each in tree.snapshots if each.path.startswith(each.job))
    job, to = root / one.job, tmp_path / "region"
    ((path, end),) = one.elsewhere.items()
    data = (root / path).read_bytes()[:end]
    (root / path).write_bytes(data * 2 + b"of a checkpoint that is being written")

    def later(handle: SegmentHandle) -> SegmentHandle:
        return replace(handle, start=handle.start + end)

    second = root / other.path
    (second / "_metadata").write_bytes(write_metadata(with_uris(metadata_of(second), later)))
    (root / other.path).rename(tmp_path / "later")
    sl.copy_checkpoints(job, to)
    copied = to / Path(path).relative_to(one.job)
    assert copied.read_bytes() == data
    (tmp_path / "later").rename(second)
    (done,) = sl.copy_checkpoints(job, to).copied
    assert done.kept_files == 0
    assert copied.read_bytes() == data * 2
    expected = [bytes_of(root / each.path) for each in (one, other)]
    shutil.rmtree(root)
    assert [bytes_of(to / Path(each.path).name) for each in (one, other)] == expected


@pytest.mark.full
def test_copies_of_a_job_that_are_killed_go_on(root: Path, tmp_path: Path) -> None:
    """What has its `_metadata` is whole at any time."""
    tree = made(root, "incremental", each=3)
    checkpoints = {one.number: one for one in tree.snapshots if one.path.startswith(one.job)}
    expected = {number: bytes_of(root / one.path) for number, one in checkpoints.items()}
    job, to = root / checkpoints[1].job, tmp_path / "region"
    rng, kills = random.Random(20261126), 0
    while kills < 20:
        kills += killed(partial(sl.copy_checkpoints, job, to), rng.randrange(200))
        complete = {path.parent.name for path in to.glob("chk-*/_metadata")}
        assert all(bytes_of(to / name) == expected[int(name[4:])] for name in complete)
        if len(complete) == len(expected):
            shutil.rmtree(to)
    assert sl.copy_checkpoints(job, to).complete < 3
    assert {path: len(data) for path, data in held(to).items() if "_metadata" not in path} == {
        path: len(data) for path, data in held(job).items() if "_metadata" not in path
    }


def test_two_do_not_copy_to_one_place(root: Path, tmp_path: Path) -> None:
    """A living writer holds its file; that of a dead one is removed."""
    one = made(root, "hashmap").snapshots[0]
    to = tmp_path / "copy"
    to.mkdir()
    own = next(each for each in sorted((root / one.path).iterdir()) if each.name != "_metadata")
    with (to / f"{own.name}.01234567.part").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DeclarationError, match=r"\.01234567\.part is there"):
            sl.copy_snapshot(root / one.path, to)
    done = sl.copy_snapshot(root / one.path, to)
    assert len(held(to)) == done.files + 1


def test_another_jobs_checkpoints_are_refused(root: Path, tmp_path: Path) -> None:
    """Where a checkpoint of that id is another's; the copies stay."""
    tree = made(root, "incremental", "hashmap")
    one, other = {each.job for each in tree.snapshots}
    to = tmp_path / "region"
    sl.copy_checkpoints(root / one, to)
    before = held(to)
    with pytest.raises(DeclarationError, match="another snapshot is there"):
        sl.copy_checkpoints(root / other, to)
    assert held(to) == before


def test_a_checkpoint_that_flink_deletes_meanwhile(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, nothing of it is left, and the others are copied."""
    tree = made(root, "hashmap", each=3)
    job, to = root / tree.snapshots[0].job, tmp_path / "region"
    written = ConfinedTree.write

    def deleting(self: ConfinedTree, path: str, chunks: Any) -> None:
        if path.startswith("chk-2/"):
            shutil.rmtree(job / "chk-2", ignore_errors=True)
        written(self, path, chunks)

    monkeypatch.setattr(ConfinedTree, "write", deleting)
    ran = run("copy", "--all", job, to, "--threads", 1, "--json")
    assert (ran.code, ran.json["gone"]) == (0, ["chk-2"])
    assert {path.name for path in to.glob("chk-*")} == {"chk-1", "chk-3"}
    ran = run("copy", "--all", job, to)
    assert ran.out == f"checkpoints in {to}: 0 copied (0 B), 2 there before\n"


def test_since(root: Path, tmp_path: Path) -> None:
    """An id or a time; and not for a snapshot."""
    tree = made(root, "hashmap", each=3)
    one, two, three = (each for each in tree.snapshots if each.path.startswith(each.job))
    job = root / one.job
    for since in (2, datetime.fromtimestamp(two.time, timezone.utc).isoformat()):
        to = tmp_path / str(since)[:1]
        assert run("copy", "--all", job, to, "--since", since).code == 0
        assert {path.name for path in to.iterdir()} == {"chk-2", "chk-3"}
        shutil.rmtree(to)
    assert run("copy", root / three.path, tmp_path / "x", "--since", 2).code == 2
    assert run("copy", "--all", tmp_path, tmp_path.parent / "x").code == 3


def test_what_others_have_not_finished_stays(tmp_path: Path) -> None:
    """A place that is refused keeps its files, also those that are called like unfinished ones."""
    source, to = tmp_path / "source", tmp_path / "to"
    shutil.copytree(
        GOLDEN / "flink" / "kinds-rocksdb-native-p2-m128-flink2.3.0" / "savepoint", source
    )
    own = next(each.name for each in sorted(source.iterdir()) if each.name != "_metadata")
    for name in ("film.part", "film.0123abcd.part", "below/film.0123456789abcdef.part"):
        (to / name).parent.mkdir(parents=True)
        (to / name).write_text("half of it")
        (to / f"{own}.0123abcd.part").write_text("of a copy that was killed")
        with pytest.raises(DeclarationError, match=f"{name} is there, which is no part"):
            sl.copy_snapshot(source, to)
        assert (to / name).read_text() == "half of it"
        assert not any(each.name == "_metadata" for each in to.iterdir())
        (to / name).unlink()
        sl.copy_snapshot(source, to)
        assert not list(to.glob("*.part"))
        shutil.rmtree(to)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_checkpoint_keeps_no_other_from_being_copied(
    number: int, root: Path, tmp_path: Path
) -> None:
    """It is an error at the end, each time, and nothing of it is in the copy."""
    tree = made(root, "incremental", each=3)
    job, to = root / tree.snapshots[0].job, tmp_path / "region"
    (job / f"chk-{number}" / "_metadata").write_bytes(b"no Flink's")
    others = sorted(f"chk-{each}" for each in (1, 2, 3) if each != number)
    for _ in range(2):
        with pytest.raises(SnapshotError, match=rf"chk-{number}/_metadata.*all others are copied"):
            sl.copy_checkpoints(job, to)
        assert sorted(each.parent.name for each in to.glob("chk-*/_metadata")) == others
    shutil.rmtree(job)
    assert all(bytes_of(to / name) for name in others)


@pytest.mark.parametrize("change", ["cut", "gone"])
def test_a_checkpoint_that_changes_while_it_is_copied_keeps_no_other_from_being_copied(
    change: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of it is cut off or deleted after its plan: an error, when all others are copied."""
    tree = made(root, "hashmap", each=3)
    job, to = root / tree.snapshots[0].job, tmp_path / "region"
    said = copying._CopyTarget.say_copying

    def changing(self: Any, within: str, files: set[str], metadata: bytes) -> None:
        said(self, within, files, metadata)
        if within == "chk-2/":
            file = max((job / "chk-2").iterdir(), key=lambda each: each.name != "_metadata")
            if change == "cut":
                file.write_bytes(file.read_bytes()[:-1])
            else:
                file.unlink()

    monkeypatch.setattr(copying._CopyTarget, "say_copying", changing)
    with pytest.raises(SnapshotError, match="all others are copied"):
        sl.copy_checkpoints(job, to)
    assert sorted(each.parent.name for each in to.glob("chk-*/_metadata")) == ["chk-1", "chk-3"]


# --------------------------------------------------------------------------- beside `orphans`

STEPS = ("entries", "write", "hold", "remove")


class Turns:
    """Lets one of two run until a step, then the other until one of its own, then each to its end.

    Args:
        first: Who begins.
        at: By who, the number of the step before which the other one takes over.
    """

    def __init__(self, first: str, at: dict[str, int]) -> None:
        self.current = first
        self.at = at
        self.steps = dict.fromkeys(at, 0)
        self.turn = {who: threading.Semaphore(who == first) for who in at}
        self.done: set[str] = set()
        self.errors: dict[str, Exception] = {}

    def step(self) -> None:
        """Called before whatever another process could see."""
        who = self.current
        self.steps[who] += 1
        if self.steps[who] == self.at[who]:
            self._pass(who)
            self.turn[who].acquire()

    def _pass(self, who: str) -> None:
        (other,) = self.at.keys() - {who}
        other = who if other in self.done else other
        self.current = other
        self.turn[other].release()

    def run(self, work: dict[str, Callable[[], object]]) -> None:
        """Run both to their ends."""

        def one(who: str) -> None:
            self.turn[who].acquire()
            try:
                work[who]()
            except SnapshotError as error:
                self.errors[who] = error
            self.done.add(who)
            self._pass(who)

        threads = [threading.Thread(target=one, args=[who]) for who in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def interleaved(
    job: Path, to: Path, first: str, at: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> Turns:
    """Copy a job's checkpoint and delete orphans where it goes, in turns."""
    turns = Turns(first, at)
    with monkeypatch.context() as patch:

        def stepping(call: Any) -> Any:
            def stepped(*words: Any) -> Any:
                turns.step()
                return call(*words)

            return stepped

        for name in STEPS:
            patch.setattr(ConfinedTree, name, stepping(getattr(ConfinedTree, name)))
        turns.run({
            "copy": lambda: sl.copy_checkpoints(job, to, threads=1),
            "orphans": lambda: sl.orphans(
                to, no_cluster=True, older_than=timedelta(0), delete=True
            ),
        })  # fmt: skip
    return turns


@pytest.mark.parametrize("first", ["copy", "orphans"])
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.full)])
def test_what_a_copy_keeps_is_no_orphan_however_both_take_turns(
    every: int, first: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that no snapshot named when `orphans` began are kept, or the copy is refused."""
    tree = made(root, "incremental", each=1)
    (one,) = (each for each in tree.snapshots if each.path.startswith(each.job))
    job, left, to = root / one.job, tmp_path / "left", tmp_path / "region" / one.job
    sl.copy_checkpoints(job, left)
    expected = bytes_of(root / one.path)
    shutil.rmtree(left / "chk-1")
    kept = sorted((left / "shared").iterdir())
    for path in kept[4:]:
        path.unlink()
    told: set[tuple[bool, ...]] = set()
    other = "orphans" if first == "copy" else "copy"
    step, others, last = 1, 1, {"copy": 0, "orphans": 0}
    while True:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(left, to)
        turns = interleaved(job, to, first, {first: step, other: others}, monkeypatch)
        is_there = (to / "chk-1" / "_metadata").exists()
        assert is_there == ("copy" not in turns.errors), (step, others)
        if not is_there:
            assert "is being deleted" in str(turns.errors["copy"])
            sl.copy_checkpoints(job, to)
        assert "orphans" not in turns.errors, (step, others)
        assert bytes_of(to / "chk-1") == expected, (step, others)
        assert {path.name for path in (to / "chk-1").iterdir()} == {
            path.name for path in (root / one.path).iterdir()
        }
        told.add((is_there, turns.steps["orphans"] > last["orphans"]))
        if turns.steps[other] >= others:
            others += every
        elif others > 1 and turns.steps[first] >= step:
            step, others = step + every, 1
        else:
            break
    assert {each[0] for each in told} == {True, False}


def test_a_copy_that_was_interrupted_keeps_its_files(root: Path, tmp_path: Path) -> None:
    """However long ago; who gives it up removes what says so, which is named."""
    tree = made(root, "incremental", each=1)
    job = root / tree.snapshots[0].job
    to = tmp_path / "region" / job.name
    sl.copy_checkpoints(job, to)
    (to / "chk-1" / "_metadata").rename(to / "chk-1" / "_metadata.copying")
    for path in to.rglob("*"):
        os.utime(path, (1e9, 1e9))
    before = held(to)
    words = ("orphans", to, "--no-cluster", "--older-than", "1d", "--json")
    ran = run(*words, "--yes")
    assert (ran.json["deleted"], held(to)) == (0, before)
    assert "remove chk-1/_metadata.copying" in ran.json["kept"][0]["reason"]
    (to / "chk-1" / "_metadata.copying").unlink()
    assert len(run(*words).json["files"]) == len(before) - 1
    assert sl.copy_checkpoints(job, to).copied[0].kept_files == len(before) - 1


@pytest.mark.parametrize("words", [["copy", "{from}", "{to}"], ["scan", "--deep", "{from}"]])
def test_a_command_that_is_told_to_end_waits_for_no_disk(words: list[str], tmp_path: Path) -> None:
    """Exit code 143 while a thread waits for bytes; what it has written so far is removed."""
    source, to = golden_cases(form="canonical")[0].snapshot, tmp_path / "copy"
    program = (
        "import signal, threading, time; signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "from statelake.state_core.files import file_sources\n"
        "read = file_sources.FileSource.read_into\n"
        "def slow(self, offset, out):\n"
        "    if threading.current_thread() is not threading.main_thread():\n"
        f"        open({str(tmp_path / 'reads')!r}, 'w').close(); time.sleep(3600)\n"
        "    read(self, offset, out)\n"
        "file_sources.FileSource.read_into = slow\n"
        "from statelake.pipelines.cli.main import main; main()"
    )
    said = [word.format(**{"from": source, "to": to}) for word in words]
    with subprocess.Popen([sys.executable, "-c", program, *said]) as command:
        while not (tmp_path / "reads").exists() and command.poll() is None:
            time.sleep(0.05)
        if to.exists():
            assert list(to.glob("**/*.part"))
        command.send_signal(signal.SIGTERM)
        try:
            assert command.wait(60) == 143
        finally:
            command.kill()
    assert not list(tmp_path.glob("copy/**/*.part"))
