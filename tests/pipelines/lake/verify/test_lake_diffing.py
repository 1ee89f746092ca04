"""Differences between snapshots: counted as a reader of both would count them, with examples."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake import open_snapshot
from statelake.pipelines.find.growth import described
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.verify import diffing
from statelake.pipelines.lake.verify.diffing import StateDifference, diff_snapshots
from statelake.pipelines.requests.reading import Comparison
from statelake.state_core.errors import DeclarationError, NotFoundError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_states import value_snapshot
from statelake.state_core.formats.layout.meta_info import read_state_meta_info
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from tests.support.command import run
from tests.support.lakes import (
    DEMO,
    FLINK,
    KINDS,
    LOCAL,
    WIDE,
    WINDOWS,
    WORDS,
    add_row,
    edited_savepoint,
    entries,
    exported,
    golden,
    import_as,
    import_golden,
    raw_savepoint,
)

pytestmark = pytest.mark.thinned(2)

EDITS = (
    ("counter/count", "key_group < 20", {"value": "value + 5"}),
    ("counter/count", "key_group BETWEEN 30 AND 50", {}),
)


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake that is not there yet."""
    return Catalog(tmp_path / "lake")


def diff(lake: Catalog, earlier: str, later: str, **options: Any) -> dict[str, StateDifference]:
    """The differences by state that has a table, found here."""
    found = diff_snapshots(lake, "orders", earlier, later, Comparison(**options), engine=LOCAL)
    return {
        f"{difference.operator}/{difference.state}": difference
        for difference in found
        if not difference.state.startswith("(")
    }


def counts(difference: StateDifference) -> tuple[str, int, int, int]:
    """Status; added, removed and changed entries."""
    return difference.status, difference.added, difference.removed, difference.changed


def expected(earlier: Path, later: Path) -> dict[str, tuple[int, int, int]]:
    """Added, removed and changed entries by state, found by comparing all bytes."""
    before, after = entries(earlier), entries(later)
    found = {}
    for (operator_id, state), held in after.items():
        old = {key: value for _, key, value in before[operator_id, state]}
        new = {key: value for _, key, value in held}
        label = open_snapshot(later).operator(operator_id).label
        found[f"{label}/{state}"] = (
            len(new.keys() - old.keys()),
            len(old.keys() - new.keys()),
            sum(old[key] != value for key, value in new.items() if key in old),
        )
    return found | expected_elements(earlier, later)


def expected_elements(earlier: Path, later: Path) -> dict[str, tuple[int, int, int]]:
    """Added and removed elements of operator states, none of which is a broadcast, by state."""
    before, after = elements(earlier), elements(later)
    return {
        name: ((after[name] - before[name]).total(), (before[name] - after[name]).total(), 0)
        for name in before.keys() | after.keys()
    }


def elements(savepoint: Path) -> dict[str, Counter[bytes]]:
    """The elements of every operator state."""
    found: dict[str, Counter[bytes]] = defaultdict(Counter)
    for operator in open_snapshot(savepoint).operators:
        for state in operator.operator_states:
            assert not state.broadcast
            held = (element for part in state.parts for element in part.encoded())
            found[f"{operator.label}/{state.name}"].update(held)
    return found


@pytest.mark.parametrize(
    ("earlier", "later"),
    [(DEMO / "monday", DEMO / "tuesday"), (DEMO / "tuesday", DEMO / "monday")],
    ids=["forth", "back"],
)
def test_two_savepoints_of_a_job(earlier: Path, later: Path, lake: Catalog) -> None:
    """Every state is counted as comparing all bytes says, timers too."""
    import_as(lake, earlier, "a")
    import_as(lake, later, "b")
    wanted = expected(earlier, later)
    found = diff(lake, "a", "b")
    assert any(added or removed for added, removed, _ in wanted.values())
    assert {name: counts(difference)[1:] for name, difference in found.items()} == wanted
    for name, numbers in wanted.items():
        changed = {"changed", "added", "removed"} if any(numbers) else {"same"}
        assert found[name].status in changed


@pytest.mark.parametrize("source", [WORDS, WIDE], ids=["key groups", "buckets"])
def test_what_changed(source: Path, lake: Catalog, tmp_path: Path) -> None:
    """Changed, deleted and (the other way round) added entries, each with its rows."""
    later = edited_savepoint(source, tmp_path / "later", *EDITS)
    import_as(lake, source, "a")
    import_as(lake, later, "b")
    added, removed, changed = expected(source, later)["counter/count"]
    assert added == 0
    assert removed * changed > 0
    forth = diff(lake, "a", "b", examples=1000)["counter/count"]
    back = diff(lake, "b", "a", examples=1000)["counter/count"]
    assert counts(forth) == ("changed", 0, removed, changed)
    assert counts(back) == ("changed", removed, 0, changed)
    for differences, gone in ((forth, "removed"), (back, "added")):
        kinds = [example["change"] for example in differences.examples]
        assert (kinds.count("changed"), kinds.count(gone)) == (changed, removed)
    for example in forth.examples:
        if example["change"] == "changed":
            before, after = example["before"], example["after"]
            assert after == before | {"value": before["value"] + 5}
        else:
            assert 30 <= example["before"]["key_group"] <= 50
            assert "after" not in example


