"""`statelake edit`: change a snapshot as a whole."""

from __future__ import annotations

from dataclasses import replace

import click

from statelake import Job
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import (
    opened_job_and_engine,
    request_options,
    snapshot_named,
    snapshot_option,
)
from statelake.pipelines.requests.edit import Edit, SaveEdit


@click.command()
@opened_job_and_engine
@snapshot_option("--parent", required=True, help="The snapshot to edit.")
@click.option("--snapshot", "snapshot_id", required=True, help="The name of the new snapshot.")
@request_options(Edit)
@request_options(SaveEdit, "saving")
@plugins_option
@json_option
def edit(
    opened: Job,
    parent: str,
    snapshot_id: str,
    request: Edit,
    saving: SaveEdit,
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
    if request.is_empty:
        raise click.UsageError("say what to change: --rename-uid, --drop-state, --purge, ...")
    with progress_bar("editing", quiet=as_json_) as progress:
        opened = replace(opened, progress=progress)
        snapshot = opened[snapshot_named(opened, parent)]
        editor = snapshot.edit(snapshot_id, **vars(request) | {"merge": ()})
        for other in request.merge:
            owner, colon, name = other.rpartition(":")
            merged = opened.lake.job(owner) if colon else opened
            editor.merge(snapshot_named(merged, name), job=merged.name)
        done = editor.save(**vars(saving))
    show(done, as_json_=as_json_, marked=done.record.snapshot_id)
    if request.expire and request.at is None:
        goes = "would go" if saving.dry_run else "is gone"
        click.echo(
            f"warning: what had expired by {done.record.taken_at:%Y-%m-%d %H:%M} UTC {goes}, which"
            " the lake has as the time of the snapshot; if it was imported from a copy, without"
            " --taken, that may be the time of copying: give --at",
            err=True,
        )
