"""Read-only access to a cluster's jobs."""

from __future__ import annotations

import time

from typing_extensions import Self

from statelake.pipelines.find.orphans import ClusterJob
from statelake.pipelines.live.answers import (
    FlinkJob,
    FlinkJobDetails,
    JobCheckpoints,
    answered,
    is_id,
    rows,
)
from statelake.pipelines.live.connection import Connection, ConnectionSettings
from statelake.pipelines.live.root_causes import root_cause
from statelake.state_core.errors import DeclarationError, NotFoundError, UnreachableClusterError

POLL_SECONDS = 0.5
# Flink's settings, as they are called since 1.20, and before
SAVEPOINT_DIRECTORY = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")


class ClusterView:
    """A read-only cluster. Every method raises a `StateError` that says what went wrong.

    Args:
        settings: Its address and credentials; or its URL, with credentials from the environment
            (`STATELAKE_FLINK_TOKEN` and others, see `ConnectionSettings.from_environment`).
        poll_seconds: The seconds between two polls.
    """

    def __init__(
        self, settings: ConnectionSettings | str = "", *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        if isinstance(settings, str):
            settings = ConnectionSettings.from_environment(settings)
        self.url = settings.url
        self.poll_seconds = poll_seconds
        self.connection = Connection(settings)

    def __repr__(self) -> str:
        return f"FlinkCluster({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def version(self) -> str:
        """Return Flink's version: `2.3.0`."""
        answer = self.connection.get("/config")
        return answered(answer, self.place("/config"), "flink-version", kind=str)

    def savepoint_directory(self) -> str:
        """Return the directory of savepoints in the cluster's configuration.

        Raises:
            DeclarationError: None is configured.
        """
        path = "/jobmanager/config"
        answer, place = self.connection.get(path), self.place(path)
        settings = {
            answered(row, place, "key", kind=str): answered(row, place, "value", kind=str)
            for row in rows(answer, place)
        }
        for name in SAVEPOINT_DIRECTORY:
            if settings.get(name):
                return settings[name]
        raise DeclarationError(
            "the cluster is configured with no directory for savepoints", place=self.url,
            remedy=f"name one, or set {SAVEPOINT_DIRECTORY[0]} in Flink's configuration",
        )  # fmt: skip

    def jobs(self) -> list[FlinkJob]:
        """Return all jobs that the cluster knows, also those that ended, the newest first."""
        path = "/jobs/overview"
        answer, place = self.connection.get(path), self.place(path)
        jobs = [FlinkJob.of(row, place) for row in rows(answer, place, "jobs")]
        return sorted(jobs, key=lambda job: job.started, reverse=True)

    def find_job(self, name_or_id: str) -> FlinkJob:
        """Return a job by its id or its name; of one name, the running one, or else the newest.

        Raises:
            NotFoundError: There is no such job, or several of that name run.
        """
        jobs = self.jobs()
        wanted = name_or_id.strip()
        named = [job for job in jobs if wanted in (job.id, job.name)]
        running = [job for job in named if not job.ended]
        if len(running) > 1:
            ids = ", ".join(job.id for job in running)
            raise NotFoundError(
                f"{len(running)} jobs are called {wanted!r}",
                place=self.url,
                remedy=f"give an id: {ids}",
            )
        if running or named:
            return (running or named)[0]
        names = ", ".join(sorted({repr(job.name) for job in jobs if not job.ended})) or "none"
        raise NotFoundError(
            f"there is no job {wanted!r}", place=self.url, remedy=f"jobs that run: {names}"
        )

    def job(self, job_id: str) -> FlinkJobDetails:
        """Return a job's state, its parallelism and max parallelism.

        Raises:
            NotFoundError: The cluster does not know it, or has forgotten it.
        """
        path = f"/jobs/{checked_id(job_id)}"
        return FlinkJobDetails.of(self.connection.get(path), self.place(path))

    def checkpoints(self, job_id: str) -> JobCheckpoints:
        """Return sizes and durations of a job's checkpoints over time."""
        path = f"/jobs/{checked_id(job_id)}/checkpoints"
        return JobCheckpoints.of(self.connection.get(path), self.place(path))

    def failure_of(self, job_id: str) -> str:
        """Return the root cause of a job's last failure, in one sentence; empty without one."""
        path = f"/jobs/{checked_id(job_id)}/exceptions"
        answer, place = self.connection.get(path), self.place(path)
        history = answered(answer, place, "exceptionHistory", kind=dict, default={})
        entries = rows(history, place, "entries") if history else []
        traces = [answered(entry, place, "stacktrace", kind=str, default="") for entry in entries]
        traces.append(answered(answer, place, "root-exception", kind=str, default=""))
        return next((cause for trace in traces if (cause := root_cause(trace))), "")

    def place(self, path: str) -> str:
        """Return the URL of a request, for a message."""
        return f"GET {self.url}{path}"

    def wait(self, until: float, what: str, pause: float = 0.0) -> None:
        """Wait until the next poll.

        Raises:
            UnreachableClusterError: The monotonic clock is past `until`.
        """
        if time.monotonic() > until:
            raise UnreachableClusterError(
                f"waited too long for {what}",
                place=self.url,
                remedy="it may still happen: check the job, or give it more time",
            )
        time.sleep(pause or self.poll_seconds)


def checked_id(identifier: str) -> str:
    """Return an id, checked because it becomes part of a path."""
    if not is_id(identifier):
        raise DeclarationError(
            f"{identifier!r} is not a Flink id", remedy="ids are 32 hexadecimal digits"
        )
    return identifier


def cluster_jobs(cluster: ClusterView) -> list[ClusterJob]:
    """Ask a cluster for its jobs and their checkpoints.

    Raises:
        ClusterError: It can't be asked.
    """
    jobs = []
    for job in cluster.jobs():
        # another JobManager goes on with a suspended one, by the same id
        runs = not job.ended or job.state == "SUSPENDED"
        try:
            jobs.append(_cluster_job(cluster, job.id, runs=runs))
        except NotFoundError:  # it has been forgotten meanwhile
            if runs:
                raise
    return jobs


def _cluster_job(cluster: ClusterView, job_id: str, *, runs: bool) -> ClusterJob:
    answer = cluster.checkpoints(job_id)
    done = [each for each in answer.history if each.status == "COMPLETED"]
    under_way = [each for each in answer.history if each.status == "IN_PROGRESS"]
    checkpoints = [each for each in done if not each.is_savepoint]
    newest = checkpoints[-1] if checkpoints else None
    paths = {each.path for each in done} | {answer.restored_from, answer.latest_savepoint}
    return ClusterJob(
        job_id,
        runs,
        frozenset(paths - {""}),
        frozenset(each.path for each in checkpoints if each.path),
        newest.path if newest is not None else "",
        newest.number if newest is not None else -1,
        newest.triggered.timestamp() if newest is not None else 0.0,
        frozenset(each.number for each in under_way),
        any(each.is_savepoint for each in under_way),
    )
