"""The states of one operator in a salvaged savepoint: files of the sound entries and elements."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.meta_info import KeyedHeader, StateMetaInfo
from statelake.state_core.formats.operator_state.operator_file import OperatorHeader
from statelake.state_core.formats.operator_state.operator_states import encode_operator_file
from statelake.state_core.formats.writing.spills import (
    FILE,
    GROUP,
    STATE,
    Spill,
    gathered_groups,
    plan_parts,
    runs_of,
)
from statelake.state_core.formats.writing.unified_encode import LENGTH_BYTES, copy_entries
from statelake.state_core.formats.writing.writer import (
    SavepointDirectory,
    keyed_handle,
    write_keyed_part,
)
from statelake.state_core.integrity.findings import Findings, Loss, Place
from statelake.state_core.integrity.operator_parts import OperatorPart
from statelake.state_core.integrity.operators import OperatorExamined
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupsHandle, OperatorHandle, RelativeHandle
from statelake.state_core.model.key_groups import key_group_ranges


def salvage_keyed(
    operator: OperatorExamined, target: SavepointDirectory, findings: Findings
) -> tuple[dict[int, KeyGroupsHandle], int]:
    """Write an operator's keyed state; return the handles by subtask, and the number of entries.

    Every subtask gets the key groups that Flink expects in its handle, wherever they were.
    """
    if not operator.keyed:
        return {}, 0
    header, ids = _merged_header(operator)
    chosen = _chosen(operator, findings)
    spills: list[Spill] = []
    for index, keepers in operator.keepers.items():
        for keeper in keepers:
            if isinstance(keeper, EntrySpill):
                spilled = keeper.spill(ids[index], chosen[index])
                spills += [] if spilled is None else [spilled]
    handles = {}
    ranges = key_group_ranges(operator.state.max_parallelism, operator.state.parallelism)
    left = operator.state.subtasks or {}
    planned = plan_parts(spills, ranges, whole_files=True)
    for index, (key_groups, (keyed,)) in enumerate(zip(ranges, planned, strict=True)):
        had = index in left and left[index].managed_keyed is not None
        had = had and index not in operator.unknown
        if not keyed.size and not had:
            continue
        part = write_keyed_part(
            target.directory,
            header,
            gathered_groups(target.directory, keyed),
            compressed=header.compressed,
        )
        handles[index] = keyed_handle(part, key_groups)
    for keepers in operator.keepers.values():
        for keeper in keepers:
            if isinstance(keeper, EntrySpill):
                keeper.delete()
    return handles, sum(spill.entries for spill in spills)


def _merged_header(operator: OperatorExamined) -> tuple[KeyedHeader, dict[int, list[int]]]:
    """Return a common header, and the new ids of each subtask's states; -1 leaves a state out."""
    infos: dict[str, StateMetaInfo] = {}
    ids: dict[int, list[int]] = {}
    for index, source in operator.keyed.items():
        mine = []
        for state_id, info in enumerate(source.header.states):
            if state_id in source.faulty:
                mine.append(-1)
                continue
            infos.setdefault(info.name, info)
            mine.append(list(infos).index(info.name))
        ids[index] = mine
    headers = [source.header for source in operator.keyed.values()]
    compressed = any(header.compressed for header in headers)
    return replace(headers[0], compressed=compressed, states=tuple(infos.values())), ids


def _chosen(operator: OperatorExamined, findings: Findings) -> dict[int, set[int]]:
    """Choose the subtask whose copy of each key group is kept: the one that Flink would read."""
    ranges = key_group_ranges(operator.state.max_parallelism, operator.state.parallelism)
    owner: dict[int, int] = {}
    for index, source in operator.keyed.items():
        for group in range(source.key_groups.first, source.key_groups.last + 1):
            if group not in owner or group in ranges[index]:
                owner[group] = index
    chosen: dict[int, set[int]] = {index: set() for index in operator.keyed}
    for group, index in owner.items():
        chosen[index].add(group)
    for index, source in operator.keyed.items():
        twice = len(source.key_groups) - len(chosen[index])
        if twice:
            why = f"{twice} of its key groups are in another subtask's handle, and taken from there"
            findings.lose(Place(operator.label, index), why)
    return chosen


# --------------------------------------------------------------------------- operator state


