"""A demo on bundled savepoints: inspect, archive, query, erase, write back."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from statelake.pipelines.cli.commands.compare import diff, plan_rescale
from statelake.pipelines.cli.commands.erasure.audit import audit
from statelake.pipelines.cli.commands.erasure.erase import erase_command
from statelake.pipelines.cli.commands.export import export
from statelake.pipelines.cli.commands.inspect import inspect
from statelake.pipelines.cli.commands.lake import import_command, snapshots
from statelake.pipelines.cli.commands.queries.sql import sql
from statelake.pipelines.cli.demo.spark_step import SparkStep
from statelake.pipelines.cli.demo.steps import Steps
from statelake.state_core.errors import ConflictError
from statelake.state_core.extras import has_extra

SAVEPOINTS = Path(__file__).parent / "savepoints"
JOB = "demo"
ERASED, REQUEST = -820795872871, "gdpr-4711"
QUERY = """
SELECT n.key, n.value AS name, t.value AS total, list(s.user_key ORDER BY s.user_key) AS scores
FROM kinds.name n JOIN kinds.total t USING (key) LEFT JOIN kinds.scores s USING (key)
GROUP BY ALL ORDER BY total DESC LIMIT 5
"""
TOTALS = "SELECT count(*) AS people, sum(value) AS total FROM kinds.total"
MORE = {  # the steps that a demo has with an extra
    "dagster": "Dagster archives each savepoint, and checks it, exports it and shows it in its UI",
    "spark": "Spark reads and writes the same tables, on this machine or on a cluster",
}


def copy_savepoints(to: Path) -> None:
    """Copy the bundled savepoints into a new directory.

    Raises:
        ConflictError: It exists.
    """
    try:
        shutil.copytree(SAVEPOINTS, to)
    except FileExistsError:
        raise ConflictError(
            "the directory exists", place=str(to), remedy="name one that does not"
        ) from None


def run_demo(directory: Path, home: Path | None, spark: SparkStep | None) -> None:
    """Run the demo.

    Args:
        directory: The directory of its savepoints, lake and exports; replaced if it exists.
        home: Dagster's home directory, so that its UI shows the runs; None without Dagster.
        spark: The running process of the step on Spark; None without Spark.
    """
    started = time.monotonic()
    for name in ("savepoints", "lake", "exports"):
        shutil.rmtree(directory / name, ignore_errors=True)
    savepoints = directory / "savepoints"
    copy_savepoints(savepoints)
    lake = str(directory / "lake")
    os.environ.update(
        STATELAKE_SAVEPOINTS=str(savepoints),
        STATELAKE_LAKE=lake,
        STATELAKE_EXPORTS=str(directory / "exports"),
        STATELAKE_JOB=JOB,
    )
    out = Console(highlight=False)
    show = Steps(out)
    show.command("What is in a savepoint that real Flink wrote?", inspect,
                 str(savepoints / "monday"), "--parallelism", "5")  # fmt: skip
    on_spark = ("--engine", "spark", "--lake", lake, "--job", JOB, "--as-of", "monday", TOTALS)
    with _archive(show, home, savepoints, lake) as archive:
        archive("monday")
        if spark is not None:
            spark.ask(on_spark)
        archive("tuesday")
    _ask(show, lake)
    if spark is not None:
        show.title("Spark reads the same tables: it started beside all this")
        show.line(sql, on_spark)
        out.file.write(spark.answer())
    _erase(show, lake, str(directory / "exports" / "tuesday-erased"))
    out.print(Rule(style="dim"))
    out.print(f"done in {time.monotonic() - started:.0f} s ({show.times()})", soft_wrap=True)
    for extra, more in MORE.items():
        if not has_extra(extra):
            out.print(f"with the extra `{extra}` {more}", soft_wrap=True)


@contextmanager
def _archive(
    show: Steps, home: Path | None, savepoints: Path, lake: str
) -> Iterator[Callable[[str], None]]:
    """Yield a function that archives a savepoint, with Dagster if it is installed."""
    if home is not None:
        from statelake.pipelines.cli.demo.dagster_step import dagster_archive  # noqa: PLC0415 - an extra

        show.title("Dagster archives two of them: tables, checks, plan, export")
        with dagster_archive(show.out, home) as archive:
            yield archive
        return
    show.title("Archive two of them: a table for each state, versioned")

    def import_one(name: str) -> None:
        show.command("", import_command, str(savepoints / name), "--lake", lake, "--job", JOB,
                     "--snapshot", name)  # fmt: skip

    yield import_one


def _ask(show: Steps, lake: str) -> None:
    """Query and compare the archived snapshots."""
    show.command("The lake now", snapshots, "--lake", lake)
    show.command("Its state is SQL", sql, "--lake", lake, "--job", JOB, "--as-of", "monday", QUERY)
    show.command("What changed from Monday to Tuesday?", diff, "--lake", lake, "--job", JOB,
                 "monday", "tuesday", "--examples", "1")  # fmt: skip


def _erase(show: Steps, lake: str, to: str) -> None:
    """Erase a person from all snapshots, and write the result back. Nothing else reads the lake."""
    options = ("--lake", lake, "--request", REQUEST, f"--key={ERASED}")
    show.command(f"Erase one person, key {ERASED}, from every snapshot and every file",
                 erase_command, *options, "--carried", "keep", "--yes")  # fmt: skip
    show.command("Prove it: every byte of the lake is searched", audit, "erase", *options)
    show.command("Rescale it to 5 subtasks and 256 key groups: the plan", plan_rescale,
                 "--lake", lake, "--job", JOB, "--snapshot", "tuesday", "--parallelism", "5",
                 "--max-parallelism", "256")  # fmt: skip
    show.command("Write it back as a savepoint", export, "--lake", lake, "--job", JOB, "--snapshot",
                 "tuesday", "--to", to, "--parallelism", "5",
                 "--max-parallelism", "256")  # fmt: skip
