"""Holds: what nobody drops, whoever comes first, and whatever else the row says."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from statelake import Lake
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.catalog.holds import hold_snapshot, release_snapshot
from statelake.pipelines.lake.catalog.lake_format import FORMAT_KEY
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.query.catalog_tables import catalog_table
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.records import HoldRecord
from statelake.state_core.errors import HeldError, LakeFormatError, NoMatchError, NotFoundError
from tests.support.forged_lakes import Scene, forged, make_scene
from tests.support.lakes import (
    DEMO,
    LOCAL,
    assert_whole,
    exported,
    files_of,
    forge_claim,
    import_golden,
    remove_rows,
)
from tests.support.steps import do_at

MONDAY, TUESDAY = DEMO / "monday", DEMO / "tuesday"


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with two snapshots."""
    return import_golden(Catalog(tmp_path / "lake"), ("monday", MONDAY), ("tuesday", TUESDAY))


def ids(lake: Catalog) -> list[str]:
    """The snapshots that there are."""
    return [summary.snapshot_id for summary in lake.summaries("orders")]


def held(lake: Catalog) -> dict[str, list[HoldRecord]]:
    """The holds of the snapshots that have any."""
    return {each.snapshot_id: each.holds for each in lake.summaries("orders") if each.holds}


@pytest.mark.full
def test_a_held_snapshot_is_dropped_by_nobody(lake: Catalog, tmp_path: Path) -> None:
    """By name it is refused with the reason, and nothing happens; `keep` passes over it."""
    holds = hold_snapshot(lake, "orders", "monday", "case 4711")
    assert [hold.reason for hold in holds] == ["case 4711"]
    assert held(lake) == {"monday": holds}
    before = files_of(Path(lake.location))
    with pytest.raises(HeldError, match="case 4711"):
        drop_snapshots(lake, "orders", snapshot_ids=["tuesday", "monday"])
    assert files_of(Path(lake.location)) == before
    dropped = drop_snapshots(lake, "orders", keep=0)
    assert (dropped.dropped, dropped.kept, dropped.held) == (["tuesday"], ["monday"], ["monday"])
    exported(lake, "monday", tmp_path / "out")
    assert release_snapshot(lake, "orders", "monday") == ["case 4711"]
    assert held(lake) == {}
    assert drop_snapshots(lake, "orders", keep=0).dropped == ["monday"]
    assert_whole(lake)


@pytest.mark.full
def test_each_reason_is_a_hold_of_its_own(lake: Catalog) -> None:
    """The same one twice is one; each is ended by itself, or all of them."""
    hold_snapshot(lake, "orders", "monday", "case 1")
    version = DeltaTable(f"{lake.location}/snapshots").version()
    first = hold_snapshot(lake, "orders", "monday", "case 1")
    assert DeltaTable(f"{lake.location}/snapshots").version() == version
    assert hold_snapshot(lake, "orders", "monday", "case 2")[:1] == first
    assert release_snapshot(lake, "orders", "monday", "case 1") == ["case 1"]
    with pytest.raises(NoMatchError, match="case 1"):
        release_snapshot(lake, "orders", "monday", "case 1")
    with pytest.raises(HeldError, match="case 2"):
        drop_snapshots(lake, "orders", snapshot_ids=["monday"])
    hold_snapshot(lake, "orders", "monday")
    assert release_snapshot(lake, "orders", "monday") == ["case 2", ""]


def test_what_is_not_there_is_not_held(lake: Catalog) -> None:
    """Neither a job nor a snapshot."""
    for job, snapshot_id in (("orders", "sunday"), ("other", "monday")):
        with pytest.raises(NotFoundError):
            hold_snapshot(lake, job, snapshot_id)
        with pytest.raises(NotFoundError):
            release_snapshot(lake, job, snapshot_id)


@pytest.mark.parametrize("holds_first", [True, False])
def test_a_hold_and_a_drop_at_once(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch, *, holds_first: bool
) -> None:
    """Whoever commits second sees the other: held and there, or gone and not held."""
    hold = lambda: hold_snapshot(lake, "orders", "monday")  # noqa: E731
    drop = lambda: remove_rows(lake, "orders", ["monday"])  # noqa: E731
    first, second = (hold, drop) if holds_first else (drop, hold)
    do_at(monkeypatch, (DeltaCommit, "write", "before", 1), first)
    with pytest.raises(HeldError if holds_first else NotFoundError):
        second()
    assert ("monday" in ids(lake)) is holds_first


def test_what_is_made_of_a_held_snapshot_is_not_held(lake: Catalog) -> None:
    """A hold is of one snapshot."""
    hold_snapshot(lake, "orders", "monday")
    edit = SnapshotEdit(drop_state=["kinds/total"])
    made = edit_snapshot(
        ChildSnapshot(lake, "orders", "monday", "without", engine=LOCAL), edit
    ).record
    assert made.holds == []
    assert list(held(lake)) == ["monday"]


def test_sql_sees_holds(lake: Catalog) -> None:
    """In the table of snapshots."""
    (hold,) = hold_snapshot(lake, "orders", "monday", "case 4711")
    rows = catalog_table(lake, "snapshots").select(["snapshot", "holds"]).to_pylist()
    assert rows == [
        {"snapshot": "monday", "holds": [{"reason": "case 4711", "since": hold.since}]},
        {"snapshot": "tuesday", "holds": []},
    ]


@pytest.mark.full
def test_a_row_that_is_no_snapshot_may_be_held(tmp_path: Path) -> None:
    """Then it isn't dropped by its name either, until that is released."""
    scene: Scene = make_scene(tmp_path)
    held = [{"reason": "case 4711", "since": datetime.now(timezone.utc)}]
    forged(scene, lambda row: row.update(entries=-1, holds=held))
    with pytest.raises(HeldError):
        drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"])
    assert release_snapshot(scene.lake, "orders", "bad") == ["case 4711"]
    drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"])
    assert ids(scene.lake) == ["good"]


def test_a_lake_of_an_older_version_is_read_and_held(lake: Catalog) -> None:
    """Its rows have no column of holds; an upgrade adds it, and a hold changes no other row."""
    place = f"{lake.location}/snapshots"
    older = DeltaTable(place).to_pyarrow_table().drop_columns(["holds"])
    write_deltalake(place, older, mode="overwrite", schema_mode="overwrite", partition_by=["job"])
    assert held(lake) == {}
    before = lake.snapshot("orders", "tuesday")
    forge_claim(Path(lake.location), FORMAT_KEY, None)
    with pytest.raises(LakeFormatError):
        hold_snapshot(lake, "orders", "monday", "case 4711")
    assert lake.upgrade().columns == ["holds"]
    hold_snapshot(lake, "orders", "monday", "case 4711")
    assert list(held(lake)) == ["monday"]
    assert lake.snapshot("orders", "tuesday") == before
    assert "holds" in DeltaTable(place).to_pyarrow_table().column_names


def test_a_python_program_holds_and_releases(lake: Catalog) -> None:
    """By the lake as one object."""
    orders = Lake(lake.location).job("orders")
    assert [hold.reason for hold in orders["monday"].hold("case 4711")] == ["case 4711"]
    with pytest.raises(HeldError):
        orders.drop("monday")
    assert orders["monday"].release() == ["case 4711"]
