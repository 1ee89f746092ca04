"""The whole way on bundled savepoints: inspect, archive with Dagster, query, erase, write back."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import dagster as dg
from rich.console import Console
from rich.rule import Rule

from statelake.pipelines.cli.commands.compare import diff, rescale
from statelake.pipelines.cli.commands.erasure.audit import audit
from statelake.pipelines.cli.commands.erasure.erase import erase_command
from statelake.pipelines.cli.commands.export import export
from statelake.pipelines.cli.commands.inspect import inspect
from statelake.pipelines.cli.commands.lake import snapshots
from statelake.pipelines.cli.commands.queries.sql import sql
from statelake.pipelines.cli.demo.spark_step import SparkStep
from statelake.pipelines.cli.demo.steps import Steps
from statelake.pipelines.orchestration.definitions import definitions

SAVEPOINTS = Path(__file__).parent / "savepoints"
JOB = "demo"
ERASED, REQUEST = -820795872871, "gdpr-4711"
QUERY = """
SELECT n.key, n.value AS name, t.value AS total, list(s.user_key ORDER BY s.user_key) AS scores
FROM kinds.name n JOIN kinds.total t USING (key) LEFT JOIN kinds.scores s USING (key)
GROUP BY ALL ORDER BY total DESC LIMIT 5
"""
TOTALS = "SELECT count(*) AS people, sum(value) AS total FROM kinds.total"
SHOWN_METADATA = {
    "savepoint": ("kind", "size (bytes)"),
    "state_tables": (
        "dagster/row_count", "files written", "files kept from the previous snapshot"
    ),
    "restore_plan": ("kinds: parallelism", "kinds: skew"),
    "exported_savepoint": ("savepoint",),
}  # fmt: skip
DAGSTER_SETTINGS = "telemetry:\n  enabled: false\nnux:\n  enabled: false\n"


def run_demo(directory: Path, home: Path, spark: SparkStep) -> None:
    """Run the demo.

    Args:
        directory: Where its savepoints, its lake and its exports are to be; replaced if there.
        home: Dagster's directory, whose UI then shows the runs.
        spark: The process of the step on Spark, which has begun.
    """
    started = time.monotonic()
    for name in ("savepoints", "lake", "exports"):
        shutil.rmtree(directory / name, ignore_errors=True)
    shutil.copytree(SAVEPOINTS, directory / "savepoints")
    lake = str(directory / "lake")
    os.environ.update(
        STATELAKE_SAVEPOINTS=str(directory / "savepoints"),
        STATELAKE_LAKE=lake,
        STATELAKE_EXPORTS=str(directory / "exports"),
        STATELAKE_JOB=JOB,
        DAGSTER_HOME=str(home),
    )
    out = Console(highlight=False)
    show = Steps(out)
    show.command("What is in a savepoint that real Flink wrote?", inspect,
                 str(directory / "savepoints" / "monday"), "--parallelism", "5")  # fmt: skip
    show.title("Dagster archives two of them: tables, checks, plan, export")
    on_spark = ("--engine", "spark", "--lake", lake, "--job", JOB, "--as-of", "monday", TOTALS)
    _write_settings(home)
    with dg.DagsterInstance.get() as instance:
        _archive(out, instance, "monday")
        spark.ask(on_spark)
        _archive(out, instance, "tuesday")
    _ask(show, lake)
    show.title("Spark reads the same tables: it started beside all this")
    show.line(sql, on_spark)
    out.file.write(spark.answer())
    _erase(show, lake, str(directory / "exports" / "tuesday-erased"))
    out.print(Rule(style="dim"))
    out.print(f"done in {time.monotonic() - started:.0f} s ({show.times()})")


def _ask(show: Steps, lake: str) -> None:
    """Query and compare what was archived."""
    show.command("The lake now", snapshots, "--lake", lake)
    show.command("Its state is SQL", sql, "--lake", lake, "--job", JOB, "--as-of", "monday", QUERY)
    show.command("What changed from Monday to Tuesday?", diff, "--lake", lake, "--job", JOB,
                 "monday", "tuesday", "--examples", "1")  # fmt: skip


def _erase(show: Steps, lake: str, to: str) -> None:
    """Erase a person from all of it, and write back what is left. Nobody reads it meanwhile."""
    asked = ("--lake", lake, "--request", REQUEST, f"--key={ERASED}")
    show.command(f"Erase one person, key {ERASED}, from every snapshot and every file",
                 erase_command, *asked, "--carried", "keep", "--yes")  # fmt: skip
    show.command("Prove it: every byte of the lake is searched", audit, "erase", *asked)
    show.command("Rescale it to 5 subtasks and 256 key groups: the plan", rescale, "--lake", lake,
                 "--job", JOB, "--snapshot", "tuesday", "--parallelism", "5",
                 "--max-parallelism", "256")  # fmt: skip
    show.command("Write it back as a savepoint", export, "--lake", lake, "--job", JOB, "--snapshot",
                 "tuesday", "--to", to, "--parallelism", "5",
                 "--max-parallelism", "256")  # fmt: skip


def _write_settings(home: Path) -> None:
    """Make Dagster's directory, if there is none."""
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(DAGSTER_SETTINGS, "utf-8")


def _archive(out: Console, instance: dg.DagsterInstance, name: str) -> None:
    """Materialize the assets of a savepoint in Dagster, as its UI would."""
    job = definitions.resolve_job_def("archive_and_export")
    rescaled = {"config": {"parallelism": 5}}
    config = {
        "ops": {"restore_plan": rescaled, "exported_savepoint": rescaled},
        "loggers": {"console": {"config": {"log_level": "ERROR"}}},
    }
    instance.add_dynamic_partitions("snapshots", [name])
    began = time.monotonic()
    done = job.execute_in_process(instance=instance, partition_key=name, run_config=config)
    _report(out, name, done, time.monotonic() - began)


def _report(out: Console, name: str, done: dg.ExecuteInProcessResult, seconds: float) -> None:
    out.print(f"[bold]{name}[/bold] in {seconds:.1f} s")
    tables = []
    for event in done.get_asset_materialization_events():
        *folders, asset = event.materialization.asset_key.path
        metadata = event.materialization.metadata
        if folders:
            tables.append(asset)
            continue
        shown = ", ".join(f"{key} {metadata[key].value}" for key in SHOWN_METADATA[asset])
        out.print(f"  materialized {asset:<19} {shown}", soft_wrap=True)
    out.print(f"  materialized the tables of {', '.join(sorted(tables))}", soft_wrap=True)
    for check in done.get_asset_check_evaluations():
        verdict = "passed" if check.passed else "FAILED"
        out.print(f"  check {check.check_name} of {check.asset_key.to_user_string()}: {verdict}")
