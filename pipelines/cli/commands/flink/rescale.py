"""`statelake flink rescale`: rescale, migrate or upgrade a job, with a way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from statelake.pipelines.cli.commands.flink.connecting import (
    connected,
    flink_option,
    program_options,
    status_line,
)
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.sql_upgrade import optional_plan_options
from statelake.pipelines.cli.commands.terminal import json_option, show
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    answer,
    job_option,
    lake_option,
    option_of,
    request_options,
)
from statelake.pipelines.live.jars import JarRun
from statelake.pipelines.live.requests import Rescale
from statelake.pipelines.requests.shared import Tried

if TYPE_CHECKING:
    from statelake.pipelines.lake.change.sql_upgrading import NoUids
    from statelake.pipelines.sql_jobs.sql_scripts import SqlPlans


@click.command()
@flink_option
@lake_option
@job_option
@program_options
@click.option("--old-jar", metavar="FILE", help="The JAR that runs now; by default the same.")
@click.option("--old-jar-id", help="The id of a JAR on the cluster.")
@click.option("--old-entry-class", help="By default the same.")
@click.option("--old-arg", "old_arguments", multiple=True, help="By default the same.")
@optional_plan_options
@request_options(Rescale)
@option_of(Tried, "dry_run")
@click.option("--roll-back", is_flag=True, help="Undo an earlier call that was killed.")
@click.option("--take-over", is_flag=True, help="An earlier call on another machine has ended.")
@engine_option
@plugins_option
@json_option
def rescale(
    flink: str,
    lake: str,
    job: str,
    program: JarRun,
    old_jar: str | None,
    old_jar_id: str | None,
    old_entry_class: str | None,
    old_arguments: tuple[str, ...],
    plans: SqlPlans | None,
    no_uids: NoUids,
    request: Rescale,
    dry_run: bool,
    roll_back: bool,
    take_over: bool,
    engine: str,
    as_json_: bool,
) -> None:
    """Rescale, migrate or upgrade a running job, or put it back as it was.

    The job is stopped with a savepoint; that is imported, checked, migrated, exported, and the new
    job runs from the export. With the plans of two queries, or with their scripts as in `check
    sql`, the state of a Flink SQL job is upgraded for the new query; what it would lose is refused
    before the job is stopped, as is a script that Flink does not compile. If the new job does not
    run and complete a checkpoint in time, or anything before fails, the old JAR runs again from the
    job's own savepoint, which is never touched; the exit code is then 1. Each step is recorded in
    the lake: after a kill, the same call continues, or undoes the steps with --roll-back. An
    upgrade needs --old-jar or --old-jar-id, as a cluster does not know which JAR a job runs.

    \b
    Examples:
      statelake flink rescale --flink http://jm:8081 --flink-job orders --lake lake --job orders \\
          --jar orders.jar --parallelism 12 --max-parallelism 1024 \\
          --savepoints s3://bucket/sp --exports /mnt/bucket/sp --path-map s3://bucket=/mnt/bucket
      statelake flink rescale --flink http://jm:8081 --flink-job orders --lake lake --job orders \\
          --jar orders-2.jar --old-jar orders-1.jar --migrate types.yaml \\
          --savepoints file:///sp --exports /sp --dry-run
      statelake flink rescale --flink http://jm:8081 --flink-job shop --lake lake --job shop \\
          --jar run-plan.jar --arg new.json --old-arg old.json --exports /sp \\
          --old-plan old.json --new-plan new.json --accept partly
    """
    if dry_run and roll_back:
        raise click.UsageError("--roll-back undoes what --dry-run leaves: give one of them")
    if old_jar and old_jar_id:
        raise click.UsageError("give --old-jar or --old-jar-id, not both")
    if request.migrate and not (old_jar or old_jar_id):
        raise click.UsageError("--migrate needs --old-jar or --old-jar-id: what to go back to")
    if plans is not None and not (old_jar or old_jar_id or old_arguments):
        raise click.UsageError(
            "a new query needs --old-jar, --old-jar-id or --old-arg: what to go back to"
        )
    plans = None if plans is None else plans.within(request.timeout)
    with connected(flink) as cluster:
        from statelake.pipelines.api import Lake  # noqa: PLC0415 - Delta only when wanted

        same = not (old_jar or old_jar_id)
        old = JarRun(
            program.jar if same else old_jar or "",
            program.jar_id if same else old_jar_id or "",
            program.entry_class if old_entry_class is None else old_entry_class,
            old_arguments or program.arguments,
        )
        words = {
            "cluster": cluster, "program": program, "old": old,
            "old_plan": "" if plans is None else plans.old,
            "new_plan": "" if plans is None else plans.new, "no_uids": no_uids,
        }  # fmt: skip
        rescaling = Lake(lake).job(job, engine=engine).live_rescale(**vars(request) | words)
        if dry_run:
            plan = rescaling.plan()
            show(plan, as_json_=as_json_, marked=plan.running.name)
            answer(yes=not plan.refused)
            return
        with status_line(quiet=as_json_) as report:
            done = rescaling.execute(
                roll_back=roll_back, take_over=take_over,
                report=lambda step, phase: report(step) if phase == "begins" else None,
            )  # fmt: skip
    style = "red" if done.why else "green"
    show(done, as_json_=as_json_, marked=done.outcome, style=style)
    answer(yes=not done.why)
