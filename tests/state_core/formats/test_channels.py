"""Records in flight of unaligned checkpoints: those of real Flink, and any others in any pieces."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError, SnapshotError, UnsupportedFormatError
from statelake.state_core.files.file_sources import ByteSource, InlineSource
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.channels import (
    GATES_TRIED,
    ChannelElements,
    InFlight,
    _walk,
    channels_of,
    read_channels,
    records_in_flight,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from statelake.state_core.model.channels import Channel, ChannelFile
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.savepoints.backlogs import (
    BACKLOGS,
    UIDS,
    elements_in,
    next_number,
    numbers_in_flight,
    numbers_seen,
    unpack_backlog,
)

every_backlog = pytest.mark.parametrize("name", BACKLOGS)


def opened(name: str, tmp_path: Path) -> Snapshot:
    """A golden checkpoint."""
    return open_snapshot(unpack_backlog(name, tmp_path), uids=UIDS)


@every_backlog
def test_every_record_is_in_one_place(name: str, tmp_path: Path) -> None:
    """What the source has sent is in the state or in flight, each number once."""
    snapshot = opened(name, tmp_path)
    in_flight, sent = numbers_in_flight(snapshot), next_number(snapshot)
    assert numbers_seen(snapshot) + in_flight == Counter(range(sent))
    found = records_in_flight(channels_of(snapshot))
    assert sum(operator.records for operator in found) == in_flight.total() > 300
    assert [operator.unknown for operator in found] == [0, 0, 0, 0]


@every_backlog
def test_elements_are_what_was_sent(name: str, tmp_path: Path) -> None:
    """Values, timestamps and watermarks; texts within one buffer, and of several."""
    rows = elements_in(opened(name, tmp_path), ("times", "seen"))
    records = [row for row in rows if row["element"] == "record"]
    for row in records:
        number, text = row["value"]["f0"], row["value"]["f1"]
        assert row["timestamp"] == number * 1000
        assert text == f"größe-{number} " * (700 if number % 50 == 7 else number % 9)
    assert any(row["value"]["f0"] % 50 == 7 for row in records)
    others = {row["element"]: row for row in rows if row["element"] != "record"}
    assert list(others) == ["watermark"]
    assert others["watermark"]["value"] is None
    assert others["watermark"]["timestamp"] % 1000 == 999


@every_backlog
def test_records_lie_in_two_subtasks(name: str, tmp_path: Path) -> None:
    """Some have been received in part: a length, a part of a length, more than a buffer."""
    elements = list(read_channels(channels_of(opened(name, tmp_path))))
    assert all(one.separable for one in elements)
    received = [one.begins_one for one in elements if one.channel.received]
    sent = [one.ends_one for one in elements if not one.channel.received]
    assert sum(map(bool, received)) == sum(map(bool, sent)) >= 4
    assert any(0 < size < 4 for size in received)
    assert any(size > 3000 for size in (*received, *sent))


@every_backlog
def test_a_channel_that_cannot_be_read_closes_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in turn: the records of others are the same, or not told apart where it has a part."""
    channels = channels_of(opened(name, tmp_path))
    whole = {one.channel: one for one in read_channels(channels)}
    read, told = Channel.buffers, 0
    for lost in channels:
        damaged = CorruptSnapshotError("no buffer", place="the file")

        def buffers(
            channel: Channel, lost: Channel = lost, damaged: Exception = damaged
        ) -> list[bytes]:
            if channel == lost:
                raise damaged
            return read(channel)

        monkeypatch.setattr(Channel, "buffers", buffers)
        with pytest.raises(CorruptSnapshotError, match="no buffer"):
            list(read_channels(channels))
        problems: list[str] = []
        found = list(read_channels(channels, None, problems))
        assert (len(problems), lost.place in problems[0]) == (1, True)
        assert {one.channel for one in found} == {*channels} - {lost}
        for one in found:
            right = whole[one.channel]
            assert (one.buffers, one.size) == (right.buffers, right.size)
            assert one.records in (right.records, None), (lost, one.channel)
            told += one.records is not None
        monkeypatch.undo()
    assert told > 0.85 * len(channels) * (len(channels) - 1)


def test_sizes_are_of_the_channels(tmp_path: Path) -> None:
    """Of the file that all subtasks share each operator has its own part, as Flink says."""
    snapshot = opened("flink-2.3.0", tmp_path)
    sizes = {operator.label: operator.in_flight_bytes for operator in snapshot.operators}
    channels = channels_of(snapshot)
    for found in records_in_flight(channels):
        of_operator = [one.size for one in channels if one.operator == found.operator]
        assert found.size + 4 * found.buffers == sizes[found.operator] == sum(of_operator)
    assert len({channel.file for channel in channels}) == 1
    largest = max(file.stat().st_size for file in tmp_path.rglob("*-*-*"))
    assert sum(sizes.values()) + 4 == largest  # the file's version
    assert snapshot.operator("texts").total_bytes == sizes["texts"]


