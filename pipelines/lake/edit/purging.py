"""Delete expired entries.

An entry has expired as in Flink's `TtlUtils.expired`: the time of its last access plus the time to
live is not after now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform, kept_rows
from statelake.pipelines.lake.tables.records import OperatorRecord, StateRecord
from statelake.state_core.errors import EncodeError, InexactError
from statelake.state_core.formats.layout.keyed_layout import RAW_VALUE, TTL, VALUE
from statelake.state_core.formats.rewriting.value_migration import BY_BYTES


def refuse_lasting(operator: OperatorRecord, tables: Sequence[str]) -> None:
    """Refuse states without a time to live.

    Raises:
        EncodeError: A state in one of the tables has none. Timers and operator state never do.
    """
    lasting = [
        state.name
        for state in operator.all_states
        if state.table in tables and not (isinstance(state, StateRecord) and state.ttl)
    ]
    if lasting:
        raise EncodeError(
            f"state {operator.label}/{lasting[0]} has no time to live, so nothing in it expires",
            remedy="purge it by a predicate",
        )


@dataclass(frozen=True)
class ExpiredEntries(Transform):
    """Delete entries, or elements of lists, that were last accessed at a time or before.

    Attributes:
        until: The time, in milliseconds since 1970.
        inexact: Whether lists are left with what their column shows.
    """

    keeps_unchanged = True

    until: int
    inexact: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Keep entries that were accessed later."""
        times = rows.batch.column(TTL)
        if times.null_count:
            raise EncodeError(
                f"{times.null_count} entries of state {rows.name!r} whose time of last access is"
                " within bytes that only the job can read",
                remedy="purge them by a predicate on their keys",
            )
        if pa.types.is_list(times.type):
            return self._elements(rows, times)
        return kept_rows(rows, pc.greater(times.cast(pa.int64()), self.until))

    def _elements(self, rows: Rows, times: pa.ListArray) -> Rows:
        """Return lists without expired elements; empty lists are deleted."""
        lengths = times.value_lengths().to_numpy()
        live = pc.greater(times.flatten().cast(pa.int64()), self.until)
        stays = live.to_numpy(zero_copy_only=False)
        if stays.all():
            return rows
        owner = np.repeat(np.arange(len(times)), lengths)
        left = np.bincount(owner[stays], minlength=len(times))
        touched = (left < lengths) & (left > 0)
        exact = rows.batch.column(RAW_VALUE).is_valid().to_numpy(zero_copy_only=False)
        if not self.inexact and (count := int((touched & exact).sum())):
            raise InexactError.of(
                count, VALUE, place=f"state {rows.name!r}", remedy=BY_BYTES.format(RAW_VALUE)
            )
        offsets = pa.array(np.concatenate(([0], np.cumsum(left))).astype(np.int32))
        alive = pa.array(np.flatnonzero(stays))
        schema = rows.batch.schema
        columns = dict(zip(schema.names, rows.batch.columns, strict=True))
        for name in (TTL, VALUE):
            kept = columns[name].flatten().take(alive)
            columns[name] = pa.ListArray.from_arrays(offsets, kept).cast(schema.field(name).type)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        return replace(rows, batch=batch.filter(pa.array(left > 0)))
