"""Names of a snapshot: its id, `latest`, a date, or the beginning of its id.

====================  ===============================================================
`monday`              the snapshot of that id, whatever else it could mean
`latest`              the job's newest, as `statelake snapshots` lists them
`latest~2`            the second before it
`2026-11-20`          of those taken on that day (UTC) or before, the one taken last
`2026-11-20T06:00`    the same for a time; UTC if it has no time zone
`mon`                 the only one whose id begins with that
====================  ===============================================================

Whoever reads a snapshot, or makes another of it, takes all of them: `resolve_snapshot`. Whoever
drops, erases, holds, releases or commits takes whole ids alone: `full_snapshot_id`. All others mean
another snapshot once theirs is gone, and the command may be given again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone

from statelake.pipelines.lake.catalog.catalog import Catalog, ListedRows
from statelake.pipelines.lake.tables.names import LATEST
from statelake.state_core.errors import NotFoundError, did_you_mean

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
    if isinstance(name, SnapshotId):
        return name
    return SnapshotId(_resolved(lake.listed(job), job, name))


def full_snapshot_id(lake: Catalog, job: str, name: str) -> SnapshotId:
    """Return a name that is the whole id of a snapshot, for what changes that snapshot.

    Args:
        lake: The lake.
        job: The job.
        name: The id.

    Raises:
        NotFoundError: No snapshot has that id, whatever else the name could mean.
        DamagedLakeError: A row of the catalog is invalid, and could be the one that is meant.
    """
    if isinstance(name, SnapshotId):
        return name
    listed = lake.listed(job)
    if name in _ids(listed):
        return SnapshotId(name)
    if not any(listed):
        lake.snapshot(job, name)  # says which jobs there are
    raise absent_snapshot(name, {job: listed})


def absent_snapshot(name: str, jobs: Mapping[str, ListedRows]) -> NotFoundError:
    """Return the error of a name that is no whole id, with what is near or what it means now.

    Args:
        name: The name.
        jobs: The jobs in which it was looked for, and what the catalog lists of each.
    """
    place = f"job {', '.join(map(repr, jobs))}"
    if LATEST.fullmatch(name) or _until(name):
        now = []
        for job, listed in jobs.items():
            with suppress(NotFoundError):
                now.append((_resolved(listed, job, name), f" of {job}" if len(jobs) > 1 else ""))
        means = " and ".join(f"{meant}{of}" for meant, of in now if meant != name)
        return NotFoundError(
            f"{name} is another snapshot at another time, and only a whole id is taken here",
            place=place,
            remedy=f"give the id: {name} is {means} now" if means else
            "give an id: `statelake snapshots` lists them",
        )  # fmt: skip
    known = list(dict.fromkeys(each for listed in jobs.values() for each in _ids(listed)))
    near = [each for each in known if name and each.startswith(name)]
    more = "..., " if len(near or known) > SHOWN else ""
    there = f"{more}{', '.join((near or known)[-SHOWN:])}" or "none"
    remedy = f"there is {there}" if near else f"its latest are: {there}{did_you_mean(name, known)}"
    return NotFoundError(
        f"there is no snapshot {name}",
        place=place,
        remedy=f"{remedy}; nothing was changed: if another one is meant, give its whole id",
    )


def _ids(listed: ListedRows) -> list[str]:
    records, bad = listed
    ids = [*(each.snapshot_id for each in records), *(row.snapshot_id for row in bad)]
    return [each for each in ids if each]


def _resolved(listed: ListedRows, job: str, name: str) -> str:
    records, bad = listed
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
    candidates = [snapshot_id for snapshot_id in _ids(listed) if snapshot_id.startswith(name)]
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
