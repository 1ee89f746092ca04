"""Transforms that erase rows: those of keys, and those that meet a predicate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.keys import key_from_text
from statelake.pipelines.lake.edit.keeping import ListedKeys, key_groups_of_keys
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform, kept_rows, layout_of
from statelake.pipelines.lake.edit.sql_editing import ChangedRows, queues_in
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.query.statements import PreparedStatement, parse_statement
from statelake.pipelines.lake.query.table_names import operator_tables_by_name, quoted
from statelake.pipelines.lake.tables.records import OperatorRecord, TableRecord
from statelake.pipelines.lake.tables.units import Unit
from statelake.state_core.errors import EncodeError, UnknownHashError
from statelake.state_core.formats.layout.keyed_layout import KEY, RAW_VALUE, TTL, VALUE
from statelake.state_core.formats.layout.keys import encode_keys, key_serializer_of
from statelake.state_core.formats.rewriting.key_bytes import key_bytes
from statelake.state_core.formats.writing.rehash import check_key_groups
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import StateKind

__all__ = ["ErasedElements", "ErasedKeys", "erased_keys", "rows_met", "rows_where"]

_ELEMENT = re.compile(r"\belement\b", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class ErasedKeys(ListedKeys):
    """Drop the rows of the keys, in keyed state and timers; operator state has no keys."""

    def foresee(self, unit: Unit) -> bool | None:
        """Return True, as all rows stay, for a file that can hold no key."""
        return True if self.none_in(unit) else None

    def apply(self, rows: Rows) -> Rows:
        """Drop the rows of the keys."""
        if not isinstance(rows, StateRows):
            return rows
        if rows.layout.opaque_key:
            keys = rows.batch.column(KEY).cast(pa.large_binary())
        else:
            keys = key_bytes(rows)
        if self.key_groups is not None:  # prove the hash because of which other files are not read
            with suppress(UnknownHashError):
                check_key_groups(rows, self.max_parallelism)
        return kept_rows(rows, pc.invert(pc.is_in(keys, self.keys)))


@dataclass(frozen=True, eq=False)
class ErasedElements(ChangedRows):
    """Drop the elements of lists that meet a predicate; an empty list is dropped as a whole."""

    def apply(self, rows: Rows) -> Rows:
        """Drop the elements."""
        after = super().apply(rows)
        if after is rows:
            return rows
        lengths = pc.list_value_length(after.batch.column(VALUE))
        changed = pc.not_equal(lengths, pc.list_value_length(rows.batch.column(VALUE)))
        if RAW_VALUE in after.batch.schema.names:
            exact = pc.and_(changed, after.batch.column(RAW_VALUE).is_valid())
            if pc.any(exact).as_py():
                raise EncodeError(
                    f"a list of state {rows.name!r} with elements that only its exact bytes hold",
                    remedy="erase it as a whole, by its key",
                )
        return kept_rows(after, pc.greater(lengths, 0))


def rows_met(transform: Transform, before: int, after: int) -> int:
    """Return how many rows a transform dropped or changed, from the numbers before and after."""
    return transform.met[-1] if isinstance(transform, ChangedRows) else before - after


def erased_keys(operator: OperatorRecord, texts: Sequence[str]) -> tuple[ErasedKeys, set[str]]:
    """Return the transform of an operator's rows, and the texts that can be its keys.

    Args:
        operator: The operator, with keyed state.
        texts: The keys as text, for `key_from_text`.
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
    return ErasedKeys(keys, key_groups_of_keys(key, column, most), most), fitting


def rows_where(
    session: Session, operator: OperatorRecord, table: TableRecord, predicate: str
) -> Transform:
    """Return the transform that drops the rows of a table that meet a predicate.

    Of a list state whose elements the predicate names (`element`), it drops elements.

    Args:
        session: A DuckDB session over the operator's snapshot.
        operator: The operator.
        table: The table.
        predicate: SQL over the columns of the table.

    Raises:
        QueryError: It is not valid SQL, or more than a predicate.
    """
    names = {path: name for name, path in operator_tables_by_name(operator)}
    name = ".".join(map(quoted, (str(session.names.job), operator.label, names[table.path])))
    lists = {state.table for state in operator.states if state.kind == StateKind.LIST.value}
    if table.path in lists and _ELEMENT.search(predicate):
        stays = f"[NOT coalesce(({predicate}\n), false) for element in value]"
        columns = [VALUE]
        if TTL in layout_of(session.lake, operator, table).schema.names:
            columns.append(TTL)  # a time of last access for each element
        kept = ", ".join(f"{column} = list_where({column}, {stays})" for column in columns)
        text = f"UPDATE {name} SET {kept} WHERE list_contains({stays}, false)"  # noqa: S608
        kind: type[ChangedRows] = ErasedElements
    else:
        text = f"DELETE FROM {name} WHERE ({predicate}\n)"  # noqa: S608 - a user's own SQL
        kind = ChangedRows
    statement = parse_statement(session, text)
    return kind(PreparedStatement(session, statement), queues_in(operator, table), [])
