"""Operator state of evolving types: migrated as real Flink does it.

The savepoints are those of `EvolvingOperators.java`; what is compared with is what Flink printed.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake import (
    NewKeyedState,
    NewOperator,
    NewOperatorState,
    open_snapshot,
    write_snapshot,
)
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.change.migrations import migrate_one, preview_migration
from statelake.pipelines.lake.edit import rewriting
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import ImportResult
from statelake.pipelines.lake.tables import operator_tables
from statelake.pipelines.lake.tables.records import (
    SnapshotRecord,
)
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.state_core.errors import IncompatibleError, NotFoundError, StateError
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.snapshot import OperatorState
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.lakes import LOCAL, assert_whole, edit, golden, import_as, kept_files
from tests.support.savepoints.evolving_operators import (
    MIGRATED_HOLDERS,
    NEW_HOLDERS,
    OLD_HOLDERS,
    REFUSED_HOLDERS,
    judged,
    old_job_lake,
    recorded,
    subtask_lines,
)
from tests.support.savepoints.evolving_savepoints import evolving_savepoint
from tests.support.savepoints.held_by_snapshots import encoded
from tests.support.savepoints.operator_contents import copies, state_of
from tests.support.serializers.serializer_columns import write

JOB = "orders"
RULES = golden("operator-hashmap-canonical-snappy-p3-m128-flink2.3.0")


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake with the old job's savepoint."""
    return old_job_lake(tmp_path)


def change(state: str, spec: Any, expressions: Any = (), operator: str = "holders") -> ValueChange:
    """What is to become of a state, as `statelake migrate --to` reads it."""
    return ValueChange(operator, state, parse_type(spec), dict(expressions), spec)


def migrated(lake: Catalog, snapshot: str, types: dict[str, Any]) -> str:
    """Migrate states one after another, each in a snapshot of its own; the last one's id."""
    for state, spec in types.items():
        made = f"{snapshot}-{state}"
        migrate_snapshot(
            ChildSnapshot(lake, JOB, snapshot, made, engine=LOCAL), change(state, spec)
        )
        snapshot = made
    return snapshot


def exported(lake: Catalog, snapshot: str, to: Path, **options: Any) -> Snapshot:
    """A snapshot as a savepoint, read again."""
    export_snapshot(lake, JOB, snapshot, to, engine=LOCAL, **options)
    return open_snapshot(to)


def test_migrated_rows_are_those_of_flinks_own_migration(lake: Catalog, tmp_path: Path) -> None:
    """What was, stays; what is exported has nothing left for Flink to migrate but keys."""
    before = exported(lake, "old", tmp_path / "before")
    last = migrated(lake, "old", NEW_HOLDERS)
    made = exported(lake, last, tmp_path / "out")
    flinks = [
        {**line, "places": old["places"]}  # whose keys are no matter of ours
        for line, old in zip(MIGRATED_HOLDERS, OLD_HOLDERS, strict=True)
    ]
    assert subtask_lines(made) == flinks
    assert subtask_lines(before) == OLD_HOLDERS
    again = exported(lake, "old", tmp_path / "again")
    assert subtask_lines(again) == OLD_HOLDERS
    new = evolving_savepoint("operator-new", tmp_path / "new")
    assert judged(lake, last, new) == {
        **dict.fromkeys(NEW_HOLDERS, "compatible_as_is"),
        "places": "compatible_after_migration",
    }
    assert_whole(lake)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_was_migrated_is_redistributed(
    parallelism: int, lake: Catalog, tmp_path: Path
) -> None:
    """To the same subtasks as ever."""
    last = migrated(lake, "old", NEW_HOLDERS)
    old = exported(lake, "old", tmp_path / "old-out", parallelism=parallelism)
    new = exported(lake, last, tmp_path / "new-out", parallelism=parallelism)
    for name in ("addresses", "labels"):
        counts = [_counts(state_of(operator, name)) for operator in (old, new)]
        assert counts[0] == counts[1]
    assert len(list(copies(state_of(new, "depots")))) == parallelism


def _counts(state: OperatorState) -> Counter[int]:
    return Counter(state.to_arrow()["subtask"].to_pylist())


