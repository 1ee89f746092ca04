"""The disk of the host that a task runs on: where working state and its local checkpoints lie.

It may be gone after a restart, or be another host's: nothing depends on it but speed. `MemoryDisk`
says the same without a file, for tests that kill a host ten thousand times.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from state_core.commit.durable_writing import write_out
from state_core.confinement import PART, ConfinedTree, relative_path
from state_core.errors import MissingFileError

__all__ = ["CHUNK", "FileAttributes", "LocalDisk", "MemoryDisk", "PosixDisk", "join"]

# a thread that uploads may wait for the interpreter at every chunk, so these are large
CHUNK = 1 << 22
_NOT_THERE = "it was removed by hand, or by another process: restart the task to restore it"


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """What a disk says of a file.

    Attributes:
        created: In milliseconds since 1970.
        modified: In milliseconds since 1970.
        owner: Never empty.
        group: Never empty.
        permissions: As `ls` has them: `rw-r--r--`.
    """

    created: int = 0
    modified: int = 0
    owner: str = "samza"
    group: str = "samza"
    permissions: str = "rw-r--r--"


class LocalDisk(Protocol):
    """Files by relative paths with `/` between."""

    def read(self, path: str) -> bytes:
        """A whole file.

        Raises:
            MissingFileError: There is none.
        """

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file piece by piece.

        Raises:
            MissingFileError: There is none.
        """

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file for good: after a crash it is there whole, or as it was before."""

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file piece by piece; a crash may leave part of it."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if it is not there."""

    def files(self, path: str) -> list[tuple[str, int]]:
        """Every file below a directory: its path from there, and its bytes; sorted."""

    def attributes(self, path: str) -> FileAttributes:
        """Owner, permissions and times of a file."""

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Put every file below one directory into another: linked if it never changes."""

    def link(self, source: str, target: str) -> None:
        """Give a file that never changes a second path."""

    def rename(self, source: str, target: str) -> None:
        """Move a directory to where nothing is, at once."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory and all below; nothing happens if there is none."""


def join(*parts: str) -> str:
    """A path of its parts, which may be data: names of stores, tasks and files in an index.

    Raises:
        UnsafePathError: A part leads elsewhere.
    """
    return relative_path("/".join(parts), what="a file", inside="the stores' directory")


class PosixDisk:
    """A directory of this host.

    Args:
        root: Where; made when it is first written to.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._tree = ConfinedTree(str(self.root))

    def path(self, path: str) -> Path:
        """Where a directory is, for a library that needs a real one; no link is on the way now."""
        self._tree.status(join(path))
        return self.root / path

    def read(self, path: str) -> bytes:
        """A whole file."""
        return b"".join(self.chunks(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file piece by piece."""
        with _known(), os.fdopen(self._tree.open(join(path)), "rb", buffering=0) as file:
            while piece := file.read(CHUNK):
                yield piece

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file for good."""
        self._tree.write(join(path), [data], for_good=True)

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file piece by piece."""
        write_out(self._tree.create(join(path)), chunks)

    def names(self, path: str) -> list[str]:
        """The names in a directory."""
        return [one for one in self._tree.names(join(path)) if not one.endswith(PART)]

    def files(self, path: str) -> list[tuple[str, int]]:
        """Every file below a directory."""
        return [one for one in self._tree.files(join(path)) if not one[0].endswith(PART)]

    def attributes(self, path: str) -> FileAttributes:
        """Owner, permissions and times of a file, as Java has them."""
        found = self._tree.status(join(path))
        if found is None:
            raise MissingFileError("no such file", place=path, remedy=_NOT_THERE)
        modified = found.st_mtime_ns // 1_000_000
        return FileAttributes(
            modified,
            modified,
            _name(pwd.getpwuid, found.st_uid),
            _name(grp.getgrgid, found.st_gid),
            stat.filemode(found.st_mode & 0o777)[1:],
        )

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Put every file below one directory into another."""
        self._tree.make(join(target))
        for name, _ in self.files(source):
            if immutable(name):
                self.link(join(source, name), join(target, name))
            else:
                self.write(join(target, name), self.read(join(source, name)))

    def link(self, source: str, target: str) -> None:
        """Give a file a second path."""
        with _known():
            if not self._tree.link(self._tree, join(source), join(target)):
                self.create(target, self.chunks(source))

    def rename(self, source: str, target: str) -> None:
        """Move a directory."""
        self._tree.rename(join(source), join(target))

    def remove(self, path: str) -> None:
        """Remove what is there."""
        found = self._tree.status(join(path))
        if found is not None and stat.S_ISDIR(found.st_mode):
            self._tree.remove_tree(path)
        else:
            self._tree.remove(path)


class MemoryDisk:
    """A disk of no host: bytes by their paths."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        """A whole file."""
        try:
            return self.contents[join(path)]
        except KeyError as error:
            raise MissingFileError("no such file", place=path, remedy=_NOT_THERE) from error

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file in one piece."""
        yield self.read(path)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file."""
        self.contents[join(path)] = data

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file."""
        self.contents[join(path)] = b"".join(chunks)

    def names(self, path: str) -> list[str]:
        """The names in a directory."""
        return sorted({name.split("/")[0] for name, _ in self.files(path)})

    def files(self, path: str) -> list[tuple[str, int]]:
        """Every file below a directory."""
        start = join(path) + "/"
        found = ((name, len(data)) for name, data in self.contents.items())
        return sorted((name[len(start) :], size) for name, size in found if name.startswith(start))

    def attributes(self, path: str) -> FileAttributes:
        """The same for every file."""
        return FileAttributes()

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Put every file below one directory into another."""
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
        """Remove what is there."""
        for name, _ in self.files(path):
            del self.contents[join(path, name)]
        self.contents.pop(path, None)


def _name(find: Callable[[int], tuple[object, ...]], number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError:  # a user of another machine has a number alone
        return str(number)


@contextmanager
def _known() -> Iterator[None]:
    """A file that is not there was there once."""
    try:
        yield
    except MissingFileError as error:
        raise MissingFileError(error.problem, place=error.place, remedy=_NOT_THERE) from error
