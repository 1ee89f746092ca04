"""Integrity of a lake: whether it holds what the snapshot held, and what its catalog says.

Entries are counted by state and key group; of the lake alone every row is read, and its key hashed
to its key group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.unmanaged_state import (
    UNMANAGED_DIRECTORY,
    digest_of,
    unmanaged_keyed_ids,
)
from statelake.pipelines.lake.export.redistributing import plan_elements
from statelake.pipelines.lake.tables.names import digest_in
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
    UnmanagedFile,
)
from statelake.pipelines.lake.tables.table_rows import table_rows
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.errors import KeyGroupError, MissingFileError, OversizedError, StateError
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.formats.writing.rehash import assign_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows, encode_rows
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.key_groups import prefix_bytes
from statelake.state_core.model.measure import Measure, measure_operator
from statelake.state_core.model.snapshot import Operator, Snapshot
from statelake.state_core.serializers.framework.columns import fixed_values

READERS = 8
Progress = Callable[[int, int], None]


def count_faults(lake: Catalog, record: SnapshotRecord, snapshot: Snapshot) -> list[str]:
    """Compare a snapshot's entries with the catalog, and the catalog with the files' rows.

    Returns:
        A sentence for each difference.
    """
    faults = []
    operators = {operator.operator_id: operator for operator in record.operators}
    as_bytes = unmanaged_keyed_ids(record)
    for operator in snapshot.operators:
        if operator.operator_id in as_bytes:
            operator = replace(operator, keyed_files=(), keyed_states=())  # noqa: PLW2901
        if not operator.keyed_states and not operator.operator_states:
            continue
        if operator.operator_id not in operators:
            faults.append(f"operator {operator.label} is not in the lake")
            continue
        recorded = operators[operator.operator_id]
        states = {state.name: state for state in recorded.states}
        for name, (counts, _) in measure_operator(operator).items():
            expected = np.zeros(recorded.max_parallelism, np.int64)
            for key_group in states[name].key_groups if name in states else []:
                expected[key_group.key_group] = key_group.entries
            if operator.max_parallelism != recorded.max_parallelism:
                if counts.sum() != expected.sum():
                    faults.append(
                        f"{recorded.label}/{name}: {counts.sum()} entries in the snapshot,"
                        f" {expected.sum()} in the lake"
                    )
                continue
            faults += [
                f"{recorded.label}/{name}, key group {group}: {counts[group]} entries in the"
                f" snapshot, {expected[group]} in the lake"
                for group in np.flatnonzero(counts != expected).tolist()
            ]
        faults += _operator_state_faults(operator, recorded)
        faults += _table_faults(lake, recorded)
    return faults


def _operator_state_faults(operator: Operator, recorded: OperatorRecord) -> list[str]:
    """Return differences of operator state: elements of a subtask, and copies that disagree.

    Those of a snapshot at another parallelism are compared as Flink, and an export, redistributes
    them.
    """
    faults = list(_copy_faults(recorded))
    plans = plan_elements(recorded, operator.parallelism)
    states = {state.name: state for state in recorded.operator_states}
    for state in operator.operator_states:
        where = f"{recorded.label}/{state.name}"
        if state.name not in states:
            faults.append(f"{where}: operator state that is not in the lake")
            continue
        if state.broadcast:
            continue
        counts = {part.subtask: part.elements for part in state.parts}
        stored = [sum(map(len, plan.get(state.name, []))) for plan in plans]
        faults += [
            f"{where}, subtask {index}: {counts.get(index, 0)} elements in the snapshot,"
            f" {expected} in the lake"
            for index, expected in enumerate(stored)
            if counts.get(index, 0) != expected
        ]
    return faults


def _copy_faults(operator: OperatorRecord) -> Iterator[str]:
    """Yield copies of broadcast state that are not as that of the first subtask with one."""
    for state in operator.operator_states:
        for index in state.disagreeing:
            where = f"{operator.label}/{state.name}"
            yield f"{where}: the copy of subtask {index} is not that of the first"


def _table_faults(lake: Catalog, operator: OperatorRecord) -> list[str]:
    faults = []
    for record in operator.tables:
        table = lake.table(record.path)
        expected = sum(state.entries for state in operator.states_in(record))
        rows = sum(data_file.rows for data_file in record.units)
        if {file.path for file in table.files(record.version)} != {u.path for u in record.units}:
            faults.append(
                f"{record.path} version {record.version} has other files than the catalog says"
            )
        elif rows != expected:
            faults.append(f"{record.path}: {rows} rows, and {expected} entries")
        else:
            with Workers(READERS) as pool:
                unit_faults = pool.map(partial(_file_fault, table), record.units)
                faults += [fault for fault in unit_faults if fault]
    return faults


def _file_fault(table: StateTable, data_file: DataFile) -> str:
    """Return the fault of a file, from its footer and its seal; empty if there is no fault."""
    name = f"{table.path}/{data_file.path}"
    try:
        with table.directory.open_input(data_file.path) as file:
            footer = open_parquet(file, name).metadata
            check_whole(file)
    except MissingFileError:
        return f"{name} is not there"
    except (OSError, pa.ArrowException, OversizedError) as error:
        return f"{name} can't be read ({error})"
    rows = int(footer.num_rows)
    return "" if rows == data_file.rows else f"{name}: {rows} rows, and {data_file.rows} entries"


# --------------------------------------------------------------------------- the lake alone


def stored_faults(
    lake: Catalog, record: SnapshotRecord, progress: Progress | None = None
) -> list[str]:
    """Read all rows of a snapshot, and compare them with the catalog.

    Args:
        lake: The lake.
        record: The snapshot.
        progress: Called with (done, total) after each operator.

    Returns:
        A sentence for each fault: tables and files that are missing or have other content, key
        groups with more or fewer rows, keys that hash to another key group, and carried files.

    Raises:
        NotFoundError: The snapshot was dropped meanwhile.
        ConflictError: An erasure changed it meanwhile, each time.
    """
    reading = SnapshotReading(lake, record)

    def read(record: SnapshotRecord) -> list[str]:
        faults = _stored_faults(lake, record, progress)
        if faults:
            reading.check()
        return faults

    return reading.at_once(read)


def _stored_faults(lake: Catalog, record: SnapshotRecord, progress: Progress | None) -> list[str]:
    faults = []
    for done, operator in enumerate(record.operators, 1):
        try:
            operator_faults = _table_faults(lake, operator)
            operator_faults = operator_faults or list(_row_faults(lake, operator))
            faults += operator_faults or list(_size_faults(lake, operator))
            faults += _copy_faults(operator)
        except (StateError, DeltaError, OSError, pa.ArrowException) as error:
            faults.append(f"{operator.label}: {' '.join(str(error).split())}")
        if progress is not None:
            progress(done, len(record.operators))
    return faults + [
        fault for carried in record.carried if (fault := _unmanaged_fault(lake, carried))
    ]


def _size_faults(lake: Catalog, operator: OperatorRecord) -> Iterator[str]:
    """Yield files whose size is not the catalog's."""
    for record in operator.tables:
        directory = lake.table(record.path).directory
        for file in record.units:
            size = directory.size(file.path)
            if size != file.size:
                yield f"{record.path}/{file.path}: {size} bytes, and {file.size} in the catalog"


