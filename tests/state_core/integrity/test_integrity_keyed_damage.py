"""Keyed state, one kind of damage after the other: exactly its faults, and the rest is saved."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from statelake.state_core.model.handles import ChangelogByteHandle, ChangelogHandle, RelativeHandle
from tests.support.judging import said, salvaged
from tests.support.lakes import golden
from tests.support.savepoints.damaged import Damaged, damaged

WORDS = "wordcount-hashmap-canonical-p2-m128-flink1.20.0"
WIDE = "wordcount-hashmap-canonical-p2-m1024-flink2.3.0"
SNAPPY = "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0"
KINDS = "kinds-hashmap-canonical-p2-m128-flink2.3.0"
HEAP = "wordcount-hashmap-native-p2-m128-flink2.3.0"

Change = Callable[[bytearray], bytes | bytearray | None]


def flip(at: int, bits: int) -> Change:
    """Change some bits of one byte."""

    def change(data: bytearray) -> None:
        data[at] ^= bits

    return change


def longer_value(data: bytearray) -> bytes:
    """The first value, of 8 bytes, gets a ninth."""
    key = int.from_bytes(data[2:6], "big") & 0xFFFF
    at = 6 + key
    assert data[at : at + 4] == (8).to_bytes(4, "big")
    return (
        bytes(data[:at])
        + (9).to_bytes(4, "big")
        + bytes(data[at + 4 : at + 12])
        + b"\0"
        + bytes(data[at + 12 :])
    )


@pytest.mark.parametrize(
    ("change", "kind", "problem"),
    [
        (flip(2, 0x40), "key group", "an entry's length leads past the end of its key group"),
        (flip(6, 0x01), "key group", "a key that begins with another key group's number"),
        (flip(1, 0x07), "key group", "a state id that the header did not register"),
        (flip(-1, 0x01), "key group", "a state id that the header did not register"),
        (lambda data: data[:-2], "key group", "length leads past the end of its key group"),
        (lambda data: data + b"abc", "key group", "3 bytes or more behind the mark"),
        (flip(9, 0x02), "key", "but its hash is of key group"),
        (longer_value, "entry", "1 bytes behind a complete value"),
    ],
    ids=["length", "prefix", "state", "end mark", "no end mark", "behind", "key", "value"],
)  # fmt: skip
@pytest.mark.parametrize("subtask", [0, 1])
def test_one_key_group(
    change: Change, kind: str, problem: str, subtask: int, tmp_path: Path
) -> None:
    """One fault, of that key group; of all others every entry is saved."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    group = one.groups(subtask)[5]
    one.change_group(subtask, group, change)
    report = check_snapshot(one.path)
    assert said(report) == [(kind, subtask, group)]
    (fault,) = report.faults
    assert problem in fault.problem
    assert f"key group {group}, offset" in fault.place
    done = salvaged(one, group)
    assert [loss.where.key_groups for loss in done.lost] == [fault.where.key_groups]


def test_a_group_of_many(tmp_path: Path) -> None:
    """With a prefix of two bytes, and far more key groups."""
    one = damaged(golden(WIDE), tmp_path / "damaged")
    groups = [one.groups(0)[3], one.groups(1)[-1]]
    one.change_group(0, groups[0], flip(7, 0x01))
    one.change_group(1, groups[1], lambda data: data[:-3])
    report = check_snapshot(one.path)
    assert said(report) == [("key group", 0, groups[0]), ("key group", 1, groups[1])]
    salvaged(one, *groups)


