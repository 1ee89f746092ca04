"""What lies in a blob store for one store at one checkpoint, as Samza 1.8's JSON.

A snapshot index names the blobs of every file of a store's directory, directory by directory, and
in each what the snapshot before had and this one has not: that is what may be deleted once this one
is in the checkpoint log. It also names the snapshot before, so that indexes form a chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from state_core.commit.records import CheckpointId
from state_core.commit.serdes import json_object, to_json, well_formed

__all__ = [
    "DirIndex",
    "FileBlob",
    "FileIndex",
    "FileMetadata",
    "SnapshotIndex",
    "SnapshotMetadata",
    "present_files",
    "reachable_blobs",
    "read_snapshot_index",
    "removed_blobs",
    "successor",
    "write_snapshot_index",
]

ROOT = ""
"""The name of the directory itself."""


@dataclass(frozen=True, slots=True)
class FileBlob:
    """A blob with part of a file.

    Attributes:
        id: The blob's.
        offset: Where in the file it begins.
    """

    id: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """What a file was where it was uploaded.

    Attributes:
        created: In milliseconds since 1970.
        modified: In milliseconds since 1970.
        size: In bytes.
        owner: Never empty.
        group: Never empty.
        permissions: As `ls` has them: `rw-r--r--`.
    """

    created: int
    modified: int
    size: int
    owner: str
    group: str
    permissions: str


@dataclass(frozen=True, slots=True)
class FileIndex:
    """A file.

    Attributes:
        name: Without directories.
        blobs: Its content, in any order.
        metadata: Its size, and more.
        checksum: CRC-32 of its content.
    """

    name: str
    blobs: tuple[FileBlob, ...]
    metadata: FileMetadata
    checksum: int


@dataclass(frozen=True, slots=True)
class DirIndex:
    """A directory.

    Attributes:
        name: Empty for the one at the top.
        files: That are there.
        files_removed: That were there in the snapshot before, or were other ones.
        directories: That are there.
        directories_removed: That were there in the snapshot before.
    """

    name: str = ROOT
    files: tuple[FileIndex, ...] = ()
    files_removed: tuple[FileIndex, ...] = ()
    directories: tuple[DirIndex, ...] = ()
    directories_removed: tuple[DirIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """Of what a snapshot is.

    Attributes:
        checkpoint: The commit's id.
        job_name: Of the job.
        job_id: Of its instance.
        task: The task's name.
        store: The store's name.
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
        created: In milliseconds since 1970.
        metadata: Of what it is.
        directory: The files.
        previous: The id of the blob with the index before; None for the first.
    """

    created: int
    metadata: SnapshotMetadata
    directory: DirIndex = field(default_factory=DirIndex)
    previous: str | None = None


def present_files(directory: DirIndex, prefix: str = "") -> Iterator[tuple[str, FileIndex]]:
    """Every file of a snapshot, by its path."""
    for file in directory.files:
        yield prefix + file.name, file
    for below in directory.directories:
        yield from present_files(below, f"{prefix}{below.name}/")


def reachable_blobs(directory: DirIndex) -> Iterator[str]:
    """The blobs that a snapshot needs."""
    for _, file in present_files(directory):
        for blob in file.blobs:
            yield blob.id


def removed_blobs(directory: DirIndex) -> Iterator[str]:
    """The blobs that the snapshot before needed, and this one does not."""
    for file in directory.files_removed:
        for blob in file.blobs:
            yield blob.id
    for gone in directory.directories_removed:
        yield from reachable_blobs(gone)
    for below in directory.directories:
        yield from removed_blobs(below)


def successor(files: Mapping[str, FileIndex], before: DirIndex, name: str = ROOT) -> DirIndex:
    """The index of a directory as it is now, with what is gone since another snapshot.

    Args:
        files: Every file below, by path; a file that did not change is the index's own.
        before: The directory in the snapshot before.
        name: The directory's.
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
    old = {one.name: one for one in before.directories}
    return DirIndex(
        name,
        tuple(here),
        tuple(one for one in before.files if one not in kept),
        tuple(successor(inside, old.get(one, DirIndex(one)), one) for one, inside in below.items()),
        tuple(one for one in before.directories if one.name not in below),
    )


def write_snapshot_index(index: SnapshotIndex) -> bytes:
    """A snapshot index."""
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
    """A snapshot index.

    Raises:
        CheckpointRecordError: The bytes are none.
    """
    found = json_object(data, place)

    def build() -> SnapshotIndex:
        metadata, previous = found["snapshot-metadata"], found.get("prev-snapshot-index-blob-id")
        return SnapshotIndex(
            int(found["creation-time-millis"]),
            SnapshotMetadata(
                CheckpointId.parse(metadata["checkpoint-id"]),
                str(metadata["job-name"]),
                str(metadata["job-id"]),
                str(metadata["task-name"]),
                str(metadata["store-name"]),
            ),
            _read_directory(found["dir-index"]),
            None if previous is None else str(previous),
        )

    return well_formed(place, build)


def _write_directory(directory: DirIndex) -> dict[str, object]:
    return {
        "dir-name": directory.name,
        "files-present": [_write_file(one) for one in directory.files],
        "files-removed": [_write_file(one) for one in directory.files_removed],
        "sub-dirs-present": [_write_directory(one) for one in directory.directories],
        "sub-dirs-removed": [_write_directory(one) for one in directory.directories_removed],
    }


def _write_file(file: FileIndex) -> dict[str, object]:
    metadata = file.metadata
    return {
        "file-name": file.name,
        "blobs": [{"blob-id": one.id, "offset": one.offset} for one in file.blobs],
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


def _read_directory(found: Mapping[str, Any]) -> DirIndex:
    return DirIndex(
        str(found["dir-name"]),
        tuple(map(_read_file, found["files-present"])),
        tuple(map(_read_file, found["files-removed"])),
        tuple(map(_read_directory, found["sub-dirs-present"])),
        tuple(map(_read_directory, found["sub-dirs-removed"])),
    )


def _read_file(found: Mapping[str, Any]) -> FileIndex:
    metadata = found["file-metadata"]
    return FileIndex(
        str(found["file-name"]),
        tuple(FileBlob(str(one["blob-id"]), int(one["offset"])) for one in found["blobs"]),
        FileMetadata(
            int(metadata["creation-time-millis"]),
            int(metadata["last-modified-time-millis"]),
            int(metadata["size"]),
            str(metadata["owner"]),
            str(metadata["group"]),
            str(metadata["permissions"]),
        ),
        int(found["checksum"]),
    )
