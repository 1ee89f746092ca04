"""Snapshot indexes: the blobs of one store at one checkpoint, as Samza 1.8's JSON.

A snapshot index names the blobs of every file of a store's directory, directory by directory, and
the files removed since the previous snapshot, which may be deleted once this one is in the
checkpoint log. It also names the previous snapshot, so that indexes form a chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from statelake.state_core.runtime.commit.records.records import CheckpointId
from statelake.state_core.runtime.commit.records.serdes import json_object, to_json, well_formed

ROOT = ""
"""The name of the directory itself."""


@dataclass(frozen=True, slots=True)
class FileBlob:
    """A blob with part of a file.

    Attributes:
        id: The id of the blob.
        offset: The position of its start in the file.
    """

    id: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The attributes of a file when it was uploaded.

    Attributes:
        created: The time of creation, in milliseconds since 1970.
        modified: The time of the last change, in milliseconds since 1970.
        size: The size in bytes.
        owner: The owner, never empty.
        group: The group, never empty.
        permissions: The permissions in the form of `ls`: `rw-r--r--`.
    """

    created: int
    modified: int
    size: int
    owner: str
    group: str
    permissions: str


@dataclass(frozen=True, slots=True)
class FileIndex:
    """A file of a snapshot.

    Attributes:
        name: The name without directories.
        blobs: The blobs of its content, in any order.
        metadata: Its size and other attributes.
        checksum: The CRC-32 of its content.
    """

    name: str
    blobs: tuple[FileBlob, ...]
    metadata: FileMetadata
    checksum: int


@dataclass(frozen=True, slots=True)
class DirIndex:
    """A directory of a snapshot.

    Attributes:
        name: The name; empty for the top directory.
        files: The files in it.
        files_removed: Files of the previous snapshot that are removed or changed.
        directories: The directories in it.
        directories_removed: Removed directories of the previous snapshot.
    """

    name: str = ROOT
    files: tuple[FileIndex, ...] = ()
    files_removed: tuple[FileIndex, ...] = ()
    directories: tuple[DirIndex, ...] = ()
    directories_removed: tuple[DirIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """The store and the commit of a snapshot.

    Attributes:
        checkpoint: The id of the commit.
        job_name: The name of the job.
        job_id: The id of the job's instance.
        task: The name of the task.
        store: The name of the store.
    """

    checkpoint: CheckpointId
    job_name: str
    job_id: str
    task: str
    store: str


@dataclass(frozen=True, slots=True)
class SnapshotIndex:
    """A snapshot of a store.

    Attributes:
        created: The time of creation, in milliseconds since 1970.
        metadata: Its store and commit.
        directory: The files.
        previous: The id of the blob with the previous index; None for the first.
    """

    created: int
    metadata: SnapshotMetadata
    directory: DirIndex = field(default_factory=DirIndex)
    previous: str | None = None


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
            successor(inside, old.get(folder, DirIndex(folder)), folder)
            for folder, inside in below.items()
        ),
        tuple(directory for directory in before.directories if directory.name not in below),
    )


def write_snapshot_index(index: SnapshotIndex) -> bytes:
    """Return the bytes of a snapshot index."""
    metadata = index.metadata
    return to_json(
        {
            "creation-time-millis": index.created,
            "snapshot-metadata": {
                "checkpoint-id": str(metadata.checkpoint),
                "job-name": metadata.job_name,
                "job-id": metadata.job_id,
                "task-name": metadata.task,
                "store-name": metadata.store,
            },
            "dir-index": _write_directory(index.directory),
            "prev-snapshot-index-blob-id": index.previous,
        }
    )


def read_snapshot_index(data: bytes, place: str = "a snapshot index") -> SnapshotIndex:
    """Read a snapshot index.

    Raises:
        CheckpointRecordError: The bytes are not a snapshot index.
    """
    fields = json_object(data, place)

    def build() -> SnapshotIndex:
        metadata, previous = fields["snapshot-metadata"], fields.get("prev-snapshot-index-blob-id")
        return SnapshotIndex(
            int(fields["creation-time-millis"]),
            SnapshotMetadata(
                CheckpointId.parse(metadata["checkpoint-id"]),
                str(metadata["job-name"]),
                str(metadata["job-id"]),
                str(metadata["task-name"]),
                str(metadata["store-name"]),
            ),
            _read_directory(fields["dir-index"]),
            None if previous is None else str(previous),
        )

    return well_formed(place, build)


def _write_directory(directory: DirIndex) -> dict[str, object]:
    return {
        "dir-name": directory.name,
        "files-present": [_write_file(file) for file in directory.files],
        "files-removed": [_write_file(file) for file in directory.files_removed],
        "sub-dirs-present": [_write_directory(inner) for inner in directory.directories],
        "sub-dirs-removed": [_write_directory(inner) for inner in directory.directories_removed],
    }


def _write_file(file: FileIndex) -> dict[str, object]:
    metadata = file.metadata
    return {
        "file-name": file.name,
        "blobs": [{"blob-id": blob.id, "offset": blob.offset} for blob in file.blobs],
        "file-metadata": {
            "creation-time-millis": metadata.created,
            "last-modified-time-millis": metadata.modified,
            "size": metadata.size,
            "owner": metadata.owner,
            "group": metadata.group,
            "permissions": metadata.permissions,
        },
        "checksum": file.checksum,
    }


def _read_directory(fields: Mapping[str, Any]) -> DirIndex:
    return DirIndex(
        str(fields["dir-name"]),
        tuple(map(_read_file, fields["files-present"])),
        tuple(map(_read_file, fields["files-removed"])),
        tuple(map(_read_directory, fields["sub-dirs-present"])),
        tuple(map(_read_directory, fields["sub-dirs-removed"])),
    )


def _read_file(fields: Mapping[str, Any]) -> FileIndex:
    metadata = fields["file-metadata"]
    return FileIndex(
        str(fields["file-name"]),
        tuple(FileBlob(str(blob["blob-id"]), int(blob["offset"])) for blob in fields["blobs"]),
        FileMetadata(
            int(metadata["creation-time-millis"]),
            int(metadata["last-modified-time-millis"]),
            int(metadata["size"]),
            str(metadata["owner"]),
            str(metadata["group"]),
            str(metadata["permissions"]),
        ),
        int(fields["checksum"]),
    )
