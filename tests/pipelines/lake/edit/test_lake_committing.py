"""Commits: edited tables become a snapshot that exports as changed, or are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import CommitResult, commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.state_core.errors import (
    ConflictError,
    EncodeError,
    KeyGroupError,
    LakeError,
    NotFoundError,
    StateError,
    UnreadableTableError,
)
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.measure import measure_operator
from statelake.state_core.model.snapshot import StateKind
from tests.support.lakes import (
    KINDS,
    LOCAL,
    WIDE,
    WORDS,
    assert_shown,
    assert_whole,
    edit,
    edited_savepoint,
    entries,
    exported,
    import_as,
    import_golden,
    kept_files,
    sorted_rows,
)

pytestmark = pytest.mark.thinned(2)

COUNTS = "orders/keyed/counter/count"
ALICE, WIDE_ALICE = 116, 244  # her key groups of 128 and 1,024


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with `WORDS` as the snapshot `monday` of job `orders`, a file a key group."""
    return import_golden(Catalog(tmp_path / "lake"), ("monday", WORDS), partitions=128)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a lake with `KINDS` lies."""
    root = tmp_path_factory.mktemp("kinds") / "lake"
    import_as(Catalog(root), KINDS, "monday", partitions=8)
    return root


def commit(lake: Catalog, snapshot_id: str = "edited", parent: str = "monday") -> CommitResult:
    """Commit the tables of job `orders`, here."""
    return commit_snapshot(
        ChildSnapshot(lake, "orders", parent, snapshot_id, note="why", engine=LOCAL)
    )


def counts(snapshot: Snapshot) -> dict[str, int]:
    """The words of a savepoint and their counts."""
    rows = snapshot.operator("counter").state("count").to_arrow()
    return dict(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))


def append(lake: Catalog, **values: Any) -> None:
    """Put a row more into the table of counts, like one that is there but for some columns.

    Unless it is given, the bucket is the key group, as it is of 128.
    """
    if "key_group" in values:
        values = {"key_group_bucket": values["key_group"], **values}
    table = edit(lake, COUNTS)
    row = table.to_pyarrow_table().slice(0, 1)
    for name, value in values.items():
        at = row.schema.get_field_index(name)
        row = row.set_column(at, row.schema.field(name), pa.array([value], row.schema.types[at]))
    write_deltalake(table, row, mode="append")


def test_an_edit(lake: Catalog, tmp_path: Path) -> None:
    """A value, a deletion and a new key: just these are in the export; the parent is as before."""
    before = counts(open_snapshot(WORDS))
    first, second = sorted(before)[:2]
    edit(lake, COUNTS).update({"value": "value + 1000"}, predicate=f"key = '{first}'")
    edit(lake, COUNTS).delete(f"key = '{second}'")
    append(lake, key="alice", key_group=ALICE, value=7)
    assert commit(lake).changed == {"counter/count": (300, 300)}
    exported(lake, "edited", tmp_path / "edited")
    wanted = before | {first: before[first] + 1000, "alice": 7}
    del wanted[second]
    assert counts(open_snapshot(tmp_path / "edited")) == wanted
    assert exported(lake, "monday", tmp_path / "monday") == entries(WORDS)
    assert_whole(lake)
    assert_shown(lake, "edited")


def test_what_the_catalog_says(lake: Catalog, tmp_path: Path) -> None:
    """Lineage and note; counts as they are now; only touched key groups were written."""
    edit(lake, COUNTS).delete("key_group < 4")
    edit(lake, COUNTS).update({"value": "value + 1"}, predicate="key_group = 90")
    made = commit(lake).record
    parent = lake.snapshot("orders", "monday")
    assert lake.snapshot("orders", "edited") == made
    assert (made.parent, made.origin, made.note) == ("monday", "commit", "why")
    assert (made.digest, made.source, made.taken_at) == (
        parent.digest,
        parent.source,
        parent.taken_at,
    )
    assert made.imported_at > parent.imported_at
    exported(lake, "edited", tmp_path / "edited")
    for operator in open_snapshot(tmp_path / "edited").operators:
        measured = measure_operator(operator) if operator.keyed_states else {}
        for name, (held, sizes) in measured.items():
            (state,) = (s for op in made.operators for s in op.states if s.name == name)
            found = [
                (key_group.key_group, key_group.entries, key_group.state_bytes)
                for key_group in state.key_groups
            ]
            assert found == [(g, held[g], sizes[g]) for g in held.nonzero()[0].tolist()]
    old, new = (
        {u.first: u for u in record.operators[0].tables[0].units} for record in (parent, made)
    )
    assert set(old) - set(new) == {group for group in old if group < 4}
    assert {group for group in new if new[group] != old[group]} == {90}
    assert made.written_bytes == new[90].size


def test_nothing_was_edited(lake: Catalog, tmp_path: Path) -> None:
    """The new snapshot is the old one under another name, at no cost."""
    made = commit(lake)
    assert made.changed == {}
    assert made.record.written_bytes == 0
    assert made.record.operators == lake.snapshot("orders", "monday").operators
    assert exported(lake, "edited", tmp_path / "out") == entries(WORDS)


def test_an_edit_that_was_undone(lake: Catalog) -> None:
    """A table that was put back is as the parent has it."""
    edit(lake, COUNTS).delete("key_group < 100")
    edit(lake, COUNTS).restore(0)
    assert commit(lake).changed == {}
    assert_shown(lake, "monday")


def test_one_commit_upon_another(lake: Catalog, tmp_path: Path) -> None:
    """Each has what was edited before it, and nothing that came later."""
    edit(lake, COUNTS).delete("key_group < 50")
    commit(lake, "one", "monday")
    edit(lake, COUNTS).delete("key_group > 99")
    commit(lake, "two", "one")
    wanted = entries(WORDS)
    for name, groups in (("one", range(50, 128)), ("two", range(50, 100))):
        found = exported(lake, name, tmp_path / name)
        assert found == {
            state: [row for row in held if row[0] in groups] for state, held in wanted.items()
        }
    assert lake.snapshot("orders", "two").parent == "one"


def test_all_rows_deleted(lake: Catalog, tmp_path: Path) -> None:
    """A state without entries is a state still."""
    edit(lake, COUNTS).delete()
    assert commit(lake).changed == {"counter/count": (300, 0)}
    found = exported(lake, "edited", tmp_path / "out")
    assert [held for (_, state), held in found.items() if state == "count"] == [[]]


def test_wide_tables(tmp_path: Path) -> None:
    """Where key groups share buckets an edit writes its bucket again, and the rest stays."""
    lake = Catalog(tmp_path / "lake")
    parent = import_as(lake, WIDE, "monday", partitions=128)
    before = counts(open_snapshot(WIDE))
    word = min(before)
    edit(lake, COUNTS).update({"value": "-1"}, predicate=f"key = '{word}'")
    append(lake, key="alice", key_group=WIDE_ALICE, key_group_bucket=WIDE_ALICE // 8, value=7)
    made = commit(lake).record
    old, new = (
        {u.first: u for u in record.operators[0].tables[0].units} for record in (parent, made)
    )
    assert len([group for group in new if new[group] != old.get(group)]) == 2
    exported(lake, "edited", tmp_path / "out")
    assert counts(open_snapshot(tmp_path / "out")) == before | {word: -1, "alice": 7}


@pytest.mark.full
def test_a_customer_is_erased(kinds: Path, tmp_path: Path) -> None:
    """One key's rows are deleted from every table, timers too: no trace of it in the savepoint."""
    shutil.copytree(kinds, tmp_path / "lake")
    lake = Catalog(tmp_path / "lake")
    before = open_snapshot(KINDS).operator("kinds")
    states = [keyed_state for keyed_state in before.keyed_states if keyed_state.to_arrow().num_rows]
    held = [set(state.to_arrow().column("key").to_pylist()) for state in states]
    customer = min(set.intersection(*held))
    for path in {state.table for operator in lake.snapshot("orders", "monday").operators
                 for state in operator.states}:  # fmt: skip
        edit(lake, path).delete(f"key = {customer}")
    commit(lake)
    exported(lake, "edited", tmp_path / "out", parallelism=4)
    after = open_snapshot(tmp_path / "out").operator("kinds")
    assert any(state.kind is StateKind.TIMERS for state in states)
    for state in states:
        wanted, found = state.to_arrow(), after.state(state.name).to_arrow()
        wanted = wanted.filter(pc.not_equal(wanted.column("key"), customer))
        assert len(wanted) < len(state.to_arrow())
        names = wanted.schema.names
        assert sorted_rows(found, names) == sorted_rows(wanted, names)


