"""Snapshots edited as a whole: what is renamed, left out, merged and purged, and what stays."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.catalog.recorded_channels import recorded_channels
from statelake.pipelines.lake.edit.edit_results import EditResult
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.state_core.errors import (
    ConflictError,
    EncodeError,
    LakeError,
    NoMatchError,
    NotFoundError,
    StateError,
    UnsupportedFormatError,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WINDOWS,
    WORDS,
    assert_whole,
    data_bytes,
    entries,
    exported,
    files_of,
    golden,
    import_as,
    import_golden,
    kept_files,
    raw_savepoint,
)
from tests.support.savepoints.backlogs import UIDS, unpack_backlog

OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot
TTL_CASES = golden("types-hashmap-canonical-p2-m128-flink2.3.0").snapshot


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """An empty lake."""
    return Catalog(tmp_path / "lake")


def edited(lake: Catalog, parent: str = "s", *, job: str = "orders", **changes: Any) -> EditResult:
    """The job's snapshot, edited as `edited`."""
    return edit_snapshot(
        ChildSnapshot(lake, job, parent, "edited", engine=LOCAL), SnapshotEdit(**changes)
    )


def test_a_new_uid_copies_nothing(lake: Catalog, tmp_path: Path) -> None:
    """The operator has Flink's id of its new uid; no file is written, and all entries stay."""
    import_golden(lake, ("s", WORDS))
    before = data_bytes(tmp_path / "lake")
    done = edited(lake, rename_uid={"counter": "order-counter"})
    assert data_bytes(tmp_path / "lake") == before
    assert (done.record.written_bytes, done.changes) == (0, [])
    found = exported(lake, "edited", tmp_path / "out")
    renamed = operator_id_of_uid("order-counter")
    was = open_snapshot(WORDS).operator("counter").operator_id
    assert found == {
        (renamed if operator == was else operator, state): held
        for (operator, state), held in entries(WORDS).items()
    }
    operator = open_snapshot(tmp_path / "out").operator("order-counter")
    assert operator.operator_id == renamed
    assert exported(lake, "s", tmp_path / "old") == entries(WORDS)


def test_a_uid_that_is_taken(lake: Catalog) -> None:
    """Two operators can't have one uid."""
    import_golden(lake, ("s", WINDOWS))
    before = kept_files(lake)
    with pytest.raises(ConflictError, match="there is an operator with uid 'sliding'"):
        edited(lake, rename_uid={"tumbling": "sliding"})
    assert kept_files(lake) == before


@pytest.mark.parametrize(
    "swapped",
    [
        {"tumbling": "sliding", "sliding": "tumbling"},
        {"tumbling": "third", "sliding": "tumbling", "third": "sliding"},
    ],
    ids=["at once", "by a third uid"],
)
def test_operators_that_swap_their_uids_lose_nothing(
    swapped: dict[str, str], lake: Catalog
) -> None:
    """No state is said to have changed, and each has the other's uid."""
    import_golden(lake, ("s", WINDOWS))
    done = edited(lake, rename_uid=swapped)
    assert (done.changes, done.saved_bytes) == ([], 0)
    before = {operator.uid: operator.entries for operator in lake.snapshot("orders", "s").operators}
    after = {operator.uid: operator.entries for operator in done.record.operators}
    assert after == before | {"tumbling": before["sliding"], "sliding": before["tumbling"]}
    assert before["tumbling"] != before["sliding"]


def test_a_uid_is_never_empty(lake: Catalog) -> None:
    """Flink's metadata can't tell it from none."""
    import_golden(lake, ("s", WINDOWS))
    with pytest.raises(LakeError, match="operator tumbling would have an empty uid"):
        edited(lake, rename_uid={"tumbling": ""})


def test_operators_left_out(lake: Catalog, tmp_path: Path) -> None:
    """Dropping one and keeping the other come to the same; the rest is as it was."""
    import_golden(lake, ("s", WINDOWS))
    source = open_snapshot(WINDOWS)
    kept = source.operator("sliding").operator_id
    wanted = {key: held for key, held in entries(WINDOWS).items() if key[0] == kept}
    others = [operator.label for operator in source.operators if operator.uid != "sliding"]
    edited(lake, drop_operator=["tumbling"])
    assert exported(lake, "edited", tmp_path / "a") == wanted
    assert len(open_snapshot(tmp_path / "a").operators) == len(source.operators) - 1
    edit_snapshot(
        ChildSnapshot(lake, "orders", "s", "kept"), SnapshotEdit(keep_operator=["sliding"])
    )
    assert exported(lake, "kept", tmp_path / "b") == wanted
    assert [operator.uid for operator in open_snapshot(tmp_path / "b").operators] == ["sliding"]
    assert len(others) > 1
    assert_whole(lake)