def test_the_catalog_counts_what_there_is_now(lake: Catalog, tmp_path: Path) -> None:
    """As many elements, at the same subtasks; and as many bytes as a new import finds."""
    last = lake.snapshot(JOB, migrated(lake, "old", NEW_HOLDERS))
    exported(lake, last.snapshot_id, tmp_path / "out")
    again = import_as(Catalog(tmp_path / "other"), tmp_path / "out", "again")
    before = lake.snapshot(JOB, "old")
    for name in NEW_HOLDERS:
        made, found = recorded(last, name), recorded(again, name)
        assert made.elements == recorded(before, name).elements == found.elements
        assert (made.state_bytes, made.subtasks) == (found.state_bytes, found.subtasks)
        assert (made.value_type, made.meta_info) == (found.value_type, found.meta_info)


def test_files_are_migrated_one_by_one(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table in many files, in many tasks, holds the same."""
    monkeypatch.setattr(operator_tables, "PIECE_BYTES", 1)
    monkeypatch.setattr(rewriting, "SLICE_BYTES", 1)
    import_as(lake, RULES.snapshot, "many")
    other = Catalog(tmp_path / "many")
    import_as(other, tmp_path / "old", "old")
    (table,) = (t for t in _tables(other.snapshot(JOB, "old")) if t.path.endswith("addresses"))
    assert len(table.units) == 2
    last = migrated(other, "old", NEW_HOLDERS)
    (table,) = (t for t in _tables(other.snapshot(JOB, last)) if t.path.endswith("addresses"))
    assert [(unit.first, unit.last) for unit in table.units] == [(0, 0), (1, 1)]
    found = subtask_lines(exported(other, last, tmp_path / "out"))
    assert [holder["addresses"] for holder in found] == [
        migrated_holder["addresses"] for migrated_holder in MIGRATED_HOLDERS
    ]
    assert_whole(other)


def _tables(record: SnapshotRecord) -> list[Any]:
    return [table for operator in record.operators for table in operator.tables]


@pytest.mark.parametrize(
    ("state", "said"), [("addresses", "zip"), ("labels", "text"), ("depots", "zip")]
)
def test_what_flink_refuses_is_refused_with_its_place(state: str, said: str, lake: Catalog) -> None:
    """And nothing is registered, or left."""
    with pytest.raises(IncompatibleError, match=said):
        migrate_snapshot(
            ChildSnapshot(lake, JOB, "old", "m", engine=LOCAL),
            change(state, REFUSED_HOLDERS[state]),
        )
    assert [summary.snapshot_id for summary in lake.summaries(JOB)] == ["old"]
    assert_whole(lake)


def test_what_is_compatible_as_it_is_is_left_alone(lake: Catalog) -> None:
    """No snapshot is made of it."""
    text = migrate_one(
        ChildSnapshot(lake, JOB, "old", "old-m", engine=LOCAL), change("places", "String")
    )
    assert (text.outcome, text.made) == ("compatible as it is", "old")


def test_a_state_that_is_not_there_is_said_with_those_that_are(lake: Catalog) -> None:
    """Operator states among them."""
    with pytest.raises(NotFoundError, match="holders/addresses, holders/labels"):
        preview_migration(lake, JOB, "old", change("nothing", "Long"))


def test_an_import_after_a_migration_takes_no_rows_over(lake: Catalog, tmp_path: Path) -> None:
    """The table has other types then, and its files others' bytes."""
    migrated(lake, "old", NEW_HOLDERS)
    import_as(lake, tmp_path / "old", "once more")
    assert subtask_lines(exported(lake, "once more", tmp_path / "out")) == OLD_HOLDERS


def test_a_migrated_table_is_edited_like_any_other(lake: Catalog, tmp_path: Path) -> None:
    """Its new columns too."""
    last = migrated(lake, "old", NEW_HOLDERS)
    edit(lake, recorded(lake.snapshot(JOB, last), "depots").table).delete("key <> 'depot-1'")
    commit_snapshot(ChildSnapshot(lake, JOB, last, "edited", engine=LOCAL))
    (one, other) = copies(state_of(exported(lake, "edited", tmp_path / "out"), "depots"))
    assert one == other
    assert one["depot-1"]["country"] is None
    assert list(one) == ["depot-1"]


# -------------------------------------------------------------------------- copies that differ


def disagreeing_savepoint(lake: Catalog, to: Path) -> Path:
    """The old savepoint, but that the second subtask's copy of `depots` has an entry less."""
    edit(lake, recorded(lake.snapshot(JOB, "old"), "depots").table).delete("key = 'depot-1'")
    commit_snapshot(ChildSnapshot(lake, JOB, "old", "less", engine=LOCAL))
    export_snapshot(lake, JOB, "old", to, engine=LOCAL)
    export_snapshot(lake, JOB, "less", to.with_name("less"), engine=LOCAL)
    for path in to.with_name("less").iterdir():
        if path.name != "_metadata":
            (to / path.name).write_bytes(path.read_bytes())
    metadata, other = (
        read_metadata((folder / "_metadata").read_bytes()) for folder in (to, to.with_name("less"))
    )
    for mine, theirs in zip(metadata.operators, other.operators, strict=True):
        if mine.uid == "holders":
            assert mine.subtasks is not None
            assert theirs.subtasks is not None
            mine.subtasks[1].managed_operator = theirs.subtasks[1].managed_operator
    (to / "_metadata").write_bytes(write_metadata(metadata))
    return to


def test_copies_that_differ_are_not_migrated_unless_one_was_chosen(
    lake: Catalog, tmp_path: Path
) -> None:
    """The lake has but one of them, and its check says so; a committed edit chooses it."""
    other = Catalog(tmp_path / "other")
    record = import_as(other, disagreeing_savepoint(lake, tmp_path / "sp"), "sp")
    assert recorded(record, "depots").disagreeing == [1]
    (fault,) = stored_faults(other, record)
    assert "depots: the copy of subtask 1 is not that of the first" in fault
    done = export_snapshot(other, JOB, "sp", tmp_path / "first", engine=LOCAL)
    said = "the copies of holders/depots in subtasks 1, which differ from the first one"
    assert [each.startswith(said) for each in done.left_out] == [True]
    (line,) = [each for each in ImportResult(record, new=True).lines() if said in str(each)]
    assert str(line).startswith("not kept: ")
    wanted = change("depots", NEW_HOLDERS["depots"])
    with pytest.raises(IncompatibleError, match="subtasks 1 differ"):
        migrate_snapshot(ChildSnapshot(other, JOB, "sp", "m", engine=LOCAL), wanted)
    assert preview_migration(other, JOB, "sp", wanted).outcome == "incompatible"
    as_it_is = migrate_one(
        ChildSnapshot(other, JOB, "sp", "sp-m", engine=LOCAL), change("places", "String")
    )
    assert as_it_is.outcome == "compatible as it is"
    assert [summary.snapshot_id for summary in other.summaries(JOB)] == ["sp"]
    edit(other, recorded(record, "depots").table).update({"value": "value"})
    commit_snapshot(ChildSnapshot(other, JOB, "sp", "chosen", engine=LOCAL))
    assert stored_faults(other, other.snapshot(JOB, "chosen")) == []
    migrate_snapshot(ChildSnapshot(other, JOB, "chosen", "m", engine=LOCAL), wanted)
    found = list(copies(state_of(exported(other, "m", tmp_path / "out"), "depots")))
    assert found[0] == found[1]
    assert "depot-1" in found[0]


# --------------------------------------------------------------------------- odd ones

NAME = {"pojo": "acme.P", "fields": {"name": "String"}}
NAMES = {"pojo": "acme.P", "fields": {"name": "String", "more": "int", "boxed": "Integer"}}
ODD = write(parse_type(NAME).restore_serializer(), {"name": "x\ud800yy"})


@pytest.fixture
def odd(tmp_path: Path) -> Catalog:
    """A lake with empty states, an element that only its bytes hold, and two states of one name."""
    info = encoded(NewOperatorState("lone", (), "union", NAME).meta_info())
    schema = parse_operator_state(info)[0].schema
    shown = {"name": "x\ufffdyy"}
    rows = [
        {"subtask": 0, "position": 0, "value": {"name": "a"}, "raw_value": None},
        {"subtask": 1, "position": 0, "value": shown, "raw_value": ODD},
    ]
    lone = pa.RecordBatch.from_pylist(rows, schema)
    states = (
        NewOperatorState("lone", lone, "union", NAME),
        NewOperatorState("none", (), "split", NAME),
        NewOperatorState("nothing", (), "broadcast", NAME, "String"),
        NewOperatorState("both", lone.slice(0, 1), "split", NAME),
    )
    counts = pa.table({"key": ["k"], "value": pa.array([1], pa.int64())})
    operator = NewOperator(
        "odd", "String", (NewKeyedState("both", counts, value="Long"),), states, parallelism=2
    )
    write_snapshot(tmp_path / "odd", [operator], metadata_version=6)
    made = Catalog(tmp_path / "lake-of-odd")
    import_as(made, tmp_path / "odd", "odd")
    return made


def test_exact_bytes_and_empty_states_go_along(odd: Catalog, tmp_path: Path) -> None:
    """A value that no column can hold is migrated from its bytes; nothing becomes nothing."""
    assert recorded(odd.snapshot(JOB, "odd"), "lone").elements == 2
    last = "odd"
    for state in ("lone", "none", "nothing"):
        wanted = change(state, NAMES, operator="odd")
        last = migrate_one(
            ChildSnapshot(odd, JOB, last, f"{last}-{state}", engine=LOCAL), wanted
        ).made
    new = parse_type(NAMES).restore_serializer()
    snapshot = exported(odd, last, tmp_path / "out")
    lone = state_of(snapshot, "lone")
    named = [{"name": name, "more": 0, "boxed": None} for name in ("a", "x\ud800yy")]
    assert [piece for part in lone.parts for piece in part.encoded()] == [
        write(new, value) for value in named
    ]
    for name in ("none", "nothing"):
        state = state_of(snapshot, name)
        assert len(state.to_arrow()) == 0
        assert state.schema.field("value").type == new.arrow_type
    assert_whole(odd)


def test_an_expression_would_not_see_what_only_bytes_hold(odd: Catalog, tmp_path: Path) -> None:
    """So it is refused, and nothing is left; without such a value it is done."""
    wanted = change("lone", "String", {"": "upper(old.name)"}, operator="odd")
    with pytest.raises(IncompatibleError, match="1 row has a value that the column does not hold"):
        migrate_snapshot(ChildSnapshot(odd, JOB, "odd", "m", engine=LOCAL), wanted)
    assert_whole(odd)
    edit(odd, recorded(odd.snapshot(JOB, "odd"), "lone").table).delete("raw_value IS NOT NULL")
    commit_snapshot(ChildSnapshot(odd, JOB, "odd", "less", engine=LOCAL))
    migrate_snapshot(ChildSnapshot(odd, JOB, "less", "m", engine=LOCAL), wanted)
    lone = state_of(exported(odd, "m", tmp_path / "out"), "lone").to_arrow()
    assert lone.column("value").to_pylist() == ["A"]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("old.nothing", "DuckDB refused"),
        ("upper(old.name", "Parser Error.*write it as DuckDB does"),
        ("unnest([old.name, old.name])", "2 values for 1 rows"),
        ("error(old.name)", "DuckDB refused"),
    ],
)
def test_an_expression_that_can_not_be_evaluated(expression: str, said: str, odd: Catalog) -> None:
    """The state and the expression are named, and nothing is written."""
    edit(odd, recorded(odd.snapshot(JOB, "odd"), "lone").table).delete("raw_value IS NOT NULL")
    commit_snapshot(ChildSnapshot(odd, JOB, "odd", "less", engine=LOCAL))
    before = kept_files(odd)
    wanted = change("lone", "String", {"": expression}, operator="odd")
    named = re.escape(f"state odd/lone, {expression}: ")
    with pytest.raises(StateError, match=f"{named}.*{said}"):
        migrate_snapshot(ChildSnapshot(odd, JOB, "less", "m", engine=LOCAL), wanted)
    assert kept_files(odd) == before


def test_a_keyed_state_is_found_before_an_operator_state_of_its_name(odd: Catalog) -> None:
    """Of two states of one name."""
    keyed = preview_migration(odd, JOB, "odd", change("both", "Long", operator="odd"))
    assert (keyed.outcome, keyed.entries) == ("compatible_as_is", 1)
