"""Timers on the heap beside RocksDB: raw keyed state that is read as any queue of timers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError, StateError
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.formats.keyed.headed_file import FileHeader
from statelake.state_core.formats.keyed.raw_timers import (
    RawTimersFile,
    holds_timers,
    raw_spans,
    read_timers_header,
)
from statelake.state_core.formats.reader import Snapshot, without_raw_timers
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from statelake.state_core.model.handles import KeyGroupRange, KeyGroupsHandle, KeyGroupsKind
from statelake.state_core.model.snapshot import Operator
from tests.support.savepoints.heap_timers import TIMER_KEYS, heap_timers, heap_timers_lines

EVENT, PROCESSING = "_timer_state/event_user-timers", "_timer_state/processing_user-timers"


def test_every_timer_that_goes_off(tmp_path: Path) -> None:
    """Flink printed those of event time when it ended; those of processing time lie ahead."""
    operator = open_snapshot(heap_timers("kinds", tmp_path / "chk")).operator("kinds")
    assert [timer.name for timer in operator.timers] == [EVENT, PROCESSING]
    rows = operator.state(EVENT).to_arrow()
    found = zip(
        rows.column("key").to_pylist(),
        rows.column("timestamp").cast("int64").to_pylist(),
        strict=True,
    )
    expected = [
        (heap_timers_line["key"], heap_timers_line["ts"])
        for heap_timers_line in heap_timers_lines("kinds")
        if "timer" in heap_timers_line
    ]
    assert sorted(found) == sorted(expected)
    assert operator.state(PROCESSING).to_arrow().num_rows == TIMER_KEYS["kinds"] // 3
    assert operator.raw_bytes == 0


def test_windows_are_namespaces(tmp_path: Path) -> None:
    """A timer fires at a window's last millisecond; an operator without timers has none."""
    snapshot = open_snapshot(heap_timers("windows", tmp_path / "chk"))
    rows = snapshot.operator("tumbling").timers[0].to_arrow().to_pylist()
    assert len(rows) == 80
    for row in rows:
        assert int(row["timestamp"]) == row["namespace"]["end"] - 1
    raw = [
        subtask.raw_keyed for op in snapshot.metadata.operators for subtask in op.subtasks.values()
    ]
    assert sum(timers is not None for timers in raw) > 2 * len(
        [operator for operator in snapshot.operators if operator.timers]
    )
    assert all(operator.raw_bytes == 0 for operator in snapshot.operators)


def test_timers_stay_beside_state_that_is_kept_as_bytes(tmp_path: Path) -> None:
    """Such an operator has no tables, in which they would be."""
    snapshot = open_snapshot(heap_timers("kinds", tmp_path / "chk"))
    whole, (kinds,) = snapshot.metadata, (each for each in snapshot.operators if each.timers)
    kept = without_raw_timers(whole, snapshot.files, {kinds.operator_id})
    assert kept == whole != without_raw_timers(whole, snapshot.files)


# ------------------------------------------------------------------------------------- damage


def group_bytes(operator: Operator) -> tuple[RawTimersFile, bytes]:
    """A subtask's timers, and all bytes of them."""
    file = next(
        keyed_file for keyed_file in operator.keyed_files if isinstance(keyed_file, RawTimersFile)
    )
    source = file.source
    out = np.empty(source.size, np.uint8)
    source.read_into(0, out)
    return file, out.tobytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[RawTimersFile, bytes]:
    """A subtask's timers."""
    path = heap_timers("kinds", tmp_path_factory.mktemp("timers") / "chk")
    return group_bytes(open_snapshot(path).operator("kinds"))


def changed(snapshot: Snapshot, before: bytes, after: bytes, to: Path) -> Path:
    """The checkpoint with other timers, which lie in its `_metadata`."""
    to.mkdir()
    data = (Path(snapshot.location.removeprefix("file://")) / "_metadata").read_bytes()
    assert len(before) == len(after)
    assert data.count(before) == 1
    (to / "_metadata").write_bytes(data.replace(before, after))
    return to


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("version", "header"),
        ("identifier", "key group"),
        ("count", "key group"),
        ("key", "key"),
    ],
)
def test_damage_is_found_and_left_out(what: str, kind: str, tmp_path: Path) -> None:
    """Every timer is read, and its key hashed; what can't be restored is not salvaged."""
    snapshot = open_snapshot(heap_timers("kinds", tmp_path / "chk"))
    file, data = group_bytes(snapshot.operator("kinds"))
    assert check_snapshot(snapshot.location).sound
    full = next(
        span
        for span in file.spans[1:]
        if sum(len(entries) for entries in file.entries(KeyGroupRange(span.group, span.group)))
    )
    end = full.end
    at = {
        "version": file.spans[0].start + 7,
        "identifier": full.start,
        "count": data.index(b"VoidNamespaceSerializerSnapshot", full.start) + 31 + 4 + 3,
        "key": end - 4 - 8 - 1 - 2 if data[end - 4 : end] == bytes(4) else end - 8 - 1 - 2,
    }[what]
    damaged = bytearray(data)
    damaged[at] ^= 0x15
    path = changed(snapshot, data, bytes(damaged), tmp_path / "damaged")
    report = check_snapshot(path)
    assert {fault.kind.value for fault in report.faults} == {kind}
    salvaged = salvage_snapshot(path, tmp_path / "salvaged")
    assert any("timers on the heap" in loss.why for loss in salvaged.lost)
    assert check_snapshot(tmp_path / "salvaged").sound
    kept = open_snapshot(tmp_path / "salvaged").operator("kinds")
    assert 0 < kept.state(EVENT).to_arrow().num_rows < 24 + 3
    assert kept.state("name").to_arrow().num_rows == 24


@given(data=st.data())
def test_mutated_timers(data: st.DataObject, whole: tuple[RawTimersFile, bytes]) -> None:
    """An error of ours, or timers; never anything else."""
    file, raw = whole
    mutated = bytearray(raw[file.spans[0].start : file.spans[4].end])
    for _ in range(data.draw(st.integers(1, 5))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    source = InlineSource("timers", bytes(mutated))
    spans = file.spans[:5]
    try:
        header = read_timers_header(source, spans)
        if header is not None:
            timers = RawTimersFile("", FileHeader(header), KeyGroupRange(0, 4), 128, source, spans)
            for entries in timers.entries():
                assert len(entries) > 0
    except StateError:
        return


@pytest.mark.parametrize("offsets", [(0, 0), (0, 90), (5, 5)])
def test_offsets_that_can_not_be(offsets: tuple[int, ...]) -> None:
    """Two at one place, or one behind the end."""
    handle = KeyGroupsHandle(KeyGroupsKind.NATIVE, 7, offsets, None)
    with pytest.raises(CorruptSnapshotError, match="key group"):
        raw_spans(handle, 90, "timers")


def test_what_is_not_timers() -> None:
    """An operator's own raw state begins otherwise, and key groups may be missing."""
    source = InlineSource("raw", b"anything at all" * 9)
    handle = KeyGroupsHandle(KeyGroupsKind.NATIVE, 7, (-1, 0, 40), None)
    spans = raw_spans(handle, source.size, "raw")
    assert [(span.group, span.start, span.end) for span in spans] == [(8, 0, 40), (9, 40, 135)]
    assert not holds_timers(source, spans)
    assert not holds_timers(source, ())
