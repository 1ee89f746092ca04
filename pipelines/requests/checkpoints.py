"""Requests for logs of the checkpoints of running tasks."""

from __future__ import annotations

from collections.abc import Sequence

from statelake.pipelines.requests.request import Request, option
from statelake.pipelines.requests.shared import Tried


class ShowRecord(Request):
    """One record of a task."""

    task: str = option("The task.", kw_only=False)
    checkpoint: str | None = option(
        "Its id; by default that of the last one.", default=None, kw_only=False
    )
    version: int | None = option("Only a record of this version.", default=None, least=1, most=2)


class OfTasks(Request):
    """The tasks whose records are read."""

    tasks: Sequence[str] = option("Only this task; not all.", default=(), flag="--task")


class OfBlobs(Request):
    """The place of blobs of checkpoints."""

    blobs: str | None = option("The blob store: a directory or URI.", default=None)


class VerifyLog(OfTasks, OfBlobs):
    """A restore of what the markers of a log lead to."""

    changelogs: str | None = option(
        "The changelogs: kafka://HOST:PORT, or a directory.", default=None
    )
    all: bool = option("Every record, not the last of each task.", default=False)


class DropRecords(OfBlobs):
    """The removal of all records but the last ones."""

    keep: int = option(
        "The number of records of each task and version that stay.", kw_only=False, least=1
    )


class MigrateLog(Tried, OfTasks):
    """Records of version 2 for tasks that have their last one in version 1."""

    changelogs: Sequence[str] = option(
        "A store's changelog, as its configuration says.", "STORE=SYSTEM.STREAM",
        default=(), kw_only=False, flag="--changelog",
    )  # fmt: skip
    rollback: bool = option("From version 2 to version 1.", default=False)
