"""Copy a savepoint or checkpoint to another directory, bucket or region, for Flink to restore.

A handle keeps its kind. A relative one, as in a savepoint, leads beside `_metadata` wherever that
is. An absolute one, as in a checkpoint, gets the URI of the file's new place, although Flink would
restore a relative one, too: it writes the handles of a claimed checkpoint's log into the
`_metadata` of the next one, where a relative one leads nowhere. All else in `_metadata`, and every
byte of the files, stays.

Files are written first, each appearing whole, and `_metadata` last: what has none is no snapshot,
but what a killed copy left, and the next one goes on there. A file that is there already is kept if
its bytes are those of the source.

The checkpoints of a job are copied as they lie there: each in its `chk-N`, and beside them, once,
what they share. A file that a complete copy names was verified then, and is not read again.

`orphans` may run beside it, and must not delete what a copy keeps. So each says what it does before
it looks what the other does: a copy writes what its `_metadata` will be as `COPYING`, looks for
names of files that `orphans` is deleting, and lists again what it would keep; `orphans` writes
those names, and then reads every `_metadata` and `COPYING`. Whichever is later sees the other, no
matter how long either takes: no clock is asked, no age, and nothing has to be unlocked.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, islice
from typing import Any, cast

import numpy as np
import xxhash

from statelake.pipelines.find.orphans import refuse_planned
from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.requests.find import CopyCheckpoints, Copying, CopySnapshot
from statelake.pipelines.requests.request import takes
from statelake.state_core.errors import (
    ChangedFileError,
    CorruptSnapshotError,
    DeclarationError,
    MissingFileError,
    SnapshotError,
    StateError,
    TruncatedError,
)
from statelake.state_core.files.confinement import PART, relative_path
from statelake.state_core.files.file_sources import FileSource, Workers
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    check_properties,
    kind_and_format,
    read_metadata,
    write_as_read,
)
from statelake.state_core.formats.metadata.state_files import (
    CHECKPOINT_DIRECTORY,
    COPYING,
    LOOKS_AT_ONCE,
    METADATA_FILE,
    SHARED_DIRECTORIES,
    StateFiles,
    place_of,
    shared_depth,
)
from statelake.state_core.formats.metadata.stream_map import logs_of, moved_streams, streams_of
from statelake.state_core.model.handles import (
    FileHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from statelake.state_core.printable import Printed, Table, bytes_text, kind_text

THREADS = {True: 4, False: 16}  # by whether all files are local
PIECE = {True: 1 << 20, False: 8 << 20}  # by whether it is on a disk: it stays in a core's cache
COMPRESSED = 1  # the first byte of a log
# what a killed writer left of a file: on a disk, and in HDFS
_LEFT = re.compile(rf"(.+)\.(?:[0-9a-f]{{8}}|[0-9a-f]{{16}}){re.escape(PART)}", re.DOTALL)
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

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        was = ", which was complete" if self.was_complete else ""
        what = kind_text(self.format, self.kind) or "snapshot"
        yield (
            f"{what} {self.checkpoint_id} is in {self.to}{was}:"
            f" {self.files:,} files, {bytes_text(self.bytes)}"
        )
        if self.kept_files:
            yield f"{self.kept_files:,} of them were there ({bytes_text(self.kept_bytes)})"
        text = "was read back and compared" if self.verified else "was not compared"
        yield f"{self.moved_handles:,} handles lead to the new place; what was written {text}"


@dataclass(frozen=True)
class _CopiedFile:
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


@dataclass(frozen=True)
class CopiedCheckpoints(Printed):
    """A copy of the checkpoints of a job.

    Attributes:
        location: The directory of the job's checkpoints.
        to: The directory of the copies.
        copied: Those that were copied now, the newest first.
        complete: How many of those that were wanted had been copied before.
        gone: Those that Flink deleted while they were copied.
    """

    location: str
    to: str
    copied: tuple[CopiedSnapshot, ...]
    complete: int
    gone: tuple[str, ...]

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        written = sum(each.bytes - each.kept_bytes for each in self.copied)
        yield (
            f"checkpoints in {self.to}: {len(self.copied):,} copied ({bytes_text(written)}),"
            f" {self.complete:,} there before"
        )
        if self.copied:
            rows = [
                (posixpath.basename(each.to), f"{each.files:,}", bytes_text(each.bytes),
                 bytes_text(each.kept_bytes))
                for each in self.copied
            ]  # fmt: skip
            columns = ("<checkpoint", ">files", ">bytes", ">were there")
            yield Table("", columns, rows)
        for name in self.gone:
            yield f"{name} was deleted while it was copied"


@takes(CopySnapshot)
def copy_snapshot(request: CopySnapshot) -> CopiedSnapshot:
    """Copy a snapshot with all its files, so that Flink restores the copy without the original.

    Raises:
        DeclarationError: The copy would be inside the original, or has another file in it.
        SnapshotError: The snapshot is damaged, a file can't be read or written, or differs.
    """
    source, target = Directory(request.snapshot), Directory(request.dest)
    _refuse_overlap(source, target)
    place = _CopyTarget(target, request)
    return _copied(_planned(source, place, "", request), place, request, request.progress)


@takes(CopyCheckpoints)
def copy_checkpoints(request: CopyCheckpoints) -> CopiedCheckpoints:
    """Copy the checkpoints of a job that were not copied before, the newest first.

    One that is damaged, or that changes meanwhile, keeps no other from being copied, and is an
    error afterwards.

    Raises:
        DeclarationError: The copies would be inside the originals, or another job's are there.
        SnapshotError: A snapshot is damaged, a file can't be read or written, or differs.
    """
    source, target = Directory(request.directory), Directory(request.dest)
    _refuse_overlap(source, target)
    names = sorted(filter(CHECKPOINT_DIRECTORY.fullmatch, source.names()), key=_number)
    if not names:
        raise MissingFileError(
            "no chk-N is there",
            place=source.full(),
            remedy="give the directory of a job's checkpoints, below that of all jobs",
        )
    wanted = [name for name in reversed(names) if _is_since(source, name, request.since)]
    place = _CopyTarget(target, request)
    copied: list[CopiedSnapshot] = []
    gone: list[str] = []
    damaged: list[StateError] = []
    known = {path.partition("/")[0] for path in place.there}
    done = place.complete()
    complete = 0
    for name in wanted:
        checkpoint = source.child(name)
        begun = False
        try:
            if not checkpoint.is_file(METADATA_FILE):
                continue  # it is being written
            if name in done:
                place.refuse_another_of(name, checkpoint)
                complete += 1
                continue
            plan = _planned(checkpoint, place, f"{name}/", request)
            begun = True
            copied.append(_copied(plan, place, request, request.progress))
        except DeclarationError:
            raise
        except StateError as error:
            if begun and not _is_of_source(error, source):
                raise
            if _is_there(checkpoint):
                damaged.append(error)
                continue
            if begun and name not in known:  # all of it was written just now
                place.directory.delete_tree(name)
            place.directory.delete_files([f"{name}/{COPYING}"])
            gone.append(name)
    if damaged:
        many = "" if len(damaged) == 1 else f" (and {len(damaged) - 1} more can't be copied)"
        raise SnapshotError(
            f"{damaged[0].problem}{many}", place=damaged[0].place,
            remedy="all others are copied; `statelake scan` says what is wrong with this one",
        ) from damaged[0]  # fmt: skip
    return CopiedCheckpoints(source.uri, target.uri, tuple(copied), complete, tuple(gone))


def _is_of_source(error: StateError, source: Directory) -> bool:
    """Return whether an error is of what is read, and not of where it is written."""
    changed = isinstance(error, ChangedFileError | MissingFileError | TruncatedError)
    return changed or error.place.startswith((f"{source.root}/", f"{source.uri}/"))


def _is_there(checkpoint: Directory) -> bool:
    """Return whether a checkpoint is complete; also if that can't be known."""
    try:
        return checkpoint.is_file(METADATA_FILE)
    except SnapshotError:
        return True


