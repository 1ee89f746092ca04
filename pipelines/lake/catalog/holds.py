"""Holds: snapshots that may not be dropped until they are released, and the reasons.

A hold is a part of the snapshot's row in the catalog. So it can't race with a drop: whichever of
the two is committed first, the other one sees it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from functools import partial

from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogChange
from statelake.pipelines.lake.catalog.catalog_rows import HoldsChange, held_error, rows_with_holds
from statelake.pipelines.lake.catalog.snapshot_names import absent_snapshot
from statelake.pipelines.lake.tables.records import HoldRecord
from statelake.state_core.errors import LakeError, NoMatchError
from statelake.state_core.printable import is_text


def refuse_held(lake: Catalog, snapshots: Iterable[tuple[str, str]]) -> None:
    """Refuse to change snapshots if there is a hold on one of them.

    Args:
        lake: The lake.
        snapshots: Jobs and ids.

    Raises:
        HeldError: There is a hold on one.
        DamagedLakeError: A row of one of the jobs is invalid, so that its holds are not known.
    """
    wanted = set(snapshots)
    for job in sorted({job for job, _ in wanted}):
        for record in lake.listed(job).all_valid():
            if record.holds and (job, record.snapshot_id) in wanted:
                raise held_error(job, record.snapshot_id, [hold.reason for hold in record.holds])


def hold_snapshot(lake: Catalog, job: str, snapshot_id: str, reason: str = "") -> list[HoldRecord]:
    """Keep a snapshot from being dropped, and return its holds.

    Holding it again for the same reason changes nothing; each other reason is a hold of its own.

    Raises:
        LakeError: The reason is not valid text.
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
    # a drop that was first has removed the row, so that there was no row to change
    return lake.snapshot(job, snapshot_id).holds


def release_snapshot(
    lake: Catalog, job: str, snapshot_id: str, reason: str | None = None
) -> list[str]:
    """End the holds of a snapshot, also of an invalid row, and return their reasons.

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
        raise absent_snapshot(snapshot_id, {job: lake.listed(job)})
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
    """Change the holds of a snapshot, also of an invalid row."""
    lake.transact(
        lambda _: CatalogChange(edits={job: partial(rows_with_holds, snapshot_id, change)})
    )
