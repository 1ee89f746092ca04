"""Seals: digests of a Parquet file in its own footer, since checksums of pages leave gaps.

Parquet has a checksum for the bytes of a page, and none for its head or for the footer, whose
damage may read as other values: a time in other units, statistics by which rows are left out. So
files of ours have a seal: the digest of all bytes before the footer, and of the footer itself. It
is the last field of the footer, of the number that Parquet reserves for extensions, and readers
that do not know it pass over it.

The digest of the footer is compared whenever a file on a disk is opened; that of the other bytes
where all of them are looked at anyway. Stores check what they keep themselves.

Source: `BinaryProtocolExtensions.md` of parquet-format 2.11.
"""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa

BLOCK = 1 << 20
END_BYTES = 1 << 16  # footers are mostly shorter
_DIGEST = 32
# field 32767, whose value is the two digests and the mark
_HEAD = b"\x08\xfe\xff\x03\x50"
_MARK = b"statelake seal 1"
_SEAL = len(_HEAD) + 2 * _DIGEST + len(_MARK) + 1
_MAGIC = b"PAR1"
_END = 4 + len(_MAGIC)


class SealingOutput:
    """A file that Arrow writes Parquet to, which is sealed at its end.

    Args:
        output: The file itself.
    """

    closed = False

    def __init__(self, output: pa.NativeFile) -> None:
        self._output = output
        self._digest = sha256()
        self._footer: bytearray | None = None

    def write(self, data: bytes) -> int:
        """Write bytes; those of the footer are held back."""
        if self._footer is None:
            self._digest.update(data)
            self._output.write(data)
        else:
            self._footer += data
        return len(data)

    def flush(self) -> None:
        """Leave the bytes to the file itself, which is flushed when it is closed."""

    def begin_footer(self) -> None:
        """Take all that follows as the footer."""
        self._footer = bytearray()

    def seal(self) -> None:
        """Write the footer, with the seal."""
        self._output.write(_with_seal(bytes(self._footer or b""), self._digest.digest()))


def sealed(data: bytes) -> bytes:
    """Return a whole file of another writer, with a seal."""
    start = len(data) - _END - int.from_bytes(data[-_END:][:4], "little")
    return data[:start] + _with_seal(data[start:], sha256(data[:start]).digest())


def check_footer(source: pa.NativeFile) -> bytes | None:
    """Compare a file's footer with its seal.

    Returns:
        The digest of all bytes before the footer; None if the file has no seal.

    Raises:
        ArrowInvalid: The footer or the seal is damaged.
    """
    return _sealed(source, source.size())[1]


def check_end(source: pa.NativeFile, size: int) -> None:
    """Compare a file in a store with its size and, if it has a seal, its footer.

    Only the end is read, mostly in one request; the rows are not.

    Raises:
        ArrowInvalid: The file is not of this size, or the footer or the seal is damaged.
    """
    if source.size() != size:
        raise pa.ArrowInvalid(f"it has {source.size()} bytes, and {size} in the catalog")
    end = source.read_at(min(size, END_BYTES), max(0, size - END_BYTES))
    is_long = int.from_bytes(end[-_END:][:4], "little") + _END > len(end)
    check_footer(source if is_long and size > len(end) else pa.BufferReader(end))


def check_whole(source: pa.NativeFile) -> bool:
    """Compare all bytes of a file with its seal.

    Returns:
        Whether it has a seal.

    Raises:
        ArrowInvalid: It is damaged.
    """
    size = source.size()
    start, body = _sealed(source, size)
    if body is None:
        return False
    digest = sha256()
    for at in range(0, start, BLOCK):
        digest.update(source.read_at(min(BLOCK, start - at), at))
    if digest.digest() != body:
        raise pa.ArrowInvalid("it is damaged: it is not of the digest in its footer")
    return True


def _sealed(source: pa.NativeFile, size: int) -> tuple[int, bytes | None]:
    """Return where the footer begins, and the digest of the bytes before it."""
    if size < _SEAL + _END:
        return 0, None
    end = source.read_at(_SEAL + _END, size - _SEAL - _END)
    seal, tail = end[:_SEAL], end[_SEAL:]
    is_marked = seal.startswith(_HEAD), seal.endswith(_MARK + b"\0")
    if not any(is_marked):
        return 0, None
    start = size - _END - int.from_bytes(tail[:4], "little")
    body, digest = seal[len(_HEAD) :][:_DIGEST], seal[len(_HEAD) + _DIGEST :][:_DIGEST]
    footer = source.read_at(max(0, size - _END - _SEAL - start), max(0, start))
    if not all(is_marked) or tail[4:] != _MAGIC or start < 0 or _digest_of(footer, body) != digest:
        raise pa.ArrowInvalid("its footer is damaged: it is not of the digest in it")
    return start, body


def _with_seal(end: bytes, body: bytes) -> bytes:
    """Return the end of a file, from its footer on, with a seal."""
    footer = end[: -_END - 1]
    seal = _HEAD + body + _digest_of(footer, body) + _MARK + b"\0"
    return footer + seal + (len(footer) + len(seal)).to_bytes(4, "little") + _MAGIC


def _digest_of(footer: bytes, body: bytes) -> bytes:
    return sha256(footer + body).digest()
