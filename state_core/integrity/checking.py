"""`check_snapshot`: every fault of a savepoint or checkpoint, not the first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from state_core.errors import CorruptSnapshotError, KeyGroupError, StateError
from state_core.filesystem import Directory
from state_core.formats.metadata import (
    FIRST_WITH_PROPERTIES,
    CheckpointMetadata,
    OperatorState,
    SubtaskState,
    read_metadata,
)
from state_core.formats.reader import METADATA_FILE, snapshot_directory
from state_core.formats.state_files import StateFiles
from state_core.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    EmptySegmentHandle,
    IncrementalHandle,
    KeyedHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    StreamHandle,
)
from state_core.integrity.findings import (
    Checked,
    Fault,
    FaultKind,
    Findings,
    Loss,
    Place,
    Unchecked,
    what_most_say,
)
from state_core.integrity.keyed_entries import Keeper, examine
from state_core.integrity.keyed_sources import (
    KeyedSource,
    UnknownSource,
    open_source,
    open_stream_of,
)
from state_core.integrity.operator_parts import OperatorPart, examine_operator_states
from state_core.java_stream import read_java_stream
from state_core.key_groups import check_parallelism, key_group_ranges
from state_core.operator_ids import operator_id_of_uid
from state_core.wire import DataInput

__all__ = ["Examined", "IntegrityReport", "OperatorExamined", "Progress", "check_snapshot", "look"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class IntegrityReport:
    """What a check says.

    Attributes:
        location: The snapshot.
        faults: All that is wrong.
        unchecked: What nothing is said about.
        checked: How much was looked at.
    """

    location: str
    faults: tuple[Fault, ...]
    unchecked: tuple[Unchecked, ...]
    checked: Checked

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


@dataclass
class OperatorExamined:
    """What can be read of one operator.

    Attributes:
        state: What `_metadata` says of it.
        label: How it is called.
        broken: Why nothing of it can be; empty if something can.
        keyed: Its keyed state, by subtask.
        parts: Its operator state.
        unknown: Its keyed state of types that are not known, by subtask.
        keepers: What kept the sound entries, by subtask.
    """

    state: OperatorState
    label: str
    broken: str = ""
    keyed: dict[int, KeyedSource] = field(default_factory=dict)
    parts: list[OperatorPart] = field(default_factory=list)
    unknown: dict[int, KeyGroupsHandle] = field(default_factory=dict)
    keepers: dict[int, list[Keeper]] = field(default_factory=dict)


@dataclass
class Examined:
    """A snapshot, looked at: what is wrong, and what can be read."""

    directory: Directory
    files: StateFiles
    found: Findings = field(default_factory=Findings)
    metadata: CheckpointMetadata | None = None
    operators: list[OperatorExamined] = field(default_factory=list)

    @property
    def report(self) -> IntegrityReport:
        """What is wrong."""
        found = self.found
        return IntegrityReport(
            self.directory.uri, tuple(found.faults), tuple(found.unchecked), found.checked
        )

    @property
    def losses(self) -> list[Loss]:
        """What can't be read."""
        return self.found.losses


