"""Queries over a lake with DuckDB, which runs within this process.

DuckDB gets the tables that a query names, as datasets, and nothing else: it may not open a file or
an address, load an extension, or read Python's variables. No query can change these limits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar
from weakref import finalize

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import PythonUDFType
from typing_extensions import Self

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.catalog_tables import (
    CATALOG,
    CATALOG_NAMES,
    CATALOG_TABLES,
    catalog_table,
)
from statelake.pipelines.lake.query.limits import SPILLED, QueryLimits, QueryWatch, interruptible
from statelake.pipelines.lake.query.table_datasets import OpenedTable
from statelake.pipelines.lake.query.table_names import (
    DUCKDB,
    EVERY_SNAPSHOT,
    NamedTable,
    TableNames,
    exact_rows_sql,
    operator_tables_by_name,
    quoted,
    read_only,
    resolve_names,
    says_exact,
    shown_name,
)
from statelake.state_core.errors import LakeError, StateError, UnknownHashError, did_you_mean
from statelake.state_core.files.held_directories import SQL_PREFIX, HeldDirectory, held_temporary
from statelake.state_core.model.key_groups import check_parallelism, key_groups_of_hashes
from statelake.state_core.printable import is_text
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from statelake.state_core.serializers.basic.text import StringSerializer

KEY_GROUP_FUNCTION = "key_group"
_SERIALIZERS = (
    StringSerializer, LongSerializer, IntSerializer, ShortSerializer, ByteSerializer,
    DoubleSerializer, FloatSerializer, BooleanSerializer,
)  # fmt: skip
CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
# the column `ttl` as a time, and whether an entry has expired, as in Flink's `TtlUtils.expired`
TTL_MACROS = (
    "last_access(ttl) AS make_timestamp_ms(ttl)::TIMESTAMPTZ",
    "has_expired(ttl, lived, moment) AS last_access(ttl) + lived <= moment",
)
READING = ("SELECT", "EXPLAIN")
CHANGING = ("DELETE", "UPDATE", "INSERT")
BATCH_ROWS = 1 << 16
_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_NO_TABLE = re.compile(r".*Table with name (?P<name>.+?) does not exist.*")
_NOT_READ = re.compile("(?i)parquet|reading the stream|IOError|could not verify page")
_NO_MEMORY = re.compile("(?i)out of memory|bad_alloc|failed to allocate|max_temp_directory_size")
NO_LIMITS = QueryLimits()
Result = TypeVar("Result")
ONLY_SPARK = "write it as DuckDB does, or let Spark run it: --engine spark"


class QueryError(StateError, ValueError):
    """SQL that DuckDB, or this library, refuses."""


@dataclass(frozen=True)
class Answer:
    """The result of a query; rows are computed while they are consumed.

    Attributes:
        schema: Its columns.
        batches: Its rows.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def first(self, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the first `limit` rows, and compute no later batch; all rows without a limit."""
        left = limit
        for batch in self.batches:
            if left is None:
                yield batch
                continue
            yield batch.slice(0, left)
            left -= min(left, len(batch))
            if not left:
                return


class Session:
    """DuckDB over the tables of a lake.

    Unpickling creates another session over the same tables, with a single thread, for tasks that
    run in parallel. A session that is not closed is closed with its last reference.

    Args:
        lake: The lake.
        names: The names of its tables.
        threads: How many threads DuckDB has; by default one for each core.
        limits: The time and memory that each query may take.
    """

    catalog_tables = CATALOG_NAMES

    def __init__(
        self,
        lake: Catalog,
        names: TableNames,
        threads: int | None = None,
        limits: QueryLimits = NO_LIMITS,
    ) -> None:
        self.lake = lake
        self.names = names
        self._failures: list[StateError] = []
        self._reader: pa.RecordBatchReader | None = None
        self.lock = threading.Lock()  # for exclusive use of DuckDB, which takes all cores
        self.columns: dict[str, list[str]] = {}  # the columns of a query's tables, for messages
        self._opened: list[OpenedTable] = []
        self._called: dict[str, tuple[str, ...]] = {}  # the table parts of each name in DuckDB
        self._uses_is_exact = False  # whether the query names `is_exact`
        spilled = held_temporary(SQL_PREFIX)
        configuration = CONFIGURATION if threads is None else CONFIGURATION | {"threads": threads}
        if limits.memory is not None:
            configuration = configuration | {
                "memory_limit": f"{limits.memory}B",
                "max_temp_directory_size": f"{limits.memory * SPILLED}B",
            }
        self.connection = duckdb.connect(":memory:", config=configuration)
        too_long = QueryError(
            f"the query took longer than {limits.seconds or 0:g} seconds",
            remedy="ask for less, or give it more time: --query-seconds",
        )
        self._watch = QueryWatch(self.connection, limits.seconds, too_long)
        self._close = finalize(self, _close, self.connection, spilled, self._watch)
        for setting in (
            f"temp_directory = '{spilled.path.replace(chr(39), chr(39) * 2)}'",
            "TimeZone = 'UTC'",
            "enable_progress_bar = false",  # standard output is for results
        ):
            self.connection.execute(f"SET {setting}")
        failures = self._failures  # a reference to the session would keep it alive

        def key_group_function(keys: pa.Array, max_parallelism: pa.Array) -> pa.Array:
            try:
                return key_group(keys, max_parallelism)
            except StateError as error:
                failures.append(error)
                raise

        self.connection.create_function(
            KEY_GROUP_FUNCTION, key_group_function, None, "INTEGER", type=PythonUDFType.ARROW
        )
        for macro in TTL_MACROS:
            self.connection.execute(f"CREATE TEMP MACRO {macro}")
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            self.connection.execute(f"SET {setting}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the running query, drop all tables, and delete spilled files."""
        self._end()
        self._close()

    def end(self, error: StateError) -> None:
        """End the running query, and refuse later ones, with an error; any thread may call it."""
        self._watch.end(error)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.lake, self.names, 1)

    def _end(self) -> None:
        """End the running query and discard its result."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def kind_of(self, query: str) -> str:
        """Return the kind of a statement: `SELECT`, `DELETE` and so on.

        Raises:
            QueryError: The text is not exactly one valid statement.
        """
        if not is_text(query):
            raise QueryError("the query has an unpaired surrogate, so it is not valid text")
        with self.translated_errors():
            statements = self.connection.extract_statements(self.resolved(query, register=False))
        if len(statements) != 1:
            count = f"{len(statements)} statements" if statements else "no statement"
            raise QueryError(
                f"{count}, but exactly one is allowed", remedy="give one statement at a time"
            )
        return str(statements[0].type.name)

    def tables(self) -> list[str]:
        """Return the names of all tables: those of states, then those of the catalog."""
        return [table.name for table in self.names] + self.catalog_tables

    def query(self, query: str, limit: int | None = None) -> Answer:
        """Run a query that only reads, after ending the previous one.

        Args:
            query: The query.
            limit: The largest number of rows to compute.

        Raises:
            ReadOnlyError: The statement changes rows.
            QueryError: The statement is of another kind, or DuckDB refuses it.
            StateError: A table that it names can't be read.
        """
        if self._reader is not None:
            self._end()
            self.names.forget()
        kind = self.kind_of(query)
        if _SHOW_TABLES.fullmatch(query):
            return _answer_of("name", self.tables())
        if kind in CHANGING:
            raise read_only(kind)
        if kind not in READING:
            raise QueryError(
                f"{kind.replace('_', ' ')} is not run here, as it does not only read",
                remedy="give SELECT, or DELETE, UPDATE or INSERT with --edit; if Spark or delta-rs"
                " changed a table, `statelake commit` makes a snapshot of it",
            )
        return self.names.reading.at_once(
            lambda *_: self._interruptible(lambda: self._answer(query, kind, limit))
        )

    def _interruptible(self, work: Callable[[], Result]) -> Result:
        return interruptible(work, lambda: self.end(QueryError("the query was interrupted")))

    def _answer(self, query: str, kind: str, limit: int | None) -> Answer:
        """Run a query up to its first rows."""
        self._end()
        with self.translated_errors():
            self.columns.clear()
            text = self.resolved(query)
            if len(self.names.reading.records) > 1:  # an erasure may come in between
                self.names.reading.check()
            if kind == "EXPLAIN":
                plans = self.connection.execute(text).fetchall()
                return _answer_of("plan", [plan for _, plan in plans])
            relation = self.connection.sql(text)
            kinds = [str(column_type) for column_type in relation.types]
            columns = relation.columns  # `limit` would rename duplicate columns
            if limit is not None:
                relation = relation.limit(limit)
            reader = self._reader = relation.to_arrow_reader(BATCH_ROWS)
            first = list(islice(reader, 1))
        fields = [
            field.with_name(name).with_type(pa.int64() if kind == "HUGEINT" else field.type)
            for field, name, kind in zip(reader.schema, columns, kinds, strict=True)
        ]  # as in Spark, a sum of BIGINT is a BIGINT
        schema = pa.schema(fields)
        return Answer(schema, self._batches(chain(first, reader), schema))

    def _batches(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        left = iter(batches)
        with self.names.reading.in_part(), self.translated_errors():
            while (batch := self._interruptible(lambda: next(left, None))) is not None:
                if batch.schema == schema:
                    yield batch
                    continue
                try:
                    columns = [
                        column.cast(field.type)
                        for column, field in zip(batch.columns, schema, strict=True)
                    ]
                except pa.ArrowInvalid as error:
                    raise QueryError(
                        "a sum is beyond BIGINT", remedy="cast what is added to DOUBLE"
                    ) from error
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def resolved(self, query: str, *, register: bool = True) -> str:
        """Return a query with the lake's tables replaced by their names in DuckDB.

        Args:
            query: The query.
            register: Whether to register the tables with DuckDB.
        """

        def target(parts: tuple[str, ...]) -> str | None:
            if len(parts) == 2 and parts[0].lower() == CATALOG:
                name = parts[1].lower()
                if name not in CATALOG_TABLES:
                    wanted, known = ".".join(parts), ", ".join(CATALOG_NAMES)
                    near = did_you_mean(wanted, CATALOG_NAMES)
                    raise QueryError(f"no table {wanted}", remedy=f"there are {known}{near}")
                if register:
                    rows = catalog_table(self.lake, name)
                    self.connection.register(f"{CATALOG}.{name}", rows)
                return quoted(f"{CATALOG}.{name}")
            table = self.names.find(parts)
            if table is None:
                return None
            if register:
                self.register(table)
            return quoted(self._name_of(table.job, table.operator, table.state))

        self._uses_is_exact = says_exact(query, DUCKDB)
        return resolve_names(query, target, DUCKDB)

    def _name_of(self, *parts: str) -> str:
        """Return the name of a table in DuckDB, which is unique although names ignore case."""
        name = shown_name(parts)
        while self._called.setdefault(name.lower(), parts) != parts:
            name += "'"
        return name

    def tables_in(self, query: str) -> set[str]:
        """Return the paths of the lake's tables that a part of a query names."""
        return {table.path for table in self.tables_named_in(query)}

    def tables_named_in(self, query: str) -> list[NamedTable]:
        """Return the lake's tables that a part of a query names."""
        tables: dict[str, NamedTable] = {}

        def note(parts: tuple[str, ...]) -> None:
            table = self.names.find(parts)
            if table is not None:
                tables[table.path] = table

        resolve_names(query, note, DUCKDB)
        return list(tables.values())

    def count_of(self, table: NamedTable, column: str) -> int:
        """Return how many rows of a table have a value in a column.

        Raises:
            StateError: The table can't be read.
        """
        with self.lock, self.translated_errors():
            self.register(table)
            name = quoted(self._name_of(table.job, table.operator, table.state))
            counted = self.connection.sql(f"SELECT count({quoted(column)}) FROM {name}")  # noqa: S608 - quoted
            (count,) = counted.fetchall()[0]
        return int(count)

    def columns_in(self, query: str) -> list[str]:
        """Return the columns of the lake's tables that a part of a query names."""
        opened = map(self.open, self.tables_named_in(query))
        return list(dict.fromkeys(name for table in opened for name in table.schema.names))

    def open(self, table: NamedTable) -> OpenedTable:
        """Open a table of a snapshot; including later edits, unless the query is `as_of` one.

        Raises:
            StateError: The table can't be opened.
        """
        recorded, edits = self.names.recorded(table), self.names.as_of is None
        return OpenedTable(self.lake.table(table.path), recorded, edits=edits)

    def register(self, table: NamedTable) -> None:
        """Register a table with DuckDB under its name.

        Raises:
            StateError: The table can't be opened.
        """
        if table.every_snapshot:
            self._register_every_snapshot(table)
        else:
            name = self._name_of(table.job, table.operator, table.state)
            self._register(name, self.open(table))

    def _register(self, name: str, opened: OpenedTable) -> None:
        self.columns[name] = opened.schema.names
        self._opened.append(opened)
        self.connection.execute(f"DROP VIEW IF EXISTS {quoted(name)}")  # or the view stays
        if not self._uses_is_exact:
            self.connection.register(name, opened.dataset())
            return
        rows = f"the rows of {name}"
        self.connection.register(rows, opened.dataset())
        with_exact = exact_rows_sql(quoted(rows), opened.schema.names)
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {with_exact}")

    def _register_every_snapshot(self, table: NamedTable) -> None:
        state = table.state.removesuffix(EVERY_SNAPSHOT)
        selects = []
        for record in self.names.snapshots_of(table.job):
            for operator in record.operators:
                paths = dict(operator_tables_by_name(operator))
                if operator.label != table.operator or state not in paths:
                    continue
                (recorded,) = (each for each in operator.tables if each.path == paths[state])
                name = self._name_of(table.job, table.operator, table.state, record.snapshot_id)
                self._register(name, OpenedTable(self.lake.table(recorded.path), recorded))
                snapshot = record.snapshot_id.replace("'", "''")
                selects.append(f"SELECT '{snapshot}' AS snapshot, * FROM {quoted(name)}")  # noqa: S608 - quoted
        union = " UNION ALL BY NAME ".join(selects)
        name = self._name_of(table.job, table.operator, table.state)
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {union}")

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Translate DuckDB's errors into statelake's.

        Raises:
            QueryError: DuckDB refused a statement.
            StateError: A table or a function of statelake raised it within DuckDB.
        """
        self._failures.clear()
        try:
            if self._watch.error is not None:
                raise self._watch.error
            yield
        except (duckdb.Error, pa.ArrowException, MemoryError, OSError) as error:
            if self._watch.error is not None:
                raise self._watch.error from error
            if isinstance(error, StateError):
                raise
            for failure in self._failures:
                raise failure from error
            raise self._translated_error(error) from error

    def _translated_error(self, error: Exception) -> StateError:
        text = str(error).partition("\n\nLINE ")[0].partition("\nLINE ")[0]
        problem = " ".join(text.split())
        if isinstance(error, MemoryError) or _NO_MEMORY.search(problem):
            return memory_error(problem.partition(" Possible solutions")[0])
        if isinstance(error, OSError) or _NOT_READ.search(problem):
            for opened in self._opened:
                if damage := opened.damage():
                    return damage
            return LakeError(f"a file of a table can't be read ({problem})")
        if missing := _NO_TABLE.fullmatch(problem):  # DuckDB would suggest tables of its own
            name = missing["name"].strip('"')
            return QueryError(f"no table {name}", remedy=self.names.remedy_for(name))
        refused = f"DuckDB refused the query: {problem}"
        if isinstance(error, duckdb.PermissionException):
            remedy = "a query reads the lake's tables and nothing else; Spark may: --engine spark"
        elif "Function" in problem or isinstance(error, duckdb.ParserException):
            remedy = ONLY_SPARK
        elif isinstance(error, duckdb.CatalogException) or "Catalog" in problem:
            remedy = self.names.remedy
        elif isinstance(error, duckdb.BinderException) and "column" in problem:
            columns = [f"{name} has {', '.join(self.columns[name])}" for name in self.columns]
            remedy = "; ".join(columns)
        else:
            remedy = ""
        return QueryError(refused, remedy=remedy)


def memory_error(problem: str) -> QueryError:
    """Return the error of a query that needs more memory than it has."""
    return QueryError(
        f"the query needs more memory than it has ({problem or 'out of memory'})",
        remedy="ask for less at once, give it more (--query-memory), or let Spark run it on a"
        " cluster: sql --engine spark",
    )


def _close(
    connection: duckdb.DuckDBPyConnection, spilled: HeldDirectory, watch: QueryWatch
) -> None:
    watch.stop()
    connection.close()
    spilled.__exit__()


def _answer_of(column: str, texts: list[str]) -> Answer:
    """Return an answer with one column of texts."""
    batch = pa.RecordBatch.from_pydict({column: pa.array(texts, pa.string())})
    return Answer(batch.schema, iter([batch]))


def key_group(keys: Any, max_parallelism: Any) -> pa.Array:
    """Return the key group that Flink assigns to each key.

    The type of the column determines the Java class of the key, and so its hash: text as `String`,
    BIGINT as `Long`, and so on. A type that several Java classes are mapped to is refused.

    Args:
        keys: Keys, as DuckDB passes a column to a function; without nulls.
        max_parallelism: The max parallelism for each key.

    Raises:
        UnknownHashError: The column's type is not that of one Java class.
        KeyGroupError: There is no such max parallelism.
    """
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    serializers = {serializer().arrow_type: serializer() for serializer in _SERIALIZERS}
    serializer = serializers.get(column.type)
    if serializer is None:
        raise UnknownHashError(
            f"key_group() can't hash {column.type}: several Java classes are mapped to it",
            remedy="give text, a number or a boolean, or read the column key_group",
        )
    codes = np.array(serializer.hash_codes(column), np.int32)
    groups = np.empty(len(codes), np.int32)
    for most in pc.unique(max_parallelism).to_pylist():
        check_parallelism(most, 1)
        rows = pc.equal(max_parallelism, most).to_numpy(zero_copy_only=False).astype(bool)
        groups[rows] = key_groups_of_hashes(codes[rows], most)
    return pa.array(groups)
