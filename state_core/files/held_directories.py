"""Temporary directories of a process, told apart from those that a dead one has left.

A process holds the system's lock on each (`flock`), which ends with the process, however that ends,
so that neither a clock nor a process number is needed. On a file system without such locks (NFS has
no locks on directories) no directory counts as left.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet, finalize

from statelake.state_core.files.confinement import PART

KINDS = EXPORT_PREFIX, LOG_PREFIX, SQL_PREFIX = (
    "statelake-export-",
    "statelake-log-",
    "statelake-sql-",
)
MEMORY = "/dev/shm"  # noqa: S108 - the directory itself gets a random name, and 0700
LOG = logging.getLogger(__name__)
DIGITS = "[0-9a-f]{8}"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_TEMPORARY: WeakSet[HeldDirectory] = WeakSet()


class HeldDirectory:
    """A new directory of this process, until it is released or its `with` block removes it.

    Args:
        prefix: The beginning of its path; the directory above must exist.
        suffix: The end of its path, behind eight random digits.
        mode: Its permissions.

    Attributes:
        path: Its path.
        release: Call it when others may remove the directory, or it is gone.

    Raises:
        OSError: It can't be created.
    """

    def __init__(self, prefix: str, suffix: str = "", mode: int = 0o777) -> None:
        handle = None
        while handle is None:  # others may remove it before it is locked: try again
            self.path = f"{prefix}{uuid.uuid4().hex[:8]}{suffix}"
            Path(self.path).mkdir(mode)
            handle = _held(self.path)
        self.release = finalize(self, os.close, handle)

    def __enter__(self) -> str:
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path)
        self.release()


def held_temporary(prefix: str) -> HeldDirectory:
    """Create a directory of this process among the system's temporary ones."""
    directory = HeldDirectory(f"{tempfile.gettempdir()}/{prefix}", mode=0o700)
    _TEMPORARY.add(directory)
    return directory


def remove_held_temporary() -> None:
    """Remove this process's temporary directories, which threads may still use: it ends now."""
    for directory in list(_TEMPORARY):
        for _ in range(3):  # a file may come meanwhile
            shutil.rmtree(directory.path, ignore_errors=True)


def held_link_place() -> HeldDirectory:
    """Create a directory of this process for a link: in memory, if the disk is full.

    So a lake can be read, and snapshots can be dropped, even if the disk is full.
    """
    try:
        return held_temporary(LOG_PREFIX)
    except OSError:
        if not Path(MEMORY).is_dir():
            raise
        return HeldDirectory(f"{MEMORY}/{LOG_PREFIX}", mode=0o700)


def stale_temporary_directories(*prefixes: str) -> list[str]:
    """Paths of this user's temporary directories whose process is dead: of all kinds by default."""
    places = [MEMORY]
    with suppress(OSError):  # no file can be written to any of the system's
        places.insert(0, tempfile.gettempdir())
    return [
        path
        for kind in prefixes or KINDS
        for place in places
        for path in left_directories(f"{place}/{kind}")
    ]


def left_directories(prefix: str, suffix: str = "") -> list[str]:
    """Paths of this user's directories, named as by `HeldDirectory`, that no process holds."""
    above, start = os.path.split(prefix)
    return _left(above, f"{re.escape(start)}{DIGITS}{re.escape(suffix)}")


def left_exports(directory: str) -> list[str]:
    """Paths of this user's unfinished savepoints in a local directory that no process holds."""
    return _left(directory, rf".+\.{DIGITS}{re.escape(PART)}")


def remove_left(path: str) -> bool:
    """Remove a directory unless a process holds it; log a failure to remove it.

    Returns:
        Whether it is gone.
    """
    with _locked(path) as is_left:
        if not is_left:
            return False
        try:
            shutil.rmtree(path)  # follows no link
        except OSError as error:
            LOG.warning("%s of a dead process can't be removed: %s", path, error)
            return False
        return True


def _left(above: str, pattern: str) -> list[str]:
    left = []
    try:
        entries = sorted(os.scandir(above), key=lambda entry: entry.name)
        named = [
            entry.path
            for entry in entries
            if re.fullmatch(pattern, entry.name)
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        ]
    except OSError:  # it does not exist, or is gone at this moment
        return []
    for path in named:
        with _locked(path) as is_left:
            left += [path] if is_left else []
    return left


@contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Lock a directory temporarily, and yield whether no other process has a lock on it."""
    try:
        handle = os.open(path, _FOLDER)
    except OSError:  # gone at this moment
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_left = True
        except OSError:  # locked by another process, or no locks here
            is_left = False
        yield is_left
    finally:
        os.close(handle)


def _held(path: str) -> int | None:
    """Return a directory's descriptor, locked if possible; None if another process holds it."""
    try:
        handle = os.open(path, _FOLDER)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:  # without locks, it is never taken as left
        return handle
    if not Path(path).exists():
        os.close(handle)
        return None
    return handle