def check_snapshot(
    location: str | os.PathLike[str],
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> IntegrityReport:
    """Read all of a snapshot, and say what is wrong with it.

    Args:
        location: Its directory, or its `_metadata` file; a path or a URI.
        allow_external: Directories elsewhere that its handles may lead to.
        uids: Operator uids to recognise: before Flink 2.0 a snapshot holds only their hashes.
        threads: How many; as many as there are cores by default.
        progress: Told of finished slices of keyed state.

    Raises:
        NotASnapshotError: There is no `_metadata` there.
    """
    return look(location, allow_external, uids, threads=threads, progress=progress).report


def look(
    location: str | os.PathLike[str],
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    keeper: Callable[[KeyedSource], Keeper] | None = None,
) -> Examined:
    """As `check_snapshot`, with what can be read.

    Args:
        location: As there.
        allow_external: As there.
        uids: As there.
        threads: As there.
        progress: As there.
        keeper: Gives what keeps the sound entries of one slice of one subtask's keyed state.
    """
    directory = snapshot_directory(location)
    examined = Examined(directory, StateFiles(directory, tuple(allow_external)))
    found = examined.found
    path = directory.full(METADATA_FILE)
    try:
        metadata = read_metadata(directory.read(METADATA_FILE), path)
    except StateError as error:
        found.fault(FaultKind.METADATA, Place(), error)
        return examined
    examined.metadata = metadata
    _check_metadata(metadata, path, found)
    known = {operator_id_of_uid(uid): uid for uid in uids}
    for state in metadata.operators:
        label = state.uid or known.get(state.operator_id, "") or state.name or state.operator_id
        examined.operators.append(_open(state, label, examined.files, found))
    _read_entries(examined, threads or os.cpu_count() or 1, progress, keeper)
    found.checked.files = len(set(map(_named, _streams(metadata))))
    return examined


def _check_metadata(metadata: CheckpointMetadata, path: str, found: Findings) -> None:
    if metadata.version >= FIRST_WITH_PROPERTIES:
        try:
            read_java_stream(DataInput(metadata.properties, "checkpoint properties"))
        except StateError as error:
            found.fault(FaultKind.METADATA, Place(), error.within(path))
    for operator_id, count in Counter(one.operator_id for one in metadata.operators).items():
        if count > 1:
            twice = CorruptSnapshotError(f"{count} operators of id {operator_id}", place=path)
            found.fault(FaultKind.METADATA, Place(), twice)
    for master in metadata.masters:
        found.skip(Place(), f"state of master hook {master.name!r}, {len(master.data)} bytes")


def _open(state: OperatorState, label: str, files: StateFiles, found: Findings) -> OperatorExamined:
    """Open all of an operator, and check what needs no reading of entries."""
    operator = OperatorExamined(state, label)
    try:
        check_parallelism(state.max_parallelism, state.parallelism)
    except KeyGroupError as error:
        found.fault(FaultKind.METADATA, Place(label), error)
        operator.broken = error.problem
        return operator
    if state.coordinator is not None:
        found.skip(Place(label), f"state of its coordinator, {state.coordinator.size} bytes")
    for index, subtask in sorted((state.subtasks or {}).items()):
        where = Place(label, index)
        _open_opaque(subtask, files, where, found)
        if subtask.managed_keyed is None:
            continue
        source = open_source(subtask.managed_keyed, files, state.max_parallelism, where, found)
        if isinstance(source, UnknownSource):
            operator.unknown[index] = source.handle
        elif source is not None:
            operator.keyed[index] = source
            found.checked.key_groups += len(source.spans) or len(source.key_groups)
    _check_coverage(operator, found)
    _check_types(operator, found)
    operator.parts = examine_operator_states(state, label, files, found)
    return operator


def _open_opaque(subtask: SubtaskState, files: StateFiles, where: Place, found: Findings) -> None:
    """Raw state and in-flight buffers: only that their bytes are there can be said."""
    raw = subtask.raw_operator
    streams = [("raw operator state", None if raw is None else raw.stream)]
    if subtask.raw_keyed is not None:
        streams += [("raw keyed state", one) for one in _keyed_streams(subtask.raw_keyed)]
    channels = (*subtask.inputs, *subtask.outputs)
    streams += [("in-flight buffers", one.stream) for one in channels]
    for what, stream in streams:
        if stream is None or isinstance(stream, EmptySegmentHandle):
            continue
        before = len(found.faults)
        open_stream_of(stream, files, where, found)
        if len(found.faults) > before:
            found.lose(where, f"{what}: {found.faults[-1].problem}", size=stream.size)
        else:
            found.skip(replace(where, subtask=None), f"{what}, which only the job can read")


def _check_coverage(operator: OperatorExamined, found: Findings) -> None:
    """Every key group is in one handle, and that is its subtask's."""
    state = operator.state
    ranges = key_group_ranges(state.max_parallelism, state.parallelism)
    owner: dict[int, int] = {}
    claims: list[tuple[int, KeyGroupRange]] = []
    for index, subtask in sorted((state.subtasks or {}).items()):
        handle = subtask.managed_keyed
        if handle is not None and not isinstance(handle, ChangelogByteHandle | ChangelogFileHandle):
            within = handle.key_groups.intersection(KeyGroupRange(0, state.max_parallelism - 1))
            claims.append((index, within))
    for index, claimed in claims:
        twice: dict[int, list[int]] = {}
        for group in range(claimed.first, claimed.last + 1):
            if group in owner:
                twice.setdefault(owner[group], []).append(group)
            owner.setdefault(group, index)
        for other, groups in twice.items():
            place = Place(operator.label, index, "", KeyGroupRange(groups[0], groups[-1]))
            error = CorruptSnapshotError(
                f"in the handle of subtask {other} too",
                remedy="`_metadata` is damaged: fetch it again",
            )
            found.fault(FaultKind.RANGE, place, error)
    for index, claimed in claims:
        mine = ranges[index]
        missing = [group for group in range(mine.first, mine.last + 1) if group not in owner]
        for first, last in _runs(missing):
            place = Place(operator.label, index, "", KeyGroupRange(first, last))
            error = CorruptSnapshotError(
                f"in no handle: the subtask's holds {claimed}",
                remedy="`_metadata` is damaged: fetch it again",
            )
            found.fault(FaultKind.RANGE, place, error)
    present = {index for index, _ in claims}
    for index in range(state.parallelism) if claims else ():
        left = (state.subtasks or {}).get(index)
        if index not in present and not (left is not None and left.finished):
            place = Place(operator.label, index, "", ranges[index])
            found.skip(place, "the subtask left no keyed state, as one does that never used any")


def _runs(groups: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as first and last of those that follow each other."""
    runs: list[tuple[int, int]] = []
    for group in groups:
        if runs and runs[-1][1] == group - 1:
            runs[-1] = runs[-1][0], group
        else:
            runs.append((group, group))
    return runs


def _check_types(operator: OperatorExamined, found: Findings) -> None:
    """Note states that two subtasks wrote with different types."""
    names = {name: None for source in operator.keyed.values() for name in source.states}
    for name in names:
        said = {i: one.states[name] for i, one in operator.keyed.items() if name in one.states}
        right = what_most_say(said.values())
        for index, state in said.items():
            if state == right:
                continue
            where = Place(operator.label, index, name)
            error = CorruptSnapshotError(
                "another type than in another subtask",
                remedy="let the job take a new savepoint, which writes all subtasks alike",
            )
            found.fault(FaultKind.HEADER, where, error)
            found.lose(where, error.problem)
            operator.keyed[index] = operator.keyed[index].without(name)


def _read_entries(
    examined: Examined,
    threads: int,
    progress: Progress | None,
    keeper: Callable[[KeyedSource], Keeper] | None,
) -> None:
    """Examine all keyed state, slice by slice."""
    jobs = []
    for operator in examined.operators:
        for index, source in operator.keyed.items():
            for key_groups, state in source.slices():
                kept = keeper(source) if keeper is not None else None
                if kept is not None:
                    operator.keepers.setdefault(index, []).append(kept)
                jobs.append((source, key_groups, state, kept))

    def run(job: tuple[KeyedSource, KeyGroupRange, int | None, Keeper | None]) -> Findings:
        try:
            return examine(*job)
        finally:
            if job[-1] is not None:
                job[-1].close()

    with ThreadPoolExecutor(threads) as pool:
        for done, found in enumerate(pool.map(run, jobs), 1):
            examined.found.add(found)
            if progress is not None:
                progress(done, len(jobs))
    known = {(one.where.operator, one.where.subtask) for one in examined.found.faults}
    for source in {id(job[0]): job[0] for job in jobs}.values():
        where = source.where
        if source.suspect is not None and (where.operator, where.subtask) not in known:
            examined.found.fault(FaultKind.FILE, where, source.suspect)


# --------------------------------------------------------------------------- streams


def _named(stream: StreamHandle) -> str:
    return str(getattr(stream, "path", getattr(stream, "uri", ""))) or METADATA_FILE


def _streams(metadata: CheckpointMetadata) -> list[StreamHandle]:
    """All streams that handles name."""
    found: list[StreamHandle | None] = []
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            held = (subtask.managed_operator, subtask.raw_operator)
            found += [handle.stream for handle in held if handle is not None]
            for keyed in (subtask.managed_keyed, subtask.raw_keyed):
                found += _keyed_streams(keyed) if keyed is not None else []
            found += [one.stream for one in (*subtask.inputs, *subtask.outputs)]
    return [one for one in found if one is not None]


def _keyed_streams(handle: KeyedHandle) -> list[StreamHandle | None]:
    if isinstance(handle, KeyGroupsHandle):
        return [handle.stream]
    if isinstance(handle, IncrementalHandle):
        return [handle.meta, *(one for _, one in (*handle.shared, *handle.private))]
    if isinstance(handle, ChangelogHandle):
        nested = (*handle.materialized, *handle.changes)
        return [stream for one in nested if one is not None for stream in _keyed_streams(one)]
    if isinstance(handle, ChangelogFileHandle):
        return [one for _, one in handle.streams]
    return []