def test_several_at_once(tmp_path: Path) -> None:
    """Faults of both subtasks, of neighbouring key groups, and two of one, all found."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    first = one.groups(0)
    one.change_group(0, first[2], flip(2, 0x40))
    one.change_group(0, first[3], lambda data: data + b"\0")
    one.change_group(0, first[9], flip(9, 0x01))
    other = one.groups(1)[0]
    one.change_group(1, other, longer_value)
    one.change_group(1, other, lambda data: data + b"\1\2")
    report = check_snapshot(one.path)
    assert said(report) == [
        ("key group", 0, first[2]), ("key group", 0, first[3]), ("key", 0, first[9]),
        ("key group", 1, other), ("entry", 1, other),
    ]  # fmt: skip
    done = salvaged(one, first[2], first[9], other)
    assert len(done.lost) == 5
    (trailing,) = [loss for loss in done.lost if "2 bytes or more" in loss.why]
    assert trailing.size is not None


def test_what_precedes_a_break_is_saved(tmp_path: Path) -> None:
    """Of a key group with many entries all that come before the break."""
    one = damaged(golden(KINDS), tmp_path / "damaged")
    group = max(one.groups(0), key=lambda held: one.span(0, held)[1] - one.span(0, held)[0])
    size = one.span(0, group)[1] - one.span(0, group)[0]
    one.change_group(0, group, lambda data: data[: size // 2])
    assert said(check_snapshot(one.path)) == [("key group", 0, group)]
    done = salvaged(one, group)
    everything = check_snapshot(one.origin).checked.entries
    per_group = everything // len(one.groups(0) + one.groups(1))
    assert everything - size // 9 < done.entries < everything
    assert everything - done.entries < 2 * per_group + size // 20


def test_a_file_that_was_cut_off(tmp_path: Path) -> None:
    """The file, the key groups behind its end, and the one that is cut."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    groups = one.groups(1)
    cut = groups[-3]
    keep = one.span(1, cut)[0] + 9
    one.change(one.file(1), lambda data: data[:keep])
    report = check_snapshot(one.path)
    assert said(report) == [
        ("file", 1, None), *_behind(groups[-2:]), ("key group", 1, cut)
    ]  # fmt: skip
    assert f"{keep} bytes, and `_metadata` says" in report.faults[0].problem
    done = salvaged(one, *groups[-3:])
    stream = one.keyed(1).stream
    assert stream is not None
    assert sum(loss.size or 0 for loss in done.lost) == stream.size - one.span(1, cut)[0]


def _behind(groups: list[int]) -> list[tuple[str, int, object]]:
    """The faults of two key groups that are gone: one, if they are neighbours."""
    first, last = groups
    if last == first + 1:
        return [("key groups", 1, (first, last))]
    return [("key groups", 1, first), ("key groups", 1, last)]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """One fault; the other subtask's key groups are saved."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    one.file(0).unlink()
    report = check_snapshot(one.path)
    assert said(report) == [("file", 0, None)]
    assert "no such file" in report.faults[0].problem
    done = salvaged(one, *range(64))
    (lost,) = done.lost
    stream = one.keyed(0).stream
    assert stream is not None
    assert (lost.where.subtask, lost.size) == (0, stream.size)
    assert str(lost.where.key_groups) == "0-63"


@pytest.mark.parametrize("path", ["../elsewhere", "/etc/hostname", "a/../../b"])
def test_a_path_that_leads_out(path: str, tmp_path: Path) -> None:
    """It is not followed."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    handle = one.keyed(1)
    assert isinstance(handle.stream, RelativeHandle)
    one.set_keyed(1, replace(handle, stream=replace(handle.stream, path=path)))
    report = check_snapshot(one.path)
    assert said(report) == [("file", 1, None)]
    assert "not inside the snapshot" in report.faults[0].problem
    salvaged(one, *range(64, 128))


def test_two_key_groups_that_changed_places(tmp_path: Path) -> None:
    """Both are wrong, and no other."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    handle = one.keyed(0)
    a, b = one.groups(0)[4], one.groups(0)[8]
    offsets = list(handle.offsets)
    offsets[a], offsets[b] = offsets[b], offsets[a]
    one.set_keyed(0, replace(handle, offsets=tuple(offsets)))
    report = check_snapshot(one.path)
    assert said(report) == [("key group", 0, a), ("key group", 0, b)]
    assert {fault.problem for fault in report.faults} == {
        "a key that begins with another key group's number"
    }
    salvaged(one, a, b)


@pytest.mark.parametrize(
    ("offset", "problem"),
    [(5, "lies inside the header"), (10**9, "lies outside the file's")],
)
def test_offsets_that_lead_nowhere(offset: int, problem: str, tmp_path: Path) -> None:
    """The key group is named; the bytes that were its own are behind the one before it."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    handle = one.keyed(0)
    groups = one.groups(0)
    offsets = list(handle.offsets)
    offsets[groups[6]] = offset
    one.set_keyed(0, replace(handle, offsets=tuple(offsets)))
    report = check_snapshot(one.path)
    assert said(report) == [("key groups", 0, groups[6]), ("key group", 0, groups[5])]
    assert problem in report.faults[0].problem
    assert "behind the mark that ends the key group" in report.faults[1].problem
    salvaged(one, groups[6])


