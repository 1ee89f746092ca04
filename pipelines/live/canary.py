"""Run a JAR from a snapshot, and cancel it after a checkpoint: before a deployment, or as a drill.

While it runs, it reads its sources and writes its sinks. The caller chooses these by the program's
arguments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from statelake.pipelines.engine import Engine
from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.find.scanning import scan
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.share.sharing import sharing_of
from statelake.pipelines.lake.verify.compatibility import check_against
from statelake.pipelines.live.cluster import FlinkCluster, new_id
from statelake.pipelines.live.jars import Jars
from statelake.pipelines.live.requests import Canary, Drill
from statelake.pipelines.requests.request import takes
from statelake.state_core.errors import (
    ClusterError,
    NotFoundError,
    StateError,
    UnreachableClusterError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.layout.state_compatibility import Verdicts
from statelake.state_core.printable import Printed, Table, bytes_text

CLOCKS = 60.0  # seconds by which the clocks of two machines may differ


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
        """Return the JSON form."""
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
        """Yield the text form: lines and tables."""
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


@dataclass(frozen=True)
class DrillResult(Printed):
    """The result of a drill: how much would have been lost, and for how long nothing would run.

    Attributes:
        snapshot: The snapshot that was restored: the newest sound one.
        taken: When its `_metadata` was written; that of a copy in a store, when it was copied.
        age_seconds: Its age when the drill began; negative if it is of the future.
        bytes: The bytes of its state.
        look_seconds: How long it took to find it.
        restore_seconds: How long it took the job to run and to complete a checkpoint (with the
            time before, RTO).
        restores: Whether it did.
        why: Flink's own reason, if it did not.
        flink_job: The id of its job on the cluster.
        skipped: How many newer ones can't be restored.
    """

    snapshot: str
    taken: datetime
    age_seconds: float
    bytes: int
    look_seconds: float
    restore_seconds: float
    restores: bool
    why: str
    flink_job: str
    skipped: int

    @property
    def rpo_seconds(self) -> float | None:
        """Return how much would have been lost; None if clocks differ too much to tell."""
        return None if self.age_seconds < -CLOCKS else max(0.0, self.age_seconds)

    @property
    def rto_seconds(self) -> float:
        """Return how long nothing would have run: to find it, and to restore it."""
        return self.look_seconds + self.restore_seconds

    @property
    def verdict(self) -> str:
        """Whether it restores, in words."""
        return "was restored" if self.restores else "was not restored"

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        yield f"{self.snapshot} {self.verdict} ({bytes_text(self.bytes)})"
        if self.why:
            yield f"Flink: {self.why}"
        taken = f"{self.taken:%Y-%m-%d %H:%M:%S} UTC"
        if self.rpo_seconds is None:
            yield f"RPO: not known, as it is of {taken}, in the future: compare the clocks"
        else:
            yield f"RPO: it is of {taken}, {timedelta(seconds=round(self.rpo_seconds))} ago"
        if self.skipped:
            yield f"{self.skipped:,} newer ones can't be restored: `statelake scan` says why"
        if self.restores:
            yield (
                f"RTO: {self.rto_seconds:.1f} s, {self.look_seconds:.1f} s of these to find it,"
                " the others until the job had completed a checkpoint"
            )


def run_canary(
    lake: Catalog, job: str, snapshot_id: str, request: Canary, engine: Engine | str = "auto"
) -> CanaryResult:
    """Run a program from a snapshot until it has completed a checkpoint, and clean up.

    Args:
        lake: The lake.
        job: The job in the lake.
        snapshot_id: The snapshot.
        request: The program, the cluster, and the export, which is deleted at the end.
        engine: The engine of the export.

    Raises:
        UnreachableClusterError: The cluster does not answer; the message names the job that may be
            left.
        StateError: There is no such snapshot, or it can't be exported.
    """
    cluster, program = request.cluster, request.program
    paths = PathMap.parse(request.path_map)
    sharing = sharing_of(
        request.sample, request.seed, request.mask, leave_out_opaque=request.leave_out_opaque,
        inexact=request.inexact,
    )  # fmt: skip
    record = lake.snapshot(job, snapshot_id)
    verdicts = None
    if request.against:
        verdicts = check_against(record, request.against, allow_missing=program.allow_non_restored)
    job_id = new_id()
    name = f"canary-{job_id}"
    directory = Directory(request.exports or paths.here(cluster.savepoint_directory())).confined()
    target = directory.checked_location(name)
    jars = Jars(cluster)
    why = ""
    try:
        jars.id_of(program)  # before the export writes a file
        done = export_snapshot(
            lake, job, snapshot_id, target, parallelism=request.parallelism,
            max_parallelism=request.max_parallelism, sharing=sharing, engine=engine,
        )  # fmt: skip
        with _cancelled(cluster, job_id):
            why = _refusal(
                request, jars, job_id, paths.there(target),
                parallelism=request.parallelism or _parallelism_of(lake, job, snapshot_id),
                max_parallelism=request.max_parallelism,
            )  # fmt: skip
    finally:
        jars.forget()
        directory.delete_tree(name)
    return CanaryResult(snapshot_id, not why, why, verdicts, job_id, done.left_out)


@takes(Drill)
def drill(request: Drill) -> DrillResult:
    """Restore the newest sound snapshot below a directory, as after a disaster; cancel the job.

    Raises:
        UnreachableClusterError: The cluster does not answer; the message names the job that may be
            left.
        NotFoundError: No snapshot there can be restored.
        SnapshotError: The directory can't be listed.
    """
    cluster, paths = request.cluster, PathMap.parse(request.path_map)
    began, now = time.monotonic(), time.time()
    scanned = scan(request.location, latest=True, sound=True, path_map=request.path_map)
    newest = scanned.newest
    if newest is None:
        skipped = "; ".join(f"{each.path or '.'} is {each.state}" for each in scanned.skipped[:3])
        raise NotFoundError(
            f"no snapshot that can be restored{f': {skipped}' if skipped else ''}",
            place=os.fspath(request.location),
            remedy="copy one there, or name its directory with --path-map",
        )
    looked = time.monotonic() - began
    job_id, jars = new_id(), Jars(cluster)
    try:
        jars.id_of(request.program)
        began = time.monotonic()
        with _cancelled(cluster, job_id):
            why = _refusal(
                request, jars, job_id, paths.there(newest.location),
                parallelism=request.parallelism or newest.parallelism or 1,
            )  # fmt: skip
            restored = time.monotonic() - began
    finally:
        jars.forget()
    return DrillResult(
        newest.location, newest.time, now - newest.time.timestamp(), newest.bytes, looked,
        restored, not why, why, job_id, len(scanned.skipped),
    )  # fmt: skip


def _refusal(
    request: Canary | Drill,
    jars: Jars,
    job_id: str,
    savepoint: str,
    *,
    parallelism: int,
    max_parallelism: int | None = None,
) -> str:
    """Run the program from a snapshot until it has completed a checkpoint.

    Returns:
        Why it did not; empty if it did.

    Raises:
        UnreachableClusterError: The cluster does not answer.
    """
    try:
        jars.run(
            request.program, savepoint=savepoint, job_id=job_id, parallelism=parallelism,
            max_parallelism=max_parallelism,
        )  # fmt: skip
        request.cluster.wait_until_running(job_id, timeout=request.timeout, report=request.report)
    except UnreachableClusterError:
        raise
    except ClusterError as error:
        return error.problem
    return ""


def _parallelism_of(lake: Catalog, job: str, snapshot_id: str) -> int:
    """Return the largest of its operators', as the program's default."""
    operators = lake.snapshot(job, snapshot_id).operators
    return max((operator.parallelism for operator in operators), default=1)


@contextmanager
def _cancelled(cluster: FlinkCluster, job_id: str) -> Iterator[None]:
    """Cancel a job when the context ends, if it was submitted.

    Raises:
        UnreachableClusterError: The job may run on; the message names it.
    """
    try:
        yield
    except BaseException as error:
        # a program whose submission was not answered may be started yet
        may_run = isinstance(error, UnreachableClusterError)
        try:
            cluster.cancel(job_id)
            may_run = False
        except NotFoundError:
            pass
        except ClusterError:
            may_run = True
        if may_run and isinstance(error, StateError):
            remedy = f"{error.remedy}; " if error.remedy else ""
            raise UnreachableClusterError(
                error.problem, place=error.place,
                remedy=f"{remedy}then look for job {job_id}, and cancel it: if it was started, it"
                " writes its sinks until then",
            ) from error  # fmt: skip
        raise
    try:
        cluster.cancel(job_id)
    except NotFoundError:
        return
    except ClusterError as error:
        raise UnreachableClusterError(
            f"job {job_id}, which was run to see if it restores, is not cancelled"
            f" ({error.problem})", place=error.place,
            remedy="cancel it when the cluster answers again: it writes its sinks until then",
        ) from error  # fmt: skip
