"""The transforms by which rows go: those of keys, and those that a predicate is true of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.keys import key_from_text
from pipelines.lake.edit.pieces import Rows
from pipelines.lake.edit.rewriting import Transform, kept_rows
from pipelines.lake.edit.sql_editing import ChangedRows, queues_in
from pipelines.lake.query.session import QueryError, Session, quoted
from pipelines.lake.query.statements import PreparedStatement, parse_statement
from pipelines.lake.query.table_names import operator_tables_by_name
from pipelines.lake.tables.records import OperatorRecord, TableRecord
from pipelines.lake.tables.units import Unit
from state_core.errors import EncodeError, UnknownHashError
from state_core.formats.layout.keyed_layout import KEY
from state_core.formats.layout.keys import encode_keys, key_serializer_of
from state_core.formats.rewriting.key_bytes import key_bytes
from state_core.formats.writing.rehash import check_key_groups
from state_core.formats.writing.unified_encode import StateRows
from state_core.model.key_groups import key_groups_of_hashes

__all__ = ["ErasedKeys", "erased_keys", "rows_where"]


@dataclass(frozen=True)
class ErasedKeys(Transform):
    """Drop the rows of some keys, in keyed state and timers; operator state has no keys.

    Attributes:
        keys: Their bytes.
        key_groups: Their key groups; None if their hash can't be derived.
        max_parallelism: The operator's.
    """

    keeps_unchanged = True

    keys: pa.LargeBinaryArray
    key_groups: frozenset[int] | None
    max_parallelism: int

    def foresee(self, unit: Unit) -> bool | None:
        """All rows stay where none of the keys can be."""
        if self.key_groups is None:
            return None
        return True if self.key_groups.isdisjoint(range(unit.first, unit.last + 1)) else None

    def apply(self, rows: Rows) -> Rows:
        """Leave out the rows of the keys."""
        if not isinstance(rows, StateRows):
            return rows
        if rows.layout.opaque_key:
            found = rows.batch.column(KEY).cast(pa.large_binary())
        else:
            found = key_bytes(rows)
        if self.key_groups is not None:  # prove the hash by which other files are not read
            with suppress(UnknownHashError):
                check_key_groups(rows, self.max_parallelism)
        return kept_rows(rows, pc.invert(pc.is_in(found, self.keys)))


def erased_keys(operator: OperatorRecord, texts: Sequence[str]) -> tuple[ErasedKeys, set[str]]:
    """The transform of an operator's rows, and the texts that can be keys of it.

    Args:
        operator: The operator, with keyed state.
        texts: Keys, as `key_from_text` reads them.
    """
    key = key_serializer_of(operator.key_serializer)
    values, fitting = [], set()
    for text in texts:
        with suppress(EncodeError):
            values.append(key_from_text(text, key))
            fitting.add(text)
    column = pa.array(values, key.arrow_type)
    keys = encode_keys(key, column) if values else pa.array([], pa.large_binary())
    most = operator.max_parallelism
    try:
        codes = np.array(key.hash_codes(column), np.int32)
    except UnknownHashError:
        return ErasedKeys(keys, None, most), fitting
    groups = key_groups_of_hashes(codes, most)
    return ErasedKeys(keys, frozenset(groups.tolist()), most), fitting


def rows_where(
    session: Session, operator: OperatorRecord, table: TableRecord, predicate: str
) -> Transform:
    """The transform by which the rows of a table go that a predicate is true of.

    Args:
        session: DuckDB over the snapshot that the operator is of.
        operator: The operator.
        table: The table.
        predicate: SQL over the columns of the table.

    Raises:
        QueryError: DuckDB can't understand it, or it is more than a predicate.
    """
    names = {path: name for name, path in operator_tables_by_name(operator)}
    if session.names.job is None:
        raise QueryError("a session without a job")
    parts = (session.names.job, operator.label, names[table.path])
    table_name = ".".join(map(quoted, parts))
    text = f"DELETE FROM {table_name} WHERE ({predicate}\n)"  # noqa: S608 - a user's own SQL
    statement = parse_statement(session, text)
    queues: Mapping[str, Mapping[str, str]] = queues_in(operator, table)
    return ChangedRows(PreparedStatement(session, statement), queues, [])