def test_handles_that_overlap(tmp_path: Path) -> None:
    """Both claim key groups 62 and 63."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    handle = one.keyed(1)
    one.set_keyed(1, replace(handle, first=62, offsets=(0, 0, *handle.offsets)))
    report = check_snapshot(one.path)
    assert said(report) == [("key groups", 1, (62, 63))]
    assert "in the handle of subtask 0 too" in report.faults[0].problem
    salvaged(one)


def test_key_groups_in_no_handle(tmp_path: Path) -> None:
    """The handle of a subtask ends too soon, and its file has them all the same."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    handle = one.keyed(1)
    one.set_keyed(1, replace(handle, offsets=handle.offsets[:-10]))
    report = check_snapshot(one.path)
    last = max(group for group in one.groups(1))
    assert said(report) == [("key groups", 1, (118, 127)), ("key group", 1, last)]
    assert "in no handle" in report.faults[0].problem
    salvaged(one, *range(118, 128))


def test_key_groups_that_can_not_be(tmp_path: Path) -> None:
    """Of 128 key groups, 65 to 128 are claimed: one too far, and every key is one too far."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    one.set_keyed(1, replace(one.keyed(1), first=65))
    report = check_snapshot(one.path)
    kinds = [(kind, group) for kind, _, group in said(report)]
    assert kinds[:2] == [("key groups", None), ("key groups", 64)]
    assert "key groups 65-128 claimed, and there are 128" in report.faults[0].problem
    assert {kind for kind, _ in kinds[2:]} == {"key group"}
    salvaged(one, *range(64, 128))


def test_a_subtask_that_left_nothing(tmp_path: Path) -> None:
    """Flink allows it, so it is no fault, but it is said."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    one.set_keyed(1, None)
    report = check_snapshot(one.path)
    assert report.sound
    (unchecked,) = report.unchecked
    assert "left no keyed state" in unchecked.why
    assert str(unchecked.where.key_groups) == "64-127"


def test_a_header_that_can_not_be_read(tmp_path: Path) -> None:
    """One fault for the file; nothing of it can be, and all of the other is."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    one.change(one.file(1), flip(3, 0x30))
    report = check_snapshot(one.path)
    assert said(report) == [("header", 1, None)]
    assert "keyed state of version" in report.faults[0].problem
    salvaged(one, *range(64, 128))


LONG = b"LongSerializer$LongSerializerSnapshot"


def test_a_serializer_that_nobody_knows(tmp_path: Path) -> None:
    """Its values are bytes; all else is checked, and salvaged as it is."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    for index in (0, 1):
        one.change(one.file(index), lambda data: data.replace(LONG, b"X" * len(LONG), 1))
    report = check_snapshot(one.path)
    assert report.sound
    assert [
        "XXXX" in unchecked.why and "not decoded" in unchecked.why for unchecked in report.unchecked
    ] == [True]
    whole = check_snapshot(one.origin)
    assert (report.checked.entries, report.checked.hashed) == (
        whole.checked.entries, whole.checked.hashed,
    )  # fmt: skip
    before = one.file(0).read_bytes()
    to = tmp_path / "salvaged"
    assert salvage_snapshot(one.path, to).lost == ()
    again = Damaged(one.origin, to, one.uid)
    assert len(again.file(0).read_bytes()) == len(before)
    assert check_snapshot(again.path).sound


