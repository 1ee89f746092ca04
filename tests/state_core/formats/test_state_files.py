"""Where state files are found: moved snapshots open, and no handle leads where it should not."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from statelake import open_snapshot
from statelake.state_core.errors import (
    CorruptSnapshotError,
    MissingFileError,
    StateError,
    UnsafePathError,
    UnsupportedFormatError,
)
from statelake.state_core.files.filesystem import ByteSource, Directory
from statelake.state_core.formats.metadata.state_files import StateFiles, place_of
from statelake.state_core.integrity import FaultKind, check_snapshot
from statelake.state_core.model.handles import (
    EmptySegmentHandle,
    FileHandle,
    InlineHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from statelake.state_core.printable import public_location
from tests.support.savepoints.expected_contents import assert_contents, tables_of
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CHURN = golden_cases("churn", form="checkpoint")
every_checkpoint = pytest.mark.parametrize("golden", CHURN, ids=[path.name for path in CHURN])


def content(source: ByteSource) -> bytes:
    """All bytes of a source."""
    out = np.empty(source.size, np.uint8)
    source.read_into(0, out)
    return out.tobytes()


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A directory with a file `state`, beside one that is not part of it."""
    directory = tmp_path / "savepoint"
    directory.mkdir()
    (directory / "state").write_bytes(b"inside")
    (tmp_path / "other").write_bytes(b"outside")
    return directory


