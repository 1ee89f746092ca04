"""Retention of a job's snapshots by a policy: the newest, the youngest, one a day or a month.

A policy is written as `30d all, 1y daily, forever monthly`: all snapshots of the last 30 days, the
newest of each day of the last year, and the newest of each month before. A number without a unit
counts snapshots: `30 all, 90 daily` keeps the newest 30, and the newest of each of the last 90 days
with a snapshot. A snapshot stays if any part keeps it.

The newest snapshot always stays. So do snapshots with a hold, and snapshots derived from others
(migrated, edited), which only an explicit drop deletes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import DropResult, bytes_freed, drop_snapshots
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import DeclarationError
from statelake.state_core.printable import Printed, Table

# the newest snapshot of each of these periods stays
_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "hourly": lambda taken: (taken.toordinal(), taken.hour),
    "daily": lambda taken: (taken.toordinal(),),
    "weekly": lambda taken: taken.isocalendar()[:2],
    "monthly": lambda taken: (taken.year, taken.month),
    "yearly": lambda taken: (taken.year,),
}
_HOURS = {"h": 1, "d": 24, "w": 7 * 24, "mo": 30 * 24, "y": 365 * 24}
_PART = re.compile(
    rf"(?:(forever)|(\d{{1,6}})({'|'.join(_HOURS)})?)\s+({'|'.join(('all', *_PERIODS))})", re.ASCII
)


@dataclass(frozen=True)
class RetentionRule:
    """A part of a policy.

    Attributes:
        text: The part as it was written.
        period: One of `_PERIODS`, or `all`.
        count: The largest number of periods with a snapshot; None for all.
        age: The greatest age of snapshots; None for any.
    """

    text: str
    period: str
    count: int | None = None
    age: timedelta | None = None

    def kept(self, summaries: Iterable[SnapshotRecord], at: datetime) -> set[str]:
        """Return the ids of the snapshots to keep; summaries are from the oldest to the newest."""
        young = [
            summary
            for summary in summaries
            if self.age is None or at - summary.taken_at <= self.age
        ]
        period_of = _PERIODS.get(self.period)
        # in their order, so that the newest of each period remains
        newest = {
            (number,)
            if period_of is None
            else period_of(summary.taken_at.astimezone(timezone.utc)): summary.snapshot_id
            for number, summary in enumerate(young)
        }
        periods = sorted(newest)
        first = 0 if self.count is None else max(0, len(periods) - self.count)
        return {newest[period] for period in periods[first:]}


@dataclass(frozen=True)
class Policy:
    """A retention policy: a snapshot stays if any part keeps it."""

    parts: tuple[RetentionRule, ...]

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Parse a policy, for example `30d all, 1y daily, forever monthly`.

        Raises:
            DeclarationError: The text is not a retention policy.
        """
        return cls(tuple(_parsed(part.strip()) for part in text.split(",")))

    @classmethod
    def of(cls, last: int, daily: int = 0) -> Policy:
        """Return the policy `<last> all, <daily> daily`."""
        return cls.parse(f"{last} all, {daily} daily")


