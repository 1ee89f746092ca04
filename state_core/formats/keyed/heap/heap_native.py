"""The heap backend's own format, used in its checkpoints and native savepoints.

::

    keyed header (as in the unified format, never compressed)
    each key group of the range, at its offset, empty ones too:
        i32 key group
        each registered state once, in any order [a Snappy stream each, if compressed]:
            i16 state id, i32 count
            key-value state:  count * (namespace, key, state); lists and maps whole
            timers:           count * timer

An entry has no length: it must be walked by its types. Entries are returned in the unified format,
with their bytes unchanged: a list's elements joined by commas, a map's entries one by one, lengths
behind ambiguous keys. So all other modules need only one format.

Source: `HeapSnapshotStrategy`, `HeapRestoreOperation`, `CopyOnWriteStateTableSnapshot` and
`StateTableByKeyGroupReaders` in `org.apache.flink.runtime.state.heap`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from statelake.state_core.errors import (
    CorruptSnapshotError,
    SnapshotError,
    StateError,
    UnknownEndError,
    UnsupportedFormatError,
    UnwalkableError,
)
from statelake.state_core.files.compression import SnappyStream, StateStream, open_stream
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.keyed.headed_file import KeyGroupSpan, SpannedFile
from statelake.state_core.formats.keyed.heap.entry_walking import NO_END, EntryWalker
from statelake.state_core.formats.keyed.heap.heap_recovery import (
    HEAD,
    StateCut,
    entry_starts,
    recover_states,
)
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.kernels.encode import copy_pieces
from statelake.state_core.kernels.skip import DELIMITER, UNKNOWN, WHEN, locate_counted
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.wrappers import TtlSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import I64Array, U8Array
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer

TABLE_ROWS = 1 << 17
BLOCK_BYTES = 4 << 20
SHOWN_STATES = 8


@dataclass(frozen=True)
class HeapFile:
    """One keyed handle of the heap backend's format, opened.

    Attributes:
        source: The file's bytes.
        header: The header, which describes its states.
        layouts: The layout of each state's entries in the unified format, of whose parts as many
            as possible know where they end.
        spans: Its key groups, ascending.
        part: Whether its handle may be a part of another one, after a restore at another
            parallelism: then key groups of other subtasks may follow its last.
        max_parallelism: The number of key groups; 0 if it is not known, so that values that only
            their class can walk are refused.
        bare: The layouts without decoders, for states in which the end of a value is not known;
            empty if these are the same.
    """

    source: ByteSource
    header: KeyedHeader
    layouts: tuple[KeyedLayout, ...]
    spans: tuple[KeyGroupSpan, ...]
    part: bool = False
    max_parallelism: int = 0
    bare: tuple[KeyedLayout, ...] = ()

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups, key group after key group.

        One key group is in memory at a time, decompressed. An error of values that can't be walked
        comes behind all entries that are found.

        Raises:
            CorruptSnapshotError: The bytes don't match the header.
            UnwalkableError: A state's values can't be walked.
        """
        lost: list[_HeapGroupReader] = []
        for span in self.spans:
            if key_groups is None or span.group in key_groups:
                reader = yield from self._group(span)
                if reader.problem is not None:
                    lost.append(reader.emptied())
        if lost:
            raise self._unwalkable(lost)

    def _group(self, span: KeyGroupSpan) -> Generator[Entries, None, _HeapGroupReader]:
        """Yield the entries of a key group; states with a value of unknown end are cut otherwise.

        Returns:
            The reader, which knows what was not found.
        """
        reader = _HeapGroupReader(self, span)
        while self.bare:
            entries, state = list(reader.readable_entries()), reader.walking
            layouts = list(reader.file.layouts)
            known = layouts[state] is not self.bare[state]
            if not (known and isinstance(reader.problem, UnknownEndError)):
                yield from entries
                return reader
            layouts[state] = self.bare[state]
            reader = _HeapGroupReader(replace(self, layouts=tuple(layouts)), span)
        yield from reader.readable_entries()
        return reader

    def _unwalkable(self, lost: Sequence[_HeapGroupReader]) -> UnwalkableError:
        """Return the error of key groups in which not all entries are found."""
        first, names = lost[0].problem, [state.name for state in self.header.states]
        assert first is not None  # noqa: S101 - by the caller
        states = sorted({state for reader in lost for state in reader.lost})
        shown = [repr(names[state]) for state in states[:SHOWN_STATES]]
        shown += [f"{len(states) - SHOWN_STATES} more"] if len(states) > SHOWN_STATES else []
        groups = "in key group " + str(lost[0].group)
        if len(lost) > 1:
            groups = f"in {len(lost)} key groups, {lost[0].group} first,"
        return UnwalkableError(
            f"{first.problem}; {groups} not all entries are found of state {', '.join(shown)}",
            place=first.place,
            remedy=first.remedy,
            states=(names[state] for state in states),
            why=lost[0].why,
        )

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Return the ids of the states in the order of every key group; empty if it is not known.

        It is taken from the shortest key group, which seldom has any entry.
        """
        shortest = min(self.spans, key=lambda span: span.end - span.start)
        try:
            reader = _HeapGroupReader(self, shortest)
            return tuple(cut.state for cut in reader.cuts(())) if reader.complete else ()
        except StateError:
            return ()


class _HeapGroupReader(EntryWalker):
    """A walker over one key group."""

    where = "in the heap backend's own format"

    def __init__(self, file: HeapFile, span: KeyGroupSpan) -> None:
        self.file = file
        self.span = span
        self.name, self.group = file.source.name, span.group
        self.broken: StateError | None = None
        self.borders: list[int] = []
        self.open_end = file.part and span == file.spans[-1]
        self.data = self._read()
        self.at = 0
        self.walking = 0
        self.ended = False
        self.done: set[int] = set()
        self.problem: UnsupportedFormatError | None = None

    @property
    def lost(self) -> set[int]:
        """The states of which not all entries are found."""
        return set(range(len(self.file.layouts))) - self.done

    @property
    def why(self) -> str:
        """Return why entries are not found, whatever the key group."""
        if not self.opaque:
            return "" if self.problem is None else self.problem.problem
        return f"only its class knows where a value ends: {self._of_opaque()}"

    def _of_opaque(self) -> str:
        """Return the classes that only they themselves can walk, and their states."""
        shown, more = self.opaque[:SHOWN_STATES], len(self.opaque) - SHOWN_STATES
        classes = {_native_value(self.file.layouts[state])[0][0].name for state in shown}
        names = [repr(self.file.header.states[state].name) for state in shown]
        names += [f"{more} more"] if more > 0 else []
        return f"{', '.join(sorted(classes))}; state {', '.join(names)} {self.where}"

    def emptied(self) -> _HeapGroupReader:
        """Return the reader without the key group's content."""
        self.data = self.data[:0]
        return self

    def _read(self) -> U8Array:
        """Return the key group's content behind its number, decompressed."""
        span, source = self.span, self.file.source
        head = np.empty(4, np.uint8)
        if span.end - span.start < len(head):
            raise self._fault("a key group that is cut off", 0)
        source.read_into(span.start, head)
        group = int.from_bytes(head.tobytes(), "big")
        if group != span.group:
            raise self._fault(f"key group {group} where {span.group} should be", 0)
        start, compressed = span.start + 4, self.file.header.compressed
        try:
            stream = open_stream(source, start, span.end, compressed=compressed)
            content = self._content(stream)
        except StateError:
            if not compressed:
                raise
            stream = SnappyStream(source, start, span.end, up_to_break=True)
            content = self._content(stream)
            self.broken = stream.error
        if isinstance(stream, SnappyStream) and len(stream.borders) == len(self.file.layouts):
            self.borders = stream.borders
        return content

    def _content(self, stream: StateStream) -> U8Array:
        blocks, span = [], self.span
        while True:
            block = np.empty(min(BLOCK_BYTES, 16 * (span.end - span.start)), np.uint8)
            count = stream.read_into(block)
            blocks.append(block[:count])
            if count < block.size:
                return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    @property
    def recovers(self) -> bool:
        """Return whether values of unknown ends are found by the structure around them."""
        return bool(self.opaque and self.file.max_parallelism and self.complete)

    def readable_entries(self) -> Iterator[Entries]:
        """Yield the entries of each state; of a damaged state, those before the damage.

        Afterwards `problem` says why not all of them are found.
        """
        try:
            yield from self._recovered() if self.recovers else self._states()
        except UnsupportedFormatError as error:
            self.problem = error
            return
        except CorruptSnapshotError:
            if self.broken is None:
                raise
        if self.broken is not None and not (self.open_end and self.ended):
            place = f"{self.broken.place}, key group {self.span.group}"
            raise CorruptSnapshotError(self.broken.problem, place=place) from self.broken

    def _states(self) -> Iterator[Entries]:
        seen = set()
        for _ in self.file.header.states:
            if self.at + HEAD > self.data.size:
                raise self._fault("a key group that ends before all its states", self.at)
            head = self.data[self.at : self.at + HEAD].tobytes()
            state, count = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:], "big")
            self.at += HEAD
            if state >= len(self.file.layouts):
                raise self._fault(f"state id {state}, which the header did not register", self.at)
            if state in seen:
                raise self._fault(f"state id {state} for the second time", self.at)
            seen.add(state)
            if count > self.data.size - self.at:
                raise self._fault(f"{count} entries declared in too few bytes", self.at)
            rows = min(count, TABLE_ROWS)
            while count:
                rows, start = min(count, rows), self.at
                try:
                    batch = self._batch(state, rows)
                except CorruptSnapshotError:
                    if rows == 1:
                        raise
                    rows, self.at = rows // 2, start
                    continue
                yield batch
                count -= rows
            self.done.add(state)
        following = self.data[self.at : self.at + 4].tobytes()
        self.ended = self.at == self.data.size or (
            self.open_end and int.from_bytes(following, "big") == self.span.group + 1
        )
        if not self.ended:
            raise self._fault(f"{self.data.size - self.at} bytes behind the last state", self.at)

    # ----------------------------------------------- values that only their own class can walk

    @property
    def complete(self) -> bool:
        """Return whether the content is that of this key group, and all of it."""
        return not (self.open_end or self.broken)

    @cached_property
    def opaque(self) -> list[int]:
        """Return the states whose values only their class can walk, but whose keys are readable."""
        return [state for state in range(len(self.file.layouts)) if self._is_opaque(state)]

    def _is_opaque(self, state: int) -> bool:
        layout = self.file.layouts[state]
        if layout.kind is StateKind.TIMERS:
            return False
        known = layout.namespace.self_delimiting and layout.key.self_delimiting
        return known and not _native_value(layout)[0][0].self_delimiting

    def _recovered(self) -> Iterator[Entries]:
        """Yield the entries of all states, finding opaque ones by the structure around them."""
        lost: list[SnapshotError] = []
        cuts = self.cuts(self.file.order, lost)
        for error in lost:
            self.problem = error if isinstance(error, UnknownEndError) else UnsupportedFormatError(
                f"{error.problem} ({self._of_opaque()})", place=self._named(), remedy=NO_END
            )  # fmt: skip
        for cut in cuts:
            try:
                yield from self._of_cut(cut)
            except UnsupportedFormatError as error:  # noqa: PERF203 - other states are cut
                self.problem = self.problem or error

    def _of_cut(self, cut: StateCut) -> Iterator[Entries]:
        self.at = cut.start
        if cut.starts is not None:
            yield self._cut_batch(cut.state, cut.starts, cut.end)
        elif cut.count:
            yield self._batch(cut.state, cut.count)
        self.done.add(cut.state)

    def cuts(
        self, order: tuple[int, ...], lost: list[SnapshotError] | None = None
    ) -> list[StateCut]:
        """Return the positions of each state's entries.

        Args:
            order: The order of the states, if it is known.
            lost: Receives the error if not all are determined; the determined ones are returned.

        Raises:
            AmbiguousError: The positions are not determined.
        """
        data, layouts = self.data.tobytes(), self.file.layouts

        @cache
        def places(state: int) -> tuple[list[int], list[int]]:
            layout = layouts[state]
            counted = layout.kind in (StateKind.LIST, StateKind.MAP)
            parts = layout.namespace, layout.key
            most = self.file.max_parallelism
            return entry_starts(data, parts, self.group, most, counted=counted)

        return recover_states(
            data, self.opaque, len(layouts), self._walked, places, order, self.borders, lost
        )

    def _walked(self, state: int, begin: int, count: int) -> int | None:
        """Return the end of a walkable state's entries; None if they can't begin there."""
        layout, self.at, self.walking = self.file.layouts[state], begin, state
        timer = layout.kind is StateKind.TIMERS
        parts = (LongSerializer(), layout.key, layout.namespace) if timer else (
            layout.namespace, layout.key, *_native_value(layout)[0]
        )  # fmt: skip
        try:
            self._walk(parts, count)
        except CorruptSnapshotError:
            return None
        return self.at

    def _cut_batch(self, state: int, starts: I64Array, end: int) -> Entries:
        """Return entries of a state at some starts, whose values end where the next one begins."""
        layout = self.file.layouts[state]
        ends = np.append(starts[1:], end)
        keys = self._part_end(layout.namespace, starts, ends)
        values = self._part_end(layout.key, keys, ends)
        if layout.kind not in (StateKind.LIST, StateKind.MAP):
            return self._transcode(state, layout, [starts, keys, values, ends], ())
        counts = self._counts(values)
        name = self.file.header.states[state].name
        empty = np.flatnonzero((counts == 0) & (ends - values != 4))
        if empty.size:
            raise self._fault("bytes behind an empty list or map", int(values[empty[0]]))
        apart = layout.user_key is None or layout.user_key.self_delimiting
        if (counts > apart).any():  # in a map of one entry its user key must have an end, too
            last = layout.value if apart else layout.user_key
            assert last is not None  # noqa: S101 - not of timers
            raise UnsupportedFormatError(
                f"several {last.name} side by side {self.where}, or one with a value behind it,"
                " and nothing between them: only their class knows where one ends",
                place=f"state {name!r}, {self._named()}",
                remedy=NO_END,
            )
        full = np.flatnonzero(counts)
        keys_of = [(keys[full], values[full]), (starts[full], keys[full])]
        begin, ends = values[full] + 4, ends[full]
        if layout.user_key is None:
            return self._entries(state, keys_of, (begin, ends), layout.ambiguous)
        user_key_end = self._part_end(layout.user_key, begin, ends)
        return self._entries(
            state, keys_of, (user_key_end, ends), layout.ambiguous, (begin, user_key_end)
        )

    def _batch(self, state: int, rows: int) -> Entries:
        """Return the next `rows` entries of a state, in the unified format."""
        layout, self.walking = self.file.layouts[state], state
        name = self.file.header.states[state].name
        try:
            if layout.kind is StateKind.TIMERS:
                timer = (LongSerializer(), layout.key, layout.namespace)
                starts, *_, ends = self._walk(timer, rows)
                return self._entries(state, [(starts, ends)], (ends, ends))
            value, elements = _native_value(layout)
            bounds = self._walk((layout.namespace, layout.key, *value), rows)
            return self._transcode(state, layout, bounds, elements)
        except StateError as error:
            raise error.within(f"state {name!r}") from error

    # ------------------------------------------------------------------- into the unified format

    def _transcode(
        self,
        state: int,
        layout: KeyedLayout,
        bounds: list[I64Array],
        elements: tuple[TypeSerializer, ...],
    ) -> Entries:
        namespace, key, value, ends = bounds
        keys = [(key, value), (namespace, key)]
        if not elements:
            return self._entries(state, keys, (value, ends), layout.ambiguous)
        counts = self._counts(value)
        first = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        starts, behind = np.empty(int(first[-1]), np.int64), np.empty(int(first[-1]), np.int64)
        self._locate_elements(value + 4, ends, counts, first, elements, starts, behind)
        if layout.kind is StateKind.LIST:
            full = counts > 0
            joined = starts, behind
            kept = [(a[full], b[full]) for a, b in keys]
            return self._joined(state, layout, kept, joined, counts[full])
        rows = np.repeat(np.arange(len(counts)), counts)
        user_key_end = self._part_end(elements[0], starts, behind)
        spread = [(a[rows], b[rows]) for a, b in keys]
        return self._entries(
            state, spread, (user_key_end, behind), layout.ambiguous, (starts, user_key_end)
        )

    def _counts(self, positions: I64Array) -> I64Array:
        data = self.data
        return (
            data[positions].astype(np.int64) << 24
            | data[positions + 1].astype(np.int64) << 16
            | data[positions + 2].astype(np.int64) << 8
            | data[positions + 3].astype(np.int64)
        )

    def _locate_elements(
        self,
        position: I64Array,
        ends: I64Array,
        counts: I64Array,
        first: I64Array,
        parts: tuple[TypeSerializer, ...],
        starts: I64Array,
        behind: I64Array,
    ) -> None:
        """Find the positions of each list's elements, or each map's entries."""
        programs = [_flagged(part) for part in parts[1:]]
        all_programs = [parts[0].skip_program(), *programs]
        parts_words = [word for program in all_programs if program is not None for word in program]
        if all(program is not None for program in all_programs):
            words = np.array(parts_words, np.int32)
            moving = position.copy()
            failed = locate_counted(self.data, moving, ends, counts, first, words, starts, behind)
            if failed < 0 and (moving != UNKNOWN).all():
                return
        for row in range(len(counts)):
            at, end = int(position[row]), int(ends[row])
            source = DataInput(self.data[at:end].tobytes(), self._place(at))
            for index in range(int(first[row]), int(first[row + 1])):
                starts[index] = at + source.position
                parts[0].skip(source)
                for part in parts[1:]:
                    if not source.read_boolean():
                        part.skip(source)
                behind[index] = at + source.position

    def _part_end(self, part: TypeSerializer, starts: I64Array, ends: I64Array) -> I64Array:
        program = part.skip_program()
        if program is not None:
            behind = self._behind(starts, ends, np.array(program, np.int32))
            if (behind != UNKNOWN).all():
                return behind
        behind = np.empty(len(starts), np.int64)
        for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            source = DataInput(self.data[start:end].tobytes(), self._place(start))
            part.skip(source)
            behind[row] = start + source.position
        return behind

    def _joined(
        self,
        state: int,
        layout: KeyedLayout,
        keys: list[tuple[I64Array, I64Array]],
        joined: tuple[I64Array, I64Array],
        counts: I64Array,
    ) -> Entries:
        """Return entries of list states: the elements of each, joined by the delimiter."""
        starts, behind = joined
        within = np.concatenate((np.zeros(1, np.int64), np.cumsum(behind - starts + 1)))
        begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
        data = np.full(int(within[-1]), DELIMITER, np.uint8)
        copy_pieces(self.data, starts, behind, data, within[:-1].copy())
        base = self.data.size
        values = base + within[begin[:-1]], base + within[begin[1:]] - 1
        return self._entries(
            state, keys, values, layout.ambiguous, data=np.concatenate((self.data, data))
        )

    # ------------------------------------------------------------------------------------ places

    def _place(self, position: int) -> str:
        at = position + (0 if self.file.header.compressed else self.span.start + 4)
        where = "offset in the decompressed key group" if self.file.header.compressed else "offset"
        return f"{self._named()}, {where} {at}"

    def _fault(self, problem: str, position: int) -> CorruptSnapshotError:
        return CorruptSnapshotError(
            problem,
            place=self._place(position) if position else self._named(),
            remedy="the file is damaged or was not copied whole: fetch it again",
        )