def put(path: Path, data: bytes) -> Path:
    """Write a file, its directories made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def opened(directory: Path, handle: StreamHandle, *allowed: str) -> ByteSource:
    """What a handle of the snapshot in this directory leads to."""
    return StateFiles(Directory(directory), allowed).open(handle)


# ----------------------------------------------------------------------------- inside


def test_inlined_state_is_in_metadata(savepoint: Path) -> None:
    """No file at all; messages name `_metadata`."""
    source = opened(savepoint, InlineHandle("x", b"abc"))
    assert content(source) == b"abc"
    assert source.name == f"{savepoint}/_metadata, inlined state"


def test_relative_handles_are_beside_metadata(savepoint: Path) -> None:
    """Wherever the savepoint is now; in a directory below it, too."""
    assert content(opened(savepoint, RelativeHandle("state", 6))) == b"inside"
    put(savepoint / "below/part", b"xyz")
    assert content(opened(savepoint, RelativeHandle("below/part", 3))) == b"xyz"


def test_segments_are_a_part_of_a_file(savepoint: Path) -> None:
    """File merging: offsets count from where the segment begins, and end where it ends."""
    source = opened(savepoint, SegmentHandle(2, 3, 1, "file:/gone/state", "id"))
    assert content(source) == b"sid"
    with pytest.raises(StateError, match="4 bytes wanted, 3 there"):
        opened(savepoint, RelativeHandle("state", 3)).read_into(0, np.empty(4, np.uint8))


@pytest.mark.parametrize(
    "handle",
    [
        RelativeHandle("state", 7),
        FileHandle("file:/gone/state", 7),
        SegmentHandle(4, 3, 0, "file:/gone/state", "id"),
        SegmentHandle(2**62, 2**62, 0, "file:/gone/state", "id"),
    ],
)
def test_files_shorter_than_their_handle(savepoint: Path, handle: StreamHandle) -> None:
    """A file that was cut off is told before any of it is read."""
    with pytest.raises(CorruptSnapshotError, match=r"6 bytes, and `_metadata` says \d+") as found:
        opened(savepoint, handle)
    assert found.value.place == f"{savepoint}/state"
    assert "fetch it again" in found.value.remedy


@pytest.mark.parametrize("handle", [EmptySegmentHandle(), NestedKeyGroupsHandle(0, (), None)])
def test_handles_without_a_file(savepoint: Path, handle: StreamHandle) -> None:
    """Handles that are no file are refused, with what to do instead."""
    with pytest.raises(UnsupportedFormatError, match="take a savepoint"):
        opened(savepoint, handle)


def test_missing_files_are_named(savepoint: Path) -> None:
    """Which file, where it should be, and that the snapshot is to be copied whole."""
    with pytest.raises(MissingFileError) as found:
        opened(savepoint, RelativeHandle("gone", 1))
    assert str(found.value) == (
        f"{savepoint}/gone: no such file; copy the whole directory of the snapshot, not"
        " `_metadata` alone"
    )
    with pytest.raises(MissingFileError, match=r"no state file 'gone'.*'file:/nowhere/chk-1/gone'"):
        opened(savepoint, FileHandle("file:/nowhere/chk-1/gone", 1))
    (savepoint / "directory").mkdir()
    with pytest.raises(MissingFileError):
        opened(savepoint, RelativeHandle("directory", 0))


# ----------------------------------------------------------------------------- moved


@every_checkpoint
def test_moved_checkpoints_open(golden: GoldenCase, tmp_path: Path) -> None:
    """Absolute handles name a place that is gone; `shared/` and `chk-N` are found beside."""
    assert not Path(golden.facts["written_at"].removeprefix("file:")).exists()
    moved = tmp_path / "somewhere else"
    shutil.copytree(golden.folder / "checkpoints", moved)
    checkpoint = moved / Path(golden.facts["checkpoint"]).name
    snapshot = open_snapshot(checkpoint)
    assert_contents(golden, tables_of(snapshot))
    for file in (
        keyed_file for operator in snapshot.operators for keyed_file in operator.keyed_files
    ):
        assert str(moved) in file.name


@every_checkpoint
def test_checkpoints_without_their_files(golden: GoldenCase, tmp_path: Path) -> None:
    """`_metadata` alone is not enough; where files are shared, neither is `chk-N` alone."""
    copied = tmp_path / "chk-99"
    shutil.copytree(golden.snapshot, copied)
    if golden.facts["backend"] == "rocksdb":
        with pytest.raises(MissingFileError, match="copy the whole checkpoint") as found:
            open_snapshot(copied)
        assert "operator churn, subtask 0" in found.value.place
    for path in copied.iterdir():
        if path.name != "_metadata":
            path.unlink()
    with pytest.raises(MissingFileError, match="copy the whole directory") as found:
        open_snapshot(copied)
    assert f"operator churn, subtask 0, {copied}/" in found.value.place


@pytest.mark.parametrize(
    ("written", "now"),
    [
        ("shared/f", "checkpoints/shared/f"),
        ("shared/f", "checkpoints/chk-7/shared/f"),
        ("taskowned/f", "checkpoints/taskowned/f"),
        ("chk-7/f", "checkpoints/chk-7/f"),
        ("chk-3/f", "checkpoints/chk-3/f"),
        ("chk-3/f", "checkpoints/chk-7/f"),
        ("else/f", "checkpoints/chk-7/f"),
        ("shared/job_1_op_2_0_1/f", "checkpoints/shared/job_1_op_2_0_1/f"),
        ("shared/job_1_op_2_0_1/f", "checkpoints/chk-7/shared/job_1_op_2_0_1/f"),
        ("taskowned/job_1_tm_2/f", "checkpoints/taskowned/job_1_tm_2/f"),
        ("shared/chk-7/f", "checkpoints/chk-7/f"),
        ("shared/chk-3/f", "checkpoints/chk-3/f"),
        ("taskowned/else/f", "checkpoints/chk-7/f"),
    ],
)
def test_where_files_of_checkpoints_are_looked_for(tmp_path: Path, written: str, now: str) -> None:
    """In the checkpoint's own directory, or the one of the same name next to it."""
    put(tmp_path / now, b"here")
    checkpoint = tmp_path / "checkpoints/chk-7"
    checkpoint.mkdir(exist_ok=True)
    for uri in ("file:/gone/", "file:///gone/", "hdfs://host:8020/a/", "s3://bucket/", "/gone/"):
        assert content(opened(checkpoint, FileHandle(f"{uri}{written}", 4))) == b"here"


def test_what_was_moved_here_goes_before_what_is_there(tmp_path: Path) -> None:
    """A file at the place where it was written may be another snapshot's by now."""
    original = put(tmp_path / "old/chk-1/f", b"other")
    moved = put(tmp_path / "new/chk-1/f", b"right")
    source = opened(moved.parent, FileHandle(f"file:{original}", 5), str(tmp_path / "old"))
    assert content(source) == b"right"


# ----------------------------------------------------------------------------- outside


@pytest.mark.parametrize(
    "path",
    [
        "../other", "below/../../other", "..", "", "/etc/passwd", "//host/x", "file:/etc/passwd",
        "file:state", "s3://bucket/key", "hdfs://host/path", "C:/windows", "x:y",
    ],
)  # fmt: skip
def test_relative_handles_stay_inside(savepoint: Path, path: str) -> None:
    """Neither parents nor roots nor schemes: Flink never writes such a path."""
    with pytest.raises(UnsafePathError, match="not inside the snapshot") as found:
        opened(savepoint, RelativeHandle(path, 0), str(savepoint.parent))
    assert repr(path) in str(found.value)
    assert "do not trust the file" in found.value.remedy


