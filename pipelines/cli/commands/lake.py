"""`statelake import`, `commit`, `snapshots` and `drop`: what puts snapshots into a lake and out."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    progress_bar,
    tell,
    tell_times,
)
from statelake.pipelines.cli.commands.times import Instant
from statelake.pipelines.cli.options import (
    Reading,
    configured_option,
    engine_option,
    job_option,
    lake_option,
    reading_options,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.lake.catalog.dropping import DropPlan, DropResult
from statelake.pipelines.lake.tables.names import TIMERS
from statelake.pipelines.lake.tables.records import AnyState, SnapshotRecord
from statelake.state_core.model.snapshot import TIMER_PREFIX


@click.command("import")
@click.argument("savepoint")
@lake_option
@job_option
@click.option("--snapshot", "snapshot_id", help="Its name; by default Flink's.")
@engine_option
@reading_options
@click.option("--note", default="", help="Kept with the snapshot.")
@click.option(
    "--taken", type=Instant(), help="When the job took it; by default the time of its `_metadata`."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 128),
    help="How many files each state is to have; by default as its bytes ask for.",
)
@plugins_option
@json_option
def import_command(
    savepoint: str,
    lake: str,
    job: str,
    snapshot_id: str | None,
    engine: str,
    reading: Reading,
    note: str,
    taken: datetime | None,
    partitions: int | None,
    as_json_: bool,
) -> None:
    """Import a savepoint or checkpoint as the next snapshot of a job.

    Each state becomes a Delta table, partitioned by key group: a file a megabyte of state, at most
    128. Files that hold the same as in the job's previous snapshot are not written again. Importing
    the same one twice changes nothing.
    What only code of yours understands is typed with --plugins; name the same ones from then on.

    \b
    Examples:
      statelake import /savepoints/savepoint-5f1e2c-0a1b2c3d4e5f --lake /data/lake --job orders
      statelake import s3://bucket/sp --lake s3://bucket/lake --job orders --engine spark
      statelake import old-savepoint --lake lake --job orders --uid counter --uid sessions
      statelake import a-copy --lake lake --job orders --taken 2026-11-20T06:00Z
    """
    with progress_bar("importing", quiet=as_json_, of_bytes=True) as progress:
        opened = Lake(lake).job(job, engine=engine, progress=progress)
        done = opened.import_snapshot(
            savepoint, snapshot_id, **reading, note=note, taken=taken, partitions=partitions
        )
    record = done.record
    if as_json_:
        as_json(
            _summary(record)
            | {
                "new": done.new,
                "kept_files": done.kept_units,
                "written_files": done.written_units,
                "engine": done.engine,
                "tables": sorted(table.path for table in record.tables),
                "times": None if done.times is None else asdict(done.times),
            }
        )
        return
    if not done.new:
        tell(f"{job} has snapshot {record.snapshot_id} already: nothing to do")
        return
    tell(
        f"imported {record.snapshot_id} of {job}: {record.entries:,} entries,"
        f" {bytes_text(record.state_bytes)} of state; wrote {done.written_units} files"
        f" ({bytes_text(record.written_bytes)}), kept {done.kept_units}",
        marked=record.snapshot_id,
    )
    if done.same_as:
        tell(f"it is the same savepoint as {done.same_as}; `statelake drop` deletes one of them")
    versions = {table.path: table.version for table in record.tables}
    rows = [
        (state.table, str(versions[state.table]), f"{state.entries:,}", _kind(state),
         state.value_type)
        for state in sorted(record.all_states, key=lambda state: (state.table, state.name))
    ]  # fmt: skip
    print_table("", ("<table", ">version", ">entries", "<kind", "<value"), rows)
    tell_times(done.times)


def _kind(state: AnyState) -> str:
    """What a state is; of timers also which, as several queues may be in one table."""
    is_queue = state.kind == TIMERS
    return f"{TIMERS} {state.name.removeprefix(TIMER_PREFIX)}" if is_queue else state.kind


@click.command()
@lake_option
@job_option
@click.option("--snapshot", "snapshot_id", required=True, help="The name of the new snapshot.")
@snapshot_option("--parent", required=True, help="The snapshot whose tables were edited.")
@click.option("--note", default="", help="Why; kept with the snapshot.")
@engine_option
@plugins_option
@json_option
def commit(
    lake: str, job: str, snapshot_id: str, parent: str, note: str, engine: str, as_json_: bool
) -> None:
    """Register edited tables as a new snapshot, which exports as changed.

    What was edited is checked first: columns and types as before, no key twice, every key in its
    key group, and nothing that another snapshot has and the parent has not. Nothing is registered
    that could not be written back to Flink. It is for tables that Spark, delta-rs or another tool
    changed; `statelake sql --edit` edits a snapshot in one step.

    \b
    Example, after `DELETE FROM delta.`lake/orders/keyed/counter/count` ...` in Spark:
      statelake commit --lake lake --job orders --parent savepoint-5f1e2c-0a1b2c3d4e5f \\
          --snapshot without-alice --note "erasure request 4711"
      statelake export --lake lake --job orders --snapshot without-alice --to /savepoints/clean
    """
    opened = Lake(lake)
    parent = snapshot_named(opened.catalog, job, parent)
    with progress_bar("checking", quiet=as_json_) as progress:
        job_of_lake = opened.job(job, engine=engine, progress=progress)
        done = job_of_lake.commit(snapshot_id, parent, note=note)
    if as_json_:
        changed = {name: {"before": a, "after": b} for name, (a, b) in done.changed.items()}
        as_json(_summary(done.record) | {"changed": changed})
        return
    tell(f"committed {snapshot_id}, made from {parent}", marked=snapshot_id)
    for name, (before, after) in done.changed.items():
        tell(f"  {name}: {before:,} entries before, {after:,} now")
    if not done.changed:
        tell("  no table differs from the parent's")


@click.command()
@lake_option
@configured_option("job", "Only this job's; '' for all.")
@json_option
def snapshots(lake: str, job: str | None, as_json_: bool) -> None:
    """List the snapshots of a lake, the oldest first.

    A row that can't be believed is none: what is wrong with the first is said behind the others.
    What is said of states and files is looked at when a snapshot is used. `held` says why one may
    not be dropped (`statelake hold`).

    Flink writes no time into a snapshot. So `taken` is what `import --taken` said, or else when the
    file `_metadata` was last written, which a copy changes (`cp -p` and `rsync -t` do not).

    \b
    Examples:
      statelake snapshots --lake /data/lake
      statelake snapshots --lake /data/lake --job orders --json
    """
    records, bad = Lake(lake).catalog.listed(job or None)
    if as_json_:
        as_json([_summary(record) for record in records])
    else:
        _print_snapshots(records)
    if bad:
        raise bad[0].error


@click.command()
@lake_option
@job_option
@snapshot_option("--snapshot", "snapshot_ids", multiple=True, help="A snapshot to delete.")
@click.option("--keep", type=click.IntRange(min=0), help="Delete all but the newest N.")
@click.option("--yes", is_flag=True, help="Do it: without this, only the plan is shown.")
@json_option
def drop(
    lake: str,
    job: str,
    snapshot_ids: tuple[str, ...],
    keep: int | None,
    yes: bool,
    as_json_: bool,
) -> None:
    """Delete snapshots, and the files that only they need.

    One with a hold stays: to name it is answered with no, and --keep passes over it.

    Nothing happens without --yes: which snapshots would go is shown, and what that frees.

    \b
    Examples:
      statelake drop --lake /data/lake --job orders --snapshot savepoint-5f1e2c-0a1b2c3d4e5f
      statelake drop --lake /data/lake --job orders --keep 30 --yes
    """
    if bool(snapshot_ids) == (keep is not None):
        raise click.UsageError("give either --snapshot (once or more) or --keep")
    opened = Lake(lake).job(job)
    # all are looked up first: what is dropped must not change what `latest` is
    named = [snapshot_named(opened.lake.catalog, job, name) for name in snapshot_ids]
    plan = opened.plan_drop(*named, keep=keep)
    done = opened.drop(*named, keep=keep) if yes else None
    if as_json_:
        as_json(asdict(plan) | {"dropped": None if done is None else asdict(done)})
    elif done is not None:
        tell(
            f"dropped {', '.join(done.dropped) or 'nothing'}: {bytes_text(done.freed_bytes)} freed"
            f" in {done.files} files; {_kept(done)}"
        )
    elif plan.going:
        tell(
            f"nothing was dropped: --yes drops {', '.join(plan.going)}, and frees about"
            f" {bytes_text(plan.frees)}; {_kept(plan)}"
        )
    else:
        tell(f"nothing to drop: {_kept(plan)}")


def _kept(plan: DropPlan | DropResult) -> str:
    """Say how many snapshots stay, and which only because of a hold."""
    held = f", {', '.join(plan.held)} by a hold" if plan.held else ""
    return f"{len(plan.kept)} snapshots kept{held}"


def _summary(record: SnapshotRecord) -> dict[str, Any]:
    hidden = ("metadata", "carried", "operators")
    return {name: value for name, value in record.to_row().items() if name not in hidden}


def _print_snapshots(records: list[SnapshotRecord]) -> None:
    columns = [
        "<job", "<snapshot", "<from", "<taken", ">entries", ">state", ">written", "<note"
    ]  # fmt: skip
    rows = [
        [record.job, record.snapshot_id,
         f"{record.origin} of {record.parent}" if record.parent else record.format,
         f"{record.taken_at:%Y-%m-%d %H:%M}", f"{record.entries:,}", bytes_text(record.state_bytes),
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