def salvage_operator_states(
    operator: OperatorExamined, target: SavepointDirectory, findings: Findings
) -> tuple[dict[int, OperatorHandle], int]:
    """Write an operator's operator state; return handles by subtask, and the number of elements.

    A subtask whose copy of a broadcast state is damaged gets another's, so nothing is lost.
    """
    copies: dict[str, bytes] = {}
    for part in operator.parts:
        for name in part.copies:
            for copy in part.elements.get(name, [])[:1]:
                copies.setdefault(name, copy)
    headers = [part.header for part in operator.parts if part.header is not None]
    types: dict[str, StateMetaInfo] = {}
    for part in operator.parts:
        if part.header is not None:
            for info in (*part.header.lists, *part.header.broadcasts):
                if info.name not in part.faulty:
                    types.setdefault(info.name, info)
    handles, count = {}, 0
    for part in operator.parts:
        header = part.header
        if header is None and not part.unknown and copies:
            header = headers[0]
        if header is None:
            continue
        header = replace(
            header,
            lists=tuple(types[info.name] for info in header.lists if info.name in types),
            broadcasts=tuple(types[info.name] for info in header.broadcasts if info.name in types),
        )
        states = [(info, _elements(part, info, copies)) for info in _kept(part, header, copies)]
        for info, elements in states:
            if info.name in copies and elements:
                place = Place(operator.label, part.subtask, info.name)
                findings.losses[:] = [loss for loss in findings.losses if not _is_copy(loss, place)]
        data, offsets = encode_operator_file(
            header, [(info, pa.array(pieces, pa.large_binary())) for info, pieces in states]
        )
        name = str(uuid.uuid4())
        with target.directory.open_output(name) as out:
            out.write(data)
        handles[part.subtask] = OperatorHandle(offsets, RelativeHandle(name, len(data)))
        count += sum(len(pieces) for _, pieces in states)
    return handles, count


def _kept(
    part: OperatorPart, header: OperatorHeader, copies: dict[str, bytes]
) -> Iterator[StateMetaInfo]:
    """Yield the states of a subtask, and those for which it gets another's copy."""
    for info in (*header.lists, *header.broadcasts):
        if info.name in part.handle.states or info.name in copies:
            yield info


def _elements(part: OperatorPart, info: StateMetaInfo, copies: dict[str, bytes]) -> list[bytes]:
    elements = part.elements.get(info.name, [])
    return [copies[info.name]] if info.name in copies and not elements else elements


def _is_copy(loss: Loss, place: Place) -> bool:
    """Return whether a loss is one subtask's copy of a broadcast state."""
    return loss.where == place


class EntrySpill:
    """A keeper of entries in its own file, which is created with the first entry.

    Args:
        directory: The directory for the file.
        prefix: The length of the key-group prefix in bytes.
    """

    def __init__(self, directory: Directory, prefix: int) -> None:
        self.directory = directory
        self.prefix = prefix
        self.name = f"{uuid.uuid4()}.spill"
        self._file: pa.NativeFile | None = None
        self._runs: list[npt.NDArray[np.int64]] = []
        self._size = 0

    def mark(self) -> int:
        """Return the number of runs kept so far."""
        return len(self._runs)

    def forget(self, mark: int) -> None:
        """Forget later runs; their bytes stay in the file, unused."""
        del self._runs[mark:]

    def keep(self, entries: Entries) -> None:
        """Append entries of one state."""
        if self._file is None:
            self._file = self.directory.open_output(self.name)
        written = copy_entries(entries, self.prefix)
        self._file.write(written.data.data)
        self._runs.append(runs_of(written, LENGTH_BYTES + self.prefix, self._size))
        self._size += len(written.data)

    def close(self) -> None:
        """End: no more entries follow."""
        if self._file is not None:
            self._file.close()

    def spill(self, ids: list[int], groups: set[int]) -> Spill | None:
        """Return the entries of some key groups with new state ids; -1 leaves a state out."""
        if not self._runs:
            return None
        runs = np.concatenate(self._runs)
        runs[:, STATE] = np.array(ids, np.int64)[runs[:, STATE]]
        kept = (runs[:, STATE] >= 0) & np.isin(runs[:, GROUP], list(groups))
        assert runs.shape[1] == FILE  # noqa: S101 - the columns of a spill
        return Spill(self.name, runs[kept], self.prefix)

    def delete(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self.directory.delete(self.name)
