"""Snapshot indexes: the blobs of one store at one checkpoint, as Samza 1.8's JSON.

A snapshot index names the blobs of every file of a store's directory, directory by directory, and
the files removed since the previous snapshot, which may be deleted once this one is in the
checkpoint log. It also names the previous snapshot, so that indexes form a chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import field

from statelake.state_core.errors import CheckpointRecordError
from statelake.state_core.files.outside import decoded
from statelake.state_core.runtime.commit.records.records import CheckpointId
from statelake.state_core.runtime.commit.records.serdes import reading, to_json

ROOT = ""
"""The name of the directory itself."""


class FileBlob(msgspec.Struct, frozen=True):
    """A blob with part of a file.

    Attributes:
        id: The id of the blob.
        offset: The position of its start in the file.
    """

    id: str = field(name="blob-id")
    offset: int


class FileMetadata(msgspec.Struct, frozen=True):
    """The attributes of a file when it was uploaded.

    Attributes:
        created: The time of creation, in milliseconds since 1970.
        modified: The time of the last change, in milliseconds since 1970.
        size: The size in bytes.
        owner: The owner, never empty.
        group: The group, never empty.
        permissions: The permissions in the form of `ls`: `rw-r--r--`.
    """

    created: int = field(name="creation-time-millis")
    modified: int = field(name="last-modified-time-millis")
    size: int
    owner: str
    group: str
    permissions: str


class FileIndex(msgspec.Struct, frozen=True):
    """A file of a snapshot.

    Attributes:
        name: The name without directories.
        blobs: The blobs of its content, in any order.
        metadata: Its size and other attributes.
        checksum: The CRC-32 of its content.
    """

    name: str = field(name="file-name")
    blobs: tuple[FileBlob, ...]
    metadata: FileMetadata = field(name="file-metadata")
    checksum: int


class DirIndex(msgspec.Struct, frozen=True):
    """A directory of a snapshot.

    Attributes:
        name: The name; empty for the top directory.
        files: The files in it.
        files_removed: Files of the previous snapshot that are removed or changed.
        directories: The directories in it.
        directories_removed: Removed directories of the previous snapshot.
    """

    name: str = field(name="dir-name")
    files: tuple[FileIndex, ...] = field(name="files-present")
    files_removed: tuple[FileIndex, ...] = field(name="files-removed")
    directories: tuple[DirIndex, ...] = field(name="sub-dirs-present")
    directories_removed: tuple[DirIndex, ...] = field(name="sub-dirs-removed")

    @classmethod
    def of(cls, name: str = ROOT, files: Iterable[FileIndex] = ()) -> DirIndex:
        """Return a directory with these files alone."""
        return cls(name, tuple(files), (), (), ())


class SnapshotMetadata(msgspec.Struct, frozen=True, rename="kebab"):
    """The store and the commit of a snapshot.

    Attributes:
        checkpoint_id: The id of the commit, as text.
        job_name: The name of the job.
        job_id: The id of the job's instance.
        task_name: The name of the task.
        store_name: The name of the store.
    """

    checkpoint_id: str
    job_name: str
    job_id: str
    task_name: str
    store_name: str


class SnapshotIndex(msgspec.Struct, frozen=True):
    """A snapshot of a store.

    Attributes:
        created: The time of creation, in milliseconds since 1970.
        metadata: Its store and commit.
        directory: The files.
        previous: The id of the blob with the previous index, a text; None for the first.
    """

    created: int = field(name="creation-time-millis")
    metadata: SnapshotMetadata = field(name="snapshot-metadata")
    directory: DirIndex = field(name="dir-index")
    previous: Any = field(name="prev-snapshot-index-blob-id", default=None)


def present_files(directory: DirIndex, prefix: str = "") -> Iterator[tuple[str, FileIndex]]:
    """Yield every file of a snapshot, by its path."""
    for file in directory.files:
        yield prefix + file.name, file
    for below in directory.directories:
        yield from present_files(below, f"{prefix}{below.name}/")


def reachable_blobs(directory: DirIndex) -> Iterator[str]:
    """Yield the blobs that a snapshot needs."""
    for _, file in present_files(directory):
        for blob in file.blobs:
            yield blob.id


def removed_blobs(directory: DirIndex) -> Iterator[str]:
    """Yield the blobs of the previous snapshot that this one does not need."""
    for file in directory.files_removed:
        for blob in file.blobs:
            yield blob.id
    for gone in directory.directories_removed:
        yield from reachable_blobs(gone)
    for below in directory.directories:
        yield from removed_blobs(below)


def successor(files: Mapping[str, FileIndex], before: DirIndex, name: str = ROOT) -> DirIndex:
    """Return the index of a directory, with the files removed since another snapshot.

    Args:
        files: Every file below, by path; an unchanged file is that of the previous index.
        before: The directory in the previous snapshot.
        name: The name of the directory.
    """
    here: list[FileIndex] = []
    below: dict[str, dict[str, FileIndex]] = {}
    for path, file in files.items():
        first, separator, rest = path.partition("/")
        if separator:
            below.setdefault(first, {})[rest] = file
        else:
            here.append(file)
    kept = set(here)
    old = {directory.name: directory for directory in before.directories}
    return DirIndex(
        name,
        tuple(here),
        tuple(file for file in before.files if file not in kept),
        tuple(
            successor(inside, old.get(folder, DirIndex.of(folder)), folder)
            for folder, inside in below.items()
        ),
        tuple(directory for directory in before.directories if directory.name not in below),
    )


def write_snapshot_index(index: SnapshotIndex) -> bytes:
    """Return the bytes of a snapshot index."""
    return to_json(index)


def read_snapshot_index(data: bytes, place: str = "a snapshot index") -> SnapshotIndex:
    """Read a snapshot index.

    Raises:
        CheckpointRecordError: The bytes are not a snapshot index.
    """
    with reading(place):
        index = decoded(data, SnapshotIndex, CheckpointRecordError)
        CheckpointId.parse(index.metadata.checkpoint_id)
        previous = None if index.previous is None else str(index.previous)
        return msgspec.structs.replace(index, previous=previous)
