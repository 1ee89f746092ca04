"""Operator state between snapshots: an edited table that is committed, and what differs.

Elements have no keys: two snapshots of a list are compared as collections, wherever in them and at
whichever subtask an element stands. Broadcast entries are compared by key.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.tables.operator_tables import read_operator_rows, write_operator_unit
from pipelines.lake.tables.records import (
    OperatorRecord,
    OperatorStateRecord,
    SubtaskRecord,
    TableRecord,
    UnitRecord,
)
from pipelines.lake.tables.tables import TableFile
from state_core.errors import EncodeError, StateError
from state_core.formats.operator_state.operator_reader import parse_operator_state

__all__ = [
    "ElementDifference",
    "commit_operator_table",
    "count_subtasks",
    "diff_operator_state",
]

ElementDifference = tuple[int, int, int, list[dict[str, Any]]]


def commit_operator_table(
    lake: Lake,
    operator: OperatorRecord,
    state: OperatorStateRecord,
    files: list[TableFile],
    attempt: str,
) -> tuple[TableRecord, OperatorStateRecord]:
    """Check an edited table, and write it as one file of ours, which is its next version.

    Raises:
        EncodeError: A value that can't be written back to Flink, a row without a place, a key
            more than once.
    """
    table = lake.table(state.table)
    described, layout = parse_operator_state(state.meta_info)
    units = [UnitRecord(one.path, -1, 0, 0, one.rows, one.size, b"") for one in files]
    try:
        rows = read_operator_rows(lake.location, state, units)
        if not described.broadcast:
            _check_places(rows, operator.parallelism)
        elements = layout.encode(rows)
    except StateError as error:
        raise error.within(f"{operator.label}/{state.name}") from error
    lengths = pc.binary_length(elements).to_numpy()
    if described.broadcast:
        size = int(lengths.sum())
        subtasks = [replace(one, elements=len(rows), state_bytes=size) for one in state.subtasks]
    else:
        subtasks = count_subtasks(rows, lengths)
    made = []
    if len(rows):
        path, size = write_operator_unit(
            table.directory, f"{attempt}/subtask-00000", described.schema, [rows]
        )
        last = 0 if described.broadcast else operator.parallelism - 1
        made.append(UnitRecord(path, -1, 0, last, len(rows), size, b""))
    version = table.replace_files(
        described.schema,
        [TableFile(one.path, one.size, one.rows, -1) for one in made],
        partition_by=None,
        attempt=attempt,
    )
    changed = replace(
        state,
        elements=len(rows),
        state_bytes=int(lengths.sum()),
        subtasks=subtasks,
        disagreeing=[],
    )
    return TableRecord(state.table, version, "", made), changed


def _check_places(rows: pa.RecordBatch, parallelism: int) -> None:
    """Every element stands at one place of one subtask."""
    subtasks, positions = rows.column("subtask"), rows.column("position")
    if subtasks.null_count or positions.null_count:
        raise EncodeError("an element without a subtask or position", remedy="give every row both")
    if len(rows) and not 0 <= pc.min(subtasks).as_py() <= pc.max(subtasks).as_py() < parallelism:
        raise EncodeError(
            f"an element of a subtask that is not there: they go from 0 to {parallelism - 1}",
            remedy="choose one of them; `statelake export --parallelism` redistributes",
        )
    places = np.stack([subtasks.to_numpy().astype(np.int64), positions.to_numpy()])
    doubled = np.flatnonzero((places[:, 1:] == places[:, :-1]).all(axis=0))
    if doubled.size:
        subtask, position = places[:, doubled[0]].tolist()
        raise EncodeError(
            f"two elements at position {position} of subtask {subtask}",
            remedy="give each its own; gaps do no harm",
        )


def count_subtasks(rows: pa.RecordBatch, lengths: Any) -> list[SubtaskRecord]:
    """What each subtask has of a list: its elements, and their bytes.

    Args:
        rows: The elements.
        lengths: The bytes of each.
    """
    indexes = rows.column("subtask").to_numpy()
    return [
        SubtaskRecord(index, int((indexes == index).sum()), int(lengths[indexes == index].sum()))
        for index in np.unique(indexes).tolist()
    ]


def diff_operator_state(
    lake: str,
    before: tuple[OperatorRecord, OperatorStateRecord],
    after: tuple[OperatorRecord, OperatorStateRecord],
    examples: int,
) -> ElementDifference:
    """Compare one state of two snapshots: added, removed, changed, and a few examples."""
    first, second = (_contents(lake, *one) for one in (before, after))
    broadcast = before[1].mode == "BROADCAST"
    removed, added = list((first - second).items()), list((second - first).items())
    shown: list[dict[str, Any]] = []
    changed = 0
    if broadcast:
        old, new = ({key: value for (key, value), _ in some} for some in (removed, added))
        both = old.keys() & new.keys()
        changed = len(both)
        removed = [one for one in removed if one[0][0] not in both]
        added = [one for one in added if one[0][0] not in both]
    sides = {"removed": (before, removed), "added": (after, added)}
    for what, (side, some) in sides.items():
        for element, _ in some[: max(0, examples - len(shown))]:
            place = "before" if what == "removed" else "after"
            shown.append({"change": what, place: _shown(lake, side, element)})
    counts = [sum(count for _, count in some) for some in (added, removed)]
    return counts[0], counts[1], changed, shown


def _contents(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord
) -> Counter[tuple[bytes, bytes]]:
    """Each element's bytes (with an empty key), or each entry's key and value, and how often."""
    rows = _rows(lake, operator, state)
    _, layout = parse_operator_state(state.meta_info)
    return Counter(layout.pairs(rows))


def _rows(lake: str, operator: OperatorRecord, state: OperatorStateRecord) -> pa.RecordBatch:
    (table,) = (one for one in operator.tables if one.path == state.table)
    return read_operator_rows(lake, state, table.units)


def _shown(
    lake: str, side: tuple[OperatorRecord, OperatorStateRecord], element: tuple[bytes, bytes]
) -> dict[str, Any]:
    rows = _rows(lake, *side)
    _, layout = parse_operator_state(side[1].meta_info)
    at = layout.pairs(rows).index(element)
    row: dict[str, Any] = rows.slice(at, 1).to_pylist()[0]
    return {name: value for name, value in row.items() if not name.startswith("raw_")}
