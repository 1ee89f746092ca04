"""The keyed state of one subtask, opened as far as possible: faults are noted, not raised.

`open_keyed` refuses a handle at its first fault; here the unaffected key groups are still read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from statelake.state_core.bounds import COLUMNS_IN_ALL, Budget
from statelake.state_core.checks.integrity.findings import FaultKind, Findings, Place
from statelake.state_core.errors import (
    CorruptSnapshotError,
    OversizedError,
    StateError,
    UnknownSerializerError,
    UnsupportedFormatError,
)
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.formats.keyed.changelog import ChangelogKeyedFile
from statelake.state_core.formats.keyed.heap_native import HeapFile
from statelake.state_core.formats.keyed.keyed_files import (
    RawTimersKeyedFile,
    Siblings,
    all_in_base,
    is_heap,
    open_keyed,
    open_raw_timers,
)
from statelake.state_core.formats.keyed.raw_timers import RawTimersFile
from statelake.state_core.formats.keyed.rocksdb_native import RocksDBFiles
from statelake.state_core.formats.keyed.unified import KeyGroupSpan, UnifiedFile
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.keyed_states import describe_state, layout_of
from statelake.state_core.formats.layout.meta_info import (
    KeyedHeader,
    StateMetaInfo,
    read_keyed_header,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
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
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.snapshot import Entries, KeyedState
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.restored import count_columns, restore_key

SLICE_BYTES = 32 << 20


@dataclass(frozen=True)
class KeyedSource:
    """The readable part of one subtask's keyed state.

    Attributes:
        where: The operator and the subtask.
        key_groups: The key groups that the handle claims, within the max parallelism.
        max_parallelism: The number of key groups.
        header: The file's header.
        layouts: The layout of each state's entries; None if it is not known.
        reader: The reader of the entries.
        spans: The positions of key groups; empty for RocksDB, whose files don't have them.
        lengths: The length of each key group by the offsets, even if the file is shorter.
        faulty: The ids of states whose meta info is wrong, so that their entries can't be read.
        suspect: Whether RocksDB's files have a fault, even if no entry shows it.
    """

    where: Place
    key_groups: KeyGroupRange
    max_parallelism: int
    header: KeyedHeader
    layouts: tuple[KeyedLayout | None, ...]
    reader: UnifiedFile | HeapFile | RawTimersFile | RocksDBFiles | ChangelogKeyedFile
    spans: tuple[KeyGroupSpan, ...] = ()
    lengths: dict[int, int] = field(default_factory=dict)
    faulty: frozenset[int] = frozenset()
    suspect: StateError | None = None

    @cached_property
    def states(self) -> dict[str, KeyedState]:
        """Return its states that have a layout, by name, as readers see them."""
        pairs = zip(self.header.states, self.layouts, strict=True)
        return {state.name: describe_state(state, layout) for state, layout in pairs if layout}

    def without(self, name: str) -> KeyedSource:
        """Return the same source without the entries of one state."""
        ids = [index for index, state in enumerate(self.header.states) if state.name == name]
        return replace(self, faulty=self.faulty | frozenset(ids))

    def read(self, key_groups: KeyGroupRange, state: int | None) -> Iterator[Entries]:
        """Yield entries of some key groups; entries before a fault come before the error."""
        if isinstance(self.reader, RocksDBFiles):
            return self.reader.entries(key_groups, None if state is None else [state])
        if isinstance(self.reader, HeapFile | RawTimersFile | ChangelogKeyedFile):
            return self.reader.entries(key_groups)
        return self.reader.entries(key_groups, to_the_end=True)

    def slices(self) -> list[tuple[KeyGroupRange, int | None]]:
        """Return the units of work: key groups, and for RocksDB one state with its own files."""
        if isinstance(self.reader, RocksDBFiles):
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
        if isinstance(self.reader, RocksDBFiles):
            return None
        return sum(length for group, length in self.lengths.items() if group in key_groups)


@dataclass(frozen=True)
class UnknownSource:
    """A whole file of the unified format whose types are unknown: it can be carried as it is."""

    handle: KeyGroupsHandle


def open_source(
    handle: KeyedHandle, siblings: Siblings, where: Place, found: Findings
) -> KeyedSource | UnknownSource | None:
    """Open one keyed handle; return None if it is unreadable or has no data."""
    files, max_parallelism = siblings.files, siblings.max_parallelism
    part = isinstance(handle, ChangelogHandle)  # the files may have changes of other subtasks, too
    if isinstance(handle, ChangelogHandle):
        base = all_in_base(handle)
        if base is None:
            return _open_changelog(handle, siblings, where, found)
        handle = base
    if not isinstance(handle, KeyGroupsHandle | IncrementalHandle):
        error = CorruptSnapshotError(f"a {type(handle).__name__} that is no part of a changelog")
        found.fault(FaultKind.METADATA, where, error)
        _lose_all(handle, where, found, error.problem)
        return None
    within = handle.key_groups.intersection(KeyGroupRange(0, max_parallelism - 1))
    if isinstance(handle, IncrementalHandle):
        return _open_rocksdb(handle, files, max_parallelism, where, within, found, part=part)
    return _open_key_groups(handle, siblings, where, within, found, part=part)


def open_timers(
    handle: KeyedHandle | None,
    files: StateFiles,
    max_parallelism: int,
    where: Place,
    found: Findings,
) -> KeyedSource | None:
    """Open raw keyed state that consists of timers; return None if the operator has no timers.

    Raises:
        SnapshotError: The raw state can't be read.
    """
    opened = open_raw_timers(handle, files, max_parallelism)
    if not isinstance(opened, RawTimersKeyedFile):
        return None
    within = opened.key_groups.intersection(KeyGroupRange(0, max_parallelism - 1))
    spans = tuple(span for span in opened.file.spans if span.group in within)
    lengths = {span.group: span.end - span.start for span in spans}
    layouts, faulty = _layouts(opened.header, opened.name, files, where, found)
    return KeyedSource(
        where, within, max_parallelism, opened.header, layouts, opened.file, spans, lengths, faulty
    )


def open_stream_of(
    stream: StreamHandle, files: StateFiles, where: Place, found: Findings, *, part: bool = False
) -> ByteSource | None:
    """Open the bytes of a handle, as far as they exist; note missing bytes.

    Args:
        stream: The handle.
        files: The files of the snapshot.
        where: The place of the findings.
        found: Collects the findings.
        part: Whether the file may appear in several handles, each for other key groups.
    """
    found.checked.handles += 1
    found.checked.size += stream.size
    try:
        return files.open(stream, part=part)
    except UnsupportedFormatError as error:
        found.skip(where, error.problem)
        return None
    except StateError as error:
        found.fault(FaultKind.FILE, where, error)
    try:
        return files.open(stream, whole=False)
    except StateError:
        return None


def _lose_all(handle: KeyedHandle, where: Place, found: Findings, why: str) -> None:
    place = replace(where, key_groups=handle.key_groups)
    found.lose(place, why, size=keyed_bytes(handle))


def _header(
    source: ByteSource, end: int, files: StateFiles, where: Place, found: Findings
) -> KeyedHeader | StateError:
    """Return the header of a file, or the error that prevents reading it."""
    try:
        return files.heads.read(source, end, read_keyed_header)
    except UnknownSerializerError as error:
        found.skip(where, f"{error.problem}; {error.remedy}" if error.remedy else error.problem)
        return error
    except StateError as error:
        found.fault(FaultKind.HEADER, where, error)
        return error


def _layouts(
    header: KeyedHeader, name: str, files: StateFiles, where: Place, found: Findings
) -> tuple[tuple[KeyedLayout | None, ...], frozenset[int]]:
    """Return the layout of each state's entries, and the ids of states with wrong meta info."""
    layouts: list[KeyedLayout | None] = []
    faulty = set()
    results = files.heads.once(header, lambda: _layouts_or_errors(header, files.heads.budget))
    for index, (state, layout) in enumerate(zip(header.states, results, strict=True)):
        place = replace(where, state=state.name)
        if isinstance(layout, UnsupportedFormatError):
            found.skip(replace(place, subtask=None), layout.problem)
        elif isinstance(layout, StateError):
            error = CorruptSnapshotError(layout.problem, place=name, remedy=layout.remedy)
            found.fault(FaultKind.HEADER, place, error)
            found.lose(place, layout.problem)
            faulty.add(index)
        layouts.append(None if isinstance(layout, StateError) else layout)
    return tuple(layouts), frozenset(faulty)


