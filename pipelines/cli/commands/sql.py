"""`statelake sql`: Spark SQL over a lake's tables."""

from __future__ import annotations

import logging
import sys
from typing import Any

import click
import pyarrow as pa

from pipelines.cli.commands.terminal import json_option, json_text, plain, print_table, tell
from pipelines.lake.catalog.catalog import Lake
from state_core.errors import StateError

__all__ = ["sql"]

READING = ("select", "with", "show", "describe", "desc", "explain", "values", "from", "table")


@click.command()
@click.option("--lake", required=True, help="The lake: a directory or URI.")
@click.argument("query")
@click.option("--as-of", help="A snapshot's id: tables are read as they were in it.")
@click.option("--job", help="A job whose name may be left out of table names.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1))
@json_option
def sql(
    lake: str, query: str, as_of: str | None, job: str | None, limit: int, as_json_: bool
) -> None:
    """Run Spark SQL, with tables by the name <job>.<operator>.<state>.

    An operator's timers are <job>.<operator>.timers. UPDATE and DELETE change a table's latest
    version; `statelake commit` then registers it as a snapshot. With --json each row is a line.

    \b
    Examples:
      statelake sql --lake lake "SELECT key, value FROM orders.counter.count ORDER BY value DESC"
      statelake sql --lake lake --as-of sp-1 "SELECT sum(value) FROM orders.counter.count"
      statelake sql --lake lake "DELETE FROM orders.counter.count WHERE key = 'alice'"
    """
    opened = Lake(lake)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    from pipelines.spark.session import open_session  # noqa: PLC0415 - a JVM only when it is needed
    from pipelines.spark.sql import run_sql, table_names  # noqa: PLC0415 - the same

    if as_of is not None and query.split(None, 1)[0].lower() not in READING:
        raise click.UsageError("--as-of reads a snapshot; a snapshot can't be changed")
    names = table_names(opened, as_of=as_of, job=job)
    session = open_session("statelake sql")
    try:
        answer = run_sql(session, opened, query, as_of=as_of, job=job)
        found = answer.limit(limit).toArrow() if answer.columns else None
    except Exception as error:
        if not type(error).__module__.startswith("pyspark.errors"):
            raise
        known = ", ".join(sorted({".".join(key) for key in names if len(key) == 3})[:20])
        text = str(error).partition("JVM stacktrace")[0].partition("== SQL")[0]
        raise StateError(
            f"Spark refused the query: {' '.join(text.split())}", remedy=f"tables are: {known}"
        ) from error
    if found is None:
        return
    if as_json_:
        kind = pa.struct(list(found.schema))
        for row in found.to_pylist():
            sys.stdout.write(json_text(plain(row, kind)) + "\n")
        return
    rows = [[_cell(value) for value in row.values()] for row in found.to_pylist()]
    print_table("", [f"<{name}" for name in found.column_names], rows)
    if found.num_rows == limit:
        tell(f"the first {limit} rows (--limit)")


def _cell(value: Any) -> str:
    held = plain(value)
    if held is None:
        return ""
    return held if isinstance(held, str) else json_text(held)
