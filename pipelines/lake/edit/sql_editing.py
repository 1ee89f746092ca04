"""Edit a snapshot by SQL: DELETE, UPDATE and INSERT, all statements or none.

DuckDB runs each statement over the rows of the parent's files, one file after the other; a file
without a matching row is shared. The newest versions of the tables are not read, and no other
snapshot changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.edit_results import EditResult, changed_states
from statelake.pipelines.lake.edit.pieces import Piece, Rows
from statelake.pipelines.lake.edit.rewriting import (
    STAGED,
    ChildSnapshot,
    Derivation,
    TableChange,
    TableLayout,
    TableRewriter,
    Transform,
    derive,
    kept_rows,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.query.literals import without_literals
from statelake.pipelines.lake.query.session import QueryError, Session
from statelake.pipelines.lake.query.statements import (
    BESIDE,
    PARTS,
    PreparedStatement,
    Statement,
    check_statements,
)
from statelake.pipelines.lake.query.table_names import (
    NamedTable,
    TableNames,
    operator_tables_by_name,
)
from statelake.pipelines.lake.tables.data_files import write_data_file
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, TableRecord
from statelake.pipelines.lake.tables.table_rows import parse_recorded
from statelake.pipelines.lake.tables.tables import TableFile
from statelake.state_core.errors import EncodeError, InexactError, NoMatchError
from statelake.state_core.formats.layout.keyed_layout import RAW_VALUE, TTL, VALUE
from statelake.state_core.formats.rewriting.value_migration import BY_BYTES, inexact_rows
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.framework.columns import I64Array

_ELEMENT = re.compile(r"\belement\b", re.IGNORECASE)
_NO_CONDITION = re.compile(r"'bool_or\((.*?)\)'")  # DuckDB's error, with its type


def edit_by_sql(
    child: ChildSnapshot, statements: Sequence[str], *, inexact: bool = False
) -> EditResult:
    """Register a snapshot of the job, the newest or an older one, as edited by SQL.

    Args:
        child: The new snapshot. After its note the statements are kept, without their literals. It
            is made in this process.
        statements: DELETE, UPDATE and INSERT, in their order.
        inexact: Whether statements go by what columns show of values that they don't hold in full.

    Raises:
        InexactError: A statement is about values that columns don't hold in full.
        QueryError: A statement can't be parsed, or fails.
        NotFoundError: There is no such snapshot or table.
        NoMatchError: No statement matches a row, so that nothing would change.
        ConflictError: The id is taken.
        KeyGroupError: A key is not in its key group.
        EncodeError: A row can't be written back to Flink.
    """
    before = child.parent_record  # the session shows this record, or the edit ends
    with session_over(child.lake, before) as session:
        parsed = check_statements(session, statements)
        done = without_literals(_joined(parsed))
        note = f"{child.note}: {done}" if child.note else done
        derived = derive(
            replace(child, note=note, engine=LocalEngine()), before,
            _SqlEdit(session, parsed, inexact=inexact),
        )  # fmt: skip
    return EditResult(
        derived.record, changed_states(derived.parent.operators, derived.record.operators)
    )


def session_over(lake: Catalog, record: SnapshotRecord) -> Session:
    """Open DuckDB over the tables of a snapshot."""
    return Session(lake, TableNames(lake, as_of=record.snapshot_id, job=record.job))


def _joined(statements: Sequence[Statement]) -> str:
    return "; ".join(statement.text for statement in statements)


@dataclass(frozen=True, eq=False)
class ChangedRows(Transform):
    """Change rows by a DELETE or an UPDATE.

    Attributes:
        prepared: The statement.
        queues: By the name of a queue of timers, the values of the columns that identify the queue
            in the table.
        met: The number of matching rows, one number for each call in this process.
        inexact: Whether it goes by what columns show of values that they don't hold in full.
    """

    keeps_unchanged = True
    validates = True

    prepared: PreparedStatement
    queues: Mapping[str, Mapping[str, str]]
    met: list[int]
    inexact: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Run the statement over some rows."""
        constant = self.queues.get(rows.name, {})
        batch = rows.batch
        for name, value in constant.items():
            batch = batch.append_column(name, pa.repeat(pa.scalar(value), len(batch)))
        after, met = self.prepared.change(batch)
        if not self.inexact:
            for column in PARTS:
                self._refuse_inexact(rows, column, met)
        if not met.size:
            return rows
        self.met.append(met.size)
        for name, value in constant.items():
            if after.column(name).unique().to_pylist() not in ([], [value]):
                raise QueryError(
                    f"timers with another {name} than they had",
                    remedy="a timer stays in its queue: DELETE it, and INSERT another",
                )
        return replace(rows, batch=after.select(rows.batch.schema.names))

    def _refuse_inexact(self, rows: Rows, column: str, met: I64Array) -> None:
        """Refuse rows about which the statement decides without their exact bytes.

        These are all rows if its condition reads the column, those that it meets if their new
        values do, and those of which it changes a part and would lose the rest.

        Args:
            rows: The rows before.
            column: `KEY` or `VALUE`.
            met: The rows that the condition met.

        Raises:
            InexactError: There are some.
        """
        uses, less = self.prepared.uses, inexact_rows(rows, column)
        if uses.by_bytes(column) or not less.any():
            return
        beside = BESIDE[column]
        is_met, refused = np.zeros(len(less), bool), np.zeros(len(less), bool)
        is_met[met] = True
        if uses.reads(column, uses.condition):
            refused = less
        elif beside in uses.condition and beside in rows.batch.schema.names:
            refused = less & np.asarray(rows.batch.column(beside).is_null())
        if self.prepared.statement.kind == "UPDATE":
            parts = frozenset(PARTS[column]).intersection(rows.batch.schema.names)
            given = uses.assigned & (parts | {beside})
            if uses.reads(column, uses.computed) or (given and not parts <= given):
                refused = refused | less & is_met
        if count := int(refused.sum()):
            place, remedy = f"state {rows.name!r}", BY_BYTES.format(f"raw_{column}")
            raise InexactError.of(count, column, place=place, remedy=remedy)


