"""Rules of records, checked before these are used: anyone with write access may have written them.

The bounds of single values are in `records`; here is how they depend on each other. A record that
breaks a rule is refused by name, and no file that it names is read, written or deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from statelake.pipelines.lake.tables.file_spans import (
    KEY_GROUP,
    MAX_PARTITIONS,
    Partitioning,
)
from statelake.pipelines.lake.tables.names import (
    KEYED,
    OPERATOR,
    TIMERS,
    is_table_of,
    is_unit_path,
    is_unmanaged_name,
)
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
    by_span,
)

Fault = tuple[str, str]


def record_fault(record: SnapshotRecord, *, with_operators: bool) -> str:
    """Return the first fault of a row of the catalog; empty if it is valid.

    Args:
        record: The row.
        with_operators: Whether its operators were read.
    """
    fault = next(_faults(record, with_operators=with_operators), None)
    return "" if fault is None else f"{fault[0]}: {fault[1]}"


def _faults(record: SnapshotRecord, *, with_operators: bool) -> Iterator[Fault]:
    entries = sum(operator.entries for operator in record.operators)
    if with_operators and (record.entries, record.state_bytes) != (
        entries,
        sum(operator.state_bytes for operator in record.operators),
    ):
        yield "entries", "they, or their bytes, are not those of its operators"
    yield from _repeated("operators", (operator.operator_id for operator in record.operators))
    for unmanaged in record.carried:
        if not is_unmanaged_name(unmanaged.blob):
            yield "carried", f"{unmanaged.blob!r:.200} is not the name of a carried file"
    yield from _repeated("carried", (carried.blob for carried in record.carried))
    yield from _repeated("tables", (table.path for table in record.tables))
    for index, operator in enumerate(record.operators):
        for where, problem in _operator_faults(record.job, operator):
            yield f"operators[{index}] ({operator.label}), {where}", problem


def _repeated(what: str, names: Iterable[object]) -> Iterator[Fault]:
    for name, count in Counter(names).items():
        if count > 1:
            yield what, f"{name!r:.200} is there {count} times"


def _operator_faults(job: str, operator: OperatorRecord) -> Iterator[Fault]:
    """Yield contradictions between an operator's states, their tables, and the tables' files."""
    if operator.parallelism > operator.max_parallelism:
        yield "parallelism", f"{operator.parallelism}, above max_parallelism"
    yield from _repeated("states", (state.name for state in operator.states))
    yield from _repeated("operator_states", (state.name for state in operator.operator_states))
    owners = [
        (state.name, state.table, TIMERS if state.kind == TIMERS else KEYED)
        for state in operator.states
    ]
    owners += [(state.name, state.table, OPERATOR) for state in operator.operator_states]
    tables = {table.path: table for table in operator.tables}
    for name, path, area in owners:
        if path not in tables:
            yield f"state {name!r}", f"its table {path!r:.200} is not among the operator's tables"
        if not is_table_of(job, path, name, area=area):
            yield f"state {name!r}", f"{path!r:.200} is no table of that state of job {job!r}"
    yield from _repeated("tables", (path for _, path, area in owners if area != TIMERS))
    for path in tables.keys() - {path for _, path, _ in owners}:
        yield "tables", f"{path!r:.200} is the table of no state"
    entries: Counter[str] = Counter()
    for state in operator.all_states:
        entries[state.table] += state.entries
    others = {state.table for state in operator.operator_states}
    for path, table in tables.items():
        yield from _table_faults(table, operator, keyed=path not in others)
        rows = sum(file.rows for file in table.units)
        if rows != entries[path]:
            yield f"table {path!r}", f"{rows} rows, and {entries[path]} entries"
    for keyed in operator.states:
        yield from _keyed_faults(keyed, operator)
    for other in operator.operator_states:
        yield from _operator_state_faults(other, operator)


def _keyed_faults(state: StateRecord, operator: OperatorRecord) -> Iterator[Fault]:
    where, groups = f"state {state.name!r}", state.key_groups
    yield from _repeated(f"{where}, key groups", (group.key_group for group in groups))
    last = max((group.key_group for group in groups), default=0)
    if last >= operator.max_parallelism:
        yield where, f"key group {last}, beyond max_parallelism"
    counted = sum(group.entries for group in groups), sum(group.state_bytes for group in groups)
    if (state.entries, state.state_bytes) != counted:
        yield where, "its entries and bytes are not those of its key groups"


def _operator_state_faults(state: OperatorStateRecord, operator: OperatorRecord) -> Iterator[Fault]:
    where, subtasks = f"state {state.name!r}", state.subtasks
    yield from _repeated(f"{where}, subtasks", (subtask.subtask for subtask in subtasks))
    indexes = [0, *(subtask.subtask for subtask in subtasks), *state.disagreeing]
    if min(indexes) < 0 or max(indexes) >= operator.parallelism:
        yield where, "a subtask that the operator has not"
    counted = state.with_subtasks(subtasks)
    if (state.elements, state.state_bytes) != (counted.elements, counted.state_bytes):
        yield where, "its elements and bytes are not those of its subtasks"


def _table_faults(table: TableRecord, operator: OperatorRecord, *, keyed: bool) -> Iterator[Fault]:
    """Yield faults of a table's files: key groups or subtasks that do not exist, or occur twice."""
    partitioning = Partitioning(operator.max_parallelism, table.partition_by)
    where = f"table {table.path!r}"
    by_group = table.partition_by == KEY_GROUP and operator.max_parallelism <= MAX_PARTITIONS
    if keyed != bool(table.partition_by) or (table.partition_by == KEY_GROUP and not by_group):
        yield where, f"partitioned by {table.partition_by!r}"
        return
    end = operator.max_parallelism if keyed else operator.parallelism
    files = by_span(table.units)
    span, before = (-1, -1), (-1, -1)
    for file in sorted(table.units, key=lambda record: record.first):
        if not is_unit_path(file.path):
            yield where, f"{file.path!r:.200} is not below `_data/` and an attempt's token"
        if not file.first <= file.last < end:
            yield where, f"{file.path} of {file.first} to {file.last}, and there are {end}"
        if file.first <= span[1] and not (keyed and (file.first, file.last) == span):
            yield where, f"two files of {file.first}"
        span = file.first, file.last
        if file.parts and (len(files[file.span]) > 1 or not _has_its_parts(file)):
            yield where, f"{file.path} of {file.first} to {file.last} has other parts"
        if not keyed:
            if file.partition != -1:
                yield where, f"{file.path} in partition {file.partition}"
            continue
        buckets = partitioning.partition_of(file.first), partitioning.partition_of(file.last)
        shares = buckets[0] <= before[1]  # then both files must lie within that bucket
        touched = {*buckets, *before} if shares else set(buckets)
        if file.partition != buckets[0] or (len(touched) > 1 and (shares or by_group)):
            yield where, f"{file.path} in partition {file.partition}"
        before = buckets
    yield from _repeated(where, (file.path for file in table.units))


def _has_its_parts(file: DataFile) -> bool:
    """Return whether the parts of a file follow on each other, from its first to its last group."""
    return (
        (file.parts[0].first, file.parts[-1].last) == file.span
        and all(part.first <= part.last for part in file.parts)
        and all(part.last < following.first for part, following in pairwise(file.parts))
    )