def test_links_do_not_lead_out(savepoint: Path) -> None:
    """A link within the snapshot is a file; one that leads out is refused."""
    (savepoint / "within").symlink_to("state")
    assert content(opened(savepoint, RelativeHandle("within", 6))) == b"inside"
    (savepoint / "out").symlink_to(savepoint.parent / "other")
    (savepoint / "up").symlink_to(savepoint.parent)
    for handle in (
        RelativeHandle("out", 7),
        RelativeHandle("up/other", 7),
        FileHandle("file:/gone/out", 7),
        SegmentHandle(0, 7, 0, "file:/gone/out", "id"),
    ):
        with pytest.raises(UnsafePathError, match="is a link that leads to"):
            opened(savepoint, handle)


def test_links_in_shared_do_not_lead_out(tmp_path: Path) -> None:
    """The same for the directories next to a checkpoint."""
    put(tmp_path / "secret", b"secret")
    (tmp_path / "c/chk-1").mkdir(parents=True)
    (tmp_path / "c/shared").mkdir()
    (tmp_path / "c/shared/f").symlink_to(tmp_path / "secret")
    (tmp_path / "c/shared/job").symlink_to(tmp_path)
    for name in ("f", "job/secret"):
        with pytest.raises(UnsafePathError, match="is a link"):
            opened(tmp_path / "c/chk-1", FileHandle(f"file:/gone/shared/{name}", 6))


@pytest.mark.parametrize("where", ["shared", "taskowned", "chk-1"])
@pytest.mark.parametrize("beside", [True, False])
def test_directories_of_checkpoints_do_not_lead_out(
    tmp_path: Path, where: str, beside: bool
) -> None:
    """A directory beside a checkpoint, or in it, that is a link: as wrong as a link to a file."""
    etc = put(tmp_path / "etc/passwd", b"secret").parent
    checkpoint = tmp_path / "job/chk-7"
    checkpoint.mkdir(parents=True)
    link = (checkpoint.parent if beside else checkpoint) / where
    handle = FileHandle(f"file:/gone/{where}/passwd", 6)
    if where == "chk-1" and not beside:
        handle = FileHandle(f"file:/gone/shared/{where}/passwd", 6)
        link = checkpoint / "shared" / where
        link.parent.mkdir()
    for target in (etc, "../etc", "../../etc", "../../../etc"):
        link.symlink_to(target)
        if link.exists():
            with pytest.raises(UnsafePathError, match="is a link that leads to"):
                opened(checkpoint, handle)
            assert content(opened(checkpoint, handle, str(etc))) == b"secret"
        link.unlink()


def test_directories_beside_a_checkpoint_are_no_links_at_all(tmp_path: Path) -> None:
    """What lies beside a checkpoint may be anything of its user's: `shared` leads nowhere there."""
    put(tmp_path / ".ssh/id_rsa", b"secret")
    (tmp_path / "chk-7").mkdir()
    (tmp_path / "shared").symlink_to(".ssh")
    with pytest.raises(UnsafePathError, match="is a link that leads to"):
        opened(tmp_path / "chk-7", FileHandle("file:/gone/shared/id_rsa", 6))


def test_the_snapshot_itself_may_be_a_link(tmp_path: Path) -> None:
    """Who names it is trusted with it."""
    put(tmp_path / "job/chk-7/f", b"own")
    put(tmp_path / "named/shared/f", b"shared")
    (tmp_path / "named/chk-7").symlink_to(tmp_path / "job/chk-7")
    named = tmp_path / "named/chk-7"
    assert content(opened(named, RelativeHandle("f", 3))) == b"own"
    assert content(opened(named, FileHandle("file:/gone/shared/f", 6))) == b"shared"


def test_links_in_allowed_places_do_not_lead_on(savepoint: Path) -> None:
    """What was allowed is a directory, and not what somebody put into it; unless that was too."""
    put(savepoint.parent / "secret/f", b"secret")
    allowed = savepoint.parent / "allowed"
    allowed.mkdir()
    (allowed / "chk-1").symlink_to("../secret")
    handle = FileHandle(f"file:{allowed}/chk-1/f", 6)
    with pytest.raises(UnsafePathError, match="is a link that leads to"):
        opened(savepoint, handle, str(allowed))
    both = str(allowed), str(savepoint.parent / "secret")
    assert content(opened(savepoint, handle, *both)) == b"secret"