@pytest.mark.parametrize("limit", [0, 1, 4])
def test_as_many_examples_as_wanted(limit: int, lake: Catalog, tmp_path: Path) -> None:
    """Counts do not depend on how many examples are shown."""
    later = edited_savepoint(WORDS, tmp_path / "later", *EDITS)
    import_golden(lake, ("a", WORDS))
    import_as(lake, later, "b")
    found = diff(lake, "a", "b", examples=limit)["counter/count"]
    assert len(found.examples) == limit
    assert counts(found)[1:] == expected(WORDS, later)["counter/count"]


def test_bytes_are_those_of_growth(lake: Catalog) -> None:
    """Of a lake and of two directories, whose differences are the same; so are examples."""
    earlier, later = DEMO / "monday", DEMO / "tuesday"
    import_as(lake, earlier, "a")
    import_as(lake, later, "b")
    found = diff(lake, "a", "b")
    assert len(found) > 10
    grown = [
        {name[:2]: state for name, state in described(open_snapshot(each)).states.items()}
        for each in (earlier, later)
    ]
    for each in found.values():
        name = each.operator, each.state
        counted = [states[name].size if name in states else 0 for states in grown]
        assert [each.bytes_before, each.bytes_after] == counted
        assert each.bytes_change > 0
    directories = sl.diff(earlier, later)
    assert directories[:-1] == list(found.values())
    coordinator = directories[-1]
    assert (coordinator.state, coordinator.status) == ("(coordinator)", "added")
    assert coordinator.bytes_after == 16
    assert (directories.earlier, directories.later) == (str(earlier), str(later))


def test_what_grew_most_is_first(lake: Catalog) -> None:
    """By the difference in bytes, which states that shrank have last; counts are the same."""
    import_as(lake, WORDS, "a")
    import_as(lake, WINDOWS, "b")
    plain = diff_snapshots(lake, "orders", "a", "b", engine=LOCAL)
    found = diff_snapshots(lake, "orders", "a", "b", Comparison(sort="bytes"), engine=LOCAL)
    changes = [each.bytes_change for each in found]
    assert changes == sorted(changes, reverse=True)
    assert (found[-1].state, changes[-1]) == ("count", -found[-1].bytes_before)
    assert changes[-1] < 0 < changes[0]
    assert [each.state for each in plain] != [each.state for each in found]
    assert sorted(map(repr, found)) == sorted(map(repr, plain))
    with pytest.raises(DeclarationError, match="--sort is 'size', and must be one of operator"):
        Comparison(sort="size")  # type: ignore[arg-type]


