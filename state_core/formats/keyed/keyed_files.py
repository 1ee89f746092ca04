"""Keyed state of one subtask in any format: the handle's type selects the reader.

======================  =======================================================================
handle                  read as
======================  =======================================================================
savepoint (tag 7)       the unified format
native (tags 3, 12)     the heap backend's format, or the unified one: old RocksDB checkpoints
                        and savepoints have the same tag, so the bytes decide
incremental (tag 11)    RocksDB's own files
changelog (tag 14)      the wrapped handle, with the changes in its log
======================  =======================================================================

Source: `HeapKeyedStateBackendBuilder.getRestoreOperation`,
`RocksDBKeyedStateBackendBuilder.getRocksDBRestoreOperation`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from statelake.state_core.errors import CorruptSnapshotError, StateError, UnsupportedFormatError
from statelake.state_core.files.filesystem import ByteSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.keyed.headed_file import (
    FileHeader,
    HeadedFile,
    KeyGroupSpan,
    read_head,
)
from statelake.state_core.formats.keyed.unified_file import UnifiedKeyedFile, spans_of
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.formats.layout.meta_info import KeyedHeader, SerializerEntry
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.model.entries import KeyedFile
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    KeyGroupsKind,
    StreamHandle,
)
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.snapshot import KeyedState, RowNames

END_MARK = b"\xff\xff"  # the end of a key group in the unified format
LAST_OF_RUN = 0x80  # the first byte of a state's last key, in key group 0
DETECTION_BYTES = 1 << 16  # bytes of a key group, to detect its format

# readers of other formats are imported when a handle needs them
# ruff: noqa: PLC0415

if TYPE_CHECKING:
    from statelake.state_core.formats.keyed.raw_timers import RawTimersFile


class OpeningSteps:
    """The steps of opening a file: each raises an error at the first fault.

    A check overrides them to note faults, and continues with the readable rest.
    """

    def stream(self, stream: StreamHandle, files: StateFiles, *, part: bool) -> ByteSource | None:
        """Open the bytes of a handle; None after a fault that was noted.

        Args:
            stream: The handle.
            files: The files of the snapshot.
            part: Whether the file may appear in several handles, each for other key groups.
        """
        return files.open(stream, part=part)

    def head(
        self, source: ByteSource | None, end: int | None, files: StateFiles
    ) -> FileHeader | None:
        """Read the head of a file, which ends at or before an offset; None if it can't be read.

        Args:
            source: The file; None if it can't be opened.
            end: The offset; None for the end of the file.
            files: The files of the snapshot.
        """
        assert source is not None  # noqa: S101 - or `stream` has raised an error
        heads = files.heads
        head = heads.read(source, source.size if end is None else end, read_head)
        return heads.once(head, lambda: replace(head, flink=heads.flink))

    def spans(
        self, handle: KeyGroupsHandle, header: KeyedHeader, source: ByteSource, end: int | None
    ) -> list[KeyGroupSpan]:
        """Return the positions of key groups that have data, ascending.

        Args:
            handle: The handle with their offsets.
            header: The header of the file.
            source: The file.
            end: The end of the last key group; None for the end of the file.
        """
        size = source.size if end is None else end
        spans = spans_of(handle.first, handle.offsets, size, source.name)
        for span in spans:
            if span.start < header.size:
                raise DataInput(b"", source.name).fault(
                    f"key group {span.group} at offset {span.start}, inside the header"
                )
        return spans

    def is_heap(
        self, source: ByteSource, handle: KeyGroupsHandle, spans: Sequence[KeyGroupSpan]
    ) -> bool:
        """Return whether a file is in the heap's format: all key groups begin with their numbers.

        Args:
            source: The file.
            handle: The file's handle.
            spans: The positions of its key groups.
        """
        has_all = len(spans) == len(handle.offsets)
        numbered = has_all and all(begins_with_number(source, span) for span in spans)
        return numbered and not is_unified_group(source, spans)


STRICT = OpeningSteps()


class PartialOpening(OpeningSteps):
    """The steps of opening the readable part: instances of RocksDB may lack some tables.

    Attributes:
        missing: The errors of streams that could not be opened.
    """

    def __init__(self) -> None:
        self.missing: list[StateError] = []

    def stream(self, stream: StreamHandle, files: StateFiles, *, part: bool) -> ByteSource | None:
        """Open the bytes of a handle; None if that fails."""
        try:
            return super().stream(stream, files, part=part)
        except StateError as error:
            self.missing.append(error)
            return None

    def head(
        self, source: ByteSource | None, end: int | None, files: StateFiles
    ) -> FileHeader | None:
        """Read the head of a file; raise if that fails, as nothing else can be read without it."""
        if source is None:
            raise self.missing[0]
        return super().head(source, end, files)


def open_keyed(
    handle: KeyedHandle,
    files: StateFiles,
    max_parallelism: int,
    siblings: OperatorHandles | None = None,
    opening: OpeningSteps = STRICT,
) -> HeadedFile | None:
    """Open one keyed handle; return None if it has no data.

    Args:
        handle: The handle.
        files: The files of the snapshot.
        max_parallelism: The number of key groups.
        siblings: All handles of the operator, as a changelog may need others.
        opening: The steps. A materialized snapshot with changes is always opened strictly.

    Raises:
        SnapshotError: The keyed state can't be read.
    """
    siblings = siblings or OperatorHandles((handle,), files, max_parallelism)
    if not isinstance(handle, ChangelogHandle):
        return _open_backend(handle, siblings, opening)
    base = only_materialized(handle)
    if base is not None:
        return _open_backend(base, siblings, opening, part=True)
    return _open_changelog(handle, siblings)


def _open_backend(
    handle: KeyedHandle,
    siblings: OperatorHandles,
    opening: OpeningSteps = STRICT,
    *,
    part: bool = False,
) -> HeadedFile | None:
    """Open a backend's own file; `part` if siblings may have other parts of it."""
    if isinstance(handle, KeyGroupsHandle):
        return _open_key_groups(handle, siblings, opening, part=part)
    if isinstance(handle, IncrementalHandle):
        return _open_rocksdb(handle, siblings, opening, part=part)
    raise CorruptSnapshotError(
        f"a {type(handle).__name__} where a backend's own handle should be",
        place=siblings.files.metadata_path,
    )


