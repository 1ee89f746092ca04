"""Spark SQL over a lake: tables go by `<job>.<operator>.<state>`, at any snapshot.

Names are those of `pipelines.lake.query.table_names`; each stands for the Delta table, pinned to
the snapshot's version where one is asked for, or where statelake is writing a newer one. That the
version has the very files of the snapshot is looked at first. Everything else is Spark's own SQL.

Spark opens a table by its path. That there is no link on the way, and that the table's log names
files in it alone, is looked at right before; who can write into the lake can still change it then.
"""

from __future__ import annotations

import logging

from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.table_names import SPARK, TableNames, resolve_names
from statelake.pipelines.lake.tables.tables import has_files_of
from statelake.pipelines.spark.object_stores import spark_path
from statelake.state_core.errors import StateError

# they print what is raised as well, with its Java trace
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
        session: Spark, with Delta.
        lake: The lake.
        query: A single SQL statement.
        as_of: A snapshot's id: tables are read as they were in it.
        job: A job whose name may be left out of table names.
        names: What names stand for, in the place of these two.

    Raises:
        NotFoundError: No job has that snapshot.
        UnsafePathError: A table that is asked for leads out of the lake.
        ConflictError: An erasure has not ended, so that the log of a table is not the snapshot's.
        StateError: The statement names what only DuckDB has.
    """
    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    names = TableNames(lake, as_of=as_of, job=job) if names is None else names

    def target(parts: tuple[str, ...]) -> str | None:
        table = names.find(parts)
        if table is None:
            return None
        if table.every_snapshot:
            raise StateError(
                f"{table.name} is not known to Spark", remedy="leave --engine spark out"
            )
        stored, recorded = lake.table(table.path), names.recorded(table)
        if names.as_of is None:
            newest = stored.require()
            if has_files_of(newest, recorded) or stored.is_edited(newest, recorded.version):
                return f"delta.`{spark_path(session, stored.checked_directory())}`"
        path = spark_path(session, stored.checked_directory(recorded))
        return f"delta.`{path}` VERSION AS OF {recorded.version}"

    return session.sql(resolve_names(query, target, SPARK))
