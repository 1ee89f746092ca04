"""Holds: snapshots that may not be dropped until somebody says so, and why.

A hold is a part of the snapshot's row in the catalog. So no drop overtakes it: whichever of the two
is committed first, the other one sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from functools import partial

from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogChange
from statelake.pipelines.lake.catalog.catalog_rows import HoldsChange, held_error, rows_with_holds
from statelake.pipelines.lake.tables.records import HoldRecord
from statelake.state_core.errors import LakeError, NoMatchError, NotFoundError
from statelake.state_core.printable import is_text


def held_snapshots(lake: Catalog, job: str) -> dict[str, list[HoldRecord]]:
    """The holds of each snapshot of a job that has some, by its id, the oldest snapshot first.

    Raises:
        NotALakeError: There is no lake.
        DamagedLakeError: A row of the job can't be believed, so that nobody knows of its holds.
    """
    summaries, bad = lake.listed(job)
    if bad:
        raise bad[0].error
    return {summary.snapshot_id: summary.holds for summary in summaries if summary.holds}


def refuse_held(lake: Catalog, snapshots: Iterable[tuple[str, str]]) -> None:
    """Raise if one of some snapshots may not be changed.

    Args:
        lake: The lake.
        snapshots: Jobs and ids.

    Raises:
        HeldError: There is a hold on one.
    """
    pairs = sorted(snapshots)
    holds = {job: held_snapshots(lake, job) for job in {job for job, _ in pairs}}
    for job, snapshot_id in pairs:
        if snapshot_id in holds[job]:
            reasons = [hold.reason for hold in holds[job][snapshot_id]]
            raise held_error(job, snapshot_id, reasons)


def hold_snapshot(lake: Catalog, job: str, snapshot_id: str, reason: str = "") -> list[HoldRecord]:
    """Let nobody drop a snapshot: what holds there are now.

    Holding it again for the same reason changes nothing; each other reason is a hold of its own.

    Raises:
        LakeError: The reason is no text.
        NotFoundError: There is no such snapshot.
        DamagedLakeError: The snapshot's row breaks a rule of the catalog.
    """
    if not is_text(reason):
        raise LakeError(f"{reason!r} is no text", remedy="give a reason in UTF-8")
    lake.snapshot(job, snapshot_id)
    since = datetime.now(timezone.utc)

    def with_it(holds: list[dict[str, object]]) -> list[dict[str, object]]:
        if any(hold["reason"] == reason for hold in holds):
            return holds
        return [*holds, {"reason": reason, "since": since}]

    _set_holds(lake, job, snapshot_id, with_it)
    # a drop that came first has taken the row, so that there was none to change
    return lake.snapshot(job, snapshot_id).holds


def release_snapshot(
    lake: Catalog, job: str, snapshot_id: str, reason: str | None = None
) -> list[str]:
    """End the holds of a snapshot, also of one whose row can't be believed: their reasons.

    Args:
        lake: The lake.
        job: The job.
        snapshot_id: The snapshot.
        reason: Only the hold of that reason; all of them by default.

    Raises:
        NotFoundError: There is no such snapshot.
        NoMatchError: There is no such hold.
    """
    if not lake.has(job, snapshot_id):
        raise NotFoundError(
            f"job {job!r} has no snapshot {snapshot_id!r}",
            remedy="`statelake snapshots` lists them",
        )
    ended: list[str] = []

    def without(holds: list[dict[str, object]]) -> list[dict[str, object]]:
        going = [hold for hold in holds if reason is None or hold["reason"] == reason]
        ended[:] = [str(hold["reason"] or "") for hold in going]
        return [hold for hold in holds if hold not in going]

    _set_holds(lake, job, snapshot_id, without)
    if not ended:
        why = "" if reason is None else f" for the reason {reason!r}"
        raise NoMatchError(
            f"there is no hold on snapshot {snapshot_id!r} of job {job!r}{why}",
            remedy="`statelake snapshots` lists the holds",
        )
    return ended


def _set_holds(lake: Catalog, job: str, snapshot_id: str, change: HoldsChange) -> None:
    """Give a snapshot other holds, also one whose row can't be believed."""
    lake.transact(
        lambda _: CatalogChange(edits={job: partial(rows_with_holds, snapshot_id, change)})
    )