def test_a_wrong_type_is_said_to_be_one(tmp_path: Path) -> None:
    """With the channel and the byte."""
    elements = next(
        one
        for one in read_channels(channels_of(opened("flink-2.3.0", tmp_path)))
        if one.records and one.channel.operator == "texts"
    )
    with pytest.raises(CorruptSnapshotError, match=r"no Tuple2<Long, String>: ") as told:
        elements.decode(parse_type("Tuple2<Long, String>").restore_serializer())
    assert told.value.place.startswith("operator texts, subtask ")


# ------------------------------------------------------------------------------- of our making

ELEMENTS = st.one_of(
    st.tuples(st.just(0), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40)),
    st.tuples(st.just(1), st.none(), st.binary(max_size=40)),
    st.tuples(st.just(2), st.integers(-(2**63), 2**63 - 1), st.none()),
    st.tuples(st.just(3), st.none(), st.none()),
    st.tuples(st.just(4), st.none(), st.none()),
    st.tuples(st.just(5), st.none(), st.none()),
    st.tuples(st.just(6), st.integers(-(2**63), 2**63 - 1), st.none()),
)
BETWEEN = {0: 0, 1: 0, 2: 0, 3: 28, 4: 4, 5: 1, 6: 4}
NAMES = ["record", "record", "watermark", "latency marker", "watermark status",
         "record attributes", "watermark"]  # fmt: skip


def written(tag: int, timestamp: int | None, value: bytes | None) -> bytes:
    """An element as `StreamElementSerializer` writes it, with its length."""
    out = DataOutput()
    out.write_byte(tag)
    out.write_bytes(bytes(BETWEEN[tag]))
    if timestamp is not None:
        out.write_long(timestamp)
    out.write_bytes(value or b"")
    content = out.to_bytes()
    return len(content).to_bytes(4, "big") + content


def file_of(*channels: list[bytes]) -> tuple[bytes, list[list[int]]]:
    """A file with the buffers of some channels, a buffer of each in turn, and their offsets."""
    data = bytearray(4)
    offsets: list[list[int]] = [[] for _ in channels]
    for turn in range(max(map(len, channels))):
        for channel, buffers in enumerate(channels):
            if turn < len(buffers):
                offsets[channel].append(len(data))
                data += len(buffers[turn]).to_bytes(4, "big") + buffers[turn]
    return bytes(data), offsets


def both_sides(*buffers: list[bytes]) -> list[ChannelElements]:
    """What was received of a channel, and what was still to be sent, in one file."""
    data, offsets = file_of(*buffers)
    file = ChannelFile(lambda: InlineSource("channels", data))
    channels = []
    for index, starts in enumerate(offsets):
        file.claim(starts)
        channels.append(
            Channel("id", "op", index == 0, index, 0, 1 - index, 0, tuple(starts), file)
        )
    return list(read_channels(channels))


@given(st.lists(ELEMENTS), st.data())
def test_any_elements_in_any_pieces(elements: list[Any], data: st.DataObject) -> None:
    """However they are cut into buffers and divided between the two sides, each is found once."""
    stream = b"".join(written(*one) for one in elements)
    at = data.draw(st.integers(0, len(stream)))
    sides = []
    for side in (stream[:at], stream[at:]):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(side)))))
        sides.append([side[begin:end] for begin, end in pairwise([0, *cuts, len(side)])])
    received, sent = both_sides(*sides)
    assert received.begins_one + sent.ends_one == 0 or received.begins_one * sent.ends_one > 0
    rows = [row for side in (received, sent) for row in side.decode().to_pylist()]
    assert [(row["element"], row["timestamp"], row["value"]) for row in rows] == [
        (NAMES[tag], timestamp, value) for tag, timestamp, value in elements
    ]
    counted = Counter(tag <= 1 for tag, _, _ in elements)
    whole = InFlight("op") + received + sent
    assert (whole.records, whole.others, whole.unknown) == (counted[True], counted[False], 0)


