"""The keyed state of one subtask, opened as far as possible: faults are noted, not raised.

The opener is that of every reader, `keyed_files`; its steps are overridden here, so that the
unaffected key groups of a damaged file are still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from statelake.state_core.errors import (
    CorruptSnapshotError,
    StateError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.headed_file import (
    FileHeader,
    HeadedFile,
    KeyGroupSpan,
    SpannedFile,
)
from statelake.state_core.formats.keyed.heap.heap_native import HeapKeyedFile
from statelake.state_core.formats.keyed.keyed_files import (
    OpeningSteps,
    OperatorHandles,
    begins_with_number,
    is_unified_group,
    only_materialized,
    open_keyed,
    open_raw_timers,
)
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBFiles, RocksDBKeyedFile
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import KeyedHeader
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.integrity.findings import FaultKind, Findings, Place
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import (
    ChangelogHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    KeyGroupsKind,
    StreamHandle,
    keyed_bytes,
)
from statelake.state_core.model.snapshot import KeyedState

SLICE_BYTES = 32 << 20


@dataclass(frozen=True)
class KeyedSource:
    """The readable part of one subtask's keyed state.

    Attributes:
        where: The operator and the subtask.
        key_groups: The key groups that the handle claims, within the max parallelism.
        file: The file of the entries.
        spans: The positions of key groups; empty for RocksDB, whose files don't have them.
        lengths: The length of each key group by the offsets, even if the file is shorter.
        faulty: The ids of states whose meta info is wrong, so that their entries can't be read.
        suspect: Whether RocksDB's files have a fault, even if no entry shows it.
    """

    where: Place
    key_groups: KeyGroupRange
    file: HeadedFile
    spans: tuple[KeyGroupSpan, ...] = ()
    lengths: dict[int, int] = field(default_factory=dict)
    faulty: frozenset[int] = frozenset()
    suspect: StateError | None = None

    @property
    def header(self) -> KeyedHeader:
        """The file's header."""
        return self.file.header

    @property
    def max_parallelism(self) -> int:
        """The number of key groups."""
        return self.file.max_parallelism

    @cached_property
    def layouts(self) -> tuple[KeyedLayout | None, ...]:
        """The layout of each state's entries; None if it is not known."""
        readable = self.file.head.readable
        return tuple(None if isinstance(each, StateError) else each[0] for each in readable)

    @cached_property
    def states(self) -> dict[str, KeyedState]:
        """Return its states that have a layout, by name, as readers see them."""
        readable = self.file.head.readable
        states = [each[1] for each in readable if not isinstance(each, StateError)]
        return {state.name: state for state in states}

    def without(self, name: str) -> KeyedSource:
        """Return the same source without the entries of one state."""
        ids = [index for index, state in enumerate(self.header.states) if state.name == name]
        return replace(self, faulty=self.faulty | frozenset(ids))

    def read(self, key_groups: KeyGroupRange, state: int | None) -> Iterator[Entries]:
        """Yield entries of some key groups; entries before a fault come before the error."""
        if isinstance(self.file, RocksDBKeyedFile):
            return self.file.database.entries(key_groups, None if state is None else [state])
        if isinstance(self.file, UnifiedKeyedFile):
            return self.file.file.entries(key_groups, to_the_end=True)
        return self.file.entries(key_groups)

    def slices(self) -> list[tuple[KeyGroupRange, int | None]]:
        """Return the units of work: key groups, and for RocksDB one state with its own files."""
        if isinstance(self.file, RocksDBKeyedFile):
            return [(self.key_groups, state) for state in range(len(self.header.states))]
        slices: list[tuple[KeyGroupRange, int | None]] = []
        first, size = None, 0
        for span in self.spans:
            span_size = span.end - span.start
            if first is not None and size + span_size > SLICE_BYTES:
                slices.append((KeyGroupRange(first, span.group - 1), None))
                first, size = None, 0
            first = span.group if first is None else first
            size += span_size
        if first is not None:
            slices.append((KeyGroupRange(first, self.spans[-1].group), None))
        return slices

    def stored(self, key_groups: KeyGroupRange) -> int | None:
        """Return the stored size of some key groups in bytes; None if it is not known."""
        if isinstance(self.file, RocksDBKeyedFile):
            return None
        return sum(length for group, length in self.lengths.items() if group in key_groups)


@dataclass(frozen=True)
class UnknownSource:
    """A whole file of the unified format whose types are unknown: it can be carried as it is."""

    handle: KeyGroupsHandle


