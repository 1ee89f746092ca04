"""`statelake scan`: find snapshots; `copy`: move them."""

from __future__ import annotations

from datetime import datetime

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import Parsed, answer, request_options
from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.requests.find import Copying, FindSnapshots
from statelake.pipelines.requests.shared import parse_time
from statelake.state_core.printable import printable

DIGITS_OF_A_DATE = 8  # 20261120


@click.command()
@click.argument("directory")
@request_options(FindSnapshots)
@click.option("--print-path", is_flag=True, help="Print their paths alone, for a submit script.")
@plugins_option
@json_option
def scan(
    directory: str,
    request: FindSnapshots,
    print_path: bool,
    as_json_: bool,
) -> None:
    """Find every savepoint and checkpoint below a directory, the newest first.

    Each is restorable: its `_metadata` can be read, and each of its files exists, has its length,
    and lies where Flink looks for it. Or it is moved, so that Flink does not find its files;
    incomplete, without `_metadata`; or damaged. The directory is listed once, and each `_metadata`
    is read once.

    With --latest --sound --print-path it prints the path of the newest one that is restorable, and
    on standard error why newer ones are not. Exit code 1 if nothing is found.

    \b
    Examples:
      statelake scan /checkpoints
      statelake scan s3://bucket/flink --json
      flink run -s "$(statelake scan /checkpoints --latest --sound --print-path)" job.jar
    """
    if print_path and as_json_:
        raise click.UsageError("--print-path prints paths alone, --json all: give one of them")
    with progress_bar("scanning", quiet=as_json_ or print_path) as progress:
        result = sl.scan(**vars(request) | {"directory": directory, "progress": progress})
    if print_path:
        paths = PathMap.parse(request.path_map)
        for each in result.skipped:
            click.echo(printable(f"{each.location} is {each.state}: {each.reason}"), err=True)
        for each in result.snapshots:
            click.echo(printable(paths.there(each.location) if request.path_map else each.location))
        if not result.snapshots:
            count = len(result.skipped)
            none = (
                f"none of the {count} snapshots can be restored" if count else "no snapshot there"
            )
            click.echo(none, err=True)
    else:
        show(result, as_json_=as_json_)
    answer(yes=bool(result.snapshots))


def _since(text: str) -> int | datetime:
    """Parse a checkpoint's id, or a point in time: `42`, `2026-11-20`."""
    is_id = text.isascii() and text.isdigit() and len(text) < DIGITS_OF_A_DATE
    return int(text) if is_id else parse_time(text)


@click.command()
@click.argument("snapshot")
@click.argument("dest")
@click.option("--all", "every", is_flag=True, help="SNAPSHOT is the directory of a job's chk-N.")
@click.option(
    "--since",
    type=Parsed("id or time", _since),
    metavar="ID|TIME",
    help="With --all only checkpoints from there on.",
)
@request_options(Copying)
@json_option
def copy(
    snapshot: str,
    dest: str,
    every: bool,
    since: int | datetime | None,
    request: Copying,
    as_json_: bool,
) -> None:
    """Copy a savepoint or checkpoint to another place: a directory, a bucket, a region.

    All files that it needs are copied, also those that it shares with other checkpoints, and its
    handles lead to them: Flink restores the copy where the original does not exist any more.

    `_metadata` is written last. Whoever was interrupted runs it again: files that are there are
    kept if they have the bytes of the original. Another snapshot is never written over.

    With --all, SNAPSHOT is the directory of a job's checkpoints: each of them that is not in DEST
    yet is copied, the newest first, and once what they share.

    \b
    Examples:
      statelake copy /checkpoints/5f1e/chk-42 s3://other-region/flink/chk-42
      statelake copy s3://bucket/savepoints/savepoint-5f1e2c-0a1b2c3d4e5f /backup/monday
      statelake copy --all s3://bucket/flink/5f1e s3://other-region/flink/5f1e --since 42
    """
    if since is not None and not every:
        raise click.UsageError("--since is for a job's checkpoints: give --all, too")
    with progress_bar("copying", quiet=as_json_, of_bytes=True) as progress:
        done = (
            sl.copy_checkpoints(snapshot, dest, since=since, progress=progress, **vars(request))
            if every
            else sl.copy_snapshot(snapshot, dest, progress=progress, **vars(request))
        )
    show(done, as_json_=as_json_)
