"""`statelake diff`, `growth` and `plan-rescale`: compare snapshots; nothing is changed."""

from __future__ import annotations

import click

import statelake as sl
from statelake import Job, Lake
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
    configured_option,
    engine_option,
    lake_is_meant,
    opened_job,
    reading_options,
    refuse_untrusted,
    request_options,
    snapshot_argument,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.requests.reading import Comparison, Forecast, GrowthOfJob
from statelake.pipelines.requests.shared import Reading


@click.command()
@snapshot_argument("earlier")
@snapshot_argument("later")
@configured_option("lake", "Compare a job's snapshots in a lake: a directory or URI.")
@configured_option("job", "The job's name in the lake.")
@request_options(Comparison)
@click.option("--fail-on-diff", is_flag=True, help="Exit with 1 if anything differs.")
@reading_options
@engine_option
@plugins_option
@json_option
def diff(
    earlier: str,
    later: str,
    lake: str | None,
    job: str | None,
    request: Comparison,
    fail_on_diff: bool,
    reading: Reading,
    engine: str,
    as_json_: bool,
) -> None:
    """Show what changed from one snapshot to another: added, removed, changed entries, and bytes.

    EARLIER and LATER are snapshots of a lake, or the directories of two savepoints or checkpoints,
    of which all state is read. Where statelake.toml or the environment names a lake, a name with a
    slash is a directory: ./monday.

    Bytes are those of keys and values, as `statelake growth` counts them.

    \b
    Examples:
      statelake diff --lake lake --job orders monday tuesday
      statelake diff --lake lake --job orders before after --fail-on-diff --json
      statelake diff savepoints/monday savepoints/tuesday --sort bytes
    """
    if not lake_is_meant() and any("/" in name for name in (earlier, later)):
        lake = None
    elif lake is not None:
        refuse_untrusted(click.get_current_context())
        if job is None:
            raise click.UsageError("a lake has snapshots of several jobs: give --job")
        if any(vars(reading).values()):
            raise click.UsageError("--uid and --allow-external are for directories")
    elif lake_is_meant():
        raise click.UsageError("--job is one of a lake: give --lake, too")
    with progress_bar("comparing", quiet=as_json_) as progress:
        if lake is None:
            differences = sl.diff(earlier, later, **vars(request), **vars(reading))
        else:
            compared = Lake(lake).job(job or "", engine=engine, progress=progress)
            earlier, later = (snapshot_named(compared, name) for name in (earlier, later))
            differences = compared[earlier].diff(later, **vars(request))
    show(differences, as_json_=as_json_)
    if as_json_ and differences.unread:
        click.echo(differences.unread_text, err=True)
    answer(yes=differences.same or not fail_on_diff)


@click.command()
@click.argument("savepoints", nargs=-1)
@configured_option("lake", "Look at a job's snapshots in a lake instead: a directory or URI.")
@configured_option("job", "The job's name in the lake.")
@request_options(GrowthOfJob)
@reading_options
@engine_option
@plugins_option
@json_option
def growth(
    savepoints: tuple[str, ...],
    lake: str | None,
    job: str | None,
    request: GrowthOfJob,
    reading: Reading,
    engine: str,
    as_json_: bool,
) -> None:
    """Show which state grows, and why.

    First the answer in a few sentences; then all states, snapshots, and the key groups that grew
    most. A job's snapshots in a lake tell most: also which entries left. Of two or more SAVEPOINTs
    all state is read.

    \b
    Examples:
      statelake growth --lake lake --job orders
      statelake growth --lake lake --job orders --since 2026-11-01 --ahead 90 --json
      statelake growth savepoint-5f1e2c-0a1b2c3d4e5f savepoint-9a8b7c-5f4e3d2c1b0a
    """
    if savepoints and not lake_is_meant():
        lake = None
    if lake is not None:
        refuse_untrusted(click.get_current_context())
    if bool(savepoints) == (lake is not None) or (lake is not None and job is None):
        raise click.UsageError("give either SAVEPOINTs, or --lake and --job")
    if savepoints and (request.since or request.until):
        raise click.UsageError("--since and --until name snapshots of a lake")
    if lake is not None and any(vars(reading).values()):
        raise click.UsageError("--uid and --allow-external are for SAVEPOINTs")
    with progress_bar("comparing", quiet=as_json_) as progress:
        if lake is None:
            grown = sl.growth(savepoints, **request.words(Forecast), **vars(reading))
        else:
            stored = Lake(lake).job(job or "", engine=engine, progress=progress)
            ends = {name: getattr(request, name) for name in ("since", "until")}
            ends = {name: each and snapshot_named(stored, each) for name, each in ends.items()}
            grown = stored.growth(**vars(request) | ends)
    show(grown, as_json_=as_json_)


@click.command("plan-rescale")
@opened_job
@snapshot_option("--snapshot", "snapshot_id", required=True, help="The snapshot.")
@click.option(
    "--parallelism", required=True, type=click.IntRange(min=1), help="The new parallelism."
)
@click.option("--max-parallelism", type=click.IntRange(1, 1 << 15), help="A new max parallelism.")
@plugins_option
@json_option
def plan_rescale(
    opened: Job,
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
    snapshot = opened[snapshot_named(opened, snapshot_id)]
    plans = snapshot.plan_rescale(parallelism, max_parallelism)
    if as_json_:
        as_json(plans)
        return
    for plan in plans:
        show(plan, as_json_=False, marked="")
    if snapshot.channels():
        tell("it has records in flight: `statelake export` wants --drop-channel-state for that")
