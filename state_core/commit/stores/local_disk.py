"""The disk of the host that a task runs on, for working state and its local checkpoints.

It may be lost at a restart, or be another host's: only speed depends on it. `MemoryDisk` does the
same without files, for tests that kill a host ten thousand times.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from state_core.commit.stores.durable_writing import write_file
from state_core.errors import MissingFileError, UnsafePathError

__all__ = ["CHUNK", "FileAttributes", "LocalDisk", "MemoryDisk", "PosixDisk", "join"]

# a thread that uploads may wait for the interpreter at every chunk, so these are large
CHUNK = 1 << 22
_NOT_THERE = "it was removed by hand, or by another process: restart the task to restore it"


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """The attributes of a file.

    Attributes:
        created: The time of creation, in milliseconds since 1970.
        modified: The time of the last change, in milliseconds since 1970.
        owner: The owner, never empty.
        group: The group, never empty.
        permissions: The permissions in the form of `ls`: `rw-r--r--`.
    """

    created: int = 0
    modified: int = 0
    owner: str = "samza"
    group: str = "samza"
    permissions: str = "rw-r--r--"


class LocalDisk(Protocol):
    """Files by relative paths, with `/` as separator."""

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            MissingFileError: It does not exist.
        """

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces.

        Raises:
            MissingFileError: It does not exist.
        """

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file durably: after a crash it is there completely, or as it was before."""

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file piece by piece; a crash may leave part of it."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if it does not exist."""

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return every file below a directory, sorted: its relative path, and its size."""

    def attributes(self, path: str) -> FileAttributes:
        """Return owner, permissions and times of a file."""

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Link or copy every file below one directory to another: link those that never change."""

    def link(self, source: str, target: str) -> None:
        """Give a file that never changes a second path."""

    def rename(self, source: str, target: str) -> None:
        """Move a directory atomically to a path that does not exist."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory and all below; nothing happens if there is none."""


def join(*parts: str) -> str:
    """Return a path of its parts.

    Raises:
        UnsafePathError: A part leads out of the directory.
    """
    for part in "/".join(parts).split("/"):
        if part in {"", ".", ".."} or "\0" in part or "\\" in part:
            raise UnsafePathError(
                f"{'/'.join(parts)!r} is no path below the stores' directory",
                remedy="names of files in an index are data: this one was not written by a store",
            )
    return "/".join(parts)


class PosixDisk:
    """A directory of this host.

    Args:
        root: The directory; created by the first write.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def path(self, path: str) -> Path:
        """Return the real path of a file."""
        return self.root / join(path)

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        try:
            return self.path(path).read_bytes()
        except OSError as error:
            raise _missing(str(self.path(path)), error) from error

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        try:
            with self.path(path).open("rb", buffering=0) as file:
                while piece := file.read(CHUNK):
                    yield piece
        except OSError as error:
            raise _missing(str(self.path(path)), error) from error

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file durably."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        write_file(part, [data])
        part.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file piece by piece."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, chunks)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""
        try:
            names = [one.name for one in self.path(path).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(one for one in names if not one.endswith(".part"))

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return every file below a directory."""
        base = self.path(path)
        paths = [one for one in base.rglob("*") if one.is_file() and one.suffix != ".part"]
        return sorted((one.relative_to(base).as_posix(), one.stat().st_size) for one in paths)

    def attributes(self, path: str) -> FileAttributes:
        """Return owner, permissions and times of a file, as Java has them."""
        status = self.path(path).stat()
        modified = status.st_mtime_ns // 1_000_000
        return FileAttributes(
            modified,
            modified,
            _name(pwd.getpwuid, status.st_uid),
            _name(grp.getgrgid, status.st_gid),
            stat.filemode(status.st_mode & 0o777)[1:],
        )

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Link or copy every file below one directory to another."""
        self.path(target).mkdir(parents=True, exist_ok=True)
        for name, _ in self.files(source):
            if immutable(name):
                self.link(join(source, name), join(target, name))
            else:
                self.write(join(target, name), self.read(join(source, name)))

    def link(self, source: str, target: str) -> None:
        """Give a file a second path."""
        new = self.path(target)
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.hardlink_to(self.path(source))
        except FileNotFoundError as error:
            raise _missing(str(self.path(source)), error) from error

    def rename(self, source: str, target: str) -> None:
        """Move a directory."""
        self.path(target).parent.mkdir(parents=True, exist_ok=True)
        self.path(source).rename(self.path(target))

    def remove(self, path: str) -> None:
        """Remove a file or a directory."""
        target = self.path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)


class MemoryDisk:
    """A disk in memory: bytes by their paths."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        try:
            return self.contents[join(path)]
        except KeyError as error:
            raise _missing(path, error) from error

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in one piece."""
        yield self.read(path)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        self.contents[join(path)] = data

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file."""
        self.contents[join(path)] = b"".join(chunks)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""
        return sorted({name.split("/")[0] for name, _ in self.files(path)})

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return every file below a directory."""
        start = join(path) + "/"
        sizes = ((name, len(data)) for name, data in self.contents.items())
        return sorted((name[len(start) :], size) for name, size in sizes if name.startswith(start))

    def attributes(self, path: str) -> FileAttributes:
        """Return the same attributes for every file."""
        return FileAttributes()

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Link or copy every file below one directory to another."""
        for name, _ in self.files(source):
            self.link(join(source, name), join(target, name))

    def link(self, source: str, target: str) -> None:
        """Give a file a second path: bytes never change here."""
        self.contents[join(target)] = self.read(source)

    def rename(self, source: str, target: str) -> None:
        """Move a directory."""
        for name, _ in self.files(source):
            self.contents[join(target, name)] = self.contents.pop(join(source, name))

    def remove(self, path: str) -> None:
        """Remove a file or a directory."""
        for name, _ in self.files(path):
            del self.contents[join(path, name)]
        self.contents.pop(path, None)


def _name(find: Callable[[int], tuple[object, ...]], number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError:  # a user of another machine has a number alone
        return str(number)


def _missing(path: str, error: Exception) -> MissingFileError:
    problem = getattr(error, "strerror", None) or "no such file"
    return MissingFileError(problem, place=path, remedy=_NOT_THERE)
