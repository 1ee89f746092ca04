"""The disk of a task's host, for working state and its local checkpoints.

It may be lost at a restart, or be that of another host: only speed depends on it.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from statelake.state_core.errors import MissingFileError
from statelake.state_core.files.confinement import PART, ConfinedTree, relative_path
from statelake.state_core.runtime.commit.records.snapshot_index import FileMetadata
from statelake.state_core.runtime.commit.stores.durable_writing import write_out

# large, as an uploading thread may wait for the interpreter at every chunk
CHUNK = 1 << 22
_NOT_THERE = "it was removed by hand, or by another process: restart the task to restore it"


def join(*parts: str) -> str:
    """Return the path of its parts, which may be data, such as the names in an index.

    Raises:
        UnsafePathError: A part leads out of the directory.
    """
    return relative_path("/".join(parts), what="a file", inside="the stores' directory")


class PosixDisk:
    """A directory of this host: files by relative paths, with `/` as separator.

    Args:
        root: The directory; created by the first write.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._tree = ConfinedTree(str(self.root))

    def path(self, path: str) -> Path:
        """Return the path of a directory for another library, after checking it for links."""
        self._tree.status(join(path))
        return self.root / path

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            MissingFileError: The file does not exist.
        """
        return b"".join(self.chunks(path))

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces.

        Raises:
            MissingFileError: The file does not exist.
        """
        with _known(), os.fdopen(self._tree.open(join(path)), "rb", buffering=0) as file:
            while piece := file.read(CHUNK):
                yield piece

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file durably: after a crash it is complete, or unchanged."""
        self._tree.write(join(path), [data])

    def create(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file piece by piece; a crash may leave part of it."""
        write_out(self._tree.create(join(path)), chunks)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        return [name for name in self._tree.names(join(path)) if not name.endswith(PART)]

    def files(self, path: str) -> list[tuple[str, int]]:
        """Return every file below a directory, sorted, as relative path and size."""
        return [file for file in self._tree.files(join(path)) if not file[0].endswith(PART)]

    def metadata(self, path: str, size: int) -> FileMetadata:
        """Return owner, permissions and times of a file of this size, as in Java."""
        status = self._tree.status(join(path))
        if status is None:
            raise MissingFileError("no such file", place=path, remedy=_NOT_THERE)
        modified = status.st_mtime_ns // 1_000_000
        return FileMetadata(
            modified,
            modified,
            size,
            _name(pwd.getpwuid, status.st_uid),
            _name(grp.getgrgid, status.st_gid),
            stat.filemode(status.st_mode & 0o777)[1:],
        )

    def link_tree(self, source: str, target: str, immutable: Callable[[str], bool]) -> None:
        """Link or copy every file below one directory to another: immutable ones are linked."""
        self._tree.make(join(target))
        for name, _ in self.files(source):
            if immutable(name):
                self.link(join(source, name), join(target, name))
            else:
                self.write(join(target, name), self.read(join(source, name)))

    def link(self, source: str, target: str) -> None:
        """Give a file that never changes a second path."""
        with _known():
            if not self._tree.link(self._tree, join(source), join(target)):
                self.create(target, self.chunks(source))

    def remove(self, path: str) -> None:
        """Remove a file, or a directory and all below, if it exists."""
        status = self._tree.status(join(path))
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._tree.remove_tree(path)
        else:
            self._tree.remove(path)


def _name(find: Callable[[int], tuple[object, ...]], number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError:  # a user of another machine has only a number
        return str(number)


@contextmanager
def _known() -> Iterator[None]:
    """Raise our error for a file that does not exist."""
    try:
        yield
    except MissingFileError as error:
        raise MissingFileError(error.problem, place=error.place, remedy=_NOT_THERE) from error
