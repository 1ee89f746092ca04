"""The proof before a deploy: a new JAR is run from a job's snapshot, looked at, and cancelled.

While it runs it does what it does: reads its sources, writes its sinks. Where these lead is said by
the program's arguments, which are the caller's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

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
from statelake.state_core.formats.layout.state_compatibility import StateVerdict


@dataclass(frozen=True)
class CanaryResult:
    """The result of a canary.

    Attributes:
        snapshot: The snapshot that it was run from.
        restores: Whether it came to run, and to complete a checkpoint.
        why: Flink's own reason, if not.
        verdicts: What was expected of each state; None if no types were given.
        flink_job: The id that it had.
        left_out: What of the snapshot it did not get, beside keys that are not in the sample.
    """

    snapshot: str
    restores: bool
    why: str
    verdicts: list[StateVerdict] | None
    flink_job: str
    left_out: list[str]

    @property
    def compatible(self) -> bool | None:
        """Return whether it was expected to restore; None if no types were given."""
        if self.verdicts is None:
            return None
        return not any(verdict.fault for verdict in self.verdicts)


def run_canary(
    cluster: FlinkCluster,
    lake: Catalog,
    job: str,
    snapshot_id: str,
    program: JarRun,
    exports: str,
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
        cluster: Where: a staging cluster, or the job's own.
        lake: The lake.
        job: The job in the lake.
        snapshot_id: The snapshot.
        program: The program to run.
        exports: Where its savepoint is written, as that is called here; it goes again.
        paths: What the cluster's directories are called here.
        parallelism: By default as it was.
        max_parallelism: By default as it was.
        sharing: A sample of the keys, and what is masked; by default it is run from all of it.
        against: A file or a savepoint with the new types, for a verdict of ours beside Flink's.
        timeout: Seconds that it may take to run and complete a checkpoint.
        engine: Where the export runs.
        report: Called with what is being waited for.

    Raises:
        UnreachableClusterError: The cluster is gone; the message names what may be left there.
        StateError: There is no such snapshot, or it can't be exported.
    """
    record = lake.snapshot(job, snapshot_id)
    verdicts = None
    if against:
        verdicts = check_against(record, against, allow_missing=program.allow_non_restored)
    job_id = new_id()
    name = f"canary-{job_id}"
    directory = Directory(exports).confined()
    target = directory.checked_location(name)
    jars = Jars(cluster)
    why = ""
    try:
        jars.id_of(program)  # before anything is written
        done = export_snapshot(
            lake, job, snapshot_id, target, parallelism=parallelism,
            max_parallelism=max_parallelism, sharing=sharing, engine=engine,
        )  # fmt: skip
        try:
            jars.run(
                program, savepoint=(paths or PathMap()).there(target), job_id=job_id,
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
    """The largest of its operators', which a program's own default is to be."""
    operators = lake.snapshot(job, snapshot_id).operators
    return max((operator.parallelism for operator in operators), default=1)


def _cancel(cluster: FlinkCluster, job_id: str) -> None:
    """Cancel the canary, if it came so far.

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
            remedy="cancel it when the cluster is there: it writes its sinks until then",
        ) from error  # fmt: skip
