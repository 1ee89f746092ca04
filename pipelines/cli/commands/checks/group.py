"""`statelake check`, the group, and `check compatibility`."""

from __future__ import annotations

import click

from statelake.pipelines.api import Job
from statelake.pipelines.cli.commands.checks.integrity import integrity
from statelake.pipelines.cli.commands.checks.legality import legality
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.sql_upgrade import check_sql
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.options import (
    answer,
    opened_job,
    request_options,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.requests.checks import CheckCompatibility


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
@opened_job
@snapshot_option("--snapshot", "snapshot_id", required=True, help="The snapshot to be restored.")
@request_options(CheckCompatibility)
@plugins_option
@json_option
def compatibility(
    opened: Job, snapshot_id: str, request: CheckCompatibility, as_json_: bool
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
    verdicts = opened[snapshot_named(opened, snapshot_id)].check_compatibility(**vars(request))
    show(verdicts, as_json_=as_json_)
    answer(yes=not verdicts.faults)
