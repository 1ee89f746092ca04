"""`statelake check legality`: check a declared job by the rules, and against a snapshot."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.options import (
    answer,
    configured_option,
    lake_is_meant,
    request_options,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.requests.checks import CheckLegality, CheckLegalityOfSavepoint


@click.command()
@click.argument("declared", metavar="MODULE:JOB")
@configured_option("lake", "The lake that holds the snapshot to be restored.")
@configured_option("job", "The job's name in the lake.")
@snapshot_option("--snapshot", "snapshot_id", help="The snapshot to be restored.")
@request_options(CheckLegalityOfSavepoint)
@plugins_option
@json_option
def legality(
    declared: str,
    lake: str | None,
    job: str | None,
    snapshot_id: str | None,
    request: CheckLegalityOfSavepoint,
    as_json_: bool,
) -> None:
    """Report all that is wrong with the states that a job declares.

    A job is a JobDeclaration: MODULE:JOB, FILE.py:JOB, or a file of JSON. It is checked by the
    rules of legality (which state may be used over which streams) and, if a snapshot is named,
    against its states, which may be missing, moved, or of another kind or type.

    \b
    Examples:
      statelake check legality acme.jobs:ORDERS
      statelake check legality jobs.py:ORDERS --lake lake --job orders --snapshot monday
      statelake check legality orders.json --savepoint /savepoints/savepoint-5f1e2c --json
    """
    if not lake_is_meant():
        lake = job = None
    given = [lake, job, snapshot_id]
    if (any(given) and not all(given)) or (request.savepoint and any(given)):
        raise click.UsageError("give --lake, --job and --snapshot, or --savepoint, or neither")
    if str(Path.cwd()) not in sys.path:
        # as `python -m` does: modules of the working directory can be imported
        sys.path.insert(0, str(Path.cwd()))
    if lake and job and snapshot_id:
        opened = sl.Lake(lake).job(job)
        snapshot = opened[snapshot_named(opened, snapshot_id)]
        words = request.words(CheckLegality) | {"declared": declared}
        findings = snapshot.check_legality(**words)
    else:
        findings = sl.check_legality(**vars(request) | {"declared": declared})
    show(findings, as_json_=as_json_)
    answer(yes=not findings.faults)
