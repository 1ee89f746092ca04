"""A migration backfilled over many small snapshots, as Dagster's dialog launches it, killed once.

`python -m benchmarks.backfill [--snapshots 300] [--per-run 10]`. A webserver, a daemon and a
process for each run: what is measured is what a user waits for.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measuring import Row, print_table
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from tests.support.dagster_api import DagsterApi
from tests.support.dagster_server import dagster_dev
from tests.support.savepoints.golden_cases import golden_cases

SNAPSHOTS = 300
PER_RUN = 10
JOB = "orders"
LOCATION = "backfilled"
POLL_SECONDS = 0.5
SUFFIX = "-migrated"
DEFINITIONS = """
import dagster as dg
from statelake.pipelines.orchestration.component import StateLake
from statelake.pipelines.orchestration.settings import JobSettings

job = JobSettings(name={job!r}, savepoints={data!r}, engine="local", partitions_per_run={per_run})
defs = dg.build_defs_for_component(StateLake(lake={lake!r}, jobs=[job]))
"""
NEW_TYPES = """
states:
  customers/customer:  # of its fields, all but these go; `level` is new
    type: {pojo: "Judge$Customer", fields: {id: long, level: int, name: String}}
    drop: [address, balance, color, scores, tags]
"""


@dataclass
class Watched:
    """What was seen of a backfill.

    Attributes:
        seconds: From its launch to the end of its last run.
        peaks: Of each run, in order, the most memory that its process had (MiB).
        killed_at: How many snapshots were migrated when a run was killed; 0 if none was.
    """

    seconds: float = 0.0
    peaks: dict[str, float] = field(default_factory=dict)
    killed_at: int = 0


class Backfill:
    """A lake with snapshots, and a Dagster over it.

    Args:
        work: A directory for both.
        snapshots: How many.
    """

    def __init__(self, work: Path, snapshots: int) -> None:
        self.lake = Catalog(work / "lake")
        self.names = [f"night-{number:03}" for number in range(1, snapshots + 1)]
        self.spec = work / "new_types.yaml"
        self.spec.write_text(NEW_TYPES)
        savepoint = golden_cases("pojo", form="canonical")[0].snapshot
        for name in self.names:
            import_snapshot(
                self.lake, str(savepoint), JOB, Import(uids=["customers"]), snapshot_id=name,
                engine="local",
)  # fmt: skip

    def migrated(self) -> int:
        """How many snapshots are."""
        summaries = self.lake.summaries(JOB)
        return sum(summary.snapshot_id.endswith(SUFFIX) for summary in summaries)

    def launch(self, api: DagsterApi, *, kill_at: int = 0) -> Watched:
        """Launch it over all snapshots, and watch it until all of its runs are over.

        Args:
            api: The webserver.
            kill_at: When so many are migrated, the process of the run that is at work is killed.
        """
        watched = Watched()
        config = {"state": "customers/customer", "to": str(self.spec)}
        ops = {f"{JOB}__migrated_tables": {"config": config}}
        began = time.time()
        launched = api.backfill(f"{JOB}_migrate_snapshots", self.names, {"ops": ops})
        while api.backfill_status(launched) in ("REQUESTED", "STARTED"):
            for run in api.runs():
                process = None if run.is_over else api.process_of(run.id)
                if run.tags.get("dagster/backfill") != launched or process is None:
                    continue
                watched.peaks[run.id] = _peak(process) or watched.peaks.get(run.id, 0.0)
                if kill_at and not watched.killed_at and self.migrated() >= kill_at:
                    os.kill(process, signal.SIGKILL)
                    watched.killed_at = self.migrated()
            time.sleep(POLL_SECONDS)
        ended = [
            run.ended for run in api.runs()
            if run.ended and run.tags.get("dagster/backfill") == launched
        ]  # fmt: skip
        watched.seconds = max(ended) - began
        return watched


def _peak(process: int) -> float:
    """The most memory that a process has had (MiB); 0 if it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(sizes[0]) / 1024 if sizes else 0.0


def measure(work: Path, snapshots: int, per_run: int) -> list[Row]:
    """A backfill that is killed at a third, and launched again."""
    began = time.monotonic()
    backfill = Backfill(work, snapshots)
    imported = time.monotonic() - began
    project = work / "project"
    project.mkdir()
    (project / f"{LOCATION}.py").write_text(
        DEFINITIONS.format(job=JOB, data=str(work), lake=backfill.lake.location, per_run=per_run)
    )
    (project / "workspace.yaml").write_text(f"load_from:\n  - python_module: {LOCATION}\n")
    with dagster_dev(project, work / "home") as address:
        api = DagsterApi(address, LOCATION)
        for name in backfill.names:
            api.add_partition(f"{JOB}_snapshots", name)
        first = backfill.launch(api, kill_at=snapshots // 3)
        left = snapshots - backfill.migrated()
        second = backfill.launch(api)
        if backfill.migrated() != snapshots:
            raise SystemExit(f"{backfill.migrated()} of {snapshots} are migrated")
    peaks = [peak for peak in (*first.peaks.values(), *second.peaks.values()) if peak]
    return [
        Row("imports before, a snapshot", f"{imported / snapshots:.2f} s"),
        Row(
            f"launched, a run killed behind {first.killed_at} of {snapshots}: a snapshot",
            f"{first.seconds / max(1, snapshots - left):.2f} s",
        ),
        Row(f"launched again, {left} left: all of it", f"{second.seconds:.0f} s"),
        Row("runs", str(len(first.peaks) + len(second.peaks))),
        Row("most memory of the first run's process, of the last one's, of any",
            f"{peaks[0]:.0f} MiB, {peaks[-1]:.0f} MiB, {max(peaks):.0f} MiB"),
    ]  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, default=SNAPSHOTS)
    parser.add_argument("--per-run", type=int, default=PER_RUN)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = measure(Path(name), given.snapshots, given.per_run)
    title = f"A migration backfilled over {given.snapshots} snapshots, {given.per_run} a run"
    print_table(title, rows)


if __name__ == "__main__":
    main()