def _layouts_or_errors(header: KeyedHeader, budget: Budget) -> list[KeyedLayout | StateError]:
    """Return the layout of each state's entries, or the error that prevents it."""
    layouts: list[KeyedLayout | StateError] = []
    key: TypeSerializer | StateError
    try:
        key = restore_key(header.key_serializer.snapshot)
    except StateError as error:
        key = error
    for state in header.states:
        layouts.append(_layout_or_error(state, key, budget))
        if isinstance(layouts[-1], OversizedError):
            key = layouts[-1]  # the other keys would cost as much
    return layouts


def _layout_or_error(
    state: StateMetaInfo, key: TypeSerializer | StateError, budget: Budget
) -> KeyedLayout | StateError:
    if isinstance(key, StateError):
        return key
    try:
        layout = layout_of(state, key)
        budget.spend(COLUMNS_IN_ALL, count_columns(layout.schema), "the head of its file")
        describe_state(state, layout)
    except StateError as error:
        return error
    return layout


def _open_changelog(
    handle: ChangelogHandle, siblings: Siblings, where: Place, found: Findings
) -> KeyedSource | None:
    """Open a materialized snapshot with its changes: None if any of its files is damaged."""
    found.checked.handles += len(handle.materialized) + len(handle.changes)
    found.checked.size += keyed_bytes(handle)
    try:
        opened = open_keyed(handle, siblings.files, siblings.max_parallelism, siblings)
        if opened is None:
            return None
        assert isinstance(opened, ChangelogKeyedFile)  # noqa: S101 - as `all_in_base` says
        lengths = dict(opened.group_bytes())
    except UnsupportedFormatError as error:
        found.skip(where, error.problem)
        _lose_all(handle, where, found, error.problem)
        return None
    except StateError as error:
        found.fault(FaultKind.FILE, where, error)
        _lose_all(handle, where, found, error.problem)
        return None
    spans = tuple(KeyGroupSpan(group, 0, size) for group, size in lengths.items())
    layouts, faulty = _layouts(opened.header, opened.name, siblings.files, where, found)
    return KeyedSource(
        where, opened.key_groups, siblings.max_parallelism, opened.header, layouts, opened, spans,
        lengths, faulty,
    )  # fmt: skip