def is_timers(handle: KeyedHandle | None, files: StateFiles) -> bool:
    """Return whether raw keyed state consists of timers; otherwise only its operator can read it.

    Raises:
        SnapshotError: The handle's file does not exist.
    """
    return _raw_timers(handle, files) is not None


def open_raw_timers(
    handle: KeyedHandle | None, files: StateFiles, max_parallelism: int
) -> RawTimersFile | None:
    """Open raw keyed state that consists of timers; return None for other state, or without timers.

    Raises:
        SnapshotError: The raw state consists of timers, and can't be read.
    """
    timers = _raw_timers(handle, files)
    if timers is None:
        return None
    from statelake.state_core.formats.keyed.raw_timers import (
        RawTimersFile,
        read_timers_header,
    )

    handle, source, spans = timers
    header = read_timers_header(source, spans)
    if header is None:
        return None
    return RawTimersFile(
        source.name, FileHeader(header), handle.key_groups, max_parallelism, source, spans
    )


def _raw_timers(
    handle: KeyedHandle | None, files: StateFiles
) -> tuple[KeyGroupsHandle, ByteSource, tuple[KeyGroupSpan, ...]] | None:
    """Return a handle of timers, its file, and its key groups' positions; otherwise None."""
    if not isinstance(handle, KeyGroupsHandle) or handle.stream is None:
        return None
    from statelake.state_core.formats.keyed.raw_timers import holds_timers, raw_spans

    source = files.open(handle.stream)
    spans = raw_spans(handle, source.size, source.name)
    return (handle, source, spans) if holds_timers(source, spans) else None


def _open_changelog(handle: ChangelogHandle, siblings: OperatorHandles) -> HeadedFile | None:
    from statelake.state_core.formats.keyed.changelog.change_log import read_log
    from statelake.state_core.formats.keyed.changelog.changelog_file import (
        ChangelogKeyedFile,
        head_with,
        key_of_timers,
    )

    files, max_parallelism = siblings.files, siblings.max_parallelism
    opened = [_open_backend(wrapped, siblings, part=True) for wrapped in _wrapped(handle)]
    bases = tuple(base for base in opened if base is not None)
    log = read_log(handle.changes, files, handle.key_groups)
    if not bases and not log.sets:
        return None
    if not log.sets and len(bases) == 1 and bases[0].key_groups == handle.key_groups:
        return bases[0]
    key = bases[0].header.key_serializer if bases else key_of_timers(log) or siblings.key
    if key is None:
        raise UnsupportedFormatError(
            "a log of changes before anything was materialized, of an operator that set no timers:"
            " it does not have the type of the keys",
            place=log.sets[0].file.name,
            remedy="take a savepoint (flink savepoint), or the checkpoint after the next"
            " materialization (state.changelog.periodic-materialize.interval)",
        )
    name = f"{bases[0].name if bases else log.sets[0].file.name} (with a log of changes)"
    head = head_with(bases, log, key, files.heads.flink)
    return ChangelogKeyedFile(name, head, handle.key_groups, max_parallelism, bases, log)