def test_links_put_there_meanwhile_are_not_followed(savepoint: Path) -> None:
    """A file that was opened is not read through a link that has taken its place."""
    source = opened(savepoint, RelativeHandle("state", 6))
    assert content(source) == b"inside"
    (savepoint / "state").unlink()
    (savepoint / "state").symlink_to(savepoint.parent / "other")
    with pytest.raises(UnsafePathError, match="is a link that leads to"):
        content(source)


def test_metadata_is_no_link_that_leads_out(tmp_path: Path) -> None:
    """Neither for reading it nor for checking it."""
    golden = golden_cases("churn")[0].snapshot
    moved = tmp_path / "moved"
    shutil.copytree(golden, moved)
    (moved / "_metadata").rename(tmp_path / "metadata")
    (moved / "_metadata").symlink_to(tmp_path / "metadata")
    with pytest.raises(UnsafePathError, match="is a link that leads to"):
        open_snapshot(moved)
    assert [fault.kind for fault in check_snapshot(moved).faults] == [FaultKind.METADATA]
    assert open_snapshot(moved, allow_external=[str(tmp_path)]).operators


def test_places_outside_are_opened_only_if_allowed(savepoint: Path) -> None:
    """An absolute path to an existing file is no permission; the option that gives it is named."""
    other = put(savepoint.parent / "elsewhere/chk-9/old", b"older")
    for uri in (f"file:{other}", f"file://{other}", str(other)):
        handle = FileHandle(uri, 5)
        with pytest.raises(UnsafePathError, match="outside the snapshot") as found:
            opened(savepoint, handle)
        assert found.value.remedy.endswith(f"--allow-external {other.parent}")
        with pytest.raises(UnsafePathError):
            opened(savepoint, handle, str(savepoint.parent / "else"))
        for allowed in (other.parent, other.parent.parent, f"file://{other.parent}"):
            assert content(opened(savepoint, handle, str(allowed))) == b"older"


def test_what_is_to_be_allowed_is_no_larger_than_it_must_be(savepoint: Path) -> None:
    """ForSt's tables lie in a directory for each subtask; `shared` elsewhere is any name."""
    shared = savepoint.parent / "shared"
    table, file = put(shared / "op_1/db/uuid", b"table"), put(shared / "team/job/uuid", b"table")
    for path, place in ((table, shared), (file, file.parent)):
        with pytest.raises(UnsafePathError, match="outside the snapshot") as found:
            opened(savepoint, FileHandle(str(path), 5))
        assert found.value.remedy.endswith(f"--allow-external {place}")


def test_allowed_places_have_an_end(savepoint: Path) -> None:
    """`..` does not lead out of an allowed directory, nor does a name that begins like it."""
    allowed = savepoint.parent / "allowed"
    put(allowed / "f", b"f")
    put(savepoint.parent / "allowed-not/f2", b"f")
    put(savepoint.parent / "f3", b"f")
    assert content(opened(savepoint, FileHandle(f"file:{allowed}/x/../f", 1), str(allowed))) == b"f"
    for uri in (f"file:{allowed}-not/f2", f"file:{allowed}/../f3"):
        with pytest.raises(UnsafePathError):
            opened(savepoint, FileHandle(uri, 1), str(allowed))


@pytest.mark.parametrize("uri", ["s3://bucket/a/b", "hdfs://host:8020/a/b", "oss://x/a/b"])
def test_foreign_schemes_are_not_followed(savepoint: Path, uri: str) -> None:
    """State in another storage is named, with what would allow it; nothing is contacted."""
    with pytest.raises(UnsafePathError, match=f"a state file at '{uri}'") as found:
        opened(savepoint, FileHandle(uri, 1))
    assert found.value.remedy.endswith(f"--allow-external {uri.removesuffix('/b')}")
    with pytest.raises(MissingFileError):
        opened(savepoint, FileHandle(uri, 1), str(savepoint))


