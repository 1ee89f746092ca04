"""A job on its Flink cluster, as its settings and locations define it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

import statelake as sl
from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.live.cluster import FlinkCluster, Report
from statelake.pipelines.live.connection import ConnectionSettings
from statelake.pipelines.live.jars import JarRun
from statelake.pipelines.orchestration.resources import Locations
from statelake.pipelines.orchestration.settings import (
    CanarySettings,
    DrillSettings,
    FlinkSettings,
)
from statelake.pipelines.orchestration.state_job import StateJob
from statelake.pipelines.shown import parse_duration
from statelake.state_core.errors import ClusterError, NotFoundError
from statelake.state_core.files.storage_options import location_below

if TYPE_CHECKING:
    from statelake.pipelines.live.canary import CanaryResult, DrillResult

# a sensor has one minute for up to four calls
STATUS_TIMEOUT_SECONDS = 6.0
STATUS_RETRIES = 1
UNFINISHED = [
    dg.DagsterRunStatus[status]
    for status in ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")
]


class LostJob(dg.Config):
    """A job that its cluster does not seem to run: the configuration of a run that reports it.

    Attributes:
        state: `FAILED`, `CANCELED`, ...; `UNKNOWN` if the cluster does not know the job; `NO
            ANSWER` if the cluster does not answer.
        reason: Flink's root cause, or the error of the request.
        flink_job: The job's id on the cluster; empty if it is unknown.
        checkpoint: The path of its last completed checkpoint, as the cluster has it; empty if
            unknown.
        url: The cluster.
    """

    state: str
    reason: str
    flink_job: str = ""
    checkpoint: str = ""
    url: str = ""


@dataclass(frozen=True)
class LiveJob:
    """A job on its cluster.

    Attributes:
        settings: The configuration of the cluster.
        locations: The locations of its savepoints and its lake.
        key_prefix: The prefix of its assets' keys, and the directory of its exports.
    """

    settings: FlinkSettings
    locations: Locations
    key_prefix: list[str]

    @property
    def name(self) -> str:
        """Return its name or its id on the cluster."""
        return self.settings.job or self.locations.job_name

    @property
    def paths(self) -> PathMap:
        """Return the local paths of the cluster's directories."""
        return PathMap(self.settings.path_map)

    @property
    def path_map(self) -> list[str]:
        """Return the local paths as words: `CLUSTER=HERE`."""
        return path_map_words(self.settings.path_map)

    @property
    def savepoints(self) -> str:
        """Return its directory of savepoints, as a path of the cluster."""
        return self.settings.savepoints or self.paths.there(self.locations.savepoints_location)

    @property
    def exports(self) -> str:
        """Return the local directory for the savepoint of a rescale."""
        exports = self.locations.exports_location
        return self.settings.exports or location_below(exports, *self.key_prefix)

    def connect(self) -> FlinkCluster:
        """Connect to its cluster, with the credentials of the environment."""
        return FlinkCluster(self.settings.url)

    def program(self, jar: str = "", jar_id: str = "", entry_class: str = "") -> JarRun:
        """Return the program that it runs, or the program of another JAR."""
        settings = self.settings
        if not (jar or jar_id):
            jar, jar_id = settings.jar, settings.jar_id
        return JarRun(jar, jar_id, entry_class or settings.entry_class, tuple(settings.arguments))

    def prove(
        self, canary: CanarySettings, snapshot_id: str, engine: str, log: Report
    ) -> tuple[CanaryResult, str]:
        """Run a program from a snapshot, and cancel it. Return the result and the cluster's URL."""
        program = self.program(canary.jar, canary.jar_id, canary.entry_class)
        with FlinkCluster(canary.url or self.settings.url) as cluster:
            result = self.locations.open_snapshot(snapshot_id, engine).canary(
                cluster, replace(program, arguments=tuple(canary.arguments)), exports=self.exports,
                path_map=self.path_map, sample=canary.share, seed=canary.seed,
                leave_out_opaque=canary.leave_out_opaque and canary.share is not None, report=log,
            )  # fmt: skip
            return result, cluster.url

    def drill(self, settings: DrillSettings, log: Report) -> tuple[DrillResult, str]:
        """Restore the newest sound snapshot, and cancel the job. Return the result and the URL."""
        program = self.program(settings.jar, settings.jar_id, settings.entry_class)
        paths = self.settings.path_map if settings.path_map is None else settings.path_map
        with FlinkCluster(settings.url or self.settings.url) as cluster:
            result = sl.drill(
                settings.directory, cluster, replace(program, arguments=tuple(settings.arguments)),
                path_map=path_map_words(paths), parallelism=settings.parallelism,
                timeout=parse_duration(settings.timeout).total_seconds(), report=log,
            )  # fmt: skip
            return result, cluster.url

    def lost_job(self) -> LostJob | None:
        """Return a `LostJob` if the job does not run, or may not run; None if it runs.

        Raises:
            DeclarationError: No cluster is given, or its address is invalid.
        """
        connection = ConnectionSettings.from_environment(self.settings.url)
        shorter = replace(connection, timeout=min(connection.timeout, STATUS_TIMEOUT_SECONDS))
        with FlinkCluster(shorter) as cluster:
            cluster.connection.retries = STATUS_RETRIES
            try:
                return _lost_job_on(cluster, self.name)
            except NotFoundError as error:
                return LostJob(
                    state="UNKNOWN", reason=f"{error.problem}; {error.remedy}", url=cluster.url
                )
            except ClusterError as error:
                return LostJob(
                    state="NO ANSWER", reason=f"{error.place}: {error.problem}", url=cluster.url
                )


def path_map_words(path_map: Mapping[str, str]) -> list[str]:
    """Return the local paths of a cluster's directories as words: `CLUSTER=HERE`."""
    return [f"{there}={here}" for there, here in path_map.items()]


def live_job(job: StateJob, settings: FlinkSettings, context: Any) -> LiveJob:
    """Return a job on its cluster, in a run or a sensor."""
    return LiveJob(settings, job.places(context), job.key_prefix)


def is_under_way(instance: dg.DagsterInstance, name: str) -> bool:
    """Return whether a run of a Dagster job is queued or running."""
    unfinished = dg.RunsFilter(job_name=name, statuses=UNFINISHED)
    return instance.get_runs_count(unfinished) > 0


def flink_ui_link(url: str, job_id: str = "") -> dg.UrlMetadataValue:
    """Return a link to a job in Flink's UI, or to its overview."""
    return dg.MetadataValue.url(f"{url}/#/job/running/{job_id}/overview" if job_id else f"{url}/")


def _lost_job_on(cluster: FlinkCluster, name: str) -> LostJob | None:
    if any(not job.ended and name in (job.id, job.name) for job in cluster.jobs()):
        return None  # another has that name during a canary
    job = cluster.find_job(name)
    reason = checkpoint = ""
    with suppress(NotFoundError, ClusterError):
        reason = cluster.failure_of(job.id)
    with suppress(NotFoundError, ClusterError):
        history = cluster.checkpoints(job.id).history
        completed = [taken.path for taken in history if taken.status == "COMPLETED" and taken.path]
        checkpoint = completed[-1] if completed else ""
    return LostJob(
        state=job.state, reason=reason or "Flink reports no failure", flink_job=job.id,
        checkpoint=checkpoint, url=cluster.url,
    )  # fmt: skip
