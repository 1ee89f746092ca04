"""A snapshot of a lake: read as a savepoint is, compared, changed and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.snapshot_names import SnapshotId
from statelake.pipelines.lake.tables.records import HoldRecord, OperatorRecord, SnapshotRecord
from statelake.pipelines.live.requests import Canary
from statelake.pipelines.requests.changes import CheckSql, Migrate, Upgrade, UpgradeSql
from statelake.pipelines.requests.checks import CheckCompatibility, CheckLegality
from statelake.pipelines.requests.edit import EditSnapshot
from statelake.pipelines.requests.erase import Erase
from statelake.pipelines.requests.reading import Diff, OfKey, Page, Selection
from statelake.pipelines.requests.request import asks, like
from statelake.pipelines.requests.savepoints import Export, Written
from statelake.pipelines.requests.shared import Sharing
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.snapshot import Operator

if TYPE_CHECKING:
    from statelake.pipelines.api.editor import SnapshotEditor
    from statelake.pipelines.api.jobs import Job
    from statelake.pipelines.api.plans import Erasure
    from statelake.pipelines.keys import KeyRows
    from statelake.pipelines.lake.change.migrations import Outcome, UpgradeOutcome
    from statelake.pipelines.lake.edit.edit_results import EditResult
    from statelake.pipelines.lake.export.exporting import ExportResult
    from statelake.pipelines.lake.export.rescaling import OperatorPlan
    from statelake.pipelines.lake.verify.diffing import Differences
    from statelake.pipelines.live.canary import CanaryResult
    from statelake.pipelines.report.contents import ReportResult
    from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade
    from statelake.state_core.connectors.sinks import Sink
    from statelake.state_core.connectors.sources import SourceState
    from statelake.state_core.errors import StateError
    from statelake.state_core.formats.description import OperatorDescription
    from statelake.state_core.formats.key_weights import StateWeights
    from statelake.state_core.formats.layout.state_compatibility import Verdicts
    from statelake.state_core.formats.layout.state_types import StateTypes
    from statelake.state_core.model.channels import Channel
    from statelake.state_core.model.finding import SearchResult
    from statelake.state_core.runtime.declarations.findings import JobFindings


Result = TypeVar("Result")


class LakeSnapshot(Snapshot):
    """A snapshot in a lake: a `Snapshot`, and what can be done with it there.

    Its `operators` are those that have state in tables.

    Args:
        job: The job.
        record: All that the lake knows of it.
        requested: The name by which it was asked for; by default its id.
    """

    job: Job
    record: SnapshotRecord
    requested: str

    def __init__(self, job: Job, record: SnapshotRecord, requested: str | None = None) -> None:
        known = {
            "location": f"{job.name}/{record.snapshot_id}",
            "metadata_version": record.metadata_version,
            "checkpoint_id": record.checkpoint_id,
            "kind": record.kind,
            "format": record.format,
            "job": job,
            "record": record,
            "requested": record.snapshot_id if requested is None else requested,
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """Its operators with state in tables, which is read when it is used."""
        from statelake.pipelines.lake.catalog.recorded_states import recorded_operators

        return recorded_operators(self._catalog, self.record)

    def __repr__(self) -> str:
        return repr(self.record).replace("SnapshotRecord", "LakeSnapshot", 1)

    @property
    def name(self) -> SnapshotId:
        """Its id within the job."""
        return SnapshotId(self.record.snapshot_id)

    @property
    def compression(self) -> str:
        """`snappy` or `none`, as it was written."""
        return self.record.compression

    @property
    def taken_at(self) -> datetime:
        """When the job took it."""
        return self.record.taken_at

    @property
    def _catalog(self) -> Catalog:
        return self.job.lake.catalog

    @property
    def _whole_id(self) -> SnapshotId:
        """Its id, if it was asked for by that; other names are refused for what changes it."""
        return self.name if self.requested == self.name else self.job._whole(self.requested)  # noqa: SLF001 - of the job here

    @asks(Export)
    def export(self, request: Export) -> ExportResult:
        """Write it as a savepoint that Flink restores."""
        from statelake.pipelines.lake.export.exporting import export_snapshot
        from statelake.pipelines.lake.share.sharing import sharing_of
        from statelake.state_core.files.compression import configured_compression

        compression = configured_compression(request.conf, request.compression)
        return export_snapshot(
            self._catalog, self.job.name, self.name,
            **request.words(Written) | {"compression": compression},
            sharing=sharing_of(**request.words(Sharing)), engine=self.job.engine,
            progress=self.job.progress,
        )  # fmt: skip

    @asks(Diff)
    def diff(self, request: Diff) -> Differences:
        """Compare it with a later snapshot of the job, state by state."""
        from statelake.pipelines.lake.verify.diffing import diff_snapshots

        return diff_snapshots(
            self._catalog, self.job.name, self.name, self.job[request.later].name, request,
            engine=self.job.engine, progress=self.job.progress,
        )  # fmt: skip

    @asks(EditSnapshot)
    def edit(self, request: EditSnapshot) -> SnapshotEditor:
        """Return an editor, whose `save` makes another snapshot of this one."""
        from statelake.pipelines.api.editor import SnapshotEditor

        return SnapshotEditor(self, request)

    def edit_sql(
        self, name: str, *statements: str, note: str = "", inexact: bool = False
    ) -> EditResult:
        """Make another snapshot of this one by SQL: all statements are run, or none.

        Args:
            name: The id of the new snapshot.
            statements: `DELETE`, `UPDATE` and `INSERT`, on DuckDB.
            note: Kept with it; say why.
            inexact: Whether to go by what columns show of values that they don't hold in full.
        """
        from statelake.pipelines.api.editor import child_of
        from statelake.pipelines.lake.edit.sql_editing import edit_by_sql

        child = child_of(self.job, self.name, name, note)
        return edit_by_sql(child, statements, inexact=inexact)

    @asks(Migrate)
    def migrate(self, request: Migrate) -> Outcome:
        """Make a snapshot whose states have new types; one that was made before stays."""
        return self.job.migrated(request, [self.name]).outcomes[0]

    @asks(Upgrade)
    def upgrade(self, request: Upgrade) -> UpgradeOutcome:
        """Make a snapshot that Flink 2 restores of one that Flink 1 wrote.

        Raises:
            EncodeError: An argument can't be understood.
            ConflictError: There is a snapshot of the new id that something else made.
        """
        from statelake.pipelines.api.editor import child_of
        from statelake.pipelines.lake.change.migrations import upgrade_one

        target = f"{self.name}{request.suffix}"
        return upgrade_one(child_of(self.job, self.name, target, request.note), request)

    @asks(CheckSql)
    def check_sql(self, request: CheckSql) -> SqlUpgrade:
        """Say what a Flink SQL job of a changed query keeps of this snapshot.

        Raises:
            DeclarationError: A plan can't be understood.
            IncompatibleError: The snapshot is not of the old plan.
        """
        return self.sql_upgrade(**vars(request), dry_run=True)

    @asks(UpgradeSql)
    def sql_upgrade(self, request: UpgradeSql) -> SqlUpgrade:
        """Make a snapshot from which a Flink SQL job of a changed query goes on.

        Accepted may be `partly`, what starts now or is null in old rows, `filter`, what another
        filter counted, and `lost=OPERATOR`, state that may be lost.

        Raises:
            DeclarationError: A plan can't be understood.
            IncompatibleError: The snapshot is not of the old plan.
            ConflictError: There is a snapshot of the new id that something else made.
        """
        from statelake.pipelines.api.editor import child_of
        from statelake.pipelines.sql_jobs.sql_upgrades import upgrade_sql_job

        target = f"{self.name}{request.suffix}"
        return upgrade_sql_job(child_of(self.job, self.name, target, request.note), request)

    @asks(Erase)
    def erase(self, request: Erase) -> Erasure:
        """Return an erasure from this snapshot alone; see `Lake.erase`.

        Raises:
            NotFoundError: It was not asked for by its whole id.
        """
        return self.job.lake.erase(
            **vars(request), jobs=self.job.name, snapshots=self._whole_id,
            progress=self.job.progress,
        )  # fmt: skip

    def hold(self, reason: str = "") -> list[HoldRecord]:
        """Add a hold, so that the snapshot can't be dropped; return all of its holds.

        Args:
            reason: Why; another reason is another hold.

        Raises:
            NotFoundError: It was not asked for by its whole id.
        """
        from statelake.pipelines.lake.catalog.holds import hold_snapshot

        return hold_snapshot(self._catalog, self.job.name, self._whole_id, reason)

    def release(self, reason: str | None = None) -> list[str]:
        """End its holds, and return their reasons.

        Args:
            reason: Only the hold of that reason; all of them by default.

        Raises:
            NotFoundError: It was not asked for by its whole id, or there is no such hold.
        """
        from statelake.pipelines.lake.catalog.holds import release_snapshot

        return release_snapshot(self._catalog, self.job.name, self._whole_id, reason)

    def plan_rescale(
        self, parallelism: int, max_parallelism: int | None = None
    ) -> list[OperatorPlan]:
        """Return how its key groups would be spread at another parallelism.

        Args:
            parallelism: The new parallelism.
            max_parallelism: A new one of these, too; by default as it was.
        """
        from statelake.pipelines.lake.export.rescaling import plan_rescale

        return plan_rescale(self.record, parallelism, max_parallelism)

    @asks(Canary)
    def canary(self, request: Canary) -> CanaryResult:
        """Run a program from it until that has completed a checkpoint, and cancel it."""
        from statelake.pipelines.live.canary import run_canary

        return run_canary(self._catalog, self.job.name, self.name, request, self.job.engine)

    def check_integrity(self, savepoint: Snapshot | None = None) -> list[str]:
        """Read, count and hash every row; return a sentence for each fault.

        Args:
            savepoint: What it was imported from, which is compared, too.
        """
        from statelake.pipelines.lake.verify.integrity import count_faults, stored_faults

        faults = stored_faults(self._catalog, self.record, self.job.progress)
        if savepoint is not None:
            counted = count_faults(self._catalog, self.record, savepoint)
            faults += [fault for fault in counted if fault not in faults]
        return faults

    @asks(CheckCompatibility)
    def check_compatibility(self, request: CheckCompatibility) -> Verdicts:
        """Return for every state whether a new job could use it."""
        from statelake.pipelines.lake.verify.compatibility import check_against

        return check_against(
            self.record, request.against, request.operator,
            allow_missing=request.allow_non_restored_state,
        )  # fmt: skip

    def types(self, operator: str | Sequence[str] = ()) -> StateTypes:
        """Return the types of its states as text, as `Snapshot.types` does."""
        from statelake.pipelines.lake.verify.compatibility import schemas_of_record
        from statelake.state_core.formats.layout.state_types import types_of

        wanted = [operator] if isinstance(operator, str) else operator
        return types_of(schemas_of_record(self.record), wanted)

    @asks(CheckLegality)
    def check_legality(self: Snapshot, request: CheckLegality) -> JobFindings:
        """Return all that is wrong with a declared job that is to restore it."""
        from statelake.pipelines.lake.verify.legality import check_declared, load_job
        from statelake.state_core.runtime.legality.stored_states import held_operators

        job, stored = load_job(request.declared), held_operators(self.operators)
        return check_declared(job, stored, allow_missing=request.allow_non_restored_state)

    def sources(self) -> list[SourceState]:
        """Return where its sources go on: offsets, positions, splits."""
        from statelake.pipelines.lake.catalog.recorded_sources import recorded_sources

        return self._read(partial(recorded_sources, self._catalog.location))

    def sinks(self) -> list[Sink]:
        """Return its sinks, with what they have still to commit."""
        from statelake.pipelines.lake.catalog.recorded_sources import sinks_among

        lake = self._catalog.location
        return self._read(lambda record: sinks_among(lake, record.operators))

    def channels(self) -> list[Channel]:
        """Return its channels with records in flight; `read_channels` reads what is in them."""
        from statelake.pipelines.lake.catalog.recorded_channels import recorded_channels

        return recorded_channels(self._catalog.directory, self.record)

    @like(Snapshot.top)
    def top(self, *values: Any, **words: Any) -> dict[str, dict[str, StateWeights]]:
        """Return the heaviest keys of each keyed state."""
        words["ttl"] = tuple(words.get("ttl", ()))  # for each reading

        def weigh(record: SnapshotRecord) -> dict[str, dict[str, StateWeights]]:
            return Snapshot.top(LakeSnapshot(self.job, record), *values, **words)

        return self._read(weigh)

    def _weighed(
        self, operator: Operator, most: int, states: Sequence[str],
        until: Sequence[int] = (), lost: dict[str, StateError] | None = None,
    ) -> dict[str, StateWeights]:  # fmt: skip
        from statelake.pipelines.lake.keys.heavy_keys import weigh_recorded

        return weigh_recorded(
            self._catalog, self._recorded(operator), most, wanted=states, until=until,
            progress=self.job.progress,
        )  # fmt: skip

    def _described(self, operator: Operator, **words: Any) -> OperatorDescription:
        from statelake.pipelines.lake.tables.describing import describe_recorded

        shown = len(operator.keyed_states) if words["schema"] else 0
        described = describe_recorded(self._recorded(operator), schemas=shown)
        return replace(described, keys_asked=words["keys"])

    def _recorded(self, operator: Operator) -> OperatorRecord:
        wanted = operator.operator_id
        return next(each for each in self.record.operators if each.operator_id == wanted)

    @like(Snapshot.find)
    def find(self, value: object, **words: Any) -> SearchResult:
        """Return where a value is. State without tables is not searched."""
        from statelake.pipelines.lake.catalog.unmanaged_state import KEYED, unmanaged_keyed_sizes
        from statelake.state_core.model.finding import Unsearched, find_in_snapshot

        def search(record: SnapshotRecord) -> SearchResult:
            return find_in_snapshot(LakeSnapshot(self.job, record), value, **words)

        result: SearchResult = self._read(search)
        size = sum(carried.size for carried in self.record.carried)
        if size:
            why = f"{size:,} bytes of state without tables"
            result.unsearched.append(Unsearched("", "", "", why))
        for label, size in unmanaged_keyed_sizes(self.record).items():
            result.unsearched.append(Unsearched(label, "", "", f"{size:,} bytes of {KEYED}"))
        result.not_located += self.problems_of(words.get("operator"), keyed=True)
        return result

    def problems_of(
        self, operator: str | None = None, state: str | None = None, *, keyed: bool = False
    ) -> list[str]:
        """Return messages for operators whose keyed state is kept as bytes, without entries.

        Args:
            operator: Only of this operator: its uid, name or id.
            state: As for `Snapshot.problems_of`: such bytes may have a state of any name.
            keyed: Likewise: it is keyed state.
        """
        from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_keyed_messages

        return unmanaged_keyed_messages(self.record, operator)

    @asks(OfKey)
    def key_rows(self: Snapshot, request: OfKey) -> list[KeyRows]:
        """Return the rows of one key of each operator, which are read when they are consumed.

        Raises:
            EncodeError: No operator can have that key.
            NotFoundError: There is no such operator or state, or no keyed state at all.
        """
        from statelake.pipelines.keys import key_text, rows_of_key

        return rows_of_key(self, key_text(request.key), **request.words(Selection))

    @asks(Page)
    def report(self, request: Page) -> ReportResult:
        """Write a page of HTML that shows the snapshot, and how the job's state grew, and why.

        Raises:
            ConflictError: The file exists.
        """
        from statelake.pipelines.report.gathering import lake_report
        from statelake.pipelines.report.page import write_report

        grow = partial(self.job.growth, keys=request.limit > 0)
        gather = partial(
            lake_report, self._catalog, limit=request.limit, grow=grow, check=request.check,
            progress=self.job.progress,
        )  # fmt: skip
        return write_report(lambda: self._read(gather), request.to, overwrite=request.overwrite)

    def _read(self, read: Callable[[SnapshotRecord], Result]) -> Result:
        """Read the snapshot by one record from begin to end: see `SnapshotReading.at_once`."""
        return SnapshotReading(self._catalog, self.record).at_once(read)
