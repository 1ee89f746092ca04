"""The bytes of handles, wherever a snapshot's files are now.

A relative handle names a file beside `_metadata`, so a moved savepoint just opens. An absolute
handle names the place where Flink wrote it. If the snapshot was moved, that place is gone (or
worse, belongs to somebody else), so the file is looked up in the snapshot's own directories first:
beside `_metadata`, and for a checkpoint in the `shared/` and `taskowned/` next to its `chk-N/`, in
which merged files have a directory for each subtask, or each task manager (FLIP-306), and ForSt one
for each of its instances, from which checkpoints take tables as they are; and in the `dstl/` there,
in which the changelog backend has its log if both have the same base path. Any other place is
refused unless it was allowed by name: neither a path in a file nor a link beside it is a
permission.

The length of a file's header is not stored. Most files of an operator have the same header, so it
is worked out once for all of them.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from statelake.state_core.bounds import HEAD_BYTES, SHARED_BYTES, Budget
from statelake.state_core.errors import (
    CorruptSnapshotError,
    MissingFileError,
    SnapshotError,
    StateError,
    TruncatedError,
    UnknownSerializerError,
    UnreachableFileError,
    UnsafePathError,
    UnsupportedFormatError,
)
from statelake.state_core.files.compression import IDENTIFIER
from statelake.state_core.files.confinement import relative_path, shortened
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.files.filesystem import (
    ByteSource,
    ConfinedDirectory,
    Directory,
    FileSource,
    InlineSource,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.handles import (
    FileHandle,
    InlineHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
)
from statelake.state_core.printable import without_keys

_Head = TypeVar("_Head")
_Worked = TypeVar("_Worked")
FIRST_BLOCK = 1 << 16


class HeaderCache:
    """The headers of one snapshot's files.

    Attributes:
        budget: The budget for all their declarations.
        flink: The major version of the Flink that wrote them; 0 if it is not known.
    """

    def __init__(self) -> None:
        self.flink = 0
        self.budget = Budget(0)
        self._known: dict[tuple[object, bytes], Any] = {}
        self._followed: dict[int, tuple[object, Any]] = {}

    def read(self, source: ByteSource, end: int, read: Callable[[DataInput], _Head]) -> _Head:
        """Read the header of a file, unless an equal one was read.

        Args:
            source: The file.
            end: The start of its content; it must be exact if a serializer's class is unknown.
            read: Reads the header.

        Raises:
            UnknownSerializerError: A class is unknown, and the end of its payload can't be found.
            SnapshotError: The header can't be read.
        """
        end = min(max(end, 0), source.size, HEAD_BYTES.most)
        block = _first(source, end)
        key = read, hashlib.sha256(block.data).digest()
        if key not in self._known:
            head, size = self._read(source, block, read)
            if size > end:
                return head
            self._known[key] = head
        cached: _Head = self._known[key]
        return cached

    def once(self, head: object, work_out: Callable[[], _Worked]) -> _Worked:
        """Return a result for a header, computed the first time.

        Args:
            head: The header, from `read`.
            work_out: Computes the result; always the same function.
        """
        if id(head) not in self._followed:
            self._followed[id(head)] = (head, work_out())
        worked: _Worked = self._followed[id(head)][1]
        return worked

    def _read(
        self, source: ByteSource, block: DataInput, read: Callable[[DataInput], _Head]
    ) -> tuple[_Head, int]:
        """Read the bytes up to the content, or more if necessary; return header and length."""
        most = min(source.size, HEAD_BYTES.most)
        for size in sorted({min(max(len(block.data), FIRST_BLOCK), most), most}):
            head = block if size == len(block.data) else _first(source, size)
            spent, head.budget = dict(self.budget.spent), self.budget
            try:
                return read(head), head.position
            except UnknownSerializerError:
                from statelake.state_core.serializers.opaque.unknown_classes import (  # noqa: PLC0415
                    read_whole,
                )

                return read_whole(_before_content(block), read), len(block.data)
            except TruncatedError as error:
                if size == HEAD_BYTES.most < source.size:
                    raise HEAD_BYTES.exceeded(source.size, error.place) from error
                if size == most:
                    raise
                self.budget.spent = spent
        raise AssertionError


def _first(source: ByteSource, size: int) -> DataInput:
    block = np.empty(size, np.uint8)
    source.read_into(0, block)
    return DataInput(block.data, source.name)


def _before_content(block: DataInput) -> DataInput:
    """Return the bytes before the content, and before the identifier of a Snappy stream."""
    head = DataInput(block.data, block.source)
    if head.data[-len(IDENTIFIER) :] == IDENTIFIER:
        head.limit -= len(IDENTIFIER)
    return head


if TYPE_CHECKING:
    from statelake.state_core.files.copies import Copies

METADATA_FILE = "_metadata"
COPYING = "_metadata.copying"
"""The name of a `_metadata` to be, of a copy whose files are not all there yet."""
LOOKS_AT_ONCE = 32  # each look-up takes a store some ten milliseconds
CHECKPOINT_DIRECTORY = re.compile(r"chk-\d+")
SHARED_DIRECTORIES = ("shared", "taskowned", "dstl")
TABLE_DIRECTORY = re.compile(r"(.*/shared)/op_[^/]+/db")  # tables of ForSt
MAX_SHARED_DEPTH = 3  # directories: `shared/op_..._attempt_0/db`
# Flink writes paths unescaped (`Path.toString`): `#`, `?` and `%` have no meaning in them
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://([^/]*))?")
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")


class StateFiles:
    """The files of one snapshot.

    Args:
        directory: The directory that holds `_metadata`.
        allow_external: Other directories to which absolute handles and links may lead.
    """

    def __init__(self, directory: Directory, allow_external: tuple[str, ...] = ()) -> None:
        self.directory = directory.confined()
        self.allowed = tuple(Directory(location).confined() for location in allow_external)
        self._named = directory
        self.heads = HeaderCache()
        self._opened: dict[StreamHandle, Any] = {}
        self._seen: dict[str, FileSource] = {}
        self._parts: set[StreamHandle] = set()
        self._extents = _Extents(self.heads.budget)
        self._silent: dict[str, StateError] = {}
        self.metadata_path = self.directory.full(METADATA_FILE)

    def metadata(self) -> bytes:
        """Return the content of the snapshot's `_metadata`.

        Raises:
            MissingFileError: It does not exist.
            UnsafePathError: `_metadata` is a link to a forbidden place.
        """
        source = self._relative(METADATA_FILE)
        self._seen[source.name] = source
        return source.read_all()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Refuse the results of a `with` block if a file has changed since it was opened.

        A file that is gone was read before, or its reader reports it.

        Raises:
            ChangedFileError: A file has changed.
        """
        try:
            yield
        except SnapshotError:
            self._refuse_changes()  # a changed file explains any other error
            raise
        self._refuse_changes()

    def _refuse_changes(self) -> None:
        def refuse(source: FileSource) -> None:
            with suppress(MissingFileError):
                source.refuse_change()

        with Workers(LOOKS_AT_ONCE) as pool:
            list(pool.map(refuse, self._seen.values()))

    def open(
        self,
        handle: StreamHandle,
        *,
        complete: bool = True,
        shared: bool = False,
        part: bool = False,
    ) -> ByteSource:
        """Open the bytes of a handle.

        Args:
            handle: The handle.
            complete: Whether a file that is shorter than its handle's size is refused; if not, the
                source has the existing bytes.
            shared: Whether any number of handles may lead to the same bytes, as those of
                in-flight buffers do.
            part: Whether the file may appear in several handles, each for other key groups.

        Raises:
            MissingFileError: The file does not exist.
            UnsafePathError: The file lies outside the snapshot, and that was not allowed.
            CorruptSnapshotError: The file is shorter than the handle's size, or its name is not
                possible.
            OversizedError: Too many handles lead to the same bytes.
        """
        path = _path_of(handle)
        if _IMPOSSIBLE.search(path):
            raise CorruptSnapshotError(
                f"a state file called {shortened(path)}, which no file can be",
                place=self.metadata_path,
            )
        try:
            source = self._open(handle, complete)
        except StateError:
            raise
        except OSError as error:
            denied = isinstance(error, PermissionError)
            raise (UnreachableFileError if denied else MissingFileError)(
                f"state file {shortened(path)} can't be looked up"
                f" ({os.strerror(error.errno) if error.errno else error})",
                place=self.metadata_path,
                remedy="copy the snapshot whole, to where it may be read",
            ) from error
        if part:
            shared = handle in self._parts
            self._parts.add(handle)
        if not shared:
            self._extents.add(handle, source)
        return source

    def opened_log(
        self, handle: StreamHandle, work_out: Callable[[ByteSource, Copies], _Worked]
    ) -> _Worked:
        """Return a result for a file of a log, which several handles name, computed once.

        Such a handle has the size before compression, so the file's own length is used.

        Args:
            handle: The handle.
            work_out: Computes the result, with room for copies; always the same function.

        Raises:
            SnapshotError: As `open` does.
        """
        if handle not in self._opened:
            source = self.open(handle, complete=False)
            if isinstance(handle, RelativeHandle | FileHandle) and isinstance(source, FileSource):
                source = source.directory.source(source.path)
            self._opened[handle] = work_out(source, self._copies)
        worked: _Worked = self._opened[handle]
        return worked

    @cached_property
    def _copies(self) -> Copies:
        from statelake.state_core.files.copies import Copies  # noqa: PLC0415 - for logs alone

        return Copies()

    def _open(self, handle: StreamHandle, complete: bool) -> ByteSource:
        if isinstance(handle, InlineHandle):
            return InlineSource(f"{self.metadata_path}, inlined state", handle.data)
        if isinstance(handle, RelativeHandle):
            return self._sized(self._relative(handle.path), 0, handle.size, complete)
        if isinstance(handle, FileHandle):
            return self._sized(self._absolute(handle.uri), 0, handle.size, complete)
        if isinstance(handle, SegmentHandle):
            return self._sized(self._absolute(handle.uri), handle.start, handle.size, complete)
        raise UnsupportedFormatError(
            f"state in a {type(handle).__name__}",
            place=self.metadata_path,
            remedy="take a savepoint, which holds its state in plain files",
        )

    def _sized(self, source: FileSource, start: int, size: int, complete: bool) -> FileSource:
        self._seen.setdefault(source.name, source)
        if start + size > source.size and not complete:
            size = max(0, source.size - start)
        if start + size > source.size:
            raise CorruptSnapshotError(
                f"{source.size} bytes, and `_metadata` says {start + size}",
                place=source.name,
                remedy="the file was cut off, or is another snapshot's: fetch it again",
            )
        return replace(source, start=start, size=size)

    def _relative(self, path: str) -> FileSource:
        relative_path(path, what="a state file", place=self.metadata_path, inside="the snapshot")
        return self._found(self.directory, path) or self.directory.source(path)

    def _found(self, directory: ConfinedDirectory, path: str) -> FileSource | None:
        """Return a file if it exists; a link may only lead to an allowed place.

        A store that did not answer once is not asked again: each question may take a minute.
        """
        if directory.uri in self._silent:
            known = self._silent[directory.uri]
            raise type(known)(known.problem, place=directory.full(path), remedy=known.remedy)
        try:
            return directory.source(path)
        except UnreachableFileError as error:
            from statelake.state_core.files.object_stores import is_silent  # noqa: PLC0415 - for stores

            if is_silent(error):
                self._silent[directory.uri] = error
            raise
        except MissingFileError:
            directory.exists(path)  # reports a place that can't be looked up
            return None
        except UnsafePathError:
            return directory.followed(path, self.allowed)

    def _absolute(self, uri: str) -> FileSource:
        scheme = _SCHEME.match(uri)
        scheme_text = scheme[0] if scheme else ""
        path = uri[len(scheme_text) :]
        parent, name = posixpath.split(posixpath.normpath(path))
        if name in ("", ".", ".."):
            raise UnsafePathError(
                f"a state file at {without_keys(uri)!r}, which is no file",
                place=self.metadata_path,
                remedy="this is not how Flink writes: do not trust the file",
            )
        for directory, own in self._own_places(parent, name):
            if source := self._found(directory, own):
                return source
        for directory in self.allowed:
            root, place = f"{directory.root.rstrip('/')}/", place_of(uri, directory)
            if place.startswith(root) and (source := self._found(directory, place[len(root) :])):
                return source
        if self._is_external(uri, path, self._own_places(parent, name)):
            tables = TABLE_DIRECTORY.fullmatch(parent)  # each subtask has one
            parent = tables[1] if tables else parent
            there = (
                parent
                if scheme_text in ("", "file:", "file://")
                else without_keys(f"{scheme_text}{parent}")
            )
            raise UnsafePathError(
                f"a state file at {without_keys(uri)!r}, outside the snapshot",
                place=self.metadata_path,
                remedy=f"if that place is yours, allow it: --allow-external {there}",
            )
        raise MissingFileError(
            f"no state file {name!r} in the snapshot (it was written to {without_keys(uri)!r})",
            place=self.directory.full(),
            remedy="copy the whole checkpoint: chk-N with its `shared` and `taskowned` directories",
        )

    @cached_property
    def _above(self) -> ConfinedDirectory:
        """Return the directory of the checkpoint and its siblings."""
        return self._named.child("..").confined()

    def _own_places(self, parent: str, name: str) -> list[tuple[ConfinedDirectory, str]]:
        """Return the places where a file of a directory may be now, best guess first."""
        parts = parent.split("/")
        checkpoint = CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(self.directory.root))
        places = [(self.directory, name)]
        if CHECKPOINT_DIRECTORY.fullmatch(parts[-1]) and checkpoint:
            places.append((self._above.child(parts[-1]), name))
        depth = shared_depth(parts)
        if not depth:
            return places
        within = "/".join([*parts[len(parts) - depth + 1 :], name])
        shared = self._shared_places(parts[-depth], within)
        return shared if depth == 1 else [*shared, *places]

    def _shared_places(self, shared: str, path: str) -> list[tuple[ConfinedDirectory, str]]:
        """Return the directory next to `chk-N`, and the snapshot's own directory of that name."""
        places = [(self.directory, f"{shared}/{path}")]
        if CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(self.directory.root)):
            return [(self._above.child(shared), path), *places]
        return places

    def _is_external(
        self, uri: str, path: str, looked: list[tuple[ConfinedDirectory, str]]
    ) -> bool:
        """Return whether the file is at the handle's place, outside of the snapshot.

        Args:
            uri: The place.
            path: Its path.
            looked: Where it is not.
        """
        if _SCHEME.match(uri) and not uri.startswith("file:"):
            place = place_of(uri, self.directory)
            return not (self.allowed or place in {within.full(own) for within, own in looked})
        return self.directory.local and os.path.exists(path)


