"""`statelake lake`: what is about a lake as a whole."""

from __future__ import annotations

import click

from statelake.pipelines.api import Lake
from statelake.pipelines.cli.commands.terminal import as_json, bytes_text, json_option, show, tell
from statelake.pipelines.cli.options import lake_option


@click.group()
def lake() -> None:
    """Maintain a lake as a whole.

    \b
    Examples:
      statelake lake clean --lake /data/lake
      statelake lake upgrade --lake /data/lake
    """


@lake.command()
@lake_option
@click.option(
    "--exports",
    multiple=True,
    metavar="DIRECTORY",
    help="Where savepoints were written: what killed exports left there goes too.",
)
@click.option("--yes", is_flag=True, help="Do it: without this, only what would go is counted.")
@json_option
def clean(lake: str, exports: tuple[str, ...], yes: bool, as_json_: bool) -> None:
    """Delete what killed commands left: files that no snapshot and no running command has.

    Attempts of processes that are gone are taken back, deletions that were begun are finished, and
    files are deleted that nobody names any more: in every job, and in tables of jobs without
    snapshots. So it is in each job with every `drop`, too. A command that runs meanwhile keeps
    its files.

    Nothing happens without --yes.

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
@click.option("--yes", is_flag=True, help="Do it: without this, only the plan is shown.")
@json_option
def upgrade(lake: str, yes: bool, as_json_: bool) -> None:
    """Give a lake the newest format, so that this statelake writes into it.

    A lake of an older format can be read as it is. An upgrade is one commit, which changes no table
    of state: until it is done all is as before, and it may be stopped at any point. Afterwards an
    older statelake is refused.

    Nothing happens without --yes.

    \b
    Examples:
      statelake lake upgrade --lake /data/lake
      statelake lake upgrade --lake /data/lake --yes
    """
    opened = Lake(lake)
    plan = opened.upgrade() if yes else opened.plan_upgrade()
    show(plan, as_json_=as_json_, marked="")