def test_parts_of_records_are_put_together_as_all_subtasks_have_them() -> None:
    """Two exchanges of numbers; a part of one looks like the length of all that follow.

    Taken for itself, what partition 0 has for subtask 0 is one long record.
    """
    longs = [written(1, None, number.to_bytes(8, "big")) for number in (7, 256, *range(32))]
    first, second, rest = longs[0], longs[1], b"".join(longs[2:])
    length = len(rest).to_bytes(4, "big")
    misleading = written(1, None, bytes(4) + length)
    # by subtask: what gate 0 and gate 1 have begun, what partitions 0 and 1 have the rest of
    begun = [(misleading[:-4], first[:3]), (second[:5], b"")]
    ended = [(misleading[-4:] + rest, first[3:]), (second[5:] + rest, rest)]
    buffers = [[side] for subtask in (*begun, *ended) for side in subtask]
    data, offsets = file_of(*buffers)
    file = ChannelFile(lambda: InlineSource("channels", data))
    channels = []
    for index, starts in enumerate(offsets):
        received, subtask, gate = index < 4, index // 2 % 2, index % 2
        operator = f"{'receiver' if received else 'sender'}-{gate}"
        sides = (subtask, 0) if received else (0, subtask)
        file.claim(starts)
        channels.append(
            Channel(operator, operator, received, sides[0], 0, sides[1], 0, tuple(starts), file)
        )
    assert len(_walk(misleading[-4:] + rest, ends_whole=True)[1]) == 1  # type: ignore[index]
    sent = [one for one in read_channels(channels) if not one.channel.received]
    assert [(one.records, one.ends_one) for one in sent] == [(33, 4), (1, 10), (33, 8), (32, 0)]


@pytest.mark.parametrize("gates", [GATES_TRIED, GATES_TRIED + 1])
def test_more_gates_than_any_job_has_are_not_tried(gates: int) -> None:
    """Between two subtasks: each would be tried with each partition."""
    element = written(1, None, b"value")
    data, offsets = file_of(*[[element[:6]]] * gates, [element[6:]])
    file = ChannelFile(lambda: InlineSource("channels", data))
    channels = []
    for gate, starts in enumerate(offsets):
        file.claim(starts)
        received = gate < gates
        channels.append(Channel("id", "op", received, 0, gate, 0, 0, tuple(starts), file))
    *_, sent = read_channels(channels)
    assert (sent.separable, sent.records) == ((True, 1) if gates == GATES_TRIED else (False, None))


@pytest.mark.parametrize(
    "buffer",
    [b"\0\0\0\1\7", b"\0\0\0\0\1", b"\0\0\0\5\2abcd", b"\x80\0\0\1\1", b"\0\0\0\3\0ab"],
    ids=["tag", "empty", "watermark", "negative", "timestamp"],
)
def test_what_are_no_elements(buffer: bytes) -> None:
    """They are counted as bytes, and said not to be told apart."""
    (received,) = both_sides([buffer])
    assert (received.separable, received.records, received.size) == (False, None, len(buffer))
    found = InFlight("op") + received
    assert (found.unknown, found.text) == (1, f"at least 0 records ({len(buffer)} bytes)")


@pytest.mark.parametrize(
    ("data", "offsets", "problem"),
    [
        (bytes(4) + b"\0\0\0\2ab", (4, 4), "named twice"),
        (bytes(4) + b"\0\0\0\3ab", (4,), "a buffer of 3 bytes, and 2 there"),
        (bytes(4) + b"\xff\xff\xff\xffab", (4,), "a buffer of -1 bytes"),
        (bytes(4) + b"\0\0\0\2ab", (7,), "no buffer can begin there"),
        (bytes(4) + b"\0\0\0\2ab", (0,), "no buffer can begin there"),
        (bytes(4) + b"\0\0\0\2ab", (1 << 60,), "no buffer can begin there"),
        (bytes(4) + b"\0\0\0\2ab", ((1 << 63) - 1,), "no buffer can begin there"),
        (bytes(4) + b"\0\0\0\2ab", (-1,), "no buffer can begin there"),
        (bytes(4) + b"\0\0\0\2ab", (-(1 << 63),), "no buffer can begin there"),
        (b"\0\0", (4,), "no buffer can begin there"),
    ],
)
def test_damaged_files(data: bytes, offsets: tuple[int, ...], problem: str) -> None:
    """The error names the file and the offset."""
    file = ChannelFile(lambda: InlineSource("channels", data))
    file.claim(offsets)
    with pytest.raises(CorruptSnapshotError, match=problem) as told:
        file.read(offsets)
    assert told.value.place.startswith("channels, offset ")


@dataclass
class Sparse:
    """A file of a tebibyte with two buffers; counts the bytes that are read."""

    name: str = "sparse"
    size: int = 1 << 40
    read: int = 0

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Buffers of two bytes wherever one begins, and zeros before."""
        self.read += out.size
        out[:] = 0
        if offset >= 4:
            out[:6] = np.frombuffer(b"\0\0\0\2ab", np.uint8)[: out.size]


def test_no_more_is_read_than_buffers_say() -> None:
    """However large the file is, and however far they lie apart."""
    source = Sparse()
    file = ChannelFile(lambda: source)
    file.claim((4, 1 << 39))
    assert file.read((4, 1 << 39)) == [b"ab", b"ab"]
    assert source.read < 100


@dataclass
class Counted:
    """A file that counts how often it is read."""

    data: bytes
    name: str = "counted"
    reads: int = 0

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.data)

    def read_into(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Its bytes from there on."""
        self.reads += 1
        out[:] = np.frombuffer(self.data, np.uint8)[offset : offset + out.size]


