"""Damaged RocksDB files: RocksDB finds what is wrong, and what it would never come back from."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import (
    CorruptSnapshotError,
    MissingFileError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.files.filesystem import ByteSource, Directory
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.keyed.rocksdb import rocksdb_native
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBKeyedFile
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.handles import IncrementalHandle, RelativeHandle
from tests.support.rocksdb_databases import Settings, read, tables_in, write
from tests.support.rocksdb_databases import opened as opened_database
from tests.support.savepoints.expected_contents import assert_contents, tables_of
from tests.support.savepoints.golden_cases import golden_cases

(GOLDEN,) = golden_cases("kinds", form="native")[1:]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A native savepoint of the RocksDB backend."""
    return Path(shutil.copytree(GOLDEN.snapshot, tmp_path / "savepoint"))


def handle_of(snapshot: Path) -> IncrementalHandle:
    """The first subtask's handle."""
    metadata = read_metadata((snapshot / "_metadata").read_bytes())
    subtasks = next(operator.subtasks for operator in metadata.operators if operator.uid == "kinds")
    assert subtasks is not None
    handle = subtasks[0].managed_keyed
    assert isinstance(handle, IncrementalHandle)
    return handle


def path_of(snapshot: Path, name: str) -> Path:
    """Where the file of a local name lies."""
    handle = handle_of(snapshot)
    for local, stream in (*handle.shared, *handle.private):
        if local.startswith(name) or local.endswith(name):
            assert isinstance(stream, RelativeHandle)
            return snapshot / stream.path
    raise AssertionError(name)


def opened(snapshot: Path, handle: IncrementalHandle) -> RocksDBKeyedFile:
    """The handle as a file."""
    found = open_keyed(handle, StateFiles(Directory(snapshot)), 128)
    assert isinstance(found, RocksDBKeyedFile)
    return found


@pytest.mark.parametrize("kind", [5, 6, 7, 8, 11])
def test_manifests_have_no_recycled_records(copied: Path, kind: int) -> None:
    """RocksDB loops for ever over one; it is told before RocksDB sees it."""
    path = path_of(copied, "MANIFEST")
    data = bytearray(path.read_bytes())
    second = 7 + int.from_bytes(data[4:6], "little")
    data[second + 6] = kind
    path.write_bytes(data)
    with pytest.raises(CorruptSnapshotError, match=f"record of type {kind} in a RocksDB manifest"):
        tables_of(open_snapshot(copied))


@pytest.mark.parametrize("name", ["MANIFEST", "CURRENT", ".sst"])
@pytest.mark.parametrize("at", [0, 6, 15, 900, -60])
def test_damage_is_found(copied: Path, name: str, at: int) -> None:
    """One byte changed in any file that matters: by checksums, or since nothing fits."""
    path = path_of(copied, name)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StateError) as found:
        tables_of(open_snapshot(copied))
    assert "\n" not in str(found.value)
    assert found.value.remedy


@pytest.mark.parametrize("name", ["MANIFEST", "CURRENT", ".sst"])
def test_files_that_are_left_out(copied: Path, name: str) -> None:
    """Missing beside `_metadata`, or in the handle itself."""
    handle = handle_of(copied)
    kept = tuple(entry for entry in handle.private if name not in entry[0])
    shared = tuple(entry for entry in handle.shared if name not in entry[0])
    file = opened(copied, replace(handle, private=kept, shared=shared))
    with pytest.raises(CorruptSnapshotError, match="RocksDB can't read its files"):
        list(file.entries())
    path_of(copied, name).unlink()
    with pytest.raises(MissingFileError):
        open_snapshot(copied)


@pytest.mark.parametrize(
    "name", ["../x.sst", "a/b", "", "x", "1.sst\n", "\0", "LOCK", "rocksdict-config.json"]
)
def test_local_names_are_those_of_rocksdb(copied: Path, name: str) -> None:
    """A local name is where the file is put: it must not lead anywhere, nor configure anything."""
    handle = handle_of(copied)
    stream = handle.private[0][1]
    with pytest.raises(UnsafePathError, match="a RocksDB file called"):
        list(opened(copied, replace(handle, private=((name, stream),))).entries())


def test_local_names_are_there_once(copied: Path) -> None:
    """Two files of one name are no database."""
    handle = handle_of(copied)
    table = next(file for file in handle.private if file[0].endswith(".sst"))
    twice = replace(handle, private=(*handle.private, table))
    with pytest.raises(CorruptSnapshotError, match="File exists"):
        list(opened(copied, twice).entries())


def test_options_are_not_read(copied: Path) -> None:
    """One damaged byte of them can end the process; nothing of them is needed."""
    path = path_of(copied, "OPTIONS")
    path.write_bytes(b"\xff" * path.stat().st_size)
    assert_contents(GOLDEN, tables_of(open_snapshot(copied)))


@pytest.mark.parametrize("shorter", [0, 1])
def test_a_name_that_is_there_twice_changes_no_file(copied: Path, shorter: int) -> None:
    """The first is RocksDB's by a link: the second is not written through it."""
    handle = handle_of(copied)
    listed = [file for file in (*handle.shared, *handle.private) if file[0].endswith(".sst")]
    (name, stream), before = listed[0], path_of(copied, ".sst").read_bytes()
    assert isinstance(stream, RelativeHandle)
    again = replace(stream, size=stream.size - shorter)
    twice = replace(handle, private=(*handle.private, (name, again)))
    with pytest.raises(StateError, match=r"RocksDB|is a link"):
        list(opened(copied, twice).entries())
    assert path_of(copied, ".sst").read_bytes() == before


def test_a_link_that_is_put_there_after_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB opens the table that was checked, whatever its path leads to by then."""
    settings = Settings()
    for name in ("own", "other"):
        write(tmp_path / name, settings, [("put", 0, b"\1key", name.ljust(5).encode())])
    own = opened_database(tmp_path / "own", settings)
    of_savepoint = Directory(tmp_path / "own").confined()
    files = replace(own, files=tuple((name, of_savepoint.source(name)) for name, _ in own.files))
    place = rocksdb_native._place

    def swapped(directory: Path, name: str, source: ByteSource, *kept: Any) -> object:
        placed = place(directory, name, source, *kept)
        if name.endswith(".sst"):
            (path,) = tables_in(tmp_path / "own")
            path.unlink()
            path.symlink_to(tables_in(tmp_path / "other")[0])
        return placed

    monkeypatch.setattr(rocksdb_native, "_place", swapped)
    assert read(files, by_rocksdb=True) == ([(0, 1, b"key", b"own  ")], "")


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of open files, which are put back."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_more_tables_are_read_than_the_soft_limit_has_open_files(
    tmp_path: Path, limits: tuple[int, int]
) -> None:
    """RocksDB has each open, and so have we until it has: the soft limit is raised for that."""
    puts: list[tuple[str, int, bytes, bytes]] = []
    for number in range(60):
        puts += [("put", 0, bytes([number]) + b"key", b"value"), ("flush", 0, b"", b"")]
    write(tmp_path / "db", Settings(), puts)
    assert len(tables_in(tmp_path / "db")) == 60
    few = sum(1 for _ in Path("/dev/fd").iterdir()) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    rows, fault = read(opened_database(tmp_path / "db", Settings()))
    assert (len(rows), fault) == (60, "")
