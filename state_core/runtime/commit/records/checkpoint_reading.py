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

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from statelake.state_core.errors import CheckpointRecordError, CommitError
from statelake.state_core.runtime.commit.records.checkpoint_log import CheckpointLog, LogRecord
from statelake.state_core.runtime.commit.records.records import (
    CHECKPOINT_TYPES,
    Checkpoint,
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


@dataclass(frozen=True, slots=True)
class _Found:
    checkpoint: Checkpoint
    appended_at: int


def replaces(
    new: int, new_at: int, old: int, old_at: int, read_versions: tuple[int, ...], max_age: int
) -> bool:
    """Return whether a record replaces an earlier one in the log.

    It does if its version has at least the same preference; or if the earlier record is so old that
    its version is no longer written.

    Args:
        new: The later record's version.
        new_at: The later record's time of append.
        old: The earlier record's version.
        old_at: The earlier record's time of append.
        read_versions: Versions to read, the preferred one first.
        max_age: Milliseconds by which records of one commit may be apart.
    """
    return read_versions.index(new) <= read_versions.index(old) or new_at - old_at > max_age


class CheckpointManager:
    """A reader and writer of the checkpoints of tasks in a log.

    Args:
        log: The log.
        grouper: The class that assigns partitions to tasks.
        read_versions: `checkpoint.read.versions`, the preferred one first.
        write_versions: `checkpoint.write.versions`, in the order of writing.
        validate: Whether broken records, or those of another grouper, are errors rather than
            warnings.
        live_max_age: Milliseconds after which a record of a less preferred version is used.

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
        live_max_age: int = LIVE_CHECKPOINT_MAX_AGE_MS,
    ) -> None:
        self.log = log
        self.grouper = grouper
        self.read_versions = tuple(dict.fromkeys(read_versions))
        self.write_versions = tuple(dict.fromkeys(write_versions))
        self.validate = validate
        self.live_max_age = live_max_age
        self._found: dict[str, _Found] = {}
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
        known = self._found.get(task)
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
            key = read_key(record.key)
            version = key.version
            if version not in self.read_versions or version is None:
                LOG.debug("record %d of type %r is skipped", record.offset, key.type)
                return
            self._check(key)
            read = read_checkpoint_v1 if version == 1 else read_checkpoint_v2
            checkpoint: Checkpoint = read(record.message)
        except CheckpointRecordError as error:
            if self.validate:
                raise error.within(f"record {record.offset} of the checkpoint log") from error
            LOG.warning("record %d of the checkpoint log is skipped: %s", record.offset, error)
            return
        at = record.appended_at
        old = self._found.get(key.task)
        if old is None or replaces(
            version,
            at,
            old.checkpoint.version,
            old.appended_at,
            self.read_versions,
            self.live_max_age,
        ):
            self._found[key.task] = _Found(checkpoint, at)

    def _check(self, key: CheckpointLogKey) -> None:
        if key.grouper == self.grouper:
            return
        if self.validate:
            raise CheckpointRecordError(
                f"task {key.task!r} was grouped by {key.grouper}, now by {self.grouper}",
                remedy="offsets of another grouper fit no task: start with a new checkpoint log, "
                "or turn validation off",
            )
        LOG.warning("task %r was grouped by %s, now by %s", key.task, key.grouper, self.grouper)
