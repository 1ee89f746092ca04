"""`statelake flink run`: run a JAR, from a savepoint or without state."""

from __future__ import annotations

import click

from statelake.pipelines.cli.commands.flink.connecting import (
    connected,
    flink_option,
    program_options,
    status_line,
    timeout_option,
)
from statelake.pipelines.cli.commands.terminal import as_json, json_option, tell
from statelake.pipelines.live.jars import JarRun, Jars


@click.command()
@flink_option
@program_options
@click.option("-s", "--savepoint", default="", help="Its initial state, as the cluster names it.")
@click.option("--parallelism", type=click.IntRange(min=1), help="By default the cluster's.")
@click.option("--max-parallelism", type=click.IntRange(1, 1 << 15), help="By default the job's.")
@click.option(
    "--claim-mode",
    type=click.Choice(["no_claim", "claim", "legacy"]),
    default="no_claim",
    show_default=True,
    help="The owner of the savepoint afterwards: claim lets the job delete it.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until it runs.")
@timeout_option("5min", "it may take to run and to complete a checkpoint")
@json_option
def run(
    flink: str,
    program: JarRun,
    savepoint: str,
    parallelism: int | None,
    max_parallelism: int | None,
    claim_mode: str,
    no_wait: bool,
    timeout: float,
    as_json_: bool,
) -> None:
    """Run a JAR on the cluster, until it has completed a checkpoint.

    A savepoint may be one of Flink, or one that `statelake export` wrote to where the cluster can
    read it. No message of statelake has the program's arguments.

    \b
    Examples:
      statelake flink run --flink http://jm:8081 --jar orders.jar \\
          -s s3://bucket/savepoints/savepoint-5f1e2c-0a1b2c3d4e5f --parallelism 12
      statelake flink run --flink http://jm:8081 --jar-id 1f2e_orders.jar \\
          --entry-class acme.Orders --arg --topic --arg in
    """
    with connected(flink) as cluster, status_line(quiet=as_json_) as report:
        jars = Jars(cluster)
        try:
            job = jars.run(
                program, savepoint=savepoint, claim_mode=claim_mode, parallelism=parallelism,
                max_parallelism=max_parallelism,
            )  # fmt: skip
        finally:
            jars.forget()
        state = "submitted"
        if not no_wait:
            state = cluster.wait_until_running(job, timeout=timeout, report=report).state
    if as_json_:
        as_json({"job": job, "state": state})
        return
    tell(f"job {job} is {state}", marked=job)