def test_exchanges_with_records_in_flight_stay_whole(lake: Catalog, tmp_path: Path) -> None:
    """A record in flight may lie at both ends; all operators that have some are kept, or none."""
    import_as(lake, unpack_backlog("flink-2.3.0", tmp_path / "flink"), "s", job="orders")
    cuts: list[dict[str, Any]] = [{"drop_operator": ["texts"]}, {"keep_operator": ["seen"]}]
    for changes in cuts:
        with pytest.raises(UnsupportedFormatError, match="would be lost") as told:
            edited(lake, **changes)
        assert "--drop-channel-state" in told.value.remedy
    edited(lake, keep_operator=UIDS)  # the sink has none
    assert len(recorded_channels(lake.directory, lake.snapshot("orders", "edited"))) == 12


@pytest.mark.parametrize("state", ["total", "scores", "items"])
def test_a_state_left_out(state: str, lake: Catalog, tmp_path: Path) -> None:
    """All others come back entry for entry."""
    import_golden(lake, ("s", KINDS))
    done = edited(lake, drop_state=[f"kinds/{state}"])
    wanted = {key: held for key, held in entries(KINDS).items() if key[1] != state}
    assert exported(lake, "edited", tmp_path / "out") == wanted
    (change,) = done.changes
    assert (change.operator, change.state, change.entries[1]) == ("kinds", state, 0)
    assert change.entries[0] > 0
    assert done.record.written_bytes == 0


def test_timers_left_out(lake: Catalog, tmp_path: Path) -> None:
    """All of them, or one queue of several that share a table, whose rows go from it."""
    import_golden(lake, ("s", KINDS))
    queues = [name for _, name in entries(KINDS) if name.startswith("_timer_state/")]
    assert len(queues) == 2
    edited(lake, drop_state=[f"kinds/{queues[0]}"])
    wanted = {key: held for key, held in entries(KINDS).items() if key[1] != queues[0]}
    assert exported(lake, "edited", tmp_path / "one") == wanted
    assert_whole(lake)
    edit_snapshot(
        ChildSnapshot(lake, "orders", "s", "none"), SnapshotEdit(drop_state=["kinds/timers"])
    )
    wanted = {key: held for key, held in entries(KINDS).items() if key[1] not in queues}
    assert exported(lake, "none", tmp_path / "none") == wanted


def test_an_operator_state_left_out(lake: Catalog, tmp_path: Path) -> None:
    """The others of its operator stay."""
    import_golden(lake, ("s", OPERATOR))
    edited(lake, drop_state=["opstate/union"])
    exported(lake, "edited", tmp_path / "out")
    held = open_snapshot(tmp_path / "out").operator("opstate").operator_states
    assert [state.name for state in held] == ["offsets", "split"]


def test_snapshots_of_two_jobs_in_one(lake: Catalog, tmp_path: Path) -> None:
    """All operators of both, copied, so that dropping the other job takes nothing away."""
    raw = raw_savepoint(tmp_path / "raw")
    import_golden(lake, ("s", WORDS))
    import_as(lake, raw, "other", "returns")
    done = edited(lake, merge=[("returns", "other")])
    assert done.record.written_bytes > 0
    drop_snapshots(lake, "returns", keep=0)
    assert exported(lake, "edited", tmp_path / "out") == entries(WORDS) | entries(raw)
    merged = open_snapshot(tmp_path / "out")
    ids = [
        operator.operator_id
        for source in (WORDS, raw)
        for operator in open_snapshot(source).operators
    ]
    assert [operator.operator_id for operator in merged.operators] == list(dict.fromkeys(ids))
    before, after = (snapshot.operator("opstate").operator_states for snapshot in
                     (open_snapshot(raw), merged))  # fmt: skip
    assert [state.to_arrow() for state in before] == [state.to_arrow() for state in after]


def test_what_a_dropped_operator_carried_goes(lake: Catalog, tmp_path: Path) -> None:
    """It is in no snapshot any more once the parent is dropped, and so in no file."""
    import_as(lake, raw_savepoint(tmp_path / "raw"), "s")
    carried = tmp_path / "lake" / "_statelake" / "carried"
    assert edited(lake, rename_uid={"opstate": "renamed"}).record.carried
    drop_snapshots(lake, "orders", snapshot_ids=["edited"])
    assert edited(lake, drop_operator=["opstate"]).record.carried == []
    assert files_of(carried)
    drop_snapshots(lake, "orders", snapshot_ids=["s"])
    assert files_of(carried) == {}
    assert_whole(lake)


