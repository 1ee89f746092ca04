"""`statelake lake`: maintain a lake as a whole."""

from __future__ import annotations

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    progress_bar,
    show,
    tell,
)
from statelake.pipelines.cli.options import answer, lake_option, yes_option


@click.group()
def lake() -> None:
    """Maintain a lake as a whole.

    \b
    Examples:
      statelake lake check --lake /data/lake
      statelake lake clean --lake /data/lake
      statelake lake upgrade --lake /data/lake
    """


@lake.command()
@lake_option
@click.option(
    "--resume",
    metavar="FILE",
    help="Go on where an earlier check with the same file was stopped; the file is deleted at the"
    " end.",
)
@json_option
def check(lake: str, resume: str | None, as_json_: bool) -> None:
    """Check every byte of a lake: logs, tables, carried files.

    Each file is compared with its digest; rows of files of earlier versions, which have none, with
    the catalog's fingerprints. A damaged file is named with the snapshots
    that have it, and the places from which it can be had again.

    Exit code 1 if a file is damaged.

    \b
    Examples:
      statelake lake check --lake /data/lake
      statelake lake check --lake /data/lake --resume checked --json
    """
    with progress_bar("checking", quiet=as_json_, of_bytes=True) as progress:
        report = Lake(lake).check(resume, progress)
    show(report, as_json_=as_json_, marked=report.verdict)
    answer(yes=report.sound)


@lake.command()
@lake_option
@click.option(
    "--exports",
    multiple=True,
    metavar="DIRECTORY",
    help="A directory of exports: unfinished savepoints of killed exports are deleted, too.",
)
@yes_option
@json_option
def clean(lake: str, exports: tuple[str, ...], yes: bool, as_json_: bool) -> None:
    """Delete the leftovers of killed commands: files that no snapshot and no running command uses.

    Attempts of ended processes are taken back, started deletions are completed, and unused files
    are deleted, in every job and in the tables of jobs without snapshots. Every `drop` does the
    same for its job. A command that runs meanwhile keeps its files.

    Without --yes nothing is changed.

    \b
    Examples:
      statelake lake clean --lake /data/lake
      statelake lake clean --lake /data/lake --yes
      statelake lake clean --lake /data/lake --exports /data/savepoints --yes
    """
    opened = Lake(lake)
    freed = opened.clean(exports) if yes else opened.plan_clean(exports)
    if as_json_:
        as_json({"cleaned": yes, "files": freed.files, "bytes": freed.size})
    elif yes:
        tell(f"{bytes_text(freed.size)} freed in {freed.files} files")
    elif freed.files:
        tell(f"{freed.files} files are nobody's ({bytes_text(freed.size)}): --yes deletes them")
    else:
        tell("nothing to clean")


@lake.command()
@lake_option
@yes_option
@json_option
def upgrade(lake: str, yes: bool, as_json_: bool) -> None:
    """Give a lake the newest format, so that this statelake writes into it.

    A lake of an older format can be read as it is. An upgrade is one commit, which changes no table
    of state, and can be stopped at any point. Afterwards an older statelake is refused.

    Without --yes nothing is changed.

    \b
    Examples:
      statelake lake upgrade --lake /data/lake
      statelake lake upgrade --lake /data/lake --yes
    """
    opened = Lake(lake)
    plan = opened.upgrade() if yes else opened.plan_upgrade()
    show(plan, as_json_=as_json_, marked="")
