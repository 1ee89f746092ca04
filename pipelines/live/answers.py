"""Responses of a Flink cluster, as records: checked, since any server may answer at a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

from statelake.state_core.errors import ClusterError
from statelake.state_core.files.outside import checked

ENDED = frozenset({"FINISHED", "FAILED", "CANCELED", "SUSPENDED"})
"""States of jobs that have ended."""

Value = TypeVar("Value")
_ID = re.compile(r"[0-9a-f]{32}")


def is_id(text: str) -> bool:
    """Return whether a text is one of Flink's ids: 32 hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def answered(
    answer: Any, place: str, *names: str, kind: type[Value], default: Value | None = None
) -> Value:
    """Return a value in a response.

    Args:
        answer: Parsed JSON.
        place: The request, for the message.
        names: The names of the enclosing objects, and of the value.
        kind: Its type.
        default: The result if the value is missing, or null.

    Raises:
        ClusterError: The value is missing, or of another type.
    """
    value = answer
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None and default is not None:
        return default

    def refused(problem: str) -> ClusterError:
        return ClusterError(
            f"its response has no valid {'.'.join(names) or kind.__name__} ({problem})",
            place=place,
            remedy="check that the URL is that of Flink's REST API, 1.18 to 2.3",
        )

    return checked(value, kind, refused)


def rows(answer: Any, place: str, *names: str) -> list[dict[str, Any]]:
    """Return a list of objects in a response.

    Raises:
        ClusterError: There is no such list.
    """
    return answered(answer, place, *names, kind=list[dict[str, Any]])


def _id(row: Any, place: str, name: str) -> str:
    """Return an id, checked because it becomes part of paths."""
    value = answered(row, place, name, kind=str)
    if not is_id(value):
        raise ClusterError(f"its response has an invalid {name}: {value!r:.80}", place=place)
    return value