def only_materialized(handle: ChangelogHandle) -> KeyedHandle | None:
    """Return the materialized handle, if it is the only one and has no changes; otherwise None."""
    bases = [base for base in _wrapped(handle) if not _is_empty(base)]
    logged = any(log is not None and not _is_empty(log) for log in handle.changes)
    if logged or len(bases) != 1 or bases[0].key_groups != handle.key_groups:
        return None
    return bases[0]


def _is_empty(handle: KeyedHandle) -> bool:
    """Return whether a handle has no bytes at all."""
    if isinstance(handle, KeyGroupsHandle):
        return handle.stream is None
    if isinstance(handle, IncrementalHandle):
        return handle.meta is None
    if isinstance(handle, ChangelogFileHandle):
        return all(stream is None for _, stream in handle.streams)
    return isinstance(handle, ChangelogByteHandle) and not handle.changes


def _wrapped(handle: ChangelogHandle) -> list[KeyedHandle]:
    """Return the materialized handles."""
    return [base for base in handle.materialized if base is not None]


def with_names(files: Sequence[KeyedFile], names: Mapping[str, RowNames]) -> tuple[KeyedFile, ...]:
    """Return the files of an operator with names for the fields of rows, by state."""
    heads: dict[int, FileHeader] = {}  # many subtasks may have the same head
    named = []
    for file in files:
        assert isinstance(file, HeadedFile)  # noqa: S101 - all are, see open_keyed
        if id(file.head) not in heads:
            # its declarations were counted already
            heads[id(file.head)] = replace(file.head, budget=None, names=names)
        named.append(replace(file, head=heads[id(file.head)]))
    return tuple(named)


def with_first_decoders(files: Sequence[KeyedFile]) -> tuple[KeyedFile, ...]:
    """Return the files of an operator such that all decode a state as the first one that has it.

    `merge_states` takes the meta info of that file. Other files may know other subclasses of a
    POJO, and would decode a value of such a class to other columns. Exact bytes with other columns
    would then be taken for those of an edited value.
    """
    first: dict[str, tuple[bytes, KeyedLayout]] = {}
    alike: list[KeyedFile] = []
    for file in files:
        assert isinstance(file, HeadedFile)  # noqa: S101 - all are, see open_keyed
        decoders = {}
        for index, (state, own) in enumerate(zip(file.states, file.layouts, strict=True)):
            meta_info, layout = first.setdefault(state.name, (state.meta_info, own))
            if state.meta_info != meta_info:
                decoders[index] = layout
        alike.append(replace(file, decoders=decoders) if decoders else file)
    return tuple(alike)


def merge_states(files: Sequence[KeyedFile]) -> tuple[KeyedState, ...]:
    """Merge the states of several files by name; their ids may differ.

    Raises:
        UnsupportedFormatError: Two subtasks wrote a state of one name with different types.
    """
    states: dict[str, KeyedState] = {}
    places: dict[str, list[tuple[KeyedFile, int]]] = {}
    for file in with_first_decoders(files):
        for index, state in enumerate(file.states):
            first = states.setdefault(state.name, state)
            if first is not state and first != state:
                raise UnsupportedFormatError(
                    f"state {state.name!r} has another type here than in another subtask",
                    place=file.name,
                    remedy="let the job take a new savepoint, which writes all subtasks alike",
                )
            places.setdefault(state.name, []).append((file, index))
    return tuple(replace(state, files=tuple(places[name])) for name, state in states.items())


@dataclass(frozen=True)
class OperatorHandles:
    """All handles of an operator: the handle of one subtask may lack what another's has.

    Attributes:
        handles: The handles.
        files: The files of the snapshot.
        max_parallelism: The number of key groups.
    """

    handles: Collection[KeyedHandle]
    files: StateFiles
    max_parallelism: int

    @cached_property
    def key(self) -> SerializerEntry | None:
        """Return the operator's key serializer, if any handle has it.

        Raises:
            SnapshotError: A handle can't be read.
        """
        from statelake.state_core.formats.keyed.changelog.change_log import read_log
        from statelake.state_core.formats.keyed.changelog.changelog_file import key_of_timers

        for handle in self.handles:
            if not isinstance(handle, ChangelogHandle):
                continue
            for wrapped in _wrapped(handle):
                opened = _open_backend(wrapped, self, part=True)
                if opened is not None:
                    return opened.header.key_serializer
            key = key_of_timers(read_log(handle.changes, self.files, handle.key_groups))
            if key is not None:
                return key
        return None

    @cached_property
    def _offsets(self) -> dict[StreamHandle, list[int]]:
        """Return the starts of key groups in each file, from the handles of all subtasks."""
        offsets_of: dict[StreamHandle, set[int]] = {}
        for handle in self.handles:
            for wrapped in _wrapped(handle) if isinstance(handle, ChangelogHandle) else ():
                if isinstance(wrapped, KeyGroupsHandle) and wrapped.stream is not None:
                    offsets_of.setdefault(wrapped.stream, set()).update(wrapped.offsets)
        return {stream: sorted(offsets) for stream, offsets in offsets_of.items()}

    def end_of_group(self, stream: StreamHandle, start: int) -> int | None:
        """Return the end of the key group at an offset of a file; None if it is not known."""
        offsets = self._offsets.get(stream, [])
        index = bisect_right(offsets, start)
        return offsets[index] if index < len(offsets) else None


