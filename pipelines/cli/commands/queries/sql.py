"""`statelake sql`: SQL over a lake's tables on DuckDB or Spark, and edits of a snapshot by it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import click
import pyarrow as pa

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.queries.query_output import (
    FILE_KINDS,
    limited,
    print_csv,
    print_json,
    print_rows,
    write_file,
)
from statelake.pipelines.cli.commands.terminal import as_json, json_option, progress_bar
from statelake.pipelines.cli.options import (
    cluster_options,
    configured_option,
    lake_option,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.query.table_names import SPARK, TableNames
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import StateError

as_of_option = snapshot_option("--as-of", help="Tables are read as they were in this snapshot.")
left_out_job_option = configured_option("job", "A job whose name may be left out of table names.")

READING = ("select", "with", "show", "describe", "desc", "explain", "values", "from", "table")
SPARKS_CHANGES = re.compile(
    r"""\b(INSERT (?=\s+(?:INTO|OVERWRITE)\b) | DELETE (?=\s+FROM\b) | TRUNCATE (?=\s+TABLE\b)
    | MERGE (?=\s+(?:WITH\s+SCHEMA\s+EVOLUTION\s+)?INTO\b) | REPLACE (?=\s+TABLE\b)
    | UPDATE (?=\s+(?!AS\b)\w+(?:\s+\w+){0,2}?\s+SET\b))""",
    re.IGNORECASE | re.VERBOSE,
)
SPARKS_ERRORS = ("pyspark.errors", "py4j.protocol")
ROWS = 100


@click.command()
@lake_option
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@as_of_option
@left_out_job_option
@snapshot_option("--edit", "parent", metavar="SNAPSHOT", help="Change this snapshot, as a new one.")
@click.option("--as", "snapshot_id", metavar="SNAPSHOT", help="The name of the new snapshot.")
@click.option("--note", default="", help="Why; kept with the new snapshot.")
@click.option(
    "--engine", "query_engine", type=click.Choice(["duckdb", "spark"]), default="duckdb",
    show_default=True, help="What runs it: Spark SQL, or DuckDB within this process.",
)  # fmt: skip
@cluster_options
@click.option(
    "--limit", type=click.IntRange(min=1), help=f"At most so many rows: {ROWS}, but all with --to."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--to", metavar="FILE", help="Write all rows to a new .parquet, .csv or .json file.")
@plugins_option
@json_option
def sql(
    lake: str,
    queries: tuple[str, ...],
    as_of: str | None,
    job: str | None,
    parent: str | None,
    snapshot_id: str | None,
    note: str,
    query_engine: str,
    limit: int | None,
    as_csv: bool,
    to: str | None,
    as_json_: bool,
) -> None:
    """Run SQL on the tables of a lake, by the name <job>.<operator>.<state>.

    An operator's timers are <job>.<operator>.timers, and the rows of a state in all snapshots
    <job>.<operator>.<state>@all. What the catalog knows is in statelake.snapshots, .operators,
    .states, .key_groups and .tables. With --json each row is a line.

    \b
    DELETE, UPDATE and INSERT go with --edit and --as: they make a new snapshot of one that there
    is, all of them or nothing, and no other snapshot changes. Without --edit they are refused.
    Tables that Spark or delta-rs changed become a snapshot by `statelake commit`.

    \b
    Examples:
      statelake sql --lake lake "SELECT key, value FROM orders.counter.count ORDER BY value DESC"
      statelake sql --lake lake --as-of sp-1 "SELECT sum(value) FROM orders.counter.count"
      statelake sql --lake lake "SELECT snapshot, taken_at, entries FROM statelake.snapshots"
      statelake sql --lake lake --to counts.parquet "SELECT * FROM orders.counter.count"
      statelake sql --lake lake --job orders --edit sp-1 --as sp-1-erased \\
          "DELETE FROM counter.count WHERE key = 'alice'" \\
          "DELETE FROM counter.timers WHERE key = 'alice'"
    """
    _check_options(queries, as_of, parent, snapshot_id, query_engine, as_csv, to, as_json_)
    opened = Catalog(lake)
    as_of, parent = of_job(opened, job, as_of), of_job(opened, job, parent)
    if parent is not None and snapshot_id is not None:
        _edit(opened, job, parent, snapshot_id, queries, note, as_json_=as_json_)
        return
    shown = ROWS if limit is None else limit
    kept = limit if to is not None else shown
    run = on_duckdb if query_engine == "duckdb" else partial(_on_spark, limit=shown)
    with run(opened, queries[0], as_of, job) as (schema, rows):
        batches = limited(rows, kept)
        if to is not None:
            write_file(to, schema, batches)
        elif as_json_:
            print_json(batches)
        elif as_csv:
            print_csv(schema, batches)
        elif schema.names:
            print_rows(schema, batches, shown)


def _check_options(
    queries: tuple[str, ...],
    as_of: str | None,
    parent: str | None,
    snapshot_id: str | None,
    engine: str,
    as_csv: bool,
    to: str | None,
    as_json_: bool,
) -> None:
    if (parent is None) != (snapshot_id is None):
        raise click.UsageError("--edit names the snapshot to change, and --as the new one")
    if parent is None and len(queries) > 1:
        raise click.UsageError("one query at a time; several statements go with --edit")
    if parent is not None and (as_of or engine == "spark" or as_csv or to):
        raise click.UsageError("--edit goes without --as-of, --csv, --to and --engine spark")
    if sum((as_csv, as_json_, to is not None)) > 1:
        raise click.UsageError("give one of --json, --csv and --to")
    if to is not None and not to.lower().endswith(tuple(FILE_KINDS)):
        raise click.UsageError(f"--to writes {', '.join(FILE_KINDS)}: name the file so")
    if to is not None and "://" in to:
        raise click.UsageError("--to writes a file on this machine")
    if to is not None and engine == "spark":
        raise click.UsageError("--to writes what DuckDB gives; leave --engine spark out")


def _unedited(verb: str) -> click.UsageError:
    """The error of a statement that changes rows where no edit was begun."""
    return click.UsageError(
        f"{verb} needs --edit: a snapshot can't be changed, but `--edit SNAPSHOT --as NAME` makes"
        " another of it (at a prompt .edit SNAPSHOT and .commit NAME)"
    )


@contextmanager
def on_duckdb(
    lake: Catalog, query: str, as_of: str | None, job: str | None
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Run a query on DuckDB: the columns, and the rows batch by batch.

    Raises:
        UsageError: The statement changes rows.
    """
    from statelake.pipelines.lake.query.session import Session  # noqa: PLC0415 - DuckDB only when wanted
    from statelake.pipelines.lake.query.statements import CHANGING  # noqa: PLC0415 - the same

    with Session(lake, TableNames(lake, as_of=as_of, job=job)) as session:
        kind = session.kind_of(query)
        if kind in CHANGING:
            raise _unedited(kind)
        answer = session.query(query)
        yield answer.schema, answer.batches


