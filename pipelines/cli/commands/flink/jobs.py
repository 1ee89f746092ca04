"""`statelake flink jobs`, `checkpoints` and `cancel`: the jobs of a cluster."""

from __future__ import annotations

import click

from statelake.pipelines.cli.commands.flink.connecting import (
    connected,
    flink_job_option,
    flink_option,
    timeout_option,
)
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    tell,
)
from statelake.state_core.printable import Table, age_text


@click.command()
@flink_option
@click.option("--all", "every", is_flag=True, help="List ended jobs, too.")
@json_option
def jobs(flink: str, every: bool, as_json_: bool) -> None:
    """List the jobs of a cluster, the newest first.

    \b
    Examples:
      statelake flink jobs --flink http://jm:8081
      statelake flink jobs --flink https://flink.example --all --json
    """
    with connected(flink) as cluster:
        listed = [job for job in cluster.jobs() if every or not job.ended]
    if as_json_:
        as_json(listed)
        return
    rows = [
        (job.id, job.name, job.state, f"{job.running_tasks}/{job.tasks}",
         f"{job.started:%Y-%m-%d %H:%M}", age_text(round(job.seconds * 1000)))
        for job in listed
    ]  # fmt: skip
    columns = ("<id", "<name", "<state", ">tasks", "<started", ">for")
    print_table(Table(f"{len(rows)} jobs", columns, rows))


@click.command()
@flink_option
@flink_job_option
@json_option
def checkpoints(flink: str, flink_job: str, as_json_: bool) -> None:
    """Show the sizes and durations of a job's checkpoints over time.

    They are those that the cluster remembers: the last 10, by default
    (web.checkpoints.history). `written` is less than `state` where they are incremental.

    \b
    Examples:
      statelake flink checkpoints --flink http://jm:8081 --flink-job orders
      statelake flink checkpoints --flink http://jm:8081 --json \\
          --flink-job 5f1e2c0a1b2c3d4e5f60718293a4b5c6
    """
    with connected(flink) as cluster:
        summary = cluster.checkpoints(cluster.find_job(flink_job).id)
    if as_json_:
        as_json(summary)
        return
    rows = [
        (str(checkpoint.number), "savepoint" if checkpoint.is_savepoint else "checkpoint",
         checkpoint.status.lower(), f"{checkpoint.triggered:%Y-%m-%d %H:%M:%S}",
         f"{checkpoint.seconds:.1f} s", bytes_text(checkpoint.state_bytes),
         bytes_text(checkpoint.written_bytes), checkpoint.path)
        for checkpoint in summary.history
    ]  # fmt: skip
    columns = (
        ">number", "<kind", "<status", "<triggered", ">took", ">state", ">written", "<path"
    )  # fmt: skip
    title = f"{summary.completed} completed, {summary.failed} failed"
    print_table(Table(title, columns, rows))
    if summary.restored_from:
        tell(f"restored from {summary.restored_from}")


@click.command()
@flink_option
@flink_job_option
@timeout_option("5min", "it may take to end")
@json_option
def cancel(flink: str, flink_job: str, timeout: float, as_json_: bool) -> None:
    """Cancel a job, without a savepoint, and wait until it is over.

    What it did since its last checkpoint is lost: `statelake flink stop` takes a savepoint.

    \b
    Examples:
      statelake flink cancel --flink http://jm:8081 --flink-job canary
      statelake flink cancel --flink http://jm:8081 --flink-job 5f1e2c0a1b2c3d4e5f60718293a4b5c6
    """
    with connected(flink) as cluster:
        job = cluster.find_job(flink_job).id
        state = cluster.cancel(job, timeout=timeout)
    if as_json_:
        as_json({"job": job, "state": state})
        return
    tell(f"job {job} is {state}", marked=job)
