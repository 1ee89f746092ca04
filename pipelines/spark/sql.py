"""Spark SQL over a lake, with tables `<job>.<operator>.<state>` at any snapshot.

Names are those of `pipelines.lake.query.table_names`; each stands for the Delta table, pinned to
the snapshot's version if one is given, or if statelake is writing a newer one. Before that, the
version is checked to have exactly the files of the snapshot. Everything else is Spark's own SQL.

Spark opens a table by its path. Right before, the path is checked to have no link, and the table's
log to name only files of the table; anyone with write access can still change them afterwards.
"""

from __future__ import annotations

import logging
import re

import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.table_names import (
    SPARK,
    NamedTable,
    TableNames,
    exact_rows_sql,
    read_only,
    resolve_names,
    says_exact,
)
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.tables.tables import has_files_of
from statelake.pipelines.spark.object_stores import spark_path
from statelake.pipelines.spark.session import open_session
from statelake.state_core.errors import ReadOnlyError, StateError

READING = ("select", "with", "show", "describe", "desc", "explain", "values", "from", "table")
_CHANGES = re.compile(
    r"""\b(INSERT (?=\s+(?:INTO|OVERWRITE)\b) | DELETE (?=\s+FROM\b) | TRUNCATE (?=\s+TABLE\b)
    | MERGE (?=\s+(?:WITH\s+SCHEMA\s+EVOLUTION\s+)?INTO\b) | REPLACE (?=\s+TABLE\b)
    | UPDATE (?=\s+(?!AS\b)\w+(?:\s+\w+){0,2}?\s+SET\b))""",
    re.IGNORECASE | re.VERBOSE,
)
_ERRORS = ("pyspark.errors", "py4j.protocol")  # modules of Spark's own errors

# these loggers also print a raised error, with its Java trace
QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def run_sql(
    session: SparkSession,
    lake: Catalog,
    query: str,
    *,
    as_of: str | None = None,
    job: str | None = None,
    names: TableNames | None = None,
) -> DataFrame:
    """Run a query or a statement.

    Args:
        session: The session, with Delta.
        lake: The lake.
        query: A single SQL statement.
        as_of: A snapshot's id: tables have its rows.
        job: A job whose name may be left out of table names.
        names: The names of tables, instead of `as_of` and `job`.

    Raises:
        NotFoundError: No job has that snapshot.
        UnsafePathError: The path of a named table leads out of the lake.
        ConflictError: An unfinished erasure has changed the log of a table.
        StateError: The statement names a table that only DuckDB has.
    """
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    names = TableNames(lake, as_of=as_of, job=job) if names is None else names
    exact = says_exact(query, SPARK)

    def target(parts: tuple[str, ...]) -> str | None:
        table = names.find(parts)
        if table is None:
            return None
        if table.every_snapshot:
            raise StateError(
                f"{table.name} is not known to Spark", remedy="leave --engine spark out"
            )
        name = pinned(table)
        if not exact:
            return name
        columns = pa.schema(lake.table(table.path).require().schema().to_arrow()).names
        return f"({exact_rows_sql(name, columns)})"

    def pinned(table: NamedTable) -> str:
        stored, recorded = lake.table(table.path), names.recorded(table)
        if names.as_of is None:
            newest = stored.require()
            if has_files_of(newest, recorded) or stored.is_edited(newest, recorded.version):
                return f"delta.`{spark_path(session, stored.checked_directory())}`"
        path = spark_path(session, stored.checked_directory(recorded))
        return f"delta.`{path}` VERSION AS OF {recorded.version}"

    return session.sql(resolve_names(query, target, SPARK))


def changing_verb(query: str) -> str:
    """Return the verb by which a statement would change rows; empty if it changes none."""
    text = SPARK.token.sub(lambda match: " " if match["skip"] is not None else " x ", query)
    match = _CHANGES.search(text)
    return "" if match is None else match[0].upper()


def read_sql(
    lake: Catalog,
    query: str,
    *,
    as_of: str | None = None,
    job: str | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Run a statement that changes no rows, and return the rows that it gives.

    Args:
        lake: The lake.
        query: A single SQL statement.
        as_of: A snapshot's id: tables have its rows.
        job: A job whose name may be left out of table names.
        limit: Return at most so many rows; all by default.

    Raises:
        ReadOnlyError: The statement changes rows, or with `as_of` reads none.
        NotFoundError: No job has that snapshot.
        StateError: Spark refuses the statement.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    verb = changing_verb(query)
    if verb:
        raise read_only(verb)
    reads = query.split(None, 1)[0].lower() in READING
    if as_of is not None and not reads:
        raise ReadOnlyError("--as-of reads a snapshot, and that is no query")
    names = TableNames(lake, as_of=as_of, job=job)
    session = open_session("statelake sql")

    def run() -> pa.Table:
        try:
            answer = run_sql(session, lake, query, names=names)
            if not answer.columns:
                return pa.table({})
            return (answer if limit is None else answer.limit(limit)).toArrow()
        except Exception as error:
            if not type(error).__module__.startswith(_ERRORS):
                raise
            text = str(error).partition("JVM stacktrace")[0].partition("== SQL")[0]
            raise StateError(
                f"Spark refused the query: {' '.join(text.split())}", remedy=names.remedy
            ) from error

    def read_whole(*_: SnapshotRecord) -> pa.Table:
        rows = run()
        names.reading.check()  # of two tables, one may have been read before an erasure
        return rows

    return names.reading.at_once(read_whole) if reads else run()
