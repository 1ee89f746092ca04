"""`statelake sql`: run SQL on a lake's tables, or make a new snapshot by it."""

from __future__ import annotations

import click

from statelake import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.queries.query_output import (
    FILE_KINDS,
    print_csv,
    print_json,
    print_rows,
    write_file,
)
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.engine_options import cluster_options
from statelake.pipelines.cli.options import (
    configured_option,
    inexact_option,
    lake_option,
    option_of,
    query_memory_option,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.requests.shared import Noted
from statelake.state_core.errors import ReadOnlyError

as_of_option = snapshot_option("--as-of", help="Read tables as they were in this snapshot.")
left_out_job_option = configured_option("job", "A job whose name may be left out of table names.")

ROWS = 100


@click.command()
@lake_option
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@as_of_option
@left_out_job_option
@snapshot_option("--edit", "parent", metavar="SNAPSHOT", help="Make a new snapshot from this one.")
@click.option("--as", "snapshot_id", metavar="SNAPSHOT", help="The name of the new snapshot.")
@inexact_option
@option_of(Noted, "note")
@click.option(
    "--engine", "query_engine", type=click.Choice(["duckdb", "spark"]), default="duckdb",
    show_default=True, help="Run the query with Spark SQL, or with DuckDB in this process.",
)  # fmt: skip
@cluster_options
@click.option(
    "--limit", type=click.IntRange(min=1), help=f"Show at most so many rows: {ROWS}; all with --to."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@query_memory_option
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
    inexact: bool,
    note: str,
    query_engine: str,
    limit: int | None,
    query_memory: int | None,
    as_csv: bool,
    to: str | None,
    as_json_: bool,
) -> None:
    """Run SQL on the tables of a lake, by the name <job>.<operator>.<state>.

    An operator's timers are <job>.<operator>.timers, and the rows of a state in all snapshots
    <job>.<operator>.<state>@all. The catalog is in statelake.snapshots, .operators, .states,
    .key_groups and .tables. With --json each row is a line.

    \b
    DELETE, UPDATE and INSERT need --edit and --as: together they make one new snapshot from an
    existing one, and no other snapshot changes. Without --edit they are refused.
    `statelake commit` registers tables that Spark or delta-rs changed as a snapshot.

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
    if inexact and parent is None:
        raise click.UsageError("--inexact goes with --edit")
    _check_options(
        queries, as_of, parent, snapshot_id, query_engine, query_memory, as_csv, to, as_json_
    )
    opened = Lake(lake)
    as_of, parent = of_job(opened, job, as_of), of_job(opened, job, parent)
    if parent is not None and snapshot_id is not None:
        with progress_bar("editing", quiet=as_json_) as progress:
            edited = opened.job(job_of(opened, parent, job), progress=progress)[parent]
            done = edited.edit_sql(snapshot_id, *queries, note=note, inexact=inexact)
        show(done, as_json_=as_json_, marked=done.record.snapshot_id)
        return
    shown = ROWS if limit is None else limit
    kept = limit if to is not None else shown
    try:
        rows = opened.sql(
            queries[0],
            as_of=as_of,
            job=job,
            engine=query_engine,
            limit=kept,
            query_memory=query_memory,
        )
    except ReadOnlyError as error:
        raise click.UsageError(error.problem) from error
    if to is not None:
        write_file(to, rows)
    elif as_json_:
        print_json(rows)
    elif as_csv:
        print_csv(rows)
    elif rows.schema.names:
        print_rows(rows, shown)


def _check_options(
    queries: tuple[str, ...],
    as_of: str | None,
    parent: str | None,
    snapshot_id: str | None,
    engine: str,
    query_memory: int | None,
    as_csv: bool,
    to: str | None,
    as_json_: bool,
) -> None:
    if (parent is None) != (snapshot_id is None):
        raise click.UsageError("--edit names the snapshot to change, and --as the new one")
    if parent is None and len(queries) > 1:
        raise click.UsageError("one query at a time; several statements go with --edit")
    if query_memory and (parent is not None or engine == "spark"):
        raise click.UsageError("--query-memory is for queries of DuckDB")
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


def of_job(lake: Lake, job: str | None, name: str | None) -> str | None:
    """Return the id of the named snapshot; without a job the name must be an id."""
    return name if name is None or job is None else snapshot_named(lake.job(job), name)


def job_of(lake: Lake, snapshot_id: str, job: str | None) -> str:
    """Return the job of a snapshot, if the user named none.

    Raises:
        NotFoundError: No job has that snapshot.
        UsageError: Several jobs have a snapshot of that name.
    """
    if job is not None:
        return job
    first, *others = lake.jobs(snapshot_id)
    if others:
        raise click.UsageError(f"several jobs have a snapshot {snapshot_id}: give --job")
    return first
