"""Snapshots made of others by SQL: exactly what the statements say, or nothing at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit import rewriting
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.edit_results import EditResult
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.query.session import QueryError, Session
from statelake.pipelines.lake.query.statements import PreparedStatement
from statelake.pipelines.lake.query.table_names import TableNames
from statelake.pipelines.lake.tables.data_files import DataFileWriter
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.errors import (
    ConflictError,
    KeyGroupError,
    NoMatchError,
    NotFoundError,
    StateError,
)
from tests.support.lakes import (
    DEMO,
    LOCAL,
    WORDS,
    assert_whole,
    edit,
    edited_savepoint,
    entries,
    exported,
    files_of,
    golden,
    import_as,
    import_golden,
    unit_paths,
)
from tests.support.steps import Step, end

pytestmark = pytest.mark.thinned(4)

ALICE = 116  # her key group of 128
COUNTS = "orders/keyed/counter/count"
FIRST = "DELETE FROM counter.count WHERE key_group = 1"
INSERT = "INSERT INTO counter.count (key_group, key, value)"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose job `orders` has five snapshots, `day-0` to `day-4`, each with other counts."""
    root = tmp_path_factory.mktemp("prepared")
    lake = Catalog(root / "lake")
    import_as(lake, WORDS, "day-0", partitions=8)
    for day in range(1, 5):
        change = ("counter/count", f"key_group / 16 = {day}", {"value": f"value + {day}"})
        savepoint = edited_savepoint(WORDS, root / f"sp-{day}", change)
        import_as(lake, savepoint, f"day-{day}", partitions=8)
    return root / "lake"


