"""The tables that an import writes, and their files that can stay from the previous snapshot."""

from __future__ import annotations

from dataclasses import replace

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.import_slice import TableTarget
from statelake.pipelines.lake.tables.file_spans import (
    BUCKET,
    KEY_GROUP,
    MAX_PARTITIONS,
    Partitioning,
)
from statelake.pipelines.lake.tables.names import keyed_table, queue_table, timers_table
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    SnapshotRecord,
    TableRecord,
)
from statelake.pipelines.lake.tables.table_rows import (
    is_decoded_otherwise,
    parse_recorded,
    table_rows,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.meta_info import read_state_meta_info
from statelake.state_core.model.snapshot import KeyedState, Operator, StateKind


def table_targets(
    lake: Catalog, job: str, operator: Operator, partitions: int | None = None
) -> list[TableTarget]:
    """Return the tables of an operator: one a state, and one for all timers if they are alike.

    Args:
        lake: The lake.
        job: The job.
        operator: The operator.
        partitions: How many partitions each is to have. A table with a partition for each key
            group has a fixed number, so that another table is created beside it.
    """
    by_group = operator.max_parallelism <= MAX_PARTITIONS and partitions is None
    targets = []
    for path, names in tables_of(job, operator).items():
        own_path, column = _place(lake, path, by_group=by_group)
        partitioning = Partitioning(operator.max_parallelism, column)
        targets.append(TableTarget(own_path, partitioning, names))
    return targets


def tables_of(job: str, operator: Operator) -> dict[str, tuple[str, ...]]:
    """Return the states in each table of keyed state, by the table's path in a new lake."""
    tables: list[tuple[str, tuple[str, ...]]] = [
        (keyed_table(job, operator.label, state.name), (state.name,))
        for state in operator.keyed_states
        if state.kind is not StateKind.TIMERS
    ]
    if len({str(queue.schema) for queue in operator.timers}) == 1:
        path = timers_table(job, operator.label)
        tables.append((path, tuple(queue.name for queue in operator.timers)))
    else:
        names = [timer.name for timer in operator.timers]
        tables += [(queue_table(job, operator.label, name), (name,)) for name in names]
    return dict(tables)


def _place(lake: Catalog, path: str, *, by_group: bool) -> tuple[str, str]:
    """Return a table's path and partition column: another path if the existing one can't be used.

    Args:
        lake: The lake.
        path: The preferred path.
        by_group: Whether a table with a partition for each key group can be used.
    """
    table = lake.table(path).open()
    columns = [BUCKET] if table is None else table.metadata().partition_columns
    if columns == [BUCKET]:
        return path, BUCKET
    if columns == [KEY_GROUP] and by_group:
        return path, KEY_GROUP
    return f"{path}~{BUCKET}", BUCKET


def key_serializer(operator: Operator) -> bytes:
    """Return the snapshot of the key serializer, as Flink wrote it; empty without keyed state."""
    return operator.key_serializer if operator.keyed_states else b""


def with_previous(
    targets: list[TableTarget], lake: str, operator: Operator, previous: SnapshotRecord | None
) -> tuple[TableTarget, ...]:
    """Return targets with the previous snapshot's files of the same types.

    Args:
        targets: The tables.
        lake: The lake's location.
        operator: The operator.
        previous: The previous snapshot.
    """
    tables = {} if previous is None else reusable_tables(operator, previous)
    return tuple(
        replace(target, previous=table_rows(lake, *tables[target.path]))
        if target.path in tables else target
        for target in targets
    )  # fmt: skip


def reusable_tables(
    operator: Operator, previous: SnapshotRecord
) -> dict[str, tuple[OperatorRecord, TableRecord]]:
    """Return the previous snapshot's tables of an operator, where the types are the same.

    Of several queues of timers in one table each must have the same as now.
    """
    before = [other for other in previous.operators if other.operator_id == operator.operator_id]
    if not before or before[0].max_parallelism != operator.max_parallelism:
        return {}
    if before[0].key_serializer != key_serializer(operator):
        return {}
    types = {state.name: _types(state) for state in operator.keyed_states}
    alike: dict[str, bool] = {}
    for state in before[0].states:
        if state.name in types:
            alike[state.table] = (
                alike.get(state.table, True)
                and not is_decoded_otherwise(before[0], state)
                and _types(parse_recorded(before[0], state)) == types[state.name]
            )
    return {table.path: (before[0], table) for table in before[0].tables if alike.get(table.path)}


def _types(state: KeyedState) -> tuple[object, ...]:
    """Return the types that must be the same for equal bytes to be equal rows.

    Serializers of one name may read the same bytes as different values: an enum can have other
    constants, and one POJO serializer can know a subclass that the other does not.
    """
    source = DataInput(state.meta_info, f"state {state.name!r}")
    serializers = read_state_meta_info(source).serializers.items()
    return (
        state.name, state.kind, state.key_type, state.namespace_type, state.value_type,
        state.user_key_type, state.with_ttl, str(state.schema),
        tuple(sorted((role, serializer.encoded) for role, serializer in serializers)),
    )  # fmt: skip
