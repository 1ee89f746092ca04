"""Blob stores: blobs are stored, read and deleted by ids of the store.

A blob belongs to a folder, one for each commit of a store, and expires with it unless the folder is
made permanent. So leftovers of a crash expire, and blobs of the checkpoint log stay.

::

blobs/<folder>/<unique>-<name> a blob; its id is the path below `blobs` expiring/<folder> the
folder's time of expiry, in milliseconds since 1970; written before its first blob, removed to make
it permanent
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator

from statelake.state_core.errors import DeletedBlobError, MissingFileError, UnsafePathError
from statelake.state_core.files.confinement import PART, shortened
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.runtime.commit.records.clocks import now_millis
from statelake.state_core.runtime.commit.stores.local_disk import join

THIRTY_DAYS_MS = 30 * 24 * 3600 * 1000
CHUNK = 1 << 20
_BLOBS = "blobs"
_EXPIRING = "expiring"
_ID = re.compile(r"(?:[^/]+/)+[0-9a-f]{16}-[^/]+")
_MILLIS = re.compile(rb"[0-9]{1,18}")


def folder_of(blob: str) -> str:
    """Return the folder of a blob."""
    return blob.rpartition("/")[0]


def deleted(blob: str) -> DeletedBlobError:
    """Return the error of a blob that does not exist."""
    return DeletedBlobError(
        f"blob {blob} is no longer there: retention removed it after a later commit, it expired, "
        "or someone deleted it",
        remedy="restore from the last record of the checkpoint log, or from another backend that "
        "has a marker in it (`stores.<store>.restore.factory`)",
    )


class FileSystemBlobStore:
    """A store of blobs in a directory of any file system: local, S3, HDFS.

    Folders and ids are paths.

    Args:
        directory: The directory.
        clock: Returns milliseconds since 1970.
        ttl: Milliseconds after which a folder expires.
    """

    def __init__(
        self,
        directory: Directory,
        clock: Callable[[], int] = now_millis,
        ttl: int = THIRTY_DAYS_MS,
    ) -> None:
        self.directory = directory.confined()
        self.clock = clock
        self.ttl = ttl
        self._begun: set[str] = set()

    def put(self, folder: str, name: str, chunks: Iterable[bytes]) -> str:
        """Store a blob in a folder that expires, and return its id.

        Raises:
            StateError: The blob was not stored, or not completely.
        """
        if folder not in self._begun:
            self.directory.write(join(_EXPIRING, folder), str(self.clock() + self.ttl).encode())
            self._begun.add(folder)
        blob = join(folder, f"{uuid.uuid4().hex[:16]}-{name}")
        path = join(_BLOBS, blob)
        with self.directory.open_output(path) as file:
            for piece in chunks:
                file.write(piece)
        self.directory.sync_files([path])
        return blob

    def get(self, blob: str) -> Iterator[bytes]:
        """Yield a blob in pieces of at most a mebibyte.

        Raises:
            DeletedBlobError: The blob does not exist any more.
        """
        path = join(_BLOBS, blob)
        try:
            with self.directory.open_input(path) as file:
                while piece := file.read(CHUNK):
                    yield piece
        except MissingFileError as error:
            if self.directory.is_file(path):
                raise  # it can't be read
            raise deleted(blob) from error

    def delete(self, blob: str) -> None:
        """Remove a blob, if it exists.

        Raises:
            UnsafePathError: The id is not one of this store.
        """
        path = join(_BLOBS, blob)
        if not _ID.fullmatch(blob):
            raise UnsafePathError(
                f"a blob at {shortened(blob)}, which is not this store's",
                place=self.directory.full(),
                remedy="nothing is removed: do not trust the index that names it",
            )
        self.directory.delete(path)

    def make_permanent(self, folder: str) -> None:
        """Make a folder permanent, if it expires."""
        self.directory.delete(join(_EXPIRING, folder))
        self._begun.discard(folder)

    def expiring(self, prefix: str) -> dict[str, int]:
        """Return the folders below a prefix that expire, with times in milliseconds since 1970."""
        folders = {}
        for path, _ in self.directory.files_below(join(_EXPIRING, prefix)):
            when = b"" if path.endswith(PART) else self._read(path)
            if _MILLIS.fullmatch(when):
                folders[path.partition("/")[2]] = int(when)
        return folders

    def list(self, prefix: str) -> list[str]:
        """Return the ids of all blobs in folders below a prefix."""
        files = self.directory.files_below(join(_BLOBS, prefix))
        ids = (path.partition("/")[2] for path, _ in files)
        return [id_ for id_ in ids if _ID.fullmatch(id_)]

    def _read(self, path: str) -> bytes:
        try:
            return self.directory.read(path)
        except MissingFileError:
            if self.directory.is_file(path):
                raise  # it can't be read: a blob may be removed only if it is known to have expired
            return b""
