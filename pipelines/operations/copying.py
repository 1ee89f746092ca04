"""Copy a savepoint or checkpoint to another directory, bucket or region, for Flink to restore.

A handle keeps its kind. A relative one, as in a savepoint, leads beside `_metadata` wherever that
is. An absolute one, as in a checkpoint, gets the URI of the file's new place: Flink writes the
handles of a claimed checkpoint into the `_metadata` of the next one, where relative ones would lead
nowhere. All else in `_metadata`, and every byte of the files, stays.

Files are written first, each appearing whole, and `_metadata` last: what has none is no snapshot,
but what a killed copy left, and the next one goes on there. A file that is there already is kept if
its bytes are those of the source.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from statelake.pipelines.flink.path_map import PathMap
from statelake.state_core.errors import (
    CorruptSnapshotError,
    DeclarationError,
    MissingFileError,
    SnapshotError,
)
from statelake.state_core.files.confinement import PART, relative_path
from statelake.state_core.files.file_sources import FileSource
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    check_properties,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import (
    CHECKPOINT_DIRECTORY,
    LOOKS_AT_ONCE,
    METADATA_FILE,
    SHARED_DIRECTORIES,
    StateFiles,
    place_of,
)
from statelake.state_core.formats.metadata.stream_map import logs_of, moved_streams, streams_of
from statelake.state_core.formats.reader import kind_and_format
from statelake.state_core.model.handles import (
    FileHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from statelake.state_core.printable import Printed, bytes_text, kind_text

THREADS = {True: 4, False: 16}  # by whether all files are local
PIECE = 8 << 20
DIGITS = 16  # of the digest in the name of a file from elsewhere
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CopiedSnapshot(Printed):
    """A copy of a snapshot.

    Attributes:
        location: The snapshot that was copied.
        to: The directory of the copy.
        kind: `savepoint` or `checkpoint`.
        format: `canonical`, `native` or `checkpoint`.
        checkpoint_id: Flink's id of it.
        files: The number of its files besides `_metadata`.
        bytes: Their bytes.
        kept_files: How many of them were there already.
        kept_bytes: Their bytes.
        moved_handles: How many handles got the URI of a new place; the others are relative, or
            have their bytes in `_metadata`.
        verified: Whether every byte was read back and compared.
        seconds: The time it took.
        was_complete: Whether the copy was complete before.
    """

    location: str
    to: str
    kind: str
    format: str
    checkpoint_id: int
    files: int
    bytes: int
    kept_files: int
    kept_bytes: int
    moved_handles: int
    verified: bool
    seconds: float
    was_complete: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return dict(vars(self))

    def lines(self) -> Iterator[str]:
        """Yield what people read."""
        was = ", which was complete" if self.was_complete else ""
        yield (
            f"{kind_text(self.format, self.kind)} {self.checkpoint_id} is in {self.to}{was}:"
            f" {self.files:,} files, {bytes_text(self.bytes)}"
        )
        if self.kept_files:
            yield f"{self.kept_files:,} of them were there ({bytes_text(self.kept_bytes)})"
        said = "was read back and compared" if self.verified else "was not compared"
        yield f"{self.moved_handles:,} handles lead to the new place; what was written {said}"


@dataclass(frozen=True)
class _File:
    """A file to copy.

    Attributes:
        source: Its bytes.
        target: Its path in the copy.
        grows: Whether others may still write behind these bytes.
    """

    source: FileSource
    target: str
    grows: bool

    @property
    def size(self) -> int:
        return self.source.size


def copy_snapshot(
    snapshot: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    verify: bool = True,
    threads: int | None = None,
    allow_external: Iterable[str] = (),
    paths: PathMap | None = None,
    progress: Progress | None = None,
) -> CopiedSnapshot:
    """Copy a snapshot with all its files, so that Flink restores the copy without the original.

    Args:
        snapshot: The directory with `_metadata`, a path or URI.
        dest: The directory of the copy: new, or that of the same copy which was not completed.
        verify: Whether to read every byte back, and compare digests.
        threads: How many files are copied at once; by default 4 on disks, and 16 with a store.
        allow_external: Other directories to which handles may lead.
        paths: The directories of the cluster, if they have other names there.
        progress: Called with (done, total) bytes.

    Raises:
        DeclarationError: The copy would be inside the original, or has another file in it.
        SnapshotError: The snapshot is damaged, a file can't be read or written, or differs.
    """
    began = time.monotonic()
    source, target = Directory(snapshot), Directory(dest)
    _refuse_overlap(source, target)
    files = StateFiles(source, tuple(allow_external))
    data = files.metadata()
    metadata = read_metadata(data, files.metadata_path)
    check_properties(metadata)
    uri = (paths or PathMap()).there(target.location)
    plan = _Plan(files, metadata, f"file:{uri}" if uri.startswith("/") else uri)
    moved = plan.moved()
    written = data if moved == metadata else write_metadata(moved)
    copy = _Copy(target.confined(), plan.files, verify=verify, progress=progress)
    was_complete = copy.begin(written)
    local = target.local and all(file.source.directory.local for file in plan.files)
    copy.run(threads or THREADS[local])
    if not was_complete:
        copy.target.write(METADATA_FILE, written)
    kind, format_name = kind_and_format(metadata)
    return CopiedSnapshot(
        source.uri, target.uri, kind, format_name, metadata.checkpoint_id, len(plan.files),
        sum(file.size for file in plan.files), len(copy.kept), sum(map(_size, copy.kept)),
        plan.moved_handles, verify, time.monotonic() - began, was_complete,
    )  # fmt: skip


def _size(file: _File) -> int:
    return file.size


def _refuse_overlap(source: Directory, target: Directory) -> None:
    """Refuse a copy inside the original, or the other way round.

    Files that a checkpoint shares lie beside it, so that the directory of the job is its own.
    """
    is_checkpoint = CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(source.root))
    whole = source.child("..") if is_checkpoint else source
    here, there = whole.root, place_of(target.uri, source)
    if source.local and target.local:
        here, there = os.path.realpath(here), os.path.realpath(there)
    own = os.path.realpath(source.root) if source.local else source.root
    if not there:
        return
    if f"{there}/".startswith(f"{here.rstrip('/')}/") or f"{own}/".startswith(f"{there}/"):
        raise DeclarationError(
            "a copy goes neither into the directory that it is made of, nor above it",
            place=target.full(),
            remedy="choose a place that stays when the original is deleted",
        )


# --------------------------------------------------------------------------- what goes where


class _Plan:
    """The files of a snapshot, each with its place in the copy.

    Args:
        files: The files of the snapshot.
        metadata: The content of its `_metadata`.
        uri: The URI of the copy, as Flink will call it.

    Attributes:
        files: What is to be copied, by path in the copy.
        moved_handles: How many handles are changed, once `moved` was called.

    Raises:
        SnapshotError: A file is missing, too short, or outside the snapshot.
    """

    def __init__(self, files: StateFiles, metadata: CheckpointMetadata, uri: str) -> None:
        self._state = files
        self._metadata = metadata
        self._uri = uri
        self.moved_handles = 0
        needed = self._needed()
        with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            found = list(pool.map(self._found, needed.values()))
        self._places: dict[str, str] = {}
        taken: dict[str, _File] = {}
        for (name, need), source in zip(needed.items(), found, strict=True):
            self._places[name] = self._put(need, source, taken)
        self.files = [taken[target] for target in sorted(taken)]

    def moved(self) -> CheckpointMetadata:
        """Return the `_metadata` of the copy."""

        def of_stream(stream: StreamHandle) -> StreamHandle:
            if not isinstance(stream, FileHandle | SegmentHandle):
                return stream
            self.moved_handles += 1
            return replace(stream, uri=f"{self._uri}/{self._places[stream.uri]}")

        return moved_streams(self._metadata, of_stream, self._directory)

    def _needed(self) -> dict[str, _Need]:
        """Return what handles need of each file, by the name in them, relative ones first."""
        logs = logs_of(self._metadata)
        needed: dict[str, _Need] = {}
        for stream in streams_of(self._metadata):
            is_log = stream in logs
            while isinstance(stream, NestedKeyGroupsHandle) and stream.stream is not None:
                stream = stream.stream  # noqa: PLW2901 - what is nested in it
            if not isinstance(stream, RelativeHandle | FileHandle | SegmentHandle):
                continue
            need = needed.setdefault(_name(stream), _Need(stream))
            end = stream.start + stream.size if isinstance(stream, SegmentHandle) else stream.size
            need.end = max(need.end, end)
            need.is_log |= is_log
            need.is_whole |= not isinstance(stream, SegmentHandle)
        return dict(sorted(needed.items(), key=lambda each: not each[1].is_relative))

    def _found(self, need: _Need) -> FileSource:
        """Look up a file; return as much of it as is to be copied.

        Others may still write behind the segments of a merged file.
        """
        handle = need.handle
        handle = (
            replace(handle, start=0, size=need.end)
            if isinstance(handle, SegmentHandle)
            else replace(handle, size=need.end)
        )
        opened = self._state.open(handle, whole=not need.is_log, shared=True)
        source = cast("FileSource", opened)  # only inlined state is another one
        if not need.is_whole:
            return source
        remote = source.remote
        size = source.directory.size(source.path) if remote is None else remote.size
        return replace(source, size=size)

    def _put(self, need: _Need, source: FileSource, taken: dict[str, _File]) -> str:
        """Give a file its place in the copy, and return that."""
        where = self._in_snapshot(source)
        places = [where] if where else []
        if not need.is_relative:
            places.append(_elsewhere(source.name, source.directory.uri))
        for place in places:
            if place == METADATA_FILE or place.endswith(PART):
                break
            file = _File(source, place, grows=not need.is_whole)
            other = taken.setdefault(place, file)
            if _identity(other.source) == _identity(source):
                if other.size < source.size:
                    taken[place] = file
                return place
        raise CorruptSnapshotError(
            f"a state file called {posixpath.basename(source.path)}",
            place=self._state.metadata_path,
            remedy="this is not how Flink writes: do not trust the file",
        )

    def _in_snapshot(self, source: FileSource) -> str:
        """Return the path that a file has in the snapshot, empty if it has none."""
        root = self._state.directory.root
        if source.directory.scheme != self._state.directory.scheme:
            return ""
        if source.name.startswith(f"{root}/"):
            return source.name[len(root) + 1 :]
        above = posixpath.dirname(root)
        if CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(root)):
            for shared in SHARED_DIRECTORIES:
                if source.name.startswith(f"{above}/{shared}/"):
                    return source.name[len(above) + 1 :]
        return ""

    def _directory(self, uri: str) -> str:
        """Return the new place of a directory of merged files."""
        parts = uri.rstrip("/").split("/")
        at = next((at for at, part in enumerate(parts) if part in SHARED_DIRECTORIES), None)
        path = _elsewhere(parts[-1], uri) if at is None else "/".join(parts[at:])
        relative_path(path, what="a directory of merged files", inside="the snapshot")
        return f"{self._uri}/{path}"


def _elsewhere(name: str, identity: str) -> str:
    """Return the place in a copy for what is neither in the snapshot nor beside it."""
    digest = hashlib.sha256(f"{identity} {name}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"shared/{digest[:DIGITS]}-{posixpath.basename(name)}"


def _identity(source: FileSource) -> tuple[str, str, str]:
    return source.directory.scheme, source.directory.host, source.name


@dataclass
class _Need:
    """What handles need of a file.

    Attributes:
        handle: One of them.
        end: The last byte that one of them names.
        is_log: Whether it is a file of a changelog, whose handles count bytes before compression.
        is_whole: Whether one of them names it as a whole.
    """

    handle: RelativeHandle | FileHandle | SegmentHandle
    end: int = 0
    is_log: bool = False
    is_whole: bool = False

    @property
    def is_relative(self) -> bool:
        """Whether its place is told by its name."""
        return isinstance(self.handle, RelativeHandle)


def _name(stream: RelativeHandle | FileHandle | SegmentHandle) -> str:
    return f"./{stream.path}" if isinstance(stream, RelativeHandle) else stream.uri


# --------------------------------------------------------------------------- copying


class _Copy:
    """Files on their way.

    Args:
        target: The directory of the copy.
        files: What goes there.
        verify: Whether what was written is read back and compared.
        progress: Called with (done, total) bytes.

    Attributes:
        kept: The files that were there.
    """

    def __init__(
        self,
        target: ConfinedDirectory,
        files: list[_File],
        *,
        verify: bool,
        progress: Progress | None,
    ) -> None:
        self.target = target
        self.kept: list[_File] = []
        self._files = files
        self._verify = verify
        self._progress = progress
        self._done = 0
        self._total = sum(map(_size, files))
        self._there: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def begin(self, metadata: bytes) -> bool:
        """Look at what is there; return whether this copy was complete.

        Raises:
            DeclarationError: Something else is there.
        """
        listed = list(self.target.listed())
        self._there = {file.path: file.size for file in listed if not file.is_link}
        wanted = {file.target for file in self._files} | {METADATA_FILE}
        for file in listed:
            if file.path in wanted and not file.is_link:
                continue
            if not (file.path.endswith(PART) and self.target.remove_left_part(file.path)):
                raise DeclarationError(
                    f"{file.path} is there, which is no part of this copy",
                    place=self.target.full(),
                    remedy="choose an empty directory, or that of a copy that was interrupted",
                )
        if METADATA_FILE not in self._there:
            return False
        if self.target.read(METADATA_FILE) != metadata:
            raise DeclarationError(
                "another snapshot is there",
                place=self.target.full(METADATA_FILE),
                remedy="choose another directory: a snapshot is never written over",
            )
        return True

    def run(self, threads: int) -> None:
        """Copy all files.

        Raises:
            SnapshotError: A file can't be read or written, or differs.
        """
        self.target.create()
        largest_first = sorted(self._files, key=_size, reverse=True)
        with ThreadPoolExecutor(threads, "statelake-copy") as pool:
            try:
                tasks = [pool.submit(self._bring, file) for file in largest_first]
                done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
                for task in done:
                    task.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _bring(self, file: _File) -> None:
        if self._there.get(file.target) == file.size and self._is_same(file):
            with self._lock:
                self.kept.append(file)
            self._tell(file.size)
            return
        digest = hashlib.sha256()
        self.target.write_pieces(file.target, self._pieces(file, digest))
        if not self._verify:
            return
        if not file.grows:
            with suppress(MissingFileError):  # it was read to its end before it was deleted
                file.source.refuse_change()
        if self._digest_there(file) != digest.digest():
            raise SnapshotError(
                "other bytes are read back than were written",
                place=self.target.full(file.target),
                remedy="run it again, and check the disk or the store",
            )

    def _pieces(self, file: _File, digest: Any) -> Iterator[memoryview]:
        for piece in self._read(file.source):
            if self._verify:
                digest.update(piece)
            yield piece
            self._tell(len(piece))

    def _is_same(self, file: _File) -> bool:
        if not self._verify:
            return True
        digest = hashlib.sha256()
        for piece in self._read(file.source):
            digest.update(piece)
        return self._digest_there(file) == digest.digest()

    def _digest_there(self, file: _File) -> bytes:
        source = self.target.source(file.target)
        if source.size != file.size:
            return b""
        digest = hashlib.sha256()
        for piece in self._read(source):
            digest.update(piece)
        return digest.digest()

    def _read(self, source: FileSource) -> Iterator[memoryview]:
        for start in range(0, source.size, PIECE):
            if self._stop.is_set():
                raise SnapshotError("stopped, as another file failed", place=source.name)
            piece = np.empty(min(PIECE, source.size - start), np.uint8)
            source.read_into(start, piece)
            yield piece.data

    def _tell(self, count: int) -> None:
        if self._progress is None:
            return
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)
