"""Does the lake hold what the snapshot held? Counted, state by state and key group by key group."""

from __future__ import annotations

import numpy as np

from pipelines.lake.catalog import Lake
from pipelines.lake.records import OperatorRecord, SnapshotRecord
from state_core.measure import measure_operator
from state_core.snapshot import Snapshot

__all__ = ["count_faults"]


def count_faults(lake: Lake, record: SnapshotRecord, snapshot: Snapshot) -> list[str]:
    """Compare a snapshot's entries with what the catalog says, and that with the tables' rows.

    Returns:
        A sentence for each difference; none if all is well.
    """
    faults = []
    known = {operator.operator_id: operator for operator in record.operators}
    for operator in snapshot.operators:
        if not operator.keyed_states:
            continue
        if operator.operator_id not in known:
            faults.append(f"operator {operator.label} is not in the lake")
            continue
        held = known[operator.operator_id]
        states = {state.name: state for state in held.states}
        for name, (counts, _) in measure_operator(operator).items():
            expected = np.zeros(operator.max_parallelism, np.int64)
            for one in states[name].key_groups if name in states else []:
                expected[one.key_group] = one.entries
            faults += [
                f"{held.label}/{name}, key group {group}: {counts[group]} entries in the"
                f" snapshot, {expected[group]} in the lake"
                for group in np.flatnonzero(counts != expected).tolist()
            ]
        faults += _table_faults(lake, held)
    return faults


def _table_faults(lake: Lake, operator: OperatorRecord) -> list[str]:
    faults = []
    for table in operator.tables:
        expected = sum(state.entries for state in operator.states if state.table == table.path)
        files = {file.path: file.rows for file in lake.table(table.path).files(table.version)}
        if files.keys() != {unit.path for unit in table.units}:
            faults.append(
                f"{table.path} version {table.version} has other files than the catalog says"
            )
        elif sum(files.values()) != expected:
            faults.append(f"{table.path}: {sum(files.values())} rows, and {expected} entries")
    return faults
