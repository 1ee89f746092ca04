"""Timers that RocksDB jobs keep on the heap: raw keyed state, beside RocksDB's files.

Checkpoints with `state.backend.rocksdb.timer-service.factory: HEAP` have them, and so do savepoints
of Flink 1.8 and 1.9, where that was the default. They are read as queues of timers like those of
any other snapshot::

    each key group of the range, at its offset (-1: not written):
        F1 CD 85 9F, i32 version 2, i32 n, n services:
            UTF name, key serializer's snapshot, namespace serializer's snapshot
            i32 n, n event-time timers, i32 n, n processing-time timers
    timer:  key, namespace, i64 timestamp    (the unified format: timestamp ^ 1 << 63, key, ...)

Source: `InternalTimerServiceSerializationProxy`, `InternalTimersSnapshotReaderWriters`,
`KeyedStateCheckpointOutputStream` and `InternalTimeServiceManagerImpl` (names of queues).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from statelake.state_core.bounds import Budget
from statelake.state_core.errors import CorruptSnapshotError, StateError, UnsupportedFormatError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.keyed.headed_file import KeyGroupSpan, SpannedFile
from statelake.state_core.formats.keyed.heap.entry_walking import EntryWalker
from statelake.state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    BackendStateType,
    KeyedHeader,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange, KeyGroupsHandle
from statelake.state_core.model.snapshot import TIMER_PREFIX
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.wrappers import TimerSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import as_key
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot

IDENTIFIER = b"\xf1\xcd\x85\x9f"
VERSION = 2
DOMAINS = ("event", "processing")
SIGN = 0x80
TIMESTAMP_BYTES = 8
BATCH_ROWS = 1 << 17
LEAST_SERVICE_BYTES = 14


def raw_spans(handle: KeyGroupsHandle, size: int, name: str) -> tuple[KeyGroupSpan, ...]:
    """Return the position of each key group that was written; the first one begins at offset 0.

    Raises:
        CorruptSnapshotError: An offset lies outside the file, or two are the same.
    """
    begins = sorted((at, handle.first + i) for i, at in enumerate(handle.offsets) if at >= 0)
    ends = [at for at, _ in begins[1:]] + [size]
    for (start, group), end in zip(begins, ends, strict=True):
        if start >= end:
            raise CorruptSnapshotError(
                f"key group {group} of raw state begins at offset {start}, and ends at {end}",
                place=name,
            )
    spans = (KeyGroupSpan(g, s, e) for (s, g), e in zip(begins, ends, strict=True))
    return tuple(sorted(spans, key=lambda span: span.group))


def holds_timers(source: ByteSource, spans: tuple[KeyGroupSpan, ...]) -> bool:
    """Return whether raw keyed state consists of timers, by its first bytes.

    The first key group decides; a later one that begins otherwise is a fault when it is read.
    """
    head = np.empty(len(IDENTIFIER), np.uint8)
    if not spans or spans[0].end - spans[0].start < len(head):
        return False
    source.read_into(spans[0].start, head)
    return head.tobytes() == IDENTIFIER


def read_timers_header(source: ByteSource, spans: tuple[KeyGroupSpan, ...]) -> KeyedHeader | None:
    """Return the header of a file with these queues; None if there is no timer service.

    All key groups have the same queues, so that the first one is enough.

    Raises:
        SnapshotError: The first key group can't be read.
    """
    reader = _TimerGroupReader(source, spans[0])
    keys, states = [], []
    for queue in reader.queues():
        reader.walk_all(queue)
        timer = TimerSerializerSnapshot()
        timer.nested = (queue.key, queue.namespace)
        keys.append(serializer_entry(queue.key))
        entries = {VALUE_SERIALIZER: serializer_entry(timer)}
        states.append(StateMetaInfo(queue.name, BackendStateType.PRIORITY_QUEUE, {}, entries))
    if not states:
        return None
    return KeyedHeader(compressed=False, key_serializer=keys[0], states=tuple(states))


@dataclass(frozen=True)
class RawTimersFile(SpannedFile):
    """A `KeyedFile` that contains only timers, beside another one."""

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all timers of some key groups, key group after key group, in the unified format.

        Raises:
            CorruptSnapshotError: The bytes are not timers.
        """
        ids = {state.name: index for index, state in enumerate(self.header.states)}
        for span in self.spans:
            if key_groups is None or span.group in key_groups:
                yield from _TimerGroupReader(self.source, span).run(ids)


