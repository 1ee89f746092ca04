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

The elements of a channel are concatenated, regardless of the bounds of buffers. Received buffers
begin with a whole element, as a subtask keeps a partly read one; buffers still to be sent end with
a whole one, as barriers stand between elements. So the last element of a received channel may
continue in its sender's buffers: it is counted there, once. The sender is derived from the
elements.

A snapshot does not contain the type of the values.

Source: `StreamElementSerializer`, `SpanningRecordSerializer`, `StreamTaskNetworkInput`,
`ChannelStateWriterImpl`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import (
    CorruptSnapshotError,
    DeclarationError,
    NotFoundError,
    OversizedError,
    StateError,
    did_you_mean,
)
from statelake.state_core.files.file_sources import ByteSource
from statelake.state_core.formats.layout.keyed_layout import raw_column
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.kernels.elements import LEAST, LENGTH_BYTES, walk_elements
from statelake.state_core.model.channels import Channel, ChannelFile
from statelake.state_core.model.handles import StreamHandle
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Cursor
from statelake.state_core.serializers.framework.opaque_values import restore_bounded
from statelake.state_core.serializers.type_spec import parse_type

__all__ = [
    "ChannelElements",
    "InFlight",
    "channels_among",
    "channels_of",
    "read_channels",
    "record_serializer",
    "records_in_flight",
    "value_serializer",
]

_End: TypeAlias = tuple[str, int]  # an operator's id, and its gate or partition
_Pair: TypeAlias = tuple[int, int]  # the sending and the receiving subtask

INPUTS = (1, 3)  # kinds of handles
KINDS = (
    "record", "record", "watermark", "latency marker", "watermark status", "record attributes",
    "watermark",
)  # fmt: skip
RECORDS, WITH_TIMESTAMP, WATERMARK, WATERMARK_OF = 1, 0, 2, 6
NOBODY: _End = ("", -1)
GATES_TRIED = 256  # between two subtasks: each takes a pass over the elements of every partition
TAG_BYTES, TIMESTAMP_BYTES, SUBPARTITION_BYTES = 1, 8, 4


def channels_of(snapshot: Snapshot) -> list[Channel]:
    """Return the channels with records in flight of an open snapshot, by operator and subtask."""
    labels = {operator.operator_id: operator.label for operator in snapshot.operators}
    return channels_among(snapshot.metadata.operators, snapshot.files.open, labels)


