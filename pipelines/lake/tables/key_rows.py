"""Rows of one key, from the files that may hold it.

Only row groups whose statistics admit the key are read: first their key columns, then the other
columns if they have the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statelake.pipelines.lake.tables.data_files import table_columns
from statelake.pipelines.lake.tables.file_spans import KEY_GROUP
from statelake.pipelines.lake.tables.records import DataFile, OperatorRecord
from statelake.pipelines.lake.tables.table_rows import (
    TableReader,
    open_data_file,
    rows_of_queue,
    table_rows,
    typed_rows,
)
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.state_core.formats.layout.keyed_layout import KEY, KEY_COLUMNS, RAW_KEY, KeyedLayout
from statelake.state_core.formats.writing.unified_encode import StateRows, key_bytes
from statelake.state_core.model.key_groups import SearchKey
from statelake.state_core.model.snapshot import KeyedState

QUEUE_COLUMNS = ("service", "domain")


def files_with_key(
    lake: str, operator: OperatorRecord, key: SearchKey, state: str | None = None
) -> Iterator[tuple[TableReader, DataFile]]:
    """Yield the files that may hold a key, each with the reader of its table.

    Args:
        lake: The lake's location.
        operator: The operator.
        key: The key.
        state: Only of the state of that name.
    """
    states = [keyed for keyed in operator.states if state in (None, *keyed.labels)]
    operator = replace(operator, states=states)
    for table in operator.keyed_tables:
        rows = table_rows(lake, operator, table)
        for file in rows.units:
            if key.may_be_among(file.first, file.last):
                yield rows, file


def read_key(
    table: TableReader, data_file: DataFile, key: SearchKey
) -> Iterator[tuple[KeyedState, pa.Table]]:
    """Yield the rows of one key in one file of a table, a state at a time.

    Raises:
        LakeError: The file is missing, or its columns are not the state's.
    """
    parsed = [table.parse(table_state) for _, table_state in table.states]
    columns = table_columns(parsed[0][0])
    of_key = pa.schema(
        [field for field in columns if field.name in (KEY_GROUP, *QUEUE_COLUMNS, *KEY_COLUMNS)]
    )
    partitioning = table.partitioning
    place = table_directory(table.lake, table.path).full(data_file.path)
    with open_data_file(table.lake, table.path, data_file) as file:
        for index in range(file.num_row_groups):
            if not _may_hold(file.metadata.row_group(index), key):
                continue
            names = partitioning.file_schema(of_key).names
            keys = typed_rows(
                file.read_row_group(index, columns=names), data_file, of_key, partitioning, place
            )
            rows = _rows_of_key(keys, parsed, key)
            if not rows.size:
                continue
            names = partitioning.file_schema(columns).names
            taken = file.read_row_group(index, columns=names).take(pa.array(rows))
            typed = typed_rows(taken, data_file, columns, partitioning, place)
            for state, layout in parsed:
                of_state = rows_of_queue(typed, state).select(layout.schema.names)
                if len(of_state):
                    yield state, of_state


def _rows_of_key(
    keys: pa.Table, parsed: list[tuple[KeyedState, KeyedLayout]], key: SearchKey
) -> Any:
    """Return the numbers of the rows that have the key, from a row group's key columns."""
    numbered = keys.append_column("row", pa.array(np.arange(len(keys))))
    row_numbers = [np.zeros(0, np.int64)]
    for state, layout in parsed:
        of_state = rows_of_queue(numbered, state).combine_chunks()
        for batch in of_state.to_batches():
            rows = StateRows(0, state.name, layout, batch)
            row_numbers.append(batch.column("row").filter(_has_key(rows, key)).to_numpy())
    return np.sort(np.concatenate(row_numbers))


def _has_key(rows: StateRows, key: SearchKey) -> pa.BooleanArray:
    """Return whether each row has the key, by comparing the bytes of keys."""
    column, raw = rows.batch.column(KEY), rows.batch.column(RAW_KEY)
    if rows.layout.opaque_key:
        stored = column.cast(pa.large_binary())
    elif type(key.value) in (int, str) and raw.null_count == len(raw):
        # equal integers and texts have equal bytes, and no kernel has to be loaded
        return pc.fill_null(pc.equal(column, pa.scalar(key.value, column.type)), False)
    else:
        stored = key_bytes(rows)
    return pc.equal(stored, pa.scalar(key.encoded.encoded, pa.large_binary()))


def _may_hold(row_group: pq.RowGroupMetaData, key: SearchKey) -> bool:
    """Return whether a row group may have the key, by the bounds in its statistics."""
    sought: dict[str, Any] = {KEY_GROUP: key.encoded.key_group, KEY: key.value}
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        value = sought.get(column.path_in_schema)
        # statistics can't be used for floats (zeros and NaN) and bytes (which may be cut off)
        if type(value) not in (int, str) or not column.is_stats_set:
            continue
        statistics = column.statistics
        if statistics.null_count or not statistics.has_null_count:
            continue  # keys that no column can hold are null, with their bytes in `raw_key`
        if statistics.has_min_max and _outside(value, statistics.min, statistics.max):
            return False
    return True


def _outside(value: Any, least: Any, most: Any) -> bool:
    return type(least) is type(most) is type(value) and not least <= value <= most