class _Extents:
    """The extent of each file that handles lead to, so that the work is proportional to the bytes.

    Args:
        budget: The budget of declarations, which grows with every byte.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.seen: set[int] = set()
        self.reached: dict[str, int] = {}
        self.led: dict[str, int] = {}

    def add(self, handle: StreamHandle, source: ByteSource) -> None:
        """Count a handle, once.

        Raises:
            OversizedError: Too many handles lead to the same bytes.
        """
        if id(handle) in self.seen:
            return
        if isinstance(source, FileSource):
            before = self.reached.get(source.name, 0)
            reached = max(before, source.start + source.size)
            led = self.led.get(source.name, 0) + source.size
            if led > SHARED_BYTES.most * reached:
                raise SHARED_BYTES.exceeded(-(-led // reached), source.name)
            self.reached[source.name], self.led[source.name] = reached, led
            self.budget.size += reached - before
        else:
            self.budget.size += source.size
        self.seen.add(id(handle))


def shared_depth(parts: list[str]) -> int:
    """Return how many of a path's last parts begin with a shared directory; 0 without one."""
    depths = range(1, min(MAX_SHARED_DEPTH, len(parts)) + 1)
    return next((depth for depth in depths if parts[-depth] in SHARED_DIRECTORIES), 0)


def job_directory(uri: str) -> str:
    """Return the directory of the job that wrote a file: that above `chk-N`, `shared` and the like.

    Args:
        uri: The file, as a handle names it.
    """
    parts = posixpath.dirname(uri).split("/")
    depth = shared_depth(parts) or int(CHECKPOINT_DIRECTORY.fullmatch(parts[-1]) is not None)
    return "/".join(parts[: len(parts) - depth])


