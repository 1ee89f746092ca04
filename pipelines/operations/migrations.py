"""One snapshot's migration and its outcome: what the command and Dagster's backfill both run.

A run over many is resumed by running it again: what was migrated before is left alone, and
an error is the outcome of its snapshot and of no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.engine import Engine, Progress
from pipelines.lake.catalog.catalog import Catalog
from pipelines.lake.edit.changes import ValueChange, resolve_change
from pipelines.lake.edit.migrating import ValueStaging, migrate_snapshot, refuse_disagreeing
from pipelines.times import Times
from state_core.errors import IncompatibleError
from state_core.serializers.framework.compatibility import Verdict

__all__ = ["Outcome", "migrate_one", "preview_migration"]


@dataclass(frozen=True)
class Outcome:
    """What became of one snapshot.

    Attributes:
        snapshot: The snapshot that was to be migrated.
        made: The snapshot with the new type; itself if nothing had to be done.
        outcome: `migrated`, `migrated before`, `compatible as it is`, `failed`; of a preview, the
            verdict, or `compatible by expression`.
        entries: How many values were migrated.
        why: The reasons of the verdict, or the error.
        times: Where time went, of what was migrated.
    """

    snapshot: str
    made: str
    outcome: str
    entries: int = 0
    why: str = ""
    times: Times | None = None


def preview_migration(lake: Catalog, job: str, snapshot_id: str, change: ValueChange) -> Outcome:
    """What a migration would come to, with nothing changed."""
    operator, state, result = resolve_change(lake.snapshot(job, snapshot_id), change)
    why = "; ".join(str(reason) for reason in result.reasons)
    if result.verdict is not Verdict.COMPATIBLE_AS_IS or change.expressions:
        try:
            refuse_disagreeing(operator, state)
        except IncompatibleError as error:
            return Outcome(snapshot_id, "", "incompatible", state.entries, str(error))
    settled = result.usable or not change.expressions
    verdict = result.verdict.text if settled else "compatible by expression"
    return Outcome(snapshot_id, "", verdict, state.entries, why)


def migrate_one(
    lake: Catalog,
    job: str,
    snapshot_id: str,
    change: ValueChange,
    *,
    suffix: str,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> Outcome:
    """Migrate one snapshot, unless that was done before.

    Raises:
        IncompatibleError: The old values can't become the new ones.
    """
    new_id = f"{snapshot_id}{suffix}"
    if any(summary.snapshot_id == new_id for summary in lake.summaries(job)):
        return Outcome(snapshot_id, new_id, "migrated before")
    done = migrate_snapshot(
        lake, job, snapshot_id, new_id, change, staging=_staging(lake, change), note=note,
        engine=engine, progress=progress,
    )  # fmt: skip
    if done.record.snapshot_id == snapshot_id:
        return Outcome(snapshot_id, snapshot_id, "compatible as it is")
    why = "; ".join(str(reason) for reason in done.result.reasons)
    return Outcome(snapshot_id, new_id, "migrated", done.entries, why, done.times)


def _staging(lake: Catalog, change: ValueChange) -> ValueStaging | None:
    """Spark, where there are expressions."""
    if not change.expressions:
        return None
    from pipelines.spark.expressions import expression_staging  # noqa: PLC0415 - only when wanted
    from pipelines.spark.session import open_session  # noqa: PLC0415 - the same

    return expression_staging(open_session(), lake, change)