def test_a_serializer_that_is_none(tmp_path: Path) -> None:
    """It is not checked, which is no fault, and its file is carried as it is."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    one.change(one.file(0), lambda data: data.replace(LONG, b"-" * len(LONG), 1))
    report = check_snapshot(one.path)
    assert report.sound
    assert any("----" in unchecked.why for unchecked in report.unchecked)
    before = one.file(0).read_bytes()
    to = tmp_path / "salvaged"
    assert salvage_snapshot(one.path, to).lost == ()
    again = Damaged(one.origin, to, one.uid)
    assert again.file(0).read_bytes() == before
    assert again.keyed(0).offsets == one.keyed(0).offsets


def test_a_changelog(tmp_path: Path) -> None:
    """One without changes is what it wraps; with changes that are none all of it is lost."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    log = ChangelogByteHandle(64, 64, 0, 1, ((64, b"x"),), "log")
    wrapped = [
        ChangelogHandle(64 * index, 64, -1, (one.keyed(index),), (), 1, 1, "id") for index in (0, 1)
    ]
    one.set_keyed(0, wrapped[0])
    one.set_keyed(1, replace(wrapped[1], changes=(log,)))
    report = check_snapshot(one.path)
    assert not report.sound
    assert ["too short for a state id" in fault.problem for fault in report.faults] == [True]
    salvaged(one, *range(64, 128))


@pytest.mark.parametrize("at", [11, 20, 40])
def test_damaged_compression(at: int, tmp_path: Path) -> None:
    """A byte of a Snappy stream: its checksum tells."""
    one = damaged(golden(SNAPPY), tmp_path / "damaged")
    group = one.groups(1)[7]
    one.change_group(1, group, flip(at, 0x10))
    report = check_snapshot(one.path)
    assert said(report) == [("key group", 1, group)]
    assert "Snappy" in report.faults[0].problem
    salvaged(one, group)


def test_a_break_in_the_middle_of_compression(tmp_path: Path) -> None:
    """Of a key group with many Snappy chunks those before the damaged one are saved."""
    values = [random.Random(n).randbytes(1500).hex() for n in range(300)]
    rows = pa.table({"key": [f"key {n}" for n in range(300)], "value": values})
    state = NewKeyedState("text", rows, value="String")
    operator = NewOperator("one", "String", (state,), parallelism=1, max_parallelism=1)
    write_snapshot(tmp_path / "origin", [operator], compression="snappy", metadata_version=5)
    shutil.copytree(tmp_path / "origin", tmp_path / "damaged")
    one = Damaged(tmp_path / "origin", tmp_path / "damaged", "one")
    begin, end = one.span(0, 0)
    one.change_group(0, 0, flip((end - begin) // 2, 0x10))
    report = check_snapshot(one.path)
    assert said(report) == [("key group", 0, 0)]
    done = salvaged(one, 0)
    assert 100 < done.entries < 200
    assert report.checked.entries == done.entries


# --------------------------------------------------------------------------- the heap's own format


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (flip(3, 0x01), "where"),
        (flip(5, 0x07), "which the header did not register"),
        (flip(6, 0x70), "entries declared in too few bytes"),
        (lambda data: data + b"xy", "2 bytes behind the last state"),
        (lambda data: data[:-1], ""),
    ],
    ids=["number", "state", "huge count", "behind", "cut"],
)
def test_the_heap_format(change: Change, problem: str, tmp_path: Path) -> None:
    """The same, in the format of the heap backend."""
    one = damaged(golden(HEAP), tmp_path / "damaged")
    group = next(g for g in one.groups(0)[3:] if one.span(0, g)[1] - one.span(0, g)[0] > 30)
    one.change_group(0, group, change)
    report = check_snapshot(one.path)
    assert said(report) == [("key group", 0, group)]
    assert problem in report.faults[0].problem
    salvaged(one, group)


def test_a_count_in_the_heap_format(tmp_path: Path) -> None:
    """One entry more than there are: the rest of the key group is read as one."""
    one = damaged(golden(HEAP), tmp_path / "damaged")
    group = next(g for g in one.groups(0)[3:] if one.span(0, g)[1] - one.span(0, g)[0] > 30)
    one.change_group(0, group, flip(9, 0x03))
    report = check_snapshot(one.path)
    assert ("key group", 0, group) in said(report)
    assert {place[1:] for place in said(report)} == {(0, group)}
    salvaged(one, group)