def _same(source: ByteSource) -> ByteSource:
    return source


def test_offsets_are_looked_at_once() -> None:
    """However many channels a file has, sound or damaged."""
    for first in (4, 3):
        source = Counted(bytes(404))
        file = ChannelFile(partial(_same, source))
        file.claim((first, *range(8, 404, 4)))
        for offset in range(8, 404, 4):
            told = nullcontext() if first == 4 else pytest.raises(CorruptSnapshotError)
            with told:
                assert file.read((offset,)) == [b""]
        assert source.reads == (100 if first == 4 else 1)


def test_another_version_is_refused() -> None:
    """As Flink does."""
    file = ChannelFile(lambda: InlineSource("channels", b"\0\0\0\1\0\0\0\0"))
    file.claim((4,))
    with pytest.raises(UnsupportedFormatError, match="version 1"):
        file.read((4,))


@given(st.data())
def test_changed_bytes_raise_only_our_errors(data: st.DataObject) -> None:
    """Whatever stands in a file, it is read or refused."""
    stream = b"".join(written(1, None, bytes(number)) for number in range(12))
    content, (offsets,) = file_of([stream[at : at + 16] for at in range(0, len(stream), 16)])
    changed = bytearray(content)
    for at in data.draw(st.lists(st.integers(0, len(changed) - 1), max_size=4)):
        changed[at] = data.draw(st.integers(0, 255))
    changed = changed[: data.draw(st.integers(0, len(changed)))]
    file = ChannelFile(lambda: InlineSource("channels", bytes(changed)))
    file.claim(offsets)
    channel = Channel("id", "op", True, 0, 0, 0, 0, tuple(offsets), file)
    try:
        (elements,) = read_channels([channel])
    except SnapshotError:
        return
    assert elements.size <= len(changed)
    assert elements.decode().num_rows == len(elements.tags)


# ------------------------------------------------------------------------------- integrity


@every_backlog
def test_a_sound_checkpoint_is_sound(name: str, tmp_path: Path) -> None:
    """However many subtasks share a file; and what is salvaged has the same records in flight."""
    checkpoint = unpack_backlog(name, tmp_path / "flink")
    report = salvage_snapshot(checkpoint, tmp_path / "salvaged")
    assert report.integrity.faults == ()
    assert report.lost == ()
    assert "values of records in flight" in str(report.integrity.unchecked)
    salvaged, snapshot = (
        open_snapshot(place, uids=UIDS) for place in (tmp_path / "salvaged", checkpoint)
    )
    assert numbers_in_flight(salvaged) == numbers_in_flight(snapshot)


def test_a_damaged_channel_is_a_fault(tmp_path: Path) -> None:
    """It is named; what is salvaged has no records in flight, as some would be cut off."""
    checkpoint = unpack_backlog("flink-2.3.0", tmp_path / "flink")
    channel = next(
        one
        for one in channels_of(open_snapshot(checkpoint))
        if one.operator == "times" and len(one.offsets) > 2
    )
    file = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(file.read_bytes())
    data[channel.offsets[1]] = 0x40
    file.write_bytes(data)
    report = salvage_snapshot(checkpoint, tmp_path / "salvaged")
    (fault,) = report.integrity.faults
    assert (fault.where.operator, fault.where.subtask) == ("times", channel.subtask)
    assert f"offset {channel.offsets[1]}" in fault.place
    assert len(report.lost) == 12
    salvaged = open_snapshot(tmp_path / "salvaged")
    assert channels_of(salvaged) == []
    assert numbers_seen(salvaged) == numbers_seen(open_snapshot(checkpoint))


def test_a_channel_that_is_named_twice_is_a_fault(tmp_path: Path) -> None:
    """Flink would not know which buffers come first, and restores none of it."""
    checkpoint = unpack_backlog("flink-1.20.0", tmp_path / "flink")
    file = checkpoint / "_metadata"
    metadata = read_metadata(file.read_bytes())
    subtasks = [one for each in metadata.operators for one in (each.subtasks or {}).values()]
    subtask = next(one for one in subtasks if len(one.inputs) > 1)
    (first,), (second,) = (handle.parts for handle in subtask.inputs)
    renamed = replace(second, gate=first.gate, channel=first.channel)
    subtask.inputs = (subtask.inputs[0], replace(subtask.inputs[1], parts=(renamed,)))
    file.write_bytes(write_metadata(metadata))
    (fault,) = check_snapshot(checkpoint).faults
    assert "named twice" in fault.problem
