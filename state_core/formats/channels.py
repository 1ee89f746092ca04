"""Records in flight: the elements in the buffers of an unaligned checkpoint's channels.

::

    element                 i32 length, u8 tag, and
      0 record              i64 timestamp, value
      1 record              value
      2 watermark           i64 timestamp
      3 latency marker      i64 time, i64 and i64 operator id, i32 subtask
      4 watermark status    i32 0 active, -1 idle
      5 record attributes   boolean backlog
      6 watermark           i32 subpartition, i64 timestamp

The elements of a channel stand one behind the other, whatever the bounds of buffers. What a subtask
has received begins with a whole element, as it keeps what it has read of one; what it had to send
ends with a whole one, as barriers stand between elements. So the last element of a received channel
may go on in what its sender had still to send: it is counted there, once. Who the sender is follows
from the elements.

Nothing in a snapshot says of which type the values are.

Source: `StreamElementSerializer`, `SpanningRecordSerializer`, `StreamTaskNetworkInput`,
`ChannelStateWriterImpl`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import CorruptSnapshotError, NotFoundError
from statelake.state_core.files.byte_sources import ByteSource
from statelake.state_core.formats.layout.keyed_layout import raw_column
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorState
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.kernels.elements import LEAST, LENGTH_BYTES, walk_elements
from statelake.state_core.model.channels import Channel, ChannelFile
from statelake.state_core.model.handles import StreamHandle
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor

__all__ = [
    "ChannelElements",
    "InFlight",
    "channels_among",
    "channels_of",
    "read_channels",
    "records_in_flight",
    "value_serializer",
]

_End: TypeAlias = tuple[str, int]  # an operator's id, and its gate or partition
_Pair: TypeAlias = tuple[int, int]  # the subtasks that send and receive

INPUTS = (1, 3)  # kinds of handles
KINDS = (
    "record", "record", "watermark", "latency marker", "watermark status", "record attributes",
    "watermark",
)  # fmt: skip
RECORDS, WITH_TIMESTAMP, WATERMARK, WATERMARK_OF = 1, 0, 2, 6
NOBODY: _End = ("", -1)
GATES_TRIED = 256  # between two subtasks: each takes a walk through what each partition has
TAG_BYTES, TIMESTAMP_BYTES, SUBPARTITION_BYTES = 1, 8, 4


def channels_of(snapshot: Snapshot) -> list[Channel]:
    """The channels with records in flight of an open snapshot, by operator, subtask and channel."""
    labels = {operator.operator_id: operator.label for operator in snapshot.operators}
    return channels_among(snapshot.metadata.operators, snapshot.files.open, labels)


def channels_among(
    operators: Iterable[OperatorState],
    open_: Callable[[StreamHandle], ByteSource],
    labels: Mapping[str, str],
) -> list[Channel]:
    """The channels with records in flight of some operators.

    Args:
        operators: All operators of a snapshot, which may have files in common.
        open_: Opens a file.
        labels: What operators are called, by their ids.
    """
    files: dict[StreamHandle, ChannelFile] = {}
    channels = []
    for operator in operators:
        label = labels.get(operator.operator_id) or operator.uid or operator.operator_id
        for _, subtask in sorted((operator.subtasks or {}).items()):
            for handle in (*subtask.inputs, *subtask.outputs):
                if handle.stream is None:
                    continue
                file = files.setdefault(handle.stream, ChannelFile(partial(open_, handle.stream)))
                for part in handle.parts:
                    file.claim(part.offsets)
                    channels.append(
                        Channel(
                            operator.operator_id, label, handle.kind in INPUTS, handle.subtask,
                            part.gate, part.channel, part.size, part.offsets, file,
                        )
                    )  # fmt: skip
    return channels


@dataclass(frozen=True, eq=False)
class ChannelElements:
    """The elements of one channel.

    Attributes:
        channel: The channel.
        buffers: How many buffers it has.
        size: The bytes of those buffers.
        ends_one: How many bytes at the begin belong to a record that its receiver had begun to
            receive.
        begins_one: How many bytes at the end belong to a record that its sender has the rest of.
        whole: Whether its elements can be told apart.
        data: The bytes, with those that the receiver has of the first record.
        starts: Where the tag of each element stands in them, and where the next one's would.
        tags: The tag of each.
    """

    channel: Channel
    buffers: int
    size: int
    ends_one: int
    begins_one: int
    whole: bool
    data: npt.NDArray[np.uint8] = field(repr=False)
    starts: npt.NDArray[np.int64] = field(repr=False)
    tags: npt.NDArray[np.uint8] = field(repr=False)

    @property
    def records(self) -> int | None:
        """How many records there are; None if elements can't be told apart."""
        return int(np.count_nonzero(self.tags <= RECORDS)) if self.whole else None

    @property
    def others(self) -> int | None:
        """How many other elements there are, such as watermarks; None as for records."""
        return int(np.count_nonzero(self.tags > RECORDS)) if self.whole else None

    def decode(self, value: TypeSerializer | None = None) -> pa.RecordBatch:
        """The elements as columns: `element`, `timestamp`, `value`, `raw_value`.

        Args:
            value: The serializer of the values of records. Without it they are bytes.

        Raises:
            CorruptSnapshotError: The values are not of that type.
        """
        is_record = (self.tags <= RECORDS).astype(np.uint8)
        stamped = self.tags == WITH_TIMESTAMP
        starts, ends = self.starts[:-1] + TAG_BYTES, self.starts[1:] - LENGTH_BYTES
        starts = np.where(stamped, starts + TIMESTAMP_BYTES, starts)
        if value is None:
            data = self.data
            column = pa.array(
                [
                    data[start:end].tobytes() if record else None
                    for start, end, record in zip(starts, ends, is_record, strict=True)
                ],
                pa.binary(),
            )
            raw = pa.nulls(len(column), pa.binary())
        else:
            column, raw = self._values(value, starts, ends, is_record)
        kinds = pa.array([KINDS[tag] for tag in self.tags.tolist()], pa.string())
        names = ["element", "timestamp", "value", "raw_value"]
        return pa.RecordBatch.from_arrays([kinds, self._timestamps(), column, raw], names=names)

    def _values(
        self,
        value: TypeSerializer,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        is_record: npt.NDArray[np.uint8],
    ) -> tuple[pa.Array, pa.Array]:
        cursor = Cursor(self.data, starts.copy(), ends, self._place, is_record)
        try:
            column = value.decode(cursor)
            cursor.check_at_end()
        except CorruptSnapshotError as error:
            raise CorruptSnapshotError(
                f"the records are no {value.name}: {error.problem}",
                place=error.place,
                remedy="give the type that the sending operator emits",
            ) from error
        return column, raw_column(cursor, starts, ends)

    def _place(self, position: int) -> str:
        return f"{self.channel.place}, byte {position}"

    def _timestamps(self) -> pa.Array:
        """Of records that have one, and of watermarks."""
        having = np.isin(self.tags, (WITH_TIMESTAMP, WATERMARK, WATERMARK_OF))
        at = self.starts[:-1] + np.where(self.tags == WATERMARK_OF, SUBPARTITION_BYTES, 0)
        timestamps = np.zeros(len(self.tags), np.int64)
        places = at[having, None] + TAG_BYTES + np.arange(TIMESTAMP_BYTES)
        timestamps[having] = self.data[places].view(">i8").ravel()
        return pa.array(timestamps, mask=~having)