def _number(name: str) -> int:
    return int(name.partition("-")[2])


def _is_since(source: Directory, name: str, since: int | datetime | None) -> bool:
    if since is None or isinstance(since, int):
        return since is None or _number(name) >= since
    return source.modified(f"{name}/{METADATA_FILE}") >= since.timestamp()


def _planned(source: Directory, target: _CopyTarget, within: str, options: Copying) -> _CopyPlan:
    """Return what is to be copied of one snapshot; nothing is written.

    Args:
        source: Its directory.
        target: The directory of the copy, or of all copies.
        within: The path of this copy below that, ending in a slash; empty if it is that.
        options: How.

    Raises:
        SnapshotError: It is damaged, or can't be read.
    """
    return _CopyPlan(StateFiles(source, tuple(options.allow_external)), target.uri, within)


def _copied(
    plan: _CopyPlan, target: _CopyTarget, options: Copying, progress: Progress | None
) -> CopiedSnapshot:
    """Copy one snapshot.

    Args:
        plan: What is to be copied.
        target: The directory of the copy, or of all copies.
        options: How.
        progress: Called with (done, total) bytes.
    """
    source, within = plan.source, plan.within
    data, metadata, moved = plan.data, plan.metadata, plan.moved()
    written = data if moved == metadata else write_as_read(moved)
    files = {file.target for file in plan.files}
    was_complete = target.refuse_another(within, files, written)
    if not was_complete:
        target.say_copying(within, files, written)
    copy = _Transfer(target, plan.files, verify=options.verify, progress=progress)
    local = target.directory.local and all(file.source.directory.local for file in plan.files)
    copy.run(options.threads or THREADS[local])
    if not was_complete:
        target.finish(f"{within}{METADATA_FILE}", written)
    target.directory.delete_files([f"{within}{COPYING}"])
    if modified := source.modified(METADATA_FILE):  # when it was taken
        target.directory.set_modified(f"{within}{METADATA_FILE}", modified)
    target.note({file.target: file.size for file in plan.files})
    kind, format_name = kind_and_format(metadata)
    return CopiedSnapshot(
        source.uri, f"{target.directory.uri}/{within}".rstrip("/"), kind, format_name,
        metadata.checkpoint_id, len(plan.files), sum(map(_size, plan.files)), len(copy.kept),
        sum(map(_size, copy.kept)), plan.moved_handles, options.verify,
        time.monotonic() - plan.began,
        was_complete,
    )  # fmt: skip