def test_an_operator_of_both(lake: Catalog) -> None:
    """Nothing is merged over something else."""
    import_golden(lake, ("s", WORDS))
    import_as(lake, WORDS, "other", "returns")
    before = kept_files(lake)
    with pytest.raises(ConflictError, match="operator counter is in both snapshots"):
        edited(lake, merge=[("returns", "other")])
    assert kept_files(lake) == before


@pytest.mark.parametrize("other", ["returns", "orders"])
def test_an_operator_that_was_renamed_beside_one_of_its_old_name(
    other: str, lake: Catalog, tmp_path: Path
) -> None:
    """Each has a table of its own, be they of two jobs or of one; both are what they were."""
    import_golden(lake, ("s", WORDS))
    import_as(lake, WORDS, "other", other)
    rename = SnapshotEdit(rename_uid={"counter": "returned"})
    edit_snapshot(ChildSnapshot(lake, other, "other", "renamed", engine=LOCAL), rename)
    done = edited(lake, merge=[(other, "renamed")])
    paths = [table.path for operator in done.record.operators for table in operator.tables]
    assert len(set(paths)) == len(paths)
    assert_whole(lake)
    exported(lake, "edited", tmp_path / "out")
    merged = open_snapshot(tmp_path / "out")
    counts = [merged.operator(uid).state("count").to_arrow() for uid in ("counter", "returned")]
    assert counts == [open_snapshot(WORDS).operator("counter").state("count").to_arrow()] * 2
    drop_snapshots(lake, "orders", snapshot_ids=["s"])
    assert exported(lake, "edited", tmp_path / "again") == entries(tmp_path / "out")


def test_split_and_merged_again(lake: Catalog, tmp_path: Path) -> None:
    """Two halves of a snapshot make the whole again, without a copy."""
    import_golden(lake, ("s", WINDOWS))
    edit_snapshot(
        ChildSnapshot(lake, "orders", "s", "half"), SnapshotEdit(keep_operator=["sliding"])
    )
    edit_snapshot(
        ChildSnapshot(lake, "orders", "s", "rest"), SnapshotEdit(drop_operator=["sliding"])
    )
    done = edited(lake, "half", merge=[("orders", "rest")])
    assert done.record.written_bytes == 0
    assert exported(lake, "edited", tmp_path / "out") == entries(WINDOWS)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rename_uid": {"nobody": "x"}}, "no operator 'nobody'; it has|no operator 'nobody'"),
        ({"drop_operator": ["nobody"]}, "no operator 'nobody'"),
        ({"keep_operator": ["nobody"]}, "no operator 'nobody'"),
        ({"drop_state": ["kinds/nothing"]}, "no state 'kinds/nothing'"),
        ({"expire": {"kinds/nothing": timedelta(days=1)}}, "no state 'kinds/nothing'"),
        ({"merge": [("nobody", "s")]}, "no job 'nobody'"),
    ],
)
def test_what_is_not_there(changes: dict[str, Any], said: str, lake: Catalog) -> None:
    """A misspelled name is told, and nothing has changed."""
    import_golden(lake, ("s", KINDS))
    before = kept_files(lake)
    with pytest.raises(NotFoundError, match=said):
        edited(lake, **changes)
    assert kept_files(lake) == before


def test_what_never_expires(lake: Catalog) -> None:
    """A state without a time to live, and operator state, are refused."""
    import_golden(lake, ("s", KINDS))
    import_as(lake, OPERATOR, "s", "other")
    with pytest.raises(EncodeError, match="kinds/total has no time to live"):
        edited(lake, expire={"kinds/total": timedelta(days=1)})
    with pytest.raises(EncodeError, match="opstate/split has no time to live"):
        edited(lake, job="other", expire={"opstate/split": timedelta(days=1)})