@dataclass(frozen=True)
class _TimerQueue:
    """The timers of one service and domain in one key group."""

    name: str
    key: TypeSerializerSnapshot
    namespace: TypeSerializerSnapshot
    count: int

    @property
    def parts(self) -> tuple[TypeSerializer, ...]:
        """The serializers of a timer's parts."""
        with as_key():
            key, namespace = self.key.restore_serializer(), self.namespace.restore_serializer()
        return (key, namespace, LongSerializer())


class _TimerGroupReader(EntryWalker):
    """A walker over one key group."""

    where = "among timers on the heap"

    def __init__(self, source: ByteSource, span: KeyGroupSpan) -> None:
        self.name, self.group, self.span = source.name, span.group, span
        self.data = np.empty(span.end - span.start, np.uint8)
        source.read_into(span.start, self.data)
        self.at = 0

    def queues(self) -> Iterator[_TimerQueue]:
        """Yield the queues; the caller moves behind a queue's timers before the next one."""
        source = self._input(Budget(self.data.size))
        if source.read_bytes(len(IDENTIFIER)) != IDENTIFIER:
            raise source.fault("a key group that does not begin as timers do")
        if source.read_int() != VERSION:
            raise UnsupportedFormatError(
                "timers of another version than 2 (Flink 1.8 to 2.3)",
                place=self._place(0),
                remedy="restore it in Flink 1.8 to 1.16, and take a new savepoint there",
            )
        services = source.read_count("timer services", LEAST_SERVICE_BYTES)
        self.at += source.position
        for _ in range(services):
            source = self._input(source.budget)
            service = source.read_utf()
            key, namespace = read_serializer_snapshot(source), read_serializer_snapshot(source)
            self.at += source.position
            for domain in DOMAINS:
                head = self._input()
                count = head.read_length("timers", TIMESTAMP_BYTES)
                self.at += head.position
                yield _TimerQueue(f"{TIMER_PREFIX}{domain}_{service}", key, namespace, count)
        if self.at != self.data.size:
            raise self._input().fault(f"{self.data.size - self.at} bytes behind the last timer")

    def walk_all(self, queue: _TimerQueue) -> None:
        """Move behind a queue's timers."""
        for rows in _batches(queue.count):
            self._walk(queue.parts, rows)

    def run(self, ids: dict[str, int]) -> Iterator[Entries]:
        """Yield all timers, as entries of the states with these ids."""
        for queue in self.queues():
            if queue.name not in ids:
                raise self._input().fault(f"{queue.name!r}, which the first key group has not")
            for rows in _batches(queue.count):
                try:
                    key, namespace, when, ends = self._walk(queue.parts, rows)
                except StateError as error:
                    raise error.within(f"state {queue.name!r}") from error
                self.data[when] ^= SIGN
                pieces = [(when, ends), (key, namespace), (namespace, when)]
                yield self._entries(ids[queue.name], pieces, (ends, ends))

    def _input(self, budget: Budget | None = None) -> DataInput:
        rest = self.data[self.at :]
        return DataInput(rest.data, self._named(), self._offset(self.at), budget)

    def _offset(self, position: int) -> int:
        return self.span.start + position

    def _place(self, position: int) -> str:
        return f"{self._named()}, offset {self._offset(position)}"


def _batches(count: int) -> Iterator[int]:
    """Yield parts of a count, each small enough for memory."""
    while count:
        rows = min(count, BATCH_ROWS)
        yield rows
        count -= rows
