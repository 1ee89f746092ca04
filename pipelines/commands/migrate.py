"""`statelake migrate`: one state's values under a new type, in one snapshot or all of a job's."""

from __future__ import annotations

from dataclasses import dataclass

import click

from pipelines.commands.lake import engine_option, job_option, lake_option
from pipelines.commands.terminal import as_json, console, json_option, print_table, progress_bar
from pipelines.lake.catalog import Lake
from pipelines.lake.changes import read_changes
from pipelines.lake.migrating import (
    Staging,
    ValueChange,
    migrate_snapshot,
    resolve_change,
)
from state_core.errors import StateError

__all__ = ["migrate"]


@dataclass(frozen=True)
class _Outcome:
    """What became of one snapshot."""

    snapshot: str
    made: str
    outcome: str
    entries: int = 0
    why: str = ""


@click.command()
@lake_option
@job_option
@click.option("--snapshot", "snapshot_ids", multiple=True, help="A snapshot to migrate.")
@click.option("--all", "every", is_flag=True, help="All snapshots that were not migrated yet.")
@click.option("--state", required=True, metavar="OPERATOR/STATE", help="The state.")
@click.option("--to", "spec", required=True, help="A file that says what it becomes.")
@click.option("--suffix", default="-migrated", show_default=True, help="Behind the old id.")
@click.option("--dry-run", is_flag=True, help="Only say whether it would work.")
@click.option("--note", default="", help="Kept with the new snapshot.")
@engine_option
@json_option
@click.pass_context
def migrate(
    context: click.Context,
    lake: str,
    job: str,
    snapshot_ids: tuple[str, ...],
    every: bool,
    state: str,
    spec: str,
    suffix: str,
    dry_run: bool,
    note: str,
    engine: str,
    as_json_: bool,
) -> None:
    """Give one state's values a new type, as a new snapshot; the old one stays.

    What Flink would carry over by itself (a field added or removed, an enum's constants reordered)
    needs only the new type. For more, the file gives Spark SQL over the old value. Compatibility is
    resolved first; every value is read back before the new snapshot exists. With --all, snapshots
    that were migrated already are skipped, so a stopped run is resumed by running it again.

    \b
    Examples:
      statelake migrate --lake lake --job shop --snapshot monday --state customers/customer \\
          --to customer.yaml
      statelake migrate --lake lake --job shop --all --state customers/customer --to customer.yaml
    """
    if bool(snapshot_ids) == every:
        raise click.UsageError("give either --snapshot (once or more) or --all")
    opened = Lake(lake)
    (change,) = read_changes(spec, state)
    known = [one.snapshot_id for one in opened.summaries(job)]
    wanted = list(snapshot_ids) or [one for one in known if not one.endswith(suffix)]
    outcomes = []
    for one in wanted:
        if every and f"{one}{suffix}" in known:
            outcomes.append(_Outcome(one, f"{one}{suffix}", "migrated before"))
        elif dry_run:
            outcomes.append(_resolve(opened, job, one, change))
        else:
            outcomes.append(
                _migrate(opened, job, one, suffix, change, note, engine, as_json_, every)
            )
    failed = any(one.outcome in ("failed", "incompatible") for one in outcomes)
    if as_json_:
        as_json([vars(one) for one in outcomes])
    else:
        rows = [(o.snapshot, o.made, o.outcome, f"{o.entries:,}", o.why) for o in outcomes]
        columns = ("<snapshot", "<made", "<outcome", ">values", "<why")
        print_table(f"{state} of {len(outcomes)} snapshots", columns, rows)
        if dry_run:
            console().print("a dry run: nothing was changed")
    if failed:
        context.exit(1)


def _resolve(lake: Lake, job: str, snapshot_id: str, change: ValueChange) -> _Outcome:
    _, state, result = resolve_change(lake.snapshot(job, snapshot_id), change)
    why = "; ".join(str(one) for one in result.reasons)
    possible = result.usable or bool(change.expressions)
    verdict = result.verdict.text if possible else "incompatible"
    return _Outcome(snapshot_id, "", verdict, state.entries, why)


def _migrate(
    lake: Lake,
    job: str,
    snapshot_id: str,
    suffix: str,
    change: ValueChange,
    note: str,
    engine: str,
    quiet: bool,
    go_on: bool,
) -> _Outcome:
    """Migrate one; in a run over many, an error is this one's outcome and the rest goes on."""
    made = f"{snapshot_id}{suffix}"
    try:
        with progress_bar(f"migrating {snapshot_id}", quiet=quiet) as progress:
            done = migrate_snapshot(
                lake, job, snapshot_id, made, change, staging=_staging(lake, change), note=note,
                engine=engine, progress=progress,
            )  # fmt: skip
    except StateError as error:
        if not go_on:
            raise
        return _Outcome(snapshot_id, "", "failed", 0, str(error))
    if done.record.snapshot_id == snapshot_id:
        return _Outcome(snapshot_id, snapshot_id, "compatible as it is")
    why = "; ".join(str(one) for one in done.result.reasons)
    return _Outcome(snapshot_id, made, "migrated", done.entries, why)


def _staging(lake: Lake, change: ValueChange) -> Staging | None:
    """Spark, where there are expressions."""
    if not change.expressions:
        return None
    from pipelines.spark.expressions import expression_staging  # noqa: PLC0415 - only when wanted
    from pipelines.spark.session import open_session  # noqa: PLC0415 - the same

    return expression_staging(open_session(), lake, change)
