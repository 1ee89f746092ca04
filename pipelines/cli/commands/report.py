"""`statelake report`: a snapshot as one page of HTML, to send."""

from __future__ import annotations

import posixpath
from functools import partial

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    progress_bar,
    tell,
)
from statelake.pipelines.cli.options import Source, answer, source_options
from statelake.state_core.errors import ConflictError, SnapshotError
from statelake.state_core.files.filesystem import Directory


@click.command()
@source_options
@click.option("--to", "target", required=True, metavar="FILE", help="The page that is written.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@click.option("--check", is_flag=True, help="Look for faults, as `check integrity` does.")
@click.option("--limit", default=5, show_default=True, type=click.IntRange(0, 100),
              help="How many of the heaviest keys of each state; 0 for none: faster.")  # fmt: skip
@plugins_option
@json_option
def report(
    source: Source,
    target: str,
    overwrite: bool,
    check: bool,
    limit: int,
    as_json_: bool,
) -> None:
    """Write a page of HTML that shows a snapshot, to look at and to send.

    Operators, states and their types, sizes, key groups as a picture, what any parallelism would
    give each subtask (typed into the page), the heaviest keys, and faults. Of a lake's snapshot
    also how the job's state grew. The page needs nothing but a browser, loads nothing, and runs
    nothing out of the snapshot. The same snapshot makes the same page.

    Exits with 1 if --check finds faults; the page is written all the same.

    \b
    Examples:
      statelake report savepoint-5f1e2c-0a1b2c3d4e5f --to report.html
      statelake report /checkpoints/chk-42 --check --to report.html --overwrite
      statelake report --lake lake --job orders --snapshot tuesday --to tuesday.html
    """
    from statelake.pipelines.report.gathering import lake_report, savepoint_report  # noqa: PLC0415 - late
    from statelake.pipelines.report.page import page_of  # noqa: PLC0415 - the same

    above, name = posixpath.split(target)
    directory = Directory(above or ".")
    _refuse(directory, name, target, overwrite=overwrite)
    with progress_bar("reading", quiet=as_json_) as progress:
        if source.in_lake:
            gathered = source.read(
                partial(lake_report, limit=limit, check=check, progress=progress)
            )
        else:
            gathered = savepoint_report(
                source.savepoint, limit, check=check, progress=progress, **source.reading
            )
    page = page_of(gathered).encode()
    _refuse(directory, name, target, overwrite=overwrite)  # it took a while
    directory.write(name, page)
    faults = None if gathered.integrity is None else len(gathered.integrity.faults)
    if as_json_:
        as_json({
            "path": target, "bytes": len(page), "operators": len(gathered.operators),
            "faults": faults,
        })  # fmt: skip
    else:
        verdict = "" if faults is None else f"; {faults or 'no'} fault{'s' * (faults > 1)}"
        tell(f"wrote {target}: {bytes_text(len(page))}{verdict}", marked=target)
    answer(yes=not faults)


def _refuse(directory: Directory, name: str, target: str, *, overwrite: bool) -> None:
    """Refuse a file that can't be written, or must not be.

    Raises:
        ConflictError: The file exists.
        SnapshotError: The path names no file, or its directory does not exist.
    """
    if not directory.is_object_store and not directory.exists():
        raise SnapshotError(
            "there is no such directory", place=directory.uri, remedy="make it first"
        )
    if not name or (directory.exists(name) and not directory.is_file(name)):
        raise SnapshotError("this is a directory", place=target, remedy="name a file in it")
    if directory.exists(name) and not overwrite:
        raise ConflictError("the file is there", place=target, remedy="--overwrite replaces it")
