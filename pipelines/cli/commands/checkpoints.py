"""`statelake checkpoints`: list, verify, migrate and drop the checkpoints of running tasks."""

from __future__ import annotations

import click

from statelake.pipelines.api import Checkpoints, Lake
from statelake.pipelines.cli.commands import terminal
from statelake.pipelines.cli.commands.terminal import as_json, json_option, tell
from statelake.pipelines.cli.options import (
    answer,
    configured_option,
    gathered,
    lake_is_meant,
    refuse_untrusted,
)
from statelake.state_core.errors import DeclarationError


def _checkpoints(location: str | None, lake: str | None, job: str | None) -> Checkpoints:
    """Return the log that is named, or that of a job's runs."""
    if location is not None:
        if lake_is_meant():
            raise click.UsageError("give either --log, or --lake with --job")
        return Checkpoints(location)
    if lake is None or job is None:
        raise click.UsageError("give --log, or --lake with --job")
    refuse_untrusted(click.get_current_context())
    return Lake(lake).job(job).checkpoints()


log_option = gathered(
    "log",
    _checkpoints,
    click.option("--log", "location", help="A directory of records, or kafka://HOST:PORT/TOPIC."),
    configured_option("lake", "The lake, instead of --log."),
    configured_option("job", "The job whose runs committed."),
)
tasks_option = click.option("--task", "tasks", multiple=True, help="Only this task; not all.")
blobs_option = click.option("--blobs", help="The blob store: a directory or URI.")


@click.group()
def checkpoints() -> None:
    """Manage checkpoints of running tasks: their log and its files.

    \b
    Example:
      statelake checkpoints list --lake /data/lake --job orders
    """


@checkpoints.command("list")
@log_option
@json_option
def list_command(log: Checkpoints, as_json_: bool) -> None:
    """List the tasks with their last checkpoint of each version.

    \b
    Examples:
      statelake checkpoints list --lake /data/lake --job orders
      statelake checkpoints list --log s3://bucket/checkpoints --json
    """
    terminal.show(log.list(), as_json_=as_json_)


@checkpoints.command()
@log_option
@click.option("--task", required=True, help="The task.")
@click.option("--checkpoint", "identifier", help="Its id; by default that of the last one.")
@click.option("--version", type=click.IntRange(1, 2), help="Only a record of this version.")
def show(log: Checkpoints, task: str, identifier: str | None, version: int | None) -> None:
    """Print one record as it is written, as JSON.

    \b
    Examples:
      statelake checkpoints show --lake /data/lake --job orders --task total-0
      statelake checkpoints show --log checkpoints --task "Partition 3" --version 1
      statelake checkpoints show --log checkpoints --task "Partition 3" \\
          --checkpoint 1700000000000-42 | jq .checkpoint
    """
    as_json(log.show(task, identifier, version=version))


@checkpoints.command()
@log_option
@blobs_option
@click.option("--changelogs", help="The changelogs: kafka://HOST:PORT, or a directory.")
@tasks_option
@click.option("--all", "every", is_flag=True, help="Every record, not the last of each task.")
@json_option
def verify(
    log: Checkpoints,
    blobs: str | None,
    changelogs: str | None,
    tasks: tuple[str, ...],
    every: bool,
    as_json_: bool,
) -> None:
    """Restore the state of every marker into a temporary directory.

    Every file is checked against its size and checksum, and every row of the lake's snapshot with
    --lake and --job. Exit code 1 if a marker can't be restored, or if no marker of a store was
    checked.

    \b
    Examples:
      statelake checkpoints verify --lake lake --job orders --changelogs changelogs
      statelake checkpoints verify --log checkpoints --blobs s3://bucket/state
      statelake checkpoints verify --log kafka://broker:9092/orders-checkpoints \\
          --changelogs kafka://broker:9092
    """
    if not (blobs or changelogs or log.job):
        raise click.UsageError("say where state is: --blobs, --changelogs, or --lake with --job")
    verified = log.verify(blobs=blobs, changelogs=changelogs, tasks=tasks, all=every)
    terminal.show(verified, as_json_=as_json_)
    answer(yes=not verified.faults)


@checkpoints.command()
@log_option
@blobs_option
@click.option(
    "--keep", type=click.IntRange(min=1), required=True,
    help="The number of records of each task and version that stay.",
)  # fmt: skip
@json_option
def drop(log: Checkpoints, blobs: str | None, keep: int, as_json_: bool) -> None:
    """Remove all records but the last ones, and the blobs that only they needed.

    The job may run meanwhile: what a commit has uploaded that is not in the log yet stays.

    \b
    Examples:
      statelake checkpoints drop --lake lake --job orders --keep 10
      statelake checkpoints drop --log checkpoints --blobs s3://bucket/state --keep 3
    """
    done = log.drop(keep, blobs=blobs)
    if as_json_:
        as_json(done)
        return
    freed = f"; {done.blobs} blobs removed, {done.blobs_kept} kept" if blobs else ""
    tell(f"{done.records} records removed, {done.records_kept} kept{freed}")


@checkpoints.command()
@log_option
@click.option(
    "--changelog", "named", multiple=True, metavar="STORE=SYSTEM.STREAM",
    help="A store's changelog, as its configuration says.",
)  # fmt: skip
@tasks_option
@click.option("--rollback", is_flag=True, help="From version 2 to version 1.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
def migrate(
    log: Checkpoints,
    named: tuple[str, ...],
    tasks: tuple[str, ...],
    rollback: bool,
    dry_run: bool,
    as_json_: bool,
) -> None:
    """Append a record of version 2 for every task that has its last one in version 1.

    Nothing is removed. Stop the job before; set `checkpoint.read.versions` to `2,1` behind it, and
    after --rollback to `1`. A run that was stopped is run again. Exit code 1 if a task is refused.

    \b
    Examples:
      statelake checkpoints migrate --log checkpoints --changelog counts=kafka.orders-counts
      statelake checkpoints migrate --log checkpoints --rollback
    """
    try:
        done = log.migrate(named, tasks=tasks, rollback=rollback, dry_run=dry_run)
    except DeclarationError as error:
        raise click.UsageError(str(error)) from error
    terminal.show(done, as_json_=as_json_)
    answer(yes=not done.refused)
