"""The blob store backend: every commit uploads only new files.

`snapshot` does nothing: the local checkpoint is the snapshot. `upload` compares its files with the
index of the previous commit, sends new files, and then the new index, whose blob id is the marker.
`clean_up` makes the commit's blobs permanent, and removes blobs that only expired snapshots need.
`restore` downloads every file of the index, and checks size and checksum of each.

Blobs that neither a snapshot in the retained chain nor a running upload needs are removed at the
first clean-up after a start, so that nothing is left over from a crash.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from urllib.parse import quote

from statelake.state_core.errors import (
    CheckpointRecordError,
    CommitError,
    DeletedBlobError,
    StateError,
)
from statelake.state_core.runtime.commit.backends.blob_store import FileSystemBlobStore, folder_of
from statelake.state_core.runtime.commit.contract.futures import all_of, mapped
from statelake.state_core.runtime.commit.contract.interfaces import (
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from statelake.state_core.runtime.commit.records.records import (
    BLOB_STORE_FACTORY,
    Checkpoint,
    CheckpointId,
    CheckpointV2,
)
from statelake.state_core.runtime.commit.records.snapshot_index import (
    DirIndex,
    FileBlob,
    FileIndex,
    SnapshotIndex,
    SnapshotMetadata,
    present_files,
    reachable_blobs,
    read_snapshot_index,
    removed_blobs,
    successor,
    write_snapshot_index,
)
from statelake.state_core.runtime.commit.stores.local_disk import join
from statelake.state_core.runtime.commit.stores.task_stores import CHECKPOINT_FILE

LOG = logging.getLogger(__name__)
THREADS = 8
PROBE = "probe"
INDEX_NAME = "snapshot-index"
INDEX_BYTES = 64 << 20
"""The largest size of a snapshot index, of some 150,000 files."""


def garbage(
    blobs: Iterable[str], needed: Iterable[str], expiring: Mapping[str, int], now: int
) -> list[str]:
    """Return the blobs that can be deleted: those that neither snapshots nor uploads need.

    Args:
        blobs: All blobs.
        needed: The blobs of the snapshots that are kept.
        expiring: Folders of uploads without a record, with their time of expiry.
        now: The time, in milliseconds since 1970.
    """
    kept = set(needed)
    return [
        blob for blob in blobs if blob not in kept and expiring.get(folder_of(blob), now) <= now
    ]


def read_index(blobs: FileSystemBlobStore, marker: str) -> SnapshotIndex:
    """Read the snapshot index that a marker names.

    Raises:
        DeletedBlobError: The index does not exist any more.
        CheckpointRecordError: The index is malformed, or too large.
    """
    data = bytearray()
    for piece in blobs.get(marker):
        data += piece
        if len(data) > INDEX_BYTES:
            raise CheckpointRecordError(
                f"a snapshot index of more than {INDEX_BYTES:,} bytes", place=f"blob {marker}"
            )
    return read_snapshot_index(bytes(data), f"blob {marker}")


def _prefix(context: TaskContext, store: str) -> str:
    """Return the folder of a store's blobs."""
    job = f"{context.job_name}-{context.job_id}"
    return "/".join(
        f"{kind}={quote(name, safe='')}"
        for kind, name in (("job", job), ("task", context.task), ("store", store))
    )


class _OfIndexes:
    """A manager that reads the snapshot indexes of its stores."""

    _backend: BlobStoreBackend
    context: TaskContext
    stores: tuple[str, ...]

    def _indexes(self, checkpoint: Checkpoint | None) -> dict[str, tuple[str, SnapshotIndex]]:
        """Return the index of each store in a checkpoint, with its blob id."""
        if not isinstance(checkpoint, CheckpointV2):
            return {}
        markers = checkpoint.markers.get(BLOB_STORE_FACTORY, {})
        return {
            store: (markers[store], self._index(markers[store], store, checkpoint.id))
            for store in self.stores
            if store in markers
        }

    def _index(
        self, marker: str, store: str, checkpoint: CheckpointId | None = None
    ) -> SnapshotIndex:
        """Read the snapshot index of a store, of a certain checkpoint if one is given.

        Raises:
            DeletedBlobError: The index does not exist any more.
            CheckpointRecordError: The index is malformed, or that of something else.
        """
        index, context = read_index(self._backend.blobs, marker), self.context
        wanted = {
            "checkpoint_id": str(checkpoint or index.metadata.checkpoint_id),
            "task_name": context.task,
            "store_name": store,
        }
        if context.job_name:
            wanted |= {"job_name": context.job_name, "job_id": context.job_id}
        differing = [
            f"{name} {actual}, not {value}"
            for name, value in wanted.items()
            if (actual := getattr(index.metadata, name)) != value
        ]
        named = list(reachable_blobs(index.directory))
        if differing:
            problem = f"the snapshot index is that of another commit: {'; '.join(differing):.400}"
        elif len(set(named)) < len(named):
            problem = "the snapshot index names a blob twice"
        else:
            return index
        raise CheckpointRecordError(
            problem,
            place=f"blob {marker}",
            remedy="restore from another backend: someone else changed the blob store",
        )