def overwrite(lake: Catalog, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the table of counts anew, with other columns."""
    table = edit(lake, COUNTS)
    changed = change(table.to_pyarrow_table())
    write_deltalake(table, changed, mode="overwrite", schema_mode="overwrite")


def with_type(kind: pa.DataType) -> Callable[[Catalog], None]:
    """Give the counts another type."""

    def change(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("value")
        return rows.set_column(at, "value", rows.column("value").cast(kind))

    return lambda lake: overwrite(lake, change)


def log(*actions: dict[str, Any]) -> Callable[[Catalog], None]:
    """Add a version with these actions to the table's log, as another engine would."""

    def write(lake: Catalog) -> None:
        version = edit(lake, COUNTS).version() + 1
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        lake.table(COUNTS).directory.write(f"_delta_log/{version:020d}.json", lines.encode())

    return write


def protocol(reader: int, *features: str) -> dict[str, Any]:
    """The action that asks a reader for more than this one can."""
    asked: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": 7 if features else 5}
    if features:
        asked |= {"readerFeatures": list(features), "writerFeatures": list(features)}
    return {"protocol": asked}


REFUSED: dict[str, tuple[Callable[[Catalog], object], type[StateError], str]] = {
    "a key outside its key group": (
        lambda lake: append(lake, key="alice", key_group=5),
        KeyGroupError,
        r"counter/count, key groups 5.*'alice' is in key group 5, but its hash is of key group 116",
    ),
    "a row that was moved": (
        lambda lake: edit(lake, COUNTS).update({"key_group": "7"}, predicate="key_group = 8"),
        KeyGroupError,
        r"4 rows in the partition of key groups 8-8 are of another",
    ),
    "a row that was moved, and its bucket": (
        lambda lake: edit(lake, COUNTS).update(
            {"key_group": "7", "key_group_bucket": "7"}, predicate="key_group = 8"
        ),
        KeyGroupError,
        r"key groups 7.*is in key group 7, but its hash is of key group 8",
    ),
    "a key group that there is not": (
        lambda lake: append(lake, key="alice", key_group=500),
        KeyGroupError,
        r"count: rows whose key_group_bucket is 500, and it goes from 0 to 127; a row must keep",
    ),
    "a negative key group": (
        lambda lake: append(lake, key="alice", key_group=-3),
        KeyGroupError,
        r"rows whose key_group_bucket is -3",
    ),
    "a key twice": (
        lambda lake: append(lake, value=1),
        EncodeError,
        r"counter/count, key groups \d+.*state 'count' has key '.*' more than once; keep one row",
    ),
    "a key that is null": (
        lambda lake: append(lake, key=None, key_group=94),
        EncodeError,
        r"counter/count, key groups 94.*state 'count' has a key that is null",
    ),
    "a value that is null": (
        lambda lake: append(lake, key="alice", key_group=ALICE, value=None),
        EncodeError,
        r"counter/count, key groups 116",
    ),
    "a column dropped": (
        lambda lake: overwrite(lake, lambda rows: rows.drop_columns("value")),
        LakeError,
        r"column 'value' was dropped, but the state has int64; change values, not columns",
    ),
    "a column added": (
        lambda lake: overwrite(lake, lambda rows: rows.append_column("x", rows.column("key"))),
        LakeError,
        r"column 'x' was added, but the state has no place for it",
    ),
    "numbers as text": (
        with_type(pa.string()),
        LakeError,
        r"column 'value' is string now, but the state has int64.*statelake migrate",
    ),
    "smaller numbers": (with_type(pa.int32()), LakeError, r"column 'value' is int32 now"),
    "deletion vectors": (
        log(protocol(3, "deletionVectors")),
        UnreadableTableError,
        r"the table uses deletionVectors.*REORG TABLE",
    ),
    "column mapping by feature": (
        log(protocol(3, "columnMapping")),
        UnreadableTableError,
        r"the table uses columnMapping",
    ),
    "column mapping by version": (
        log(protocol(2)),
        UnreadableTableError,
        r"the table uses columnMapping",
    ),
    "no table": (
        lambda lake: lake.table(COUNTS).directory.delete_tree(),
        LakeError,
        r"counter/count: no Delta table",
    ),
}


@pytest.mark.parametrize(("change", "kind", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(
    change: Callable[[Catalog], object], kind: type[StateError], message: str, lake: Catalog
) -> None:
    """An edit that Flink could not restore is named with its place; the lake is as it was."""
    change(lake)
    before = kept_files(lake)
    with pytest.raises(kind, match=message):
        commit(lake)
    assert kept_files(lake) == before
    assert [summary.snapshot_id for summary in lake.summaries()] == ["monday"]


@pytest.mark.parametrize(
    ("snapshot_id", "parent", "kind", "message"),
    [
        ("edited", "sunday", NotFoundError, "no snapshot 'sunday'; its latest are: monday"),
        ("monday", "monday", ConflictError, "has a snapshot 'monday' already"),
        ("", "monday", LakeError, "a snapshot needs a name"),
    ],
)
def test_names_that_are_refused(
    snapshot_id: str, parent: str, kind: type[StateError], message: str, lake: Catalog
) -> None:
    """The parent must be there, and the new id must not."""
    before = kept_files(lake)
    with pytest.raises(kind, match=message):
        commit(lake, snapshot_id, parent)
    assert kept_files(lake) == before


def test_an_edit_of_another_snapshot(lake: Catalog, tmp_path: Path) -> None:
    """Edits of Tuesday's tables are none of Monday's; restored to Monday's version they are."""
    change = ("counter/count", "key_group < 9", {"value": "value + 1"})
    import_as(lake, edited_savepoint(WORDS, tmp_path / "tuesday", change), "tuesday")
    edit(lake, COUNTS).delete("key_group > 99")
    message = r"after its version 0 come 1 \(of snapshot .tuesday.\).*RESTORE TABLE"
    with pytest.raises(ConflictError, match=message):
        commit(lake)
    edit(lake, COUNTS).restore(0)
    edit(lake, COUNTS).delete("key_group < 120")
    commit(lake)
    wanted = {name: [row for row in held if row[0] >= 120] for name, held in entries(WORDS).items()}
    assert exported(lake, "edited", tmp_path / "out") == wanted
    assert exported(lake, "tuesday", tmp_path / "out2") == entries(tmp_path / "tuesday")


@pytest.mark.full
def test_a_fault_in_one_table_does_not_spoil_another(kinds: Path, tmp_path: Path) -> None:
    """After the fault is mended the same edits are committed, those of other tables too."""
    shutil.copytree(kinds, tmp_path / "lake")
    lake = Catalog(tmp_path / "lake")
    tables = ["name", "total", "session"]
    paths = [f"orders/keyed/kinds/{name}" for name in tables]
    edit(lake, paths[0]).delete("key_group < 64")
    wrong = edit(lake, paths[1])
    before = wrong.version()
    wrong.update({"key_group": "3"}, predicate="key_group = 70")
    edit(lake, paths[2]).delete("key_group >= 64")
    for _ in range(2):
        with pytest.raises(
            KeyGroupError, match="kinds/total: 2 rows in the partition of key groups 65-79"
        ):
            commit(lake)
    edit(lake, paths[1]).restore(before)
    made = commit(lake)
    assert set(made.changed) == {"kinds/name", "kinds/session"}
    found, wanted = exported(lake, "edited", tmp_path / "out"), entries(KINDS)
    for (operator, state), held in wanted.items():
        groups = {"name": range(64, 128), "session": range(64)}.get(state, range(128))
        assert found[operator, state] == [row for row in held if row[0] in groups]
    assert_whole(lake)


def test_a_table_with_deletion_vectors_takes_the_next_import(lake: Catalog, tmp_path: Path) -> None:
    """The table's older versions stay readable, and the next snapshot is refused or whole."""
    log(protocol(3, "deletionVectors"))(lake)
    change = ("counter/count", "key_group < 9", {"value": "value + 1"})
    later = edited_savepoint(WORDS, tmp_path / "later", change)
    import_as(lake, later, "tuesday")
    assert exported(lake, "tuesday", tmp_path / "tuesday-out") == entries(later)
    assert exported(lake, "monday", tmp_path / "monday-out") == entries(WORDS)
