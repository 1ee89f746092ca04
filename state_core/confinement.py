"""The one resolver of paths that came from data: nothing is touched outside a directory.

A snapshot, a lake, an index of blobs are written by anybody. What they say about a path is checked
by one rule (`relative_path`), and on a local file system followed by `ConfinedTree`, directory by
directory and never through a symbolic link: a link that is put there between the check and the use
is not followed either, as what is used is the directory that was opened.

What can't be told: a hard link to a file elsewhere is a file like any other. So no file is written
into that was there before: it is replaced.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress

from state_core.errors import UnsafePathError

__all__ = ["ConfinedTree", "relative_path", "shortened"]

DEEPEST = 100
"""So many directories below one another are listed."""

REMEMBERED = 4096
"""Of so many files it is known that they were reached."""

LONGEST_SHOWN = 120
"""So much of a path is shown."""

_NAME = r"(?!\.\.?(?:/|\Z))[^/\\\x00-\x1f\x7f\ud800-\udfff]+"
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:"
_RELATIVE = re.compile(rf"(?!{_URI}){_NAME}(?:/{_NAME})*")
# escapes (`%2e`) and `~` are letters like others: nothing reads them
_REASONS = (
    (r"\A\Z", "it is empty"),
    (r"[\x00-\x1f\x7f\ud800-\udfff]", "no name has such characters"),
    (r"\A/", "it is absolute"),
    (rf"\A{_URI}", "it is a URI"),
    (r"\\", "it has a backslash"),
    (r"(?:\A|/)\.\.(?:/|\Z)", "it leads above"),
    (r"(?:\A|/)\.?(?:/|\Z)", "it is not normalized"),
)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
# a pipe would else be waited for
_READ = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


def relative_path(
    path: str, *, what: str, place: str = "", inside: str = "the directory that it belongs to"
) -> str:
    """A path that came from data, if it can only lead below the directory that it is for.

    Args:
        path: Taken as it is: relative, normalized, with `/` between names, and without escapes.
        what: Whose path it is, for the message: `a state file`.
        place: What said it.
        inside: Where it has to be.

    Raises:
        UnsafePathError: It is empty, absolute, a URI, or leads above; or no path at all.
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
    """A path for a message, as Python writes it, and cut short."""
    return repr(path if len(path) <= LONGEST_SHOWN else f"{path[:LONGEST_SHOWN]}...")


