"""`statelake sql-upgrade` and `check sql`: what a Flink SQL job of a changed query keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.options import (
    FLINK_OF_SQL,
    FlinkOfSql,
    NamedSnapshot,
    answer,
    engine_option,
    flink_of_sql,
    gathered,
    source_options,
)

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class NamedPlans:
    """The plans of the old job and of the new one, as the command line names them.

    Attributes:
        named: Of each the file of the plan, that of the SQL script, of which one is None, the
            file that keeps the script's plan, and the Flink that compiles it.
    """

    named: tuple[tuple[str | None, str | None, str | None, FlinkOfSql], ...]

    def read(self) -> list[Any]:
        """Return both plans: the file of one, or what Flink compiles of a script.

        Raises:
            FlinkJobError: Flink does not compile a script.
        """
        return [
            plan if sql is None else sl.compile_sql(sql, kept, **flink)
            for plan, sql, kept, flink in self.named
        ]


def _plans(
    old_plan: str | None,
    old_sql: str | None,
    new_plan: str | None,
    new_sql: str | None,
    keep_plan: str | None,
    old_flink: str | None,
    flink_home: str | None,
    flink_version: str,
    classpath: tuple[str, ...],
    timeout: float,
) -> NamedPlans:
    for word, plan, sql in (("old", old_plan, old_sql), ("new", new_plan, new_sql)):
        if (plan is None) == (sql is None):
            raise click.UsageError(f"give --{word}-plan, or --{word}-sql")
    if keep_plan is not None and new_sql is None:
        raise click.UsageError("--keep-plan is for the plan of --new-sql")
    new = old = flink_of_sql(flink_home, flink_version, classpath, timeout)
    if old_flink is not None:
        is_version = old_flink.replace(".", "").isdecimal()
        home, version = (None, old_flink) if is_version else (old_flink, "")
        old = flink_of_sql(home, version, classpath, timeout)
    return NamedPlans(((old_plan, old_sql, None, old), (new_plan, new_sql, keep_plan, new)))


def plan_options(command: Command) -> Command:
    """Add the options that name both plans, and what they can't tell."""
    for option in (
        click.option("--no-uids", is_flag=True,
                     help="Both jobs run without a compiled plan."),
        click.option("--like", metavar="SAVEPOINT",
                     help="A savepoint of the new job, whose types are taken."),
        click.option("--map", "pairs", multiple=True, metavar="OLD=NEW",
                     help="Two nodes that are the same, where plans can't tell."),
    ):  # fmt: skip
        command = option(command)
    return gathered(
        "plans", _plans,
        click.option("--old-plan", metavar="FILE",
                     help="The compiled plan of the job that took the savepoint."),
        click.option("--old-sql", metavar="FILE",
                     help="Instead, that job's SQL script, which real Flink compiles here."),
        click.option("--new-plan", metavar="FILE",
                     help="The compiled plan of the new job."),
        click.option("--new-sql", metavar="FILE", help="Instead, that job's SQL script."),
        click.option("--keep-plan", metavar="FILE",
                     help="Keep the plan of --new-sql here: it is what the new job is to run."),
        *FLINK_OF_SQL,
        click.option("--old-flink", metavar="VERSION_OR_HOME",
                     help="The Flink that compiles --old-sql, if it is another."),
    )(command)  # fmt: skip


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
    plans: NamedPlans,
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

    A plan that is missing is compiled of the job's SQL script by real Flink, which takes Java. Its
    tables are empty ones: no connector is needed, and nothing is asked of your systems.

    Exit code 1 if something stands in the way.

    \b
    Examples:
      statelake sql-upgrade savepoint-5f1e2c --old-plan old.json --new-plan new.json
      statelake sql-upgrade savepoint-5f1e2c --old-plan old.json --new-plan new.json \\
          --to savepoint-new --accept partly
      statelake sql-upgrade --lake lake --job orders --snapshot monday --old-plan old.json \\
          --new-plan new.json --map 5=7
      statelake sql-upgrade savepoint-5f1e2c --old-sql old.sql --new-sql new.sql --no-uids \\
          --old-flink 1.20 --flink-version 2.3 --to savepoint-new
    """
    source.check_target(target, dry_run=dry_run)
    words: Any = {"map": pairs, "like": like, "no_uids": no_uids, "accept": accept}
    old_plan, new_plan = plans.read()
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
    plans: NamedPlans,
    pairs: tuple[str, ...],
    like: str | None,
    no_uids: bool,
    as_json_: bool,
) -> None:
    """Say what a Flink SQL job keeps of a savepoint when its query has changed.

    Of each operator with state, and of each of its columns: whether it keeps, is computed in full,
    starts now, is null in old rows, or is lost; and what Flink does by itself, which may be wrong
    in silence. Both plans are what Flink's COMPILE PLAN writes. One that is missing is compiled of
    the job's SQL script by real Flink, which takes Java. Its tables are empty ones: no connector is
    needed, and nothing is asked of your systems.

    Exit code 1 if anything is lost or unknown, or Flink by itself would give wrong results.

    \b
    Examples:
      statelake check sql savepoint-5f1e2c --old-plan old.json --new-plan new.json
      statelake check sql --lake lake --job orders --old-plan old.json --new-plan new.json
      statelake check sql savepoint-5f1e2c --old-sql old.sql --new-plan new.json \\
          --flink-home /opt/flink
    """
    words: Any = {"map": pairs, "like": like, "no_uids": no_uids}
    old_plan, new_plan = plans.read()
    if source.in_lake:
        done = source.stored().check_sql(old_plan, new_plan, **words)
    else:
        done = sl.check_sql(source.savepoint, old_plan, new_plan, **words, **source.reading)
    show(done, as_json_=as_json_)
    answer(yes=done.right)
