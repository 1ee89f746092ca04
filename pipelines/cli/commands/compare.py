"""`statelake diff` and `rescale`: compare snapshots, and plan a rescale; nothing is changed."""

from __future__ import annotations

import click

from statelake import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    json_option,
    progress_bar,
    show,
    tell,
)
from statelake.pipelines.cli.options import (
    answer,
    engine_option,
    job_option,
    lake_option,
    snapshot_argument,
    snapshot_named,
    snapshot_option,
)


@click.command()
@lake_option
@job_option
@snapshot_argument("earlier")
@snapshot_argument("later")
@click.option("--examples", default=3, show_default=True, type=click.IntRange(min=0))
@click.option("--fail-on-diff", is_flag=True, help="Exit with 1 if anything differs.")
@engine_option
@plugins_option
@json_option
def diff(
    lake: str,
    job: str,
    earlier: str,
    later: str,
    examples: int,
    fail_on_diff: bool,
    engine: str,
    as_json_: bool,
) -> None:
    """Show what changed from one snapshot to another: added, removed, changed entries.

    \b
    Examples:
      statelake diff --lake lake --job orders monday tuesday
      statelake diff --lake lake --job orders before after --fail-on-diff --json
    """
    with progress_bar("comparing", quiet=as_json_) as progress:
        compared = Lake(lake).job(job, engine=engine, progress=progress)
        earlier, later = (snapshot_named(compared, name) for name in (earlier, later))
        differences = compared[earlier].diff(later, examples=examples)
    show(differences, as_json_=as_json_)
    answer(yes=differences.same or not fail_on_diff)


@click.command("plan-rescale")
@lake_option
@job_option
@snapshot_option("--snapshot", "snapshot_id", required=True, help="The snapshot.")
@click.option(
    "--parallelism", required=True, type=click.IntRange(min=1), help="The new parallelism."
)
@click.option("--max-parallelism", type=click.IntRange(1, 1 << 15), help="A new max parallelism.")
@plugins_option
@json_option
def plan_rescale(
    lake: str,
    job: str,
    snapshot_id: str,
    parallelism: int,
    max_parallelism: int | None,
    as_json_: bool,
) -> None:
    """Show how key groups would be spread over subtasks at another parallelism.

    No data is touched: sizes are from the catalog. `statelake export` then does it.

    \b
    Examples:
      statelake plan-rescale --lake lake --job orders --snapshot sp-1 --parallelism 12
      statelake plan-rescale --lake lake --job orders --snapshot sp-1 --parallelism 200 \\
          --max-parallelism 1000
    """
    opened = Lake(lake).job(job)
    snapshot = opened[snapshot_named(opened, snapshot_id)]
    plans = snapshot.plan_rescale(parallelism, max_parallelism)
    if as_json_:
        as_json([plan.to_json() for plan in plans])
        return
    for plan in plans:
        show(plan, as_json_=False, marked="")
    if snapshot.channels():
        tell("it has records in flight: `statelake export` wants --drop-channel-state for that")