@pytest.mark.full
def test_the_command_on_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lake; beside a configured one, a name with a slash is a directory."""
    monkeypatch.chdir(DEMO)
    monkeypatch.delenv("STATELAKE_LAKE", raising=False)
    words = ("diff", "monday", "tuesday", "--sort", "bytes")
    ran = run(*words, "--json")
    assert ran.code == 0, ran.err
    assert ran.json[0]["bytes_change"] > 0
    assert [each["bytes_change"] for each in ran.json] == sorted(
        (each["bytes_after"] - each["bytes_before"] for each in ran.json), reverse=True
    )
    first = run(*words, "--examples", 0).out.splitlines()[2].split()
    assert first[-1] == "B"
    assert first[-2] == f"+{ran.json[0]['bytes_change']}"
    assert run("diff", "monday", "monday", "--fail-on-diff").code == 0
    assert run("diff", "monday", "tuesday", "--fail-on-diff").code == 1
    absent = run("diff", "monday", "wednesday")
    assert (absent.code, "wednesday: no such directory" in absent.err) == (3, True)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, Path("monday"), "monday")
    import_as(lake, Path("tuesday"), "tuesday")
    monkeypatch.setenv("STATELAKE_LAKE", str(tmp_path / "lake"))
    assert "give --job" in run(*words).err
    monkeypatch.setenv("STATELAKE_JOB", "orders")
    assert run(*words, "--json").json == ran.json
    assert run(*words).out.startswith("monday → tuesday\n")
    assert run("diff", "./monday", "./tuesday").out.startswith("./monday → ./tuesday\n")
    assert "for directories" in run(*words, "--uid", "kinds").err
    assert run("diff", "monday", "nobody").code == 3


def test_what_a_uri_says_of_its_store_is_not_shown() -> None:
    """Options may be credentials, and output is kept in logs."""
    uri = f"file://{DEMO}/monday?secret_key=of-the-store"
    found = sl.diff(uri, DEMO / "monday")
    assert found.earlier == found.later == str(DEMO / "monday")
    assert "secret" not in run("diff", uri, DEMO / "monday").out


@pytest.mark.full
def test_what_has_no_table_is_compared_as_bytes(tmp_path: Path) -> None:
    """Raw state that differs is told, with its bytes, and fails `--fail-on-diff`."""
    plain, raw = (
        FLINK / "operator-hashmap-canonical-p2-m128-flink2.3.0/savepoint",
        raw_savepoint(tmp_path / "raw"),
    )
    other = raw_savepoint(tmp_path / "other")
    (other / "opaque").write_bytes(b"only the JOB can read this")
    moved = shutil.copytree(raw, tmp_path / "moved")
    (moved / "opaque").rename(moved / "renamed")
    metadata = (moved / "_metadata").read_bytes()
    (moved / "_metadata").write_bytes(metadata.replace(b"\x00\x06opaque", b"\x00\x07renamed"))
    for first, second, expected in (
        (raw, moved, []), (raw, other, ["changed"]), (plain, raw, ["added"]),
        (raw, plain, ["removed"]),
    ):  # fmt: skip
        found = sl.diff(first, second)
        untabled = [each for each in found if each.state == "(raw)"]
        assert [each.status for each in untabled] == expected
        assert found.same is not bool(expected)
    assert untabled[0].bytes_before > 0 == untabled[0].bytes_after
    assert run("diff", raw, moved, "--fail-on-diff").code == 0
    assert run("diff", raw, other, "--fail-on-diff").code == 1


def test_the_same(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What both snapshots share is not even opened."""
    import_golden(lake, ("a", WINDOWS))
    import_as(lake, WINDOWS, "b", "orders")

    def never(_: object) -> StateDifference:
        raise AssertionError

    monkeypatch.setattr(diffing, "_compare_groups", never)
    for later in ("a", "b"):
        found = diff(lake, "a", later)
        assert len(found) == 6
        assert {counts(difference) for difference in found.values()} == {("same", 0, 0, 0)}


