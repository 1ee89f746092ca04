"""`statelake checkpoints`: what a checkpoint log has, and whether it can be restored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    tell,
)
from statelake.pipelines.cli.options import (
    answer,
    configured_option,
    lake_is_meant,
    refuse_untrusted,
)
from statelake.pipelines.lake.commits.checkpoint_dropping import drop_records
from statelake.pipelines.lake.commits.checkpoint_migrating import (
    REFUSED,
    changelog_of,
    migrate_records,
)
from statelake.pipelines.lake.commits.checkpoint_records import (
    TaskRecord,
    kafka_changelogs,
    last_records,
    open_log,
    read_records,
)
from statelake.pipelines.lake.commits.checkpoint_verifying import faults_of, verify_log
from statelake.pipelines.lake.commits.state_backend import LakeBackend
from statelake.pipelines.shown import age_text
from statelake.state_core.commit import (
    BlobStoreBackend,
    ChangelogBackend,
    FileSystemBlobStore,
    StateBackendFactory,
)
from statelake.state_core.commit.records.clocks import now_millis
from statelake.state_core.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    LAKE_FACTORY,
)
from statelake.state_core.errors import NotFoundError
from statelake.state_core.files.filesystem import Directory

SHORT = {BLOB_STORE_FACTORY: "blob_store", CHANGELOG_FACTORY: "changelog", LAKE_FACTORY: "lake"}

log_option = click.option(
    "--log",
    "location",
    required=True,
    help="A Delta table, a directory of records, or kafka://HOST:PORT/TOPIC.",
)
tasks_option = click.option("--task", "tasks", multiple=True, help="Only this task; all if none.")
blobs_option = click.option("--blobs", help="The blob store: a directory or URI.")


@click.group()
def checkpoints() -> None:
    """Manage checkpoints of running tasks: their log, and the files that its markers name.

    \b
    Example:
      statelake checkpoints list --log /data/lake/orders/_runs/checkpoints
    """


@checkpoints.command("list")
@log_option
@json_option
def list_command(location: str, as_json_: bool) -> None:
    """List the tasks with their last checkpoint of each version.

    \b
    Examples:
      statelake checkpoints list --log /data/lake/orders/_runs/checkpoints
      statelake checkpoints list --log s3://bucket/checkpoints --json
    """
    now = now_millis()
    records = [
        record
        for versions in last_records(read_records(open_log(location))).values()
        for _, record in sorted(versions.items())
    ]
    if as_json_:
        as_json([_plain(record, now) for record in records])
        return
    rows = [
        (record.task, str(record.checkpoint.version), str(record.id or ""),
         age_text(now - record.record.appended_at), _markers(record), str(record.record.offset))
        for record in records
    ]  # fmt: skip
    tasks = len({(record.key.grouper, record.task) for record in records})
    columns = ("<task", ">version", "<checkpoint", ">age", "<markers", ">offset")
    print_table(f"{tasks} tasks", columns, rows)


@checkpoints.command()
@log_option
@click.option("--task", required=True, help="The task.")
@click.option("--checkpoint", "identifier", help="The id of one before; the last by default.")
@click.option("--version", type=click.IntRange(1, 2), help="Of the record; the later one if none.")
def show(location: str, task: str, identifier: str | None, version: int | None) -> None:
    """Print one record as JSON, as it is written.

    \b
    Examples:
      statelake checkpoints show --log /data/lake/orders/_runs/checkpoints --task "Partition 3"
      statelake checkpoints show --log checkpoints --task "Partition 3" --version 1
      statelake checkpoints show --log checkpoints --task "Partition 3" \\
          --checkpoint 1700000000000-42 | jq .checkpoint
    """
    records = [
        read_record
        for read_record in read_records(open_log(location))
        if read_record.task == task
        and (version is None or read_record.checkpoint.version == version)
        and (identifier is None or str(read_record.id) == identifier)
    ]
    if not records:
        raise NotFoundError(
            f"no such record of task {task!r}",
            place=location,
            remedy="`statelake checkpoints list` has the last ones; older ones may be removed",
        )
    as_json(records[-1].to_json())


@checkpoints.command()
@log_option
@blobs_option
@configured_option("lake", "The lake, if stores are backed up there.")
@configured_option("job", "The job's name in the lake.")
@click.option("--changelogs", help="The changelogs' cluster, as kafka://HOST:PORT.")
@click.option("--job-id", default="1", show_default=True, help="Of its instance.")
@tasks_option
@click.option("--all", "every", is_flag=True, help="Every record; else the last of each task.")
@json_option
def verify(
    location: str,
    blobs: str | None,
    lake: str | None,
    job: str | None,
    changelogs: str | None,
    job_id: str,
    tasks: tuple[str, ...],
    every: bool,
    as_json_: bool,
) -> None:
    """Restore what the log's markers lead to, into a directory that is removed again.

    Every file is checked against its size and checksum. Exit code 1 if a marker can't be restored,
    or if none of a store's markers was looked at.

    \b
    Examples:
      statelake checkpoints verify --log checkpoints --blobs s3://bucket/state
      statelake checkpoints verify --log lake/orders/_checkpoints --lake lake --job orders
      statelake checkpoints verify --log kafka://broker:9092/orders-checkpoints \\
          --changelogs kafka://broker:9092
    """
    if (blobs or changelogs) and not lake_is_meant():
        lake = job = None
    if lake is not None:
        refuse_untrusted(click.get_current_context())
    if bool(lake) != bool(job):
        raise click.UsageError("give --lake and --job together")
    backends = list(_backends(blobs, lake, changelogs))
    if not backends:
        raise click.UsageError("say where state is: --blobs, --lake with --job, or --changelogs")
    markers = verify_log(
        open_log(location), backends, (job or "", job_id), tasks=tasks, every=every
    )
    faults = faults_of(markers)
    if as_json_:
        as_json(
            {
                "sound": not faults,
                "faults": faults,
                "markers": [asdict(marker) for marker in markers],
            }
        )
    else:
        rows = [
            (marker.task, marker.checkpoint, marker.store,
             SHORT.get(marker.backend, marker.backend), marker.outcome,
             bytes_text(marker.size) if marker.size else "", marker.why)
            for marker in markers
        ]  # fmt: skip
        title = f"{len(markers)} markers, {len(faults)} faults"
        columns = ("<task", "<checkpoint", "<store", "<backend", "<outcome", ">restored", "<why")
        print_table(title, columns, rows)
    answer(yes=not faults)


@checkpoints.command()
@log_option
@blobs_option
@click.option(
    "--keep", type=click.IntRange(min=1), required=True,
    help="How many records of each task and version stay.",
)  # fmt: skip
@json_option
def drop(location: str, blobs: str | None, keep: int, as_json_: bool) -> None:
    """Remove all records but the last ones, and the blobs that only they needed.

    The job may run meanwhile: what a commit has uploaded that is not in the log yet stays.

    \b
    Examples:
      statelake checkpoints drop --log checkpoints --keep 10
      statelake checkpoints drop --log checkpoints --blobs s3://bucket/state --keep 3
    """
    store = FileSystemBlobStore(Directory(blobs).confined()) if blobs else None
    done = drop_records(open_log(location), keep, store)
    if as_json_:
        as_json(asdict(done))
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
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@json_option
def migrate(
    location: str,
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
        changelogs = dict(map(changelog_of, named))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    done = migrate_records(
        open_log(location), changelogs, tasks=tasks, rollback=rollback, dry_run=dry_run
    )
    refused = sum(migration.outcome == REFUSED for migration in done)
    if as_json_:
        as_json([asdict(migration) for migration in done])
    else:
        title = f"{len(done)} tasks, {refused} refused" + (", nothing appended" * dry_run)
        rows = [
            (migration.task, migration.outcome, migration.checkpoint, migration.why)
            for migration in done
        ]
        print_table(title, ("<task", "<outcome", "<checkpoint", "<why"), rows)
    answer(yes=not refused)


def _backends(
    blobs: str | None, lake: str | None, changelogs: str | None
) -> Iterator[StateBackendFactory]:
    if blobs:
        yield BlobStoreBackend(FileSystemBlobStore(Directory(blobs).confined()))
    if lake:
        yield LakeBackend(Directory(lake).confined())
    if changelogs:
        yield ChangelogBackend(kafka_changelogs(changelogs))


def _markers(record: TaskRecord) -> str:
    return "; ".join(
        f"{SHORT.get(name, name)}: {', '.join(stores)}" for name, stores in record.backends.items()
    )


def _plain(record: TaskRecord, now: int) -> dict[str, Any]:
    return {
        "task": record.task,
        "grouper": record.key.grouper,
        "version": record.checkpoint.version,
        "checkpoint": None if record.id is None else str(record.id),
        "offset": record.record.offset,
        "appended_at": record.record.appended_at,
        "age_ms": now - record.record.appended_at,
        "markers": record.backends,
    }
