"""Operator state of a new operator: one file for each subtask, from rows."""

from __future__ import annotations

import uuid

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.conforming import conform
from statelake.state_core.formats.layout.meta_info import BackendStateType, StateMetaInfo
from statelake.state_core.formats.operator_state.operator_file import OperatorHeader
from statelake.state_core.formats.operator_state.operator_states import (
    OperatorLayout,
    encode_operator_file,
    operator_layout,
)
from statelake.state_core.formats.writing.new_rows import batches_of
from statelake.state_core.formats.writing.new_states import NewOperator, NewOperatorState
from statelake.state_core.model.handles import DistributionMode, OperatorHandle, RelativeHandle

SUBTASK, POSITION = "subtask", "position"


def write_new_operator_states(
    directory: Directory, operator: NewOperator, *, compressed: bool, version: int
) -> tuple[list[OperatorHandle], dict[str, int]]:
    """Write an operator's operator state.

    Args:
        directory: The target directory.
        operator: The new operator.
        compressed: Whether its states are compressed.
        version: 6, or 5, which is never compressed.

    Returns:
        The handle of each subtask, empty without operator state; and the number of each state's
        elements.

    Raises:
        EncodeError: A column is missing, or a value that can't be written.
    """
    if not operator.operator_states:
        return [], {}
    infos = [operator_state.meta_info() for operator_state in operator.operator_states]
    elements: dict[str, list[pa.LargeBinaryArray]] = {}
    counts = {}
    for state, info in zip(operator.operator_states, infos, strict=True):
        place = f"operator state {state.name!r}"
        if state.name in elements:
            raise EncodeError("there are two of that name", place=place)
        try:
            elements[state.name], counts[state.name] = _parts(state, info, operator.parallelism)
        except StateError as error:
            raise error.within(place) from error
    lists = tuple(info for info in infos if info.kind is BackendStateType.OPERATOR)
    broadcasts = tuple(info for info in infos if info.kind is BackendStateType.BROADCAST)
    header = OperatorHeader(version, compressed, lists, broadcasts)
    handles = []
    for subtask in range(operator.parallelism):
        states = [(info, elements[info.name][subtask]) for info in (*lists, *broadcasts)]
        data, offsets = encode_operator_file(header, states)
        name = str(uuid.uuid4())
        with directory.open_output(name) as file:
            file.write(data)
        handles.append(OperatorHandle(offsets, RelativeHandle(name, len(data))))
    return handles, counts


def _parts(
    state: NewOperatorState, info: StateMetaInfo, parallelism: int
) -> tuple[list[pa.LargeBinaryArray], int]:
    """Return the elements of each subtask, and the number of rows."""
    layout = operator_layout(info)
    batch = _conform(layout, state)
    encoded = layout.encode(batch)
    if layout.key is not None:
        return [encoded] * parallelism, len(batch)
    subtasks = batch[SUBTASK]
    if subtasks.null_count == 0:
        bounds = np.searchsorted(np.asarray(subtasks), np.arange(parallelism + 1))
        if len(batch) and not 0 <= subtasks[0].as_py() <= subtasks[-1].as_py() < parallelism:
            raise EncodeError(
                f"subtasks {subtasks[0]} to {subtasks[-1]} of an operator with {parallelism}"
            )
    elif layout.mode is DistributionMode.UNION:
        bounds = np.array([0, *[len(batch)] * parallelism])
    else:
        bounds = np.arange(parallelism + 1) * len(batch) // parallelism
    return [
        encoded.slice(first, end - first)
        for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ], len(batch)


def _conform(layout: OperatorLayout, state: NewOperatorState) -> pa.RecordBatch:
    """Return all rows with the columns of the layout, in order of subtask and position."""
    batches = list(batches_of(state.rows, "rows"))
    given = batches[0].schema.names if batches else layout.schema.names
    schema = layout.schema
    needed = [name for name in ("key", "value") if name in schema.names]
    missing = [name for name in needed if name not in given]
    if missing or not set(given) <= set(schema.names) or len(set(given)) < len(given):
        problem = f"no column {missing[0]!r}" if missing else f"columns {', '.join(given)}"
        raise EncodeError(problem, remedy=f"give the columns {', '.join(needed)}")
    parts = [
        pa.RecordBatch.from_arrays(
            [
                conform(batch[field.name], field.type, f"column {field.name!r}")
                if field.name in given
                else pa.nulls(len(batch), field.type)
                for field in schema
            ],
            schema=schema,
        )
        for batch in batches
    ]
    rows = pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)
    for name in needed:
        null = pc.and_(rows[name].is_null(), rows[f"raw_{name}"].is_null())
        row = pc.index(null, value=True).as_py()
        if row >= 0 and (name == "key" or layout.key is None):
            raise EncodeError(f"row {row} has no {name}", remedy="leave such rows out")
    return rows if layout.key is not None else _ordered(rows)


def _ordered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows ordered by subtask and position, if they have these columns."""
    given = [name for name in (POSITION, SUBTASK) if batch[name].null_count < len(batch)]
    for name in given:
        if batch[name].null_count:
            raise EncodeError(f"a null in column {name!r}", remedy="give it in all rows or none")
    if not given:
        return batch
    keys: list[npt.NDArray[np.int64]] = [np.asarray(batch[name]) for name in given]
    return batch.take(pa.array(np.lexsort(keys)))