def test_access_keys_in_a_uri_are_not_shown(savepoint: Path) -> None:
    """Whoever wrote the file may have put them there; what is to be allowed is said without."""
    for uri in ("s3://KEY:SECRET@bucket/sp/file", "s3://KEY:SECRET@bucket/sp/.."):
        with pytest.raises(UnsafePathError) as refused:
            opened(savepoint, FileHandle(uri, 5))
        assert "s3://bucket/sp" in str(refused.value)
        assert "SECRET" not in str(refused.value)


def test_buckets_can_be_allowed(savepoint: Path, tmp_path: Path) -> None:
    """In an object store the bucket, which a URI has as its authority, is a part of the path."""
    put(tmp_path / "store/bucket/old/chk-1/f", b"old")
    files = StateFiles(Directory(savepoint))
    bucket = Directory("anything")
    bucket.filesystem = fs.SubTreeFileSystem(str(tmp_path / "store"), fs.LocalFileSystem())
    bucket.root, bucket.scheme, bucket.local = "bucket/old", "s3", False
    files.allowed = (bucket,)
    for authority in ("s3://bucket", "s3a://bucket", "s3://KEY:SECRET@bucket", "s3://KEY@bucket"):
        assert content(files.open(FileHandle(f"{authority}/old/chk-1/f", 3))) == b"old"
    for uri in (
        "s3://bucket/older/chk-1/f", "s3://bucket@other/old/chk-1/f", "hdfs://bucket/old/chk-1/f",
        "s3:///bucket/old/chk-1/../../../f",
    ):  # fmt: skip
        with pytest.raises(StateError):
            files.open(FileHandle(uri, 3))


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("s3://KEY:SECRET@bucket/old?region=eu-west-1", "s3a://OTHER:KEYS@bucket/old/f"),
        ("abfs://files@account.dfs.core.windows.net/old", "abfss://files@account.x/old/f"),
        ("abfss://:a2V5@account.dfs.core.windows.net/files/old", "abfs://files@account.x/old/f"),
        ("abfss://account.dfs.core.windows.net/files/old", "abfs://account.x/files/old/f"),
    ],
)
def test_places_are_compared_by_store_and_path(location: str, uri: str) -> None:
    """Whatever keys and options either has; no store is asked for that."""
    allowed = Directory(location)
    assert place_of(uri, allowed) == f"{allowed.root}/f"
    for shown in (public_location(location), public_location(uri), repr(allowed)):
        assert not any(word in shown for word in ("KEY", "SECRET", "a2V5", "region"))


@pytest.mark.parametrize("name", ["a b", "50%41", "run#2", "what?", "größe-键"])
def test_names_are_taken_as_they_are(savepoint: Path, name: str) -> None:
    """Flink writes paths unescaped, whatever is in them."""
    put(savepoint.parent / name / "chk-1/f", b"f")
    where = savepoint.parent / name
    assert content(opened(savepoint, FileHandle(f"file:{where}/chk-1/f", 1), str(where))) == b"f"
    put(savepoint / name, b"12")
    assert content(opened(savepoint, FileHandle(f"file:/gone/{name}", 2))) == b"12"


# ----------------------------------------------------------------------------- nonsense


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300, "x/" * 5000 + "y"])
def test_names_that_no_file_can_have(savepoint: Path, path: str) -> None:
    """A damaged name is an error like any other, and a short one."""
    for handle in (RelativeHandle(path, 1), FileHandle(f"file:/gone/{path}", 1)):
        with pytest.raises((CorruptSnapshotError, MissingFileError)) as found:
            opened(savepoint, handle)
        assert len(str(found.value)) < 16_000
        str(found.value).encode()


@pytest.mark.parametrize("uri", ["", ".", "..", "file:", "file:/", "file:///", "s3://bucket"])
def test_uris_that_name_no_file(savepoint: Path, uri: str) -> None:
    """Directories, roots and nothing at all."""
    with pytest.raises(UnsafePathError, match="which is no file"):
        opened(savepoint, FileHandle(uri, 1))


@given(
    path=st.text(st.characters(exclude_categories=()), max_size=30),
    build=st.sampled_from([RelativeHandle, FileHandle]),
    scheme=st.sampled_from(["", "file:", "file://"]),
)
def test_any_text_is_a_file_inside_or_an_error(
    path: str, build: type[RelativeHandle | FileHandle], scheme: str
) -> None:
    """Whatever a handle says: nothing outside is opened, nothing but our errors is raised."""
    directory = Path(__file__).parent
    with suppress(StateError):
        source = opened(directory, build(scheme + path, 0))
        assert os.path.realpath(source.name).startswith(f"{directory}/")
