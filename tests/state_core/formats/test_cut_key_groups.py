"""Key groups of the unified format read in pieces: no entry twice, none left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.formats.keyed import unified_file
from statelake.state_core.formats.keyed.unified_file import UnifiedFile, UnifiedKeyedFile
from statelake.state_core.formats.rewriting.recompression import recompress_snapshot
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.model.entries import Entries, FilePiece
from statelake.state_core.model.handles import KeyGroupRange
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

CANONICAL = [case for case in golden_cases() if "canonical" in case.name]
WINDOW = 300


def unified_files(snapshot: Path) -> Iterator[UnifiedFile]:
    """The files of keyed state of a savepoint."""
    for operator in open_snapshot(snapshot).operators:
        for file in operator.keyed_files:
            if isinstance(file, UnifiedKeyedFile) and file.file.spans:
                yield file.file


def listed(batches: Iterable[Entries]) -> list[tuple[int, int, str, bytes]]:
    """State, key group, place and bytes of each entry."""
    return [
        (int(state), int(group), entries.place(int(start)), entries.data[start:end].tobytes())
        for entries in batches
        for state, group, start, end in zip(
            entries.state_of, entries.group_of, entries.key_start, entries.value_end, strict=True
        )
    ]


def pieces_of(file: UnifiedFile, piece_bytes: int, window: int = WINDOW) -> list[FilePiece]:
    """All its key groups in pieces."""
    key_groups = KeyGroupRange(file.spans[0].group, file.spans[-1].group)
    return file.cut(key_groups, piece_bytes, window)


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("case", CANONICAL, ids=lambda case: case.name)
def test_pieces_are_the_whole(
    case: GoldenCase, compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces of what Flink wrote have its entries, in order, at the same offsets."""
    monkeypatch.setattr(unified_file, "TABLE_ROWS", 3)
    recompress_snapshot(case.snapshot, tmp_path / "s", compression)
    cut = 0
    for file in unified_files(tmp_path / "s"):
        pieces = pieces_of(file, 200)
        cut += len(pieces) - 1
        assert sum(piece.size for piece in pieces) == sum(s.end - s.start for s in file.spans)
        read = [row for piece in pieces for row in listed(file.entries_of(piece, WINDOW))]
        assert read == listed(file.entries())
    assert cut or "operator" in case.name


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, UnifiedFile]:
    """One key's map and timers, with small states around: in Snappy, several chunks."""
    keys, entries = np.arange(20), np.arange(6000)
    values = np.char.add("value ", entries.astype("U10"))
    hot = np.full(len(entries), 7)
    states = (
        NewKeyedState("count", pa.table({"key": keys, "value": keys}), value="Long"),
        NewKeyedState(
            "map", pa.table({"key": hot, "user_key": entries, "value": values}),
            kind="map", user_key="Long", value="String",
        ),
        NewKeyedState.timers("event", pa.table({"key": hot, "timestamp": entries})),
    )  # fmt: skip
    root, files = tmp_path_factory.mktemp("large"), {}
    write_snapshot(root / "s", [NewOperator("op", "Long", states, max_parallelism=128)])
    for compression in ("none", "snappy"):
        recompress_snapshot(root / "s", root / compression, compression)
        (files[compression],) = unified_files(root / compression)
    return files


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["none", "snappy"]),
    st.integers(1, 1 << 17),
    st.integers(1000, 1 << 17),
    st.integers(1000, 1 << 17),
)
@pytest.mark.full
def test_any_cut(
    large: dict[str, UnifiedFile], compression: str, piece_bytes: int, cut_window: int, window: int
) -> None:
    """Wherever it is cut, and however much is read at once."""
    file = large[compression]
    pieces = pieces_of(file, piece_bytes, cut_window)
    read = [row for piece in pieces for row in listed(file.entries_of(piece, window))]
    assert read == listed(file.entries())
    assert len(pieces) > 1 or piece_bytes > 15_000


def hot_file(root: Path, states: tuple[NewKeyedState, ...]) -> UnifiedFile:
    """A file of one subtask."""
    write_snapshot(root, [NewOperator("op", "Long", states, max_parallelism=128)])
    (file,) = unified_files(root)
    return file


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 40),
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
    st.integers(500, 20_000),
)
@example(key=3, lengths=[4], piece_bytes=625)
@pytest.mark.full
def test_a_guess_is_a_cut_or_is_told(key: int, lengths: list[int], piece_bytes: int) -> None:
    """Values that look like anything, and a key in key groups that look like lengths."""
    entries = 3000
    values = [bytes([7 * i % 5, 0, 0, 9])[:length] * 2 for i, length in enumerate(lengths)]
    rows = {
        "key": [key] * entries + list(range(40)),
        "user_key": list(range(entries + 40)),
        "value": [values[i % len(values)].hex() for i in range(entries + 40)],
    }
    state = NewKeyedState("map", pa.table(rows), kind="map", user_key="Long", value="String")
    with TemporaryDirectory() as root:
        file = hot_file(Path(root) / "s", (state,))
        key_groups = KeyGroupRange(file.spans[0].group, file.spans[-1].group)
        pieces = file.guess(key_groups, piece_bytes)
        assert len(pieces) > 1
        assert sum(piece.size for piece in pieces) == sum(s.end - s.start for s in file.spans)
        read = [row for piece in pieces for row in listed(file.entries_of(piece))]
        assert read == listed(file.entries())


