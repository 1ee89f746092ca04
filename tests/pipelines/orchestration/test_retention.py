"""Which snapshots stay: held against the words of the setting, over many histories."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from pipelines.lake.tables.records import SnapshotRecord
from pipelines.operations.retention import kept_snapshots

START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def summary(hours: int, number: int, origin: str = "import") -> SnapshotRecord:
    """A snapshot of so many hours after the start."""
    return SnapshotRecord(
        job="orders", snapshot_id=f"s{number}", parent="", origin=origin, kind="savepoint",
        format="canonical", metadata_version=4, checkpoint_id=number,
        taken_at=START + timedelta(hours=hours), imported_at=START + timedelta(hours=hours),
        source="", digest="", compression="none", note="", entries=0, state_bytes=0,
        written_bytes=0, metadata=b"",
    )  # fmt: skip


@given(
    hours=st.lists(st.integers(0, 24 * 12), max_size=40),
    last=st.integers(1, 5),
    daily=st.integers(0, 6),
)
def test_the_last_and_one_a_day(hours: list[int], last: int, daily: int) -> None:
    """The newest, and of the newest days the newest each; nothing else."""
    history = [summary(hour, number) for number, hour in enumerate(sorted(hours))]
    kept = kept_snapshots(reversed(history), last, daily)
    assert {each.snapshot_id for each in history[-last:]} <= kept
    days = sorted({each.taken_at.date() for each in history}, reverse=True)[:daily]
    for day in days:
        of_day = [each.snapshot_id for each in history if each.taken_at.date() == day]
        assert kept & set(of_day)
    assert len(kept) <= last + daily
    assert len(kept) >= min(len(history), last)


def test_what_was_made_of_others_stays() -> None:
    """Whoever migrated or edited a snapshot drops that by hand."""
    history = [summary(number, number) for number in range(4)]
    history.append(summary(0, 9, origin="migrate"))
    assert kept_snapshots(history, 1, 0) == {"s3", "s9"}
