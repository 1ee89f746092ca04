"""Which snapshots stay: held against the words of the setting, over many histories."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.holds import hold_snapshot, release_snapshot
from statelake.pipelines.lake.catalog.retention import Policy, prune, reasons_to_keep
from statelake.pipelines.lake.tables.records import HoldRecord, SnapshotRecord
from statelake.pipelines.orchestration.ops import PruneConfig
from statelake.pipelines.orchestration.settings import RetentionSettings
from statelake.state_core.errors import DeclarationError
from tests.support.lakes import DEMO, import_golden

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOW = datetime(2026, 2, 1, tzinfo=timezone.utc)


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
    history = [summary(hour, 100 + number) for number, hour in enumerate(sorted(hours))]
    kept = set(reasons_to_keep(history, Policy.of(last, daily), NOW))
    assert {each.snapshot_id for each in history[-last:]} <= kept
    days = sorted({each.taken_at.date() for each in history}, reverse=True)[:daily]
    for day in days:
        of_day = [each.snapshot_id for each in history if each.taken_at.date() == day]
        assert kept & set(of_day)
    assert len(kept) <= last + daily
    assert len(kept) >= min(len(history), last)


def test_the_newest_is_the_last_of_the_log() -> None:
    """A clock that goes back drops no snapshot that came later, and keeps none for it."""
    history = [summary(hours, number) for number, hours in enumerate((9, 30, 8, 7))]
    assert set(reasons_to_keep(history, Policy.of(2), NOW)) == {"s2", "s3"}


def test_what_was_made_of_others_stays() -> None:
    """Whoever migrated or edited a snapshot drops that by hand."""
    history = [summary(number, number) for number in range(4)]
    history.append(summary(0, 9, origin="migrate"))
    assert set(reasons_to_keep(history, Policy.of(1), NOW)) == {"s3", "s9"}


@given(
    hours=st.lists(st.integers(0, 24 * 900), max_size=60),
    days=st.integers(1, 60),
    years=st.integers(0, 2),
)
def test_a_policy_in_tiers(hours: list[int], days: int, years: int) -> None:
    """All of some days, one a day of some years, one a month: held against these words."""
    history = [summary(hour, 100 + number) for number, hour in enumerate(sorted(hours))]
    at = START + timedelta(days=900)
    policy = Policy.parse(f"{days}d all, {years}y daily, forever monthly")
    expected = {history[-1].snapshot_id} if history else set()
    for this in history:
        age = at - this.taken_at
        later = history[history.index(this) + 1 :]
        same_day = [summary for summary in later if summary.taken_at.date() == this.taken_at.date()]
        same_month = [
            summary for summary in later if f"{summary.taken_at:%Y%m}" == f"{this.taken_at:%Y%m}"
        ]
        if (
            age <= timedelta(days=days)
            or (age <= timedelta(days=365 * years) and not same_day)
            or not same_month
        ):
            expected.add(this.snapshot_id)
    assert set(reasons_to_keep(history, policy, at)) == expected


def test_reasons() -> None:
    """Each part that keeps a snapshot is named, and what keeps it whatever the policy."""
    history = [summary(hours, hours) for hours in (0, 1, 24, 25)]
    history[0].holds.append(HoldRecord("case 4711", START))
    at = START + timedelta(hours=26)
    assert reasons_to_keep(history, Policy.parse("1h all,  2 daily"), at) == {
        "s0": ["held: case 4711"],
        "s1": ["2 daily"],
        "s25": ["the newest", "1h all", "2 daily"],
    }
    old = START + timedelta(days=99)
    assert set(reasons_to_keep(history, Policy.parse("1d all"), old)) == {"s0", "s25"}


@pytest.mark.parametrize(
    "text", ["", "30d", "all", "30d all,", "30 days all", "-1d all", "1y sometimes", "30m all"]
)
def test_what_is_no_policy(text: str) -> None:
    """It is refused with an example of one."""
    with pytest.raises(DeclarationError, match="not a valid part of a retention policy"):
        Policy.parse(text)


def test_pruning_respects_holds(tmp_path: Path) -> None:
    """As Dagster does it: what is held stays until it is released."""
    lake = import_golden(
        Catalog(tmp_path / "lake"), ("monday", DEMO / "monday"), ("tuesday", DEMO / "tuesday")
    )
    first, *_ = sorted(lake.summaries("orders"), key=lambda summary: summary.taken_at)
    hold_snapshot(lake, "orders", first.snapshot_id)
    assert prune(lake, "orders", Policy.of(1)) is None
    release_snapshot(lake, "orders", first.snapshot_id)
    done = prune(lake, "orders", Policy.of(1))
    assert done is not None
    assert done.dropped == [first.snapshot_id]


def test_what_dagster_is_told() -> None:
    """Two numbers or a policy, which is looked at when the settings are loaded."""
    RetentionSettings(policy="30d all, forever monthly")
    with pytest.raises(ValueError, match="not a valid part of a retention policy"):
        RetentionSettings(policy="30 days")
    with pytest.raises(ValueError, match="or else `last` and `daily`"):
        RetentionSettings(policy="30d all", daily=3)
    assert PruneConfig(last=3, daily=2).parsed() == Policy.of(3, 2)
    assert PruneConfig(policy="1y daily").parsed() == Policy.parse("1y daily")