def test_what_has_expired(lake: Catalog, tmp_path: Path) -> None:
    """Entries go whose last access and time to live are not after the time that is asked for."""
    import_golden(lake, ("s", KINDS))
    rows = open_snapshot(KINDS).operator("kinds").state("session").to_arrow()
    times = sorted(set(rows.column("ttl").cast("int64").to_pylist()))
    assert len(times) > 1
    lived = timedelta(hours=1)
    middle = times[len(times) // 2]
    at = datetime.fromtimestamp(middle / 1000, timezone.utc) + lived
    done = edited(lake, expire={"kinds/session": lived}, at=at)
    exported(lake, "edited", tmp_path / "out")
    left = open_snapshot(tmp_path / "out").operator("kinds").state("session").to_arrow()
    wanted = [row for row in rows.to_pylist() if _millis(row["ttl"]) > middle]
    assert sorted(left.to_pylist(), key=str) == sorted(wanted, key=str)
    (change,) = done.changes
    assert change.entries == (len(rows), len(wanted))
    assert change.state_bytes[0] > change.state_bytes[1]
    assert_whole(lake)
    others = {key: held for key, held in entries(KINDS).items() if key[1] != "session"}
    found = entries(tmp_path / "out")
    assert {key: held for key, held in found.items() if key[1] != "session"} == others


def _millis(value: Any) -> int:
    return value if isinstance(value, int) else round(value.timestamp() * 1000)


def test_nothing_expired_changes_no_file(lake: Catalog, tmp_path: Path) -> None:
    """Files that lose no row are the ones that they were."""
    import_golden(lake, ("s", KINDS))
    before = data_bytes(tmp_path / "lake")
    done = edited(
        lake, expire={"kinds/session": timedelta(days=1)},
        at=datetime(1990, 1, 1, tzinfo=timezone.utc), rename_uid={"kinds": "all-kinds"},
    )  # fmt: skip
    assert done.changes == []
    assert data_bytes(tmp_path / "lake") == before
    assert done.record.tables == lake.snapshot("orders", "s").tables


@pytest.mark.parametrize(
    "changes",
    [
        {"expire": {"kinds/session": timedelta(days=1)},
         "at": datetime(1990, 1, 1, tzinfo=timezone.utc)},
        {"purge": {"kinds/total": "value IS NULL", "kinds/items": "element IS NULL"}},
    ],
    ids=["expire", "purge"],
)  # fmt: skip
def test_an_edit_that_matches_no_row_makes_no_snapshot(
    changes: dict[str, Any], lake: Catalog, tmp_path: Path
) -> None:
    """As with SQL: a second snapshot like the first one would be of no use to anybody."""
    import_golden(lake, ("s", KINDS), ("newer", KINDS))
    before = data_bytes(tmp_path / "lake")
    with pytest.raises(NoMatchError, match="no row of s matches or has expired: kinds/"):
        edited(lake, **changes)
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s", "newer"]
    assert data_bytes(tmp_path / "lake") == before
    assert_whole(lake)


def test_a_dry_run_counts_what_goes_and_makes_nothing(lake: Catalog, tmp_path: Path) -> None:
    """The counts are those of the edit, and afterwards the lake has neither version nor file."""
    import_golden(lake, ("s", KINDS))
    before = data_bytes(tmp_path / "lake")
    version = DeltaTable(tmp_path / "lake" / "orders/keyed/kinds/session").version()
    wanted = SnapshotEdit(
        expire={"kinds/session": timedelta(0)}, at=datetime(2999, 1, 1, tzinfo=timezone.utc)
    )
    planned = edit_snapshot(
        ChildSnapshot(lake, "orders", "s", "edited", dry_run=True, engine=LOCAL), wanted
    )
    assert [(each.state, each.entries[1]) for each in planned.changes] == [("session", 0)]
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]
    assert data_bytes(tmp_path / "lake") == before
    assert DeltaTable(tmp_path / "lake" / "orders/keyed/kinds/session").version() == version
    done = edit_snapshot(ChildSnapshot(lake, "orders", "s", "edited", engine=LOCAL), wanted)
    assert done.changes == planned.changes
    assert_whole(lake)


def test_a_predicate_on_rows(lake: Catalog, tmp_path: Path) -> None:
    """The rows that it leaves are the snapshot's, and nothing beside their files was written."""
    import_golden(lake, ("s", WORDS))
    rows = open_snapshot(WORDS).operator("counter").state("count").to_arrow().to_pylist()
    key = rows[0]["key"]
    edited(lake, purge={"counter/count": f"key = {key!r}"})
    exported(lake, "edited", tmp_path / "out")
    left = open_snapshot(tmp_path / "out").operator("counter").state("count").to_arrow()
    assert sorted(left.column("key").to_pylist()) == sorted(
        row["key"] for row in rows if row["key"] != key
    )
    assert not [name for name in files_of(tmp_path / "lake") if "staged" in name]
    assert_whole(lake)