def read_channels(channels: Iterable[Channel]) -> Iterator[ChannelElements]:
    """The elements of all channels of a snapshot: first what was received, then what was not sent.

    One channel is held at a time, and of each received one the part of a record at its end.

    Raises:
        SnapshotError: A file can't be read, or is damaged.
    """
    exchanges = _Exchanges()
    unsent: list[Channel] = []
    for channel in channels:
        if not channel.received:
            unsent.append(channel)
            continue
        buffers = channel.buffers()
        data = b"".join(buffers)
        walked = _walk(data, ends_whole=False)
        last = b"" if walked is None else data[int(walked[0][-1]) - LENGTH_BYTES :]
        if last:
            exchanges.begun[_pair(channel)][_end(channel)] = last
        yield _elements(channel, buffers, b"", len(last), walked)
    for channel in unsent:
        exchanges.look(channel)
    receivers = exchanges.receivers()
    for channel in unsent:
        buffers = channel.buffers()
        prefix = exchanges.begun[_pair(channel)].get(receivers.get(_end(channel), NOBODY), b"")
        walked = _walk(b"".join((prefix, *buffers)), ends_whole=True)
        yield _elements(channel, buffers, b"" if walked is None else prefix, 0, walked)


def _end(channel: Channel) -> _End:
    """The gate or partition that it is of."""
    return channel.operator_id, channel.gate


def _pair(channel: Channel) -> _Pair:
    """The subtasks that send and receive: unaligned exchanges are all to all."""
    sides = channel.channel, channel.subtask
    return sides if channel.received else (sides[1], sides[0])