def channels_among(
    operators: Iterable[OperatorMetadata],
    open_: Callable[[StreamHandle], ByteSource],
    labels: Mapping[str, str],
) -> list[Channel]:
    """Return the channels with records in flight of some operators.

    Args:
        operators: All operators of a snapshot, which may share files.
        open_: Opens a file.
        labels: The labels of operators, by their ids.
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
        position: Its position among the channels of the snapshot.
        buffers: The number of its buffers.
        size: The bytes of those buffers.
        ends_one: The number of bytes at the beginning that complete a record whose first part its
            receiver has.
        begins_one: The number of bytes at the end of a record whose rest its sender has.
        separable: Whether its elements can be separated.
        data: The bytes, including the receiver's part of the first record.
        starts: The offset of each element's tag in them, and the end.
        tags: The tag of each element.
    """

    channel: Channel
    position: int
    buffers: int
    size: int
    ends_one: int
    begins_one: int
    separable: bool
    data: npt.NDArray[np.uint8] = field(repr=False)
    starts: npt.NDArray[np.int64] = field(repr=False)
    tags: npt.NDArray[np.uint8] = field(repr=False)

    @property
    def records(self) -> int | None:
        """Return the number of records; None if the elements can't be separated."""
        return int(np.count_nonzero(self.tags <= RECORDS)) if self.separable else None

    @property
    def others(self) -> int | None:
        """Number of other elements, such as watermarks; None if they can't be separated."""
        return int(np.count_nonzero(self.tags > RECORDS)) if self.separable else None

    def decode(self, value: TypeSerializer | None = None) -> pa.RecordBatch:
        """Return the elements as columns: `element`, `timestamp`, `value`, `raw_value`.

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
        """Return the timestamps of watermarks, and of records that have one."""
        having = np.isin(self.tags, (WITH_TIMESTAMP, WATERMARK, WATERMARK_OF))
        at = self.starts[:-1] + np.where(self.tags == WATERMARK_OF, SUBPARTITION_BYTES, 0)
        timestamps = np.zeros(len(self.tags), np.int64)
        places = at[having, None] + TAG_BYTES + np.arange(TIMESTAMP_BYTES)
        timestamps[having] = self.data[places].view(">i8").ravel()
        return pa.array(timestamps, mask=~having)


def read_channels(
    channels: Iterable[Channel], operator: str | None = None, problems: list[str] | None = None
) -> Iterator[ChannelElements]:
    """Yield the elements of all channels of a snapshot: received ones first, then unsent ones.

    One channel is in memory at a time, and the last, partial record of each received one.

    Args:
        channels: All channels of the snapshot.
        operator: Yield only those of this operator: its uid or id.
        problems: Receives the unreadable parts, with reasons; without it, an error is raised.

    Raises:
        NotFoundError: The operator has nothing in flight.
        SnapshotError: A file can't be read, or is damaged.
    """
    if operator is None:
        return _read(channels, None, problems)
    listed = list(channels)
    wanted = {each for each in listed if operator in (each.operator, each.operator_id)}
    if not wanted:
        known = [*dict.fromkeys(each.operator for each in listed)]
        raise NotFoundError(
            f"operator {operator!r} has nothing in flight",
            remedy=f"these have: {', '.join(known) or 'none'}{did_you_mean(operator, known)}",
        )
    read = _read(listed, wanted, problems)
    return (elements for elements in read if elements.channel in wanted)


def _read(
    channels: Iterable[Channel], wanted: Collection[Channel] | None, problems: list[str] | None
) -> Iterator[ChannelElements]:
    """Yield the elements of all channels, with the problems of those that are wanted."""
    exchanges = _Exchanges()
    unsent: list[tuple[int, Channel]] = []

    def buffers_of(channel: Channel) -> list[bytes] | None:
        """Return the buffers of a channel; None if they can't be read."""
        try:
            return channel.buffers()
        except OversizedError:
            raise
        except StateError as error:
            if problems is None:
                raise
            if wanted is None or channel in wanted:
                problems.append(str(error.within(channel.place)))
            return None

    for position, channel in enumerate(channels):
        if not channel.received:
            unsent.append((position, channel))
            continue
        buffers = buffers_of(channel)
        if buffers is None:
            exchanges.unread.add(_pair(channel))
            continue
        data = b"".join(buffers)
        walked = _walk(data, ends_whole=False)
        last = b"" if walked is None else data[int(walked[0][-1]) - LENGTH_BYTES :]
        if last:
            exchanges.begun[_pair(channel)][_end(channel)] = last
        yield _elements(channel, position, buffers, b"", len(last), walked)
    for _, channel in unsent:
        try:
            exchanges.look(channel)
        except StateError:  # noqa: PERF203 - the others are looked at
            if problems is None:
                raise
            exchanges.unseen.add((_pair(channel), _end(channel)))  # it is told below
    receivers = exchanges.receivers()
    for position, channel in unsent:
        buffers = buffers_of(channel)
        if buffers is None:
            continue
        prefix = exchanges.begun[_pair(channel)].get(receivers.get(_end(channel), NOBODY), b"")
        data = b"".join((prefix, *buffers))
        walked = _walk(data, ends_whole=True) if exchanges.tells(channel, receivers) else None
        yield _elements(channel, position, buffers, b"" if walked is None else prefix, 0, walked)


def _end(channel: Channel) -> _End:
    """Return the gate or partition of a channel."""
    return channel.operator_id, channel.gate


def _pair(channel: Channel) -> _Pair:
    """Return the sending and receiving subtask: unaligned exchanges are all to all."""
    sides = channel.channel, channel.subtask
    return sides if channel.received else (sides[1], sides[0])


