"""Run a new JAR from a job's snapshot before its deployment, and cancel it after a checkpoint.

While it runs, it reads its sources and writes its sinks. The caller chooses these by the program's
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from statelake.pipelines.engine import Engine
from statelake.pipelines.flink.cluster import FlinkCluster, Report, new_id
from statelake.pipelines.flink.jars import JarRun, Jars
from statelake.pipelines.flink.path_map import PathMap
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.share.sharing import Sharing
from statelake.pipelines.lake.verify.compatibility import check_against
from statelake.state_core.errors import ClusterError, NotFoundError, UnreachableClusterError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.state_compatibility import Verdicts
from statelake.state_core.printable import Printed, Table


@dataclass(frozen=True)
class CanaryResult(Printed):
    """The result of a canary.

    Attributes:
        snapshot: The snapshot from which the program was run.
        restores: Whether it ran, and completed a checkpoint.
        why: Flink's own reason, if it did not.
        verdicts: The expected result for each state; None if no types were given.
        flink_job: The id of its job on the cluster.
        left_out: The parts of the snapshot that it did not get, beside keys outside the sample.
    """

    snapshot: str
    restores: bool
    why: str
    verdicts: Verdicts | None
    flink_job: str
    left_out: list[str]

    @property
    def compatible(self) -> bool | None:
        """Return whether all states were expected to restore; None if no types were given."""
        if self.verdicts is None:
            return None
        return not self.verdicts.faults

    @property
    def verdict(self) -> str:
        """Whether it restores, in words."""
        return "restores" if self.restores else "is refused"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        states = [
            {"operator": each.operator, "state": each.state, "verdict": each.result.verdict.text,
             "reasons": list(map(str, each.result.reasons))}
            for each in self.verdicts or ()
        ]  # fmt: skip
        return {
            "snapshot": self.snapshot, "restores": self.restores, "why": self.why,
            "compatible": self.compatible, "states": states, "left_out": self.left_out,
        }  # fmt: skip

    def lines(self) -> Iterator[str | Table]:
        """Yield what people read."""
        yield f"the JAR {self.verdict} from {self.snapshot}"
        for what in self.left_out:
            yield f"left out: {what}"
        if self.why:
            yield f"Flink: {self.why}"
        if self.verdicts is None:
            yield "statelake: no types were given with --against"
            return
        expected = "compatible" if self.compatible else "incompatible"
        yield self.verdicts.table(f"statelake: {expected}")


def run_canary(
    cluster: FlinkCluster,
    lake: Catalog,
    job: str,
    snapshot_id: str,
    program: JarRun,
    exports: str = "",
    *,
    paths: PathMap | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    sharing: Sharing | None = None,
    against: str = "",
    timeout: float = 300,
    engine: Engine | str = "auto",
    report: Report | None = None,
) -> CanaryResult:
    """Run a program from a snapshot until it has completed a checkpoint, and clean up.

    Args:
        cluster: The cluster: for staging, or the job's own.
        lake: The lake.
        job: The job in the lake.
        snapshot_id: The snapshot.
        program: The program to run.
        exports: The directory, as this machine names it, for its savepoint, which is deleted at the
            end; by default the one that the cluster is configured with for savepoints.
        paths: Paths of the cluster as paths of this machine.
        parallelism: By default the snapshot's.
        max_parallelism: By default the snapshot's.
        sharing: A sample of the keys, and what is masked; by default the snapshot as it is.
        against: A file or a savepoint with the new types, for statelake's own verdict beside
            Flink's.
        timeout: Seconds until it must run and have completed a checkpoint.
        engine: The engine of the export.
        report: Called with the awaited event.

    Raises:
        UnreachableClusterError: The cluster does not answer; the message names the job that may be
            left.
        StateError: There is no such snapshot, or it can't be exported.
    """
    record = lake.snapshot(job, snapshot_id)
    verdicts = None
    if against:
        verdicts = check_against(record, against, allow_missing=program.allow_non_restored)
    job_id = new_id()
    name = f"canary-{job_id}"
    paths = paths or PathMap()
    directory = Directory(exports or paths.here(cluster.savepoint_directory())).confined()
    target = directory.checked_location(name)
    jars = Jars(cluster)
    why = ""
    try:
        jars.id_of(program)  # before the export writes a file
        done = export_snapshot(
            lake, job, snapshot_id, target, parallelism=parallelism,
            max_parallelism=max_parallelism, sharing=sharing, engine=engine,
        )  # fmt: skip
        try:
            jars.run(
                program, savepoint=paths.there(target), job_id=job_id,
                parallelism=parallelism or _parallelism_of(lake, job, snapshot_id),
                max_parallelism=max_parallelism,
            )  # fmt: skip
            cluster.wait_until_running(job_id, timeout=timeout, report=report)
        except UnreachableClusterError:
            raise
        except ClusterError as error:
            why = error.problem
        _cancel(cluster, job_id)
    except BaseException:
        with suppress(ClusterError, NotFoundError):
            cluster.cancel(job_id)
        raise
    finally:
        jars.forget()
        directory.delete_tree(name)
    return CanaryResult(snapshot_id, not why, why, verdicts, job_id, done.left_out)


def _parallelism_of(lake: Catalog, job: str, snapshot_id: str) -> int:
    """Return the largest of its operators', as the program's default."""
    operators = lake.snapshot(job, snapshot_id).operators
    return max((operator.parallelism for operator in operators), default=1)


def _cancel(cluster: FlinkCluster, job_id: str) -> None:
    """Cancel the canary, if it was submitted.

    Raises:
        UnreachableClusterError: The cluster did not answer; the job may run on.
    """
    try:
        cluster.cancel(job_id)
    except NotFoundError:
        return
    except ClusterError as error:
        raise UnreachableClusterError(
            f"the canary, job {job_id}, is not cancelled ({error.problem})", place=error.place,
            remedy="cancel it when the cluster answers again: it writes its sinks until then",
        ) from error  # fmt: skip
