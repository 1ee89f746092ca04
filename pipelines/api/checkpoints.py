"""The checkpoints of running tasks, in a log."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from statelake.pipelines.requests.checkpoints import (
    DropRecords,
    MigrateLog,
    ShowRecord,
    VerifyLog,
)
from statelake.pipelines.requests.request import asks
from statelake.state_core.errors import NotFoundError
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.api.jobs import Job
    from statelake.state_core.runtime.commit import CheckpointLog, StateBackendFactory
    from statelake.state_core.runtime.commit.logs.checkpoint_dropping import CheckpointDropResult
    from statelake.state_core.runtime.commit.logs.checkpoint_migrating import MigratedLog
    from statelake.state_core.runtime.commit.logs.checkpoint_records import LastCheckpoints
    from statelake.state_core.runtime.commit.logs.checkpoint_verifying import VerifiedLog
    from statelake.state_core.runtime.commit.records.checkpoint_reading import TaskRecord


class Checkpoints:
    """The checkpoints of running tasks, in a log.

    Args:
        log: A directory of records, or `kafka://HOST:PORT/TOPIC`.
        job: The job of a lake whose runs wrote the log; `Job.checkpoints` gives it.
    """

    def __init__(self, log: str, job: Job | None = None) -> None:
        self.location = log
        self.job = job

    def __repr__(self) -> str:
        return f"<Checkpoints {printable(self.location)}>"

    @cached_property
    def log(self) -> CheckpointLog:
        """The log, opened.

        Raises:
            NotFoundError: There is no log at the location.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_records import open_log

        return open_log(self.location)

    def list(self) -> LastCheckpoints:
        """Return the last checkpoint of each task, in each version."""
        from statelake.state_core.runtime.commit.logs.checkpoint_records import (
            LastCheckpoints,
            last_records,
            read_records,
        )
        from statelake.state_core.runtime.commit.records.clocks import now_millis

        now, tasks = now_millis(), last_records(read_records(self.log)).values()
        return LastCheckpoints(
            [record for versions in tasks for _, record in sorted(versions.items())], now
        )

    @asks(ShowRecord)
    def show(self, request: ShowRecord) -> TaskRecord:
        """Return one record of a task, by default the later one.

        Raises:
            NotFoundError: There is no such record.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_records import read_records

        for record in reversed(read_records(self.log)):
            if (
                record.task == request.task
                and request.version in (None, record.checkpoint.version)
                and request.checkpoint in (None, str(record.id))
            ):
                return record
        raise NotFoundError(
            f"no such record of task {request.task!r}",
            place=self.location,
            remedy="`statelake checkpoints list` has the last ones; older ones may be removed",
        )

    @asks(VerifyLog)
    def verify(self, request: VerifyLog) -> VerifiedLog:
        """Restore what its markers lead to, into a directory that is removed again.

        Snapshots of the lake are read and hashed, if the log is that of a job's runs. Then only
        tasks of the last run are verified, unless others are named.
        """
        from statelake.state_core.runtime.commit import BlobStoreBackend, ChangelogBackend
        from statelake.state_core.runtime.commit.logs.checkpoint_records import open_changelogs
        from statelake.state_core.runtime.commit.logs.checkpoint_verifying import verify_log

        backends: list[StateBackendFactory] = []
        if request.blobs:
            backends.append(BlobStoreBackend(_blob_store(request.blobs)))
        if request.changelogs:
            backends.append(ChangelogBackend(open_changelogs(request.changelogs)))
        job, tasks = self.job, request.tasks
        if job is None:
            return verify_log(self.log, backends, tasks=tasks, every=request.all)
        # those of a larger parallelism have records, but no state any more
        if not (tasks or request.all):
            records = self.list().records
            newest = max(record.run or 0 for record in records)
            tasks = [record.task for record in records if record.run == newest]
        snapshots = cache(job._verified)  # noqa: SLF001 - every task of a run has the same
        return verify_log(self.log, backends, snapshots=snapshots, tasks=tasks, every=request.all)

    @asks(DropRecords)
    def drop(self, request: DropRecords) -> CheckpointDropResult:
        """Remove all records but the last ones, and the blobs that only they needed.

        Without a blob store blobs stay.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_dropping import drop_records

        blobs = _blob_store(request.blobs) if request.blobs else None
        return drop_records(self.log, request.keep, blobs)

    @asks(MigrateLog)
    def migrate(self, request: MigrateLog) -> MigratedLog:
        """Append a record of version 2 for every task that has its last one in version 1.

        Raises:
            DeclarationError: A changelog is not of that form.
        """
        from statelake.state_core.runtime.commit.logs.checkpoint_migrating import (
            MigratedLog,
            changelog_of,
            migrate_records,
        )

        words = vars(request) | {"changelogs": dict(map(changelog_of, request.changelogs))}
        return MigratedLog(migrate_records(self.log, **words), request.dry_run)


def _blob_store(location: str) -> Any:
    from statelake.state_core.files.filesystem import Directory
    from statelake.state_core.runtime.commit import FileSystemBlobStore

    return FileSystemBlobStore(Directory(location).confined())
