"""`FlinkCluster`: the jobs, savepoints and JARs of a live cluster.

Calls that change something have an id of the caller's (`trigger_id`, `job_id`), by which Flink
recognises them: a caller that stores the id first can ask for the result after a crash.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from statelake.pipelines.live.answers import FlinkJobDetails, Operation, answered
from statelake.pipelines.live.cluster_view import ClusterView, checked_id
from statelake.pipelines.live.root_causes import root_cause
from statelake.state_core.errors import (
    ClusterError,
    DeclarationError,
    FlinkJobError,
    NotFoundError,
    UnreachableClusterError,
)

Report = Callable[[str], None]
"""Called with the awaited event in a few words, each time that it changes."""

FORMATS = ("canonical", "native")
CLAIM_MODES = ("no_claim", "claim", "legacy")
SAVEPOINT_SECONDS = 600.0
RUNNING_SECONDS = 300.0
PAUSE_SECONDS = 2.0
# errors while a job starts or restarts: a retry may succeed
_SUSPENDING = ("suspending", "not all required tasks are currently running")


def new_id() -> str:
    """Return a new id for a job or an operation of Flink."""
    return uuid.uuid4().hex


class FlinkCluster(ClusterView):
    """A cluster on which savepoints are taken, JARs uploaded, and jobs run and cancelled."""

    def take_savepoint(
        self,
        job_id: str,
        directory: str = "",
        *,
        form: str = "canonical",
        trigger_id: str = "",
        timeout: float = SAVEPOINT_SECONDS,
        report: Report | None = None,
    ) -> str:
        """Take a savepoint of a running job, which continues.

        Args:
            job_id: The job.
            directory: The cluster makes the savepoint's directory in it; by default the configured
                one.
            form: `canonical` or `native`.
            trigger_id: An id of the caller's (`new_id`). If it was given before, that savepoint is
                awaited, and no other is taken.
            timeout: Seconds to wait.
            report: Called with the awaited event.

        Returns:
            Its location on the cluster.

        Raises:
            FlinkJobError: The savepoint failed, or the job ended meanwhile; with the root cause.
            UnreachableClusterError: The savepoint was not finished in time.
        """
        body = {"cancel-job": False, **({"target-directory": directory} if directory else {})}
        return self._savepoint(
            job_id, "savepoints", body, form, trigger_id, timeout, report or _silent
        )

    def stop_with_savepoint(
        self,
        job_id: str,
        directory: str = "",
        *,
        form: str = "canonical",
        drain: bool = False,
        trigger_id: str = "",
        timeout: float = SAVEPOINT_SECONDS,
        report: Report | None = None,
    ) -> str:
        """Stop a job with a savepoint; as `take_savepoint`, and the job has ended on return.

        Args:
            job_id: The job.
            directory: The cluster makes the savepoint's directory in it.
            form: `canonical` or `native`.
            drain: Whether all windows and timers fire first: for a job that will not continue.
            trigger_id: As in `take_savepoint`.
            timeout: Seconds to wait.
            report: Called with the awaited event.
        """
        until = time.monotonic() + timeout
        body = {"drain": drain, **({"targetDirectory": directory} if directory else {})}
        location = self._savepoint(
            job_id, "stop", body, form, trigger_id, timeout, report or _silent
        )
        while not self.job(job_id).ended:
            self.wait(until, f"job {job_id} to end after its savepoint {location}")
        return location

    def triggered_savepoint(self, job_id: str, trigger_id: str) -> Operation | None:
        """Return a savepoint's result by its trigger id; None if the cluster does not know it."""
        path = f"/jobs/{checked_id(job_id)}/savepoints/{checked_id(trigger_id)}"
        try:
            return Operation.of(self.connection.get(path), self.place(path))
        except NotFoundError:
            return None

    def _savepoint(
        self,
        job_id: str,
        call: str,
        body: Mapping[str, Any],
        form: str,
        trigger_id: str,
        timeout: float,
        report: Report,
    ) -> str:
        """Take a savepoint, and try again while the job is just restarting."""
        until = time.monotonic() + timeout
        trigger = checked_id(trigger_id or new_id())
        named = {**body, "formatType": _one_of(form, FORMATS), "triggerId": trigger}
        while True:
            report(f"savepoint of {job_id}")
            operation = self._triggered(job_id, call, named, until)
            if not operation.failure:
                break
            cause = root_cause(operation.failure)
            if not any(words in operation.failure.lower() for words in _SUSPENDING):
                raise self._no_savepoint(job_id, cause)
            report(f"the job is restarting: {cause}")
            self.wait(until, f"a savepoint of {job_id}: {cause}", PAUSE_SECONDS)
            if self.job(job_id).ended:
                raise self._no_savepoint(job_id, cause)
            named["triggerId"] = new_id()
        if not operation.location:
            raise ClusterError(
                f"a savepoint of job {job_id} was completed, and the response has no location",
                place=self.url,
            )
        return operation.location

    def _triggered(
        self, job_id: str, call: str, body: Mapping[str, Any], until: float
    ) -> Operation:
        path = f"/jobs/{checked_id(job_id)}/{call}"
        try:
            # Flink recognises it by its trigger id
            answer = self.connection.call("POST", path, body, again=True)
        except NotFoundError as error:
            raise NotFoundError(
                f"there is no running job {job_id}", place=self.url, remedy=error.problem
            ) from error
        request = answered(answer, self.place(path), "request-id", kind=str)
        while True:
            operation = self.triggered_savepoint(job_id, request)
            if operation is None:
                raise self._no_savepoint(
                    job_id, "the cluster does not know it any more: it may have restarted"
                )
            if operation.completed:
                return operation
            self.wait(until, f"a savepoint of job {job_id}")

    def _no_savepoint(self, job_id: str, cause: str) -> FlinkJobError:
        """Return the error of a failed savepoint, with the job's state."""
        try:
            state = f"the job is {self.job(job_id).state}"
        except ClusterError as error:
            state = f"the job's state is not known ({error})"
        except NotFoundError:
            state = "the cluster does not know the job any more"
        return FlinkJobError(f"no savepoint of job {job_id}: {cause}", place=self.url, remedy=state)

    def dispose_savepoint(self, location: str, *, timeout: float = SAVEPOINT_SECONDS) -> None:
        """Make the cluster delete a savepoint.

        Args:
            location: The savepoint's location, as the cluster calls it.
            timeout: Seconds to wait.

        Raises:
            ClusterError: The savepoint can't be deleted; with the root cause.
        """
        path, until = "/savepoint-disposal", time.monotonic() + timeout
        answer = self.connection.call("POST", path, {"savepoint-path": location})
        request = answered(answer, self.place(path), "request-id", kind=str)
        path = f"{path}/{checked_id(request)}"
        while True:
            operation = Operation.of(self.connection.get(path), self.place(path))
            if operation.failure:
                raise ClusterError(
                    f"savepoint {location} is not deleted: {root_cause(operation.failure)}",
                    place=self.url,
                )
            if operation.completed:
                return
            self.wait(until, f"savepoint {location} to be deleted")

    # --------------------------------------------------------------------- JARs and runs

    def upload_jar(self, path: str) -> str:
        """Upload a JAR to the cluster.

        Returns:
            Its id there.

        Raises:
            DeclarationError: There is no such file.
        """
        try:
            answer = self.connection.call("POST", "/jars/upload", upload=path)
        except OSError as error:
            if isinstance(error, ClusterError):
                raise
            raise DeclarationError(f"it can't be read ({error.strerror})", place=path) from error
        name = answered(answer, self.place("/jars/upload"), "filename", kind=str)
        return name.rpartition("/")[2]

    def delete_jar(self, jar_id: str) -> None:
        """Delete a JAR from the cluster; running jobs do not need it."""
        self.connection.call("DELETE", f"/jars/{quote(jar_id, safe='')}")

    def run_jar(
        self,
        jar_id: str,
        *,
        savepoint: str = "",
        claim_mode: str = "no_claim",
        allow_non_restored: bool = False,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        entry_class: str = "",
        arguments: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
        job_id: str = "",
    ) -> str:
        """Submit a JAR that was uploaded. The job need not run yet: see `wait_until_running`.

        Args:
            jar_id: The JAR's id, as `upload_jar` returned it.
            savepoint: The savepoint's location on the cluster; empty to start without one.
            claim_mode: The owner of the savepoint: `no_claim` (the caller), `claim` (the job,
                which deletes it), `legacy` (neither).
            allow_non_restored: Whether state without an operator in the job may be skipped.
            parallelism: The parallelism of operators that do not set their own.
            max_parallelism: The maximum parallelism of operators that do not set their own.
            entry_class: The class with `main`; by default that of the JAR's manifest.
            arguments: The program's arguments, which are in no message.
            configuration: Further Flink settings for this job.
            job_id: An id of the caller's (`new_id`): Flink refuses it a second time.

        Returns:
            The job's id.

        Raises:
            ClusterError: The cluster refuses the job; with the root cause.
        """
        settings = dict(configuration or {})
        if max_parallelism:
            settings["pipeline.max-parallelism"] = str(max_parallelism)
        body: dict[str, Any] = {"jobId": checked_id(job_id or new_id())}
        if savepoint:
            body |= {"savepointPath": savepoint, "allowNonRestoredState": allow_non_restored}
            if _one_of(claim_mode, CLAIM_MODES) != "NO_CLAIM":  # Flink's own default
                old = int(self.version().partition(".")[0] or 0) < 2
                body["restoreMode" if old else "claimMode"] = claim_mode.upper()
        body |= {"parallelism": parallelism} if parallelism else {}
        body |= {"entryClass": entry_class} if entry_class else {}
        body |= {"programArgsList": list(arguments)} if arguments else {}
        body |= {"flinkConfiguration": settings} if settings else {}
        path = f"/jars/{quote(jar_id, safe='')}/run"
        try:
            answer = self.connection.call("POST", path, body)
        except UnreachableClusterError:
            if not self._has_arrived(body["jobId"]):
                raise
            return str(body["jobId"])
        except ClusterError as error:
            for argument in sorted(arguments, key=len, reverse=True):
                error.problem = error.problem.replace(argument, "***") if argument else ""
            raise
        return answered(answer, self.place(path), "jobid", kind=str)

    def _has_arrived(self, job_id: str) -> bool:
        """Return whether a submission whose response was lost was accepted."""
        try:
            self.job(job_id)
        except (NotFoundError, ClusterError):
            return False
        return True

    def wait_until_running(
        self,
        job_id: str,
        *,
        timeout: float = RUNNING_SECONDS,
        report: Report | None = None,
    ) -> FlinkJobDetails:
        """Wait until a job runs, with all of its tasks, and has completed a checkpoint.

        One is triggered, as the job's own may be hours away.

        Args:
            job_id: The job.
            timeout: Seconds to wait.
            report: Called with the awaited event.

        Raises:
            FlinkJobError: It failed or ended, or did not run in time; with the root cause.
        """
        until = time.monotonic() + timeout
        last = triggered = ""
        while True:
            job = self.job(job_id)
            waited = f"job {job_id} is {job.state}"
            if job.ended:
                raise self._not_running(job_id, f"is {job.state}")
            if job.runs:
                if self.checkpoints(job_id).completed:
                    return job
                triggered = triggered or self._trigger_checkpoint(job_id)
                waited = f"job {job_id} runs; waiting for a completed checkpoint"
            if report is not None and waited != last:
                report(waited)
            last = waited
            if time.monotonic() > until:
                problem = "has completed no checkpoint" if job.runs else f"is {job.state}"
                raise self._not_running(job_id, f"{problem} after {timeout:g} s")
            time.sleep(self.poll_seconds)

    def _trigger_checkpoint(self, job_id: str) -> str:
        """Trigger a checkpoint now; if that is not possible, the job's own is awaited."""
        body = {"triggerId": new_id(), "checkpointType": "CONFIGURED"}
        try:
            self.connection.call(
                "POST", f"/jobs/{checked_id(job_id)}/checkpoints", body, again=True
            )
        except (ClusterError, NotFoundError):
            return "refused"
        return "asked for"

    def _not_running(self, job_id: str, problem: str) -> FlinkJobError:
        try:
            cause = self.failure_of(job_id)
        except (ClusterError, NotFoundError) as error:
            cause = f"why is not known ({error.problem})"
        message = f"job {job_id} {problem}: {cause}" if cause else f"job {job_id} {problem}"
        return FlinkJobError(message, place=self.url)

    def cancel(self, job_id: str, *, timeout: float = RUNNING_SECONDS) -> str:
        """Cancel a job, and wait until it has ended.

        Args:
            job_id: The job.
            timeout: Seconds to wait.

        Returns:
            Its last state; a job that had ended is left alone.

        Raises:
            NotFoundError: The cluster does not know it.
            ClusterError: The cluster refuses to cancel it.
            UnreachableClusterError: The job did not end in time.
        """
        until = time.monotonic() + timeout
        if not self.job(job_id).ended:
            path = f"/jobs/{checked_id(job_id)}?mode=cancel"
            try:
                self.connection.call("PATCH", path, again=True)
            except UnreachableClusterError:
                raise
            except (ClusterError, NotFoundError) as error:
                if not self.job(job_id).ended:  # else it ended by itself meanwhile
                    raise ClusterError(
                        error.problem, place=error.place, remedy=error.remedy
                    ) from error
        while not (job := self.job(job_id)).ended:
            self.wait(until, f"job {job_id} to be cancelled")
        return job.state


def _silent(_: str) -> None:
    """Report nothing."""


def _one_of(word: str, legal: Sequence[str]) -> str:
    """Return a legal value in capitals, as Flink spells it."""
    if word.lower() not in legal:
        raise DeclarationError(f"{word!r} is not one of {', '.join(legal)}")
    return word.upper()
