"""Files of key groups that several tasks put together from spills, a part each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import TypeAlias

import cramjam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.files.file_sources import RemoteFile
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.writing import spills
from statelake.state_core.formats.writing.spills import Spill, gathered_groups, plan_parts
from statelake.state_core.formats.writing.unified_encode import END_OF_KEY_GROUP
from statelake.state_core.formats.writing.writer import (
    KeyedPart,
    SavepointDirectory,
    write_keyed_part,
)
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.serializers.framework.columns import U8Array

TOP = 8
# a run: key group, state id, entries; a spill is a file of several
Run: TypeAlias = "tuple[int, int, list[bytes]]"
ENTRIES = st.lists(st.binary(min_size=5, max_size=30).map(lambda entry: b"\0" * 5 + entry),
                   min_size=1, max_size=3)  # fmt: skip
RUNS = st.lists(st.tuples(st.integers(0, TOP - 1), st.integers(0, 2), ENTRIES), max_size=12)


def written_spill(directory: Path, name: str, runs: Sequence[Run]) -> Spill:
    """A spill file; states and key groups in any order, as those of several batches are."""
    data, rows = b"", []
    for group, state, entries in runs:
        size, last = sum(map(len, entries)), len(entries[-1])
        start, end = len(data), len(data) + size
        rows.append((group, state, start, end, end - last, len(entries)))
        data += b"".join(entries)
    (directory / name).write_bytes(data)
    return Spill(name, np.array(rows, np.int64).reshape(-1, 6), 1)


def expected(all_runs: Iterable[Run]) -> dict[int, bytes]:
    """Each key group: states in order, the last entry of each marked, and the end."""
    states: dict[int, dict[int, list[bytes]]] = {}
    for group, state, entries in all_runs:
        states.setdefault(group, {}).setdefault(state, []).extend(entries)
    groups = {}
    for group, mine in sorted(states.items()):
        content = b""
        for state, entries in sorted(mine.items()):
            last = entries[-1]
            marked = last[:4] + bytes([last[4] | 0x80]) + last[5:]
            content += state.to_bytes(2, "big") + b"".join(entries[:-1]) + marked
        groups[group] = content + END_OF_KEY_GROUP
    return groups


def contents(directory: Directory, part: KeyedPart, *, compressed: bool) -> dict[int, bytes]:
    """The bytes of each key group of a file."""
    data = Path(directory.full(part.name)).read_bytes()
    assert part.size == len(data)
    bounds = [*part.offsets.values(), len(data)]
    pieces = [data[start:end] for start, end in pairwise(bounds)]
    if compressed:
        pieces = [bytes(cramjam.snappy.decompress(piece)) for piece in pieces]
    return dict(zip(part.offsets, pieces, strict=True))


@given(
    st.lists(RUNS, max_size=4),
    st.sampled_from([1, 40, 200, 1 << 20]),
    st.sampled_from([1, 60, 1 << 20]),
    st.integers(1, TOP),
    st.booleans(),
)
def test_parts_are_the_file_that_one_task_writes(
    all_runs: list[list[Run]], part_bytes: int, piece_bytes: int, files: int, compressed: bool
) -> None:
    """Cut between key groups and within, parts become the bytes that are there uncut."""
    bounds = [TOP * index // files for index in range(files + 1)]
    ranges = [KeyGroupRange(a, b - 1) for a, b in pairwise(bounds)]
    results = []
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spills, "PART_BYTES", part_bytes)
        patch.setattr(spills, "LARGE_SHARE", 1 << 40)
        patch.setattr(spills, "PIECE_BYTES", piece_bytes)
        for name, whole in (("cut", False), ("whole", True)):
            target = SavepointDirectory(Path(root, name))
            made = [
                written_spill(Path(target.directory.root), str(index), runs)
                for index, runs in enumerate(all_runs)
            ]
            planned = plan_parts(made, ranges, whole_files=whole)
            written = [
                [
                    write_keyed_part(
                        target.directory, None, gathered_groups(target.directory, part),
                        compressed=compressed,
                    )
                    for part in parts
                ]
                for parts in planned
            ]  # fmt: skip
            joined = target.join(written)
            results.append([Path(target.directory.full(p.name)).read_bytes() for p in joined])
            content: dict[int, bytes] = {}
            for part, key_groups in zip(joined, ranges, strict=True):
                assert set(part.offsets) <= set(range(key_groups.first, key_groups.last + 1))
                content |= contents(target.directory, part, compressed=compressed)
            assert content == expected(run for runs in all_runs for run in runs)
            if whole:
                assert all(len(parts) == 1 for parts in planned)
            else:
                longest = max((len(b"".join(e)) for runs in all_runs for *_, e in runs), default=0)
                limit = part_bytes + piece_bytes + 2 * longest
                assert all(part.size <= limit for parts in planned for part in parts)
    assert results[0] == results[1]


@given(st.lists(RUNS, max_size=4), st.sampled_from([1, 40, 200]))
def test_whole_key_groups_are_in_one_part(all_runs: list[list[Run]], part_bytes: int) -> None:
    """However large they are."""
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spills, "PART_BYTES", part_bytes)
        patch.setattr(spills, "LARGE_SHARE", 1 << 40)
        patch.setattr(spills, "PIECE_BYTES", 1)
        made = [written_spill(Path(root), str(index), runs) for index, runs in enumerate(all_runs)]
        (parts,) = plan_parts(made, [KeyGroupRange(0, TOP - 1)], whole_groups=True)
        found = [
            (group, bytes(data))
            for part in parts
            for group, data in gathered_groups(Directory(root), part)
        ]
    assert found == list(expected(run for runs in all_runs for run in runs).items())


def test_only_a_file_that_is_large_beside_the_others_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are written once, by a task each."""
    monkeypatch.setattr(spills, "PART_BYTES", 100)
    monkeypatch.setattr(spills, "PIECE_BYTES", 10)
    ranges = [KeyGroupRange(group, group) for group in range(TOP)]
    for hot, cut in ((1, 0), (10, 1)):
        runs = [(group, 0, [bytes(20)]) for group in range(TOP) for _ in range(30)]
        runs += [(3, 0, [bytes(20)]) for _ in range(30 * (hot - 1))]
        planned = plan_parts([written_spill(tmp_path, "spill", runs)], ranges)
        assert [index for index, parts in enumerate(planned) if len(parts) > 1] == [3] * cut


def test_runs_are_asked_for_at_once_where_they_are_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of the first is answered before all of them are under way."""
    runs = [(3, 0, [b"\0" * 5 + bytes([number])]) for number in range(2 * spills.READS_AT_ONCE)]
    directory = Directory(tmp_path)
    (parts,) = plan_parts([written_spill(tmp_path, "spill", runs)], [KeyGroupRange(0, TOP - 1)])
    monkeypatch.setattr(directory, "local", False)
    together, read_into = Barrier(spills.READS_AT_ONCE), RemoteFile.read_into

    def awaited(self: RemoteFile, offset: int, out: U8Array) -> None:
        together.wait(60)
        read_into(self, offset, out)

    monkeypatch.setattr(RemoteFile, "read_into", awaited)
    (found,) = gathered_groups(directory, parts[0])
    assert {found[0]: bytes(found[1])} == expected(runs)