# --------------------------------------------------------------------------- files of key groups


def _open_key_groups(
    handle: KeyGroupsHandle,
    siblings: Siblings,
    where: Place,
    within: KeyGroupRange,
    found: Findings,
    *,
    part: bool,
) -> KeyedSource | UnknownSource | None:
    files, max_parallelism = siblings.files, siblings.max_parallelism
    if handle.stream is None:
        return None
    source = open_stream_of(handle.stream, files, where, found, part=part)
    if source is None:
        _lose_all(handle, where, found, "its file can't be opened")
        return None
    begin = min((at for at in handle.offsets if at > 0), default=source.size)
    header = _header(source, begin, files, where, found)
    savepoint = handle.kind is KeyGroupsKind.SAVEPOINT
    if isinstance(header, StateError):
        whole = source.size == handle.stream.size and within == handle.key_groups
        if isinstance(header, UnknownSerializerError) and whole and savepoint:
            return UnknownSource(handle)
        _lose_all(handle, where, found, header.problem)
        return None
    end = siblings.end_behind(handle.stream, max(handle.offsets, default=0)) if part else None
    listed, lengths = _spans(handle, header, source, where, found, end)
    spans = tuple(span for span in listed if span.group in within)
    layouts, faulty = _layouts(header, source.name, files, where, found)
    reader: UnifiedFile | HeapFile
    if not savepoint and is_heap(source, handle, spans, damaged=True):
        known = tuple(layout for layout in layouts if layout is not None)
        if len(known) < len(layouts):
            why = "a state in it has a layout that is not known, and what follows can't be found"
            found.skip(where, why)
            _lose_all(handle, where, found, why)
            return None
        # the end of values of unknown classes can only be found in whole files
        most = max_parallelism if source.size >= handle.stream.size else 0
        reader = HeapFile(source, header, known, spans, part and end is None, most)
    else:
        reader = UnifiedFile(source, header, spans, prefix_bytes(max_parallelism))
    return KeyedSource(
        where, within, max_parallelism, header, layouts, reader, spans, lengths, faulty
    )


