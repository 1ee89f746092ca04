"""The last checkpoint of a task, read from a log with records of several versions.

A log has records of several versions during a migration, of later releases after a rollback, and of
other tasks. Records of another version or an unknown type are skipped; those of a known version
that are broken are refused, unless validation is off.

Two settings are enough to change from version 1 to 2 and back, without loss::

    write 1, 2   read 1       as before, with an additional second record
    write 1, 2   read 2, 1    restores from version 2; can go back to the line above at any time
    write 2      read 2       can't go back: the first setting no longer finds new records
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from statelake.state_core.errors import CheckpointRecordError, CommitError
from statelake.state_core.runtime.commit.records.checkpoint_log import CheckpointLog, LogRecord
from statelake.state_core.runtime.commit.records.records import (
    CHECKPOINT_TYPES,
    SNAPSHOT_FACTORY,
    Checkpoint,
    CheckpointId,
    CheckpointLogKey,
    CheckpointV2,
)
from statelake.state_core.runtime.commit.records.serdes import (
    downgrade,
    read_checkpoint_v1,
    read_checkpoint_v2,
    read_key,
    write_checkpoint_v1,
    write_checkpoint_v2,
    write_key,
)

LOG = logging.getLogger(__name__)
LIVE_CHECKPOINT_MAX_AGE_MS = 600_000
_RUN = re.compile(r"run-(\d{8,12})", re.ASCII)


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A checkpoint in a log.

    Attributes:
        record: The encoded record.
        key: Its key.
        checkpoint: Its checkpoint.
    """

    record: LogRecord
    key: CheckpointLogKey
    checkpoint: Checkpoint

    @property
    def task(self) -> str:
        """The task's name."""
        return self.key.task

    @property
    def id(self) -> CheckpointId | None:
        """The commit's id, if the record has one."""
        if isinstance(self.checkpoint, CheckpointV2):
            return self.checkpoint.id
        ids = []
        for written in self.checkpoint.offsets.values():
            head, separator, _ = (written or "").partition(":")
            try:
                ids += [CheckpointId.parse(head)] if separator else []
            except CheckpointRecordError:
                continue  # an input's offset may have any form
        return max(ids, default=None)

    @property
    def backends(self) -> dict[str, list[str]]:
        """The stores for which each backend has a marker."""
        return {factory: sorted(markers) for factory, markers in self.checkpoint.markers.items()}

    @property
    def snapshot(self) -> str:
        """The snapshot of the lake with its state; empty if no run wrote it."""
        return next(iter(self.checkpoint.markers.get(SNAPSHOT_FACTORY, {}).values()), "")

    @property
    def run(self) -> int | None:
        """The number of the run that wrote it; None if no run did."""
        match = _RUN.fullmatch(self.snapshot)
        return int(match[1]) if match else None

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON."""
        return {
            "offset": self.record.offset,
            "appended_at": self.record.appended_at,
            "key": json.loads(self.record.key),
            "checkpoint": json.loads(self.record.message),
        }


def record_of(
    record: LogRecord, versions: Collection[int] = tuple(CHECKPOINT_TYPES)
) -> TaskRecord | None:
    """Decode a record; None if its version is not one of these.

    Raises:
        CheckpointRecordError: The record is broken.
    """
    try:
        key = read_key(record.key)
        if key.version is None or key.version not in versions:
            return None
        read = read_checkpoint_v1 if key.version == 1 else read_checkpoint_v2
        return TaskRecord(record, key, read(record.message))
    except CheckpointRecordError as error:
        raise error.within(f"record {record.offset} of the checkpoint log") from error


def replaces(
    new: TaskRecord,
    old: TaskRecord,
    read_versions: tuple[int, ...],
    max_age: int = LIVE_CHECKPOINT_MAX_AGE_MS,
) -> bool:
    """Return whether a record replaces an earlier one in the log.

    It does if its version has at least the same preference; or if the earlier record is so old that
    its version is no longer written.

    Args:
        new: The later record.
        old: The earlier record.
        read_versions: Versions to read, the preferred one first.
        max_age: Milliseconds by which records of one commit may be apart.
    """
    preference = read_versions.index
    return (
        preference(new.checkpoint.version) <= preference(old.checkpoint.version)
        or new.record.appended_at - old.record.appended_at > max_age
    )


class CheckpointManager:
    """A reader and writer of the checkpoints of tasks in a log.

    Args:
        log: The log.
        grouper: The class that assigns partitions to tasks.
        read_versions: `checkpoint.read.versions`, the preferred one first.
        write_versions: `checkpoint.write.versions`, in the order of writing.
        validate: Whether broken records, or those of another grouper, are errors rather than
            warnings.

    Raises:
        CommitError: The version to read is not written, so that a restart would go back in time.
    """

    def __init__(
        self,
        log: CheckpointLog,
        grouper: str,
        *,
        read_versions: Iterable[int] = (2, 1),
        write_versions: Iterable[int] = (2,),
        validate: bool = True,
    ) -> None:
        self.log = log
        self.grouper = grouper
        self.read_versions = tuple(dict.fromkeys(read_versions))
        self.write_versions = tuple(dict.fromkeys(write_versions))
        self.validate = validate
        self._last: dict[str, TaskRecord] = {}
        self._position = -1
        known = set(CHECKPOINT_TYPES)
        if not self.write_versions or not set(self.read_versions + self.write_versions) <= known:
            raise CommitError(
                f"checkpoints of version {self.read_versions} can't be read and "
                f"{self.write_versions} not be written",
                remedy="the versions are 1 and 2, and one at least has to be written",
            )
        if not set(self.read_versions) & set(self.write_versions):
            raise CommitError(
                f"version {self.write_versions} is written but {self.read_versions} is read: a "
                "restart would go back in time",
                remedy="write what is read, in `checkpoint.write.versions`",
            )

    def read_last(self, task: str) -> Checkpoint | None:
        """Return the checkpoint from which a task restarts; None before its first commit.

        Raises:
            CheckpointRecordError: The record is broken, or of another grouper and validation is on.
        """
        for record in self.log.read(self._position):
            self._take(record)
            self._position = record.offset
        known = self._last.get(task)
        return None if known is None else known.checkpoint

    def write(self, task: str, checkpoint: CheckpointV2) -> None:
        """Append a task's checkpoint in every configured version."""
        for version in self.write_versions:
            key = CheckpointLogKey(self.grouper, task, CHECKPOINT_TYPES[version])
            if version == 1:
                message = write_checkpoint_v1(downgrade(checkpoint))
            else:
                message = write_checkpoint_v2(checkpoint)
            self.log.append(write_key(key), message)

    def _take(self, record: LogRecord) -> None:
        try:
            new = record_of(record, self.read_versions)
        except CheckpointRecordError as error:
            if self.validate:
                raise
            LOG.warning("record %d of the checkpoint log is skipped: %s", record.offset, error)
            return
        if new is None:
            LOG.debug("record %d is skipped: it is of another version", record.offset)
            return
        self._check(new)
        old = self._last.get(new.task)
        if old is None or replaces(new, old, self.read_versions):
            self._last[new.task] = new

    def _check(self, record: TaskRecord) -> None:
        grouper, task = record.key.grouper, record.task
        if grouper == self.grouper:
            return
        if self.validate:
            raise CheckpointRecordError(
                f"task {task!r} was grouped by {grouper}, now by {self.grouper}",
                place=f"record {record.record.offset} of the checkpoint log",
                remedy="offsets of another grouper fit no task: start with a new checkpoint log, "
                "or turn validation off",
            )
        LOG.warning("task %r was grouped by %s, now by %s", task, grouper, self.grouper)