def open_source(
    handle: KeyedHandle, siblings: OperatorHandles, where: Place, findings: Findings
) -> KeyedSource | UnknownSource | None:
    """Open one keyed handle; return None if it is unreadable or has no data."""
    base = only_materialized(handle) if isinstance(handle, ChangelogHandle) else handle
    if base is None:
        return _open_changelog(handle, siblings, where, findings)
    if not isinstance(base, KeyGroupsHandle | IncrementalHandle):
        error = CorruptSnapshotError(f"a {type(base).__name__} that is no part of a changelog")
        findings.fault(FaultKind.METADATA, where, error)
        _lose_all(base, where, findings, error.problem)
        return None
    before = len(findings.faults)
    noting = _Noting(base, siblings.max_parallelism, where, findings)
    file = open_keyed(handle, siblings.files, siblings.max_parallelism, siblings, noting)
    if file is None:
        if noting.unknown and isinstance(base, KeyGroupsHandle):
            return UnknownSource(base)
        return None
    faulty = _faulty_states(file, noting.name, where, findings)
    suspect = None
    if isinstance(file, HeapKeyedFile) and any(
        isinstance(state, StateError) for state in file.head.readable
    ):
        why = "a state in it has a layout that is not known, and what follows can't be found"
        findings.skip(where, why, unread=True)
        noting.lose(why)
        return None
    if isinstance(file, RocksDBKeyedFile):
        try:
            file, suspect = _open_database(file)
        except StateError as error:
            if len(findings.faults) == before:  # otherwise the missing part is already known
                findings.fault(FaultKind.FILE, where, error)
            noting.lose(error.problem)
            return None
        if len(findings.faults) > before:
            suspect = None
    spans = file.spans if isinstance(file, SpannedFile) else ()
    return KeyedSource(where, noting.within, file, spans, noting.lengths, faulty, suspect)


def _open_database(file: RocksDBKeyedFile) -> tuple[RocksDBKeyedFile, StateError | None]:
    """Open RocksDB's files, leniently if they have a fault; return that, too.

    Raises:
        StateError: They can't be opened at all.
    """
    try:
        if file.database.files:
            file.database.open()
    except StateError as error:
        strict = file.database
        lenient = RocksDBFiles(
            strict.name, strict.header, strict.files, strict.key_groups, strict.prefix, lenient=True
        )
        lenient.open()
        return replace(file, database=lenient), error
    return file, None


def open_timers(
    handle: KeyedHandle | None,
    files: StateFiles,
    max_parallelism: int,
    where: Place,
    findings: Findings,
) -> KeyedSource | None:
    """Open raw keyed state that consists of timers; return None if the operator has no timers.

    Raises:
        SnapshotError: The raw state can't be read.
    """
    file = open_raw_timers(handle, files, max_parallelism)
    if file is None:
        return None
    within = file.key_groups.intersection(KeyGroupRange(0, max_parallelism - 1))
    spans = tuple(span for span in file.spans if span.group in within)
    lengths = {span.group: span.end - span.start for span in spans}
    faulty = _faulty_states(file, file.name, where, findings)
    return KeyedSource(where, within, file, spans, lengths, faulty)


def open_stream_of(
    stream: StreamHandle, files: StateFiles, where: Place, findings: Findings, *, part: bool = False
) -> ByteSource | None:
    """Open the bytes of a handle, as far as they exist; note missing bytes.

    Args:
        stream: The handle.
        files: The files of the snapshot.
        where: The place of the findings.
        findings: Collects the findings.
        part: Whether the file may appear in several handles, each for other key groups.
    """
    findings.checked.handles += 1
    findings.checked.size += stream.size
    try:
        return files.open(stream, part=part)
    except UnsupportedFormatError as error:
        findings.skip(where, error.problem, unread=True)
        return None
    except StateError as error:
        findings.fault(FaultKind.FILE, where, error)
    try:
        return files.open(stream, complete=False)
    except StateError:
        return None


def _lose_all(handle: KeyedHandle, where: Place, findings: Findings, why: str) -> None:
    place = replace(where, key_groups=handle.key_groups)
    findings.lose(place, why, size=keyed_bytes(handle))


def _faulty_states(file: HeadedFile, name: str, where: Place, findings: Findings) -> frozenset[int]:
    """Return the ids of states with wrong meta info."""
    faulty = set()
    for index, (state, known) in enumerate(
        zip(file.header.states, file.head.readable, strict=True)
    ):
        place = replace(where, state=state.name)
        if isinstance(known, UnsupportedFormatError):
            findings.skip(replace(place, subtask=None), known.problem)
        elif isinstance(known, StateError):
            error = CorruptSnapshotError(known.problem, place=name, remedy=known.remedy)
            findings.fault(FaultKind.HEADER, place, error)
            findings.lose(place, known.problem)
            faulty.add(index)
    return frozenset(faulty)


