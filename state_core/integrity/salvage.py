"""`salvage_snapshot`: write the readable part of a damaged snapshot as a sound savepoint.

Entries keep their bytes: nothing is decoded and encoded again. Losses are listed. Unchecked parts
(raw state, coordinator state) are carried, and so are records in flight, if all of them are sound.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from statelake.state_core.errors import StateError
from statelake.state_core.formats.contradictions import find_contradictions
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    FIRST_WITH_COORDINATOR,
    OperatorMetadata,
    SubtaskState,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.integrity.checking import (
    SHOWN,
    Examined,
    IntegrityReport,
    Progress,
    check_and_keep,
)
from statelake.state_core.integrity.findings import Findings, Loss, Place
from statelake.state_core.integrity.keyed_sources import KeyedSource
from statelake.state_core.integrity.operators import OperatorExamined
from statelake.state_core.integrity.salvaged_states import (
    EntrySpill,
    salvage_keyed,
    salvage_operator_states,
)
from statelake.state_core.model.handles import (
    ChannelHandle,
    InlineHandle,
    KeyedHandle,
    KeyGroupRange,
    KeyGroupsHandle,
    RelativeHandle,
    StreamHandle,
)
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.printable import Printed

COPY_BYTES = 8 << 20


@dataclass(frozen=True)
class SalvageReport(Printed):
    """The result of a salvage.

    Attributes:
        integrity: The faults of the damaged snapshot.
        path: The new savepoint; None if `_metadata` can't be read, so that nothing can.
        lost: The parts that were not written.
        entries: The number of entries of keyed state in the new savepoint.
        elements: The number of elements of operator state in it; a copy of a broadcast state counts
            as one.
    """

    JSON = ("path", "entries", "elements", "lost")

    integrity: IntegrityReport
    path: str | None
    lost: tuple[Loss, ...] = ()
    entries: int = 0
    elements: int = 0

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        if self.path is None:
            yield "nothing can be salvaged: without `_metadata` nobody knows what the files are"
            return
        yield (
            f"wrote {self.path}: {self.entries} entries, {self.elements} elements of operator"
            f" state; {'lost:' if self.lost else 'nothing is lost'}"
        )
        yield from (f"    {loss}" for loss in self.lost[:SHOWN])
        if len(self.lost) > SHOWN:
            yield f"... and {len(self.lost) - SHOWN} more: --json lists all"


def salvage_snapshot(
    savepoint: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    allow_external: Iterable[str] = (),
    uids: Iterable[str] = (),
    threads: int | None = None,
    progress: Progress | None = None,
) -> SalvageReport:
    """Check a snapshot, and write all of it that is readable as a canonical savepoint.

    Args:
        savepoint: The snapshot's directory, or its `_metadata` file.
        to: A directory that does not exist yet.
        allow_external: Other directories to which its handles may lead.
        uids: Operator uids to recognise: before Flink 2.0 a snapshot holds only their hashes.
        threads: The number of threads; by default that of the cores.
        progress: Called with (done, total) after each slice of keyed state.

    Raises:
        NotASnapshotError: The location has no `_metadata`.
        SnapshotError: The target is not empty, or can't be written.
    """
    target = SavepointDirectory(to)

    def keeper(source: KeyedSource) -> EntrySpill:
        return EntrySpill(target.directory, prefix_bytes(source.max_parallelism))

    try:
        examined = check_and_keep(
            savepoint, allow_external, uids, threads=threads, progress=progress, keeper=keeper
        )
        if examined.metadata is None:
            target.abandon()
            return SalvageReport(examined.report, None)
        work = _Salvage(examined, target)
        metadata = replace(
            examined.metadata,
            version=max(examined.metadata.version, FIRST_WITH_COORDINATOR),
            operators=work.operators(),
        )
        path = target.commit(metadata)
    except BaseException:
        target.abandon()
        raise
    lost = tuple(_merged(examined.losses))
    return SalvageReport(examined.report, path, lost, work.entries, work.elements)


class _Salvage:
    def __init__(self, examined: Examined, target: SavepointDirectory) -> None:
        self.examined = examined
        self.target = target
        self.findings: Findings = examined.findings
        self.entries = self.elements = 0
        self.copied: dict[StreamHandle, StreamHandle] = {}

    def operators(self) -> list[OperatorMetadata]:
        """Return every operator, each id and each uid once."""
        salvaged: dict[str, OperatorMetadata] = {}
        uids: set[str] = set()
        for operator in self.examined.operators:
            uid = operator.state.uid or operator.state.operator_id
            if operator.broken:
                self.findings.lose(Place(operator.label), operator.broken)
            elif operator.state.operator_id in salvaged:
                self.findings.lose(Place(operator.label), "another operator has its id")
            elif uid in uids:
                self.findings.lose(Place(operator.label), "another operator has its uid")
            else:
                salvaged[operator.state.operator_id] = self._operator(operator)
                uids.add(uid)
        return list(salvaged.values())

    def _operator(self, operator: OperatorExamined) -> OperatorMetadata:
        """Return the readable part of an operator."""
        if operator.state.subtasks is None:
            return operator.state
        raw = self._raw_keyed(operator)
        subtasks = {
            index: self._carried(Place(operator.label, index), subtask, raw.get(index))
            for index, subtask in operator.state.subtasks.items()
        }
        keyed, entries = salvage_keyed(operator, self.target, self.findings)
        for index, handle in keyed.items():
            subtask = subtasks.setdefault(index, SubtaskState())
            # state of its key groups in another subtask's handle counts, too
            subtask.managed_keyed, subtask.finished = handle, False
        handles, elements = salvage_operator_states(operator, self.target, self.findings)
        for index, operator_handle in handles.items():
            subtasks.setdefault(index, SubtaskState()).managed_operator = operator_handle
        for index, handle in self._unknown(operator, keyed).items():
            copied = replace(handle, stream=self._copy(handle.stream))
            subtasks[index].managed_keyed = copied
        for part in operator.parts:
            if part.unknown:
                stream = self._copy(part.handle.stream)
                carried = replace(part.handle, stream=stream, merged_dirs=None)
                subtasks[part.subtask].managed_operator = carried
        self.entries += entries
        self.elements += elements
        return replace(operator.state, subtasks=subtasks)

    def _unknown(
        self, operator: OperatorExamined, keyed: Mapping[int, KeyGroupsHandle]
    ) -> dict[int, KeyGroupsHandle]:
        """Return keyed state of unknown types, carried as whole files, if it fits the rest."""
        handles = {**keyed, **operator.unknown}
        subtasks = {index: SubtaskState(managed_keyed=handle) for index, handle in handles.items()}
        wrong = next(find_contradictions([replace(operator.state, subtasks=subtasks)], {}), None)
        if wrong is None:
            return operator.unknown
        for index, handle in operator.unknown.items():
            where = Place(operator.label, index, "", handle.key_groups)
            self.findings.lose(where, f"its types are not known, and {wrong.error.problem}")
        return {}

    def _raw_keyed(self, operator: OperatorExamined) -> dict[int, KeyedHandle]:
        """Return the raw keyed state that can be carried: not that of contradictory handles."""
        kept = {
            index: subtask.raw_keyed
            for index, subtask in (operator.state.subtasks or {}).items()
            if subtask.raw_keyed is not None and index not in operator.damaged_timers
        }
        while True:
            subtasks = {index: SubtaskState(raw_keyed=handle) for index, handle in kept.items()}
            alone = replace(operator.state, subtasks=subtasks)
            wrong = {clash.subtask: clash.error for clash in find_contradictions([alone], {})}
            if not wrong:
                return kept
            for index, error in wrong.items():
                self.findings.lose(
                    Place(operator.label, index), f"raw keyed state: {error.problem}"
                )
                if index is not None:
                    del kept[index]

    def _carried(
        self, where: Place, subtask: SubtaskState, raw_keyed: KeyedHandle | None
    ) -> SubtaskState:
        """Carry the state that is not examined; keyed and operator state are added later."""
        carried = SubtaskState(finished=subtask.finished)
        raw = subtask.raw_operator
        if raw is not None:
            stream = self._copy(raw.stream)
            carried.raw_operator = replace(raw, stream=stream, merged_dirs=None) if stream else None
        if isinstance(raw_keyed, KeyGroupsHandle):
            stream = self._copy(raw_keyed.stream)
            carried.raw_keyed = replace(raw_keyed, stream=stream) if stream else None
        elif raw_keyed is not None:
            self.findings.lose(where, f"raw keyed state in a {type(raw_keyed).__name__}")
        if self.examined.channels_sound:
            carried.inputs = self._channels(subtask.inputs)
            carried.outputs = self._channels(subtask.outputs)
        return carried

    def _channels(self, channels: tuple[ChannelHandle, ...]) -> tuple[ChannelHandle, ...]:
        copied = [replace(channel, stream=self._copy(channel.stream)) for channel in channels]
        return tuple(channel for channel in copied if channel.stream is not None)

    def _copy(self, stream: StreamHandle | None) -> StreamHandle | None:
        """Copy a stream to the new savepoint; return None, and note it, if it is missing."""
        if stream is None or isinstance(stream, InlineHandle):
            return stream
        if stream not in self.copied:
            copy_ = _copied(stream, self.examined.files, self.target)
            if copy_ is None:
                return None
            self.copied[stream] = copy_
        return self.copied[stream]


def _copied(
    stream: StreamHandle, files: StateFiles, target: SavepointDirectory
) -> RelativeHandle | None:
    try:
        source = files.open(stream)
    except StateError:
        return None
    name = str(uuid.uuid4())
    with target.directory.open_output(name) as out:
        for at in range(0, source.size, COPY_BYTES):
            block = np.empty(min(COPY_BYTES, source.size - at), np.uint8)
            source.read_into(at, block)
            out.write(block.data)
    return RelativeHandle(name, source.size)


def _merged(losses: list[Loss]) -> list[Loss]:
    """Join equal losses of consecutive key groups."""
    merged: list[Loss] = []
    for loss in losses:
        last = merged[-1] if merged else None
        mine, before = loss.where.key_groups, last.where.key_groups if last is not None else None
        if last is None or mine is None or before is None:
            merged.append(loss)
            continue
        where = replace(loss.where, key_groups=before)
        if (where, loss.why) != (last.where, last.why) or mine.first != before.last + 1:
            merged.append(loss)
            continue
        merged[-1] = Loss(
            replace(where, key_groups=KeyGroupRange(before.first, mine.last)),
            loss.why,
            _sum(last.entries, loss.entries),
            _sum(last.size, loss.size),
        )
    return merged


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