class _BlobBackup(_OfIndexes, TaskBackupManager):
    def _init(self, checkpoint: Checkpoint | None) -> None:
        self._blobs = self._backend.blobs
        self._previous: dict[str, tuple[str, SnapshotIndex]] = {}
        # files whose content was read in this process: unchanged ones need not be read again
        self._seen: dict[str, dict[str, FileIndex]] = {}
        self._swept: set[str] = set()
        try:
            self._previous = self._indexes(checkpoint)
        except (DeletedBlobError, CheckpointRecordError) as error:
            # restored from another backend: the next upload sends everything
            LOG.warning("task %s: %s", self.context.task, error)

    def _snapshot(self, checkpoint: CheckpointId) -> dict[str, str]:
        return {}

    def _upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]:
        sent = all_of(
            [self._later(partial(self._send, store, checkpoint)) for store in self.stores]
        )
        return mapped(sent, lambda uploaded: dict(zip(self.stores, uploaded, strict=True)))

    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        tidied = [self._later(partial(self._tidy, *item, checkpoint)) for item in markers.items()]
        return mapped(all_of(tidied), lambda _: None)

    def _send(self, store: str, checkpoint: CheckpointId) -> str:
        context = self.context
        marker, before = self._previous.get(store, (None, None))
        old = before.directory if before else DirIndex.of()
        old_files = dict(present_files(old))
        folder = join(_prefix(context, store), str(checkpoint))
        source = context.stores.directory(store, checkpoint)
        seen: dict[str, FileIndex] = {}
        for path, size in context.stores.disk.files(source):
            if path != CHECKPOINT_FILE:
                seen[path] = self._file(store, folder, join(source, path), path, size, old_files)
        metadata = SnapshotMetadata(
            str(checkpoint), context.job_name, context.job_id, context.task, store
        )
        index = SnapshotIndex(context.millis, metadata, successor(seen, old), marker)
        data = write_snapshot_index(index)
        if len(data) > INDEX_BYTES:
            raise CommitError(
                f"a snapshot index of {len(data):,} bytes, and a restore reads {INDEX_BYTES:,}",
                place=f"task {context.task}, store {store!r}",
                remedy="so many files can't be committed to a blob store: choose a changelog",
            )
        blob = self._blobs.put(folder, INDEX_NAME, [data])
        self._previous[store] = (blob, index)
        self._seen[store] = seen
        return blob

    def _file(
        self,
        store: str,
        folder: str,
        local: str,
        path: str,
        size: int,
        old_files: Mapping[str, FileIndex],
    ) -> FileIndex:
        """Return the index of a file, which is uploaded unless its content is unchanged."""
        context = self.context
        before = old_files.get(path)
        if before is not None and before.metadata.size == size:
            immutable = context.stores.specs[store].immutable(path)
            looked_at = immutable and self._seen.get(store, {}).get(path) is before
            if looked_at or self._checksum(local) == before.checksum:
                context.measures.add("files_saved")
                context.measures.add("bytes_saved", size)
                return before
        checksum = sent = 0

        def counted() -> Iterator[bytes]:
            nonlocal checksum, sent
            for piece in context.stores.disk.chunks(local):
                checksum = zlib.crc32(piece, checksum)
                sent += len(piece)
                yield piece

        name = path.rpartition("/")[2]
        blob = self._blobs.put(folder, name, counted())
        context.measures.add("files_sent")
        context.measures.add("bytes_sent", sent)
        metadata = context.stores.disk.metadata(local, sent)
        return FileIndex(name, (FileBlob(blob, 0),), metadata, checksum)

    def _checksum(self, local: str) -> int:
        checksum = 0
        for piece in self.context.stores.disk.chunks(local):
            checksum = zlib.crc32(piece, checksum)
        return checksum

    def _tidy(self, store: str, marker: str, checkpoint: CheckpointId) -> None:
        prefix = _prefix(self.context, store)
        current = self._previous.get(store)
        index = (
            current[1]
            if current and current[0] == marker
            else self._index(marker, store, checkpoint)
        )
        expiring = self._blobs.expiring(prefix)
        needed = {marker, *reachable_blobs(index.directory)}
        for folder in sorted({folder_of(blob) for blob in needed} & set(expiring)):
            self._blobs.make_permanent(folder)
        try:
            chain = list(self._chain(store, marker, index))
        except CheckpointRecordError as error:
            # it needs blobs that nobody knows, until it is no longer kept
            LOG.warning("task %s: nothing is removed: %s", self.context.task, error)
            return
        for kept_marker, kept in chain:
            needed |= {kept_marker, *reachable_blobs(kept.directory)}
        oldest = chain[-1][1]
        for blob in (*removed_blobs(oldest.directory), oldest.previous):
            # an index is data: what is needed, and blobs of another store, are not removed
            if blob is not None and blob.startswith(f"{prefix}/") and blob not in needed:
                self._blobs.delete(blob)
        if store not in self._swept:
            left = garbage(
                self._blobs.list(prefix), needed, self._blobs.expiring(prefix), self.context.millis
            )
            for blob in left:
                self._blobs.delete(blob)
            for folder in {folder_of(blob) for blob in left} & set(expiring):
                self._blobs.make_permanent(folder)  # nothing in it can expire
            self._swept.add(store)

    def _chain(
        self, store: str, marker: str, index: SnapshotIndex
    ) -> Iterator[tuple[str, SnapshotIndex]]:
        """Yield the snapshots to keep, the last one first."""
        yield marker, index
        for _ in range(self._backend.keep - 1):
            if index.previous is None:
                return
            marker = index.previous
            try:
                index = self._index(marker, store)
            except DeletedBlobError:
                return
            yield marker, index