@pytest.fixture
def lake(prepared: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    shutil.copytree(prepared, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


def make(lake: Catalog, parent: str, snapshot_id: str, *statements: str) -> EditResult:
    """Edit a snapshot of job `orders`."""
    return edit_by_sql(ChildSnapshot(lake, "orders", parent, snapshot_id), statements)


def counts(lake: Catalog, snapshot_id: str, to: Path) -> dict[str, int]:
    """The counts by word of a snapshot, as its export has them."""
    exported(lake, snapshot_id, to)
    rows = open_snapshot(to).operator("counter").state("count").to_arrow()
    return dict(zip(*(rows.column(name).to_pylist() for name in ("key", "value")), strict=True))


class TestStatements:
    """Each does what it says."""

    def test_several(self, lake: Catalog, tmp_path: Path) -> None:
        """A deletion, a new value and a new key: just these are in the export."""
        before = counts(lake, "day-0", tmp_path / "before")
        first, second = sorted(before)[:2]
        done = make(
            lake, "day-0", "fixed",
            f"INSERT INTO counter.count (key_group, key, value) VALUES ({ALICE}, 'alice', 7)",
            f"DELETE FROM orders.counter.count WHERE key = '{first}'",
            f"UPDATE `counter`.\"count\" SET value = value + 1000 WHERE key = '{second}'; -- so",
        )  # fmt: skip
        expected = {**before, second: before[second] + 1000, "alice": 7}
        del expected[first]
        assert counts(lake, "fixed", tmp_path / "after") == expected
        assert [(c.state, c.entries) for c in done.changes] == [("count", (300, 300))]
        assert_whole(lake)

    def test_what_is_not_met_is_shared(self, lake: Catalog) -> None:
        """Only the files with rows that were met are written again."""
        word = "word-142"
        made = make(
            lake, "day-2", "fixed", f"UPDATE counter.count SET value = 0 WHERE key = '{word}'"
        )
        before = unit_paths(lake.snapshot("orders", "day-2"))
        assert len(unit_paths(made.record) - before) == 1
        assert len(before - unit_paths(made.record)) == 1

    def test_the_lineage_names_them(self, lake: Catalog) -> None:
        """Parent, origin, and in the note the statements, without their comments."""
        statement = "DELETE FROM counter.count\n WHERE key_group = 3 -- gone"
        record = edit_by_sql(
            ChildSnapshot(lake, "orders", "day-1", "fixed", note="GDPR"), [statement]
        ).record
        assert (record.parent, record.origin) == ("day-1", "edit")
        assert record.note == "GDPR: DELETE FROM counter.count WHERE key_group = ?"
        assert lake.snapshot("orders", "fixed") == record

    def test_no_note_and_no_log_has_a_literal(self, lake: Catalog) -> None:
        """Neither the key that a statement is about, nor the value that it is given."""
        statements = [
            "UPDATE counter.count SET value = 7712345 WHERE key = 'word-142'",
            "DELETE FROM counter.count WHERE key IN ('O''Brien-77123', E'O\\'Brien', $$O'Brien$$)",
        ]
        record = edit_by_sql(ChildSnapshot(lake, "orders", "day-1", "fixed"), statements[:1]).record
        assert record.note == "UPDATE counter.count SET value = ? WHERE key = ?"
        record = make(lake, "day-2", "other", f"{statements[1]} OR key = 'word-141'").record
        assert record.note == ("DELETE FROM counter.count WHERE key IN (?, ?, ?) OR key = ?")
        for path in Path(lake.directory.root).rglob("*.json"):
            assert b"Brien" not in path.read_bytes()
            assert b"7712345" not in path.read_bytes()

    @pytest.mark.full
    def test_of_other_tables_and_of_all_of_its_own(self, lake: Catalog, tmp_path: Path) -> None:
        """A subquery sees whole tables, also where the statement runs file by file."""
        before = counts(lake, "day-0", tmp_path / "before")
        mean = sum(before.values()) / len(before)
        make(
            lake, "day-0", "few",
            "DELETE FROM counter.count WHERE value <= (SELECT avg(value) FROM counter.count)",
        )  # fmt: skip
        kept = {word: count for word, count in before.items() if count > mean}
        assert counts(lake, "few", tmp_path / "after") == kept

    def test_of_every_kind_of_state(self, tmp_path: Path) -> None:
        """Maps, lists, timers, and values with time to live; the rest is to the byte as before."""
        lake = Catalog(tmp_path / "lake")
        import_as(lake, DEMO / "monday", "monday")
        key = -820795872871
        states = ("name", "items", "scores", "total", "avg", "triple", "row", "session", "timers")
        make(
            lake, "monday", "erased", *[f"DELETE FROM kinds.{s} WHERE key = {key}" for s in states]
        )
        before, after = entries(DEMO / "monday"), exported(lake, "erased", tmp_path / "sp")
        gone = {
            name: [entry for entry in held if entry not in after[name]]
            for name, held in before.items()
        }
        assert {
            name: set(held) <= set(before[name]) for name, held in after.items()
        } == dict.fromkeys(after, True)
        mark = key.to_bytes(8, "big", signed=True)
        assert all(mark in her_key for held in gone.values() for _, her_key, _ in held)
        assert not any(mark in her_key for held in after.values() for _, her_key, _ in held)

    def test_of_timers_alone(self, tmp_path: Path) -> None:
        """Columns that say which queue a timer is in are there."""
        lake = Catalog(tmp_path / "lake")
        import_as(lake, DEMO / "monday", "monday")
        done = make(lake, "monday", "no-timers", "DELETE FROM kinds.timers WHERE domain = 'event'")
        changed = {c.state: c.entries for c in done.changes}
        assert changed == {
            "_timer_state/event_user-timers": (134, 0),
            "_timer_state/processing_user-timers": (40, 40),
        }  # fmt: skip

    def test_of_operator_state(self, tmp_path: Path) -> None:
        """Elements of lists and entries of broadcast states go as rows do."""
        lake = Catalog(tmp_path / "lake")
        import_as(lake, golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot, "monday")
        done = make(
            lake, "monday", "fixed", "DELETE FROM opstate.split WHERE value < 10",
            "UPDATE opstate.union SET value = value || '!'"
            if "VARCHAR" in kind_of(lake, "opstate.union") else
            "UPDATE opstate.union SET value = value + 1",
        )  # fmt: skip
        changed = {c.state: c.entries for c in done.changes}
        assert changed["split"][1] < changed["split"][0]
        assert changed["union"][1] == changed["union"][0]
        exported(lake, "fixed", tmp_path / "sp")


def kind_of(lake: Catalog, table: str) -> str:
    """The SQL type of a table's values."""
    with Session(lake, TableNames(lake, job="orders")) as session:
        (batch,) = session.query(f"SELECT typeof(any_value(value)) FROM {table}").batches
        return str(batch.to_pylist()[0])


class TestSeveralEditors:
    """An edit is made on a named snapshot and nothing else."""

    @pytest.mark.full
    def test_two_at_once(self, lake: Catalog, tmp_path: Path) -> None:
        """Each gets exactly its own edits."""

        def work(day: str) -> EditResult:
            statement = f"UPDATE counter.count SET value = -{day[-1]} WHERE key_group < 40"
            return make(Catalog(lake.location), day, f"{day}-edited", statement)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, ["day-1", "day-3"]))
        for day in ("day-1", "day-3"):
            before = entries_by_group(lake, day, tmp_path / day)
            after = entries_by_group(lake, f"{day}-edited", tmp_path / f"{day}-edited")
            assert after.keys() == before.keys()
            for group, words in after.items():
                expected = {word: -int(day[-1]) for word in words} if group < 40 else before[group]
                assert words == expected
        assert_whole(lake)

    @pytest.mark.full
    def test_the_oldest_of_five(self, lake: Catalog, tmp_path: Path) -> None:
        """All others are as they were, to the byte."""
        before = {
            f"day-{day}": exported(lake, f"day-{day}", tmp_path / f"{day}") for day in range(5)
        }
        records = [lake.snapshot("orders", name) for name in before]
        make(lake, "day-0", "fixed", "DELETE FROM counter.count WHERE key_group > 20")
        assert [lake.snapshot("orders", name) for name in before] == records
        for name, held in before.items():
            assert exported(lake, name, tmp_path / f"again-{name}") == held
        with Session(lake, TableNames(lake, as_of="day-4", job="orders")) as session:
            (batch,) = session.query("SELECT count(*) AS n FROM counter.count").batches
            assert batch.to_pylist() == [{"n": 300}]

    def test_edits_of_the_newest_tables_stay_out(self, lake: Catalog, tmp_path: Path) -> None:
        """What somebody did to a table, and has not committed, is none of the edit's."""
        edit(lake, COUNTS).delete("key_group < 100")
        make(lake, "day-4", "fixed", "DELETE FROM counter.count WHERE key = 'word-142'")
        before = counts(lake, "day-4", tmp_path / "before")
        del before["word-142"]
        assert counts(lake, "fixed", tmp_path / "after") == before


