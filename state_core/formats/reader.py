"""Open a snapshot: `_metadata`, the heads of its keyed files, and the model that comes of them.

Opening reads `_metadata` and the head of each file with keyed state; no entry is touched.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from state_core.errors import (
    NotASnapshotError,
    SnapshotError,
    StateError,
    UnsupportedFormatError,
)
from state_core.filesystem import ByteSource, Directory
from state_core.formats.checkpoint_properties import describe_properties
from state_core.formats.keyed_layout import KeyedLayout
from state_core.formats.keyed_states import describe_state, layout_of
from state_core.formats.meta_info import KeyedHeader, read_keyed_header
from state_core.formats.metadata import (
    CheckpointMetadata,
    OperatorState,
    read_metadata,
    subtask_bytes,
)
from state_core.formats.state_files import StateFiles
from state_core.formats.unified import UnifiedFile, spans_of
from state_core.handles import KeyedHandle, KeyGroupRange, KeyGroupsHandle, KeyGroupsKind
from state_core.key_groups import prefix_bytes
from state_core.operator_ids import operator_id_of_uid
from state_core.snapshot import Entries, KeyedState, Operator, Snapshot
from state_core.wire import DataInput

__all__ = ["METADATA_FILE", "UnifiedKeyedFile", "open_snapshot"]

METADATA_FILE = "_metadata"
HEADER_GUESS = 1 << 16
MAX_HEADER = 1 << 28


def open_snapshot(
    location: str | os.PathLike[str],
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
) -> Snapshot:
    """Open a savepoint or a retained checkpoint.

    Args:
        location: Its directory, or its `_metadata` file; a path or a URI.
        allow_external: Directories elsewhere that its handles may lead to.
        uids: Operator uids to recognise: before Flink 2.0 a snapshot holds only their hashes.

    Raises:
        NotASnapshotError: There is no snapshot there.
        SnapshotError: It can't be read; the subclass says why.
    """
    directory = Directory(location)
    if not directory.is_file(METADATA_FILE):
        name = posixpath.basename(directory.root)
        if name == METADATA_FILE and directory.filesystem.get_file_info(directory.root).is_file:
            directory = directory.child("..")
        else:
            raise _no_snapshot(directory)
    path = directory.full(METADATA_FILE)
    metadata = read_metadata(directory.read(METADATA_FILE), path)
    files = StateFiles(directory, tuple(allow_external))
    known = {operator_id_of_uid(uid): uid for uid in uids}
    operators = tuple(_open_operator(one, files, known) for one in metadata.operators)
    kind, format_name = _describe(metadata)
    return Snapshot(
        directory.uri,
        metadata.version,
        metadata.checkpoint_id,
        kind,
        format_name,
        operators,
        metadata,
    )


def _no_snapshot(directory: Directory) -> NotASnapshotError:
    problem = "no `_metadata` file in it" if directory.exists() else "no such directory"
    below = [name for name in directory.names() if directory.is_file(f"{name}/{METADATA_FILE}")]
    remedy = "give the directory of a savepoint or of a retained checkpoint (chk-N)"
    if below:
        remedy = f"did you mean {directory.full(below[-1])}?"
    return NotASnapshotError(problem, place=directory.full(), remedy=remedy)


def _describe(metadata: CheckpointMetadata) -> tuple[str, str]:
    """Kind and format, from the properties of version 4 and later, or from the handles."""
    kind, format_name = describe_properties(metadata.properties)
    if kind:
        return kind, format_name
    handles = [
        subtask.managed_keyed
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
    ]
    unified = any(
        isinstance(one, KeyGroupsHandle) and one.kind is KeyGroupsKind.SAVEPOINT for one in handles
    )
    return ("savepoint", "canonical") if unified else ("", "")


def _open_operator(state: OperatorState, files: StateFiles, known: dict[str, str]) -> Operator:
    uid = state.uid or known.get(state.operator_id, "")
    keyed_files = []
    for index, subtask in sorted((state.subtasks or {}).items()):
        if subtask.managed_keyed is None:
            continue
        try:
            opened = _open_keyed(subtask.managed_keyed, files, state.max_parallelism)
        except StateError as error:
            label = uid or state.name or state.operator_id
            raise error.within(f"operator {label}, subtask {index}") from error
        if opened is not None:
            keyed_files.append(opened)
    coordinator = state.coordinator.size if state.coordinator is not None else 0
    return Operator(
        state.operator_id,
        uid,
        state.name,
        state.parallelism,
        state.max_parallelism,
        tuple(keyed_files),
        _merge_states(keyed_files),
        _other_states(state),
        len(state.subtasks or {}),
        coordinator,
        coordinator + sum(subtask_bytes(one) for one in (state.subtasks or {}).values()),
        finished=state.subtasks is None,
    )


def _other_states(state: OperatorState) -> tuple[tuple[str, str, int], ...]:
    """Operator states by name: their mode, and their elements in all subtasks."""
    found: dict[str, tuple[str, str, int]] = {}
    for subtask in (state.subtasks or {}).values():
        if subtask.managed_operator is not None:
            for name, part in subtask.managed_operator.states.items():
                count = found.get(name, ("", "", 0))[2] + len(part.offsets)
                found[name] = (name, part.mode.name, count)
    return tuple(found.values())


def _open_keyed(
    handle: KeyedHandle, files: StateFiles, max_parallelism: int
) -> UnifiedKeyedFile | None:
    """Choose the reader by the type of the handle."""
    if not isinstance(handle, KeyGroupsHandle) or handle.kind is not KeyGroupsKind.SAVEPOINT:
        raise UnsupportedFormatError(
            f"keyed state in a checkpoint's or native savepoint's form ({type(handle).__name__})",
            remedy="take a savepoint in canonical format (flink savepoint --type canonical)",
        )
    if handle.stream is None:
        return None
    source = files.open(handle.stream)
    spans = spans_of(handle.first, handle.offsets, source.size, source.name)
    header = _read_header(source, spans[0].start if spans else source.size)
    if spans and spans[0].start < header.size:
        raise DataInput(b"", source.name).fault(
            f"key group {spans[0].group} at offset {spans[0].start}, inside the header"
        )
    file = UnifiedFile(source, header, tuple(spans), prefix_bytes(max_parallelism))
    return UnifiedKeyedFile(file, handle.key_groups)


def _read_header(source: ByteSource, end: int) -> KeyedHeader:
    """Read the head of a file, which ends before `end`: a first block, or as much as it takes."""
    limit = min(max(end, HEADER_GUESS), source.size, MAX_HEADER)
    held = min(HEADER_GUESS, limit)
    while True:
        block = np.empty(held, np.uint8)
        source.read_into(0, block)
        try:
            return read_keyed_header(DataInput(block.tobytes(), source.name))
        except SnapshotError:
            if held == limit:
                raise
        held = min(16 * held, limit)


@dataclass(frozen=True)
class UnifiedKeyedFile:
    """A `KeyedFile` in the unified format."""

    file: UnifiedFile
    key_groups: KeyGroupRange

    @property
    def name(self) -> str:
        """The file's path."""
        return self.file.source.name

    @property
    def compressed(self) -> bool:
        """Whether its key groups are compressed."""
        return self.file.header.compressed

    @property
    def key_serializer(self) -> bytes:
        """The snapshot of the key's serializer."""
        return self.file.header.key_serializer.encoded

    @cached_property
    def layouts(self) -> tuple[KeyedLayout, ...]:
        """How each state's entries are laid out."""
        key = self.file.header.key_serializer.snapshot.restore_serializer()
        return tuple(layout_of(state, key) for state in self.file.header.states)

    @cached_property
    def states(self) -> tuple[KeyedState, ...]:
        """Its states, by id."""
        pairs = zip(self.file.header.states, self.layouts, strict=True)
        return tuple(describe_state(state, layout) for state, layout in pairs)

    def group_bytes(self) -> list[tuple[int, int]]:
        """Key groups and their bytes as stored."""
        return [(one.group, one.end - one.start) for one in self.file.spans]

    def entries(self, key_groups: KeyGroupRange | None = None) -> Iterator[Entries]:
        """All entries of some key groups."""
        return self.file.entries(key_groups)

    def decode(self, state: int, entries: Entries) -> pa.RecordBatch:
        """Entries of one state as typed columns."""
        try:
            return self.layouts[state].decode(entries)
        except StateError as error:
            raise error.within(f"state {self.states[state].name!r}") from error


def _merge_states(files: list[UnifiedKeyedFile]) -> tuple[KeyedState, ...]:
    """One state for each name, whatever its id in each file.

    Raises:
        UnsupportedFormatError: Two subtasks wrote a state of one name with different types.
    """
    found: dict[str, KeyedState] = {}
    for file in files:
        for index, state in enumerate(file.states):
            known = found.setdefault(state.name, state)
            if replace(known, files=()) != state:
                raise UnsupportedFormatError(
                    f"state {state.name!r} has another type here than in another subtask",
                    place=file.name,
                    remedy="let the job take a new savepoint, which writes all subtasks alike",
                )
            found[state.name] = replace(known, files=(*known.files, (file, index)))
    return tuple(found.values())
