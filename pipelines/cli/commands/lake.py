"""`statelake import`, `commit`, `snapshots` and `drop`: snapshots of a lake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from statelake.pipelines.api import Job, Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    progress_bar,
    show,
    tell_times,
)
from statelake.pipelines.cli.options import (
    configured_option,
    lake_option,
    opened_job,
    opened_job_and_engine,
    option_of,
    refuse_all,
    request_options,
    snapshot_option,
    yes_option,
)
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.requests.shared import Noted

if TYPE_CHECKING:
    from statelake.pipelines.lake.tables.records import SnapshotRecord
    from statelake.state_core.errors import StateError


@click.command("import")
@click.argument("savepoint")
@opened_job_and_engine
@click.option("--snapshot", "snapshot_id", help="The snapshot's name; by default Flink's.")
@request_options(Import)
@plugins_option
@json_option
def import_command(
    savepoint: str,
    opened: Job,
    snapshot_id: str | None,
    request: Import,
    as_json_: bool,
) -> None:
    """Import a savepoint or checkpoint as the next snapshot of a job.

    Each state becomes a Delta table, partitioned by key group: a file a megabyte of state, at most
    128. Files that hold the same as in the job's previous snapshot are not written again. Importing
    the same one twice changes nothing.
    Types that only your code reads need --plugins; name the same ones from then on.

    With --plan, of a Flink SQL job, tables have the columns of the query, and its nodes name
    operators: "GroupAggregate[5]". An export writes the same savepoint with and without.
    With --decode, texts and bytes that hold JSON or Avro become columns, too.

    \b
    Examples:
      statelake import /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f --lake /data/lake --job orders
      statelake import s3://bucket/sp --lake s3://bucket/lake --job orders --engine spark
      statelake import old-savepoint --lake lake --job orders --uid counter --uid sessions
      statelake import a-copy --lake lake --job orders --taken 2026-11-20T06:00Z
      statelake import savepoint-5f1e2c-0a1b2c3d4e5f --lake lake --job shop --plan plan.json
      statelake import savepoint-5f1e2c-0a1b2c3d4e5f --lake lake --job crm --decode crm/profile=json
    """
    with progress_bar("importing", quiet=as_json_, of_bytes=True) as progress:
        importing = replace(opened, progress=progress)
        done = importing.import_snapshot(savepoint, snapshot_id, **vars(request))
    show(done, as_json_=as_json_, marked=done.record.snapshot_id)
    if done.new and not as_json_:
        tell_times(done.times)


@click.command()
@opened_job_and_engine
@click.option("--snapshot", "snapshot_id", required=True, help="The name of the new snapshot.")
@snapshot_option("--parent", required=True, help="The whole id of the snapshot that was edited.")
@option_of(Noted, "note")
@plugins_option
@json_option
def commit(opened: Job, snapshot_id: str, parent: str, note: str, as_json_: bool) -> None:
    """Register edited tables as a new snapshot.

    The edited tables are checked first: columns and types are as before, no key is there twice,
    every key is in its key group, and no file is of another snapshot than the parent. What could
    not be written back to Flink is refused. The command is for tables that Spark, delta-rs or
    another tool changed; `statelake sql --edit` edits a snapshot in one step.

    \b
    Example, after `DELETE FROM delta.`lake/orders/keyed/counter/count` ...` in Spark:
      statelake commit --lake lake --job orders --parent savepoint-5f1e2c-0a1b2c3d4e5f \\
          --snapshot without-alice --note "erasure request 4711"
      statelake export --lake lake --job orders --snapshot without-alice --to /savepoints/clean
    """
    with progress_bar("checking", quiet=as_json_) as progress:
        done = replace(opened, progress=progress).commit(snapshot_id, parent, note=note)
    show(done, as_json_=as_json_, marked=snapshot_id)


@click.command()
@lake_option
@configured_option("job", "Only this job's; '' for all.")
@json_option
def snapshots(lake: str, job: str | None, as_json_: bool) -> None:
    """List the snapshots of a lake, the oldest first.

    Invalid rows of the catalog are left out, and the command ends with their errors.
    States and files of a snapshot are checked when it is used. `held` has the reasons why it can't
    be dropped (`statelake hold`).

    Flink writes no time into a snapshot. So `taken` is the time that `import --taken` gave, or when
    the file `_metadata` was last written, which a copy changes (`cp -p` and `rsync -t` do not).
    This guess has a question mark; in JSON its `taken_from` is `file`.

    \b
    Examples:
      statelake snapshots --lake /data/lake
      statelake snapshots --lake /data/lake --job orders --json
    """
    errors: list[StateError] = []
    records = Lake(lake).snapshots(job or None, errors=errors)
    if as_json_:
        as_json(records)
    else:
        _print_snapshots(records)
    refuse_all(errors)


@click.command()
@opened_job
@snapshot_option("--snapshot", "snapshot_ids", multiple=True, help="The whole id of a snapshot.")
@click.option("--keep", type=click.IntRange(min=0), help="Delete all but the newest N.")
@yes_option
@json_option
def drop(
    opened: Job, snapshot_ids: tuple[str, ...], keep: int | None, yes: bool, as_json_: bool
) -> None:
    """Delete snapshots, and the files that only they need.

    A snapshot is named by its whole id: `latest`, dates and beginnings of ids are refused. Given
    again, the command ends with exit code 3, and changes nothing. A snapshot with a hold is never
    deleted: to name it is an error, and --keep skips it.

    Without --yes nothing is deleted: the command shows which snapshots would be deleted, and how
    many bytes that would free.

    \b
    Examples:
      statelake drop --lake /data/lake --job orders --snapshot savepoint-5f1e2c-0a1b2c3d4e5f
      statelake drop --lake /data/lake --job orders --keep 30 --yes
    """
    if bool(snapshot_ids) == (keep is not None):
        raise click.UsageError("give either --snapshot (once or more) or --keep")
    plan = opened.plan_drop(*snapshot_ids, keep=keep)
    done = opened.drop(*snapshot_ids, keep=keep) if yes else None
    if as_json_:
        as_json(plan.to_json() | {"dropped": done})
    else:
        show(done or plan, marked="")


def _print_snapshots(records: list[SnapshotRecord]) -> None:
    columns = [
        "<job", "<snapshot", "<from", "<taken", ">entries", ">state", ">written", "<note"
    ]  # fmt: skip
    rows = [
        [record.job, record.snapshot_id,
         f"{record.origin} of {record.parent}" if record.parent else record.format,
         record.taken_text, f"{record.entries:,}", bytes_text(record.state_bytes),
         bytes_text(record.written_bytes), record.note]
        for record in records
    ]  # fmt: skip
    for column, texts in (
        (
            "<held",
            ["; ".join(hold.reason or "held" for hold in record.holds) for record in records],
        ),
        ("<erased by", [", ".join(record.erased) for record in records]),
    ):
        if any(texts):
            columns.append(column)
            rows = [[*row, text] for row, text in zip(rows, texts, strict=True)]
    print_table(f"{len(records)} snapshots", columns, rows)
