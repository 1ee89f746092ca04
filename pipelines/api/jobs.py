"""A job of a lake: what is done with all of its snapshots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from statelake.pipelines.api.snapshots import LakeSnapshot
from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import CatalogVersion
from statelake.pipelines.lake.catalog.reading import read_together
from statelake.pipelines.lake.catalog.snapshot_names import (
    SnapshotId,
    full_snapshot_id,
    resolve_snapshot,
)
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.live.requests import Rescale
from statelake.pipelines.requests.bootstrap import BootstrapJob
from statelake.pipelines.requests.changes import Migrate, MigrateSnapshots
from statelake.pipelines.requests.imports import ImportSnapshot
from statelake.pipelines.requests.reading import GrowthOfJob, OfKey, Selection
from statelake.pipelines.requests.request import asks
from statelake.state_core.errors import DeclarationError, NotFoundError, StateError
from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.pipelines.api.checkpoints import Checkpoints
    from statelake.pipelines.api.lake import Lake
    from statelake.pipelines.api.plans import LiveRescale
    from statelake.pipelines.bootstrap.bootstrapping import BootstrapResult
    from statelake.pipelines.find.growth import Growth
    from statelake.pipelines.lake.catalog.dropping import DropPlan, DropResult
    from statelake.pipelines.lake.catalog.retention import Policy, RetentionPlan
    from statelake.pipelines.lake.change.migrations import Migrations
    from statelake.pipelines.lake.edit.committing import CommitResult
    from statelake.pipelines.lake.ingest.importing import ImportResult
    from statelake.pipelines.lake.keys.key_history import KeyHistory


@dataclass(frozen=True, repr=False)
class Job:
    """One job of a lake, and where its operations run.

    Attributes:
        lake: The lake.
        name: Its name.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) by operations that take long.
    """

    lake: Lake
    name: str
    engine: Engine | str = "auto"
    progress: Progress | None = None

    def __repr__(self) -> str:
        return f"<Job {printable(self.name)} of {printable(self.lake.catalog.directory.uri)}>"

    def snapshots(self) -> list[SnapshotRecord]:
        """Return what is known of its snapshots, the oldest first; see `Lake.snapshots`."""
        return self.lake.snapshots(self.name)

    def __getitem__(self, snapshot: str) -> LakeSnapshot:
        """Return a snapshot by its id, `latest`, `latest~1`, a date, or how its id begins.

        Raises:
            NotFoundError: There is no such snapshot, or several begin so.
        """
        record = self.lake.catalog.snapshot(self.name, self.resolve(snapshot))
        return LakeSnapshot(self, record, snapshot)

    def newest(self) -> LakeSnapshot:
        """Return the newest snapshot.

        Raises:
            NotFoundError: There is no such job.
        """
        catalog = self.lake.catalog
        return LakeSnapshot(self, catalog.latest(self.name) or catalog.snapshot(self.name, ""))

    def checkpoints(self) -> Checkpoints:
        """Return the checkpoints of its runs, if it is a job of process functions.

        Raises:
            NotFoundError: It has no runs.
        """
        from statelake.pipelines.api.checkpoints import Checkpoints
        from statelake.pipelines.lake.catalog.run_log import RunLog

        directory = RunLog(self.lake.catalog.directory, self.name).checkpoints
        if not directory.exists():
            raise NotFoundError(
                "no run of the job has committed yet",
                place=f"job {self.name!r}",
                remedy="`statelake run` runs a job of process functions",
            )
        return Checkpoints(directory.location, self)

    def _verified(self, snapshot: str) -> tuple[int, str]:
        """Return the bytes of a snapshot's state, and its faults."""
        try:
            stored = LakeSnapshot(self, self.lake.catalog.snapshot(self.name, snapshot))
            return stored.record.state_bytes, "; ".join(stored.check_integrity())
        except StateError as error:
            return 0, str(error)

    def resolve(self, snapshot: str) -> SnapshotId:
        """Return the id of a snapshot that is named as for `[]`.

        A name that means no snapshot is returned as it is, so that opening it fails.

        Raises:
            NotFoundError: Several snapshots begin so, or there are fewer than it counts.
        """
        return resolve_snapshot(self.lake.catalog, self.name, snapshot)

    def _whole(self, snapshot: str) -> SnapshotId:
        """Return the whole id of a snapshot that is to be changed, and refuse other names."""
        return full_snapshot_id(self.lake.catalog, self.name, snapshot)

    @asks(ImportSnapshot)
    def import_snapshot(self, request: ImportSnapshot) -> ImportResult:
        """Import a savepoint or checkpoint as the job's next snapshot."""
        from statelake.pipelines.lake.ingest.importing import import_snapshot

        return import_snapshot(
            self.lake.catalog, os.fspath(request.savepoint), self.name, request,
            snapshot_id=request.name, engine=self.engine, progress=self.progress,
        )  # fmt: skip

    @asks(BootstrapJob)
    def bootstrap(self, request: BootstrapJob) -> BootstrapResult:
        """Create a savepoint from tables, and import it as the job's snapshot."""
        from statelake.pipelines.bootstrap.bootstrapping import BootstrapInto, bootstrap

        return bootstrap(
            None, **request.words(BootstrapInto), lake=self.lake.catalog, job=self.name,
            snapshot_id=request.name, engine=self.engine, progress=self.progress,
        )  # fmt: skip

    def sql(
        self,
        query: str,
        *,
        as_of: str | None = None,
        engine: str = "duckdb",
        limit: int | None = None,
        query_memory: int | None = None,
    ) -> pa.RecordBatchReader:
        """Run a query with tables by the name `<operator>.<state>`; see `Lake.sql`."""
        return self.lake.sql(
            query, as_of=as_of, job=self.name, engine=engine, limit=limit,
            query_memory=query_memory,
        )  # fmt: skip

    @asks(OfKey)
    def history(self, request: OfKey) -> KeyHistory:
        """Return what changed of a key from each snapshot of the job to the next."""
        from statelake.pipelines.keys import key_text
        from statelake.pipelines.lake.keys.key_history import key_history

        return key_history(
            self.lake.catalog, self.name, key_text(request.key), **request.words(Selection)
        )

    @asks(GrowthOfJob)
    def growth(self, request: GrowthOfJob) -> Growth:
        """Return how the job's state grew over its snapshots, in which state, and why.

        Snapshots that were made from others show no growth, and are left out. Sizes come from the
        catalog; keys are read of the states that grew most, in the first and the last snapshot.

        Raises:
            DeclarationError: The first one was taken after the last.
            NotFoundError: There is no such snapshot, or there are fewer than two.
        """
        from statelake.pipelines.find.growth import KeyChanges, growth_of, recorded
        from statelake.pipelines.lake.verify.diffing import diff_state

        ends = (request.since, request.until)
        first, last = (None if name is None else self[name] for name in ends)
        if first is not None and last is not None and first.taken_at > last.taken_at:
            raise DeclarationError(
                f"snapshot {first.name} was taken after {last.name}", remedy="exchange them"
            )
        named = {each.name for each in (first, last) if each is not None}

        def chosen(version: CatalogVersion) -> list[SnapshotRecord]:
            return [
                version.snapshot(self.name, record.snapshot_id)
                for record in version.listed(self.name)[0]
                if (first is None or record.taken_at >= first.taken_at)
                and (last is None or record.taken_at <= last.taken_at)
                and (not record.parent or record.snapshot_id in named)
            ]

        def compare(operator: str, state: str, before: str, after: str) -> KeyChanges:
            difference = diff_state(
                self.lake.catalog, self.name, before, after, operator, state,
                engine=self.engine, progress=self.progress,
            )  # fmt: skip
            return KeyChanges(difference.added, difference.removed, difference.changed)

        def grown(records: list[SnapshotRecord]) -> Growth:
            described = [recorded(LakeSnapshot(self, record), record) for record in records]
            return growth_of(described, request, compare)

        return read_together(self.lake.catalog, chosen, grown)

    def commit(self, name: str, parent: str, *, note: str = "") -> CommitResult:
        """Register the current versions of the job's tables, edited elsewhere, as a snapshot.

        Args:
            name: The id of the new snapshot.
            parent: The whole id of the snapshot whose tables were edited.
            note: Kept with it; say why.

        Raises:
            NotFoundError: No snapshot has the parent's id.
        """
        from statelake.pipelines.api.editor import child_of
        from statelake.pipelines.lake.edit.committing import commit_snapshot

        return commit_snapshot(child_of(self, self._whole(parent), name, note))

    @asks(MigrateSnapshots)
    def migrate(self, request: MigrateSnapshots) -> Migrations:
        """Make a snapshot with new types of states of each named snapshot, or of all.

        Those migrated before are skipped. Of all snapshots, an error is the result of its own.
        """
        return self.migrated(request, [*map(self.resolve, request.snapshots)])

    def migrated(self, request: Migrate, snapshots: Sequence[str] = ()) -> Migrations:
        """Migrate the snapshots of these ids, or all that are not migrated yet."""
        from statelake.pipelines.lake.change.migrations import migrate_several

        return migrate_several(
            self.lake.catalog, self.name, snapshots, request, self.engine, self.progress
        )

    def not_migrated(self, suffix: str = "-migrated") -> list[str]:
        """Return the ids of the snapshots that no migration with this suffix made."""
        from statelake.pipelines.lake.change.migrations import not_migrated

        return [*map(SnapshotId, not_migrated(self.lake.catalog, self.name, suffix))]

    def plan_drop(self, *snapshots: str, keep: int | None = None) -> DropPlan:
        """Say what `drop` would do; nothing is changed. Arguments and errors as for `drop`."""
        from statelake.pipelines.lake.catalog.dropping import plan_drop

        ids = self._going(snapshots, keep)
        return plan_drop(self.lake.catalog, self.name, snapshot_ids=ids, keep=keep)

    def drop(self, *snapshots: str, keep: int | None = None) -> DropResult:
        """Drop the snapshots named, or all but the newest, and free what only they needed.

        Those with a hold stay.

        Args:
            snapshots: The whole ids of the snapshots to drop.
            keep: How many of the newest to keep, where no snapshots are named.

        Raises:
            NotFoundError: No snapshot has one of the ids; nothing is dropped.
            HeldError: There is a hold on one of those named; nothing is dropped.
            DeclarationError: Neither snapshots nor `keep` are given, or both.
        """
        from statelake.pipelines.lake.catalog.dropping import drop_snapshots

        ids = self._going(snapshots, keep)
        return drop_snapshots(self.lake.catalog, self.name, snapshot_ids=ids, keep=keep)

    def _going(self, snapshots: tuple[str, ...], keep: int | None) -> list[str] | None:
        """Return the ids that are given; all are looked up before one is dropped."""
        if bool(snapshots) == (keep is not None):
            raise DeclarationError("give either snapshots to drop, or how many to keep")
        return [*dict.fromkeys(snapshots)] or None

    def plan_retain(self, policy: str) -> RetentionPlan:
        """Say which snapshots a policy keeps, and why; nothing is changed.

        Args:
            policy: For example `30d all, 1y daily, forever monthly`.
        """
        from statelake.pipelines.lake.catalog.retention import Policy, plan_retention

        return plan_retention(self.lake.catalog, self.name, Policy.parse(policy))

    def retain(self, policy: str | Policy) -> DropResult | None:
        """Drop the snapshots that a policy does not keep; return None if all stay.

        Args:
            policy: As for `plan_retain`, or parsed.
        """
        from statelake.pipelines.lake.catalog.retention import Policy, prune

        parsed = Policy.parse(policy) if isinstance(policy, str) else policy
        return prune(self.lake.catalog, self.name, parsed)

    def check_name(self, snapshot: str | None = None) -> None:
        """Refuse the job's name, or that of a new snapshot, if a lake can't have it.

        Raises:
            LakeError: A name is empty, not valid text, too long for a directory, or reserved.
        """
        from statelake.pipelines.lake.tables.names import check_names

        check_names(self.name, snapshot)

    @asks(Rescale)
    def live_rescale(self, request: Rescale) -> LiveRescale:
        """Return a rescale, migration or upgrade of the running job, to be planned and executed."""
        from statelake.pipelines.api.plans import LiveRescale
        from statelake.pipelines.live.rescale_steps import RescalePlan

        return LiveRescale(self, RescalePlan.of(self.name, request))
