"""Durable writing of whole files: large ones past the page cache, if the system supports it.

Most files of a restore are not read again soon, so caching them is useless; and direct writes need
not be synced afterwards (RocksDB has `use_direct_io_for_flush`).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable

BLOCK = 1 << 20
_DIRECT = getattr(os, "O_DIRECT", 0)  # macOS does not have it


def write_out(file: int, chunks: Iterable[bytes]) -> None:
    """Write a new file from start to end, and sync it to the disk.

    Args:
        file: Its descriptor, which is closed.
        chunks: Its content.
    """
    try:
        _write(file, chunks)
        os.fsync(file)
    finally:
        os.close(file)


def _write(file: int, chunks: Iterable[bytes]) -> None:
    """Write whole blocks from aligned memory, as direct writing needs, and the rest as usual."""
    with mmap.mmap(-1, BLOCK) as block, memoryview(block) as room:
        buffered, direct = 0, False
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                count = min(len(rest), BLOCK - buffered)
                room[buffered : buffered + count] = rest[:count]
                buffered, rest = buffered + count, rest[count:]
                if buffered == BLOCK:
                    direct = direct or _set_direct(file, True)
                    _write_all(file, room)
                    buffered = 0
        if direct:
            _set_direct(file, False)
        _write_all(file, room[:buffered])


def _set_direct(file: int, direct: bool) -> bool:
    """Turn direct writing on or off, and return whether that was possible."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL) & ~_DIRECT
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT if direct else flags)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without it
            raise
        return False
    return True


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[_write_some(file, data) :]


def _write_some(file: int, data: memoryview) -> int:
    try:
        return os.write(file, data)
    except OSError as error:
        # some file systems accept it and then refuse, or wrote a part that is not a whole block
        if error.errno != errno.EINVAL or not fcntl.fcntl(file, fcntl.F_GETFL) & _DIRECT:
            raise
        _set_direct(file, False)
        return 0
