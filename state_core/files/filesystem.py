"""The one seam to files: a directory somewhere, local or remote.

Everything that is read or written by name goes through a `Directory`: a path or URI of any file
system that Arrow knows (local, `s3://`, `gs://`), and HDFS. Local files are read with `pread`
straight into the caller's buffer.

Whoever names a directory is trusted; paths from data are not, and go through its `confined()` form,
which no path can leave.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import (
    MissingFileError,
    SnapshotError,
    StateError,
    UnreachableFileError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import (
    Buffer,
    ConfinedTree,
    given_to_arrow,
    relative_path,
    shortened,
)
from statelake.state_core.files.file_sources import (
    ByteSource,
    FileSource,
    InlineSource,
    RemoteFile,
    too_short,
    version_of,
)

# what reading local files does not need is imported when it is used
# ruff: noqa: PLC0415

__all__ = ["ByteSource", "ConfinedDirectory", "Directory", "FileSource", "InlineSource"]


class ListedFile(NamedTuple):
    """A file of a listing.

    Attributes:
        path: Its path below the directory that was listed.
        size: Its size in bytes.
        modified: Its modification time in seconds since 1970; 0 if unknown.
        is_link: Whether it is a symbolic link, which was not followed.
        is_other: Whether it is neither a regular file nor a link: a directory, a pipe.
    """

    path: str
    size: int
    modified: float
    is_link: bool = False
    is_other: bool = False


class Directory:
    """A directory of a file system; paths below it are relative and use `/`.

    Args:
        location: A local path, or a URI such as `s3://bucket/prefix`.
        filesystem: Arrow's file system, or fsspec's, in which `location` is a path.

    Raises:
        SnapshotError: The file system does not exist or can't be reached.
    """

    def __init__(self, location: str | os.PathLike[str], filesystem: Any = None) -> None:
        text = self.given = os.fspath(location)
        self.scheme = self.query = self.credentials = self.host = ""
        self.azure, self.local = False, filesystem is None
        self._is_completed = False  # whether settings add to the location
        if filesystem is not None:
            from pyarrow import fs

            ours = isinstance(filesystem, fs.FileSystem)
            self.filesystem = filesystem if ours else fs.PyFileSystem(fs.FSSpecHandler(filesystem))
            self.local = isinstance(filesystem, fs.LocalFileSystem)
            self.scheme, self.root, authority = self.filesystem.type_name, text, ""
        elif "://" in text or text.startswith("file:"):
            from statelake.state_core.files import object_stores as stores
            from statelake.state_core.files.storage_options import completed, keys_of

            text = completed(text)
            parts = urlsplit(text)
            self.scheme = parts.scheme
            self.credentials, _, authority = parts.netloc.rpartition("@")
            self.azure = self.scheme in stores.AZURE_SCHEMES
            try:
                text = stores.with_region(text)
                self.query = urlsplit(text).query
                self._is_completed = text != self.given
                is_s3 = self.scheme in stores.S3_SCHEMES
                keys = keys_of(self.credentials, self.query).values() if is_s3 else ()
                self.filesystem, self.root = stores.open_file_system(text, keys)
                self.local = self.filesystem.type_name == "local"
            except (OSError, ValueError, pa.ArrowException) as error:
                problem = stores.first_line(error).replace(parts.netloc, authority)
                raise SnapshotError(
                    f"the file system can't be opened: {problem}",
                    place=f"{parts.scheme}://{authority}{parts.path}",
                    remedy="check the URI, its options, and the network",
                ) from error
        else:
            self.root = os.path.abspath(text)
        if self.azure:  # Azure's URIs may have the container before the account
            self.host, self.root = f"{authority}/", self.root.lstrip("/")
            self.credentials = self.credentials if self.credentials.startswith(":") else ""
        elif filesystem is None and self.scheme and self.root.startswith("/"):
            self.host = authority  # otherwise a path begins with the bucket
        self.root = self.root.rstrip("/") or "/"
        # where a directory is only a key's prefix, and creating one would write an extra object
        stores_objects = {"s3", "gcs", "abfs"}
        self.is_object_store = not self.local and self.filesystem.type_name in stores_objects

    @cached_property
    def filesystem(self) -> Any:
        """Arrow's file system: a local one is opened when it is used, which few readers need."""
        from pyarrow import fs

        return fs.LocalFileSystem()

    def __repr__(self) -> str:
        return f"Directory({self.uri!r})"

    @property
    def uri(self) -> str:
        """URI of the directory for other programs: a local path, or a URI without options."""
        if self.azure:
            container, _, path = self.root.partition("/")
            return f"{self.scheme}://{container}@{self.host}{path}"
        return self.root if self.local else f"{self.scheme}://{self.host}{self.root}"

    @property
    def location(self) -> str:
        """Location that opens this directory again, in any process: a secret if it has keys."""
        return self._location(self.credentials, self.query)

    @property
    def given_location(self) -> str:
        """Location without the options that the user's settings add to it."""
        if not self._is_completed:
            return self.location
        given = urlsplit(self.given)
        return self._location(given.netloc.rpartition("@")[0], given.query)

    def _location(self, credentials: str, query: str) -> str:
        if self.local:
            return str(self.root)
        credentials, query = credentials and f"{credentials}@", query and f"?{query}"
        root = re.sub("[%?#]", lambda match: quote(match[0]), self.root)
        return f"{self.scheme}://{credentials}{self.host}{root}{query}"

    def full(self, path: str = "") -> str:
        """Return the whole path of a file in it, for messages and for its file system."""
        return posixpath.join(self.root, path) if path else self.root

    def child(self, path: str) -> Directory:
        """Return a directory below this one, or with `..` above it."""
        child = copy(self)
        child.root = posixpath.normpath(posixpath.join(self.root, path))
        return child

    def confined(self, *, follow_links: bool = False) -> ConfinedDirectory:
        """Return this directory for paths that came from data, which can't leave it.

        Args:
            follow_links: Whether links in it are trusted, as in a user's directory of sources, and
                only paths are data.
        """
        strict = self.local and not follow_links
        return _ConfinedLocalDirectory(self) if strict else ConfinedDirectory(self)

    def checked_path(self, path: str = "") -> str:
        """Return the checked whole path of a file or directory, for another library to open.

        It is checked now, not when the library opens it: whoever can write there may create a link
        in between. Files below a directory are not checked either. So give a library an opened file
        wherever it takes one: `open_input`, `open_output`.
        """
        return self.full(path)

    def _info(self, target: Any) -> Any:
        """Return the file system's information on a path, or on a directory's files."""
        try:
            return self.filesystem.get_file_info(target)
        except OSError as error:
            if self.local:
                raise
            from statelake.state_core.files import object_stores as stores

            place = target if isinstance(target, str) else target.base_dir
            raise UnreachableFileError(
                f"can't be looked up: {stores.first_line(error)}",
                place=f"{self.scheme}://{self.host}{place}",
                remedy=stores.STORE_REMEDY,
            ) from error

    def exists(self, path: str = "") -> bool:
        """Return whether there is a file or directory of that name."""
        return bool(self._info(self.full(path)).type.name != "NotFound")

    def is_file(self, path: str) -> bool:
        """Return whether there is a file of that name."""
        if self.local:
            with suppress(FileNotFoundError, NotADirectoryError):
                return stat.S_ISREG(os.stat(self.full(path)).st_mode)
            return False
        if self.is_object_store:  # asking for a kind would ask a store for a directory, too
            try:
                self.filesystem.open_input_file(self.full(path)).close()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise self.not_read(path, error) from error
            return True
        return bool(self._info(self.full(path)).type.name == "File")

    def is_other(self) -> bool:
        """Return whether a file or a link has the directory's place, on a local disk."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return self.local and not stat.S_ISDIR(os.lstat(self.root).st_mode)
        return False

    def size(self, path: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            MissingFileError: There is no such file.
        """
        info = self._info(self.full(path))
        if info.type.name != "File":
            raise MissingFileError(
                "no such file",
                place=self.full(path),
                remedy="copy the whole directory of the snapshot, not `_metadata` alone",
            )
        return int(info.size)

    def modified(self, path: str) -> float:
        """Return the modification time of a file, in seconds since 1970."""
        return self.modified_and_size(path)[0]

    def modified_and_size(self, path: str) -> tuple[float, int]:
        """Return a file's modification time, in seconds since 1970 (0 if unknown), and its size."""
        info = self._info(self.full(path))
        return float(info.mtime_ns or 0) / 1e9, int(info.size or 0)

    def names(self, path: str = "") -> list[str]:
        """Return the names in a directory, sorted.

        Raises:
            SnapshotError: A file's name is not valid text.
        """
        from pyarrow import fs

        selector = fs.FileSelector(self.full(path), allow_not_found=True)
        infos = self._info(selector)
        try:
            return sorted(info.base_name for info in infos)
        except UnicodeDecodeError as error:
            raise _no_name(self.full(path), error) from error

    def files_below(self, path: str = "") -> list[tuple[str, int]]:
        """Return every file below, as relative path and size, sorted.

        Raises:
            SnapshotError: A file's name is not valid text.
        """
        from pyarrow import fs

        selector = fs.FileSelector(self.full(path), recursive=True, allow_not_found=True)
        infos = self._info(selector)
        prefix = len(self.root) + 1
        try:
            files = [(i.path[prefix:], int(i.size)) for i in infos if i.type == fs.FileType.File]
        except UnicodeDecodeError as error:
            raise _no_name(self.full(path), error) from error
        return sorted(files)

    def listed(self) -> Iterator[ListedFile]:
        """Yield all that is below, however deep, in any order.

        Raises:
            SnapshotError: A file's name is not valid text.
        """
        from pyarrow import fs

        selector = fs.FileSelector(self.full(), recursive=True, allow_not_found=True)
        prefix = len(self.root.rstrip("/")) + 1
        try:
            for info in self._info(selector):
                modified, is_other = float(info.mtime_ns or 0) / 1e9, info.type != fs.FileType.File
                path = info.path[prefix:].rstrip("/")
                yield ListedFile(path, int(info.size or 0), modified, is_other=is_other)
        except UnicodeDecodeError as error:
            raise _no_name(self.full(), error) from error

    def read_listed(self, path: str, size: int) -> bytes:
        """Return the content of a file whose size was listed; a store is asked once.

        Raises:
            MissingFileError: There is no such file.
            SnapshotError: It can't be read.
        """
        if not (self.is_object_store and size):
            return self.read(path)
        from statelake.state_core.files.store_requests import get

        return get(self, path, size)

    def source(self, path: str) -> FileSource:
        """Return a whole file, which must not change meanwhile, as a byte source.

        Raises:
            MissingFileError: There is no such file.
        """
        if self.local:
            return FileSource(self, path, 0, self.size(path), version=version_of(self, path))
        remote = RemoteFile(self.open_input(path), self.full(path), (self, path))
        return FileSource(self, path, 0, remote.size, remote, remote.version)

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            MissingFileError: There is no such file.
        """
        return self.source(path).read_all()

    def read_into(self, path: str, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with a file's bytes from `offset` on.

        Raises:
            MissingFileError: There is no such file.
            TruncatedError: The file ends too soon.
        """
        if not self.local:
            self.source(path).read_into(offset, out)
            return
        try:
            handle = self.descriptor(path)
        except StateError:
            raise
        except PermissionError as error:
            raise UnreachableFileError(
                error.strerror or "it may not be read",
                place=self.full(path),
                remedy="let this user read it",
            ) from error
        except OSError as error:
            problem = error.strerror or "can't be opened"
            raise MissingFileError(problem, place=self.full(path)) from error
        try:
            done = 0
            while done < out.size:
                count = os.preadv(handle, [out.data[done:]], offset + done)
                if count == 0:
                    raise too_short(self.full(path), offset, out.size, done)
                done += count
        finally:
            os.close(handle)

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for Arrow, with random access.

        Raises:
            MissingFileError: There is no such file.
        """
        try:
            return self.filesystem.open_input_file(self.full(path))
        except StateError:
            raise
        except OSError as error:
            raise self.not_read(path, error) from error

    def not_read(self, path: str, error: OSError) -> SnapshotError:
        """Return the error for a file that can't be read; on S3 a missing one is any `OSError`."""
        from statelake.state_core.files import object_stores as stores

        missing = isinstance(error, FileNotFoundError)
        if missing or (stores.may_be_missing(self.filesystem, error) and not self.exists(path)):
            return MissingFileError("no such file", place=self.full(path))
        return stores.not_read(error, self.full(path))

    def create(self) -> None:
        """Create the directory and those above it; in an object store, only the bucket.

        Raises:
            SnapshotError: A store refuses, or can't be reached.
        """
        if not (self.is_object_store and "/" in self.root):
            try:
                self.filesystem.create_dir(self.root, recursive=True)
            except OSError as error:
                if self.local:
                    raise
                raise self._refused("can't be created", "", error) from error

    def open_output(self, path: str) -> pa.NativeFile:
        """Create a file for writing, with its directories.

        Raises:
            SnapshotError: The file can't be written there.
        """
        from statelake.state_core.files import object_stores as stores

        target = self.full(path)
        try:
            if not self.is_object_store:
                self.filesystem.create_dir(posixpath.dirname(target), recursive=True)
            stream = self.filesystem.open_output_stream(target)
        except OSError as error:
            raise stores.not_written(error, target) from error
        return stream if self.local else stores.remote_output(stream, target)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file so that it appears complete or not at all."""
        self.write_pieces(path, [data])

    def write_pieces(self, path: str, pieces: Iterable[Buffer]) -> None:
        """Write a file as `write` does, without holding all of it in memory."""
        target = self.full(path)
        if self.local:
            ConfinedTree(posixpath.dirname(target)).write(posixpath.basename(target), pieces)
            return
        with self.open_output(path) as file:
            for piece in pieces:
                file.write(piece)

    def write_new(self, path: str, data: bytes) -> bool:
        """Write a whole file if its name is free: only one of several writers can.

        Returns:
            Whether it was written; False if the name is taken. If a store's answer was lost, it can
            be False although this writer's file is the one in place.

        Raises:
            SnapshotError: The file can't be written, or the store does not support it.
        """
        target = self.full(path)
        if self.local:
            tree = ConfinedTree(posixpath.dirname(target))
            return tree.write_new(posixpath.basename(target), data)
        if self.is_object_store:
            from statelake.state_core.files.store_requests import put_new

            return put_new(self, path, data)
        handler: Any = getattr(self.filesystem, "handler", None)
        if not hasattr(handler, "write_new"):
            raise SnapshotError(
                "this file system can't refuse the second of two writers",
                place=self.full(path),
                remedy="keep the lake on a disk, in HDFS, S3, Google Cloud Storage or Azure",
            )
        try:
            return bool(handler.write_new(target, data))
        except OSError as error:
            from statelake.state_core.files.object_stores import not_written

            raise not_written(error, target) from error

    def sync_files(self, paths: Iterable[str]) -> None:
        """Sync files to the disk, and the directories between them and this one.

        Only a local disk needs it: other stores make a file durable when it is closed.

        Args:
            paths: All that is to be synced: one call for many files costs little more than for one.

        Raises:
            MissingFileError: A file is not there.
        """
        if self.local:
            ConfinedTree(self.root).sync_files(paths)

    def delete(self, path: str) -> None:
        """Remove a file, if it exists."""
        try:
            self.filesystem.delete_file(self.full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            if self.local:
                raise
            raise self._refused("can't be removed", path, error) from error

    def _refused(self, problem: str, path: str, error: OSError) -> SnapshotError:
        """Return the error for what a store refuses; a disk's own error says more than ours."""
        from statelake.state_core.files import object_stores as stores

        problem = f"{problem}: {stores.first_line(error)}"
        return SnapshotError(problem, place=self.full(path), remedy=stores.STORE_REMEDY)

    def delete_files(self, paths: Sequence[str]) -> None:
        """Remove files, those that exist: an object store is asked once for up to 1,000."""
        if self.is_object_store:
            from statelake.state_core.files.store_requests import delete_all

            delete_all(self, paths)
            return
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str = "") -> None:
        """Remove a directory and all below it, if it exists.

        Raises:
            SnapshotError: A store refuses, or can't be reached.
        """
        if not self.exists(path):
            return
        try:
            self.filesystem.delete_dir(self.full(path))
        except OSError as error:
            if self.local:
                raise
            raise self._refused("can't be removed", path, error) from error

    def descriptor(self, path: str) -> int:
        """Open a local file for reading and return its descriptor; the caller closes it."""
        return os.open(self.full(path), os.O_RDONLY)


