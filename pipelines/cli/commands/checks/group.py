"""`statelake check`, the group, and `check compatibility`."""

from __future__ import annotations

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.checks.integrity import integrity
from statelake.pipelines.cli.commands.checks.legality import legality
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.sql_upgrade import check_sql
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.options import (
    answer,
    job_option,
    lake_option,
    snapshot_named,
    snapshot_option,
)


@click.group()
def check() -> None:
    """Check a snapshot before a deploy.

    Exit code 1 if a check finds a fault.

    \b
    Example:
      statelake check compatibility --lake lake --job orders --snapshot monday --against new.yaml
    """


check.add_command(legality)
check.add_command(integrity)
check.add_command(check_sql)


@check.command()
@lake_option
@job_option
@snapshot_option("--snapshot", "snapshot_id", required=True, help="The snapshot to be restored.")
@click.option(
    "--against",
    required=True,
    help="A file with the new types of states, or a savepoint of the new job.",
)
@click.option(
    "--allow-non-restored-state",
    is_flag=True,
    help="The new job may lack an operator.",
)
@plugins_option
@json_option
def compatibility(
    lake: str,
    job: str,
    snapshot_id: str,
    against: str,
    allow_non_restored_state: bool,
    as_json_: bool,
) -> None:
    """Check for every state whether a new job can use it: as it is, migrated, or not at all.

    The verdicts are those of Flink's own serializers, on keyed state and on operator state (a
    list's elements, a broadcast state's keys and values). A split list must stay one, and so must a
    union; state of an operator that the new job lacks is a fault. `unknown` is the verdict on
    classes whose rules are only in their Java code (Kryo, custom serializers); it does not fail the
    check.

    \b
    Examples:
      statelake check compatibility --lake lake --job orders --snapshot monday --against new.yaml
      statelake check compatibility --lake lake --job orders --snapshot monday \\
          --against /savepoints/savepoint-of-the-new-job --json
    """
    opened = Lake(lake).job(job)
    snapshot = opened[snapshot_named(opened, snapshot_id)]
    verdicts = snapshot.check_compatibility(
        against, allow_non_restored_state=allow_non_restored_state
    )
    show(verdicts, as_json_=as_json_)
    answer(yes=not verdicts.faults)
