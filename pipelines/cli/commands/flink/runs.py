"""`statelake flink run`: a JAR is submitted, from a savepoint or from nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import click

from pipelines.cli.commands.flink.connecting import (
    connected,
    flink_option,
    seconds,
    status_line,
    timeout_option,
)
from pipelines.cli.commands.terminal import as_json, json_option, tell
from state_core.errors import StateError

__all__ = ["run"]


@click.command()
@flink_option
@click.option("--jar", metavar="FILE", help="A JAR, to be uploaded.")
@click.option("--jar-id", help="One that the cluster has.")
@click.option("--entry-class", default="", help="With `main`; by default what the JAR says.")
@click.option("--arg", "arguments", multiple=True, help="An argument of the program.")
@click.option("-s", "--savepoint", default="", help="What to start from, as the cluster calls it.")
@click.option("--parallelism", type=click.IntRange(min=1), help="By default the cluster's.")
@click.option("--max-parallelism", type=click.IntRange(1, 1 << 15), help="By default the job's.")
@click.option(
    "--claim-mode",
    type=click.Choice(["no_claim", "claim", "legacy"]),
    default="no_claim",
    show_default=True,
    help="Whose the savepoint is from then on: claim lets the job delete it.",
)
@click.option("--allow-non-restored-state", is_flag=True, help="State may be left behind for good.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it runs.")
@timeout_option("5min", "it may take to run and to complete a checkpoint")
@json_option
def run(
    flink: str,
    jar: str | None,
    jar_id: str | None,
    entry_class: str,
    arguments: tuple[str, ...],
    savepoint: str,
    parallelism: int | None,
    max_parallelism: int | None,
    claim_mode: str,
    allow_non_restored_state: bool,
    no_wait: bool,
    timeout: timedelta,
    as_json_: bool,
) -> None:
    """Run a JAR on the cluster, until it has completed a checkpoint.

    A savepoint may be one of Flink's, or one that `statelake export` wrote where the cluster reads
    it. The program's arguments stand in no message of statelake's.

    \b
    Examples:
      statelake flink run --flink http://jm:8081 --jar orders.jar \\
          -s s3://bucket/savepoints/savepoint-5f1e2c-0a1b2c3d4e5f --parallelism 12
      statelake flink run --flink http://jm:8081 --jar-id 1f2e_orders.jar \\
          --entry-class acme.Orders --arg --topic --arg in
    """
    if (jar is None) == (jar_id is None):
        raise click.UsageError("give either --jar or --jar-id")
    with connected(flink) as cluster, status_line(quiet=as_json_) as report:
        used = jar_id or cluster.upload_jar(jar or "")
        try:
            job = cluster.run_jar(
                used, savepoint=savepoint, claim_mode=claim_mode,
                allow_non_restored=allow_non_restored_state, parallelism=parallelism,
                max_parallelism=max_parallelism, entry_class=entry_class, arguments=arguments,
            )  # fmt: skip
        finally:
            if jar is not None:
                _forgotten(lambda: cluster.delete_jar(used))
        state = "submitted"
        if not no_wait:
            wait = seconds(timeout)
            state = cluster.wait_until_running(job, timeout=wait, report=report).state
    if as_json_:
        as_json({"job": job, "state": state})
        return
    tell(f"job {job} is {state}", marked=job)


def _forgotten(clean: Callable[[], Any]) -> None:
    """Clean up; what stands against it is not what the command was called for."""
    with suppress(StateError):
        clean()
