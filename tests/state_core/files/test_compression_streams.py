"""Snappy frames, written and read a window at a time: what cramjam writes and reads."""

from __future__ import annotations

from itertools import pairwise

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CorruptSnapshotError, UnsupportedFormatError
from statelake.state_core.files.compression import (
    IDENTIFIER,
    codec_named,
    compress_pieces,
    compress_snappy,
    open_stream,
)
from statelake.state_core.files.filesystem import InlineSource

PADDING = b"\xfe\x03\x00\x00abc"  # a skippable chunk
CHUNK = 65536


def read(frames: bytes, windows: int, compressed: bool = True) -> bytes:
    """All content, in windows of that size."""
    stream = open_stream(InlineSource("frames", frames), 0, len(frames), compressed=compressed)
    found = []
    while True:
        window = np.empty(windows, np.uint8)
        count = stream.read_into(window)
        found.append(window[:count].tobytes())
        if count < windows:
            return b"".join(found)


def pieces_of(lengths: list[int], letters: int, seed: int) -> list[bytes]:
    """Pieces of those lengths, out of few letters or many."""
    random = np.random.default_rng(seed)
    return [random.integers(0, letters, length, dtype=np.uint8).tobytes() for length in lengths]


def bounds_of(pieces: list[bytes]) -> np.ndarray:
    """Where each begins when they are joined, and where the last ends."""
    return np.cumsum([0, *map(len, pieces)], dtype=np.int64)


LENGTHS = st.integers(1, 40) | st.integers(1, 3000) | st.integers(0, 3 * CHUNK)


@given(st.lists(LENGTHS, max_size=12), st.integers(1, 256), st.integers(0, 9))
def test_pieces_are_framed_as_streams_of_their_own(
    lengths: list[int], letters: int, seed: int
) -> None:
    """Byte for byte what a stream of each is behind its identifier."""
    pieces = pieces_of(lengths, letters, seed)
    framed, sizes = compress_pieces(b"".join(pieces), bounds_of(pieces))
    ends = np.concatenate(([0], np.cumsum(sizes))).tolist()
    assert [framed[start:end] for start, end in pairwise(ends)] == [
        bytes(cramjam.snappy.compress(piece))[len(IDENTIFIER) :] for piece in pieces
    ]
    content = b"".join(pieces)
    if content:
        assert bytes(cramjam.snappy.decompress(IDENTIFIER + framed)) == content


@pytest.mark.parametrize("longest", [16, 17, 2048, 2049])
def test_pieces_of_every_way_of_framing(longest: int) -> None:
    """At the lengths where another way is taken."""
    pieces = pieces_of([1, longest, longest - 1, longest], 2, 1)
    framed, sizes = compress_pieces(b"".join(pieces), bounds_of(pieces))
    alone = [bytes(cramjam.snappy.compress(piece))[len(IDENTIFIER) :] for piece in pieces]
    assert framed == b"".join(alone)
    assert sizes.tolist() == list(map(len, alone))


@given(
    st.lists(LENGTHS, min_size=1, max_size=12),
    st.integers(1, 256),
    st.integers(1, 1 << 20) | st.integers(1, 100),
    st.booleans(),
)
def test_streams_are_read_in_windows_of_any_size(
    lengths: list[int], letters: int, window: int, repeated: bool
) -> None:
    """Chunks of any size, identifiers between them, and chunks to skip: the content is the same."""
    pieces = pieces_of(lengths, letters, len(lengths))
    between = IDENTIFIER + PADDING if repeated else b""
    framed = [between + bytes(compress_snappy(piece))[len(IDENTIFIER) :] for piece in pieces]
    content = b"".join(pieces)
    window = max(window, len(content) // 500)
    assert read(IDENTIFIER + b"".join(framed) + between, window) == content
    # an offset in operator state points behind the identifier
    assert read(b"".join(framed), window) == content


@given(st.binary(max_size=300), st.integers(1, 400))
def test_what_is_not_compressed_is_read_as_it_is(data: bytes, window: int) -> None:
    """In windows too."""
    assert read(data, window, compressed=False) == data


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (b"\xff\x06\x00\x00sNaPpX", "identifier that is not Snappy's"),
        (b"\x02\x05\x00\x00abcde", "type 0x02"),
        (b"\x01\x04\x00\x00abcd", "type 0x01 and 4 bytes"),
        (b"\x00\x00\x00\x00", "type 0x00 and 0 bytes"),
        (b"\x00\x07\x00\x00abcd\xff\xff\x7f", "claims 2097151 bytes"),
        (b"\x00\x05\x00\x00abcd\x00", "claims 0 bytes"),
        (b"\x01\x05\x00\x00abcdx", "do not decompress"),
        (b"\x01\x05\x00", "cut off"),
        (bytes(compress_snappy(b"abc"))[len(IDENTIFIER) : -1], "cut off"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"abc" * CHUNK])
def test_what_is_no_chunk_is_refused(frames: bytes, message: str, before: bytes) -> None:
    """At the beginning or behind a good one, and the message says what it is."""
    with pytest.raises(CorruptSnapshotError, match=message):
        read(bytes(compress_snappy(before)) + frames, 1 << 20)


def test_a_codec_has_a_name() -> None:
    """And another name has none."""
    codec = codec_named("snappy")
    assert read(bytes(codec.compress(b"content")), 100) == b"content"
    with pytest.raises(UnsupportedFormatError, match="no codec 'zstd'"):
        codec_named("zstd")