def _size(file: _CopiedFile) -> int:
    return file.size


def _refuse_overlap(source: Directory, target: Directory) -> None:
    """Refuse a copy inside the original, or the other way round.

    Files that a checkpoint shares lie beside it, so that the directory of the job is its own.
    """
    is_checkpoint = CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(source.root))
    original = source.child("..") if is_checkpoint else source
    here, there = original.root, place_of(target.uri, source)
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


class _CopyPlan:
    """The files of a snapshot, each with its place in the copy.

    Args:
        files: The files of the snapshot.
        uri: The URI of the target, as Flink will call it.
        within: The path of the copy below the target, ending in a slash; empty if it is that.

    Attributes:
        source: The directory of the snapshot.
        within: As it was given.
        data: The bytes of its `_metadata`.
        metadata: The content of that.
        began: When it was read, by the monotonic clock.
        files: What is to be copied, by path below the target.
        moved_handles: How many handles are changed, once `moved` was called.

    Raises:
        SnapshotError: A file is missing, too short, or outside the snapshot.
    """

    def __init__(self, files: StateFiles, uri: str, within: str) -> None:
        self.began = time.monotonic()
        self.source = files.directory
        self.data = files.metadata()
        self.metadata = read_metadata(self.data, files.metadata_path)
        check_properties(self.metadata)
        self._state = files
        self._uri = uri
        self.within = within
        self.moved_handles = 0
        needed = self._needed()
        with Workers(LOOKS_AT_ONCE) as pool:
            sources = list(pool.map(self._found, needed.values()))
        self._places: dict[str, str] = {}
        taken: dict[str, _CopiedFile] = {}
        for (name, need), source in zip(needed.items(), sources, strict=True):
            self._places[name] = self._put(need, source, taken)
        self.files = [taken[target] for target in sorted(taken)]

    def moved(self) -> CheckpointMetadata:
        """Return the `_metadata` of the copy."""

        def of_stream(stream: StreamHandle) -> StreamHandle:
            if not isinstance(stream, FileHandle | SegmentHandle):
                return stream
            self.moved_handles += 1
            return replace(stream, uri=f"{self._uri}/{self._places[stream.uri]}")

        return moved_streams(self.metadata, of_stream, self._directory)

    def _needed(self) -> dict[str, _Need]:
        """Return what handles need of each file, by the name in them, relative ones first."""
        logs = logs_of(self.metadata)
        needed: dict[str, _Need] = {}
        for stream in streams_of(self.metadata):
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
        opened = self._state.open(handle, complete=not need.is_log, shared=True)
        source = cast("FileSource", opened)  # only inlined state is another one
        if not need.is_whole:
            return source
        remote = source.remote
        size = source.directory.size(source.path) if remote is None else remote.size
        source = replace(source, size=size)
        if need.is_log and size <= need.end:  # one byte before says whether it is compressed
            first = np.zeros(1, np.uint8)
            source.read_into(0, first[:size])
            if first[0] != COMPRESSED:
                raise CorruptSnapshotError(
                    f"{size} bytes, and `_metadata` says {need.end + 1}",
                    place=source.name,
                    remedy="the file was cut off, or is another snapshot's: fetch it again",
                )
        return source

    def _put(self, need: _Need, source: FileSource, taken: dict[str, _CopiedFile]) -> str:
        """Give a file its place in the copy, and return that."""
        if isinstance(need.handle, RelativeHandle):
            places = [self.within + need.handle.path]
        else:
            places = [self._in_snapshot(source), _elsewhere(source.name, source.directory.uri)]
        for place in filter(None, places):
            own = {f"{self.within}{METADATA_FILE}", f"{self.within}{COPYING}"}
            if place in own or place.endswith(PART):
                break
            file = _CopiedFile(source, place, grows=not need.is_whole)
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
        """Return the place of a file that is in the snapshot, or beside it; empty for others."""
        root = self._state.directory.root
        if source.directory.scheme != self._state.directory.scheme:
            return ""
        if source.name.startswith(f"{root}/"):
            return self.within + source.name[len(root) + 1 :]
        above = posixpath.dirname(root)
        if CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(root)):
            for shared in SHARED_DIRECTORIES:
                if source.name.startswith(f"{above}/{shared}/"):
                    return source.name[len(above) + 1 :]
        return ""

    def _directory(self, uri: str) -> str:
        """Return the new place of a directory of merged files."""
        parts = uri.rstrip("/").split("/")
        depth = shared_depth(parts)
        path = "/".join(parts[-depth:]) if depth else _elsewhere(parts[-1], uri)
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
    """The bytes of a file that handles need.

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
        """Return whether its name determines its place."""
        return isinstance(self.handle, RelativeHandle)


def _name(stream: RelativeHandle | FileHandle | SegmentHandle) -> str:
    return f"./{stream.path}" if isinstance(stream, RelativeHandle) else stream.uri


# --------------------------------------------------------------------------- copying


class _CopyTarget:
    """The directory of a copy, or of several.

    Args:
        directory: The directory.
        options: How is copied there.

    Attributes:
        directory: The directory.
        uri: Its URI, as Flink will call it.
        there: The size of each file that was there, by its path.
        sure: Up to which byte files were verified, as complete copies name them.
    """

    def __init__(self, directory: Directory, options: Copying) -> None:
        self.directory = directory.confined()
        uri = PathMap.parse(options.path_map).there(directory.location)
        self.uri = f"file:{uri}" if uri.startswith("/") else uri
        self.sure: dict[str, int] = {}
        self.there: dict[str, int] = {}
        self._links: list[str] = []
        self._parts: list[str] = []
        for file in self.directory.listed():
            if file.is_link:
                self._links.append(file.path)
            elif file.is_other:
                continue
            elif file.path.endswith(PART):
                self._parts.append(file.path)
            else:
                self.there[file.path] = file.size

    def _remove_left(self, path: str) -> bool:
        """Remove a temporary file of a killed writer; return whether it was one."""
        if self.directory.local or self.directory.is_object_store:
            return self.directory.remove_left_part(path)
        self.directory.delete(path)
        return True

    def _other(self, path: str) -> DeclarationError:
        return DeclarationError(
            f"{path} is there, which is no part of this copy",
            place=self.directory.full(),
            remedy="choose an empty directory, or that of a copy that was interrupted",
        )

    def say_copying(self, within: str, files: set[str], metadata: bytes) -> None:
        """Say which files a copy needs, before it relies on those that are there.

        Args:
            within: The path of the copy.
            files: The paths of its files.
            metadata: Its `_metadata` to be.

        Raises:
            SnapshotError: One of them is being deleted, as nothing named it before.
        """
        self.directory.write(f"{within}{COPYING}", metadata)
        refuse_planned(self.directory, files)
        tops = {path.partition("/")[0] for path in files if "/" in path and path in self.there}
        now = {
            f"{top}/{file.path}".rstrip("/"): file.size
            for top in tops
            for file in self.directory.child(top).listed()
            if not (file.is_link or file.is_other)
        }
        for path in files.intersection(self.there):
            if path in now:
                self.there[path] = now[path]
            elif "/" in path or not self.directory.is_file(path):
                del self.there[path]

    def finish(self, path: str, metadata: bytes) -> None:
        """Write the `_metadata` of a copy: all of it appears at once.

        Raises:
            DeclarationError: Another has written one there meanwhile.
        """
        if self.directory.local or self.directory.is_object_store:
            self.directory.write(path, metadata)
        elif not self.directory.write_new(path, metadata):
            raise self._another(path)

    def note(self, ends: Mapping[str, int]) -> None:
        """Note files as verified, up to these bytes."""
        self.sure.update((path, max(end, self.sure.get(path, 0))) for path, end in ends.items())

    def refuse_another(self, within: str, files: set[str], metadata: bytes) -> bool:
        """Refuse a place where something else is; return whether this copy is complete.

        Temporary files that a killed writer left of this copy's own files are removed.

        Args:
            within: The path of the copy.
            files: The paths of its files.
            metadata: Its `_metadata`.

        Raises:
            DeclarationError: Something else is there, or another copy is being made.
        """
        metadata_path = f"{within}{METADATA_FILE}"
        own = {metadata_path, f"{within}{COPYING}"}
        left = {
            path for path in self._parts if (part := _LEFT.fullmatch(path)) is not None
            and (part[1] in files or part[1] in own)
        }  # fmt: skip
        others = [path for path in self.there if path not in files and path not in own]
        for path in (*others, *self._links, *(path for path in self._parts if path not in left)):
            if path.startswith(within):
                raise self._other(path)
        for path in sorted(left):
            if not self._remove_left(path):
                raise self._other(path)
        self._parts = [path for path in self._parts if path not in left]
        if metadata_path not in self.there:
            return False
        if self.directory.read_listed(metadata_path, self.there[metadata_path]) != metadata:
            raise self._another(metadata_path)
        return True

    def _another(self, path: str) -> DeclarationError:
        return DeclarationError(
            "another snapshot is there",
            place=self.directory.full(path),
            remedy="choose another directory: a snapshot is never written over",
        )

    def complete(self) -> set[str]:
        """Return the names of complete copies here, and note their files as verified.

        Raises:
            SnapshotError: The `_metadata` of a copy can't be read.
        """
        names = {path.partition("/")[0] for path in self.there}
        names = {name for name in names if f"{name}/{METADATA_FILE}" in self.there}
        complete = set(filter(self._is_complete, sorted(names)))
        for name in complete:
            if f"{name}/{COPYING}" in self.there:  # whoever wrote it was killed a moment too soon
                self.directory.delete_files([f"{name}/{COPYING}"])
        return complete

    def _is_complete(self, name: str) -> bool:
        path = f"{name}/{METADATA_FILE}"
        data = self.directory.read_listed(path, self.there[path])
        named: dict[str, int] = {}
        for stream in streams_of(read_metadata(data, self.directory.full(path))):
            if isinstance(stream, RelativeHandle):
                place, end = f"{name}/{stream.path}", stream.size
            elif isinstance(stream, FileHandle | SegmentHandle):
                start = stream.start if isinstance(stream, SegmentHandle) else 0
                place, end = stream.uri.removeprefix(f"{self.uri}/"), start + stream.size
            else:
                continue
            named[place] = max(end, named.get(place, 0))
        self.note(named)
        return all(self.there.get(place, -1) >= end for place, end in named.items())

    def refuse_another_of(self, name: str, source: Directory) -> None:
        """Refuse a complete copy that is of another checkpoint than that of its name.

        Raises:
            DeclarationError: It is another one's.
        """
        path = f"{name}/{METADATA_FILE}"
        own = self.directory.read_listed(path, self.there[path])
        if _without_places(own) != _without_places(source.read(METADATA_FILE)):
            raise self._another(path)


def _without_places(data: bytes) -> CheckpointMetadata:
    """Return the content of a `_metadata` without the URIs that a copy changes."""

    def of_stream(stream: StreamHandle) -> StreamHandle:
        return replace(stream, uri="") if isinstance(stream, FileHandle | SegmentHandle) else stream

    return moved_streams(read_metadata(data), of_stream, lambda _: "")


class _Transfer:
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
        target: _CopyTarget,
        files: list[_CopiedFile],
        *,
        verify: bool,
        progress: Progress | None,
    ) -> None:
        self.kept: list[_CopiedFile] = []
        self._target = target
        self._directory = target.directory
        self._files = files
        self._verify = verify
        self._progress = progress
        self._done = 0
        self._total = sum(map(_size, files))
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, threads: int) -> None:
        """Copy all files.

        Raises:
            SnapshotError: A file can't be read or written, or differs.
        """
        self._directory.create()
        largest_first = sorted(self._files, key=_size, reverse=True)
        with Workers(threads, "statelake-copy") as pool:
            try:
                tasks = [pool.submit(self._bring, file) for file in largest_first]
                done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
                for task in done:
                    task.result()
            except BaseException:
                self._stop.set()
                raise

    def _bring(self, file: _CopiedFile) -> None:
        there = self._target.there.get(file.target, -1)
        if (there >= file.size if file.grows else there == file.size) and self._is_same(file):
            with self._lock:
                self.kept.append(file)
            self._tell(file.size)
            return
        digest = xxhash.xxh3_128()
        self._write(file, self._pieces(file, digest))
        if not self._verify:
            return
        if not file.grows:
            with suppress(MissingFileError):  # it was read to its end before it was deleted
                file.source.refuse_change()
        if self._digest_there(file) != digest.digest():
            self._directory.delete(file.target)
            raise SnapshotError(
                "other bytes are read back than were written",
                place=self._directory.full(file.target),
                remedy="run it again, and check the disk or the store",
            )

    def _write(self, file: _CopiedFile, pieces: Iterator[memoryview]) -> None:
        """Write a file so that it appears whole or not at all.

        A store completes an object that its writer gives up. So a small one is read before it is
        begun, as is one that replaces another; what is left of others is removed.
        """
        target = self._directory
        if target.local:
            target.write_pieces(file.target, pieces)
        else:
            replaces = file.target in self._target.there
            first = list(pieces) if replaces else list(islice(pieces, 1))
            try:
                target.write_pieces(file.target, chain(first, pieces))
            except BaseException:
                if not replaces:
                    with suppress(StateError, OSError):  # otherwise its length tells
                        target.delete(file.target)
                raise
        self._target.there[file.target] = file.size

    def _pieces(self, file: _CopiedFile, digest: Any) -> Iterator[memoryview]:
        for piece in self._read(file.source, anew=not self._directory.local):
            if self._verify:
                digest.update(piece)
            yield piece
            self._tell(len(piece))

    def _is_same(self, file: _CopiedFile) -> bool:
        if not self._verify or self._target.sure.get(file.target, -1) >= file.size:
            return True
        digest = xxhash.xxh3_128()
        for piece in self._read(file.source):
            digest.update(piece)
        return self._digest_there(file) == digest.digest()

    def _digest_there(self, file: _CopiedFile) -> bytes:
        source = self._directory.source(file.target)
        if source.size < file.size:
            return b""
        digest = xxhash.xxh3_128()
        for piece in self._read(replace(source, size=file.size)):
            digest.update(piece)
        return digest.digest()

    def _read(self, source: FileSource, *, anew: bool = False) -> Iterator[memoryview]:
        """Yield the bytes of a file.

        Args:
            source: The file.
            anew: Whether each piece stays when the next is read: a store may still be sending it.
        """
        most = PIECE[source.directory.local]
        piece = np.empty(min(most, source.size), np.uint8)
        for start in range(0, source.size, most):
            if self._stop.is_set():
                raise SnapshotError("stopped, as another file failed", place=source.name)
            piece = np.empty_like(piece) if anew else piece
            wanted = piece[: source.size - start]
            source.read_into(start, wanted)
            yield wanted.data

    def _tell(self, count: int) -> None:
        if self._progress is None:
            return
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)
