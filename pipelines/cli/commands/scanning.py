"""`statelake scan`: find snapshots, and the newest sound one."""

from __future__ import annotations

import click

from statelake.pipelines import api
from statelake.pipelines.cli.commands.flink.connecting import path_map_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import answer
from statelake.pipelines.flink.path_map import PathMap
from statelake.state_core.printable import printable


@click.command()
@click.argument("directory")
@click.option("--job-id", default="", metavar="ID", help="Only those of a job, by its id.")
@click.option("--latest", is_flag=True, help="Only the newest.")
@click.option("--sound", is_flag=True, help="Only those that can be restored.")
@click.option("--deep", is_flag=True, help="Read every byte, as `check integrity` does.")
@click.option("--print-path", is_flag=True, help="Print their paths alone, for a submit script.")
@path_map_option
@json_option
def scan(
    directory: str,
    job_id: str,
    latest: bool,
    sound: bool,
    deep: bool,
    print_path: bool,
    path_map: tuple[str, ...],
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
    with progress_bar("scanning", quiet=as_json_ or print_path) as progress:
        found = api.scan(
            directory, job_id=job_id, latest=latest, sound=sound, deep=deep, path_map=path_map,
            progress=progress,
        )  # fmt: skip
    if print_path:
        paths = PathMap.parse(path_map)
        for each in found.skipped:
            click.echo(printable(f"{each.location} is {each.state}: {each.reason}"), err=True)
        for each in found.snapshots:
            click.echo(printable(paths.there(each.location) if path_map else each.location))
        if not found.snapshots:
            count = len(found.skipped)
            none = (
                f"none of the {count} snapshots can be restored" if count else "no snapshot there"
            )
            click.echo(none, err=True)
    else:
        show(found, as_json_=as_json_)
    answer(yes=bool(found.snapshots))
