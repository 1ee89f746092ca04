"""Assignment of new key groups, for a change of the max parallelism, which Flink itself can't do.

A key's group follows from its Java hash code. Before any key is moved, the hash is proven: every
key must be in the group that its hash gives under the old max parallelism.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import KeyGroupError, StateError, UnknownHashError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.key_groups import key_groups_of_hashes
from statelake.state_core.serializers.framework.columns import fixed_values, present_rows


def assign_key_groups(rows: StateRows, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Return the key group of every row's key.

    Raises:
        UnknownHashError: The hash of the key's type can't be derived.
    """
    key = rows.layout.key
    if rows.layout.opaque_key:
        raise UnknownHashError(
            f"keys of type {key.name}, whose hash is not known",
            place=f"state {rows.name!r}",
            remedy="keep the max parallelism, so that every key stays in its key group",
        )
    try:
        codes = np.array(key.hash_codes(rows.batch.column("key")), np.int32)
    except StateError as error:
        raise error.within(f"state {rows.name!r}") from error
    raw = rows.batch.column("raw_key")
    present = np.ones(len(raw), np.uint8) if raw.null_count == 0 else present_rows(raw)
    for row in np.flatnonzero(present).tolist():
        source = DataInput(raw[row].as_py(), f"state {rows.name!r}, raw key")
        if rows.layout.kind.value == "timers":
            source.read_long()
        codes[row] = key.hash_code_at(source)
    return key_groups_of_hashes(codes, max_parallelism)


def check_key_groups(rows: StateRows, max_parallelism: int) -> None:
    """Refuse a key that is not in the key group of its hash.

    Raises:
        KeyGroupError: A key is in another key group: it was moved by hand, or its class has its own
            hash.
    """
    right = assign_key_groups(rows, max_parallelism)
    groups = fixed_values(rows.batch.column("key_group"), np.int32)
    wrong = np.flatnonzero(right != groups)
    if wrong.size:
        row = int(wrong[0])
        key = rows.batch.column("key")[row].as_py()
        raise KeyGroupError(
            f"key {key!r} is in key group {groups[row]}, but its hash is of key group"
            f" {right[row]} ({len(wrong)} such keys)",
            place=f"state {rows.name!r}",
            remedy="a row must keep its key group; for a new key, compute it",
        )


def rehash_rows(rows: StateRows, max_parallelism: int) -> StateRows:
    """Return the rows with new key groups, ordered by these."""
    groups = assign_key_groups(rows, max_parallelism)
    order = np.argsort(groups, kind="stable")
    names = rows.batch.schema.names
    columns = [rows.batch.column(name).take(pa.array(order)) for name in names]
    columns[names.index("key_group")] = pa.array(groups[order])
    return replace(rows, batch=pa.RecordBatch.from_arrays(columns, schema=rows.batch.schema))
