"""Directories by their URI: what makes them again says where they are."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from statelake.state_core.errors import MissingFileError, SnapshotError, UnreachableFileError
from statelake.state_core.files import object_stores
from statelake.state_core.files.filesystem import Directory


class FileSystems:
    """PyArrow's, with a way of opening URIs that needs no Hadoop."""

    LocalFileSystem = fs.LocalFileSystem

    def __init__(self, from_uri: Callable[[str], tuple[fs.FileSystem, str]]) -> None:
        self.FileSystem = SimpleNamespace(from_uri=from_uri)


def test_a_host_stays_in_the_uri(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HDFS names a host and then a path, which other programs need both."""

    def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
        assert uri.startswith("hdfs://name:8020/")
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), uri.split(":8020")[1]

    monkeypatch.setattr(object_stores, "fs", FileSystems(from_uri))
    found = Directory("hdfs://name:8020/flink/savepoints/")
    assert found.uri == found.location == "hdfs://name:8020/flink/savepoints"
    assert found.child("sp-1").uri == "hdfs://name:8020/flink/savepoints/sp-1"
    assert Directory(found.location).root == found.root == "/flink/savepoints"


def test_a_bucket_is_no_host() -> None:
    """Paths of S3 begin with it; options and credentials come back with the location alone."""
    found = Directory("s3://key:secret@lake/a?region=eu-central-1").child("b")
    assert found.uri == "s3://lake/a/b"
    assert found.location == "s3://key:secret@lake/a/b?region=eu-central-1"


def test_a_local_directory_is_a_path(tmp_path: Path) -> None:
    """With a scheme or without one."""
    assert Directory(tmp_path.as_uri()).uri == Directory(tmp_path).uri == str(tmp_path)
    assert Directory(tmp_path.as_uri()).location == str(tmp_path)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """A file that some other program left there is named, and what to do about it."""
    (tmp_path / "below").mkdir()
    Path(os.fsdecode(bytes(tmp_path) + b"/below/\xff")).write_bytes(b"")
    directory = Directory(tmp_path)
    assert directory.names() == ["below"]
    for read in (lambda: directory.names("below"), directory.files_below):
        with pytest.raises(SnapshotError, match="is no UTF-8; rename the file"):
            read()


class RefusedFile(io.BytesIO):
    """What S3 gives for an object that must not be written: it is asked at the end."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def write(self, data: Any, /) -> int:
        """Fail, or take it."""
        if self.at == "write":
            raise OSError("AWS Error ACCESS_DENIED during UploadPart operation")
        return len(data)

    def close(self) -> None:
        """Fail as Arrow's S3 file does."""
        if self.at == "close":
            self.at = ""
            raise OSError("AWS Error ACCESS_DENIED during PutObject operation")


@pytest.mark.parametrize("at", ["write", "close"])
@pytest.mark.parametrize("rows", [False, True])
def test_a_write_that_a_store_refuses(at: str, rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes gets an error of ours that names the file, wherever the store refuses it."""
    directory = Directory("/refused", MemoryFileSystem())
    file = pa.PythonFile(RefusedFile(at), "w")
    refusing = SimpleNamespace(create_dir=Mock(), open_output_stream=lambda _: file)
    monkeypatch.setattr(directory, "filesystem", refusing)
    monkeypatch.setattr(directory, "is_object_store", True)

    def write() -> None:
        with directory.open_output("a") as output:
            if rows:
                pq.write_table(pa.table({"a": [1]}), output)
            else:
                output.write(b"bytes")

    with pytest.raises(SnapshotError, match=r"/refused/a: can't be written.*credentials") as error:
        write()
    assert isinstance(error.value.__cause__, OSError)


def test_what_is_written_to_a_store() -> None:
    """Its bytes, and how many there are so far."""
    directory = Directory("/written", MemoryFileSystem())
    with directory.open_output("a") as output:
        output.write(b"by")
        output.write(np.frombuffer(b"tes", np.uint8).data)
        assert output.tell() == 5
    assert output.closed
    assert directory.read("a") == b"bytes"


@pytest.mark.parametrize(
    ("problem", "looks"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadObject operation", 0),
        ("AWS Error SLOW_DOWN during GetObject operation", 0),
        ("AWS Error ACCESS_DENIED during GetObject operation", 0),
        ("AWS Error NO_SUCH_KEY during GetObject operation", 1),
    ],
)
def test_a_store_that_can_not_be_reached_is_not_asked_again(problem: str, looks: int) -> None:
    """Only where the file may be missing: each look at a host that is not there takes seconds."""
    directory = Directory("s3://bucket/a?region=us-east-1")
    exists = Mock(return_value=True)
    directory.exists = exists  # type: ignore[method-assign]
    error = directory.not_read("b", OSError(problem))
    assert exists.call_count == looks
    assert problem in str(error)
    assert "check the credentials" in str(error)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("ask", [Directory.is_file, Directory.size, Directory.read])
@pytest.mark.full
def test_a_host_that_is_not_there(ask: Callable[[Directory, str], object]) -> None:
    """Said within seconds."""
    query = "endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    directory = Directory(f"s3://key:secret@bucket/a?{query}")
    start = time.monotonic()
    with pytest.raises(SnapshotError, match="NETWORK_CONNECTION"):
        ask(directory, "b")
    assert time.monotonic() - start < 15


class UnreadableFile(io.BytesIO):
    """What S3 gives for an object that was deleted after it was opened."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Fail as Arrow's S3 file does, which has no error of its own for a missing object."""
        raise OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation")


@pytest.mark.parametrize(
    ("kept", "error", "problem"),
    [(False, MissingFileError, "no such file"), (True, UnreachableFileError, "RESOURCE_NOT_FOUND")],
)
def test_a_file_deleted_while_it_is_read_is_a_missing_file(
    kept: bool, error: type[Exception], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is still there is a file that can't be read."""
    memory = MemoryFileSystem()
    directory = Directory("/deleted", memory)
    directory.write("log/1.record", b"bytes")

    def open_input(_path: str) -> pa.NativeFile:
        if not kept:
            memory.rm("/deleted/log/1.record")
        return pa.PythonFile(UnreadableFile(b"bytes"), "r")

    size = directory.size("log/1.record")
    monkeypatch.setattr(directory, "open_input", open_input)
    with pytest.raises(error, match=problem) as raised:
        directory.read_into("log/1.record", 0, np.empty(size, np.uint8))
    assert type(raised.value) is error


def test_a_file_has_one_time_however_it_is_reached(tmp_path: Path) -> None:
    """A savepoint was taken at the time of its `_metadata`, be it opened or imported."""
    (tmp_path / "_metadata").touch()
    for nanoseconds in (1796000000335390056, 1796000000295008841, 1796000000086932598):
        os.utime(tmp_path / "_metadata", ns=(nanoseconds, nanoseconds))
        directory = Directory(str(tmp_path))
        modified = directory.modified("_metadata")
        assert directory.confined().modified("_metadata") == modified
        assert [each.modified for each in directory.confined().listed()] == [modified]