@dataclass(frozen=True)
class RetentionPlan(Printed):
    """The result of a policy.

    Attributes:
        job: The job.
        snapshots: All its snapshots, the oldest first.
        reasons: By the id of each kept snapshot, the reason.
        frees: The bytes of files that only dropped snapshots need.
    """

    job: str
    snapshots: list[SnapshotRecord]
    reasons: dict[str, list[str]]
    frees: int

    @property
    def dropped_ids(self) -> list[str]:
        """The ids of the snapshots to drop."""
        return [
            snapshot.snapshot_id
            for snapshot in self.snapshots
            if snapshot.snapshot_id not in self.reasons
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        snapshots = [
            {"snapshot": each.snapshot_id, "taken_at": each.taken_at, "origin": each.origin,
             "stays": each.snapshot_id in self.reasons,
             "why": self.reasons.get(each.snapshot_id, [])}
            for each in self.snapshots
        ]  # fmt: skip
        return {"snapshots": snapshots, "going": self.dropped_ids, "frees": self.frees}

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        rows = [
            (each.snapshot_id, f"{each.taken_at:%Y-%m-%d %H:%M}",
             "stays" if each.snapshot_id in self.reasons else "goes",
             ", ".join(self.reasons.get(each.snapshot_id, [])))
            for each in self.snapshots
        ]  # fmt: skip
        title = f"{len(self.reasons)} of {len(rows)} snapshots of {self.job} stay"
        yield Table(title, ("<snapshot", "<taken", "<", "<why"), rows)


def reasons_to_keep(
    summaries: Iterable[SnapshotRecord], policy: Policy, at: datetime
) -> dict[str, list[str]]:
    """Return the reasons to keep snapshots, by the ids of those that are kept.

    Args:
        summaries: All snapshots of a job, in the catalog's order.
        policy: The policy.
        at: The time at which ages are measured.
    """
    listed = list(summaries)
    # in the order of the catalog's log, not of clocks
    imported = [summary for summary in listed if summary.origin == "import"]
    reasons: dict[str, list[str]] = {}
    for summary in listed:
        hold_reasons = [f"held: {hold.reason}" if hold.reason else "held" for hold in summary.holds]
        origin = [] if summary.origin == "import" else [f"{summary.origin} of {summary.parent}"]
        if hold_reasons or origin:
            reasons[summary.snapshot_id] = hold_reasons + origin
    for summary in imported[-1:]:
        reasons.setdefault(summary.snapshot_id, []).append("the newest")
    for part in policy.parts:
        for snapshot_id in part.kept(imported, at):
            reasons.setdefault(snapshot_id, []).append(part.text)
    return reasons


def plan_retention(lake: Catalog, job: str, policy: Policy) -> RetentionPlan:
    """Return which snapshots of a job a policy keeps, and the bytes that dropping the others frees.

    Args:
        lake: The lake.
        job: The job.
        policy: The policy.

    Raises:
        NotALakeError: There is no lake.
        DamagedLakeError: A row of the job is not valid.
    """
    records = lake.records(job).all_valid()
    reasons = reasons_to_keep(records, policy, datetime.now(timezone.utc))
    stays = [record for record in records if record.snapshot_id in reasons]
    goes = [record for record in records if record.snapshot_id not in reasons]
    return RetentionPlan(job, records, reasons, bytes_freed(goes, stays))


def prune(lake: Catalog, job: str, policy: Policy) -> DropResult | None:
    """Drop the snapshots of a job that a policy does not keep; None if it keeps all.

    Raises:
        NotALakeError: There is no lake.
        DamagedLakeError: A row of the job is not valid.
        HeldError: A snapshot to drop has a hold since the plan was made; nothing is dropped.
    """
    summaries = lake.listed(job).all_valid()
    kept = reasons_to_keep(summaries, policy, datetime.now(timezone.utc))
    going = [each.snapshot_id for each in summaries if each.snapshot_id not in kept]
    return drop_snapshots(lake, job, snapshot_ids=going) if going else None


def _parsed(part: str) -> RetentionRule:
    match = _PART.fullmatch(part)
    if match is None:
        raise DeclarationError(
            f"{part!r} is not a valid part of a retention policy",
            remedy="write how long or how many, and how often: `30d all`, `1y daily`, `90 daily`,"
            f" `forever monthly`; times end in {', '.join(_HOURS)}, and a part in"
            f" all, {', '.join(_PERIODS)}",
        )
    forever, number, unit, period = match.groups()
    text = " ".join(part.split())
    if forever:
        return RetentionRule(text, period)
    if unit is None:
        return RetentionRule(text, period, count=int(number))
    return RetentionRule(text, period, age=timedelta(hours=int(number) * _HOURS[unit]))