def _native_value(
    layout: KeyedLayout,
) -> tuple[tuple[TypeSerializer, ...], tuple[TypeSerializer, ...]]:
    """Return the part for an entry's value, and the parts of a list's or map's elements."""
    assert layout.value is not None  # noqa: S101 - not of timers
    part = TtlSerializer(layout.value) if layout.with_ttl else layout.value
    if layout.kind is StateKind.LIST:
        known = part.self_delimiting and part.min_length > 0
        return ((ListSerializer(part),), (part,)) if known else ((OpaqueSerializer(part.name),), ())
    user_key = layout.user_key
    if user_key is not None and user_key.self_delimiting and part.self_delimiting:
        return (MapSerializer(user_key, part),), (user_key, part)
    return (part if user_key is None else OpaqueSerializer(part.name),), ()


def _flagged(part: TypeSerializer) -> tuple[int, ...] | None:
    """Return the program of a map's value: a null flag, then the value if it is 0."""
    program = part.skip_program()
    return None if program is None else (WHEN, 0, len(program), *program)


@dataclass(frozen=True)
class HeapKeyedFile(SpannedFile):
    """A `KeyedFile` in the heap backend's own format.

    Attributes:
        part: As in `HeapFile`.
        complete: Whether the file has all the bytes that its handle declares.
    """

    part: bool = False
    complete: bool = True

    @cached_property
    def file(self) -> HeapFile:
        """The reader of its entries."""
        # the end of values of unknown classes can only be found in whole files
        most = self.max_parallelism if self.complete else 0
        walking = self.head.walking()
        bare = self.head.without_decoders(walking)
        return HeapFile(self.source, self.header, walking, self.spans, self.part, most, bare)

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups, in the unified format."""
        return self.file.entries(key_groups)
