"""`statelake hold`, `release` and `retain`: keep snapshots, one by one or by a policy."""

from __future__ import annotations

import click

from statelake.pipelines.api import Job
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    show,
    tell,
)
from statelake.pipelines.cli.options import opened_job, snapshot_argument, yes_option
from statelake.state_core.printable import Table


@click.command()
@opened_job
@snapshot_argument("snapshot")
@click.option("--reason", default="", help="The reason, kept with the hold.")
@json_option
def hold(opened: Job, snapshot: str, reason: str, as_json_: bool) -> None:
    """Protect a snapshot from deletion, until its holds are released.

    It is named by its whole id. Neither `drop` nor `retain` nor Dagster's pruning deletes it.
    Another reason is another hold; the same reason again changes nothing.

    \b
    Examples:
      statelake hold --lake /data/lake --job orders monday --reason "case 4711"
      statelake hold --lake /data/lake --job orders savepoint-5f1e2c-0a1b2c3d4e5f
    """
    holds = opened[snapshot].hold(reason)
    if as_json_:
        as_json({"job": opened.name, "snapshot": snapshot, "holds": holds})
        return
    tell(f"{snapshot} of {opened.name} is held", marked=snapshot)
    print_table(Table.of("", ("<since:%Y-%m-%d %H:%M", "<reason"), holds))


@click.command()
@opened_job
@snapshot_argument("snapshot")
@click.option("--reason", help="Only the hold of that reason; all of them by default.")
@json_option
def release(opened: Job, snapshot: str, reason: str | None, as_json_: bool) -> None:
    """End the holds of a snapshot, so that it can be deleted; it is named by its whole id.

    Exit code 1 if it has none.

    \b
    Examples:
      statelake release --lake /data/lake --job orders monday
      statelake release --lake /data/lake --job orders monday --reason "case 4711"
    """
    ended = opened[snapshot].release(reason)
    if as_json_:
        as_json({"job": opened.name, "snapshot": snapshot, "ended": ended})
        return
    named = ", ".join(why or "without a reason" for why in ended)
    tell(f"released {snapshot} of {opened.name}: {named}", marked=snapshot)


@click.command()
@opened_job
@click.option("--policy", required=True, help="The snapshots to keep: see above.")
@yes_option
@json_option
def retain(opened: Job, policy: str, yes: bool, as_json_: bool) -> None:
    """Delete the snapshots that a policy does not keep, and the files that only they need.

    A policy has parts, each with an age and a period; a snapshot stays if any part keeps it. `30d
    all` keeps all of the last 30 days, `1y daily` the newest of each day of the last year, `forever
    monthly` the newest of each month. A number without a unit counts periods: `90 daily` keeps the
    newest of each of 90 days that have one, however old. Units are h, d, w, mo (30 days) and y
    (365). Periods are all, hourly, daily, weekly, monthly and yearly, by the time at which a
    snapshot was taken, in UTC.

    The newest import always stays, as do snapshots with a hold and snapshots derived from others
    (migrated, edited), which `drop` deletes by name.

    Without --yes nothing is deleted: the command shows which snapshots would stay, and why.

    \b
    Examples:
      statelake retain --lake /data/lake --job orders --policy "30d all, 1y daily, forever monthly"
      statelake retain --lake /data/lake --job orders --policy "30 all, 90 daily" --yes
    """
    plan = opened.plan_retain(policy)
    dropped = opened.retain(policy) if yes and plan.dropped_ids else None
    if as_json_:
        as_json({"policy": policy, **plan.to_json(), "dropped": dropped})
        return
    show(plan)
    if dropped is not None:
        freed = f"{bytes_text(dropped.freed_bytes)} freed in {dropped.files} files"
        tell(f"dropped {len(dropped.dropped)}: {freed}")
    elif plan.dropped_ids:
        tell(f"nothing was dropped: --yes drops {len(plan.dropped_ids)}, and frees about"
             f" {bytes_text(plan.frees)}")  # fmt: skip
