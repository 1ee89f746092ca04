"""Writing whole files durably: large ones past the page cache, where the system supports it.

Most of what a restore writes is not read again soon, so a cache full of it is of no use; and what
goes to the disk directly need not be waited for twice (RocksDB has `use_direct_io_for_flush`).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable

__all__ = ["BLOCK", "write_out"]

BLOCK = 1 << 20
_DIRECT = getattr(os, "O_DIRECT", 0)  # macOS has none


def write_out(file: int, chunks: Iterable[bytes]) -> None:
    """Write a new file from its start to its end; when this returns, it is on the disk.

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
    """Turn writing past the page cache on or off, and return whether that was possible."""
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
        # some file systems grant it and then refuse, or took a part that was no whole block
        if error.errno != errno.EINVAL or not fcntl.fcntl(file, fcntl.F_GETFL) & _DIRECT:
            raise
        _set_direct(file, False)
        return 0
