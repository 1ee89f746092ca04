"""`statelake edit`: change a snapshot as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import click

from statelake import Lake
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.commands.times import Duration, Instant
from statelake.pipelines.cli.options import (
    engine_option,
    inexact_option,
    job_option,
    lake_option,
    snapshot_named,
    snapshot_option,
)


@click.command()
@lake_option
@job_option
@snapshot_option("--parent", required=True, help="The snapshot to edit.")
@click.option("--snapshot", "snapshot_id", required=True, help="The name of the new snapshot.")
@click.option(
    "--rename-uid", nargs=2, multiple=True, metavar="OPERATOR UID", help="Give an operator a uid."
)
@click.option("--drop-operator", multiple=True, metavar="OPERATOR", help="Drop an operator.")
@click.option(
    "--keep-operator", multiple=True, metavar="OPERATOR", help="Drop all operators but these."
)
@click.option(
    "--drop-state", multiple=True, metavar="OPERATOR/STATE", help="Drop a state, or all /timers."
)
@click.option("--merge", multiple=True, metavar="[JOB:]SNAPSHOT", help="Add another's operators.")
@click.option(
    "--purge", nargs=2, multiple=True, metavar="OPERATOR/STATE PREDICATE",
    help="Delete the rows that match: DuckDB's SQL over the table's columns; of a list the"
    " elements, if it says `element`.",
)  # fmt: skip
@click.option(
    "--expire", nargs=2, multiple=True, type=(str, Duration()), metavar="OPERATOR/STATE TTL",
    help="Delete the entries that have expired: 90s, 15min, 12h, 7d.",
)  # fmt: skip
@click.option(
    "--keep-keys", nargs=2, multiple=True, metavar="OPERATOR FILE",
    help="Delete all keys but those that the file lists, one a line.",
)  # fmt: skip
@click.option(
    "--set-offsets", multiple=True, metavar="TOPIC:PARTITION=OFFSET|FILE",
    help="Have Kafka's partitions read from there, or a log of Flink CDC"
    " (binlog-split=FILE:POSITION, stream-split=LSN); a file has one a line.",
)  # fmt: skip
@click.option(
    "--offsets-from-timestamp", type=Instant(), metavar="TIME",
    help="Have them read from where they stood then, as the brokers say.",
)  # fmt: skip
@click.option("--bootstrap-servers", metavar="HOST:PORT", help="Kafka's brokers, for that.")
@click.option(
    "--drop-partitions", multiple=True, metavar="TOPIC[:PARTITION]",
    help="Take partitions of Kafka out of a source that does not subscribe to them any more.",
)  # fmt: skip
@click.option(
    "--move-positions", nargs=2, multiple=True, metavar="OPERATOR UID",
    help="Have a KafkaSource or KinesisStreamsSource of that uid go on where an old"
    " FlinkKafkaConsumer or FlinkKinesisConsumer stood.",
)  # fmt: skip
@click.option(
    "--stream-arn", multiple=True, metavar="ARN", help="The ARN of a stream of Kinesis, for that."
)
@click.option(
    "--at",
    type=Instant(),
    help="The time for --expire; by default when the snapshot was taken, as `snapshots` lists.",
)
@inexact_option
@click.option("--note", default="", help="Why; kept with the snapshot.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@engine_option
@plugins_option
@json_option
def edit(
    lake: str,
    job: str,
    parent: str,
    snapshot_id: str,
    rename_uid: tuple[tuple[str, str], ...],
    drop_operator: tuple[str, ...],
    keep_operator: tuple[str, ...],
    drop_state: tuple[str, ...],
    merge: tuple[str, ...],
    purge: tuple[tuple[str, str], ...],
    expire: tuple[tuple[str, timedelta], ...],
    keep_keys: tuple[tuple[str, str], ...],
    set_offsets: tuple[str, ...],
    offsets_from_timestamp: datetime | None,
    bootstrap_servers: str | None,
    drop_partitions: tuple[str, ...],
    move_positions: tuple[tuple[str, str], ...],
    stream_arn: tuple[str, ...],
    at: datetime | None,
    inexact: bool,
    note: str,
    dry_run: bool,
    engine: str,
    as_json_: bool,
) -> None:
    """Change a snapshot as a whole, as a new snapshot; the old one stays.

    \b
    Merges are applied first, then drops, deletions and renames; all names are those of the parent.
    Drops and renames copy no data. A savepoint does not hold a time to live, so it is given.

    \b
    A file of keys has one key a line, as `statelake dump` prints them: 42, {"f0": "a", "f1": 7}.
    Text is written as it is, or as a JSON string. Rows of other keys are deleted from all keyed
    states and timers of the operator.

    \b
    No snapshot is made, and the exit code is 1, if none of the keys is found, or if no row is
    purged or has expired and nothing else changes. --dry-run counts the entries that would go.

    \b
    An offset is that of the next record to read, or earliest, latest or committed. Where several
    sources read a topic, the partition is OPERATOR/TOPIC:PARTITION. A change is refused if a
    partition would be read twice, or by no source.

    \b
    --move-positions turns an old source into the new one that the program has in its place.
    --drop-partitions is for topics to which the program does not subscribe any more: others are
    found again, and read from their start. Of a dropped sink it is listed what it had to commit.

    \b
    Examples:
      statelake edit --lake lake --job orders --parent monday --snapshot renamed \\
          --rename-uid counter order-counter
      statelake edit --lake lake --job orders --parent monday --snapshot small \\
          --expire sessions/last 7d --purge counter/count "value = 0"
      statelake edit --lake lake --job orders --parent monday --snapshot counts-only \\
          --keep-operator counter
      statelake edit --lake lake --job orders --parent monday --snapshot both --merge returns:monday
      statelake edit --lake lake --job orders --parent monday --snapshot sample \\
          --keep-keys counter words.txt
      statelake edit --lake lake --job orders --parent monday --snapshot again \\
          --set-offsets orders:0=4711 --set-offsets orders:1=earliest
      statelake edit --lake lake --job orders --parent monday --snapshot moved \\
          --move-positions orders-consumer orders-source
      statelake edit --lake lake --job orders --parent monday --snapshot fewer \\
          --drop-partitions returns --drop-partitions orders:7
    """
    asked = (rename_uid, drop_operator, keep_operator, drop_state, merge, purge, expire, keep_keys,
             set_offsets, offsets_from_timestamp, drop_partitions, move_positions)  # fmt: skip
    if not any(asked):
        raise click.UsageError("say what to change: --rename-uid, --drop-state, --purge, ...")
    if drop_operator and keep_operator:
        raise click.UsageError("give either --drop-operator or --keep-operator")
    if set_offsets and offsets_from_timestamp:
        raise click.UsageError("give either --set-offsets or --offsets-from-timestamp")
    if (offsets_from_timestamp is None) != (bootstrap_servers is None):
        raise click.UsageError("--offsets-from-timestamp and --bootstrap-servers go together")
    if stream_arn and not move_positions:
        raise click.UsageError("--stream-arn goes with --move-positions")
    _refuse_twice("--rename-uid", rename_uid)
    _refuse_twice("--move-positions", move_positions)
    _refuse_twice("--purge", purge)
    _refuse_twice("--expire", expire)
    _refuse_twice("--keep-keys", keep_keys)
    with progress_bar("editing", quiet=as_json_) as progress:
        opened = Lake(lake).job(job, engine=engine, progress=progress)
        editor = opened[snapshot_named(opened, parent)].edit(snapshot_id)
        editor.drop_operator(*drop_operator).keep_operator(*keep_operator).drop_state(*drop_state)
        for operator, uid in rename_uid:
            editor.rename_uid(operator, uid)
        for other in merge:
            owner, colon, name = other.rpartition(":")
            merged = opened.lake.job(owner) if colon else opened
            editor.merge(snapshot_named(merged, name), job=merged.name)
        for state, predicate in purge:
            editor.purge(state, predicate)
        for state, ttl in expire:
            editor.expire(state, ttl)
        for operator, file in keep_keys:
            editor.keep_keys(operator, file)
        if set_offsets:
            editor.set_offsets(*set_offsets)
        if offsets_from_timestamp is not None and bootstrap_servers is not None:
            editor.offsets_from_timestamp(offsets_from_timestamp, bootstrap_servers)
        if drop_partitions:
            editor.drop_partitions(*drop_partitions)
        for operator, uid in move_positions:
            editor.move_positions(operator, uid)
        editor.stream_arn(*stream_arn)
        if at is not None:
            editor.at(at)
        if inexact:
            editor.inexact()
        done = editor.save(note=note, dry_run=dry_run)
    show(done, as_json_=as_json_, marked=done.record.snapshot_id)
    if expire and at is None:
        goes = "would go" if dry_run else "is gone"
        click.echo(
            f"warning: what had expired by {done.record.taken_at:%Y-%m-%d %H:%M} UTC {goes}, which"
            " the lake has as the time of the snapshot; if it was imported from a copy, without"
            " --taken, that may be the time of copying: give --at",
            err=True,
        )


def _refuse_twice(option: str, given: Sequence[tuple[str, object]]) -> None:
    """Refuse an option that is given twice for one operator or state."""
    names = [name for name, _ in given]
    twice = dict.fromkeys(name for name in names if names.count(name) > 1)
    if twice:
        raise click.UsageError(f"{option} names {', '.join(twice)} twice: give it once")
