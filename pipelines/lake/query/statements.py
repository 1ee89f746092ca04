"""DELETE, UPDATE, INSERT and expressions, carried out by DuckDB over some rows of their table.

A statement names its table first. That name stands for the rows at hand; every other one stands for
a whole table as it was before. So a statement over a table gives the same piece by piece. All that
is prepared can be pickled: in another process it is prepared again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelake.pipelines.lake.query.session import CHANGING, ONLY_SPARK, QueryError, Session
from statelake.pipelines.lake.query.table_names import (
    DUCKDB,
    IS_EXACT,
    NamedTable,
    exact_rows_sql,
    parts_of,
    quoted,
)
from statelake.pipelines.lake.tables.file_spans import BUCKET, KEY_GROUP
from statelake.state_core.errors import NotFoundError
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    NAMESPACE,
    TIMESTAMP,
    TTL,
    USER_KEY,
    VALUE,
)
from statelake.state_core.serializers.framework.columns import I64Array

ROW = "__row"  # the position of a row among the given rows
TARGET, BEFORE, MET = "the rows to change", "the rows before", "the rows that were met"

# the columns of which exact bytes hold all, and those that are exact but written with them
PARTS = {KEY: (KEY, NAMESPACE, USER_KEY), VALUE: (VALUE,)}
BESIDE = {KEY: TIMESTAMP, VALUE: TTL}

_SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_VERB = re.compile(
    rf"{_SPACE}*(?P<verb>DELETE{_SPACE}+FROM|UPDATE|INSERT{_SPACE}+INTO){_SPACE}+",
    re.IGNORECASE | re.DOTALL,
)
_END = re.compile(rf"(?:;|{_SPACE})+$", re.DOTALL)
_WORD = re.compile(r'"((?:[^"]|"")+)"|`([^`]+)`|([^\W\d]\w*)')
_PART = re.compile(
    r"(?P<opens>[(\[{])|(?P<closes>[)\]}])|(?P<comma>,)|\b(?P<ends>where|from)\b", re.IGNORECASE
)
_SET = re.compile(r"^.*?\bset\b", re.IGNORECASE | re.DOTALL)
_ASSIGNED = re.compile(r"\s*([^=]*?)\s*=(?!=)(.*)", re.DOTALL)
_LISTED = re.compile(r"\s*\([^()]*\)")  # the columns that an INSERT names


@dataclass(frozen=True)
class ColumnUse:
    """The names in a statement or an expression, in small letters, columns among them.

    Attributes:
        condition: Those that decide which rows it is about.
        computed: Those of which it computes new values.
        assigned: The columns that get new values.
    """

    condition: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()

    def reads(self, column: str, names: frozenset[str] | None = None) -> bool:
        """Return whether a key or value is read by its columns alone.

        Args:
            column: `KEY` or `VALUE`.
            names: The names of a part; by default all that are read.
        """
        read = self.condition | self.computed if names is None else names
        return not self.by_bytes(column) and not read.isdisjoint(PARTS[column])

    def by_bytes(self, column: str) -> bool:
        """Return whether the exact bytes of keys or values are named, or which rows have some."""
        return self.says_exact or f"raw_{column}" in self.condition | self.computed | self.assigned

    @property
    def says_exact(self) -> bool:
        """Return whether it reads `is_exact`."""
        return IS_EXACT in self.condition | self.computed


@dataclass(frozen=True)
class Statement:
    """A statement that changes one table.

    Attributes:
        text: The statement as its user wrote it, on one line.
        kind: `DELETE`, `UPDATE` or `INSERT`.
        table: The table.
        head: The SQL before the table's name.
        tail: The SQL after it, as its user wrote it.
        reads: The paths of the other tables that it names, and of its own if it reads all of it.
        place: What messages name, if that is another than the text.
    """

    text: str
    kind: str
    table: NamedTable
    head: str
    tail: str
    reads: frozenset[str]
    place: str = ""


def parse_statement(session: Session, text: str) -> Statement:
    """Find the table that a statement changes.

    Args:
        session: The session with the names of tables.
        text: One DELETE, UPDATE or INSERT.

    Raises:
        QueryError: The text is not such a statement, or does not begin with a table.
        NotFoundError: There is no table of that name.
    """
    kind = session.kind_of(text)
    shown = " ".join(DUCKDB.token.sub(_without_comments, text).split()).rstrip("; ")
    if kind not in CHANGING:
        raise QueryError(
            f"{kind.replace('_', ' ')} changes no rows here: {shown}",
            remedy="give DELETE, UPDATE or INSERT; if Spark or delta-rs changed a table,"
            " `statelake commit` makes a snapshot of it",
        )
    verb = _VERB.match(text)
    name = None if verb is None else DUCKDB.token.match(text, verb.end())
    if verb is None or name is None or name["name"] is None:
        raise QueryError(
            f"it does not begin with the table that it changes: {shown}",
            remedy="begin with DELETE FROM, UPDATE or INSERT INTO and <job>.<operator>.<state>,"
            " and put what it reads into subqueries",
        )
    table = session.names.find(parts_of(name[0]))
    if table is None:
        raise NotFoundError(f"no table {name[0]}", remedy=session.names.remedy_for(name[0]))
    if table.every_snapshot:
        raise QueryError(
            f"{table.name} is of all snapshots, which are as they are",
            remedy="name the table of the state itself",
        )
    tail = _END.sub("", text[name.end() :])
    reads = session.tables_in(tail)
    return Statement(shown, kind, table, text[: verb.end()], tail, frozenset(reads))


def check_statements(session: Session, statements: Sequence[str]) -> list[Statement]:
    """Parse statements, and refuse those that read what an earlier one writes.

    Raises:
        QueryError: A statement can't be parsed, names another job, or reads what an earlier one
            writes.
    """
    parsed: list[Statement] = []
    for number, text in enumerate(statements, 1):
        statement = parse_statement(session, text)
        if statement.table.job != session.names.job:
            raise QueryError(
                f"{statement.table.name} is not of job {session.names.job!r}",
                remedy="an edit is of one job's snapshot",
            )
        changed = {each.table.path: at for at, each in enumerate(parsed, 1)}
        leans = statement.reads & changed.keys()
        if statement.kind == "INSERT":
            leans |= {statement.table.path} & changed.keys()
        if leans:
            raise QueryError(
                f"statement {number} leans on what statement {changed[min(leans)]} makes of"
                f" {min(leans)}: {statement.text}",
                remedy="make it an edit of its own, of the snapshot that the first one gives",
            )
        PreparedStatement(session, statement).try_over(session.open(statement.table).schema)
        parsed.append(statement)
    if not parsed:
        raise QueryError("an edit without a statement", remedy="give at least one")
    return parsed


def columns_used(session: Session, statement: Statement) -> ColumnUse:
    """Return what a statement reads and writes; rather too much than too little."""
    text = _columns_alone(session, statement.tail)
    if statement.kind == "DELETE":
        return ColumnUse(condition=_words(text))
    if statement.kind == "INSERT":
        listed = _LISTED.match(text)
        return ColumnUse(computed=_words(text[listed.end() :] if listed else text))
    assigned: set[str] = set()
    computed: set[str] = set()
    assignments, condition = _assignments(text)
    for assignment in assignments:
        match = _ASSIGNED.fullmatch(assignment)
        column, sql = (_words(match[1]), _words(match[2])) if match else ((), _words(assignment))
        if match and match[1].strip() == match[2].strip():
            continue  # the value stays
        assigned.update(column)
        computed.update(sql)
    return ColumnUse(_words(condition), frozenset(computed), frozenset(assigned))


def columns_in_expression(session: Session, text: str) -> ColumnUse:
    """Return what an expression reads, in which `old` is the value."""
    words = _words(_columns_alone(session, text))
    return ColumnUse(computed=words | {VALUE} if "old" in words else words)


def _columns_alone(session: Session, text: str) -> str:
    """Return SQL without texts, comments and names of tables."""

    def blank(match: re.Match[str]) -> str:
        named = match["name"] is not None and session.names.find(parts_of(match[0])) is not None
        return " " if named or match["skip"] is not None else match[0]

    return DUCKDB.token.sub(blank, text)


def _words(text: str) -> frozenset[str]:
    """Return the names in SQL, in small letters, as DuckDB compares them."""
    return frozenset(next(filter(None, groups)).lower() for groups in _WORD.findall(text))


def _assignments(text: str) -> tuple[list[str], str]:
    """Return the assignments of an UPDATE, and all that follows them."""
    begin = _SET.match(text)
    start = begin.end() if begin else 0
    parts, depth, end = [], 0, len(text)
    for match in _PART.finditer(text, start):
        depth += (match["opens"] is not None) - (match["closes"] is not None)
        if depth == 0 and match["ends"] is not None:
            end = match.start()
            break
        if depth == 0 and match["comma"] is not None:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:end]], text[end:]


def _without_comments(match: re.Match[str]) -> str:
    return " " if match[0].startswith(("--", "/*")) else match[0]


class _Prepared:
    """SQL that DuckDB is ready for: the tables that it reads are open."""

    def __init__(self, session: Session, text: str, place: str) -> None:
        self.session = session
        self.text = text
        self.place = place
        self.uses = ColumnUse()

    def _before(self, names: Sequence[str]) -> str:
        """Return a query of the rows at hand, with `is_exact` if that is read."""
        if self.uses.says_exact:
            return exact_rows_sql(quoted(BEFORE), names)
        return f"FROM {quoted(BEFORE)}"

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Raise DuckDB's errors as ours, with the origin of the SQL."""
        try:
            with self.session.translated_errors():
                yield
        except QueryError as error:
            if not self.place:
                raise
            remedy = "write it as DuckDB does" if error.remedy == ONLY_SPARK else error.remedy
            raise QueryError(error.problem, place=self.place, remedy=remedy) from error

    def _typed(self, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """A column as DuckDB gives it, in a type of Arrow's."""
        try:
            return column.cast(kind)
        except pa.ArrowException as error:
            raise QueryError(
                f"a value does not fit its column ({' '.join(str(error).split())}): {self.text}",
                place=self.place,
            ) from error


class PreparedExpression(_Prepared):
    """An expression over the columns of rows, and over `old`, which is their value.

    Args:
        session: What runs it.
        text: The SQL.
        place: What messages name.

    Raises:
        StateError: It is no expression, or a table that it reads can't be opened.
    """

    def __init__(self, session: Session, text: str, place: str) -> None:
        super().__init__(session, text, place)
        with self.telling():
            session.kind_of(f"SELECT ({text}\n)")
            self.sql = session.resolved(text)
        self.uses = columns_in_expression(session, text)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.session, self.text, self.place)

    def try_over(self, schema: pa.Schema, kind: pa.DataType) -> None:
        """Evaluate it over an empty batch, so that unknown names fail at once.

        Raises:
            QueryError: DuckDB refuses it.
        """
        self.values(_no_rows(schema), kind)

    def values(self, rows: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """The value of each row.

        Args:
            rows: The rows.
            kind: The type that the values are to have.

        Raises:
            QueryError: DuckDB refuses the expression, or a value can't have that type.
        """
        connection = self.session.connection
        self.session.columns["its table"] = [*rows.schema.names, "old"]
        with self.session.lock, self.telling():
            connection.register(BEFORE, _indexed(rows))
            (as_sql,) = connection.from_arrow(pa.table({VALUE: pa.array([], kind)})).types
            before = self._before(rows.schema.names)
            computed = connection.sql(
                f"SELECT CAST(({self.sql}\n) AS {as_sql}) FROM"  # noqa: S608 - a user's own SQL
                f" (SELECT *, {VALUE} AS old FROM ({before})) ORDER BY {ROW}"
            ).to_arrow_table()
            connection.unregister(BEFORE)
            if len(computed) != len(rows):
                raise QueryError(f"{len(computed)} values for {len(rows)} rows")
            return self._typed(computed.column(0), kind).combine_chunks()


class PreparedStatement(_Prepared):
    """A statement that is ready to run: the other tables that it reads are open.

    Args:
        session: The session that runs it.
        statement: The statement.

    Raises:
        StateError: A table that it reads can't be opened.
    """

    def __init__(self, session: Session, statement: Statement) -> None:
        super().__init__(session, statement.text, statement.place)
        self.statement = statement
        with self.telling():
            session.kind_of(f"{statement.head}{quoted(TARGET)} {statement.tail}")
            tail = session.resolved(statement.tail)
        self.sql = f"{statement.head}{quoted(TARGET)} {tail}"
        self.uses = columns_used(session, statement)
        if IS_EXACT in self.uses.assigned:
            raise QueryError(
                f"{IS_EXACT} only says which rows their columns hold: {self.text}",
                place=self.place, remedy="give the value, or its exact bytes as raw_value",
            )  # fmt: skip

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.session, self.statement)

    def try_over(self, schema: pa.Schema) -> None:
        """Carry it out over no rows, so that unknown names fail at once.

        Args:
            schema: The columns of its table.

        Raises:
            QueryError: DuckDB refuses it.
        """
        if self.statement.kind == "INSERT":
            self.inserted(schema)
        else:
            self.change(_no_rows(schema))

    def change(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, I64Array]:
        """Execute a DELETE or UPDATE over some rows of its table.

        Returns:
            The rows afterwards, in their order, and the positions of the rows that met the
            condition. If no row met it, the batch that was given.

        Raises:
            QueryError: DuckDB refuses the statement, or a value does not fit its column.
        """
        with self.session.lock:
            return self._change(rows)

    def _change(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, I64Array]:
        connection = self.session.connection
        with self.telling():
            self._fill(_indexed(rows))
            returned = connection.execute(f"{self.sql}\nRETURNING {ROW}").fetchall()
            met = np.unique(np.array(returned, np.int64))
            if not met.size:
                return rows, met
            if self.statement.kind == "DELETE":
                stays = np.ones(len(rows), bool)
                stays[met] = False
                return rows.filter(pa.array(stays)), met
            connection.register(MET, pa.table({ROW: met}))
            changed = connection.sql(
                f"SELECT * FROM {quoted(TARGET)} SEMI JOIN {quoted(MET)} USING ({ROW})"  # noqa: S608 - quoted
                f" ORDER BY {ROW}"
            ).to_arrow_table()
        new = self._rows(changed, rows.schema)
        order = np.arange(len(rows))
        order[met] = len(rows) + np.arange(met.size)
        both = pa.concat_tables([pa.Table.from_batches([rows]), new])
        (batch,) = both.take(pa.array(order)).combine_chunks().to_batches()
        return batch, met

    def inserted(self, schema: pa.Schema) -> pa.Table:
        """Return the rows that an INSERT adds to a table of these columns.

        Its buckets of key groups are ignored: they follow from the key groups.

        Raises:
            QueryError: DuckDB refuses it, or a value does not fit its column.
        """
        with self.telling():
            self._fill(
                pa.schema([pa.field(field.name, field.type) for field in schema]).empty_table()
            )
            self.session.connection.execute(self.sql).fetchall()
            added = self.session.connection.sql(f"FROM {quoted(TARGET)}").to_arrow_table()
        rows = self._rows(added, schema)
        partitioning = self.statement.table.partitioning
        at = rows.schema.get_field_index(BUCKET)
        if partitioning is None or at < 0:
            return rows
        return rows.set_column(at, BUCKET, partitioning.buckets_of(rows.column(KEY_GROUP)))

    def _fill(self, rows: pa.Table) -> None:
        """Create a table in DuckDB with the rows."""
        connection = self.session.connection
        names = [name for name in rows.schema.names if name != ROW]
        self.session.columns[self.statement.table.name] = names
        connection.register(BEFORE, rows)
        inserts = self.statement.kind == "INSERT"  # in which tables are read, and not the target
        before = f"FROM {quoted(BEFORE)}" if inserts else self._before(rows.schema.names)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(TARGET)} AS {before}").fetchall()
        connection.unregister(BEFORE)

    def _rows(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return rows from DuckDB with the types of their table."""
        columns = [self._typed(rows.column(field.name), field.type) for field in schema]
        for field, column in zip(schema, columns, strict=True):
            if not field.nullable and column.null_count:
                raise QueryError(
                    f"column {field.name!r} would be null: {self.text}",
                    remedy="give it a value; key_group(key, max_parallelism) computes a key group",
                )
        return pa.table(columns, schema=schema)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """No row of a table: rows of files, which are at hand, have no bucket."""
    fields = [field for field in schema if field.name != BUCKET]
    return pa.RecordBatch.from_pylist([], pa.schema(fields))


def _indexed(rows: pa.RecordBatch) -> pa.Table:
    """Rows, each with its place among them."""
    indexes = pa.array(np.arange(len(rows)))
    return pa.table([*rows.columns, indexes], names=[*rows.schema.names, ROW])
