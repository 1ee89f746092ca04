"""The one resolver of paths from data: nothing outside a directory is touched.

Anybody can write a snapshot, a lake or an index of blobs. A path in it is checked by one rule
(`relative_path`), and on a local file system followed by `ConfinedTree`, directory by
directory and never through a symbolic link: a link that is put there between the check and the use
is not followed either, as what is used is the directory that was opened.

A hard link to a file elsewhere can't be told from any other file. So an existing file is never
overwritten in place: it is replaced.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeAlias

import pyarrow as pa

from statelake.state_core.errors import (
    MissingFileError,
    SnapshotError,
    StateError,
    UnreachableFileError,
    UnsafePathError,
)
from statelake.state_core.files.file_sources import too_short

Buffer: TypeAlias = "bytes | memoryview"
PART = ".part"
"""The end of a file's temporary name, used until the file is complete."""

LONGEST_SHOWN = 120
"""The number of characters of a path in a message."""

_PART_NAME = re.compile(rf".+\.[0-9a-f]{{1,8}}\{PART}")
_NAME = r"(?!\.\.?(?:/|\Z))[^/\\\x00-\x1f\x7f\ud800-\udfff]+"
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:"
_RELATIVE = re.compile(rf"(?!{_URI}){_NAME}(?:/{_NAME})*")
# escapes (`%2e`) and `~` are ordinary letters: nothing interprets them
_REASONS = (
    (r"\A\Z", "it is empty"),
    (r"[\x00-\x1f\x7f\ud800-\udfff]", "no name has such characters"),
    (r"\A/", "it is absolute"),
    (rf"\A{_URI}", "it is a URI"),
    (r"\\", "it has a backslash"),
    (r"(?:\A|/)\.\.(?:/|\Z)", "it leads above"),
    (r"(?:\A|/)\.?(?:/|\Z)", "it is not normalized"),
)


def is_part(name: str) -> bool:
    """Return whether a file's name is a temporary one, used until the file is complete."""
    return _PART_NAME.fullmatch(name) is not None


def relative_path(
    path: str, *, what: str, place: str = "", inside: str = "the directory that it belongs to"
) -> str:
    """Return a path from data if it can only lead below its directory.

    Args:
        path: The path as it is: relative, normalized, with `/` between names, and without escapes.
        what: The kind of file, for the message: `a state file`.
        place: The place where the path was read.
        inside: Name of the directory, for the message.

    Raises:
        UnsafePathError: The path is empty, absolute, a URI, leads above, or is not a path at all.
    """
    if _RELATIVE.fullmatch(path):
        return path
    reason = next(reason for pattern, reason in _REASONS if re.search(pattern, path))
    raise UnsafePathError(
        f"{what} at {shortened(path)}, which is not inside {inside}: {reason}",
        place=place,
        remedy="neither Flink nor statelake writes such a path: do not trust the file that has it",
    )


def shortened(path: str) -> str:
    """Return a path for a message: quoted as Python does, and cut short."""
    return repr(path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}...")


DEEPEST = 100
"""The largest depth of directories that are listed."""

REMEMBERED = 4096
"""The number of reached files to remember."""

COPY_BYTES = 8 << 20
"""The size of a copied piece."""

SYNC_THREADS = 32
"""The number of files to sync at once: the file system writes them to the disk together.

The more wait, the fewer times it does so: of 128 files of 300 kB, on two busy cores, one at a time
took 0.4 to 0.8 s, 8 took 0.2 to 0.4, 32 took 0.05.
"""

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_ANCHOR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ANCHOR | _NO_LINK
# opening a pipe would block otherwise
_READ = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK
_CHANGE = os.O_WRONLY | os.O_NONBLOCK | _NO_LINK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