def _open_changelog(
    handle: KeyedHandle, siblings: OperatorHandles, where: Place, findings: Findings
) -> KeyedSource | None:
    """Open a materialized snapshot with its changes: None if any of its files is damaged."""
    assert isinstance(handle, ChangelogHandle)  # noqa: S101 - by the caller
    findings.checked.handles += len(handle.materialized) + len(handle.changes)
    findings.checked.size += keyed_bytes(handle)
    try:
        file = open_keyed(handle, siblings.files, siblings.max_parallelism, siblings)
        lengths = {} if file is None else dict(file.group_bytes())
    except StateError as error:
        if isinstance(error, UnsupportedFormatError):
            findings.skip(where, error.problem, unread=True)
        else:
            findings.fault(FaultKind.FILE, where, error)
        _lose_all(handle, where, findings, error.problem)
        return None
    if file is None:
        return None
    spans = tuple(KeyGroupSpan(group, 0, size) for group, size in lengths.items())
    faulty = _faulty_states(file, file.name, where, findings)
    return KeyedSource(where, file.key_groups, file, spans, lengths, faulty)


class _Noting(OpeningSteps):
    """The steps of opening a file that note faults, and go on with what is left.

    Args:
        handle: The handle.
        max_parallelism: The number of key groups.
        where: The place of the findings.
        findings: Collects the findings.
    """

    def __init__(
        self, handle: KeyedHandle, max_parallelism: int, where: Place, findings: Findings
    ) -> None:
        self.handle, self.where, self.findings = handle, where, findings
        self.within = handle.key_groups.intersection(KeyGroupRange(0, max_parallelism - 1))
        self.name = ""  # of the file with the header
        self.unknown = False  # whether its types are, and it is whole
        self.lengths: dict[int, int] = {}

    def lose(self, why: str) -> None:
        """Note that nothing of the handle can be read."""
        _lose_all(self.handle, self.where, self.findings, why)

    def stream(self, stream: StreamHandle, files: StateFiles, *, part: bool) -> ByteSource | None:
        """Open the bytes of a handle, as far as they exist."""
        return open_stream_of(stream, files, self.where, self.findings, part=part)

    def head(
        self, source: ByteSource | None, end: int | None, files: StateFiles
    ) -> FileHeader | None:
        """Read the head of a file; None if that is impossible."""
        if source is None:
            meta = "meta " if isinstance(self.handle, IncrementalHandle) else ""
            self.lose(f"its {meta}file can't be opened")
            return None
        self.name = source.name
        try:
            return super().head(source, end, files)
        except UnknownSerializerError as error:
            remedy = f"; {error.remedy}" if error.remedy else ""
            self.findings.skip(self.where, f"{error.problem}{remedy}", unread=True)
            self.unknown = self._is_whole(source)
            if not self.unknown:
                self.lose(error.problem)
        except StateError as error:
            self.findings.fault(FaultKind.HEADER, self.where, error)
            self.lose(error.problem)
        return None

    def _is_whole(self, source: ByteSource) -> bool:
        """Return whether a file of the unified format could be carried as it is."""
        handle = self.handle
        if not isinstance(handle, KeyGroupsHandle) or handle.kind is not KeyGroupsKind.SAVEPOINT:
            return False
        sized = handle.stream is not None and source.size == handle.stream.size
        return sized and self.within == handle.key_groups

    def is_heap(
        self, source: ByteSource, handle: KeyGroupsHandle, spans: Sequence[KeyGroupSpan]
    ) -> bool:
        """Return whether most key groups exist and begin with their numbers."""
        numbered = sum(begins_with_number(source, span) for span in spans)
        empty = sum(offset == 0 for offset in handle.offsets)
        most = 2 * numbered > len(spans) and 2 * empty < len(handle.offsets)
        return most and not is_unified_group(source, spans)

    def spans(
        self, handle: KeyGroupsHandle, header: KeyedHeader, source: ByteSource, end: int | None
    ) -> list[KeyGroupSpan]:
        """Return the positions of key groups; note offsets that lead nowhere."""
        size = source.size
        declared = max(size, 0 if handle.stream is None else handle.stream.size)
        last = declared if end is None else end
        bounds = sorted({at for at in handle.offsets if header.size <= at < last} | {last})
        behind = dict(pairwise(bounds))
        self.lengths = {
            handle.first + i: behind[at] - at for i, at in enumerate(handle.offsets) if at in behind
        }
        spans: list[KeyGroupSpan] = []
        for index, at in enumerate(handle.offsets):
            group = handle.first + index
            place = replace(self.where, key_groups=KeyGroupRange(group, group))
            if at == 0:
                continue
            if at in behind and at < size:
                spans.append(KeyGroupSpan(group, at, min(behind[at], size)))
                continue
            problem = f"its offset {at} lies outside the file's {size} bytes"
            if at in behind:
                problem = "all of it lies behind the end of the file"
            elif 0 < at < header.size:
                problem = f"its offset {at} lies inside the header of {header.size} bytes"
            error = CorruptSnapshotError(
                problem,
                place=source.name,
                remedy="`_metadata` and this file do not belong together, or one is damaged",
            )
            self.findings.fault(FaultKind.RANGE, place, error)
            self.findings.lose(place, problem, size=self.lengths.get(group))
        return [span for span in spans if span.group in self.within]