def _spans(
    handle: KeyGroupsHandle,
    header: KeyedHeader,
    source: ByteSource,
    where: Place,
    found: Findings,
    end: int | None,
) -> tuple[list[KeyGroupSpan], dict[int, int]]:
    """Return the key groups' positions and their expected lengths; note offsets that lead nowhere.

    Args:
        handle: The key groups' handle.
        header: The file's header.
        source: The file.
        where: The place of the findings.
        found: Collects the findings.
        end: The end of the last key group; None for the end of the file.
    """
    size = source.size
    declared = max(size, 0 if handle.stream is None else handle.stream.size)
    last = declared if end is None else min(end, declared)
    bounds = sorted({at for at in handle.offsets if header.size <= at < last} | {last})
    behind = dict(pairwise(bounds))
    lengths = {
        handle.first + i: behind[at] - at for i, at in enumerate(handle.offsets) if at in behind
    }
    spans: list[KeyGroupSpan] = []
    for index, at in enumerate(handle.offsets):
        group = handle.first + index
        place = replace(where, key_groups=KeyGroupRange(group, group))
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
        found.fault(FaultKind.RANGE, place, error)
        found.lose(place, problem, size=lengths.get(group))
    return spans, lengths


# --------------------------------------------------------------------------- RocksDB


def _open_rocksdb(
    handle: IncrementalHandle,
    files: StateFiles,
    max_parallelism: int,
    where: Place,
    within: KeyGroupRange,
    found: Findings,
    *,
    part: bool,
) -> KeyedSource | None:
    if handle.meta is None:
        return None
    before = len(found.faults)
    meta = open_stream_of(handle.meta, files, where, found, part=part)
    listed = [(name, file) for name, file in (*handle.shared, *handle.private) if file is not None]
    opened = [(name, open_stream_of(file, files, where, found, part=part)) for name, file in listed]
    if meta is None:
        _lose_all(handle, where, found, "its meta file can't be opened")
        return None
    header = _header(meta, meta.size, files, where, found)
    if isinstance(header, StateError):
        _lose_all(handle, where, found, header.problem)
        return None
    layouts, faulty = _layouts(header, meta.name, files, where, found)
    present = tuple((name, source) for name, source in opened if source is not None)
    name = f"{meta.name} (RocksDB, {len(present)} files)"
    prefix = prefix_bytes(max_parallelism)
    database = RocksDBFiles(name, header, present, within, prefix)
    suspect = None
    try:
        if present:
            database.open()
    except StateError as error:
        suspect = error
    try:
        if suspect is not None:
            database = RocksDBFiles(name, header, present, within, prefix, lenient=True)
            database.open()
    except StateError as error:
        if len(found.faults) == before:  # otherwise the missing part is already known
            found.fault(FaultKind.FILE, where, error)
        _lose_all(handle, where, found, error.problem)
        return None
    if len(found.faults) > before:
        suspect = None
    return KeyedSource(
        where, within, max_parallelism, header, layouts, database, faulty=faulty, suspect=suspect
    )