class ConfinedTree:
    """The files below a local directory, reached without following a symbolic link.

    Paths are those that `relative_path` accepts, or empty for the directory itself. Each operation
    raises `UnsafePathError` where there is a link on the way, or at its end; `MissingFileError`
    where a needed file is missing; and `SnapshotError` for any other refusal of the system.

    Args:
        anchor: The directory. It may itself be a link, as whoever names it is trusted.
    """

    def __init__(self, anchor: str) -> None:
        self.anchor = anchor
        self._known: dict[str, tuple[int, int, int]] = {}

    def open(self, path: str) -> int:
        """Open a regular file for reading and return its descriptor; the caller closes it.

        A file that was reached before is opened by its whole path: if its identity is unchanged it
        is the same file, whatever links the path has by now.
        """
        if identity := self._known.get(path):
            try:
                handle = os.open(f"{self.anchor}/{path}", _READ)
            except OSError:
                return self._reached(path)
            if _identity(handle) == identity:
                return handle
            os.close(handle)
        return self._reached(path)

    def knows(self, path: str) -> bool:
        """Return whether a file was reached before, so that its path is known to be safe."""
        return path in self._known

    def _reached(self, path: str) -> int:
        """Open a file name by name and return its descriptor."""
        with self._telling("read", path), self._folder_of(path) as (folder, name):
            try:
                handle = os.open(name, _READ, dir_fd=folder)
            except OSError:
                self._refuse_link(folder, name, path)
                raise
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise FileNotFoundError(errno.ENOENT, "no regular file")
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[path] = _identity(handle)
        return handle

    def create(self, path: str) -> int:
        """Create a new file, with its directories, and return its descriptor; the caller closes it.

        An existing file is removed first, as it may be linked from elsewhere.
        """
        with self._telling("written", path), self._folder_of(path, create=True) as (folder, name):
            self._remove(folder, name, path)
            _note_written(self, path)
            return os.open(name, _CREATE, 0o666, dir_fd=folder)

    def move_into(self, path: str, target: str, at: int, *, start: int, end: int) -> None:
        """Move bytes of a file to a position in another file, and leave an empty file.

        The target has no other hard link. A file that is already empty was moved by an earlier
        attempt of the same task, to the same position.

        Raises:
            TruncatedError: The file is shorter.
        """
        with self._telling("moved", path):
            try:
                self._copy_into(path, target, at, start, end)
            except OSError as error:  # NFS reports so that another run has replaced it
                if error.errno != errno.ESTALE or self.size(path) != 0:
                    raise
            # the target is closed, so that NFS has its bytes; readers of the replaced source go on
            if self.size(path):
                with self._folder_of(path) as (folder, name):
                    part = f"{name}.{uuid.uuid4().hex[:8]}{PART}"
                    os.close(os.open(part, _CREATE, 0o666, dir_fd=folder))
                    os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _copy_into(self, path: str, target: str, at: int, start: int, end: int) -> None:
        with ExitStack() as stack:
            into = self._changed(target)
            stack.callback(os.close, into)
            source = self.open(path)
            stack.callback(os.close, source)
            size = os.fstat(source).st_size
            done = start
            while done < end and size:
                data = os.pread(source, min(end - done, COPY_BYTES), done)
                if not data:
                    raise too_short(f"{self.anchor}/{path}", start, end - start, done - start)
                done += os.pwrite(into, data, at + done - start)

    def resize(self, path: str, size: int) -> None:
        """Truncate or extend a file that has no other hard link."""
        handle = self._changed(path)
        try:
            with self._telling("written", path):
                os.ftruncate(handle, size)
        finally:
            os.close(handle)

    def append(self, path: str) -> int:
        """Open a file that has no other hard link for appending, and return its descriptor."""
        return self._changed(path, os.O_APPEND)

    def _changed(self, path: str, flags: int = 0) -> int:
        """Open a file that has no other hard link for writing, and return its descriptor."""
        with self._telling("written", path), self._folder_of(path) as (folder, name):
            self._is_file(folder, name, path)
            handle = os.open(name, _CHANGE | flags, dir_fd=folder)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.close(handle)
            raise UnsafePathError(
                f"{shortened(path)} is linked from elsewhere",
                place=self.anchor,
                remedy="nothing is written into it: replace it by a copy of its own",
            )
        _note_written(self, path)
        return handle

    def write(self, path: str, chunks: Iterable[Buffer]) -> None:
        """Write a whole file, its directories made, so that it appears complete or not at all.

        When this returns, the file is on the disk under its name.

        Args:
            path: The file's path.
            chunks: The file's content.
        """
        with (
            self._telling("written", path),
            self._folder_of(path, create=True, sync=True) as (folder, name),
        ):
            self._is_file(folder, name, path)
            with self._part_of(folder, name, path, chunks) as part:
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            _sync(folder)

    @contextmanager
    def _part_of(
        self, folder: int, name: str, path: str, chunks: Iterable[Buffer]
    ) -> Iterator[str]:
        """Write content to a file under a temporary name, sync it, and yield that name.

        It is locked while its writer lives, and removed unless it was renamed.
        """
        handle = None
        while handle is None:  # a cleanup may remove a new one before it is locked: try again
            part = f"{name}.{uuid.uuid4().hex[:8]}{PART}"
            handle = _held_part(part, folder)
        _parts.add((folder, part))
        try:
            with open(handle, "wb") as file:
                file.writelines(chunks)
                file.flush()
                _sync(file.fileno())
                yield part
        finally:
            _parts.discard((folder, part))
            _remove_part(folder, part)

    def hold(self, path: str, data: bytes) -> int | None:
        """Write a new file that is locked while its descriptor is open, if its name is free.

        It is locked before it has content.

        Returns:
            The descriptor; None if the name is taken.
        """
        with self._telling("written", path), self._folder_of(path, create=True) as (folder, name):
            try:
                handle = _held_part(name, folder)
            except FileExistsError:
                return None
            if handle is None:  # who removes what dead writers left had it first
                return None
            with open(os.dup(handle), "wb") as file:
                file.write(data)
                file.flush()
                _sync(file.fileno())
            _sync(folder)
            return handle

    def remove_left_part(self, path: str) -> bool:
        """Remove a file that its dead writer held; return whether it was one.

        A living writer holds a lock on its file: `_part_of` and `hold` take it.
        """
        with (
            self._telling("removed", path),
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder_of(path) as (folder, name),
        ):
            if not self._is_file(folder, name, path):
                return False
            handle = os.open(name, _READ, dir_fd=folder)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            except BlockingIOError:
                return False
            finally:
                os.close(handle)
            return True
        return False

    def write_new(self, path: str, data: bytes) -> bool:
        """Write a whole file under a name that is free, so that only one writer can ever succeed.

        File and directories are on the disk when this returns: whoever sees the name sees all of
        the file, after a power failure too.

        Returns:
            Whether it was written; False if the name is taken.
        """
        with self._telling("written", path), self._folder_of(path, create=True) as (folder, name):
            with self._part_of(folder, name, path, [data]) as part:
                try:
                    os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                except FileExistsError:
                    return False
                except PermissionError as error:  # a file system without hard links says EPERM
                    raise SnapshotError(
                        "a file can't be given a name that only one writer gets: no hard links",
                        place=f"{self.anchor}/{path}",
                        remedy="keep the lake on a file system with hard links, or in a store",
                    ) from error
            names = path.split("/")
            for depth in range(len(names) - 1, -1, -1):
                self._sync_one("/".join(names[:depth]))
            return True

    def sync_files(self, paths: Iterable[str]) -> None:
        """Sync files to the disk, and then each directory between them and the anchor, once.

        Args:
            paths: The files' paths; an empty one is the anchor itself.

        Raises:
            MissingFileError: A file is not there.
        """
        files = sorted(set(paths))
        if not files:
            return
        folders = {path[:at] for path in files for at, c in enumerate(path) if c == "/"}
        with ThreadPoolExecutor(SYNC_THREADS) as pool:
            for group in (files, sorted((folders | {""}).difference(files))):
                for _ in pool.map(self._sync_one, group):
                    pass

    def _sync_one(self, path: str) -> None:
        with self._telling("brought to the disk", path), self._folder_of(path) as (folder, name):
            try:
                handle = os.open(name, _READ, dir_fd=folder)
            except OSError:
                self._refuse_link(folder, name, path)
                raise
            try:
                _sync(handle)
            finally:
                os.close(handle)

    def link(self, source: ConfinedTree, path: str, new: str) -> bool:
        """Give a file of this or another tree a second path, its directories made.

        Returns:
            Whether the system could: it can't across file systems.
        """
        with (
            self._telling("linked", path),
            source._folder_of(path) as (above, name),
            self._folder_of(new, create=True) as (folder, last),
        ):
            source._is_file(above, name, path)
            try:
                os.link(name, last, src_dir_fd=above, dst_dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                raise
            except OSError:
                return False
            if not stat.S_ISREG(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(last, dir_fd=folder)  # it has become a link since the check
                raise source._no_file(path)
        return True

    def make(self, path: str = "") -> None:
        """Make a directory and those above it."""
        with self._telling("made", path):
            os.close(self._folder(path, create=True))

    def status(self, path: str = "") -> os.stat_result | None:
        """Return the status of a file or directory, None if it does not exist."""
        above, _, name = path.rpartition("/")
        try:  # without the context managers of the other methods, as it is called for every file
            folder = self._folder(above)
            try:
                status = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    raise self._link(folder, name, path)
                return status
            finally:
                os.close(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._error("looked up", path, error) from error

    def set_modified(self, path: str, seconds: float) -> None:
        """Set the modification time of a file."""
        with self._telling("dated", path), self._folder_of(path) as (folder, name):
            os.utime(name, (seconds, seconds), dir_fd=folder, follow_symlinks=False)

    def size(self, path: str) -> int | None:
        """Return the number of bytes of a regular file, None if it does not exist."""
        status = self.status(path)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def names(self, path: str = "") -> list[str]:
        """All names in a directory, links included, sorted; empty if it does not exist."""
        with self._telling("listed", path):
            try:
                folder = self._folder(path)
            except (FileNotFoundError, NotADirectoryError):
                return []
            try:
                return sorted(os.listdir(folder))
            finally:
                os.close(folder)

    def files(self, path: str = "") -> list[tuple[str, int]]:
        """Every regular file below a directory, as relative path and size, sorted.

        Links are left out, and are not followed.
        """
        entries = self.entries(path)
        return sorted((name, at.st_size) for name, at in entries if stat.S_ISREG(at.st_mode))

    def entries(self, path: str = "") -> list[tuple[str, os.stat_result]]:
        """Everything below a directory, links and directories included, in any order."""
        with self._telling("listed", path):
            return self._below(path)

    def folder(self, path: str = "", *, create: bool = False) -> int:
        """Open a directory, following no link, and return its descriptor; the caller closes it."""
        with self._telling("opened", path):
            folder = self._folder(path, create=create)
            links = sorted(entry.name for entry in os.scandir(folder) if entry.is_symlink())
            if links:
                link = self._link(folder, links[0], f"{path}/{links[0]}".lstrip("/"))
                os.close(folder)
                raise link
        return folder

    def refuse_links(self, path: str = "") -> None:
        """Refuse a directory that contains links, without looking into those below it."""
        if stat.S_ISDIR(getattr(self.status(path), "st_mode", 0)):
            with suppress(MissingFileError):  # it existed a moment ago
                os.close(self.folder(path))

    def remove(self, path: str) -> None:
        """Remove a regular file, if it exists."""
        with (
            self._telling("removed", path),
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder_of(path) as (folder, name),
        ):
            self._remove(folder, name, path)

    def remove_tree(self, path: str = "") -> None:
        """Remove a directory and all files below it, if it exists.

        All entries are listed first: if one is neither a file nor a directory, nothing is removed.
        """
        start = f"{path}/" if path else ""
        with self._telling("removed", path):
            entries = self._below(path)
            for name, status in entries:
                if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
                    raise self._no_file(start + name)
            for name, status in entries:
                if stat.S_ISREG(status.st_mode):
                    self.remove(start + name)
                else:
                    self._remove_directory(start + name)
            self._remove_directory(path)

    def _remove_directory(self, path: str) -> None:
        with suppress(FileNotFoundError):
            if not path:  # the anchor stays if it is a link, as that is not ours
                if not os.path.islink(self.anchor):
                    os.rmdir(self.anchor)
                return
            with self._folder_of(path) as (folder, name):
                os.rmdir(name, dir_fd=folder)

    def _below(self, path: str) -> list[tuple[str, os.stat_result]]:
        """All entries below a directory, the content of each directory before itself."""
        try:
            folder = self._folder(path)
        except FileNotFoundError:
            return []
        try:
            return list(self._entries(folder, "", 0))
        finally:
            os.close(folder)

    def _entries(
        self, folder: int, prefix: str, depth: int
    ) -> Iterator[tuple[str, os.stat_result]]:
        if depth > DEEPEST:
            raise UnsafePathError(
                f"more than {DEEPEST} directories below one another",
                place=f"{self.anchor}/{prefix}",
                remedy="do not trust it: statelake writes nothing this deep",
            )
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):  # somebody has removed it meanwhile
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    below = os.open(name, _FOLDER, dir_fd=folder)
                    try:
                        yield from self._entries(below, f"{prefix}{name}/", depth + 1)
                    finally:
                        os.close(below)
                yield f"{prefix}{name}", status

    @contextmanager
    def _folder_of(
        self, path: str, *, create: bool = False, sync: bool = False
    ) -> Iterator[tuple[int, str]]:
        """Yield the opened directory that a path is in, with its last name."""
        above, _, name = path.rpartition("/")
        folder = self._folder(above, create=create, sync=sync)
        try:
            yield folder, name or "."
        finally:
            os.close(folder)

    def _folder(self, path: str, *, create: bool = False, sync: bool = False) -> int:
        """Open a directory name by name; with `sync`, sync those that are created to the disk."""
        try:
            folder = os.open(self.anchor, _ANCHOR)
        except FileNotFoundError:
            if not create:
                raise
            _make_for_good(self.anchor)
            folder = os.open(self.anchor, _ANCHOR)
        for name in path.split("/") if path else ():
            above = folder
            try:
                folder = _entered(above, name, create=create, sync=sync)
            except OSError:  # systems differ in the error that a link gives
                self._refuse_link(above, name, path)
                raise
            finally:
                os.close(above)
        return folder

    def _remove(self, folder: int, name: str, path: str) -> None:
        if self._is_file(folder, name, path):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)

    def _is_file(self, folder: int, name: str, path: str) -> bool:
        """Return whether a file exists; refuse an entry that is not a regular file."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(status.st_mode):
            raise self._link(folder, name, path)
        if not stat.S_ISREG(status.st_mode):
            raise self._no_file(path)
        return True

    @contextmanager
    def _telling(self, what: str, path: str) -> Iterator[None]:
        """Translate errors of the system to ours."""
        try:
            yield
        except StateError:
            raise
        except OSError as error:
            raise self._error(what, path, error) from error

    def _error(self, what: str, path: str, error: OSError) -> SnapshotError:
        place = f"{self.anchor}/{path}".rstrip("/")
        problem = error.strerror or str(error)
        if what in {"read", "looked up"}:
            if isinstance(error, PermissionError):
                return UnreachableFileError(problem, place=place, remedy="let this user read it")
            return MissingFileError(problem, place=place)
        if isinstance(error, FileNotFoundError):
            remedy = "see whether the directory above it is there, and can be written to"
            return MissingFileError(f"can't be {what}: {problem}", place=place, remedy=remedy)
        return SnapshotError(
            f"can't be {what}: {problem}", place=place, remedy="check permissions and space"
        )

    def _refuse_link(self, folder: int, name: str, path: str) -> None:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return
        if stat.S_ISLNK(status.st_mode):
            raise self._link(folder, name, path)

    def _link(self, folder: int, name: str, path: str) -> UnsafePathError:
        try:
            target = os.readlink(name, dir_fd=folder)
        except OSError:  # it was a link a moment ago
            target = "nowhere any more"
        return UnsafePathError(
            f"{shortened(path)}: {name!r} is a link that leads to {target}",
            place=self.anchor,
            remedy="links are not followed there: replace it by what it leads to, if that is yours",
        )

    def _no_file(self, path: str) -> UnsafePathError:
        return UnsafePathError(
            f"{shortened(path)} is no regular file",
            place=self.anchor,
            remedy="statelake neither reads, replaces nor removes it: look at what it is",
        )


_written: set[tuple[str, str]] | None = None  # files of a task that are to be synced


def _note_written(tree: ConfinedTree, path: str) -> None:
    if _written is not None:
        _written.add((tree.anchor, path))


@contextmanager
def written_is_synced() -> Iterator[None]:
    """Sync each file that this process writes meanwhile to the disk, unless it is gone by then.

    For tasks on other hosts than the driver's, as a host can sync only its own writes.
    """
    global _written  # noqa: PLW0603 - of the process, whichever thread writes
    _written = set()
    try:
        yield
        for anchor, path in _written:
            with suppress(MissingFileError):
                ConfinedTree(anchor).sync_files([path])
    finally:
        _written = None


def given_to_arrow(handle: int, mode: str) -> pa.NativeFile:
    """Return an open file for Arrow, opened once more by its descriptor and not by its path."""
    try:
        return pa.OSFile(f"/dev/fd/{handle}", mode)
    finally:
        os.close(handle)


def _held_part(part: str, folder: int) -> int | None:
    """Create a file, locked if possible; return None if a cleanup had it first."""
    handle = os.open(part, _CREATE, 0o666, dir_fd=folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:  # no locks here: nothing is taken for abandoned
        return handle
    if os.fstat(handle).st_nlink == 0:
        os.close(handle)
        return None
    return handle


def _identity(handle: int) -> tuple[int, int, int]:
    """Identity of an open file, which differs from an earlier file with the same inode number."""
    status = os.fstat(handle)
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _entered(folder: int, name: str, *, create: bool, sync: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # somebody has created it meanwhile
        os.mkdir(name, dir_fd=folder)
    if sync:
        _sync(folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def _make_for_good(folder: str) -> None:
    """Create a directory and those above it, and sync their names to the disk."""
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(above):
        _make_for_good(above)
    with suppress(FileExistsError):  # somebody has created it meanwhile
        os.mkdir(folder)
    handle = os.open(above, _ANCHOR)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system can't sync directories
            raise


_parts: set[tuple[int, str]] = set()  # those being written, each by its folder's descriptor


@atexit.register
def _remove_parts() -> None:
    """Remove the files that threads still write, as nobody waits for them."""
    for folder, part in list(_parts):
        _remove_part(folder, part)


def _remove_part(folder: int, part: str) -> None:
    with suppress(OSError):  # otherwise the next cleanup finds it
        os.unlink(part, dir_fd=folder)
