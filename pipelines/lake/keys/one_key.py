"""The state of one key in a snapshot of the lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from statelake.pipelines.keys import KeyRows, keys_of_owners
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.recorded_states import recorded_operators
from statelake.pipelines.lake.tables.key_rows import (
    SoughtKey,
    key_serializer,
    read_key,
    sought_key,
    tables_of_operator,
)
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord
from statelake.pipelines.lake.tables.table_rows import TableRows
from statelake.pipelines.shown import plain
from statelake.state_core.errors import NotFoundError, did_you_mean
from statelake.state_core.model.snapshot import KeyedState, check_states

SHORTEST_ID = 4


@dataclass(frozen=True)
class KeyTables:
    """The tables of an operator that may have a key.

    Attributes:
        operator: The operator.
        key: The key.
        tables: Its tables, with only the files and states that may have the key.
        said: The printed key, if no column can hold it.
    """

    operator: OperatorRecord
    key: SoughtKey
    tables: tuple[TableRows, ...]
    said: Any = None


def rows_in_lake(
    lake: Catalog,
    record: SnapshotRecord,
    text: str,
    *,
    operator: str | None = None,
    state: str | None = None,
) -> list[KeyRows]:
    """Return the state of a key in a snapshot.

    Args:
        lake: The lake.
        record: The snapshot.
        text: The key as text, for `pipelines.keys.key_from_text`.
        operator: Only of this operator: its uid, name or id.
        state: Only of the state of that name.

    Returns:
        The rows for each operator that can have such a key.

    Raises:
        EncodeError: No operator can have that key.
        LakeError: A file can't be read. This and the next two errors are raised while rows are
            consumed.
        ConflictError: An erasure changed the snapshot after some rows were consumed.
        NotFoundError: There is no such operator or state, or no keyed state at all; or the snapshot
            was dropped meanwhile.
    """
    by_operator = key_tables(lake, record, text, operator=operator, state=state)
    reading = SnapshotReading(lake, record)

    def batches(number: int, now: SnapshotRecord) -> Iterator[tuple[KeyedState, pa.Table]]:
        tables = by_operator
        if now is not record:
            tables = key_tables(lake, now, text, operator=operator, state=state)
        return _batches(tables[number])

    return [
        KeyRows(
            places.operator.label,
            places.operator.key_type,
            plain(places.key.value if places.said is None else places.said),
            places.key.encoded.key_group,
            reading.each(partial(batches, number)),
        )
        for number, places in enumerate(by_operator)
    ]


def key_tables(
    lake: Catalog,
    record: SnapshotRecord,
    text: str,
    *,
    operator: str | None = None,
    state: str | None = None,
) -> list[KeyTables]:
    """Return the tables that may have a key; arguments and errors as in `rows_in_lake`."""
    operators = operators_with(record, operator, state)
    owners = [
        ((each, tables), key_serializer(tables[0]))
        for each in operators
        if (tables := _tables(lake, each, state))
    ]
    places = []

    def states_of(owner: tuple[OperatorRecord, list[TableRows]]) -> Iterable[KeyedState]:
        recorded = recorded_operators(lake, record)
        return next(
            each.keyed_states for each in recorded if each.operator_id == owner[0].operator_id
        )

    for (owner, tables), value, odd in keys_of_owners(text, owners, states_of):
        key = sought_key(tables[0], value) if odd is None else SoughtKey(odd.shown, odd.encoded)
        narrowed = (
            replace(table, units=tuple(file for file in table.units if key.may_be_in(file)))
            for table in tables
        )
        places.append(KeyTables(owner, key, tuple(narrowed), odd and odd.value))
    return places


def _tables(lake: Catalog, operator: OperatorRecord, state: str | None) -> list[TableRows]:
    """Return the tables of an operator, or of one of its states."""
    if state is not None:
        states = [keyed for keyed in operator.states if state in keyed.labels]
        operator = replace(operator, states=states)
    return tables_of_operator(lake.location, operator)


def operators_with(
    record: SnapshotRecord, operator: str | None, state: str | None
) -> list[OperatorRecord]:
    """Return all operators of a snapshot, or only the named one.

    Args:
        record: The snapshot.
        operator: The operator's uid, name or id.
        state: A keyed state that one of them must have.

    Raises:
        NotFoundError: There is no such operator or state.
    """
    operators = record.operators if operator is None else [_operator(record, operator)]
    check_states(
        state, [label for each in operators for keyed in each.states for label in keyed.labels]
    )
    return operators


def _operator(record: SnapshotRecord, wanted: str) -> OperatorRecord:
    """Return the operator of that uid, name or id; an id may be shortened.

    Raises:
        NotFoundError: There is no such operator, or more than one.
    """
    for field in ("uid", "name", "operator_id", "node"):
        matches = [each for each in record.operators if getattr(each, field) == wanted]
        if len(matches) == 1:
            return matches[0]
    matches = [each for each in record.operators if each.operator_id.startswith(wanted)]
    if len(matches) == 1 and len(wanted) >= SHORTEST_ID:
        return matches[0]
    labels = [each.label for each in record.operators]
    raise NotFoundError(
        f"no operator {wanted!r} in snapshot {record.snapshot_id}",
        remedy=f"it has: {', '.join(labels) or 'none'}{did_you_mean(wanted, labels)}",
    )


def _batches(places: KeyTables) -> Iterator[tuple[KeyedState, pa.Table]]:
    for table in places.tables:
        for file in table.units:
            yield from read_key(table, file, places.key)