def changing_verb(query: str) -> str:
    """The verb by which a statement of Spark's SQL would change rows; empty if it changes none."""
    text = SPARK.token.sub(lambda found: " " if found["skip"] is not None else " x ", query)
    found = SPARKS_CHANGES.search(text)
    return "" if found is None else found[0].upper()


@contextmanager
def _on_spark(
    lake: Catalog, query: str, as_of: str | None, job: str | None, *, limit: int
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    logging.getLogger("py4j").setLevel(logging.ERROR)
    from statelake.pipelines.spark.session import open_session  # noqa: PLC0415 - a JVM only when it is needed
    from statelake.pipelines.spark.sql import run_sql  # noqa: PLC0415 - the same

    verb = changing_verb(query)
    if verb:
        raise _unedited(verb)
    if as_of is not None and query.split(None, 1)[0].lower() not in READING:
        raise click.UsageError("--as-of reads a snapshot, and that is no query")
    names = TableNames(lake, as_of=as_of, job=job)
    session = open_session("statelake sql")

    def run() -> pa.Table:
        try:
            answer = run_sql(session, lake, query, names=names)
            rows = answer.limit(limit).toArrow() if answer.columns else pa.table({})
        except Exception as error:
            if not type(error).__module__.startswith(SPARKS_ERRORS):
                raise
            text = str(error).partition("JVM stacktrace")[0].partition("== SQL")[0]
            raise StateError(
                f"Spark refused the query: {' '.join(text.split())}", remedy=names.remedy
            ) from error
        return rows

    def read_whole(*_: SnapshotRecord) -> pa.Table:
        rows = run()
        names.reading.check()  # of two tables, one may have been read before an erasure
        return rows

    reads = query.split(None, 1)[0].lower() in READING
    rows = names.reading.whole(read_whole) if reads else run()
    yield rows.schema, iter(rows.to_batches())


def _edit(
    lake: Catalog,
    job: str | None,
    parent: str,
    snapshot_id: str,
    statements: tuple[str, ...],
    note: str,
    *,
    as_json_: bool,
) -> None:
    """Make a snapshot of another by SQL, and say what has changed."""
    from statelake.pipelines.cli.commands.edit import print_edit, report_edit  # noqa: PLC0415 - as it is slow
    from statelake.pipelines.lake.edit.sql_editing import edit_by_sql  # noqa: PLC0415 - only when wanted

    job = job_of(lake, parent, job)
    with progress_bar("editing", quiet=as_json_) as progress:
        done = edit_by_sql(lake, job, parent, snapshot_id, statements, note=note, progress=progress)
    if as_json_:
        as_json(report_edit(done))
    else:
        print_edit(done, parent)


def of_job(lake: Catalog, job: str | None, name: str | None) -> str | None:
    """The id of the snapshot that is named; without a job only an id names one."""
    return name if name is None or job is None else snapshot_named(lake, job, name)


def job_of(lake: Catalog, snapshot_id: str, job: str | None) -> str:
    """The job whose snapshot is meant, where a user may have named none.

    Raises:
        NotFoundError: No job has that snapshot.
        UsageError: Several have one of that name.
    """
    if job is not None:
        return job
    first, *others = TableNames(lake, as_of=snapshot_id).jobs
    if others:
        raise click.UsageError(f"several jobs have a snapshot {snapshot_id}: give --job")
    return first
