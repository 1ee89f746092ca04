"""Names of a snapshot: its id, `latest`, a date, or the beginning of its id.

====================  ===============================================================
`monday`              the snapshot of that id, whatever else it could mean
`latest`              the job's newest, as `statelake snapshots` lists them
`latest~2`            the second before it
`2026-11-20`          of those taken on that day (UTC) or before, the one taken last
`2026-11-20T06:00`    the same for a time; UTC if it has no time zone
`mon`                 the only one whose id begins with that
====================  ===============================================================
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.names import LATEST
from statelake.state_core.errors import NotFoundError

SHOWN = 10
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?", re.ASCII)


class SnapshotId(str):
    """An id that was resolved, and is not resolved again: in an object store reads are costly."""

    __slots__ = ()


def resolve_snapshot(lake: Catalog, job: str, name: str) -> SnapshotId:
    """Return the id of the snapshot with a name.

    Args:
        lake: The lake.
        job: The job.
        name: Its name, in one of the forms above.

    Returns:
        Its id. A name without a snapshot is returned as it is, so that opening it fails.

    Raises:
        NotFoundError: There are fewer snapshots, none is as old, or several ids begin with it.
        DamagedLakeError: A row of the catalog is invalid, and could be the one.
    """
    return name if isinstance(name, SnapshotId) else SnapshotId(_resolved(lake, job, name))


def _resolved(lake: Catalog, job: str, name: str) -> str:
    records, bad = lake.listed(job)
    ids = [record.snapshot_id for record in records]
    if name in ids or not name or any(row.snapshot_id == name for row in bad):
        return name
    match, until = LATEST.fullmatch(name), _until(name)
    if bad and (match or until):
        raise bad[0].error
    if not records:
        return name
    if match:
        back = int(match[1] or 0)
        if back < len(ids):
            return ids[-1 - back]
        raise NotFoundError(
            f"job {job!r} has no snapshot {name!r}: it has {len(ids)}",
            remedy=f"the oldest is {ids[0]!r}",
        )
    if until:
        earlier = [record for record in records if record.taken_at < until]
        if earlier:
            return max(
                earlier, key=lambda record: (record.taken_at, record.imported_at)
            ).snapshot_id
        first = min(records, key=lambda record: record.taken_at)
        raise NotFoundError(
            f"job {job!r} has no snapshot that was taken on {name} or before",
            remedy=f"its first is {first.snapshot_id!r}, of {first.taken_at:%Y-%m-%d %H:%M} UTC",
        )
    known = [*ids, *(row.snapshot_id for row in bad)]
    candidates = [snapshot_id for snapshot_id in known if snapshot_id.startswith(name)]
    if len(candidates) > 1:
        more = "..., " if len(candidates) > SHOWN else ""
        raise NotFoundError(
            f"job {job!r} has {len(candidates)} snapshots that begin with {name!r}",
            remedy=f"say which: {more}{', '.join(candidates[-SHOWN:])}",
        )
    return candidates[0] if candidates else name


def _until(name: str) -> datetime | None:
    """Return the time before which a date or a time searches; None for other names."""
    match = _TIME.fullmatch(name)
    if match is None:
        return None
    # include the whole day, minute or second
    step = timedelta(seconds=1) if match[2] else timedelta(minutes=1)
    try:
        at = datetime.fromisoformat(name.replace("Z", "+00:00"))
        at = at if at.tzinfo else at.replace(tzinfo=timezone.utc)
        return at + (step if match[1] else timedelta(days=1))
    except (ValueError, OverflowError):  # the 31st of November, or the last day of all
        return None