@dataclass(frozen=True, eq=False)
class ChangedElements(ChangedRows):
    """Delete elements of lists of which a predicate is true, and lists that become empty."""

    def apply(self, rows: Rows) -> Rows:
        """Delete the elements."""
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
                    remedy="drop it as a whole, by its key",
                )
        return kept_rows(after, pc.greater(lengths, 0))


def rows_where(
    session: Session,
    operator: OperatorRecord,
    table: TableRecord,
    predicate: str,
    *,
    inexact: bool = False,
) -> ChangedRows:
    """Return the transform that deletes the rows of a table of which a predicate is true.

    If the predicate names `element`, elements of a list state are deleted.

    Args:
        session: DuckDB over a snapshot, whose other tables the predicate may read.
        operator: The operator.
        table: The table.
        predicate: SQL over the columns of the table.
        inexact: Whether it goes by what columns show of values that they don't hold in full.

    Raises:
        InexactError: It reads another table with values that columns don't hold in full.
        QueryError: DuckDB can't parse it, or it is more than a predicate.
    """
    kind, statement = _rows_where(session, operator, table, predicate, predicate)
    prepared = PreparedStatement(session, statement)
    if not inexact:
        refuse_inexact_tables(prepared)
    return kind(prepared, queues_in(operator, table), [], inexact)


def refuse_inexact_tables(prepared: PreparedStatement) -> None:
    """Refuse a statement that reads, in other tables, what their columns don't hold in full.

    Raises:
        InexactError: It does, and does not name the exact bytes.
    """
    session, statement = prepared.session, prepared.statement
    for table in session.tables_named_in(statement.tail):
        own = table.path == statement.table.path and statement.kind != "INSERT"
        columns = session.open(table).schema.names
        for column in PARTS:
            raw = f"raw_{column}"
            if own or raw not in columns or not prepared.uses.reads(column):
                continue
            if count := session.count_of(table, raw):
                place, remedy = f"table {table.name}", BY_BYTES.format(raw)
                raise InexactError.of(count, column, place=place, remedy=remedy)


def refuse_no_condition(
    session: Session, operator: OperatorRecord, table: TableRecord, predicate: str
) -> None:
    """Try a predicate with no rows, and refuse one whose result is not a boolean.

    DuckDB takes each number but 0 for true, so that rows would be deleted by mistake.

    Raises:
        QueryError: Its result is not a boolean, or DuckDB can't parse it.
    """
    strict = f"list_aggregate([({predicate}\n)], 'bool_or')"  # which takes only booleans
    _, statement = _rows_where(session, operator, table, predicate, strict)
    try:
        schema = layout_of(session.lake, operator, table).schema
        PreparedStatement(session, statement).try_over(schema)
    except QueryError as error:
        if (match := _NO_CONDITION.search(error.problem)) is None:
            raise
        raise QueryError(
            f"it is neither true nor false but {match[1]}",
            place=statement.place,
            remedy="compare it, for example with `> 0` or `IS NOT NULL`",
        ) from error