def _row_faults(lake: Catalog, operator: OperatorRecord) -> Iterator[str]:
    """Yield key groups whose number of rows is not the catalog's, and keys in wrong ones."""
    counts = {state.name: np.zeros(operator.max_parallelism, np.int64) for state in operator.states}
    wrong: dict[str, str] = {}
    for record in operator.keyed_tables:
        rows, measure = table_rows(lake.location, operator, record).measured(
            KeyGroupRange(0, operator.max_parallelism - 1)
        )
        for key_groups in _slices(record.units):
            for state_rows in rows.read(key_groups):
                measure.add(encode_rows(state_rows, prefix_bytes(operator.max_parallelism)))
                groups = fixed_values(state_rows.batch.column("key_group"), np.int32)
                counts[state_rows.name] += np.bincount(groups, minlength=operator.max_parallelism)
                fault = _misplaced(operator, state_rows)
                if fault:
                    wrong.setdefault(state_rows.name, fault)
        yield from _content_faults(record, measure)
    for state in operator.states:
        yield from _count_faults(operator, state, counts[state.name])
    yield from wrong.values()


def _content_faults(record: TableRecord, measure: Measure) -> Iterator[str]:
    """Yield files whose rows are not those of the catalog's fingerprint."""
    for file in record.units:
        if any(
            part.fingerprint
            and measure.fingerprint(measure.states, KeyGroupRange(*part.span)) != part.fingerprint
            for part in file.compared
        ):
            yield f"{record.path}/{file.path}: its rows are not those of its fingerprint"


def _slices(files: list[DataFile]) -> list[KeyGroupRange]:
    """Return ranges of key groups to read together: those of files that overlap."""
    slices: list[KeyGroupRange] = []
    for file in sorted(files, key=lambda record: record.first):
        if slices and file.first <= slices[-1].last:
            slices[-1] = KeyGroupRange(slices[-1].first, max(slices[-1].last, file.last))
        else:
            slices.append(KeyGroupRange(file.first, file.last))
    return slices


def _count_faults(
    operator: OperatorRecord, state: StateRecord, counts: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Iterator[str]:
    expected = np.zeros(operator.max_parallelism, np.int64)
    for key_group in state.key_groups:
        expected[key_group.key_group] = key_group.entries
    for group in np.flatnonzero(counts != expected).tolist():
        yield (
            f"{operator.label}/{state.name}, key group {group}: {counts[group]} rows, and"
            f" {expected[group]} in the catalog"
        )


def _misplaced(operator: OperatorRecord, rows: StateRows) -> str:
    """Return a sentence on keys that hash to another key group; empty if there is no such key."""
    try:
        right = assign_key_groups(rows, operator.max_parallelism)
    except KeyGroupError:
        return ""
    misplaced = np.flatnonzero(right != fixed_values(rows.batch.column("key_group"), np.int32))
    if not misplaced.size:
        return ""
    key = rows.batch.column("key")[int(misplaced[0])].as_py()
    return (
        f"{operator.label}/{rows.name}: {misplaced.size} or more keys in a key group that is not"
        f" theirs, {key!r} the first, which hashes to {right[misplaced[0]]}"
    )


def _unmanaged_fault(lake: Catalog, carried: UnmanagedFile) -> str:
    """Return the fault of a carried file; empty if there is no fault."""
    path = f"{UNMANAGED_DIRECTORY}/{carried.blob}"
    if not lake.directory.is_file(path):
        return f"{path}, carried for {carried.handle}, is not there"
    source = lake.directory.source(path)
    same = (source.size, digest_of(source)) == (carried.size, digest_in(carried.blob))
    if same:
        return ""
    return f"{path}, carried for {carried.handle}, does not have the digest in its name"
