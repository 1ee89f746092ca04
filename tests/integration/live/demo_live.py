"""`make demo-live`: a real Flink cluster, kept by a real Dagster; all of it ends with the demo.

Two jobs run: one of Flink's own examples, and one whose count shows whether anything is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.rule import Rule

from statelake.pipelines.cli.commands.flink.group import flink
from statelake.pipelines.cli.commands.queries.sql import sql
from statelake.pipelines.cli.demo.steps import Steps
from statelake.pipelines.live.live_rescaling import PUT_BACK, RESCALED
from tests.integration.flink.live_cluster import (
    TASK_MANAGERS,
    VERSION,
    LiveFlink,
    counter_jar,
    examples_jar,
)
from tests.support.dagster_api import DagsterApi, DagsterRun
from tests.support.dagster_server import dagster_dev

__all__ = ["main"]

PROJECT = Path(__file__).parents[3] / "examples" / "dagster_project"
LOCATION = "state_of_flink"
CARS = "org.apache.flink.streaming.examples.windowing.TopSpeedWindowing"
DEFINITIONS = """\
type: statelake.dagster.StateLake
attributes:
  lake: "{{ env('LIVE_DATA') }}/lake"
  exports: "{{ env('LIVE_DATA') }}/exports"
  jobs:
    - name: counting
      savepoints: "{{ env('LIVE_DATA') }}/savepoints/counting"
      sensor_seconds: 5
      flink:
        jar: "{{ env('LIVE_DATA') }}/counting-1.jar"
        arguments: [counting]
        path_map: {"file:/": /}
        schedule: "* * * * *"
    - name: cars
      savepoints: "{{ env('LIVE_DATA') }}/savepoints/cars"
      sensor_seconds: 5
      flink: {job: CarTopSpeedWindowingExample, path_map: {"file:/": /}, schedule: "* * * * *"}
"""
COUNTS = """
SELECT s.snapshot, count(*) AS keys, sum(c.value) AS counted,
       bool_and(c.value = (l.value - c.key) / 50 + 1) AS "none lost, none twice"
FROM counter.count@all c JOIN counter.last@all l USING (snapshot, key)
JOIN statelake.snapshots s USING (snapshot) GROUP BY ALL ORDER BY min(s.taken_at)
"""
TABLES = """
SELECT job, operator, state, value_type, max(entries) AS entries
FROM statelake.states WHERE entries > 0 GROUP BY ALL ORDER BY ALL
"""
JOBS = ("counting", "cars")
WAIT = 300.0  # seconds for what Dagster is to do on a busy machine


def main() -> None:
    """Run it; Ctrl-C, too, ends all that it started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default="demo-live", type=Path, help="replaced if it is there")
    directory = parser.parse_args().dir.resolve()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with ExitStack() as everything:
            _Demo(directory, everything).run()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; Flink and Dagster are stopped")