def test_only_differing_key_groups_are_opened(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference in one key group costs reading that one."""
    group = entries(WORDS)[open_snapshot(WORDS).operator("counter").operator_id, "count"][0][0]
    change = ("counter/count", f"key_group = {group}", {"value": "0"})
    later = edited_savepoint(WORDS, tmp_path / "later", change)
    import_golden(lake, ("a", WORDS), partitions=128)
    import_as(lake, later, "b", partitions=128)
    opened = []
    real = diffing._compare_groups

    def watched(task: Any) -> StateDifference:
        opened.append((task.key_groups.first, task.key_groups.last))
        return real(task)

    monkeypatch.setattr(diffing, "_compare_groups", watched)
    assert diff(lake, "a", "b")["counter/count"].changed > 0
    assert opened == [(group, group)]


@pytest.mark.parametrize("max_parallelism", [64, 1000])
@pytest.mark.full
def test_another_max_parallelism(max_parallelism: int, lake: Catalog, tmp_path: Path) -> None:
    """Keys that only moved to other key groups are the same; what changed beside is found."""
    import_golden(lake, ("a", KINDS))
    exported(lake, "a", tmp_path / "moved", max_parallelism=max_parallelism)
    import_as(lake, tmp_path / "moved", "b")
    assert {counts(difference) for difference in diff(lake, "a", "b").values()} == {
        ("same", 0, 0, 0)
    }
    change = ("kinds/total", "key < 10", {"value": "value - 1"})
    later = edited_savepoint(KINDS, tmp_path / "later", change)
    import_as(lake, later, "c")
    found = diff(lake, "c", "b")
    wanted = expected(later, KINDS)
    assert wanted["kinds/total"][2] > 0
    assert {name: counts(difference)[1:] for name, difference in found.items()} == wanted


def assert_examples(difference: StateDifference, change: str, place: str, entries: int) -> None:
    """As many rows as there are, up to three, each another one and with all its columns."""
    assert len(difference.examples) == min(3, entries)
    assert [example.keys() for example in difference.examples] == [{"change", place}] * len(
        difference.examples
    )
    assert {example["change"] for example in difference.examples} <= {change}
    rows = [example[place] for example in difference.examples]
    assert all({"key_group", "key"} <= row.keys() for row in rows)
    assert len({repr(row) for row in rows}) == len(rows)


def test_states_that_come_and_go(lake: Catalog) -> None:
    """An operator that only one snapshot has is added or removed with all that it holds."""
    import_golden(lake, ("a", WORDS))
    import_as(lake, WINDOWS, "b")
    found = diff(lake, "a", "b")
    assert counts(found["counter/count"]) == ("removed", 0, 300, 0)
    windows = lake.snapshot("orders", "b")
    for operator in windows.operators:
        for state in operator.states:
            one = found[f"{operator.label}/{state.name}"]
            assert counts(one) == ("added", state.entries, 0, 0)
            assert_examples(one, "added", "after", state.entries)
    assert_examples(found["counter/count"], "removed", "before", 300)
    assert all(not difference.examples for difference in diff(lake, "a", "b", examples=0).values())


def test_another_type(lake: Catalog) -> None:
    """Entries of different types are not compared one by one."""
    record = import_as(lake, WORDS, "a")
    (operator,) = record.operators
    states = [replace(state, value_type="String") for state in operator.states]
    other = replace(record, snapshot_id="b", operators=[replace(operator, states=states)])
    add_row(lake, other)
    assert counts(diff(lake, "a", "b")["counter/count"]) == ("retyped", 300, 300, 0)


def test_fields_that_come_and_go(lake: Catalog) -> None:
    """A class with other fields is the same type still, and its values are compared."""
    import_as(lake, golden("pojo-rocksdb-canonical-p2-m128-flink2.3.0").snapshot, "a")
    states = [op_state for op in lake.snapshot("orders", "a").operators for op_state in op.states]
    (state,) = (state for state in states if state.name == "customer")
    old = value_snapshot(read_state_meta_info(DataInput(state.meta_info)))
    assert isinstance(old, PojoSerializerSnapshot)
    fields = {
        field.name: field.value.snapshot for field in old.pojo.fields if field.value is not None
    }
    del fields["tags"]
    new = PojoSerializerSnapshot.of(old.pojo.java_class, fields)
    change = ValueChange("customers", "customer", new)
    migrate_snapshot(ChildSnapshot(lake, "orders", "a", "b", engine=LOCAL), change)
    found = diff(lake, "a", "b")
    one = found.pop("customers/customer")
    assert counts(one) == ("changed", 0, 0, state.entries)
    for example in one.examples:
        before, after = example["before"]["value"], example["after"]["value"]
        assert after == {name: value for name, value in before.items() if name != "tags"}
    assert {counts(each) for each in found.values()} == {("same", 0, 0, 0)}


def test_what_is_not_there(lake: Catalog) -> None:
    """An unknown snapshot is named, whichever side it is on."""
    import_golden(lake, ("a", WORDS))
    for pair in (("a", "x"), ("x", "a")):
        with pytest.raises(NotFoundError, match="no snapshot 'x'; its latest are: a"):
            diff(lake, *pair)


def test_operator_states_that_come_and_go(lake: Catalog) -> None:
    """Those without keys have examples too: elements with their subtask, entries with their key."""
    import_golden(lake, ("a", WORDS))
    record = import_as(lake, golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot, "b")
    for found, change, place in (
        (diff(lake, "a", "b"), "added", "after"),
        (diff(lake, "b", "a"), "removed", "before"),
    ):
        states = [(op.label, state) for op in record.operators for state in op.operator_states]
        assert states
        for label, state in states:
            one = found[f"{label}/{state.name}"]
            assert one.status == change
            assert len(one.examples) == min(3, state.elements)
            for example in one.examples:
                assert example["change"] == change
                assert "value" in example[place]


def test_files_that_were_not_read_are_told(lake: Catalog, tmp_path: Path) -> None:
    """Those that the catalog says are equal, of both snapshots; what damages one is not seen."""
    group = entries(WORDS)[open_snapshot(WORDS).operator("counter").operator_id, "count"][0][0]
    change = ("counter/count", f"key_group = {group}", {"value": "0"})
    later = edited_savepoint(WORDS, tmp_path / "later", change)
    import_golden(lake, ("a", WORDS), partitions=8)
    import_as(lake, later, "b", partitions=8)
    found = diff_snapshots(lake, "orders", "a", "b", engine=LOCAL)
    before, after = (
        {
            f"{table.path}/{unit.path}": unit
            for operator in lake.snapshot("orders", name).operators
            for table in operator.keyed_tables
            for unit in table.units
        }
        for name in ("a", "b")
    )
    read = set(before.keys() ^ after.keys())
    assert found.unread == {
        path: unit.size for path, unit in (before | after).items() if path not in read
    }
    assert read
    said = f"{len(found.unread)} files"
    assert [line for line in map(str, found.lines()) if line.startswith(said)]
    alone = diff_snapshots(lake, "orders", "a", "a", engine=LOCAL)
    assert alone.unread.keys() == before.keys()
    assert "`statelake lake check`" in str([*alone.lines()][-1])