class _Exchanges:
    """The search for the gate that receives a partition's records, which is not in a snapshot.

    It is the gate for which the parts of records at both ends fit together, between all subtasks.
    If several fit, it is the one with the most elements: behind a part of a wrong record, some
    elements look like the content of one.
    """

    def __init__(self) -> None:
        self.begun: dict[_Pair, dict[_End, bytes]] = defaultdict(dict)
        self._counts: dict[_Pair, dict[_End, dict[_End, int]]] = defaultdict(dict)
        self._whole: Counter[_End] = Counter()
        self._broken: Counter[_End] = Counter()
        # what can't be read: subtasks of received channels, and unsent ones
        self.unread: set[_Pair] = set()
        self.unseen: set[tuple[_Pair, _End]] = set()

    def look(self, channel: Channel) -> None:
        """Count the elements of an unsent channel behind each part that a receiver may have.

        More parts than any job has exchanges are not tried.
        """
        begun = self.begun.get(_pair(channel), {})
        if len(begun) > GATES_TRIED or _pair(channel) in self.unread:
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

    def tells(self, channel: Channel, receivers: Mapping[_End, _End]) -> bool:
        """Return whether all is known that its receiver may have of an unsent channel."""
        if not self.unread and not self.unseen:
            return True
        pair = _pair(channel)
        return pair not in self.unread and (not self.begun.get(pair) or _end(channel) in receivers)

    def receivers(self) -> dict[_End, _End]:
        """Return the known gate of each partition."""
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
        """Return the partitions that a gate may receive, with the resulting numbers of elements.

        Only subtasks with a part are considered, so that the work is linear in the channels.
        """
        fits: dict[_End, int] = {}
        by_pair = [self._counts.get(pair, {}) for pair in pairs]
        for partition in {*chain(*by_pair)} if self.unseen else min(by_pair, key=len):
            counts = [
                of_pair.get(partition)
                for pair, of_pair in zip(pairs, by_pair, strict=True)
                if (pair, partition) not in self.unseen
            ]
            here = [(of[gate], of[NOBODY]) for of in counts if of is not None]
            # all other subtasks have no part, so that their channels begin with a whole element
            others_broken = self._broken[partition] - sum(alone < 0 for _, alone in here)
            if len(here) == len(counts) and min(here)[0] >= 0 and not others_broken:
                others_unbroken = self._whole[partition] - sum(max(0, alone) for _, alone in here)
                fits[partition] = others_unbroken + sum(count for count, _ in here)
        return fits


def _elements(
    channel: Channel,
    position: int,
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
    separable = walked is not None
    return ChannelElements(
        channel, position, len(buffers), size, ends_one, begins_one, separable, data, starts, tags
    )


def _walk(
    data: bytes, *, ends_whole: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]] | None:
    """Return the starts of elements and their tags; None if the bytes are not elements."""
    starts = np.empty(len(data) // (LENGTH_BYTES + TAG_BYTES) + 1, np.int64)
    tags = np.empty(len(starts), np.uint8)
    count = walk_elements(np.frombuffer(data, np.uint8), LEAST, starts, tags)
    if count < 0 or (ends_whole and starts[count] - LENGTH_BYTES != len(data)):
        return None
    return starts[: count + 1].copy(), tags[:count].copy()


@dataclass(frozen=True)
class InFlight:
    """The records in flight of one operator.

    Attributes:
        operator: The operator's uid, or else its id.
        channels: Its channels with buffers.
        buffers: The buffers of those channels.
        size: The bytes of those buffers.
        records: The records in them that can be separated.
        others: The other elements, such as watermarks.
        unknown: The number of channels whose records can't be separated.
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
            self.unknown + (not elements.separable),
        )

    @property
    def text(self) -> str:
        """Return them as a part of a sentence."""
        least = "at least " if self.unknown else ""
        return f"{least}{self.records:,} records ({self.size:,} bytes)"


def records_in_flight(channels: Iterable[Channel]) -> list[InFlight]:
    """Return the records in flight of each operator, in the order of the operators.

    Raises:
        SnapshotError: A file can't be read, or is damaged.
    """
    channels = list(channels)
    in_flight = {channel.operator_id: InFlight(channel.operator) for channel in channels}
    for elements in read_channels(channels):
        in_flight[elements.channel.operator_id] += elements
    return list(in_flight.values())


def record_serializer(type_: str, like: str, snapshot: Snapshot) -> TypeSerializer | None:
    """Return the serializer of a Java type, or of a state's values; see `Snapshot`.

    Args:
        type_: The Java type, or an empty text.
        like: `operator/state`, or an empty text.
        snapshot: The snapshot of that state.
    """
    if type_ and like:
        raise DeclarationError("give either a type, or a state with values of the same type")
    if like:
        operator, _, state = like.rpartition("/")
        return value_serializer(snapshot, operator, state)
    return restore_bounded(parse_type(type_)) if type_ else None


def value_serializer(snapshot: Snapshot, operator: str, state: str) -> TypeSerializer:
    """Return the serializer of a state's values or list elements, also for records in flight.

    Raises:
        NotFoundError: There is no such operator or state, or it has no values.
    """
    opened = snapshot.operator(operator)
    for operator_state in opened.operator_states:
        if operator_state.name == state:
            return parse_operator_state(operator_state.meta_info)[1].value
    value: TypeSerializer | None = opened.state(state).layout.value
    if value is not None:
        return value
    raise NotFoundError(f"state {state!r} of operator {opened.label} has no values")