class _Demo:
    """What its parts have in common."""

    def __init__(self, directory: Path, everything: ExitStack) -> None:
        self.out = Console(highlight=False)
        self.show = Steps(self.out)
        self.directory = directory
        self.told: set[str] = set()
        self.began = time.monotonic()
        for name in ("project", "lake", "savepoints", "exports", "dagster"):
            shutil.rmtree(directory / name, ignore_errors=True)
        for name in JOBS:
            (directory / "savepoints" / name).mkdir(parents=True)
        self.show.title(f"Flink {VERSION}: a JobManager and {TASK_MANAGERS} TaskManagers")
        self.out.print("(the first time, Flink is downloaded)", style="dim")
        live = LiveFlink()  # it starts while Dagster does
        everything.push(live)
        url = live.url
        os.environ.update(
            STATELAKE_FLINK=url, STATELAKE_FLINK_PATH_MAP="file:/=/",
            STATELAKE_LAKE=str(directory / "lake"), LIVE_DATA=str(directory),
        )  # fmt: skip
        for number, entry in enumerate(("LiveCounter", "TextCounter"), start=1):
            counter_jar(directory, f"counting-{number}.jar", entry)
        shutil.copy(examples_jar(), directory / "examples.jar")
        self.show.title("Dagster: webserver and daemon over a project; this is its defs.yaml")
        self.out.print(DEFINITIONS.rstrip(), style="dim", markup=False, soft_wrap=True)
        address = everything.enter_context(self._dagster())
        self.api = DagsterApi(address, LOCATION)
        live.await_workers()
        self.out.print(f"Dagster {address}, Flink {url}: as long as the demo runs")

    def run(self) -> None:
        """All of it."""
        self._run_jobs()
        self._take_by_schedule()
        self._rescale("Rescale to 3 subtasks and 300 key groups, which Flink alone refuses",
                      {"parallelism": 3, "max_parallelism": 300}, RESCALED)  # fmt: skip
        self._count("rescaled", "It runs on from its state: the count goes on")
        self._rescale("An upgrade to a JAR that makes the count a text: no way to restore that",
                      {"jar": str(self.directory / "counting-2.jar")}, PUT_BACK)  # fmt: skip
        self._count("put-back", "The old JAR runs on from its own savepoint: the count goes on")
        self.show.command("The cluster now", flink, "jobs")
        self.out.print(Rule(style="dim"))
        self.out.print(f"done in {time.monotonic() - self.began:.0f} s")

    def _dagster(self) -> AbstractContextManager[str]:
        """The example project with the demo's own `defs.yaml`."""
        project = self.directory / "project"
        shutil.copytree(PROJECT, project)
        (project / LOCATION / "defs" / "lake" / "defs.yaml").write_text(DEFINITIONS, "utf-8")
        return dagster_dev(project, self.directory / "dagster", concurrent_runs=2)

    def _run_jobs(self) -> None:
        at = str(self.directory)
        self.show.command("Two jobs: one of Flink's examples, and one that counts", flink, "run",
                          "--jar", f"{at}/examples.jar", "--entry-class", CARS, "--parallelism",
                          "2")  # fmt: skip
        self.show.command("", flink, "run", "--jar", f"{at}/counting-1.jar", "--arg", "counting",
                          "--parallelism", "2")  # fmt: skip

    def _take_by_schedule(self) -> None:
        """At the next minute the daemon asks for savepoints; sensors find and archive them."""
        self.show.title("Every minute a schedule takes savepoints; sensors find and archive them")
        for name in JOBS:
            self.api.switch_on("sensor", f"{name}_new_savepoints")
            self.api.switch_on("schedule", f"{name}_nightly_flink_savepoint")
        self._await("take_savepoint")
        for name in JOBS:  # one of each is enough to see
            self.api.stop_schedule(f"{name}_nightly_flink_savepoint")
        self._await("archive_and_export")
        self.show.command("The lake", sql, TABLES)

    def _await(self, job: str) -> None:
        """Wait for a run over each job's state."""
        names = {f"{name}_{job}" for name in JOBS}
        self.api.await_runs(lambda over: names <= {run.job for run in over}, WAIT, self._tell)

    def _rescale(self, title: str, config: dict[str, Any], outcome: str) -> None:
        """Launch it in Dagster, and show its steps.

        Raises:
            SystemExit: It comes to another outcome.
        """
        self.show.title(title)
        self.out.print(f"Dagster: counting_rescale_job {json.dumps(config)}", style="dim",
                       soft_wrap=True)  # fmt: skip
        launched = self.api.launch("counting_rescale_job", {"ops": {"rescale": {"config": config}}})
        self._tell(self.api.ended(launched, WAIT))
        metadata = self.api.metadata(launched)
        if metadata.get("outcome") != outcome:
            sys.exit(f"the job was to be {outcome}: {metadata}")
        for line in metadata["steps"].splitlines()[2:]:
            step, at, did = (cell.strip() for cell in line.strip("|").split("|"))
            self.out.print(f"  {at[11:19]}  {step:<14} {did}", soft_wrap=True, markup=False)
        self.out.print(f"  [bold]{outcome}[/bold]")
        if metadata["why"]:
            self.out.print(f"  why: {metadata['why']}", markup=False, soft_wrap=True)

    def _count(self, snapshot: str, title: str) -> None:
        """A savepoint of the job as it runs now, and the counts of all snapshots."""
        self.show.command(title, flink, "savepoint", "--flink-job", "counting", "--savepoints",
                          f"file://{self.directory}/savepoints/by-hand", "--job", "counting",
                          "--as", snapshot)  # fmt: skip
        self.show.command("", sql, "--job", "counting", COUNTS)

    def _tell(self, run: DagsterRun) -> None:
        """A line of a run that is over, once."""
        if run.id in self.told:
            return
        self.told.add(run.id)
        by = run.tags.get("dagster/schedule_name") or run.tags.get("dagster/sensor_name") or "us"
        style = "green" if run.status == "SUCCESS" else "red"
        took = (run.ended or 0) - (run.began or 0)
        ended = time.strftime("%H:%M:%S", time.localtime(run.ended))
        outcome = f"[{style}]{run.status}[/{style}] in {took:.0f} s"
        self.out.print(f"  {ended}  {run.job}, asked for by {by}: {outcome}", soft_wrap=True)


if __name__ == "__main__":
    main()