def _open_key_groups(
    handle: KeyGroupsHandle, siblings: OperatorHandles, opening: OpeningSteps, *, part: bool
) -> HeadedFile | None:
    if handle.stream is None:
        return None
    files, max_parallelism = siblings.files, siblings.max_parallelism
    source = opening.stream(handle.stream, files, part=part)
    begin = min((at for at in handle.offsets if at > 0), default=None)
    head = opening.head(source, begin, files)
    if source is None or head is None:
        return None
    end = siblings.end_of_group(handle.stream, max(handle.offsets, default=0)) if part else None
    if end is not None and end > max(source.size, handle.stream.size):
        end = None
    spans = tuple(opening.spans(handle, head.header, source, end))
    opened = source.name, head, handle.key_groups, max_parallelism, source, spans
    if handle.kind is KeyGroupsKind.SAVEPOINT or not opening.is_heap(source, handle, spans):
        return UnifiedKeyedFile(*opened)
    from statelake.state_core.formats.keyed.heap.heap_native import HeapKeyedFile

    return HeapKeyedFile(*opened, part and end is None, source.size >= handle.stream.size)


def begins_with_number(source: ByteSource, span: KeyGroupSpan) -> bool:
    """Return whether a key group begins with its number, as in the heap's format."""
    head = np.empty(4, np.uint8)
    if span.end - span.start < len(head):
        return False
    source.read_into(span.start, head)
    return int.from_bytes(head.tobytes(), "big") == span.group


def is_unified_group(source: ByteSource, spans: Sequence[KeyGroupSpan]) -> bool:
    """Return whether a file has only key group 0, in the unified format.

    Such a key group may begin with its number, too: with state 0 and a short key.
    """
    if len(spans) != 1 or spans[0].group != 0:
        return False
    (span,) = spans
    content = np.empty(min(span.end - span.start, DETECTION_BYTES), np.uint8)
    last = np.empty(len(END_MARK), np.uint8)
    if content.size < last.size:
        return False
    source.read_into(span.start, content)
    source.read_into(span.end - last.size, last)
    return last.tobytes() == END_MARK and _has_lengths(content.tobytes(), span.end - span.start)


def _has_lengths(content: bytes, size: int) -> bool:
    """Return whether the lengths of entries add up to the end, as far as the content reaches."""
    at = 0
    while content[at : at + 2] != END_MARK:
        at, more = at + 2, True
        while more:
            if at + 4 >= len(content):  # without the first byte of a key
                return size > len(content)
            length, more = int.from_bytes(content[at : at + 4], "big"), content[at + 4] == 0
            if length == 0 or not (more or content[at + 4] == LAST_OF_RUN):
                return False
            at += 4 + length
            at += 4 + int.from_bytes(content[at : at + 4], "big")
            if at > size - 2:
                return False
        if at + 2 > len(content):
            return size > len(content)
    return at + 2 == size


def _open_rocksdb(
    handle: IncrementalHandle, siblings: OperatorHandles, opening: OpeningSteps, *, part: bool
) -> HeadedFile | None:
    if handle.meta is None:
        return None
    files, max_parallelism = siblings.files, siblings.max_parallelism
    meta = opening.stream(handle.meta, files, part=part)
    listed = [(name, file) for name, file in (*handle.shared, *handle.private) if file is not None]
    opened = [(name, opening.stream(file, files, part=part)) for name, file in listed]
    head = opening.head(meta, None, files)
    if meta is None or head is None:
        return None
    from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import (
        RocksDBFiles,
        RocksDBKeyedFile,
    )

    sources = tuple((name, source) for name, source in opened if source is not None)
    lenient = isinstance(opening, PartialOpening) and len(sources) < len(opened)
    name = f"{meta.name} (RocksDB, {len(sources)} files)"
    within = handle.key_groups.intersection(KeyGroupRange(0, max_parallelism - 1))
    database = RocksDBFiles(
        name, head.header, sources, within, prefix_bytes(max_parallelism), lenient
    )
    return RocksDBKeyedFile(name, head, handle.key_groups, max_parallelism, database)