class ConfinedDirectory(Directory):
    """A directory, or one below it, whose paths come from data: `relative_path` holds for each.

    In an object store, whose keys can't be links, and where links are trusted, nothing else is
    needed. Otherwise no link is followed below the directory that was confined first, whose `child`
    returns others; and only regular files are read, replaced and removed. Every method that takes a
    path raises `UnsafePathError` for one that leads elsewhere.

    Args:
        directory: The directory; its own path may have links.
    """

    def __init__(self, directory: Directory) -> None:
        vars(self).update(vars(directory))

    def __copy__(self) -> ConfinedDirectory:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes as a description from which it is opened, just as confined."""
        return (_confined, (self.location, "", self.local))

    def confined(self, *, follow_links: bool = False) -> ConfinedDirectory:
        """Return itself: a confined directory stays confined."""
        return self

    def full(self, path: str = "") -> str:
        """Return the whole path of a file in it, for messages and for its file system."""
        return super().full(path and self._checked(path))

    def child(self, path: str) -> ConfinedDirectory:
        """Return a directory below this one."""
        child = copy(self)
        child.root = posixpath.join(self.root, self._checked(path))
        return child

    def checked_location(self, path: str) -> str:
        """Return the checked `given_location` of a directory below this one."""
        self.checked_path(path)
        return self.child(path).given_location

    def folder(self, path: str, *, create: bool = False) -> int | None:
        """Open a directory without following links; return its descriptor, None in an object store.

        Args:
            path: The directory's path.
            create: Whether to create it, and those above it.

        Raises:
            MissingFileError: The directory does not exist.
        """
        return None

    def refuse_links(self, path: str = "") -> None:
        """Refuse a directory with links, before a library opens its files by their paths.

        As with `checked_path`, whoever can write there may create a link afterwards.

        Raises:
            UnsafePathError: There is a link.
        """

    def followed(self, path: str, others: Iterable[ConfinedDirectory] = ()) -> FileSource:
        """Return a file as a byte source; links may stay here or lead into one of the others.

        Raises:
            MissingFileError: There is no such file.
            UnsafePathError: A link leads elsewhere.
        """
        return self.source(path)

    def link(self, other: Directory, path: str, new: str) -> bool:
        """Create a hard link to a file of another directory; return whether it was possible."""
        return False

    def hold(self, path: str, data: bytes) -> int | None:
        """Write a new file that is held while this process lives, if its name is free.

        Returns:
            On a local disk, a descriptor to close when the hold ends; elsewhere -1, as it is not
            known there whether the writer is alive; None if the name is taken.
        """
        return -1 if self.write_new(path, data) else None

    def remove_left_part(self, path: str) -> bool:
        """Remove a temporary file of a dead writer; return whether it was one."""
        self._checked(path)
        return False

    def set_modified(self, path: str, seconds: float) -> None:
        """Set the modification time of a file, on a local disk; others keep their own."""

    def resize(self, path: str, size: int) -> None:
        """Truncate or extend a file, on a local disk."""
        raise NotImplementedError(f"files of {self.scheme} can't be written into")

    def move_into(self, path: str, target: str, at: int, start: int, end: int) -> None:
        """Move bytes of a file to a position in another file, on a local disk; leave it empty."""
        raise NotImplementedError(f"files of {self.scheme} can't be written into")

    def sync_files(self, paths: Iterable[str]) -> None:
        """Sync files as any directory does, after checking their paths."""
        super().sync_files([path and self._checked(path) for path in paths])

    def _checked(self, path: str) -> str:
        return relative_path(path, what="a file", place=self.root)


class _ConfinedLocalDirectory(ConfinedDirectory):
    def __init__(self, directory: Directory) -> None:
        super().__init__(directory)
        self.tree = ConfinedTree(self.root)
        self._start = ""  # path of this directory below the first one

    def __reduce__(self) -> tuple[object, ...]:
        return (_confined, (self.tree.anchor, self._start, False))

    def child(self, path: str) -> ConfinedDirectory:
        child = super().child(path)
        vars(child)["_start"] = self.below(path)
        return child

    def checked_path(self, path: str = "") -> str:
        self.tree.status(self.below(path))
        return self.full(path)

    def folder(self, path: str, *, create: bool = False) -> int | None:
        return self.tree.folder(self.below(path), create=create)

    def refuse_links(self, path: str = "") -> None:
        self.tree.refuse_links(self.below(path))

    def exists(self, path: str = "") -> bool:
        return self.tree.status(self.below(path)) is not None

    def is_file(self, path: str) -> bool:
        return self.tree.size(self.below(path)) is not None

    def size(self, path: str) -> int:
        size = self.tree.size(self.below(path))
        if size is None:
            raise MissingFileError("no such file", place=self.full(path))
        return size

    def modified_and_size(self, path: str) -> tuple[float, int]:
        status = self.tree.status(self.below(path))
        return (0.0, 0) if status is None else (status.st_mtime_ns / 1e9, status.st_size)

    def names(self, path: str = "") -> list[str]:
        return self.tree.names(self.below(path))

    def files_below(self, path: str = "") -> list[tuple[str, int]]:
        """Return every regular file below, as relative path and size, sorted, without links."""
        start = f"{path}/" if path else ""
        return [(start + name, size) for name, size in self.tree.files(self.below(path))]

    def listed(self) -> Iterator[ListedFile]:
        for name, status in self.tree.entries(self._start):
            is_link = stat.S_ISLNK(status.st_mode)
            is_other = not (is_link or stat.S_ISREG(status.st_mode))
            yield ListedFile(name, status.st_size, status.st_mtime_ns / 1e9, is_link, is_other)

    def open_input(self, path: str) -> pa.NativeFile:
        return given_to_arrow(self.descriptor(path), "rb")

    def create(self) -> None:
        self.tree.make(self._start)

    def open_output(self, path: str) -> pa.NativeFile:
        return given_to_arrow(self.tree.create(self.below(path)), "wb")

    def hold(self, path: str, data: bytes) -> int | None:
        return self.tree.hold(self.below(path), data)

    def remove_left_part(self, path: str) -> bool:
        return self.tree.remove_left_part(self.below(path))

    def set_modified(self, path: str, seconds: float) -> None:
        self.tree.set_modified(self.below(path), seconds)

    def resize(self, path: str, size: int) -> None:
        self.tree.resize(self.below(path), size)

    def move_into(self, path: str, target: str, at: int, start: int, end: int) -> None:
        self.tree.move_into(self.below(path), self.below(target), at, start=start, end=end)

    def write_pieces(self, path: str, pieces: Iterable[Buffer]) -> None:
        self.tree.write(self.below(path), pieces)

    def write_new(self, path: str, data: bytes) -> bool:
        return self.tree.write_new(self.below(path), data)

    def sync_files(self, paths: Iterable[str]) -> None:
        self.tree.sync_files(map(self.below, paths))

    def delete(self, path: str) -> None:
        self.tree.remove(self.below(path))

    def delete_tree(self, path: str = "") -> None:
        """Remove a directory and all files below it, if it exists.

        Raises:
            UnsafePathError: Something else is below, such as a link; nothing is removed.
        """
        self.tree.remove_tree(self.below(path))

    def followed(self, path: str, others: Iterable[ConfinedDirectory] = ()) -> FileSource:
        try:
            real = os.path.realpath(self.full(path))
        except OSError as error:  # a link that was replaced while it was followed
            raise UnsafePathError(
                f"{shortened(path)} is changed while it is read", place=self.root
            ) from error
        here = posixpath.join(os.path.realpath(self.tree.anchor), self._start)
        others = [other for other in others if other.local]
        roots = [here.rstrip("/"), *(os.path.realpath(other.root) for other in others)]
        for directory, root in zip((self, *others), roots, strict=True):
            if real.startswith(f"{root}/"):
                return directory.source(real[len(root) + 1 :])
        raise UnsafePathError(
            f"{shortened(path)} is a link that leads to {real}, outside",
            place=self.root,
            remedy="replace the link by the file",
        )

    def link(self, other: Directory, path: str, new: str) -> bool:
        if not isinstance(other, _ConfinedLocalDirectory):
            return False
        return self.tree.link(other.tree, other.below(path), self.below(new))

    def below(self, path: str) -> str:
        """Return a path relative to the directory that was confined first."""
        if not path:
            return self._start
        self._checked(path)
        return f"{self._start}/{path}" if self._start else path

    def descriptor(self, path: str) -> int:
        full_path = f"{self._start}/{path}" if self._start else path
        return self.tree.open(full_path if self.tree.knows(full_path) else self.below(path))


def _confined(location: str, below: str, follow_links: bool) -> ConfinedDirectory:
    confined = Directory(location).confined(follow_links=follow_links)
    return confined.child(below) if below else confined


def _no_name(place: str, error: UnicodeDecodeError) -> SnapshotError:
    return SnapshotError(
        f"a file whose name {error.object!r} is no UTF-8", place=place, remedy="rename the file"
    )