def test_a_wrong_guess_is_told(large: dict[str, UnifiedFile], tmp_path: Path) -> None:
    """A byte away no entry begins; with several states, and with Snappy, nothing is guessed."""
    rows = {"key": [7] * 3000, "user_key": range(3000), "value": range(3000)}
    state = NewKeyedState("map", pa.table(rows), kind="map", user_key="Long", value="Long")
    file = hot_file(tmp_path / "s", (state,))
    (span,) = file.spans
    first, *_ = file.guess(KeyGroupRange(span.group, span.group), 5000)
    for by in range(-20, 21):
        end = replace(first.end, at=first.end.at + by)
        if by:
            with pytest.raises(CorruptSnapshotError, match="offset"):
                list(file.entries_of(replace(first, end=end)))
    for compression in ("none", "snappy"):
        assert large[compression].guess(KeyGroupRange(0, 127), 5000) == []


@pytest.mark.parametrize("window", [WINDOW, 1 << 20])
def test_entries_behind_a_key_groups_end_are_none_of_its(window: int, tmp_path: Path) -> None:
    """Flink passes over what is behind the mark, even if it looks like entries."""
    rows = {"key": [7] * 3000, "user_key": range(3000), "value": range(3000)}
    state = NewKeyedState("map", pa.table(rows), kind="map", user_key="Long", value="Long")
    file = hot_file(tmp_path / "s", (state,))
    (span,) = file.spans
    data = np.empty(span.end, np.uint8)
    file.source.read_into(0, data)
    behind = data[span.start + 2 :].tobytes()
    source = InlineSource("longer", data.tobytes() + behind)
    longer = replace(file, source=source, spans=(replace(span, end=source.size),))
    assert len(listed(longer.entries())) == 3000
    pieces = longer.guess(KeyGroupRange(span.group, span.group), 5000)
    with pytest.raises(CorruptSnapshotError, match="longer, key group"):
        listed(chain.from_iterable(longer.entries_of(piece, window) for piece in pieces))


def test_a_guess_before_a_states_number_is_told(tmp_path: Path) -> None:
    """Where a run of entries has ended none begins, but behind the next run's state number."""
    rows = {"key": [7] * 3000, "user_key": range(3000), "value": range(3000)}
    state = NewKeyedState("map", pa.table(rows), kind="map", user_key="Long", value="Long")
    file = hot_file(tmp_path / "s", (state,))
    (span,) = file.spans
    first, *_ = file.guess(KeyGroupRange(span.group, span.group), 5000)
    data = np.empty(span.end, np.uint8)
    file.source.read_into(0, data)
    *_, (*_, place, entry) = listed(file.entries_of(first))
    last = int(place.rpartition(" ")[2]) - file.prefix
    assert last + file.prefix + len(entry) == first.end.at
    data[last] |= 0x80
    mixed = data[: first.end.at].tobytes() + bytes(2) + data[first.end.at :].tobytes()
    runs = replace(file, source=InlineSource("runs", mixed), spans=(replace(span, end=len(mixed)),))
    assert listed(runs.entries_of(replace(first, end=replace(first.end, at=first.end.at + 2))))
    with pytest.raises(CorruptSnapshotError, match="runs, key group"):
        listed(runs.entries_of(first))


def test_where_entries_are_large_nothing_is_guessed(tmp_path: Path) -> None:
    """Too few follow on each other in what is read of them: they are cut."""
    values = ["x" * 40_000] * 60
    rows = {"key": [7] * 60, "user_key": range(60), "value": values}
    state = NewKeyedState("map", pa.table(rows), kind="map", user_key="Long", value="String")
    file = hot_file(tmp_path / "s", (state,))
    (span,) = file.spans
    assert file.guess(KeyGroupRange(span.group, span.group), 500_000) == []


def test_a_file_that_changed_in_between(
    large: dict[str, UnifiedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that is longer than when it was cut is told, with file and offset."""
    monkeypatch.setattr(unified_file, "TABLE_ROWS", 1)
    file = large["none"]
    piece = pieces_of(file, 1)[50]
    data = np.empty(file.source.size, np.uint8)
    file.source.read_into(0, data)
    (entry,) = listed(file.entries_of(piece))
    at = piece.begin.at + 4 + int.from_bytes(data[piece.begin.at : piece.begin.at + 4].tobytes())
    data[at + 3] += 1
    changed = replace(file, source=InlineSource("changed", data.tobytes()))
    with pytest.raises(CorruptSnapshotError, match="was changed while it was read") as caught:
        listed(changed.entries_of(piece))
    assert f"changed, key group {entry[1]}, offset {piece.begin.at}" in str(caught.value)
