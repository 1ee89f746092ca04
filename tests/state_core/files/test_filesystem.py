"""Directories by their URI: what makes them again says where they are."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs

from state_core.errors import MissingFileError, SnapshotError
from state_core.files import object_stores
from state_core.files.filesystem import Directory


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


class UnreadableFile(io.BytesIO):
    """What S3 gives for an object that was deleted after it was opened."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Fail as Arrow's S3 file does, which has no error of its own for a missing object."""
        raise OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation")


@pytest.mark.parametrize(
    ("kept", "error", "problem"),
    [(False, MissingFileError, "no such file"), (True, SnapshotError, "RESOURCE_NOT_FOUND")],
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
        return pa.PythonFile(UnreadableFile(), "r")

    size = directory.size("log/1.record")
    monkeypatch.setattr(directory, "open_input", open_input)
    with pytest.raises(error, match=problem) as raised:
        directory.read_into("log/1.record", 0, np.empty(size, np.uint8))
    assert type(raised.value) is error