class ConfinedTree:
    """What is below a local directory, reached without following a symbolic link.

    Paths are those that `relative_path` let pass, or empty for the directory itself. What an
    operating system says of a file is an `OSError`, as ever.

    Args:
        anchor: The directory. It may itself be a link, as who names it is to be trusted.
    """

    def __init__(self, anchor: str) -> None:
        self.anchor = anchor
        self._known: dict[str, tuple[int, int, int]] = {}

    def open(self, path: str) -> int:
        """A descriptor to read a regular file; the caller closes it.

        A file that was reached before is opened by its whole path: it is the one that was reached
        if its identity is the same, whatever the path leads through by now.

        Raises:
            UnsafePathError: There is a link on the way.
        """
        if known := self._known.get(path):
            try:
                handle = os.open(f"{self.anchor}/{path}", _READ)
            except OSError:
                return self._reached(path)
            if _identity(handle) == known:
                return handle
            os.close(handle)
        return self._reached(path)

    def _reached(self, path: str) -> int:
        """A descriptor of a file that is reached name by name."""
        folder, name = self._parent(path)
        try:
            handle = os.open(name, _READ, dir_fd=folder)
        except OSError as error:
            raise self._explained(error, folder, name, path) from error
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise FileNotFoundError(errno.ENOENT, "no regular file", path)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[path] = _identity(handle)
        return handle

    def create(self, path: str) -> int:
        """A descriptor to write a new file, its directories made; the caller closes it.

        A file that was there is removed first, as it may be linked from elsewhere.

        Raises:
            UnsafePathError: There is a link on the way, or something that is no file.
        """
        folder, name = self._parent(path, create=True)
        try:
            self._remove(folder, name, path)
            return os.open(name, _CREATE, 0o666, dir_fd=folder)
        finally:
            os.close(folder)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file, its directories made, so that it appears complete or not at all.

        Raises:
            UnsafePathError: There is a link on the way, or something that is no file.
        """
        folder, name = self._parent(path, create=True)
        part = f"{name}.{uuid.uuid4().hex[:8]}.part"
        try:
            self._regular(folder, name, path)
            with open(os.open(part, _CREATE, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self._remove(folder, part, path)
            raise
        finally:
            os.close(folder)

    def make(self, path: str = "") -> None:
        """Make a directory and those above it."""
        os.makedirs(self.anchor, exist_ok=True)
        os.close(self._folder(path, create=True))

    def status(self, path: str = "") -> os.stat_result | None:
        """What is there, None if nothing is.

        Raises:
            UnsafePathError: It is a link, or there is one on the way.
        """
        try:
            folder, name = self._parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        else:
            if stat.S_ISLNK(found.st_mode):
                raise self._link(folder, name, path)
            return found
        finally:
            os.close(folder)

    def names(self, path: str = "") -> list[str]:
        """All names in a directory, links too, sorted; none if it is not there.

        Raises:
            UnsafePathError: There is a link on the way.
        """
        try:
            folder = self._folder(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            return sorted(os.listdir(folder))
        finally:
            os.close(folder)

    def files(self, path: str = "") -> list[tuple[str, int]]:
        """Every regular file below a directory, as path from there and bytes, sorted.

        Links are none, and are not followed.

        Raises:
            UnsafePathError: There is a link on the way, or directories nest too deep.
        """
        entries = self._below(path)
        return sorted((name, at.st_size) for name, at in entries if stat.S_ISREG(at.st_mode))

    def refuse_links(self, path: str = "") -> None:
        """Look for links in a directory, not in those below it; nothing happens if it is not there.

        Raises:
            UnsafePathError: There is one, or one on the way.
        """
        try:
            folder = self._folder(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with os.scandir(folder) as entries:
                links = sorted(one.name for one in entries if one.is_symlink())
            if links:
                raise self._link(folder, links[0], f"{path}/{links[0]}" if path else links[0])
        finally:
            os.close(folder)

    def remove(self, path: str) -> None:
        """Remove a regular file; nothing happens if there is none.

        Raises:
            UnsafePathError: There is a link on the way, or something that is no file.
        """
        try:
            folder, name = self._parent(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            self._remove(folder, name, path)
        finally:
            os.close(folder)

    def remove_tree(self, path: str = "") -> None:
        """Remove a directory and all files below; nothing happens if there is none.

        Only what was listed before is removed: if there is anything but files and directories,
        nothing is.

        Raises:
            UnsafePathError: There is a link on the way or below, or something that is no file.
        """
        entries = self._below(path)
        prefix = f"{path}/" if path else ""
        for name, found in entries:
            if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
                raise _no_file(self.anchor, prefix + name)
        for name, found in entries:
            if stat.S_ISREG(found.st_mode):
                self.remove(prefix + name)
            else:
                self._remove_directory(prefix + name)
        if path:
            self._remove_directory(path)
        elif not os.path.islink(self.anchor) and os.path.isdir(self.anchor):
            os.rmdir(self.anchor)

    def _remove_directory(self, path: str) -> None:
        try:
            folder, name = self._parent(path)
        except FileNotFoundError:
            return
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            return
        finally:
            os.close(folder)

    def _below(self, path: str) -> list[tuple[str, os.stat_result]]:
        """All that is below a directory, what is in one before itself."""
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
                remedy="do not trust it: nothing of ours is so deep",
            )
        for name in os.listdir(folder):
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    below = os.open(name, _DIRECTORY | _NO_LINK, dir_fd=folder)
                    try:
                        yield from self._entries(below, f"{prefix}{name}/", depth + 1)
                    finally:
                        os.close(below)
            except FileNotFoundError:
                continue  # somebody removed it meanwhile
            yield f"{prefix}{name}", found

    def _parent(self, path: str, *, create: bool = False) -> tuple[int, str]:
        """The opened directory that a path is in, and the path's last name."""
        above, _, name = path.rpartition("/")
        return self._folder(above, create=create), name or "."

    def _folder(self, path: str, *, create: bool = False) -> int:
        """A directory, opened name by name."""
        if create and not os.path.isdir(self.anchor):
            os.makedirs(self.anchor, exist_ok=True)
        folder = os.open(self.anchor, _DIRECTORY)
        for name in path.split("/") if path else ():
            above = folder
            try:
                folder = _entered(above, name, create=create)
            except OSError as error:
                raise self._explained(error, above, name, path) from error
            finally:
                os.close(above)
        return folder

    def _remove(self, folder: int, name: str, path: str) -> None:
        if self._regular(folder, name, path):
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return

    def _regular(self, folder: int, name: str, path: str) -> bool:
        """Whether a file is there; what is no file is refused."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISLNK(found.st_mode):
            raise self._link(folder, name, path)
        if not stat.S_ISREG(found.st_mode):
            raise _no_file(self.anchor, path)
        return True

    def _explained(self, error: OSError, folder: int, name: str, path: str) -> Exception:
        """The error of opening: what a link gives differs from one system to another."""
        try:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return self._link(folder, name, path)
        except OSError:
            return error
        return error

    def _link(self, folder: int, name: str, path: str) -> UnsafePathError:
        try:
            target = os.readlink(name, dir_fd=folder)
        except OSError:
            target = "somewhere"
        return UnsafePathError(
            f"{shortened(path)}: {name!r} is a link that leads to {target}",
            place=self.anchor,
            remedy="links are not followed there: replace the link by what it leads to, if it is"
            " yours",
        )


def _identity(handle: int) -> tuple[int, int, int]:
    """What tells an open file from others, and from an earlier one of its number."""
    found = os.fstat(handle)
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _entered(folder: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY | _NO_LINK, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # somebody made it meanwhile
        os.mkdir(name, dir_fd=folder)
    return os.open(name, _DIRECTORY | _NO_LINK, dir_fd=folder)


def _no_file(anchor: str, path: str) -> UnsafePathError:
    return UnsafePathError(
        f"{shortened(path)} is neither a file nor a directory",
        place=anchor,
        remedy="nothing is removed there or replaced: remove it by hand, if it is yours",
    )