def _time(milliseconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(max(milliseconds, 0) / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, timezone.utc)


@dataclass(frozen=True)
class FlinkJob:
    """A job in the overview.

    Attributes:
        id: Its id on the cluster: 32 hexadecimal digits.
        name: Its name, which several may have.
        state: `RUNNING`, `RESTARTING`, `FINISHED`, ...
        started: When it was started.
        seconds: How long it has run, or ran.
        tasks: The number of its subtasks.
        running_tasks: The number of running subtasks.
    """

    id: str
    name: str
    state: str
    started: datetime
    seconds: float
    tasks: int
    running_tasks: int

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return self.state in ENDED

    @classmethod
    def of(cls, row: Mapping[str, Any], place: str) -> FlinkJob:
        """Return the job of a row of `/jobs/overview`."""
        return cls(
            _id(row, place, "jid"),
            answered(row, place, "name", kind=str),
            answered(row, place, "state", kind=str),
            _time(answered(row, place, "start-time", kind=int)),
            answered(row, place, "duration", kind=int, default=0) / 1000,
            answered(row, place, "tasks", "total", kind=int, default=0),
            answered(row, place, "tasks", "running", kind=int, default=0),
        )


@dataclass(frozen=True)
class FlinkJobDetails:
    """The details of a job.

    Attributes:
        id: Its id on the cluster.
        name: Its name.
        state: `RUNNING`, `RESTARTING`, `FINISHED`, ...
        parallelism: The largest of its tasks'.
        max_parallelism: The largest of its tasks'; 0 if there are none yet.
        tasks: The state of each of its tasks (chains of operators).
    """

    id: str
    name: str
    state: str
    parallelism: int
    max_parallelism: int
    tasks: tuple[str, ...]

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return self.state in ENDED

    @property
    def runs(self) -> bool:
        """Return whether it runs, with all of its tasks."""
        working = all(task in ("RUNNING", "FINISHED") for task in self.tasks)
        return self.state == "RUNNING" and working

    @classmethod
    def of(cls, answer: Any, place: str) -> FlinkJobDetails:
        """Return the job of a response of `/jobs/ID`."""
        tasks = rows(answer, place, "vertices")
        return cls(
            _id(answer, place, "jid"),
            answered(answer, place, "name", kind=str),
            answered(answer, place, "state", kind=str),
            max((answered(t, place, "parallelism", kind=int) for t in tasks), default=0),
            max(
                (answered(t, place, "maxParallelism", kind=int, default=0) for t in tasks),
                default=0,
            ),
            tuple(answered(task, place, "status", kind=str) for task in tasks),
        )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint or savepoint of a running job.

    Attributes:
        number: Its id in the job.
        status: `COMPLETED`, `IN_PROGRESS`, `FAILED`.
        is_savepoint: Whether it was triggered as a savepoint.
        triggered: When it was triggered.
        seconds: The time until its end.
        state_bytes: The bytes of its state.
        written_bytes: The bytes that it wrote: fewer, if it is incremental.
        path: Its path on the cluster; empty without one.
    """

    number: int
    status: str
    is_savepoint: bool
    triggered: datetime
    seconds: float
    state_bytes: int
    written_bytes: int
    path: str

    @classmethod
    def of(cls, row: Mapping[str, Any], place: str) -> Checkpoint:
        """Return the checkpoint of a row of `/jobs/ID/checkpoints`."""
        state_bytes = answered(row, place, "state_size", kind=int, default=0)
        return cls(
            answered(row, place, "id", kind=int),
            answered(row, place, "status", kind=str),
            answered(row, place, "is_savepoint", kind=bool, default=False),
            _time(answered(row, place, "trigger_timestamp", kind=int, default=0)),
            answered(row, place, "end_to_end_duration", kind=int, default=0) / 1000,
            state_bytes,
            answered(row, place, "checkpointed_size", kind=int, default=state_bytes),
            answered(row, place, "external_path", kind=str, default=""),
        )


@dataclass(frozen=True)
class JobCheckpoints:
    """A job's checkpoints since it was started.

    Attributes:
        completed: The number of completed checkpoints.
        failed: The number of failed checkpoints.
        restored_from: The path on the cluster from which it was restored; empty without one.
        latest_savepoint: The last completed savepoint; empty without one.
        history: The checkpoints that the cluster remembers (10 by default), the oldest first.
    """

    JSON = ("*", "history")

    completed: int
    failed: int
    restored_from: str
    latest_savepoint: str
    history: tuple[Checkpoint, ...] = field(repr=False)

    @classmethod
    def of(cls, answer: Any, place: str) -> JobCheckpoints:
        """Return the checkpoints in a response of `/jobs/ID/checkpoints`."""

        def path(name: str) -> str:
            return answered(answer, place, "latest", name, "external_path", kind=str, default="")

        history = [Checkpoint.of(row, place) for row in rows(answer, place, "history")]
        return cls(
            answered(answer, place, "counts", "completed", kind=int),
            answered(answer, place, "counts", "failed", kind=int, default=0),
            path("restored"),
            path("savepoint"),
            tuple(sorted(history, key=lambda checkpoint: checkpoint.number)),
        )


@dataclass(frozen=True)
class Operation:
    """An asynchronous operation of a cluster.

    Attributes:
        completed: Whether it has ended, well or badly.
        location: Its result's location, if it succeeded and has one.
        failure: The stack trace, or its class, if it ended badly.
    """

    completed: bool
    location: str = ""
    failure: str = ""

    @classmethod
    def of(cls, answer: Any, place: str) -> Operation:
        """Return the operation in a trigger's response; COMPLETED is not yet success."""
        if answered(answer, place, "status", "id", kind=str) != "COMPLETED":
            return cls(completed=False)
        operation: dict[str, Any] = answered(answer, place, "operation", kind=dict, default={})
        cause = operation.get("failure-cause")
        if cause is not None:
            name = answered(cause, place, "class", kind=str, default="unknown")
            trace = answered(cause, place, "stack-trace", kind=str, default=name)
            return cls(completed=True, failure=trace or name)
        return cls(
            completed=True, location=answered(operation, place, "location", kind=str, default="")
        )
