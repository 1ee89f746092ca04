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
    request_options,
)
from statelake.pipelines.requests.checkpoints import (
    DropRecords,
    MigrateLog,
    ShowRecord,
    VerifyLog,
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
@request_options(ShowRecord)
def show(log: Checkpoints, request: ShowRecord) -> None:
    """Print one record as it is written, as JSON.

    \b
    Examples:
      statelake checkpoints show --lake /data/lake --job orders --task total-0
      statelake checkpoints show --log checkpoints --task "Partition 3" --version 1
      statelake checkpoints show --log checkpoints --task "Partition 3" \\
          --checkpoint 1700000000000-42 | jq .checkpoint
    """
    as_json(log.show(**vars(request)))


@checkpoints.command()
@log_option
@request_options(VerifyLog)
@json_option
def verify(log: Checkpoints, request: VerifyLog, as_json_: bool) -> None:
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
    if not (request.blobs or request.changelogs or log.job):
        raise click.UsageError("say where state is: --blobs, --changelogs, or --lake with --job")
    verified = log.verify(**vars(request))
    terminal.show(verified, as_json_=as_json_)
    answer(yes=not verified.faults)


@checkpoints.command()
@log_option
@request_options(DropRecords)
@json_option
def drop(log: Checkpoints, request: DropRecords, as_json_: bool) -> None:
    """Remove all records but the last ones, and the blobs that only they needed.

    The job may run meanwhile: what a commit has uploaded that is not in the log yet stays.

    \b
    Examples:
      statelake checkpoints drop --lake lake --job orders --keep 10
      statelake checkpoints drop --log checkpoints --blobs s3://bucket/state --keep 3
    """
    done = log.drop(**vars(request))
    if as_json_:
        as_json(done)
        return
    freed = f"; {done.blobs} blobs removed, {done.blobs_kept} kept" if request.blobs else ""
    tell(f"{done.records} records removed, {done.records_kept} kept{freed}")


@checkpoints.command()
@log_option
@request_options(MigrateLog)
@json_option
def migrate(log: Checkpoints, request: MigrateLog, as_json_: bool) -> None:
    """Append a record of version 2 for every task that has its last one in version 1.

    Nothing is removed. Stop the job before; set `checkpoint.read.versions` to `2,1` behind it, and
    after --rollback to `1`. A run that was stopped is run again. Exit code 1 if a task is refused.

    \b
    Examples:
      statelake checkpoints migrate --log checkpoints --changelog counts=kafka.orders-counts
      statelake checkpoints migrate --log checkpoints --rollback
    """
    try:
        done = log.migrate(**vars(request))
    except DeclarationError as error:
        raise click.UsageError(str(error)) from error
    terminal.show(done, as_json_=as_json_)
    answer(yes=not done.refused)
