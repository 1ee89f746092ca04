"""Snappy through our layer against cramjam's own framed speed: `python -m benchmarks.compression`.

Blocks as Flink writes them: a key group of keyed state is one stream of chunks of 65,536 bytes; of
operator state every element is a chunk of its own. Both sides read the same bytes of the same file
into a buffer that they have already; neither keeps what it wrote.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import cramjam
import numpy as np
import numpy.typing as npt

from benchmarks.measuring import Row, print_table, seconds
from statelake.state_core.files.compression import (
    IDENTIFIER,
    compress_pieces,
    compress_snappy,
    open_stream,
)
from statelake.state_core.files.filesystem import Directory, FileSource

MEGABYTES = 128
SUBTASKS = 16  # that share it, if it is operator state
ENTRIES = 1 << 15
WANTED = 0.85
REPEAT = 5
# a number; what a Kafka reader keeps of a partition; a rule or a batch of records
ELEMENTS = {"of 8 bytes": 8, "of 64 bytes": 64, "of 5,000 bytes": 5000}


def key_group(group: int) -> bytes:
    """About a megabyte of entries of `ValueState<Long>` by `String`, in the unified format."""
    numbers = np.random.default_rng(group).integers(0, 5_000_000, ENTRIES).tolist()
    entries = []
    for number in numbers:
        key = b"key-%d" % number
        head = group.to_bytes(2, "big") + bytes([len(key) + 1]) + key + b"\0"
        value = (number * 7).to_bytes(8, "big")
        entries.append(len(head).to_bytes(4, "big") + head + len(value).to_bytes(4, "big") + value)
    return b"".join(entries)


def elements(size: int, count: int) -> bytes:
    """Elements that begin alike and end differently, one after the other."""
    same = np.tile(np.frombuffer((b"topic-orders-partition-" * 300)[: size // 2], np.uint8), count)
    random = np.random.default_rng(size)
    other = random.integers(0, 256, (count, size - size // 2), dtype=np.uint8)
    return np.hstack([same.reshape(count, -1), other]).tobytes()


def measure(work: Path, megabytes: int = MEGABYTES) -> list[Row]:
    """Both uses, both ways."""
    some = [key_group(group) for group in range(min(8, megabytes))]
    groups = [some[index % len(some)] for index in range(megabytes)]
    rows = [_writing("keyed state, key groups of 1 MB", groups)]
    rows.append(_reading("keyed state, key groups of 1 MB", groups, work / "keyed"))
    for name, size in ELEMENTS.items():
        count = (megabytes << 20) // SUBTASKS // size
        data = elements(size, count)
        what = f"operator state, elements {name}"
        rows += _pieces(what, data, np.arange(count + 1, dtype=np.int64) * size, work / name)
    return rows


def _writing(what: str, groups: list[bytes]) -> Row:
    def ours() -> None:
        for group in groups:
            compress_snappy(group)

    def theirs() -> None:
        for group in groups:
            cramjam.snappy.compress(group)

    return _row(f"write {what}", sum(map(len, groups)), ours, theirs)


def _reading(what: str, groups: list[bytes], path: Path) -> Row:
    framed = [bytes(cramjam.snappy.compress(group)) for group in groups]
    return _row_of_file(f"read {what}", framed, max(map(len, groups)), path, sum(map(len, groups)))


def _pieces(what: str, data: bytes, bounds: npt.NDArray[np.int64], path: Path) -> list[Row]:
    view, ends = memoryview(data), bounds.tolist()

    def theirs() -> None:
        for start, end in pairwise(ends):
            cramjam.snappy.compress(view[start:end])

    framed = IDENTIFIER + compress_pieces(data, bounds)[0]
    writing = _row(f"write {what}", len(data), lambda: compress_pieces(data, bounds), theirs)
    return [writing, _row_of_file(f"read {what}", [framed], len(data), path, len(data))]


def _row_of_file(what: str, streams: list[bytes], largest: int, path: Path, size: int) -> Row:
    """Streams of one file, one after the other; with room for a byte more, to see that they end."""
    path.write_bytes(b"".join(streams))
    bounds = np.cumsum([0, *map(len, streams)]).tolist()
    source = FileSource(Directory(path.parent), path.name, 0, bounds[-1])
    out = np.empty(largest + 1, np.uint8)
    room = np.empty(max(map(len, streams)), np.uint8)

    def ours() -> None:
        for start, end in pairwise(bounds):
            open_stream(source, start, end, compressed=True).read_into(out)

    def theirs() -> None:
        with path.open("rb", buffering=0) as file:
            for start, end in pairwise(bounds):
                held = room.data[: end - start]
                os.preadv(file.fileno(), [held], start)
                cramjam.snappy.decompress_into(held, out.data)

    return _row(what, size, ours, theirs)


def _row(what: str, size: int, ours: Callable[[], object], theirs: Callable[[], object]) -> Row:
    best = [float("inf"), float("inf")]
    for _ in range(REPEAT):  # by turns, so that both have the same machine
        for index, work in enumerate((ours, theirs)):
            best[index] = min(best[index], seconds(work, 1))
    speeds = [f"{size / took / 1e6:,.0f} MB/s" for took in best]
    return Row(what, speeds[0], f"cramjam {speeds[1]}", best[1] / best[0], WANTED)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.megabytes)
    print_table(f"Snappy, {given.megabytes} MB of content", rows)


if __name__ == "__main__":
    main()