def test_a_predicate_that_is_true_of_no_row_changes_no_file(lake: Catalog) -> None:
    """Files that lose no row are the ones that they were."""
    import_golden(lake, ("s", WORDS))
    done = edited(lake, purge={"counter/count": "value IS NULL"}, rename_uid={"counter": "words"})
    assert (done.changes, done.record.written_bytes) == ([], 0)
    assert done.record.tables == lake.snapshot("orders", "s").tables


def test_a_predicate_on_elements_of_lists(lake: Catalog, tmp_path: Path) -> None:
    """If it says `element`, lists lose these, and a list without any goes."""
    import_golden(lake, ("s", KINDS))
    rows = open_snapshot(KINDS).operator("kinds").state("items").to_arrow().to_pylist()
    least = sorted(max(row["value"]) for row in rows)[len(rows) // 2]
    edited(lake, purge={"kinds/items": f"element < {least}"})
    exported(lake, "edited", tmp_path / "out")
    left = open_snapshot(tmp_path / "out").operator("kinds").state("items").to_arrow().to_pylist()
    wanted = {row["key"]: [each for each in row["value"] if each >= least] for row in rows}
    assert {row["key"]: row["value"] for row in left} == {
        key: elements for key, elements in wanted.items() if elements
    }
    assert 0 < len(left) < len(rows)


def test_a_predicate_reads_other_states_of_the_snapshot(lake: Catalog) -> None:
    """By their names, as in SQL, whichever version their tables have."""
    import_golden(lake, ("s", KINDS))
    held = {
        name: open_snapshot(KINDS).operator("kinds").state(name).to_arrow()
        for name in ("total", "name")
    }
    middle = sorted(held["total"].column("value").to_pylist())[len(held["total"]) // 2]
    asked = f"key IN (SELECT key FROM kinds.total WHERE value < {middle})"
    done = edited(lake, purge={"kinds/total": "true", "kinds/name": asked})
    below = {row["key"] for row in held["total"].to_pylist() if row["value"] < middle}
    left = [key for key in held["name"].column("key").to_pylist() if key not in below]
    assert 0 < len(left) < len(held["name"])
    assert {change.state: change.entries for change in done.changes} == {
        "total": (len(held["total"]), 0), "name": (len(held["name"]), len(left)),
    }  # fmt: skip


def test_a_predicate_on_what_is_merged_in(lake: Catalog, tmp_path: Path) -> None:
    """An operator of another job loses rows on its way, and that job's snapshot none."""
    import_golden(lake, ("s", KINDS))
    import_as(lake, WORDS, "other", "returns")
    edited(lake, merge=[("returns", "other")], purge={"counter/count": "value > 1"})
    exported(lake, "edited", tmp_path / "out")
    before, after = (
        open_snapshot(path).operator("counter").state("count").to_arrow().to_pylist()
        for path in (WORDS, tmp_path / "out")
    )
    assert after == [row for row in before if row["value"] <= 1]
    assert 0 < len(after) < len(before)
    assert exported(lake, "other", tmp_path / "other", "returns") == entries(WORDS)


def test_timers_of_a_predicate(lake: Catalog, tmp_path: Path) -> None:
    """Queues share a table, and a predicate may say which of them it means."""
    import_golden(lake, ("s", KINDS))
    edited(lake, purge={"kinds/timers": "domain = 'event'"})
    found, before = exported(lake, "edited", tmp_path / "out"), entries(KINDS)
    event = [key for key in before if key[1].startswith("_timer_state/event")]
    assert len(event) == 1
    assert found == {**before, event[0]: found[event[0]]}
    assert not found[event[0]]
    assert before[event[0]]


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        ("nothing = 1", 'column "nothing" not found.*has key_group, key,'),
        ("value >", "Parser Error.*write it as DuckDB does"),
        ("value; DROP TABLE x", "Parser Error"),
        ("true); DELETE FROM x WHERE (true", "2 statements, but exactly one is allowed"),
        ("value = CAST('x' AS INT)", "Could not convert string 'x'"),
        ("value > (SELECT max(value) FROM read_csv('/etc/passwd'))", "disabled"),
    ],
)
def test_a_predicate_that_can_not_be_evaluated(predicate: str, said: str, lake: Catalog) -> None:
    """The state and the predicate are named, and no file is left, and no snapshot."""
    import_golden(lake, ("s", KINDS))
    before = data_bytes(Path(lake.location))
    named = re.escape(f"state kinds/total, {predicate}: ")
    with pytest.raises(StateError, match=f"{named}.*{said}"):
        edited(lake, purge={"kinds/name": "true", "kinds/total": predicate})
    assert data_bytes(Path(lake.location)) == before
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["s"]
    assert_whole(lake)
