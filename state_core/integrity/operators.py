"""An operator of a snapshot, opened for a check: all checks that don't read entries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from statelake.state_core.errors import CorruptSnapshotError, KeyGroupError, StateError
from statelake.state_core.formats.contradictions import find_timers_twice
from statelake.state_core.formats.keyed.keyed_files import OperatorHandles, is_timers
from statelake.state_core.formats.metadata.checkpoint_metadata import OperatorMetadata, SubtaskState
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.integrity.findings import FaultKind, Findings, Place, most_frequent
from statelake.state_core.integrity.keyed_entries import Keeper
from statelake.state_core.integrity.keyed_sources import (
    KeyedSource,
    UnknownSource,
    open_source,
    open_stream_of,
    open_timers,
)
from statelake.state_core.integrity.operator_parts import (
    OperatorPart,
    examine_operator_states,
)
from statelake.state_core.model.handles import (
    EmptySegmentHandle,
    KeyGroupsHandle,
    keyed_streams,
)
from statelake.state_core.model.key_groups import check_parallelism, key_groups_of


@dataclass
class OperatorExamined:
    """The readable part of one operator.

    Attributes:
        state: Its entry in `_metadata`.
        label: Its name in messages.
        broken: The reason why it is unreadable; empty if it is readable, at least in part.
        keyed: Its keyed state, by subtask.
        parts: Its operator state.
        unknown: Its keyed state of unknown types, by subtask.
        keepers: The keepers of sound entries, by subtask.
        timers: Its timers in raw keyed state, by subtask.
        damaged_timers: The subtasks whose timers have a fault.
    """

    state: OperatorMetadata
    label: str
    broken: str = ""
    keyed: dict[int, KeyedSource] = field(default_factory=dict)
    parts: list[OperatorPart] = field(default_factory=list)
    unknown: dict[int, KeyGroupsHandle] = field(default_factory=dict)
    keepers: dict[int, list[Keeper]] = field(default_factory=dict)
    timers: dict[int, KeyedSource] = field(default_factory=dict)
    damaged_timers: set[int] = field(default_factory=set)


def open_operator(
    state: OperatorMetadata, label: str, files: StateFiles, findings: Findings
) -> OperatorExamined:
    """Open all of an operator, and check everything that needs no reading of entries."""
    operator = OperatorExamined(state, label)
    try:
        check_parallelism(state.max_parallelism, state.parallelism)
    except KeyGroupError as error:
        operator.broken = error.problem
        return operator
    if state.coordinator is not None:
        findings.skip(Place(label), f"state of its coordinator, {state.coordinator.size} bytes")
    subtasks = sorted((state.subtasks or {}).items())
    handles = [part.managed_keyed for _, part in subtasks if part.managed_keyed is not None]
    siblings = OperatorHandles(handles, files, state.max_parallelism)
    for index, subtask in subtasks:
        where = Place(label, index)
        timers = _open_timers(operator, index, subtask, files, findings)
        _open_opaque(
            replace(subtask, raw_keyed=None) if timers else subtask, files, where, findings
        )
        if subtask.managed_keyed is None:
            continue
        source = open_source(subtask.managed_keyed, siblings, where, findings)
        if isinstance(source, UnknownSource):
            operator.unknown[index] = source.handle
        elif source is not None:
            operator.keyed[index] = source
            _compare_timers(operator, index, findings)
            findings.checked.key_groups += len(source.spans) or len(source.key_groups)
    _note_absent(operator, findings)
    _check_types(operator, findings)
    operator.parts = examine_operator_states(state, label, files, findings)
    return operator


def _open_timers(
    operator: OperatorExamined,
    index: int,
    subtask: SubtaskState,
    files: StateFiles,
    findings: Findings,
) -> bool:
    """Open raw keyed state with timers, as RocksDB jobs may have; return whether it has timers."""
    where, handle = Place(operator.label, index), subtask.raw_keyed
    try:
        if not is_timers(handle, files):
            return False
    except StateError:
        return False  # noted as any raw state is
    for stream in keyed_streams(handle) if handle is not None else ():
        if stream is not None:
            open_stream_of(stream, files, where, findings)
    try:
        source = open_timers(handle, files, operator.state.max_parallelism, where, findings)
    except StateError as error:
        findings.fault(FaultKind.HEADER, where, error)
        findings.lose(where, f"its timers on the heap: {error.problem}")
        operator.damaged_timers.add(index)
        return True
    if source is not None:
        operator.timers[index] = source
    return True


def _compare_timers(operator: OperatorExamined, index: int, findings: Findings) -> None:
    """Note timers that are in the backend and on the heap: the backend's are kept."""
    where, timers = Place(operator.label, index), operator.timers.get(index)
    if timers is None:
        return
    twice = find_timers_twice(
        (state.name for state in operator.keyed[index].header.states),
        (state.name for state in timers.header.states),
    )
    if twice is not None:
        findings.fault(FaultKind.HEADER, where, twice)
        findings.lose(where, f"its timers on the heap: {twice.problem}")
        operator.damaged_timers.add(index)


def _open_opaque(
    subtask: SubtaskState, files: StateFiles, where: Place, findings: Findings
) -> None:
    """Check raw state: only the existence of its bytes can be checked."""
    raw = subtask.raw_operator
    streams = [("raw operator state", None if raw is None else raw.stream)]
    if subtask.raw_keyed is not None:
        streams += [
            ("raw keyed state", keyed_stream) for keyed_stream in keyed_streams(subtask.raw_keyed)
        ]
    for what, stream in streams:
        if stream is None or isinstance(stream, EmptySegmentHandle):
            continue
        before = len(findings.faults)
        open_stream_of(stream, files, where, findings)
        if len(findings.faults) > before:
            findings.lose(where, f"{what}: {findings.faults[-1].problem}", size=stream.size)
        else:
            findings.skip(replace(where, subtask=None), f"{what}, which only the job can read")


def _note_absent(operator: OperatorExamined, findings: Findings) -> None:
    """Note subtasks without keyed state beside others that have some."""
    state = operator.state
    subtasks = state.subtasks or {}
    present = {index for index, subtask in subtasks.items() if subtask.managed_keyed is not None}
    for index in range(state.parallelism) if present else ():
        left = subtasks.get(index)
        if index not in present and not (left is not None and left.finished):
            groups = key_groups_of(index, state.max_parallelism, state.parallelism)
            why = "the subtask left no keyed state, as one does that never used any"
            findings.skip(Place(operator.label, index, "", groups), why)


def _check_types(operator: OperatorExamined, findings: Findings) -> None:
    """Note states that two subtasks wrote with different types."""
    names = {name: None for source in operator.keyed.values() for name in source.states}
    for name in names:
        types = {i: part.states[name] for i, part in operator.keyed.items() if name in part.states}
        right = most_frequent(types.values())
        for index, state in types.items():
            if state == right:
                continue
            where = Place(operator.label, index, name)
            error = CorruptSnapshotError(
                "another type than in another subtask",
                remedy="let the job take a new savepoint, which writes all subtasks alike",
            )
            findings.fault(FaultKind.HEADER, where, error)
            findings.lose(where, error.problem)
            operator.keyed[index] = operator.keyed[index].without(name)
