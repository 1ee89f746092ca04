"""`statelake migrate`: states under new types, in one snapshot or all of a job's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    json_option,
    print_table,
    progress_bar,
    tell,
    tell_times,
)
from statelake.pipelines.cli.options import (
    answer,
    engine_option,
    job_option,
    lake_option,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.changes import read_changes
from statelake.pipelines.lake.edit.kryo_upgrading import LATER
from statelake.pipelines.operations.migrations import (
    Outcome,
    migrate_one,
    preview_migration,
    upgrade_kryo_one,
)
from statelake.state_core.errors import StateError


@click.command()
@lake_option
@job_option
@snapshot_option("--snapshot", "snapshot_ids", multiple=True, help="A snapshot to migrate.")
@click.option("--all", "every", is_flag=True, help="All snapshots that were not migrated yet.")
@click.option("--state", default="", metavar="OPERATOR/STATE", help="Only this one of the file's.")
@click.option("--to", "spec", default="", help="A file that says what each state becomes.")
@click.option(
    "--kryo-to-flink-2",
    is_flag=True,
    help="Rewrite the values of Flink 1's Kryo so that Flink 2 can read them.",
)
@click.option("--suffix", default="-migrated", show_default=True, help="Behind the old id.")
@click.option("--dry-run", is_flag=True, help="Only say whether it would work.")
@click.option("--note", default="", help="Kept with the new snapshot.")
@engine_option
@plugins_option
@json_option
def migrate(
    lake: str,
    job: str,
    snapshot_ids: tuple[str, ...],
    every: bool,
    state: str,
    spec: str,
    kryo_to_flink_2: bool,
    suffix: str,
    dry_run: bool,
    note: str,
    engine: str,
    as_json_: bool,
) -> None:
    """Give states new types, as one new snapshot; the old one stays.

    What Flink would carry over by itself (a field added or removed, an enum's constants reordered)
    needs only the new type. For more, the file gives SQL over the old value. Compatibility is
    resolved first; every value is read back before the new snapshot exists. With --all, snapshots
    that were migrated already are skipped, so a stopped run is resumed by running it again. One of
    the new id that another state, another file or something else made is refused. All states that
    the file names become another type in one snapshot, or none does.
    What Kryo wrote of classes that are not known needs their fields, in --kryo, or a decoder of
    yours, in --plugins or in a Python file for --to.

    With --kryo-to-flink-2, all states with values of Kryo's become what Flink 2 reads, in one new
    snapshot; Flink itself can't restore them. Which stay as they are, and why, is listed.

    A state may be operator state: the elements of a list (split or union), or the values of a
    broadcast state, whose keys stay. Where the copies of a broadcast state differ, nothing is
    migrated: the lake has but one of them. Decoders are for keyed state only.

    \b
    Examples:
      statelake migrate --lake lake --job shop --snapshot monday --state customers/customer \\
          --to customer.yaml
      statelake migrate --lake lake --job shop --all --state rules/rules --to rule.yaml --dry-run
      statelake migrate --lake lake --job shop --all --to all-states.yaml
      statelake migrate --lake lake --job shop --snapshot monday --kryo-to-flink-2 --suffix -2
    """
    if bool(snapshot_ids) == every:
        raise click.UsageError("give either --snapshot (once or more) or --all")
    if bool(spec) == kryo_to_flink_2 or (state and not spec):
        raise click.UsageError("give either --to, and --state if need be, or --kryo-to-flink-2")
    opened = Catalog(lake)
    named = dict.fromkeys(snapshot_named(opened, job, name) for name in snapshot_ids)
    names = list(named) or [
        summary.snapshot_id
        for summary in opened.summaries(job)
        if summary.origin != "migrate" or summary.snapshot_id != f"{summary.parent}{suffix}"
    ]
    if kryo_to_flink_2:
        done = [
            _upgrade_kryo(
                opened, job, name, f"{name}{suffix}", dry_run=dry_run, note=note, engine=engine,
                quiet=as_json_,
            )
            for name in names
        ]  # fmt: skip
        if as_json_:
            as_json(done)
        answer(yes=all(state["left"] in ("", LATER) for row in done for state in row["states"]))
        return
    changes = read_changes(spec, state)
    outcomes = []
    for name in names:
        if dry_run:
            outcomes.append(preview_migration(opened, job, name, *changes))
            continue
        try:
            with progress_bar(f"migrating {name}", quiet=as_json_) as progress:
                outcomes.append(
                    migrate_one(
                        opened,
                        job,
                        name,
                        *changes,
                        suffix=suffix,
                        note=note,
                        engine=engine,
                        progress=progress,
                    )
                )
        except StateError as error:
            if not every:
                raise
            outcomes.append(Outcome(name, "", "failed", 0, str(error)))
    failed = any(outcome.outcome in ("failed", "incompatible", "unknown") for outcome in outcomes)
    if as_json_:
        as_json([asdict(outcome) for outcome in outcomes])
    else:
        rows = [(o.snapshot, o.made, o.outcome, f"{o.entries:,}", o.why) for o in outcomes]
        columns = ("<snapshot", "<made", "<outcome", ">values", "<why")
        what = ", ".join(f"{change.operator}/{change.state}" for change in changes)
        print_table(f"{what} of {len(outcomes)} snapshots", columns, rows)
        for outcome in outcomes:
            tell_times(outcome.times)
        if dry_run:
            tell("a dry run: nothing was changed")
    answer(yes=not failed)


def _upgrade_kryo(
    lake: Catalog,
    job: str,
    snapshot: str,
    target: str,
    *,
    dry_run: bool,
    note: str,
    engine: str,
    quiet: bool,
) -> dict[str, Any]:
    """Write what Flink 1's Kryo wrote as Flink 2's does, and say what became of each state."""
    with progress_bar(f"migrating {snapshot}", quiet=quiet or dry_run) as progress:
        done = upgrade_kryo_one(
            lake, job, snapshot, target, dry_run=dry_run, note=note, engine=engine,
            progress=progress,
        )  # fmt: skip
    outcomes = ["as it was" if state.left else "for Flink 2" for state in done.states]
    if not quiet and done.made and not done.states:
        tell(f"{target} is there already: {snapshot} was migrated before")
    elif not quiet:
        rows = [
            (f"{state.operator}/{state.state}", outcome, f"{state.entries:,}", state.left)
            for state, outcome in zip(done.states, outcomes, strict=True)
        ]
        now = f", now {done.made}" if done.made else ""
        title = f"{snapshot}: {len(done.states)} states with Kryo{now}"
        print_table(title, ("<state", "<values", ">entries", "<why"), rows)
        if dry_run:
            tell("a dry run: nothing was changed")
    states = [
        {**vars(state), "outcome": outcome}
        for state, outcome in zip(done.states, outcomes, strict=True)
    ]
    return {"snapshot": snapshot, "made": done.made, "states": states}