def _rows_where(
    session: Session, operator: OperatorRecord, table: TableRecord, predicate: str, condition: str
) -> tuple[type[ChangedRows], Statement]:
    """Return the statement that deletes rows, or elements, of which a condition is true."""
    name = {path: name for name, path in operator_tables_by_name(operator)}[table.path]
    lists = {state.table for state in operator.states if state.kind == StateKind.LIST.value}
    if table.path in lists and _ELEMENT.search(predicate):
        stays = f"[NOT coalesce(({condition}\n), false) for element in value]"
        columns = [VALUE]
        if TTL in layout_of(session.lake, operator, table).schema.names:
            columns.append(TTL)  # a time of last access for each element
        kept = ", ".join(f"{column} = list_where({column}, {stays})" for column in columns)
        verb, head, tail = "UPDATE", "UPDATE ", f"SET {kept} WHERE list_contains({stays}, false)"
    else:
        verb, head, tail = "DELETE", "DELETE FROM ", f"WHERE ({condition}\n)"
    named = NamedTable(
        str(session.names.job), operator.label, name, table.path, str(session.names.as_of)
    )
    place = f"state {operator.label}/{name}, {predicate}"
    statement = Statement(predicate, verb, named, head, tail, frozenset(), place)
    return ChangedElements if verb == "UPDATE" else ChangedRows, statement


def queues_in(operator: OperatorRecord, table: TableRecord) -> Mapping[str, Mapping[str, str]]:
    """Return the columns that identify each queue in a table of timers, by the queue's name."""
    return {
        state.name: dict(zip(("domain", "service"), parsed.timer_service, strict=True))
        for state in operator.states
        if state.table == table.path
        and (parsed := parse_recorded(operator, state)).kind is StateKind.TIMERS
    }


class _SqlEdit(Derivation):
    """An edit of a snapshot by statements."""

    def __init__(self, session: Session, statements: Sequence[Statement], *, inexact: bool) -> None:
        self.session = session
        self.inexact = inexact
        self.statements = statements
        self._met: list[int] = []
        self._staged_in: list[TableRecord] = []

    def begin(self, record: SnapshotRecord, rewriter: TableRewriter) -> Sequence[OperatorRecord]:
        """Keep the rewriter."""
        self.rewriter = rewriter
        self.parent = record.snapshot_id
        return record.operators

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table that statements name, with the rows that they insert."""
        statements = [
            statement for statement in self.statements if statement.table.path == table.path
        ]
        if not statements:
            return None
        layout = layout_of(self.rewriter.lake, operator, table)
        pieces = pieces_of(table)
        prepared = [PreparedStatement(self.session, statement) for statement in statements]
        for edit in () if self.inexact else prepared:
            refuse_inexact_tables(edit)
        inserting = [edit for edit in prepared if edit.statement.kind == "INSERT"]
        if inserting:
            pieces = self._with_inserted(inserting, table, layout, pieces)
        queues = queues_in(operator, table)
        transforms = [
            ChangedRows(edit, queues, self._met, self.inexact)
            for edit in prepared
            if edit not in inserting
        ]
        return TableChange(layout, pieces, transforms)

    def finish(self, record: SnapshotRecord) -> SnapshotRecord:
        """Delete the files of inserted rows, and refuse an edit without a matching row."""
        for table in self._staged_in:
            self.rewriter.delete_staged(table)
        if not sum(self._met):
            raise NoMatchError(
                f"no row of {self.parent} is met: {_joined(self.statements)}",
                remedy="no snapshot was made; SELECT with the same WHERE shows what is there",
            )
        return record

    def _with_inserted(
        self,
        inserting: Sequence[PreparedStatement],
        table: TableRecord,
        layout: TableLayout,
        pieces: Sequence[Piece],
    ) -> list[Piece]:
        """Return the pieces, with a staged file for those that get rows."""
        directory = self.rewriter.lake.table(table.path).directory
        self._staged_in.append(table)
        files = [TableFile.of(data_file) for data_file in table.units]
        for number, prepared in enumerate(inserting):
            rows = prepared.inserted(layout.schema)
            self._met.append(len(rows))
            name = table.partition_by
            partitions = rows.column(name).unique().to_pylist() if name else [-1]
            for partition in partitions if len(rows) else ():
                if partition is None:
                    raise QueryError(
                        f"a row without {name}: {prepared.statement.text}",
                        remedy="give each its own: key_group(key, max_parallelism) computes it",
                    )
                of_partition = rows
                if name:
                    at = pc.equal(rows.column(name), partition)
                    of_partition = rows.filter(at).drop_columns([name])
                path = f"{self.rewriter.token}/{STAGED}/{number}/{partition}"
                path, size = write_data_file(
                    directory, path, of_partition.schema, of_partition.to_batches()
                )
                files.append(TableFile(path, size, len(of_partition), partition))
        edited = layout.edited_pieces(table.units, files)
        replaced = {file.path for piece in edited for file in piece.files}
        left = [p for p in pieces if not any(file.path in replaced for file in p.files)]
        return [*left, *edited]
