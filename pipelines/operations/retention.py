"""Which snapshots of a job stay: the last ones, and the newest of each day before."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.catalog.dropping import DropResult, drop_snapshots
from pipelines.lake.tables.records import SnapshotRecord

__all__ = ["kept_snapshots", "prune"]


def kept_snapshots(summaries: Iterable[SnapshotRecord], last: int, daily: int) -> set[str]:
    """The ids of the snapshots that stay.

    What was made of others, migrated or edited, always stays: whoever made it drops it.

    Args:
        summaries: All snapshots of a job.
        last: So many of the newest that were imported.
        daily: And the newest of each day (in UTC), of so many days that have one.
    """
    listed = list(summaries)
    imported = sorted(
        (summary for summary in listed if summary.origin == "import"),
        key=lambda summary: (summary.taken_at, summary.imported_at, summary.snapshot_id),
    )
    newest_of = {summary.taken_at.date(): summary.snapshot_id for summary in imported}
    days = sorted(newest_of)[max(0, len(newest_of) - daily) :]
    kept = {summary.snapshot_id for summary in listed if summary.origin != "import"}
    kept |= {summary.snapshot_id for summary in imported[max(0, len(imported) - last) :]}
    return kept | {newest_of[day] for day in days}


def prune(lake: Lake, job: str, last: int, daily: int) -> DropResult | None:
    """Drop the snapshots of a job that need not stay; None if all stay.

    Raises:
        NotALakeError: There is no lake.
        DamagedLakeError: A row of the job can't be believed.
    """
    summaries = lake.summaries(job)
    kept = kept_snapshots(summaries, last, daily)
    going = [each.snapshot_id for each in summaries if each.snapshot_id not in kept]
    return drop_snapshots(lake, job, snapshot_ids=going) if going else None
