"""Operator state beside keyed state, written for another parallelism.

Elements are moved as the bytes they are. Split and broadcast state go where Flink would put them.
Union state is written once, by the first subtask: a restore gives all of it to everyone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from state_core.filesystem import ByteSource, Directory
from state_core.formats.metadata import SubtaskState
from state_core.formats.operator_file import OperatorFile, OperatorHeader, open_operator_file
from state_core.formats.operator_states import encode_operator_file
from state_core.handles import DistributionMode, OperatorHandle, RelativeHandle, StreamHandle
from state_core.redistribution import ElementSlice, OperatorPart, plan_operator_state

__all__ = ["redistribute_operator_state"]

Opener = Callable[[StreamHandle], ByteSource]


def redistribute_operator_state(
    subtasks: Mapping[int, SubtaskState],
    old_parallelism: int,
    parallelism: int,
    open_stream: Opener,
    target: Directory,
) -> dict[int, OperatorHandle]:
    """Write the operator state of one operator for another parallelism.

    Args:
        subtasks: What the old subtasks left.
        old_parallelism: How many there were.
        parallelism: How many there are to be.
        open_stream: Finds the bytes of an old handle.
        target: Where the new files go.

    Returns:
        The handle of each new subtask; none at all if there was no operator state.

    Raises:
        SnapshotError: It can't be read.
    """
    files: dict[int, OperatorFile] = {}
    for index, subtask in subtasks.items():
        handle = subtask.managed_operator
        if handle is not None and handle.stream is not None:
            files[index] = open_operator_file(open_stream(handle.stream), handle)
    if not files:
        return {}
    before = [
        {
            name: OperatorPart(part.mode, len(part.offsets))
            for name, part in files[index].handle.states.items()
        }
        if index in files
        else {}
        for index in range(old_parallelism)
    ]
    header = _header(files)
    made = {}
    for index, parts in enumerate(plan_operator_state(before, parallelism)):
        states = []
        for state in (*header.lists, *header.broadcasts):
            mode = DistributionMode[state.options["OPERATOR_STATE_DISTRIBUTION_MODE"]]
            moved = parts.get(state.name, [])
            kept = [] if mode is DistributionMode.UNION and index else moved
            states.append((state, _elements(files, state.name, kept)))
        data, offsets = encode_operator_file(header, states)
        name = str(uuid.uuid4())
        with target.open_output(name) as file:
            file.write(data)
        made[index] = OperatorHandle(offsets, RelativeHandle(name, len(data)))
    return made


def _header(files: Mapping[int, OperatorFile]) -> OperatorHeader:
    """The first subtask's head, with the states that only others registered."""
    first = files[min(files)].header
    lists = {state.name: state for file in files.values() for state in file.header.lists}
    broadcasts = {state.name: state for file in files.values() for state in file.header.broadcasts}
    return OperatorHeader(
        first.version, first.compressed, tuple(lists.values()), tuple(broadcasts.values())
    )


def _elements(
    files: Mapping[int, OperatorFile], state: str, slices: list[ElementSlice]
) -> list[bytes]:
    """The bytes of some elements, in order."""
    found = []
    for one in slices:
        file = files[one.subtask]
        where = file.elements(state)
        found += [
            file.content[where.starts[at] : where.ends[at]].tobytes()
            for at in range(one.first, one.last)
        ]
    return found
