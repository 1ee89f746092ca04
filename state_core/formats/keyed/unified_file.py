"""The unified format of keyed state (FLIP-41), read a window at a time.

A file is a header (`meta_info`) and, for each key group that has data, its entries at the offset
that the handle gives; offset 0 means that the key group is empty. With compression each key group
is a Snappy stream of its own. Memory is bounded by the window, whatever the size of a key group;
only a larger entry makes the window grow.

Source: `FullSnapshotAsyncWriter` and `FullSnapshotRestoreOperation` in
`org.apache.flink.runtime.state`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from statelake.state_core.errors import CorruptSnapshotError, StateError
from statelake.state_core.files.compression import SnappyStream, StateStream, open_stream
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.headed_file import KeyGroupSpan, SpannedFile
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.kernels import scan
from statelake.state_core.kernels.scan import scan_unified
from statelake.state_core.model.entries import Entries, FilePiece, pieces_between
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import prefix_bytes

WINDOW_BYTES = 4 << 20
USUAL_RATIO = 3  # of bytes to those that Snappy makes of them
TABLE_ROWS = 1 << 17
MARK_BYTES = 2
LENGTH_BYTES = 4
GUESS_ENTRIES = 32  # consecutive entries in front of a guessed start
GUESS_BYTES, GUESS_WITHIN = 1 << 20, 1 << 16  # bytes to read, and the largest offset in them

_FAULTS = {
    scan.BAD_LENGTH: "an entry's length leads past the end of its key group",
    scan.BAD_PREFIX: "a key that begins with another key group's number",
    scan.BAD_STATE: "a state id that the header did not register",
}


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """The position of an entry, with everything needed to read on from there.

    Attributes:
        group: Its key group.
        state: Its state, whose id may be far in front of it.
        at: Its offset in the file; with compression, in the decompressed key group.
        read_from: An offset in the file from which reading can start, at the entry or before it.
        passed: Bytes of content between that offset and the entry.
    """

    group: int
    state: int
    at: int
    read_from: int
    passed: int


def spans_of(first: int, offsets: tuple[int, ...], size: int, name: str) -> list[KeyGroupSpan]:
    """Return a handle's offsets as spans, by key group; empty key groups are left out.

    Raises:
        CorruptSnapshotError: An offset lies outside the file, or two are the same.
    """
    begins = sorted((at, first + i) for i, at in enumerate(offsets) if at != 0)
    spans = []
    for index, (start, group) in enumerate(begins):
        end = begins[index + 1][0] if index + 1 < len(begins) else size
        if not 0 < start < end:
            raise CorruptSnapshotError(
                f"key group {group} begins at offset {start}, and ends at {end}",
                place=name,
                remedy="`_metadata` and this file do not belong together, or one is damaged",
            )
        spans.append(KeyGroupSpan(group, start, end))
    return sorted(spans, key=lambda span: span.group)


@dataclass(frozen=True)
class UnifiedFile:
    """One keyed handle of the unified format, opened.

    Attributes:
        source: The file's bytes.
        header: The header, which describes its states.
        spans: Its key groups that have data, ascending.
        prefix: Bytes of the key-group prefix.
    """

    source: ByteSource
    header: KeyedHeader
    spans: tuple[KeyGroupSpan, ...]
    prefix: int

    def within(self, key_groups: KeyGroupRange | None) -> list[KeyGroupSpan]:
        """Return the spans of some key groups; of all for None."""
        return [span for span in self.spans if key_groups is None or span.group in key_groups]

    def entries(
        self,
        key_groups: KeyGroupRange | None = None,
        window_bytes: int | None = None,
        *,
        to_the_end: bool = False,
    ) -> Iterator[Entries]:
        """Yield all entries of some key groups, in batches, key group after key group.

        Args:
            key_groups: The key groups; all by default.
            window_bytes: The number of bytes in memory at once; `WINDOW_BYTES` by default.
            to_the_end: Whether bytes behind the end mark of a key group, which Flink ignores, are a
                fault; and whether entries before the damage of a compressed key group come before
                the error.

        Raises:
            CorruptSnapshotError: The bytes are not entries of these key groups.
        """
        return _Scanner(self, self.within(key_groups), window_bytes, to_the_end).run()

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, window_bytes: int | None = None
    ) -> list[FilePiece]:
        """Cut some key groups into pieces of about `piece_bytes` bytes as stored, in order.

        Only lengths are scanned, a window at a time; a piece ends at the end of a window.

        Raises:
            CorruptSnapshotError: The bytes are not entries of these key groups.
        """
        spans = self.within(key_groups)
        sizes = {span.group: span.end - span.start for span in spans}
        before = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        starts = {span.group: span.start for span in spans}
        scanner = _Scanner(self, spans, window_bytes, to_the_end=False)
        scanner.marking = True
        cuts: list[tuple[EntryPlace | None, int]] = [(None, 0)]
        for entries in scanner.run():
            place = scanner.place_of_first(entries)
            read = before[place.group] + place.read_from - starts[place.group]
            if read - cuts[-1][1] >= piece_bytes:
                cuts.append((place, read))
        cuts.append((None, sum(sizes.values())))
        return pieces_between(key_groups, cuts)

    def guess(self, key_groups: KeyGroupRange, piece_bytes: int) -> list[FilePiece]:
        """Cut key groups like `cut`, with little reading, if one key group has most bytes.

        Each piece begins behind bytes that look like consecutive entries. If no entry begins there,
        the reader of the piece before it finds out.

        Returns:
            The pieces; empty if they can't be guessed: with compression, with several states (an
            entry does not contain its state), or if most entries are large.
        """
        spans = self.within(key_groups)
        sizes = [span.end - span.start for span in spans]
        if self.header.compressed or len(self.header.states) != 1:
            return []
        if 2 * max(sizes, default=0) <= sum(sizes):
            return []
        most = sizes.index(max(sizes))
        span = spans[most]
        places: list[EntryPlace] = []
        offsets = range(span.start + piece_bytes, span.end - piece_bytes // 2, piece_bytes)
        for offset in offsets:
            at = self._entry_from(offset, span)
            if at is not None and (not places or at > places[-1].at):
                places.append(EntryPlace(span.group, 0, at, at, 0))
        if 2 * len(places) <= len(offsets):
            return []
        before = sum(sizes[:most]) - span.start
        cuts = [(None, 0), *((place, before + place.at) for place in places), (None, sum(sizes))]
        return pieces_between(key_groups, cuts, guessed=True)

    def _entry_from(self, offset: int, span: KeyGroupSpan) -> int | None:
        """Return a position from an offset on where an entry seems to begin; None without one."""
        window = np.empty(min(GUESS_BYTES, span.end - offset), np.uint8)
        self.source.read_into(offset, window)
        count = min(GUESS_WITHIN, len(window) - LENGTH_BYTES - self.prefix)
        at = np.arange(max(0, count))
        lengths = sum(window[at + i].astype(np.int64) << 8 * (3 - i) for i in range(LENGTH_BYTES))
        groups = window[at + LENGTH_BYTES].astype(np.int64) & 0x7F
        if self.prefix == 2:
            groups = groups << 8 | window[at + LENGTH_BYTES + 1]
        fits = (groups == span.group) & (lengths >= self.prefix) & (lengths < len(window))
        state_of, table = np.empty(GUESS_ENTRIES, np.int16), np.empty((5, GUESS_ENTRIES), np.int64)
        for candidate in np.flatnonzero(fits).tolist():
            data = window[candidate:]
            bounds = np.array([span.group], np.int32), np.zeros(1, np.int64), np.array([len(data)])
            progress = np.zeros(4, np.int64)
            if scan_unified(
                data, *bounds, self.prefix, 1, False, progress, state_of, *table
            ) == scan.FULL:  # fmt: skip
                # a sequence that begins within an entry may end where the entry does
                return offset + int(candidate) + int(progress[scan.POSITION])
        return None

    def entries_of(self, piece: FilePiece, window_bytes: int | None = None) -> Iterator[Entries]:
        """Yield the entries of a piece of `cut`.

        Raises:
            CorruptSnapshotError: The bytes are not entries of these key groups, or not those that
                were cut.
        """
        spans = self.within(piece.key_groups)
        return _Scanner(self, spans, window_bytes, to_the_end=False, piece=piece).run()


class _Scanner:
    """A scanner that fills a window with key groups, finds entries, and carries the rest over."""

    def __init__(
        self,
        file: UnifiedFile,
        spans: list[KeyGroupSpan],
        window_bytes: int | None,
        to_the_end: bool,
        piece: FilePiece | None = None,
    ) -> None:
        self.file = file
        self.begin: EntryPlace | None = None if piece is None else piece.begin
        self.end: EntryPlace | None = None if piece is None else piece.end
        self.to_the_end = to_the_end
        self.queue = spans[::-1]
        # of compressed ones about their content: what is longer takes several windows
        content = sum(span.end - span.start for span in spans)
        content *= USUAL_RATIO if file.header.compressed else 1
        window = min(window_bytes or WINDOW_BYTES, content)
        self.window = np.empty(max(window, 1), np.uint8)
        rows = min(TABLE_ROWS, len(self.window) // (8 + file.prefix) + 1)
        self.state_of = np.empty(rows, np.int16)
        self.positions = [np.empty(rows, np.int64) for _ in range(5)]
        self.filled = 0
        self.stream: StateStream | None = None
        self.groups: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.origins: list[int] = []
        self.marking = False
        self.marks: list[tuple[int, int, int, int]] = []  # group, content, offset to read
        self.reached: dict[int, int] = {}
        self.broken: StateError | None = None

    def run(self) -> Iterator[Entries]:
        """Yield the entries, window after window."""
        state = scan.BETWEEN_RUNS if self.begin is None else self.begin.state
        while self.queue or self.stream is not None or self.groups:
            self._fill()
            ends_inside = (
                self.end is not None and self.stream is None and self.groups[-1] == self.end.group
            )
            ended = self.stream is None and self.broken is None and not ends_inside
            progress = np.array([0, self.starts[0], state, 0], np.int64)
            bounds = (
                np.array(self.groups, np.int32),
                np.array(self.starts, np.int64),
                np.array(self.ends, np.int64),
            )
            status = scan.FULL
            while status == scan.FULL:
                progress[scan.COUNT] = 0
                status = scan_unified(
                    self.window[: self.filled], *bounds, self.file.prefix,
                    len(self.file.header.states), ended, progress, self.state_of, *self.positions,
                )  # fmt: skip
                if progress[scan.COUNT]:
                    yield self._table(int(progress[scan.COUNT]))
            if self.broken is not None and status not in _FAULTS:
                place = f"{self.broken.place}, key group {self.groups[-1]}"
                raise CorruptSnapshotError(self.broken.problem, place=place) from self.broken
            if self.to_the_end:
                self._check_ends(int(progress[scan.GROUP]))
            if status in _FAULTS:
                place = self._place(int(progress[scan.POSITION]))
                raise CorruptSnapshotError(_FAULTS[status], place=place)
            state = int(progress[scan.STATE])
            self._carry(int(progress[scan.GROUP]), int(progress[scan.POSITION]))
            if self.end is not None and ends_inside:
                self._check_cut(self.end, state)
                return
        if self.end is not None:  # the key group has ended before
            self._check_cut(self.end, state)

    def _fill(self) -> None:
        """Append key groups until the window is full or nothing is left."""
        while self.filled < len(self.window):
            if self.stream is None:
                if not self.queue:
                    return
                span = self.queue.pop()
                self.stream, origin = self._open(span)
                self.groups.append(span.group)
                self.starts.append(self.filled)
                self.ends.append(self.filled)
                self.origins.append(origin)
            if self.marking:
                content = self.origins[-1] + self.filled - self.starts[-1]
                self.marks.append((self.groups[-1], content, *self.stream.mark()))
            room = len(self.window) - self.filled
            count = self.stream.read_into(self.window[self.filled :])
            self.filled += count
            self.ends[-1] = self.filled
            if count < room:
                if isinstance(self.stream, SnappyStream):
                    self.broken = self.stream.error
                self.stream = None
                if self.broken is not None:
                    return

    def _open(self, span: KeyGroupSpan) -> tuple[StateStream, int]:
        """Return the content of a key group, and the offset of its first byte for messages."""
        source, compressed = self.file.source, self.file.header.compressed
        origin = 0 if compressed else span.start
        if compressed and self.to_the_end:
            return SnappyStream(source, span.start, span.end, up_to_break=True), origin
        start, passed = span.start, 0
        if self.begin is not None and self.begin.group == span.group:
            start, passed, origin = self.begin.read_from, self.begin.passed, self.begin.at
        stream = open_stream(source, start, span.end, compressed=compressed)
        _pass(stream, passed)
        if self.end is not None and self.end.group == span.group:
            stream = _UpTo(stream, self.end.at - origin)
        return stream, origin

    def place_of_first(self, entries: Entries) -> EntryPlace:
        """Return the place of the first of some entries that were just found."""
        group = int(entries.group_of[0])
        index = self.groups.index(group)
        begins = int(entries.key_start[0]) - self.file.prefix - LENGTH_BYTES
        at = self.origins[index] + begins - self.starts[index]
        read_from, passed = at, 0
        if self.file.header.compressed:
            before = [mark for mark in self.marks if mark[0] == group and mark[1] <= at]
            self.marks = self.marks[self.marks.index(before[-1]) :]
            _, content, read_from, passed = before[-1]
            passed += at - content
        return EntryPlace(group, int(entries.state_of[0]), at, read_from, passed)

    def _check_cut(self, end: EntryPlace, state: int) -> None:
        """Refuse a piece that does not end where an entry of that state begins."""
        if self.groups and not self.filled and state == end.state:
            return
        place = f"{self.file.source.name}, key group {end.group}"
        raise CorruptSnapshotError(
            "no entry begins where one began before",
            place=self._place(0) if self.groups else place,
            remedy="the file was changed while it was read: read it again",
        )

    def _check_ends(self, closed: int) -> None:
        """Refuse bytes behind the end marks of key groups."""
        for index in range(closed):
            behind = self.reached.pop(self.groups[index], self.starts[index]) + MARK_BYTES
            left = self.ends[index] - behind
            if index == len(self.groups) - 1 and self.stream is not None:
                left += self.stream.read_into(np.empty(1, np.uint8))
            if left:
                raise CorruptSnapshotError(
                    f"{left} bytes or more behind the mark that ends the key group",
                    place=self._place(behind - MARK_BYTES),
                )

    def _carry(self, group: int, position: int) -> None:
        """Keep the unread tail of a key group that continues in the next window."""
        if group == len(self.groups):
            self.groups, self.starts, self.ends, self.origins = [], [], [], []
            self.filled, self.stream = 0, None
            return
        tail = self.window[position : self.filled].copy()
        if position == 0 and len(tail) == len(self.window):
            self.window = np.empty(2 * len(tail), np.uint8)
        self.window[: len(tail)] = tail
        origin = self.origins[group] + position - self.starts[group]
        self.reached = dict.fromkeys(self.groups[group : group + 1], 0)
        self.groups, self.starts = [self.groups[group]], [0]
        self.ends, self.origins = [len(tail)], [origin]
        self.filled = len(tail)

    def _table(self, count: int) -> Entries:
        groups, key_start, key_end, value_start, value_end = (
            position[:count] for position in self.positions
        )
        if self.to_the_end:
            last = np.append(np.flatnonzero(groups[1:] != groups[:-1]), count - 1)
            self.reached.update(zip(groups[last].tolist(), value_end[last].tolist(), strict=True))
        return Entries(
            self.window,
            self.state_of[:count],
            groups,
            key_start,
            key_end,
            value_start,
            value_end,
            self._place,
        )

    def _place(self, position: int) -> str:
        index = int(np.searchsorted(self.starts, position, side="right")) - 1
        offset = self.origins[index] + position - self.starts[index]
        where = "offset in the decompressed key group" if self.file.header.compressed else "offset"
        return f"{self.file.source.name}, key group {self.groups[index]}, {where} {offset}"


class _UpTo:
    """The first bytes of a stream."""

    def __init__(self, stream: StateStream, count: int) -> None:
        self.stream = stream
        self.left = count

    def read_into(self, out: npt.NDArray[np.uint8]) -> int:
        """Fill `out` as far as possible."""
        count = self.stream.read_into(out[: self.left])
        self.left -= count
        return count

    def mark(self) -> tuple[int, int]:
        """Return the place from which the next read can resume."""
        return self.stream.mark()


def _pass(stream: StateStream, count: int) -> None:
    """Read and discard some content."""
    spare = np.empty(min(count, WINDOW_BYTES), np.uint8)
    while count:
        read = stream.read_into(spare[:count])
        if not read:
            return  # the following bytes show that it is not one
        count -= read


@dataclass(frozen=True)
class UnifiedKeyedFile(SpannedFile):
    """A `KeyedFile` in the unified format."""

    @cached_property
    def file(self) -> UnifiedFile:
        """The reader of its entries."""
        return UnifiedFile(self.source, self.header, self.spans, prefix_bytes(self.max_parallelism))

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """Yield all entries of some key groups."""
        return self.file.entries(key_groups)

    def cut(
        self, key_groups: KeyGroupRange, piece_bytes: int, *, guess: bool = False
    ) -> list[FilePiece]:
        """Cut some key groups into pieces."""
        guessed = self.file.guess(key_groups, piece_bytes) if guess else []
        return guessed or self.file.cut(key_groups, piece_bytes)

    def entries_of(self, piece: FilePiece) -> Iterator[Entries]:
        """Yield the entries of a piece."""
        return self.file.entries_of(piece)

    def looked_up_bytes(self) -> list[tuple[int, int]]:
        """Return `group_bytes`, which comes from the handle."""
        return self.group_bytes()
