"""Compare one operator state in two snapshots.

Elements have no keys: two snapshots of a list are compared as collections, whatever the position
and the subtask of an element. Broadcast entries are compared by key.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import OperatorRecord, OperatorStateRecord
from statelake.pipelines.shown import typed_row
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state

ElementDifference = tuple[int, int, int, list[dict[str, Any]]]


def diff_operator_state(
    lake: str,
    before: tuple[OperatorRecord, OperatorStateRecord],
    after: tuple[OperatorRecord, OperatorStateRecord],
    examples: int,
) -> ElementDifference:
    """Compare one state of two snapshots: added, removed, changed, and a few examples."""
    first, second = (_contents(lake, *side) for side in (before, after))
    broadcast = before[1].mode == "BROADCAST"
    removed, added = list((first - second).items()), list((second - first).items())
    shown: list[dict[str, Any]] = []
    changed = 0
    if broadcast:
        old, new = ({key: value for (key, value), _ in some} for some in (removed, added))
        both = old.keys() & new.keys()
        changed = len(both)
        removed = [item for item in removed if item[0][0] not in both]
        added = [item for item in added if item[0][0] not in both]
    sides = {"removed": (before, removed), "added": (after, added)}
    for what, (side, some) in sides.items():
        for element, _ in some[: max(0, examples - len(shown))]:
            place = "before" if what == "removed" else "after"
            shown.append({"change": what, place: _shown(lake, side, element)})
    counts = [sum(count for _, count in some) for some in (added, removed)]
    return counts[0], counts[1], changed, shown


def first_rows(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord, count: int
) -> list[dict[str, Any]]:
    """Return the first rows of a state, as they are shown."""
    rows = _rows(lake, operator, state).slice(0, count) if count else None
    if rows is None:
        return []
    _, layout = parse_operator_state(state.meta_info)
    return [typed_row(rows.slice(at, 1), layout) for at in range(len(rows))]


def _contents(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord
) -> Counter[tuple[bytes, bytes]]:
    """Count each element's bytes (with an empty key), or each entry's key and value."""
    rows = _rows(lake, operator, state)
    _, layout = parse_operator_state(state.meta_info)
    return Counter(layout.pairs(rows))


def _rows(lake: str, operator: OperatorRecord, state: OperatorStateRecord) -> pa.RecordBatch:
    return read_operator_rows(lake, state, operator.table_of(state).units)


def _shown(
    lake: str, side: tuple[OperatorRecord, OperatorStateRecord], element: tuple[bytes, bytes]
) -> dict[str, Any]:
    rows = _rows(lake, *side)
    _, layout = parse_operator_state(side[1].meta_info)
    at = layout.pairs(rows).index(element)
    return typed_row(rows.slice(at, 1), layout)
