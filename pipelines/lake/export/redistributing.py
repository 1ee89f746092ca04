"""Write operator state: from its tables to one file a subtask, at any parallelism.

At an unchanged parallelism every subtask keeps its elements. At another, split and broadcast state
are redistributed as in Flink; union state is written once, by the first subtask, since on restore
every subtask gets all of it. Elements that a typed column can't hold exactly are written from their
exact bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.export.rescaling import shares_of
from statelake.pipelines.lake.share.sharing import SampleAndMasks
from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import DataFile, OperatorRecord, OperatorStateRecord
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.meta_info import parse_state_meta_info
from statelake.state_core.formats.metadata.checkpoint_metadata import SubtaskState
from statelake.state_core.formats.operator_state.operator_file import (
    CURRENT_VERSION,
    UNCOMPRESSED_VERSION,
    OperatorHeader,
)
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.operator_state.operator_states import (
    ElementRows,
    encode_operator_file,
)
from statelake.state_core.formats.writing.writer import SavepointDirectory
from statelake.state_core.model.entries import by_size
from statelake.state_core.model.handles import (
    DistributionMode,
    KeyGroupsHandle,
    OperatorHandle,
    RelativeHandle,
)
from statelake.state_core.model.redistribution import ElementSlice, plan_operator_state

TASK_BYTES = 64 << 20
Plan = dict[str, list[ElementSlice]]


@dataclass(frozen=True)
class _Source:
    """One state, and the files with its rows."""

    state: OperatorStateRecord
    units: tuple[DataFile, ...]


@dataclass(frozen=True)
class _WriteTask:
    """Task: write the files of some new subtasks."""

    lake: str
    target: str
    attempt: str
    version: int
    compressed: bool
    sources: tuple[_Source, ...]
    plans: tuple[Plan, ...]
    shared: SampleAndMasks | None


def write_operator_states(
    lake: str,
    operator: OperatorRecord,
    parallelism: int,
    target: SavepointDirectory,
    engine: Engine,
    *,
    compressed: bool,
    version: int | None = None,
    shared: SampleAndMasks | None = None,
) -> dict[int, OperatorHandle]:
    """Write the operator state of one operator at a parallelism.

    Args:
        lake: The lake's location.
        operator: The operator's record.
        parallelism: The new parallelism.
        target: The directory of the savepoint.
        engine: The engine that writes the files.
        compressed: Whether their states are compressed, if the version supports it.
        version: 5 or 6; unchanged by default, or 6 if it is not known.
        shared: How elements are sampled and masked; None if they stay.

    Returns:
        The handle of each new subtask; empty without operator state.

    Raises:
        LakeError: A table can't be read.
        EncodeError: A serializer can't write a value.
    """
    if not operator.operator_states:
        return {}
    written = version or (operator.operator_state_version or CURRENT_VERSION)
    compressed = compressed and written != UNCOMPRESSED_VERSION
    sources = tuple(
        _Source(state, tuple(operator.table_of(state).units)) for state in operator.operator_states
    )
    plans = plan_elements(operator, parallelism)
    tasks = [
        _WriteTask(
            lake, target.directory.location, target.attempt, written, compressed, sources,
            tuple(group), shared,
        )
        for group in _groups(plans, operator)
    ]  # fmt: skip
    handles = [handle for results in engine.map(_write_subtasks, tasks) for handle in results]
    return dict(enumerate(handles))


def plan_elements(operator: OperatorRecord, parallelism: int) -> list[Plan]:
    """Return the elements of each operator state that each new subtask gets in an export."""
    before = shares_of(operator)
    if parallelism == operator.parallelism:
        return [
            {name: [ElementSlice(index, 0, share.elements)] for name, share in shares.items()}
            for index, shares in enumerate(before)
        ]
    plans = plan_operator_state(before, parallelism)
    for state in operator.operator_states:
        for plan in plans[1:] if state.mode == DistributionMode.UNION.name else ():
            plan[state.name] = []
    return plans


def _groups(plans: Sequence[Plan], operator: OperatorRecord) -> Iterable[list[Plan]]:
    """Return consecutive subtasks together, with about as much state as a task should hold."""
    weight = {
        state.name: state.state_bytes / max(1, state.elements) for state in operator.operator_states
    }

    def size_of(plan: Plan) -> float:
        return sum(weight[name] * len(part) for name, parts in plan.items() for part in parts)

    return by_size(plans, size_of, TASK_BYTES)


def _write_subtasks(task: _WriteTask) -> list[OperatorHandle]:
    """Write the files of some new subtasks."""
    infos = [
        parse_state_meta_info(source.state.meta_info, f"state {source.state.name!r}")
        for source in task.sources
    ]
    broadcast = [source.state.mode == DistributionMode.BROADCAST.name for source in task.sources]
    header = OperatorHeader(
        task.version,
        task.compressed,
        tuple(info for info, to_all in zip(infos, broadcast, strict=True) if not to_all),
        tuple(info for info, to_all in zip(infos, broadcast, strict=True) if to_all),
    )
    rows = {source.state.name: _Rows.read(task, source) for source in task.sources}
    target = Directory(task.target).confined()
    handles = []
    for plan in task.plans:
        states = [
            (info, rows[info.name].take(plan.get(info.name, [])))
            for info in (*header.lists, *header.broadcasts)
        ]
        data, offsets = encode_operator_file(header, states)
        name = f"{task.attempt}{uuid.uuid4()}"
        with target.open_output(name) as file:
            file.write(data)
        handles.append(OperatorHandle(offsets, RelativeHandle(name, len(data))))
    return handles


@dataclass(frozen=True)
class _Rows:
    """The encoded elements of one state, and the position of each old subtask's first one."""

    elements: pa.LargeBinaryArray
    starts: dict[int, int]
    broadcast: bool

    @classmethod
    def read(cls, task: _WriteTask, source: _Source) -> _Rows:
        """Read the rows that the task's plans name."""
        state, layout = parse_operator_state(source.state.meta_info)
        read = {
            part.subtask for plan in task.plans for part in plan.get(state.name, []) if len(part)
        }
        files = [
            file
            for file in source.units
            if state.broadcast or any(file.first <= index <= file.last for index in read)
        ]
        batch = read_operator_rows(task.lake, source.state, files)
        if task.shared is not None:
            batch = task.shared.apply(ElementRows(state.name, layout, batch)).batch
        elements = layout.encode(batch)
        if state.broadcast:
            return cls(elements, {}, broadcast=True)
        subtasks, firsts = np.unique(batch.column("subtask").to_numpy(), return_index=True)
        starts = dict(zip(subtasks.tolist(), firsts.tolist(), strict=True))
        return cls(elements, starts, broadcast=False)

    def take(self, slices: Sequence[ElementSlice]) -> pa.LargeBinaryArray:
        """Return some elements, in order; all of a broadcast state."""
        if self.broadcast:
            return self.elements
        pieces = [
            self.elements.slice(self.starts[slice_.subtask] + slice_.first, len(slice_))
            for slice_ in slices
            if len(slice_)
        ]
        return pa.concat_arrays(pieces) if pieces else self.elements.slice(0, 0)


def refuse_finished(subtasks: Mapping[int, SubtaskState], label: str) -> None:
    """Refuse state of a finished subtask, which has no handle, so that the state would be lost.

    Raises:
        UnsupportedFormatError: A finished subtask has state in the lake.
    """
    for index, subtask in subtasks.items():
        keyed, operator = subtask.managed_keyed, subtask.managed_operator
        groups = isinstance(keyed, KeyGroupsHandle) and any(keyed.offsets)
        # other subtasks have copies of a broadcast state
        elements = operator is not None and any(
            state.offsets and state.mode is not DistributionMode.BROADCAST
            for state in operator.states.values()
        )
        if subtask.finished and (groups or elements):
            raise UnsupportedFormatError(
                "the subtask had finished, and has state in the lake",
                place=f"operator {label}, subtask {index}",
                remedy="delete the rows of its key groups and its elements, and commit that",
            )
