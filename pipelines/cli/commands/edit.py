"""`statelake edit`: change a snapshot as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.sources.offsets import print_moved
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    print_table,
    progress_bar,
    tell,
)
from statelake.pipelines.cli.commands.times import Duration, Instant
from statelake.pipelines.cli.options import (
    engine_option,
    job_option,
    lake_option,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_sources import offsets_at, read_new_offsets
from statelake.pipelines.lake.edit.editing import EditResult, SnapshotEdit, edit_snapshot
from statelake.state_core.printable import saved_text


@click.command()
@lake_option
@job_option
@snapshot_option("--parent", required=True, help="The snapshot to edit.")
@click.option("--snapshot", "snapshot_id", required=True, help="The name of the new snapshot.")
@click.option(
    "--rename-uid", nargs=2, multiple=True, metavar="OPERATOR UID", help="Give an operator a uid."
)
@click.option("--drop-operator", multiple=True, metavar="OPERATOR", help="Leave an operator out.")
@click.option("--keep-operator", multiple=True, metavar="OPERATOR", help="Leave all out but these.")
@click.option(
    "--drop-state", multiple=True, metavar="OPERATOR/STATE", help="Leave a state out; or /timers."
)
@click.option(
    "--merge", multiple=True, metavar="[JOB:]SNAPSHOT", help="Take in another's operators."
)
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
    help="Have Kafka's partitions read from there; a file has one a line.",
)  # fmt: skip
@click.option(
    "--offsets-from-timestamp", type=Instant(), metavar="TIME",
    help="Have them read from where they stood then, as the brokers say.",
)  # fmt: skip
@click.option("--bootstrap-servers", metavar="HOST:PORT", help="Kafka's brokers, for that.")
@click.option(
    "--at",
    type=Instant(),
    help="When it has; by default when the snapshot was taken, as `snapshots` has it.",
)
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
    at: datetime | None,
    note: str,
    dry_run: bool,
    engine: str,
    as_json_: bool,
) -> None:
    """Change a snapshot as a whole, as a new snapshot; the old one stays.

    \b
    Merges come first, then what is left out, purged and renamed; names are those of before. What
    only renames or leaves out copies no data. A time to live is not in a savepoint, so it is given.

    \b
    A file of keys has one a line, as `statelake dump` prints them: 42, {"f0": "a", "f1": 7}. Text
    may stand there as it is, or as a JSON string. Rows of other keys go from all keyed states and
    timers of the operator.

    \b
    No snapshot is made, and the exit code is 1, if none of the keys is there, or if no row is
    purged or has expired and nothing else changes. --dry-run says how many entries would go.

    \b
    An offset is that of the next record to read, or earliest, latest or committed. Where several
    sources read a topic, the partition is OPERATOR/TOPIC:PARTITION. What would then be read twice,
    or by nobody, is refused.

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
    """
    asked = (rename_uid, drop_operator, keep_operator, drop_state, merge, purge, expire, keep_keys,
             set_offsets, offsets_from_timestamp)  # fmt: skip
    if not any(asked):
        raise click.UsageError("say what to change: --rename-uid, --drop-state, --purge, ...")
    if drop_operator and keep_operator:
        raise click.UsageError("give either --drop-operator or --keep-operator")
    if set_offsets and offsets_from_timestamp:
        raise click.UsageError("give either --set-offsets or --offsets-from-timestamp")
    if (offsets_from_timestamp is None) != (bootstrap_servers is None):
        raise click.UsageError("--offsets-from-timestamp and --bootstrap-servers go together")
    _refuse_twice("--rename-uid", rename_uid)
    _refuse_twice("--purge", purge)
    _refuse_twice("--expire", expire)
    _refuse_twice("--keep-keys", keep_keys)
    opened = Catalog(lake)
    parent = snapshot_named(opened, job, parent)
    new_offsets = read_new_offsets(set_offsets) if set_offsets else []
    if offsets_from_timestamp is not None and bootstrap_servers is not None:
        new_offsets = offsets_at(opened, job, parent, bootstrap_servers, offsets_from_timestamp)
    changes = SnapshotEdit(
        rename=dict(rename_uid),
        drop_operators=drop_operator,
        keep_operators=keep_operator,
        drop_states=drop_state,
        merge=[_other(opened, other, job) for other in merge],
        purge=dict(purge),
        expire=dict(expire),
        keep_keys=dict(keep_keys),
        set_offsets=new_offsets,
        at=at,
    )
    with progress_bar("editing", quiet=as_json_) as progress:
        done = edit_snapshot(
            opened,
            job,
            parent,
            snapshot_id,
            changes,
            note=note,
            dry_run=dry_run,
            engine=engine,
            progress=progress,
        )
    if as_json_:
        as_json(report_edit(done) | ({"expired_at": at or done.record.taken_at} if expire else {}))
    else:
        print_edit(done, parent, dry_run=dry_run)
    if expire and at is None:
        goes = "would go" if dry_run else "is gone"
        click.echo(
            f"warning: what had expired by {done.record.taken_at:%Y-%m-%d %H:%M} UTC {goes}, which"
            " the lake has as the time of the snapshot; if it was imported from a copy, without"
            " --taken, that may be the time of copying: give --at",
            err=True,
        )


def _refuse_twice(option: str, given: Sequence[tuple[str, object]]) -> None:
    """Refuse an option that says two things of one operator or state."""
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(f"{option} names {name} twice: give it once")


def _other(lake: Catalog, text: str, job: str) -> tuple[str, str]:
    other, colon, name = text.rpartition(":")
    other = other if colon else job
    return other, snapshot_named(lake, other, name)


def report_edit(done: EditResult) -> dict[str, Any]:
    """What an edit did, for scripts."""
    record = done.record
    return {
        "snapshot_id": record.snapshot_id,
        "parent": record.parent,
        "entries": record.entries,
        "state_bytes": record.state_bytes,
        "written_bytes": record.written_bytes,
        "saved_bytes": sum(
            change.state_bytes[0] - change.state_bytes[1] for change in done.changes
        ),
        "operators": [operator.label for operator in record.operators],
        "changes": [asdict(change) for change in done.changes],
        "offsets": [asdict(moved) for moved in done.offsets],
    }


def print_edit(done: EditResult, parent: str, *, dry_run: bool = False) -> None:
    """Print what an edit did, or what it would do."""
    record = done.record
    saved = sum(change.state_bytes[0] - change.state_bytes[1] for change in done.changes)
    tell(
        f"{'would make' if dry_run else 'made'} {record.snapshot_id} from {parent}:"
        f" {record.entries:,} entries, {bytes_text(record.state_bytes)} of state"
        f" ({saved_text(saved)})"
        + ("" if dry_run else f"; wrote {bytes_text(record.written_bytes)}"),
        marked=record.snapshot_id,
    )
    if done.changes:
        rows = [
            (change.operator, change.state, f"{change.entries[0]:,}", f"{change.entries[1]:,}",
             bytes_text(change.state_bytes[0]), bytes_text(change.state_bytes[1]))
            for change in done.changes
        ]  # fmt: skip
        columns = ("<operator", "<state", ">entries", ">now", ">bytes", ">now")
        print_table("", columns, rows)
    print_moved(done.offsets)