class _BlobRestore(_OfIndexes, TaskRestoreManager):
    def _init(self, checkpoint: Checkpoint | None) -> None:
        self._snapshots = self._indexes(checkpoint)

    def _restore(self, store: str) -> None:
        if store not in self._snapshots:
            return
        target = self.context.stores.directory(store)

        def get(path: str, file: FileIndex) -> None:
            self.context.stores.disk.create(join(target, path), self._content(path, file))
            self.context.measures.add("bytes_restored", file.metadata.size)

        files = list(present_files(self._snapshots[store][1].directory))
        if self._backend.threads == 1:
            for path, file in files:
                get(path, file)
            return
        with ThreadPoolExecutor(self._backend.threads) as pool:
            getting = [pool.submit(get, *file) for file in files]
            try:
                for ended in getting:
                    ended.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _content(self, path: str, file: FileIndex) -> Iterator[bytes]:
        checksum = size = 0
        for part in sorted(file.blobs, key=lambda blob: blob.offset):
            if part.offset != size:
                raise CommitError(f"{path}: its blobs have a gap at {size}", place=part.id)
            for piece in self._backend.blobs.get(part.id):
                self._check()
                checksum = zlib.crc32(piece, checksum)
                size += len(piece)
                yield piece
        if (size, checksum) != (file.metadata.size, file.checksum):
            raise CommitError(
                f"{path} is not what was uploaded: {size} bytes with checksum {checksum}, not "
                f"{file.metadata.size} with {file.checksum}",
                place=", ".join(blob.id for blob in file.blobs),
                remedy="the blob is damaged: restore from another backend",
            )


class BlobStoreBackend(StateBackendFactory):
    """A state backend that stores the files of stores as blobs.

    Args:
        blobs: The blob store.
        keep: The number of snapshots of each store to keep, the last one included.
        threads: The number of a store's files to download at once.
    """

    name = BLOB_STORE_FACTORY
    needs_files = True
    expires = True
    backup = _BlobBackup
    restore = _BlobRestore

    def __init__(self, blobs: FileSystemBlobStore, keep: int = 1, threads: int = THREADS) -> None:
        if keep < 1:
            raise CommitError(f"{keep} snapshots can't be kept", remedy="keep at least 1")
        self.blobs = blobs
        self.keep = keep
        self.threads = threads

    def create_resources(self) -> None:
        """Do nothing: a blob store needs no preparation."""

    def validate_resources(self) -> None:
        """Check that blobs can be stored, read and deleted."""
        try:
            blob = self.blobs.put(PROBE, "probe", [b"probe"])
            content = b"".join(self.blobs.get(blob))
            self.blobs.delete(blob)
            self.blobs.make_permanent(PROBE)
        except (StateError, OSError) as error:
            raise CommitError(f"the blob store can't be used: {error}") from error
        if content != b"probe":
            raise CommitError("the blob store does not return what was put there")
