"""Does the lake hold what the snapshot held? Counted, state by state and key group by key group."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.lake.catalog import Lake
from pipelines.lake.records import OperatorRecord, SnapshotRecord, UnitRecord
from pipelines.lake.tables import StateTable
from state_core.measure import measure_operator
from state_core.snapshot import Operator, Snapshot

__all__ = ["count_faults"]

READERS = 8


def count_faults(lake: Lake, record: SnapshotRecord, snapshot: Snapshot) -> list[str]:
    """Compare a snapshot's entries with what the catalog says, and that with the files' rows.

    Returns:
        A sentence for each difference; none if all is well.
    """
    faults = []
    known = {operator.operator_id: operator for operator in record.operators}
    for operator in snapshot.operators:
        if not operator.keyed_states and not operator.operator_states:
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
        faults += _operator_state_faults(operator, held)
        faults += _table_faults(lake, held)
    return faults


def _operator_state_faults(operator: Operator, held: OperatorRecord) -> list[str]:
    """Differences of operator state: elements a subtask, and copies that are not the same."""
    faults = []
    known = {state.name: state for state in held.operator_states}
    for state in operator.operator_states:
        where = f"{held.label}/{state.name}"
        if state.name not in known:
            faults.append(f"{where}: operator state that is not in the lake")
            continue
        record = known[state.name]
        faults += [
            f"{where}: the copy of subtask {index} is not that of the first"
            for index in record.disagreeing
        ]
        if state.broadcast:
            continue
        stored = {one.subtask: one.elements for one in record.subtasks}
        faults += [
            f"{where}, subtask {part.subtask}: {part.elements} elements in the snapshot,"
            f" {stored.get(part.subtask, 0)} in the lake"
            for part in state.parts
            if stored.get(part.subtask, 0) != part.elements
        ]
    return faults


def _table_faults(lake: Lake, operator: OperatorRecord) -> list[str]:
    faults = []
    for record in operator.tables:
        table = lake.table(record.path)
        expected = sum(state.entries for state in operator.states if state.table == record.path)
        expected += sum(s.elements for s in operator.operator_states if s.table == record.path)
        rows = sum(unit.rows for unit in record.units)
        if {file.path for file in table.files(record.version)} != {u.path for u in record.units}:
            faults.append(
                f"{record.path} version {record.version} has other files than the catalog says"
            )
        elif rows != expected:
            faults.append(f"{record.path}: {rows} rows, and {expected} entries")
        else:
            with ThreadPoolExecutor(READERS) as pool:
                found = pool.map(partial(_unit_fault, table), record.units)
                faults += [fault for fault in found if fault]
    return faults


def _unit_fault(table: StateTable, unit: UnitRecord) -> str:
    """What is wrong with a file, by its own footer; empty if nothing is."""
    name = f"{table.path}/{unit.path}"
    try:
        footer = pq.read_metadata(
            table.directory.full(unit.path), filesystem=table.directory.filesystem
        )
    except FileNotFoundError:
        return f"{name} is not there"
    except (OSError, pa.ArrowException) as error:
        return f"{name} can't be read ({error})"
    held = int(footer.num_rows)
    return "" if held == unit.rows else f"{name}: {held} rows, and {unit.rows} entries"
