"""The lake as one object: what Python programs use, and what the command does behind its options.

::

    from statelake.pipelines.lake.api import Lake

    lake = Lake("s3://bucket/lake", storage_options={"AWS_REGION": "eu-central-1"})
    lake.import_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f", "orders", snapshot_id="monday")
    lake.export("orders", "monday", "savepoints/wide", parallelism=12)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.keys import KeyRows
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import (
    DropPlan,
    DropResult,
    drop_snapshots,
    plan_drop,
)
from statelake.pipelines.lake.catalog.holds import hold_snapshot, release_snapshot
from statelake.pipelines.lake.edit.committing import CommitResult, commit_snapshot
from statelake.pipelines.lake.export.exporting import ExportResult, export_snapshot
from statelake.pipelines.lake.ingest.importing import ImportResult, import_snapshot
from statelake.pipelines.lake.keys.key_history import KeyHistory, key_history
from statelake.pipelines.lake.keys.one_key import newest_snapshot, rows_in_lake
from statelake.pipelines.lake.share.sharing import Sharing
from statelake.pipelines.lake.tables.records import HoldRecord, SnapshotRecord
from statelake.pipelines.lake.verify.diffing import StateDifference, diff_snapshots
from statelake.state_core.files.storage_options import with_storage_options

__all__ = ["Lake"]


class Lake(Catalog):
    """A lake at a path or URI. Nothing is created before the first snapshot.

    Every method raises a `StateError` (see `state_core.errors`) that names what is wrong and what
    to do, and leaves the lake as it was.

    Args:
        location: Its directory.
        storage_options: For `s3://`: `AWS_REGION` and the like, as deltalake names them.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(with_storage_options(location, storage_options))

    def snapshots(self, job: str | None = None) -> list[SnapshotRecord]:
        """All snapshots, or one job's, the oldest first; none where there is no lake yet."""
        return self.summaries(job) if self.exists() else []

    def import_snapshot(
        self,
        source: str | os.PathLike[str],
        job: str,
        *,
        snapshot_id: str | None = None,
        engine: Engine | str = "auto",
        allow_external: Iterable[str] = (),
        uids: Iterable[str] = (),
        note: str = "",
        taken_at: datetime | None = None,
        partitions: int | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Import a savepoint or checkpoint as the job's next snapshot.

        Args:
            source: Its directory, a path or URI.
            job: The job; its tables are below that name.
            snapshot_id: What to call it; by default as Flink did.
            engine: `auto`, `spark`, `local`, or an engine.
            allow_external: Directories elsewhere that its handles may lead to.
            uids: Operator uids to recognise, for snapshots of before Flink 2.0.
            note: Kept with it.
            taken_at: When the job took it; by default the time of its file `_metadata`.
            partitions: How many files each state is to have, 1 to 128; by default as its bytes ask
                for.
            progress: Called with (done, total) in bytes after each slice.
        """
        return import_snapshot(
            self, os.fspath(source), job, snapshot_id=snapshot_id, engine=engine,
            allow_external=allow_external, uids=uids, note=note, taken_at=taken_at,
            partitions=partitions, progress=progress,
        )  # fmt: skip

    def get(
        self,
        job: str,
        key: str,
        *,
        snapshot_id: str | None = None,
        operator: str | None = None,
        state: str | None = None,
    ) -> list[KeyRows]:
        """All that a snapshot holds for a key: of each operator the rows of its states, as Arrow.

        Only files are read that may hold the key, and only when rows are taken.

        Args:
            job: The job.
            key: The key as `statelake dump` prints it: JSON, or plain text.
            snapshot_id: The snapshot; by default the newest.
            operator: Only of this operator: its uid, name or id.
            state: Only of the state of that name.
        """
        record = newest_snapshot(self, job, snapshot_id)
        return rows_in_lake(self, record, key, operator=operator, state=state)

    def history(
        self, job: str, key: str, *, operator: str | None = None, state: str | None = None
    ) -> KeyHistory:
        """What changed of a key from each snapshot of a job to the next.

        Args:
            job: The job.
            key: The key as `statelake dump` prints it: JSON, or plain text.
            operator: Only of this operator: its uid, name or id.
            state: Only of the state of that name.
        """
        return key_history(self, job, key, operator=operator, state=state)

    def export(
        self,
        job: str,
        snapshot_id: str,
        to: str | os.PathLike[str],
        *,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        compression: str | None = None,
        sharing: Sharing | None = None,
        drop_channel_state: bool = False,
        engine: Engine | str = "auto",
        progress: Progress | None = None,
    ) -> ExportResult:
        """Write a snapshot as a savepoint that Flink restores.

        Args:
            job: Its job.
            snapshot_id: Its id.
            to: A directory that is not there yet.
            parallelism: The parallelism of every operator with state; as before by default.
            max_parallelism: Another one gives every key a new key group; by default as it was.
            compression: `snappy` or `none`; by default as it was.
            sharing: A sample of the keys, and what is masked; by default it is all there is.
            drop_channel_state: Whether records in flight are left out, which the job never sees.
            engine: `auto`, `spark`, `local`, or an engine.
            progress: Called with (done, total) in bytes after each slice.
        """
        return export_snapshot(
            self, job, snapshot_id, to, parallelism=parallelism, max_parallelism=max_parallelism,
            compression=compression, sharing=sharing, drop_channel_state=drop_channel_state,
            engine=engine, progress=progress,
        )  # fmt: skip

    def diff(
        self,
        job: str,
        earlier: str,
        later: str,
        *,
        examples: int = 3,
        engine: Engine | str = "auto",
        progress: Progress | None = None,
    ) -> list[StateDifference]:
        """Compare two snapshots of a job, state by state.

        Args:
            job: The job.
            earlier: The id of one.
            later: The id of the other.
            examples: How many rows of each kind of difference to show.
            engine: `auto`, `spark`, `local`, or an engine.
            progress: Called with (done, total) after each slice.
        """
        return diff_snapshots(
            self, job, earlier, later, examples=examples, engine=engine, progress=progress
        )

    def commit(
        self,
        job: str,
        snapshot_id: str,
        parent: str,
        *,
        note: str = "",
        engine: Engine | str = "auto",
        progress: Progress | None = None,
    ) -> CommitResult:
        """Make the current versions of a job's tables, edited by SQL or others, a snapshot.

        Args:
            job: The job.
            snapshot_id: What to call the new snapshot.
            parent: The snapshot whose tables were edited.
            note: Kept with it; say why.
            engine: `auto`, `spark`, `local`, or an engine.
            progress: Called with (done, total) after each slice.
        """
        return commit_snapshot(
            self, job, snapshot_id, parent, note=note, engine=engine, progress=progress
        )

    def hold(self, job: str, snapshot_id: str, reason: str = "") -> list[HoldRecord]:
        """Let nobody drop a snapshot, until its holds are released: those that it has now.

        Args:
            job: The job.
            snapshot_id: The snapshot.
            reason: Why; another reason is another hold.
        """
        return hold_snapshot(self, job, snapshot_id, reason)

    def release(self, job: str, snapshot_id: str, reason: str | None = None) -> list[str]:
        """End the holds of a snapshot: their reasons.

        Args:
            job: The job.
            snapshot_id: The snapshot.
            reason: Only the hold of that reason; all of them by default.
        """
        return release_snapshot(self, job, snapshot_id, reason)

    def drop(
        self, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
    ) -> DropResult:
        """Drop the snapshots named, or all but the newest, and free what only they needed.

        Those with a hold stay; to name one is an error.

        Args:
            job: The job.
            snapshot_ids: The snapshots to drop.
            keep: How many of the newest to keep, where no ids are given.
        """
        return drop_snapshots(self, job, snapshot_ids=snapshot_ids, keep=keep)

    def plan_drop(
        self, job: str, *, snapshot_ids: list[str] | None = None, keep: int | None = None
    ) -> DropPlan:
        """Say what `drop` would do, with nothing changed.

        Args:
            job: The job.
            snapshot_ids: The snapshots to drop.
            keep: How many of the newest to keep, where no ids are given.
        """
        return plan_drop(self, job, snapshot_ids=snapshot_ids, keep=keep)
