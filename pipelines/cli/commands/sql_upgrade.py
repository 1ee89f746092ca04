"""`statelake sql-upgrade` and `check sql`: what a Flink SQL job of a changed query keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import NamedSnapshot, answer, engine_option, source_options

Command = TypeVar("Command", bound=Callable[..., Any])


def plan_options(command: Command) -> Command:
    """Add the options that name both plans, and what they can't tell."""
    for option in (
        click.option("--no-uids", is_flag=True,
                     help="Both jobs run without a compiled plan."),
        click.option("--like", metavar="SAVEPOINT",
                     help="A savepoint of the new job, whose types are taken."),
        click.option("--map", "pairs", multiple=True, metavar="OLD=NEW",
                     help="Two nodes that are the same, where plans can't tell."),
        click.option("--new-plan", required=True, metavar="FILE",
                     help="The compiled plan of the new job."),
        click.option("--old-plan", required=True, metavar="FILE",
                     help="The compiled plan of the job that took the savepoint."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@source_options
@plan_options
@click.option("--to", "target", metavar="DIRECTORY",
              help="The new savepoint; without it only the verdict is shown.")  # fmt: skip
@click.option("--accept", multiple=True, metavar="WHAT",
              help="partly, filter, or lost=OPERATOR.")  # fmt: skip
@click.option("--suffix", default="-sql", show_default=True,
              help="Follows the snapshot's id in the new one's, in a lake.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the verdict, and change nothing.")
@click.option("--note", default="", help="Kept with the new snapshot of a lake.")
@engine_option
@plugins_option
@json_option
def sql_upgrade(
    source: NamedSnapshot,
    old_plan: str,
    new_plan: str,
    pairs: tuple[str, ...],
    like: str | None,
    no_uids: bool,
    target: str | None,
    accept: tuple[str, ...],
    suffix: str,
    dry_run: bool,
    note: str,
    engine: str,
    as_json_: bool,
) -> None:
    """Upgrade a Flink SQL job whose query changed.

    Writes the savepoint from which the new job goes on. Both plans are what Flink's COMPILE PLAN
    writes. Operators and columns of state are matched by what they mean: by their lineage from the
    tables. State is rewritten for the new job, and gets its uids. Nothing is written if anything is
    lost, unknown or ambiguous, unless it is accepted: `partly` what starts now or is null in old
    rows, `filter` what another filter counted, `lost=OPERATOR` state that may be lost.

    Exit code 1 if something stands in the way.

    \b
    Examples:
      statelake sql-upgrade savepoint-5f1e2c --old-plan old.json --new-plan new.json
      statelake sql-upgrade savepoint-5f1e2c --old-plan old.json --new-plan new.json \\
          --to savepoint-new --accept partly
      statelake sql-upgrade --lake lake --job orders --snapshot monday --old-plan old.json \\
          --new-plan new.json --map 5=7
    """
    source.check_target(target, dry_run=dry_run)
    words: Any = {"map": pairs, "like": like, "no_uids": no_uids, "accept": accept}
    with progress_bar("upgrading", quiet=as_json_) as progress:
        if source.in_lake:
            snapshot = source.stored(engine, progress)
            done = snapshot.sql_upgrade(
                old_plan, new_plan, suffix=suffix, dry_run=dry_run, note=note, **words
            )
        else:
            done = sl.sql_upgrade(
                source.savepoint, target, old_plan, new_plan, **words, **source.reading
            )
    show(done, as_json_=as_json_)
    answer(yes=not done.refused)


@click.command("sql")
@source_options
@plan_options
@plugins_option
@json_option
def check_sql(
    source: NamedSnapshot,
    old_plan: str,
    new_plan: str,
    pairs: tuple[str, ...],
    like: str | None,
    no_uids: bool,
    as_json_: bool,
) -> None:
    """Say what a Flink SQL job keeps of a savepoint when its query has changed.

    Of each operator with state, and of each of its columns: whether it keeps, is computed in full,
    starts now, is null in old rows, or is lost; and what Flink does by itself, which may be wrong
    in silence. Both plans are what Flink's COMPILE PLAN writes.

    Exit code 1 if anything is lost or unknown, or Flink by itself would give wrong results.

    \b
    Examples:
      statelake check sql savepoint-5f1e2c --old-plan old.json --new-plan new.json
      statelake check sql --lake lake --job orders --old-plan old.json --new-plan new.json
    """
    words: Any = {"map": pairs, "like": like, "no_uids": no_uids}
    if source.in_lake:
        done = source.stored().check_sql(old_plan, new_plan, **words)
    else:
        done = sl.check_sql(source.savepoint, old_plan, new_plan, **words, **source.reading)
    show(done, as_json_=as_json_)
    answer(yes=done.right)
