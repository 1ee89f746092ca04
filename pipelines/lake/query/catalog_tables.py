"""The tables of the catalog in SQL: `statelake.snapshots`, `statelake.states` and others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_sources import recorded_sources
from statelake.pipelines.lake.query.table_names import operator_tables_by_name
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord
from statelake.state_core.errors import StateError
from statelake.state_core.printable import printable

LOG = logging.getLogger(__name__)
CATALOG = "statelake"
TEXT, NUMBER, FLAG, TIME = pa.string(), pa.int64(), pa.bool_(), pa.timestamp("us", "UTC")

Row = dict[str, Any]


def catalog_table(lake: Catalog, name: str) -> pa.Table:
    """Return a table of the catalog, with rows from all snapshots.

    Invalid rows of the catalog are left out, and the reason is logged.

    Args:
        lake: The lake.
        name: One of `CATALOG_TABLES`.
    """
    columns, rows = CATALOG_TABLES[name]
    records, bad = lake.records()
    for row in bad:
        LOG.warning("%s.%s is without a row: %s", CATALOG, name, row.error)
    schema = pa.schema(list(columns.items()))  # other fields of rows are left out
    return pa.Table.from_pylist(list(rows(lake.location, records)), schema)


def _snapshots(_: str, records: Iterable[SnapshotRecord]) -> Iterator[Row]:
    for record in records:
        holds = [vars(hold) for hold in record.holds]
        yield vars(record) | {"snapshot": record.snapshot_id, "holds": holds}


def _operators(_: str, records: Iterable[SnapshotRecord]) -> Iterator[Row]:
    for operator, row in _each_operator(records):
        sizes = {"entries": operator.entries, "state_bytes": operator.state_bytes}
        yield vars(operator) | row | sizes


def _states(_: str, records: Iterable[SnapshotRecord]) -> Iterator[Row]:
    for operator, row in _each_operator(records):
        for state in operator.states:
            yield vars(state) | row | {"state": state.name, "key_type": operator.key_type}
        for other in operator.operator_states:
            yield vars(other) | row | {
                "state": other.name, "kind": other.mode, "entries": other.elements,
                "namespace_type": "", "user_key_type": "", "ttl": False,
            }  # fmt: skip


def _key_groups(_: str, records: Iterable[SnapshotRecord]) -> Iterator[Row]:
    for operator, row in _each_operator(records):
        for state in operator.states:
            for key_group in state.key_groups:
                yield msgspec.to_builtins(key_group) | row | {"state": state.name}


def _tables(_: str, records: Iterable[SnapshotRecord]) -> Iterator[Row]:
    for operator, row in _each_operator(records):
        recorded = {table.path: table for table in operator.tables}
        for state, path in operator_tables_by_name(operator):
            table = recorded[path]
            yield row | {
                "state": state, "path": path, "version": table.version,
                "files": len(table.units), "file_bytes": sum(file.size for file in table.units),
                "rows": sum(file.rows for file in table.units),
            }  # fmt: skip


def _splits(lake: str, records: Iterable[SnapshotRecord]) -> Iterator[Row]:
    """Yield the splits that sources have still to read, except of snapshots that can't be read."""
    for record in records:
        try:
            sources = recorded_sources(lake, record)
        except StateError as error:
            LOG.warning("%s.splits is without %s: %s", CATALOG, record.snapshot_id, error)
            continue
        for source in sources:
            row = {
                "job": record.job, "snapshot": record.snapshot_id, "operator": source.operator,
                "source": source.kind,
            }  # fmt: skip
            for status, subtask, split in source.splits():
                columns = {
                    name: printable(value) if isinstance(value, str) else value
                    for name, value in split.columns().items()
                }
                word = columns.get("offset")
                if isinstance(word, str):
                    columns |= {"offset": None, "offset_word": word}
                if isinstance(columns.get("stopping_offset"), str):
                    columns["stopping_offset"] = None
                yield (
                    row | {"status": status, "subtask": subtask, "version": split.version} | columns
                )


def _each_operator(records: Iterable[SnapshotRecord]) -> Iterator[tuple[OperatorRecord, Row]]:
    for record in records:
        for operator in record.operators:
            row = {"job": record.job, "snapshot": record.snapshot_id, "operator": operator.label}
            yield operator, row


_OF_OPERATOR = {"job": TEXT, "snapshot": TEXT, "operator": TEXT}
_SIZES = {"entries": NUMBER, "state_bytes": NUMBER}
# by name: the columns, and the function that makes the rows
CATALOG_TABLES: dict[
    str,
    tuple[dict[str, pa.DataType], Callable[[str, Iterable[SnapshotRecord]], Iterator[Row]]],
] = {
    "snapshots": (
        {
            "job": TEXT, "snapshot": TEXT, "parent": TEXT, "origin": TEXT, "kind": TEXT,
            "format": TEXT, "checkpoint_id": NUMBER, "taken_at": TIME, "imported_at": TIME,
            **_SIZES, "written_bytes": NUMBER, "note": TEXT, "source": TEXT,
            "holds": pa.list_(pa.struct({"reason": TEXT, "since": TIME})),
            "erased": pa.list_(TEXT), "taken_from": TEXT,
        },
        _snapshots,
    ),
    "operators": (
        {
            **_OF_OPERATOR, "operator_id": TEXT, "name": TEXT, "parallelism": NUMBER,
            "max_parallelism": NUMBER, "key_type": TEXT, **_SIZES,
        },
        _operators,
    ),
    "states": (
        {
            **_OF_OPERATOR, "state": TEXT, "kind": TEXT, "key_type": TEXT, "namespace_type": TEXT,
            "user_key_type": TEXT, "value_type": TEXT, "ttl": FLAG, **_SIZES,
        },
        _states,
    ),
    "key_groups": ({**_OF_OPERATOR, "state": TEXT, "key_group": NUMBER, **_SIZES}, _key_groups),
    "tables": (
        {
            **_OF_OPERATOR, "state": TEXT, "path": TEXT, "version": NUMBER, "files": NUMBER,
            "file_bytes": NUMBER, "rows": NUMBER,
        },
        _tables,
    ),
    "splits": (
        {
            **_OF_OPERATOR, "source": TEXT, "status": TEXT, "subtask": NUMBER, "version": NUMBER,
            "topic": TEXT, "partition": NUMBER, "offset": NUMBER, "offset_word": TEXT,
            "stopping_offset": NUMBER, "path": TEXT, "start": NUMBER, "length": NUMBER,
            "position": NUMBER, "records_after_position": NUMBER, "split_id": TEXT,
            "next_number": NUMBER, "last_number": NUMBER, "bytes": NUMBER, "table": TEXT,
            "chunk_start": TEXT, "chunk_end": TEXT, "read": FLAG, "file": TEXT,
            "skipped_events": NUMBER, "skipped_rows": NUMBER, "gtids": TEXT, "lsn": TEXT,
            "transaction": TEXT, "place": TEXT, "stream": TEXT, "starts": TEXT,
            "sequence_number": TEXT, "timestamp_ms": NUMBER, "message_id": TEXT, "stops": TEXT,
        },
        _splits,
    ),
}  # fmt: skip
CATALOG_NAMES = [f"{CATALOG}.{name}" for name in CATALOG_TABLES]