def place_of(uri: str, directory: Directory) -> str:
    """Return the path that a handle's URI names in the file system of a directory.

    Access keys in it decide nothing. In an object store the authority is the bucket, which is a
    part of Arrow's path; of Azure it may be `container@account`.

    Returns:
        A path as `Directory.root` is one; empty if the URI belongs to another file system.
    """
    scheme = _SCHEME.match(uri)
    text = scheme[0] if scheme else ""
    path, kind = uri[len(text) :], text.partition(":")[0].lower()
    if directory.local:
        return posixpath.normpath(path) if kind in ("", "file") else ""
    from statelake.state_core.files.object_stores import (  # noqa: PLC0415 - not for local files
        AZURE_SCHEMES,
        HDFS_SCHEMES,
        S3_SCHEMES,
    )

    stores = (S3_SCHEMES, AZURE_SCHEMES, HDFS_SCHEMES)
    if kind not in next((each for each in stores if directory.scheme in each), (directory.scheme,)):
        return ""
    if directory.root.startswith("/"):  # the authority is a server, not a part of the path
        return posixpath.normpath(path)
    before, _, bucket = ((scheme[1] or "") if scheme else "").rpartition("@")
    if directory.scheme in AZURE_SCHEMES:  # without a container there, the path begins with it
        bucket = before.partition(":")[0]
        path = path if bucket else path.lstrip("/")
    return posixpath.normpath(f"{bucket}{path}")


def _path_of(handle: StreamHandle) -> str:
    return str(getattr(handle, "path", getattr(handle, "uri", "")))
