"""`statelake flink`: jobs on a live cluster, and their savepoints."""

from __future__ import annotations

import click

from statelake.pipelines.cli.commands.flink.canary import canary, drill
from statelake.pipelines.cli.commands.flink.jobs import cancel, checkpoints, jobs
from statelake.pipelines.cli.commands.flink.rescale import rescale
from statelake.pipelines.cli.commands.flink.runs import run
from statelake.pipelines.cli.commands.flink.savepoints import dispose, savepoint, stop


@click.group()
def flink() -> None:
    """Operate the jobs of a live Flink cluster, and their savepoints.

    The cluster is that of --flink, STATELAKE_FLINK or statelake.toml. Credentials come from the
    environment alone, so that no process list and no history of a shell shows them:
    STATELAKE_FLINK_USER and _PASSWORD, _TOKEN, _HEADERS (lines `Name: value`), _CA, _CERT and _KEY
    (files in PEM), _TIMEOUT (seconds).

    \b
    Example:
      statelake flink jobs --flink http://jobmanager:8081
    """


for _command in (jobs, checkpoints, savepoint, stop, run, cancel, dispose, canary, drill, rescale):
    flink.add_command(_command)
