"""What Dagster's UI asks its webserver for, asked without a browser: its GraphQL."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DagsterApi", "DagsterRun"]

REPOSITORY = "__repository__"
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
RUNS = """query($limit: Int) {runsOrError(limit: $limit) {... on Runs {results {
    runId jobName status startTime endTime tags {key value}
}}}}"""
EVENTS = """query($run: ID!) {runOrError(runId: $run) {... on Run {eventConnection {events {
    __typename
    ... on MessageEvent {message}
    ... on ExecutionStepFailureEvent {failureMetadata {metadataEntries {...entry}}}
    ... on ExecutionStepOutputEvent {metadataEntries {...entry}}
}}}}}
fragment entry on MetadataEntry {
    label ... on TextMetadataEntry {text} ... on MarkdownMetadataEntry {mdStr}
    ... on UrlMetadataEntry {url}
}"""
LAUNCH = """mutation($run: ExecutionParams!) {launchRun(executionParams: $run) {
    __typename ... on LaunchRunSuccess {run {runId}}
    ... on PythonError {message} ... on RunConfigValidationInvalid {errors {message}}
}}"""
BACKFILL = """mutation($backfill: LaunchBackfillParams!) {
    launchPartitionBackfill(backfillParams: $backfill) {
        __typename ... on LaunchBackfillSuccess {backfillId} ... on PythonError {message}
}}"""
ADD_PARTITION = """mutation($of: RepositorySelector!, $name: String!, $key: String!) {
    addDynamicPartition(repositorySelector: $of, partitionsDefName: $name, partitionKey: $key) {
        __typename ... on PythonError {message}
}}"""
REPORT = """mutation($event: ReportRunlessAssetEventsParams!) {
    reportRunlessAssetEvents(eventParams: $event) {__typename ... on PythonError {message}}
}"""
BACKFILL_STATUS = """query($backfill: String!) {partitionBackfillOrError(backfillId: $backfill) {
    ... on PartitionBackfill {status}
}}"""
PROCESS = re.compile(r"\(pid: (\d+)\)")
SWITCHES = {
    "schedule": """mutation($it: ScheduleSelector!) {startSchedule(scheduleSelector: $it)
        {__typename ... on PythonError {message}}}""",
    "sensor": """mutation($it: SensorSelector!) {startSensor(sensorSelector: $it)
        {__typename ... on PythonError {message}}}""",
}

SCHEDULE = """query($it: ScheduleSelector!) {scheduleOrError(scheduleSelector: $it) {
    ... on Schedule {scheduleState {id}}
}}"""
STOP_SCHEDULE = """mutation($id: String!) {stopRunningSchedule(id: $id) {
    __typename ... on PythonError {message}
}}"""


@dataclass(frozen=True)
class DagsterRun:
    """A run, as the list of runs has it.

    Attributes:
        id: Its id.
        job: What it runs.
        status: `QUEUED`, `STARTED`, `SUCCESS`, ...
        began: In seconds since 1970; None if it has not begun.
        ended: The same of its end.
        tags: Its tags: who launched it, its partition.
    """

    id: str
    job: str
    status: str
    began: float | None
    ended: float | None
    tags: dict[str, str]

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to be done."""
        return self.status in ENDED