def entries_by_group(lake: Catalog, snapshot_id: str, to: Path) -> dict[int, dict[str, int]]:
    """Counts by key group and word."""
    exported(lake, snapshot_id, to)
    rows = open_snapshot(to).operator("counter").state("count").to_arrow().to_pylist()
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["key_group"], {})[row["key"]] = row["value"]
    return found


STEPS: dict[str, Step] = {
    "noted": (rewriting.TableRewriter, "rewrite_table", "before", 1),
    "a unit changed": (PreparedStatement, "change", "after", 3),
    "no file": (DataFileWriter, "_create", "before", 1),
    "two files": (DataFileWriter, "_create", "after", 2),
    "checked": (KeyGroupLayout, "validate", "after", 1),
    "no version": (StateTable, "replace_files", "before", 1),
    "a version": (StateTable, "replace_files", "after", 1),
    "no row": (Attempt, "commit", "before", 1),
}


@pytest.mark.thinned(8)
@pytest.mark.parametrize("way", ["error", "death"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_killed_at_every_step(step: Step, way: str, lake: Catalog, tmp_path: Path) -> None:
    """Nothing is half-edited: no snapshot, no file that stays, and the next try succeeds."""
    before = [summary.snapshot_id for summary in lake.summaries()]
    statements = [
        f"INSERT INTO counter.count (key_group, key, value) VALUES ({ALICE}, 'alice', 7)",
        "UPDATE counter.count SET value = -1 WHERE key_group < 40",
    ]
    end(lambda: make(lake, "day-1", "fixed", *statements), step, way)
    assert [summary.snapshot_id for summary in lake.summaries()] == before
    assert_whole(lake, orphans=way == "death")
    make(lake, "day-1", "fixed", *statements)
    assert_whole(lake)
    before_edit = entries_by_group(lake, "day-1", tmp_path / "day-1")
    expected = {
        word: -1 if group < 40 else count
        for group, words in before_edit.items()
        for word, count in words.items()
    }
    assert counts(lake, "fixed", tmp_path / "fixed") == expected | {"alice": 7}


class TestRefused:
    """Clear errors, and nothing half-written."""

    @pytest.fixture
    def lake(self, tmp_path: Path) -> Catalog:
        """Two of the snapshots, in few files."""
        imports = [(name, WORDS) for name in ("day-1", "day-2")]
        return import_golden(Catalog(tmp_path / "lake"), *imports, partitions=8)

    @pytest.mark.parametrize(
        ("statements", "kind", "message"),
        [
            (["DELETE FROM counter.count WHERE key = 'x'"], NoMatchError, "no row of day-1 is met"),
            (["UPDATE counter.count SET key = 'x' WHERE key = 'word-142'"], KeyGroupError, "hash"),
            (["UPDATE counter.count SET key_group = 3 WHERE key_group = 5"], KeyGroupError, ""),
            ([f"{INSERT} VALUES (3, 'alice', 7)"], KeyGroupError, "its hash says 116"),
            ([f"{INSERT} VALUES (999, 'alice', 7)"], KeyGroupError, "999"),
            (["INSERT INTO counter.count (value) VALUES (7)"], QueryError, r"key_group\(key"),
            (["INSERT INTO counter.count FROM counter.count"], StateError, "more than once"),
            (["DELETE FROM counter.nope"], NotFoundError, "tables are: orders.counter.count"),
            (["DELETE FROM counter.count WHERE nope = 1"], QueryError, "has key_group, key"),
            (["UPDATE counter.count SET value = nope(value)"], QueryError, "nope"),
            (["UPDATE counter.count SET value = 'many'"], QueryError, "Could not convert"),
            (["SELECT 1"], QueryError, "SELECT changes no rows here"),
            (["DROP TABLE counter.count"], QueryError, "DROP changes no rows here"),
            (["DELETE FROM counter.count; DELETE FROM counter.count"], QueryError, "2 statements"),
            (["DELETE FROM counter.count@all"], QueryError, "of all snapshots"),
            (["WITH x AS (SELECT 1) DELETE FROM counter.count"], QueryError, "does not begin with"),
            ([FIRST, "DELETE FROM counter.count WHERE value < (SELECT 5 FROM counter.count)"],
             QueryError, "statement 2 leans on what statement 1 makes"),
            ([FIRST, f"{INSERT} VALUES (1, 'a', 1)"], QueryError, "statement 2 leans on"),
        ],
    )  # fmt: skip
    def test_statements(
        self, lake: Catalog, statements: list[str], kind: type[StateError], message: str
    ) -> None:
        """What is wrong, and nothing in the lake changes but logs of what was taken back."""
        before = {
            name: content
            for name, content in files_of(Path(lake.location)).items()
            if "_delta_log" not in name
        }
        with pytest.raises(kind, match=message or None):
            make(lake, "day-1", "fixed", *statements)
        after = files_of(Path(lake.location))
        assert {
            name: content for name, content in after.items() if "_delta_log" not in name
        } == before
        assert_whole(lake)

    def test_ids(self, lake: Catalog) -> None:
        """Of snapshots that are there, or are not."""
        with pytest.raises(ConflictError, match="has a snapshot 'day-2' already"):
            make(lake, "day-1", "day-2", "DELETE FROM counter.count WHERE key_group = 1")
        with pytest.raises(NotFoundError, match="no snapshot 'nope'"):
            make(lake, "nope", "fixed", "DELETE FROM counter.count")


class TestCommits:
    """`commit` takes what was made of the parent alone."""

    def test_an_edit_that_emptied_whole_files(self, lake: Catalog) -> None:
        """A commit that wrote no version of its own is still another snapshot's."""
        edit(lake, COUNTS).delete("key_group = 1")
        commit_snapshot(ChildSnapshot(lake, "orders", "day-4", "erased", engine=LOCAL))
        with pytest.raises(ConflictError, match=r"not made of day-4 alone: .*of snapshot 'erased'"):
            commit_snapshot(ChildSnapshot(lake, "orders", "day-4", "again", engine=LOCAL))

    def test_an_edit_of_another_snapshot(self, lake: Catalog) -> None:
        """Versions, and whose they are, are named, with what to do instead."""
        make(lake, "day-0", "fixed", "DELETE FROM counter.count WHERE key_group = 1")
        edit(lake, COUNTS).delete("key_group = 2")
        message = r"of snapshot 'fixed'.*statelake sql --edit day-4 --as"
        with pytest.raises(ConflictError, match=message):
            commit_snapshot(ChildSnapshot(lake, "orders", "day-4", "again", engine=LOCAL))


def _import(lake: Catalog, number: int) -> None:
    import_as(lake, WORDS, f"s{number}")


def _rename(lake: Catalog, number: int) -> None:
    change = SnapshotEdit(rename_uid={operators(lake)[0]: f"uid-{number}"})
    edit_snapshot(ChildSnapshot(lake, "orders", newest(lake), f"s{number}", engine=LOCAL), change)


def _sql_edit(lake: Catalog, number: int) -> None:
    statement = (
        f"UPDATE `{operators(lake)[0]}`.count SET value = value + 1 WHERE key_group = {number}"
    )
    make(lake, newest(lake), f"s{number}", statement)


def _edit_of_the_first(lake: Catalog, number: int) -> None:
    make(lake, "s0", f"s{number}", "UPDATE counter.count SET value = 1 WHERE key_group < 64")


def _other_tools(lake: Catalog, number: int) -> None:
    edit(lake, COUNTS).delete(f"key_group = {number}")


def _restored_and_committed(lake: Catalog, number: int) -> None:
    parent = lake.snapshot("orders", "s0")
    (table,) = [t for op in parent.operators for t in op.tables if t.path == COUNTS]
    if edit(lake, COUNTS).version() > table.version:
        edit(lake, COUNTS).restore(table.version)
    edit(lake, COUNTS).delete(f"key_group = {number + 20}")
    commit_snapshot(ChildSnapshot(lake, "orders", "s0", f"s{number}", engine=LOCAL))


def newest(lake: Catalog) -> str:
    """The id of the newest snapshot."""
    return lake.summaries("orders")[-1].snapshot_id


def operators(lake: Catalog) -> list[str]:
    """How the operator with the words is called in the newest snapshot."""
    record = lake.snapshot("orders", newest(lake))
    return [
        operator.label
        for operator in record.operators
        if any(s.name == "count" for s in operator.states)
    ]


ACTIONS: list[Callable[[Catalog, int], None]] = [
    _import, _rename, _sql_edit, _edit_of_the_first, _other_tools, _restored_and_committed,
]  # fmt: skip


@pytest.mark.full  # each step of its histories has a test of its own in every run
@settings(
    max_examples=5, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    history=st.lists(st.sampled_from(ACTIONS), max_size=4),
    at=st.integers(0, 4),
)
def test_the_recipe_works_after_any_history(
    history: list[Callable[[Catalog, int], None]],
    at: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever was done before: of the snapshot that is named just the person goes."""
    folder = tmp_path_factory.mktemp("history")
    lake = Catalog(folder / "lake")
    import_as(lake, WORDS, "s0")
    for number, action in enumerate(history, 1):
        action(lake, number)
    ids = [summary.snapshot_id for summary in lake.summaries("orders")]
    tuesday = ids[at % len(ids)]
    (operator,) = [
        operator.label for operator in lake.snapshot("orders", tuesday).operators
        if any(state.name == "count" for state in operator.states)
    ]  # fmt: skip
    before = exported(lake, tuesday, folder / "before")
    make(lake, tuesday, "erased", f"DELETE FROM `{operator}`.count WHERE key = 'word-142'")
    after = exported(lake, "erased", folder / "after")
    for name, held in before.items():
        gone = [entry for entry in held if entry not in after[name]]
        assert [entry for entry in held if b"word-142" not in entry[1]] == after[name]
        assert all(b"word-142" in key for _, key, _ in gone)
    assert_whole(lake, orphans=True)