class _Exchanges:
    """Finds out which gate receives what a partition sends, which no snapshot says.

    It is the one for which the parts of records at both ends fit together, between all subtasks.
    Where several do, it is the one with the most elements: with a part of another record before
    them, some elements look like the content of one.
    """

    def __init__(self) -> None:
        self.begun: dict[_Pair, dict[_End, bytes]] = defaultdict(dict)
        self._counts: dict[_Pair, dict[_End, dict[_End, int]]] = defaultdict(dict)
        self._whole: Counter[_End] = Counter()
        self._broken: Counter[_End] = Counter()

    def look(self, channel: Channel) -> None:
        """Count the elements of what was not sent, with each part that a receiver may have.

        If there are more parts than any job has exchanges, none is tried.
        """
        begun = self.begun.get(_pair(channel), {})
        if len(begun) > GATES_TRIED:
            return
        data = b"".join(channel.buffers()) if any(self.begun.values()) else b""
        counts = {
            gate: -1
            if (walked := _walk(prefix + data, ends_whole=True)) is None
            else len(walked[1])
            for gate, prefix in {NOBODY: b"", **begun}.items()
        }
        self._counts[_pair(channel)][_end(channel)] = counts
        self._whole[_end(channel)] += max(0, counts[NOBODY])
        self._broken[_end(channel)] += counts[NOBODY] < 0

    def receivers(self) -> dict[_End, _End]:
        """The gate of each partition, where it is known."""
        pairs: dict[_End, list[_Pair]] = defaultdict(list)
        for pair, begun in self.begun.items():
            for gate in begun:
                pairs[gate].append(pair)
        fits = {gate: self._fitting(gate, of) for gate, of in pairs.items()}
        receivers: dict[_End, _End] = {}
        for gate, partitions in sorted(fits.items(), key=lambda item: len(item[1])):
            free = {each: count for each, count in partitions.items() if each not in receivers}
            if free:
                receivers[max(free, key=lambda each: free[each])] = gate
        return receivers

    def _fitting(self, gate: _End, pairs: list[_Pair]) -> dict[_End, int]:
        """The partitions that a gate may receive, each with the elements that it then has.

        Looks at nothing but the subtasks that have a part: work grows as channels do.
        """
        fits: dict[_End, int] = {}
        for partition in min((self._counts.get(pair, {}) for pair in pairs), key=len):
            counts = [self._counts.get(pair, {}).get(partition) for pair in pairs]
            here = [(of[gate], of[NOBODY]) for of in counts if of is not None]
            # all other subtasks have no part, so that what they are sent begins with a whole one
            others_broken = self._broken[partition] - sum(alone < 0 for _, alone in here)
            if len(here) == len(pairs) and min(here)[0] >= 0 and not others_broken:
                whole = self._whole[partition] - sum(max(0, alone) for _, alone in here)
                fits[partition] = whole + sum(count for count, _ in here)
        return fits


def _elements(
    channel: Channel,
    buffers: list[bytes],
    prefix: bytes,
    begins_one: int,
    walked: tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]] | None,
) -> ChannelElements:
    data = np.frombuffer(b"".join((prefix, *buffers)), np.uint8)
    size = len(data) - len(prefix)
    nothing = np.array([LENGTH_BYTES], np.int64), np.empty(0, np.uint8)
    starts, tags = nothing if walked is None else walked
    ends_one = int(starts[1]) - LENGTH_BYTES - len(prefix) if prefix else 0
    return ChannelElements(
        channel, len(buffers), size, ends_one, begins_one, walked is not None, data, starts, tags
    )


def _walk(
    data: bytes, *, ends_whole: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]] | None:
    """Where elements start, and their tags; None if there are none that could be such."""
    starts = np.empty(len(data) // (LENGTH_BYTES + TAG_BYTES) + 1, np.int64)
    tags = np.empty(len(starts), np.uint8)
    count = walk_elements(np.frombuffer(data, np.uint8), LEAST, starts, tags)
    if count < 0 or (ends_whole and starts[count] - LENGTH_BYTES != len(data)):
        return None
    return starts[: count + 1].copy(), tags[:count].copy()


@dataclass(frozen=True)
class InFlight:
    """What one operator has in flight.

    Attributes:
        operator: The operator's uid, or else its id.
        channels: Its channels with buffers.
        buffers: The buffers of those channels.
        size: The bytes of these.
        records: The records in them that can be told apart.
        others: The other elements, such as watermarks.
        unknown: How many channels have records that can't be told apart.
    """

    operator: str
    channels: int = 0
    buffers: int = 0
    size: int = 0
    records: int = 0
    others: int = 0
    unknown: int = 0

    def __add__(self, elements: ChannelElements) -> InFlight:
        return InFlight(
            self.operator,
            self.channels + 1,
            self.buffers + elements.buffers,
            self.size + elements.size,
            self.records + (elements.records or 0),
            self.others + (elements.others or 0),
            self.unknown + (not elements.whole),
        )

    @property
    def text(self) -> str:
        """As a sentence has it."""
        least = "at least " if self.unknown else ""
        return f"{least}{self.records:,} records ({self.size:,} bytes)"


def records_in_flight(channels: Iterable[Channel]) -> list[InFlight]:
    """What each operator has in flight, in the order of the operators.

    Raises:
        SnapshotError: A file can't be read, or is damaged.
    """
    channels = list(channels)
    in_flight = {channel.operator_id: InFlight(channel.operator) for channel in channels}
    for elements in read_channels(channels):
        in_flight[elements.channel.operator_id] += elements
    return list(in_flight.values())


def value_serializer(snapshot: Snapshot, operator: str, state: str) -> TypeSerializer:
    """The serializer of a state's values, of a list's elements: also of the records it keeps.

    Raises:
        NotFoundError: There is no such operator or state, or it has no values.
    """
    opened = snapshot.operator(operator)
    for operator_state in opened.operator_states:
        if operator_state.name == state:
            return parse_operator_state(operator_state.meta_info)[1].value
    keyed = opened.state(state)
    for file, index in keyed.files:
        value: TypeSerializer | None = file.layouts[index].value
        if value is not None:
            return value
    raise NotFoundError(f"state {state!r} of operator {opened.label} has no values")