class DagsterApi:
    """A webserver of Dagster.

    Args:
        address: Where it answers.
        location: The code location that is asked for.
    """

    def __init__(self, address: str, location: str) -> None:
        self.address = address
        self.location = location

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of the answer.

        Raises:
            RuntimeError: It is an error.
        """
        asked = urllib.request.Request(  # noqa: S310 - of this machine
            f"{self.address}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - the same
            said = json.load(answer)
        if said.get("errors"):
            raise RuntimeError(str(said["errors"]))
        return said["data"]

    def _changed(self, query: str, **variables: Any) -> Any:
        """What a mutation answers, if it is a success."""
        (answer,) = self.ask(query, **variables).values()
        if not answer["__typename"].endswith(("Success", "Result", "Schedule", "Sensor")):
            raise RuntimeError(str(answer))
        return answer

    @property
    def _repository(self) -> dict[str, str]:
        return {"repositoryName": REPOSITORY, "repositoryLocationName": self.location}

    def switch_on(self, kind: str, name: str) -> None:
        """Start a `schedule` or a `sensor`."""
        self._changed(SWITCHES[kind], it={**self._repository, f"{kind}Name": name})

    def add_partition(self, partitions: str, key: str) -> None:
        """Add a key to dynamic partitions."""
        self._changed(ADD_PARTITION, of=self._repository, name=partitions, key=key)

    def report_materialized(self, key: str, partitions: Sequence[str]) -> None:
        """Tell Dagster of partitions of an asset that were made without it."""
        told = {
            "eventType": "ASSET_MATERIALIZATION",
            "assetKey": {"path": key.split("/")},
            "partitionKeys": list(partitions),
        }
        self._changed(REPORT, event=told)

    def stop_schedule(self, name: str) -> None:
        """Stop a schedule that was switched on."""
        it = {**self._repository, "scheduleName": name}
        state = self.ask(SCHEDULE, it=it)["scheduleOrError"]["scheduleState"]
        self._changed(STOP_SCHEDULE, id=state["id"])

    def launch(self, job: str, config: dict[str, Any]) -> str:
        """Launch a job with a config: the id of the run."""
        run = {"selector": {**self._repository, "jobName": job}, "runConfigData": config}
        return str(self._changed(LAUNCH, run=run)["run"]["runId"])

    def backfill(self, job: str, partitions: Sequence[str], config: dict[str, Any]) -> str:
        """Launch a backfill as the dialog of a job does: its id."""
        launched = {
            "selector": {
                "partitionSetName": f"{job}_partition_set",
                "repositorySelector": self._repository,
            },
            "partitionNames": list(partitions),
            "fromFailure": False,
            "runConfigData": config,
        }
        return str(self._changed(BACKFILL, backfill=launched)["backfillId"])

    def backfill_status(self, backfill_id: str) -> str:
        """`REQUESTED`, `COMPLETED_SUCCESS`, `COMPLETED_FAILED`, ..."""
        answer = self.ask(BACKFILL_STATUS, backfill=backfill_id)
        return str(answer["partitionBackfillOrError"]["status"])

    def runs(self, limit: int = 100) -> list[DagsterRun]:
        """The runs, the newest first."""
        return [
            DagsterRun(
                run["runId"], run["jobName"], run["status"], run["startTime"], run["endTime"],
                {tag["key"]: tag["value"] for tag in run["tags"]},
            )
            for run in self.ask(RUNS, limit=limit)["runsOrError"]["results"]
        ]  # fmt: skip

    def process_of(self, run_id: str) -> int | None:
        """The id of the process that a run is in; None if it has not begun its first step."""
        for message in self.messages(run_id):
            said = PROCESS.search(message)
            if said:
                return int(said[1])
        return None

    def messages(self, run_id: str) -> list[str]:
        """What a run's log says."""
        return [event.get("message") or "" for event in self._events(run_id)]

    def _events(self, run_id: str) -> list[dict[str, Any]]:
        answer = self.ask(EVENTS, run=run_id)["runOrError"]
        return list(answer["eventConnection"]["events"])

    def metadata(self, run_id: str) -> dict[str, str]:
        """The texts in the metadata of a run's step, be it done or failed."""
        entries: dict[str, str] = {}
        for event in self._events(run_id):
            failure = event.get("failureMetadata") or {}
            for entry in event.get("metadataEntries") or failure.get("metadataEntries") or ():
                entries[entry["label"]] = (
                    entry.get("text") or entry.get("mdStr") or entry.get("url")
                )
        return entries

    def ended(self, run_id: str, seconds: float) -> DagsterRun:
        """A run, when it is over.

        Raises:
            TimeoutError: It is not, after so many seconds.
        """
        over = self.await_runs(lambda runs: any(run.id == run_id for run in runs), seconds)
        return next(run for run in over if run.id == run_id)

    def await_runs(
        self, enough: Callable[[list[DagsterRun]], bool], seconds: float,
        seen: Callable[[DagsterRun], None] | None = None,
    ) -> list[DagsterRun]:  # fmt: skip
        """Wait until the runs that are over are enough.

        Args:
            enough: Told of them, the newest first.
            seconds: At most so long.
            seen: Told of each of them, again and again.

        Raises:
            TimeoutError: They are not.
        """
        until = time.monotonic() + seconds
        while True:
            over = [run for run in self.runs() if run.is_over]
            for run in reversed(over):
                if seen is not None:
                    seen(run)
            if enough(over):
                return over
            if time.monotonic() > until:
                raise TimeoutError(f"after {seconds:.0f} s there are {over}")
            time.sleep(0.5)
