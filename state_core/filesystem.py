"""The one seam to files: a directory somewhere, local or remote.

Everything that is read or written by name goes through a `Directory`: a path or URI of any file
system that Arrow knows (local, `s3://`, `gs://`, `hdfs://`). Local files are read with `pread`
straight into the caller's buffer.
"""

from __future__ import annotations

import os
import posixpath
from copy import copy
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from state_core.errors import MissingFileError, SnapshotError, TruncatedError

__all__ = ["ByteSource", "Directory", "FileSource", "InlineSource"]


class ByteSource(Protocol):
    """Bytes that can be read from anywhere in them, from several threads at once."""

    @property
    def name(self) -> str:
        """What it is, for messages."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with the bytes from `offset` on.

        Raises:
            TruncatedError: There are not as many.
        """


@dataclass(frozen=True)
class InlineSource:
    """Bytes in memory."""

    name: str
    data: bytes

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return len(self.data)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Copy from memory."""
        found = np.frombuffer(self.data, np.uint8)[offset : offset + out.size]
        if found.size < out.size:
            raise _too_short(self.name, offset, out.size, found.size)
        out[:] = found


@dataclass(frozen=True)
class FileSource:
    """A file, or `size` bytes from `start` on of one."""

    directory: Directory
    path: str
    start: int
    size: int

    @property
    def name(self) -> str:
        """The file's path."""
        return self.directory.full(self.path)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Read from the file."""
        if offset + out.size > self.size:
            raise _too_short(self.name, offset, out.size, max(0, self.size - offset))
        self.directory.read_into(self.path, self.start + offset, out)


class Directory:
    """A directory of a file system; paths below it are relative and use `/`.

    Args:
        location: A local path, or a URI such as `s3://bucket/prefix`.

    Raises:
        SnapshotError: There is no such file system, or it can't be reached.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        text = os.fspath(location)
        self.scheme = self.query = self.credentials = self.host = ""
        if "://" in text or text.startswith("file:"):
            parts = urlsplit(text)
            self.scheme, self.query = parts.scheme, parts.query
            self.credentials, _, authority = parts.netloc.rpartition("@")
            try:
                self.filesystem, self.root = fs.FileSystem.from_uri(text)
            except (OSError, pa.ArrowException) as error:
                problem = str(error).replace(parts.netloc, authority)  # Arrow shows the URI
                raise SnapshotError(
                    f"the file system can't be opened: {problem}",
                    place=f"{parts.scheme}://{authority}{parts.path}",
                    remedy="check the URI, its options, and the network",
                ) from error
        else:
            self.filesystem, self.root = fs.LocalFileSystem(), os.path.abspath(text)
        if self.scheme and self.root.startswith("/"):  # elsewhere a path begins with the bucket
            self.host = authority
        self.root = self.root.rstrip("/") or "/"
        self.local = isinstance(self.filesystem, fs.LocalFileSystem)

    def __repr__(self) -> str:
        return f"Directory({self.uri!r})"

    @property
    def uri(self) -> str:
        """The directory as other programs know it: a local path, or a URI without options."""
        return self.root if self.local else f"{self.scheme}://{self.host}{self.root}"

    @property
    def location(self) -> str:
        """What makes this directory again: its URI with options, and with credentials if it has."""
        if self.local:
            return str(self.root)
        credentials = f"{self.credentials}@" if self.credentials else ""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{credentials}{self.host}{self.root}{query}"

    def full(self, path: str = "") -> str:
        """The whole path of a file in it, for messages and for its file system."""
        return posixpath.join(self.root, path) if path else self.root

    def child(self, path: str) -> Directory:
        """A directory below this one, or with `..` above it."""
        made = copy(self)
        made.root = posixpath.normpath(posixpath.join(self.root, path))
        return made

    def exists(self, path: str = "") -> bool:
        """Whether there is a file or directory of that name."""
        return bool(self.filesystem.get_file_info(self.full(path)).type != fs.FileType.NotFound)

    def is_file(self, path: str) -> bool:
        """Whether there is a file of that name."""
        return bool(self.filesystem.get_file_info(self.full(path)).type == fs.FileType.File)

    def size(self, path: str) -> int:
        """A file's bytes.

        Raises:
            MissingFileError: There is no such file.
        """
        info = self.filesystem.get_file_info(self.full(path))
        if info.type != fs.FileType.File:
            raise MissingFileError(
                "no such file",
                place=self.full(path),
                remedy="copy the whole directory of the snapshot, not `_metadata` alone",
            )
        return int(info.size)

    def modified(self, path: str) -> float:
        """When a file was last written, in seconds since 1970."""
        return float(self.filesystem.get_file_info(self.full(path)).mtime_ns or 0) / 1e9

    def names(self, path: str = "") -> list[str]:
        """The names in a directory, sorted.

        Raises:
            SnapshotError: A file there has a name that is no text.
        """
        selector = fs.FileSelector(self.full(path), allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        try:
            return sorted(info.base_name for info in infos)
        except UnicodeDecodeError as error:
            raise _no_name(self.full(path), error) from error

    def files_below(self, path: str = "") -> list[tuple[str, int]]:
        """Every file below, as relative path and bytes, sorted.

        Raises:
            SnapshotError: A file has a name that is no text.
        """
        selector = fs.FileSelector(self.full(path), recursive=True, allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        prefix = len(self.root) + 1
        try:
            found = [(i.path[prefix:], int(i.size)) for i in infos if i.type == fs.FileType.File]
        except UnicodeDecodeError as error:
            raise _no_name(self.full(path), error) from error
        return sorted(found)

    def source(self, path: str) -> FileSource:
        """A whole file as a byte source."""
        return FileSource(self, path, 0, self.size(path))

    def read(self, path: str) -> bytes:
        """A whole file.

        Raises:
            MissingFileError: There is no such file.
        """
        out = np.empty(self.size(path), np.uint8)
        self.read_into(path, 0, out)
        return out.tobytes()

    def read_into(self, path: str, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Fill `out` with a file's bytes from `offset` on.

        Raises:
            MissingFileError: There is no such file.
            TruncatedError: It ends too soon.
        """
        if not self.local:
            try:
                with self.filesystem.open_input_file(self.full(path)) as file:
                    data = file.read_at(out.size, offset)
            except OSError as error:
                if isinstance(error, FileNotFoundError) or not self.is_file(path):
                    raise MissingFileError(str(error), place=self.full(path)) from error
                raise SnapshotError(f"can't be read: {error}", place=self.full(path)) from error
            if len(data) < out.size:
                raise _too_short(self.full(path), offset, out.size, len(data))
            out[:] = np.frombuffer(data, np.uint8)
            return
        try:
            handle = os.open(self.full(path), os.O_RDONLY)
        except OSError as error:
            problem = error.strerror or "can't be opened"
            raise MissingFileError(problem, place=self.full(path)) from error
        try:
            done = 0
            while done < out.size:
                count = os.preadv(handle, [out.data[done:]], offset + done)
                if count == 0:
                    raise _too_short(self.full(path), offset, out.size, done)
                done += count
        finally:
            os.close(handle)

    def create(self) -> None:
        """Make the directory and those above it."""
        self.filesystem.create_dir(self.root, recursive=True)

    def open_output(self, path: str) -> pa.NativeFile:
        """A new file to write to, its directories made.

        Raises:
            SnapshotError: It can't be written there.
        """
        target = self.full(path)
        try:
            self.filesystem.create_dir(posixpath.dirname(target), recursive=True)
            return self.filesystem.open_output_stream(target)
        except OSError as error:
            raise _not_written(error, target) from error

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file so that it appears complete or not at all."""
        target = self.full(path)
        if not self.local:
            file = self.open_output(path)
            try:
                file.write(data)
                file.close()
            except OSError as error:
                raise _not_written(error, target) from error
            return
        temporary = f"{target}.{os.getpid()}.part"
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError as error:
            raise _not_written(error, target) from error

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""
        try:
            self.filesystem.delete_file(self.full(path))
        except FileNotFoundError:
            return

    def delete_tree(self, path: str = "") -> None:
        """Remove a directory and all below it; nothing happens if there is none."""
        if self.exists(path):
            self.filesystem.delete_dir(self.full(path))


def _not_written(error: OSError, target: str) -> SnapshotError:
    return SnapshotError(
        f"can't be written: {error}", place=target, remedy="check permissions and space"
    )


def _no_name(place: str, error: UnicodeDecodeError) -> SnapshotError:
    return SnapshotError(
        f"a file whose name {error.object!r} is no UTF-8", place=place, remedy="rename the file"
    )


def _too_short(name: str, offset: int, wanted: int, found: int) -> TruncatedError:
    return TruncatedError(
        f"{wanted} bytes wanted, {found} there",
        place=f"{name}, offset {offset}",
        remedy="the file was cut off: fetch it again",
    )
