"""`statelake sql-upgrade` and `check sql`: what a Flink SQL job of a changed query keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

import statelake as sl
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_option, progress_bar, show
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    answer,
    gathered,
    option_of,
    request_options,
    source_options,
)
from statelake.pipelines.requests.changes import Accepting, GoingOn, Matching, UpgradeSavepoint
from statelake.pipelines.requests.request import options_of
from statelake.pipelines.sql_jobs.requests import NamedPlans
from statelake.state_core.errors import DeclarationError, EncodeError

if TYPE_CHECKING:
    from statelake.pipelines.lake.change.sql_upgrading import NoUids
    from statelake.pipelines.sql_jobs.sql_scripts import SqlPlans

Command = TypeVar("Command", bound=Callable[..., Any])


def _plans(**named: Any) -> SqlPlans:
    from statelake.pipelines.sql_jobs.sql_scripts import SqlPlans  # noqa: PLC0415 - not for --help

    try:
        return SqlPlans.named(NamedPlans(**named))
    except (DeclarationError, EncodeError) as error:
        raise click.UsageError(str(error)) from error


def _plans_or_none(**named: Any) -> SqlPlans | None:
    return _plans(**named) if any(named.values()) else None


_PLANS = {each.name: option_of(NamedPlans, each.name) for each in options_of(NamedPlans)}
_TIMEOUT = _PLANS.pop("timeout")


def plan_options(command: Command) -> Command:
    """Add the options that name both plans, and whether operators have their uids."""
    return gathered("plans", _plans, *_PLANS.values(), _TIMEOUT)(_UIDS(command))


def optional_plan_options(command: Command) -> Command:
    """Add the same where the query may stay, to a command that has a --timeout of its own."""
    return gathered("plans", _plans_or_none, *_PLANS.values())(_UIDS(command))


def _no_uids(no_uids: bool, no_old_uids: bool) -> NoUids:
    if no_uids and no_old_uids:
        raise click.UsageError("--no-uids is of both jobs, --no-old-uids of one: give one of them")
    return "old" if no_old_uids else no_uids


_UIDS = gathered(
    "no_uids", _no_uids,
    click.option("--no-uids", is_flag=True, help="Both jobs run without a compiled plan."),
    click.option("--no-old-uids", is_flag=True,
                 help="The old job alone does: the new one runs its plan."),
)  # fmt: skip


@click.command()
@source_options
@plan_options
@option_of(UpgradeSavepoint, "to")
@request_options(GoingOn)
@engine_option
@plugins_option
@json_option
def sql_upgrade(
    source: NamedSnapshot,
    plans: SqlPlans,
    no_uids: NoUids,
    to: str | None,
    request: GoingOn,
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
      statelake sql-upgrade savepoint-5f1e2c --old-plan plan.json --new-plan plan.json \\
          --no-old-uids --to savepoint-new
    """
    source.check_target(to, dry_run=request.dry_run)
    old_plan, new_plan = plans.read()
    with progress_bar("upgrading", quiet=as_json_) as progress:
        if source.in_lake:
            snapshot = source.stored(engine, progress)
            done = snapshot.sql_upgrade(old_plan, new_plan, no_uids=no_uids, **vars(request))
        else:
            words = request.words(Accepting)
            done = sl.sql_upgrade(
                source.savepoint, to, old_plan, new_plan, no_uids=no_uids, **words,
                **vars(source.reading),
            )  # fmt: skip
    if done.made:
        plans.keep()
    show(done, as_json_=as_json_)
    answer(yes=not done.refused)


@click.command("sql")
@source_options
@plan_options
@request_options(Matching)
@plugins_option
@json_option
def check_sql(
    source: NamedSnapshot,
    plans: SqlPlans,
    no_uids: NoUids,
    request: Matching,
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
    words = {"no_uids": no_uids, **vars(request)}
    old_plan, new_plan = plans.read()
    done = source.placed().check_sql(old_plan, new_plan, **words)
    if done.right:
        plans.keep()
    show(done, as_json_=as_json_)
    answer(yes=done.right)
