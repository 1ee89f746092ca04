"""`statelake flink rescale`: a job is rescaled, migrated or upgraded, with a way back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from statelake.pipelines.cli.commands.flink.connecting import (
    connected,
    flink_job_options,
    flink_option,
    form_option,
    path_map_option,
    program_options,
    seconds,
    status_line,
    timeout_option,
)
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import as_json, json_option, print_table, tell
from statelake.pipelines.cli.commands.times import Duration
from statelake.pipelines.cli.options import answer, engine_option, job_option, lake_option
from statelake.pipelines.flink.jars import JarRun

if TYPE_CHECKING:
    from statelake.pipelines.flink.answers import FlinkJobDetails
    from statelake.pipelines.operations.live_rescaling import RescaleResult
    from statelake.pipelines.operations.rescale_steps import RescalePlan


@click.command()
@flink_option
@flink_job_options
@lake_option
@job_option
@click.option("--parallelism", type=click.IntRange(min=1), help="By default as it is.")
@click.option("--max-parallelism", type=click.IntRange(1, 1 << 15), help="By default as it is.")
@program_options
@click.option("--old-jar", metavar="FILE", help="The JAR that runs now; by default the same.")
@click.option("--old-jar-id", help="The same, one that the cluster has.")
@click.option("--old-entry-class", help="By default the same.")
@click.option("--old-arg", "old_arguments", multiple=True, help="By default the same.")
@click.option(
    "--savepoints", default="", metavar="DIR",
    help="Where the cluster puts its savepoint; by default as it is configured.",
)  # fmt: skip
@click.option(
    "--exports", required=True, metavar="DIR", help="Where the new one is written, as it is here."
)
@path_map_option
@click.option("--migrate", default="", metavar="FILE", help="The types that states are to get.")
@click.option("--against", default="", help="As for `check compatibility`: a file, or a savepoint.")
@click.option("--declared", default="", metavar="MODULE:JOB", help="As for `check legality`.")
@form_option
@click.option(
    "--savepoint-timeout", type=Duration(), default="10min", show_default=True,
    help="How long the savepoint may take.",
)  # fmt: skip
@timeout_option("5min", "the job may take to run and to complete a checkpoint")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--roll-back", is_flag=True, help="Take an earlier call back that was killed.")
@click.option("--take-over", is_flag=True, help="An earlier call, elsewhere, is known to be gone.")
@engine_option
@plugins_option
@json_option
def rescale(
    flink: str,
    flink_job: str,
    lake: str,
    job: str,
    parallelism: int | None,
    max_parallelism: int | None,
    program: JarRun,
    old_jar: str | None,
    old_jar_id: str | None,
    old_entry_class: str | None,
    old_arguments: tuple[str, ...],
    savepoints: str,
    exports: str,
    path_map: tuple[str, ...],
    migrate: str,
    against: str,
    declared: str,
    form: str,
    savepoint_timeout: timedelta,
    timeout: timedelta,
    dry_run: bool,
    roll_back: bool,
    take_over: bool,
    engine: str,
    as_json_: bool,
) -> None:
    """Rescale, migrate or upgrade a running job, or put it back as it was.

    The job is stopped with a savepoint; that is imported, checked, migrated, exported, and the new
    job runs from the export. If it does not run and complete a checkpoint in time, or anything
    before fails, the old JAR runs again from the job's own savepoint, which is never touched; the
    exit code is then 1. Each step is kept in the lake: after a kill, the same call goes on, and
    with --roll-back it goes back. An upgrade needs --old-jar or --old-jar-id, as a cluster does
    not say which JAR a job runs.

    \b
    Examples:
      statelake flink rescale --flink http://jm:8081 --job-name orders --lake lake --job orders \\
          --jar orders.jar --parallelism 12 --max-parallelism 1024 \\
          --savepoints s3://bucket/sp --exports /mnt/bucket/sp --path-map s3://bucket=/mnt/bucket
      statelake flink rescale --flink http://jm:8081 --job-name orders --lake lake --job orders \\
          --jar orders-2.jar --old-jar orders-1.jar --migrate types.yaml \\
          --savepoints file:///sp --exports /sp --dry-run
    """
    if old_jar and old_jar_id:
        raise click.UsageError("give --old-jar or --old-jar-id, not both")
    if migrate and not (old_jar or old_jar_id):
        raise click.UsageError("--migrate needs --old-jar or --old-jar-id: what to go back to")
    with connected(flink) as cluster:
        from statelake.pipelines.flink.path_map import PathMap  # noqa: PLC0415 - heavy, as the next ones
        from statelake.pipelines.lake.catalog.catalog import Catalog  # noqa: PLC0415 - Delta only when wanted
        from statelake.pipelines.operations.live_rescaling import rescale_job  # noqa: PLC0415 - the same
        from statelake.pipelines.operations.rescale_steps import RescalePlan  # noqa: PLC0415 - the same

        same = not (old_jar or old_jar_id)
        old = JarRun(
            program.jar if same else old_jar or "",
            program.jar_id if same else old_jar_id or "",
            program.entry_class if old_entry_class is None else old_entry_class,
            old_arguments or program.arguments,
        )
        plan = RescalePlan(
            job, flink_job, program, old, savepoints, exports, PathMap.parse(path_map),
            parallelism or 0, max_parallelism or 0, migrate, against, declared, form,
            seconds(savepoint_timeout), seconds(timeout),
        )  # fmt: skip
        if dry_run:
            if not savepoints:
                plan = plan.on(cluster)
                if not as_json_:
                    tell(f"the cluster is configured to write savepoints to {plan.savepoints}")
            _show(plan, cluster.job(cluster.find_job(plan.flink_job).id), as_json_)
            return
        with status_line(quiet=as_json_) as report:
            done = rescale_job(
                cluster, Catalog(lake), plan, roll_back=roll_back, take_over=take_over,
                engine=engine,
                progress=lambda step, phase: report(step) if phase == "begins" else None,
            )  # fmt: skip
    _tell(done, as_json_)
    answer(yes=not done.why)


def _show(plan: RescalePlan, job: FlinkJobDetails, quiet: bool) -> None:
    """The plan, with nothing done."""
    from statelake.pipelines.operations.rescale_steps import STEPS, WAY_BACK  # noqa: PLC0415 - heavy

    change = {
        "job": job.id, "name": job.name, "state": job.state,
        "parallelism": [job.parallelism, plan.parallelism or job.parallelism],
        "max_parallelism": [job.max_parallelism, plan.max_parallelism or job.max_parallelism],
    }  # fmt: skip
    steps = [{"step": step.name, "what": step.what} for step in STEPS]
    back = [{"step": step.name, "what": step.what} for step in WAY_BACK]
    if quiet:
        as_json({**change, "steps": steps, "way_back": back})
        return
    before, after = change["parallelism"]
    most, then = change["max_parallelism"]
    tell(
        f"job {job.name} ({job.id}) is {job.state}: parallelism {before} → {after},"
        f" max parallelism {most} → {then}",
        marked=job.name,
    )
    for title, listed in (
        ("steps", steps),
        ("if one fails behind the first, or it does not run in time", back),
    ):
        rows = [(step["step"], step["what"]) for step in listed]
        print_table(title, ("<step", "<what"), rows)
    tell("a dry run: nothing was done")


def _tell(done: RescaleResult, quiet: bool) -> None:
    if quiet:
        as_json(asdict(done))
        return
    rows = [(step["step"], step["at"], step["did"]) for step in done.steps]
    print_table("", ("<step", "<at", "<did"), rows)
    style = "red" if done.why else "green"
    tell(f"{done.outcome}: job {done.flink_job}", marked=done.outcome, style=style)
    if done.why:
        tell(f"why: {done.why}")
    if done.savepoint:
        tell(f"its own savepoint is untouched: {done.savepoint}")
