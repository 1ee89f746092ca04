"""Import: what tables come of a snapshot, what they hold, and that twice changes nothing."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.names import keyed_table, timers_table
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.verify.integrity import count_faults
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import ConflictError, LakeError
from statelake.state_core.model.measure import measure_operator
from statelake.state_core.model.snapshot import Operator, StateKind
from tests.support.lakes import (
    KINDS,
    WIDE,
    WORDS,
    entries,
    exported,
    files_of,
    golden,
    import_as,
    raw_savepoint,
    rows_of,
    sorted_rows,
)
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = pytest.mark.thinned(4)

CASES = golden_cases("wordcount", "kinds", "windows", "churn", "sql")

every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake that is not there yet."""
    return Catalog(tmp_path / "lake")


def tables_below(root: Path) -> set[str]:
    """The Delta tables of a lake, by path."""
    return {log.parent.relative_to(root).as_posix() for log in root.rglob("_delta_log")}


def tables_of(operator: Operator) -> dict[str, str]:
    """The table that each state of an operator belongs into."""
    return {
        state.name: timers_table("orders", operator.label)
        if state.kind is StateKind.TIMERS
        else keyed_table("orders", operator.label, state.name)
        for state in operator.keyed_states
    }


def version_of(lake: Catalog, record: SnapshotRecord, path: str) -> DeltaTable:
    """A table at the snapshot's version."""
    (version,) = (t.version for op in record.operators for t in op.tables if t.path == path)
    return DeltaTable(lake.table(path).uri, version)


@every_case
def test_tables_and_contents(case: GoldenCase, lake: Catalog, tmp_path: Path) -> None:
    """One table a state and one for an operator's timers, with the rows that the snapshot has."""
    record = import_as(lake, case.snapshot, "s")
    wanted = {"snapshots"}
    for operator in open_snapshot(case.snapshot).operators:
        held: dict[str, int] = {}
        for name, path in tables_of(operator).items():
            state = operator.state(name)
            found, expected = rows_of(lake, record, path), state.to_arrow()
            held[path] = held.get(path, 0) + len(expected)
            if state.kind is StateKind.TIMERS:
                domain, service = state.timer_service
                found = found.filter(pc.field("domain") == domain)
                found = found.filter(pc.field("service") == service)
            names = expected.schema.names
            assert sorted_rows(found, names) == sorted_rows(expected, names)
        for path, count in held.items():
            assert len(rows_of(lake, record, path)) == count
        wanted |= held.keys()
    assert tables_below(tmp_path / "lake") == wanted


@every_case
def test_what_the_catalog_says(case: GoldenCase, lake: Catalog) -> None:
    """Counts and bytes in the catalog are the snapshot's, key group by key group."""
    record = import_as(lake, case.snapshot, "s")
    snapshot = open_snapshot(case.snapshot)
    known = {operator.operator_id: operator for operator in record.operators}
    assert set(known) == {
        operator.operator_id for operator in snapshot.operators if operator.keyed_states
    }
    for operator in snapshot.operators:
        measured = measure_operator(operator) if operator.keyed_states else {}
        for name, (counts, sizes) in measured.items():
            (state,) = (state for state in known[operator.operator_id].states if state.name == name)
            held = [
                (key_group.key_group, key_group.entries, key_group.state_bytes)
                for key_group in state.key_groups
            ]
            assert held == [(g, counts[g], sizes[g]) for g in counts.nonzero()[0].tolist()]
            assert (state.entries, state.state_bytes) == (counts.sum(), sizes.sum())
            assert known[operator.operator_id].max_parallelism == operator.max_parallelism
    assert count_faults(lake, record, snapshot) == []
    assert lake.snapshot("orders", "s") == record
    assert (record.format, record.compression) == (case.facts["format"], snapshot.compression)


def test_typed_columns(lake: Catalog) -> None:
    """Values are what their types say, for every kind of state."""
    record = import_as(lake, KINDS, "s")
    tables = {state.name: state.table for op in record.operators for state in op.states}
    found = {
        name: rows_of(lake, record, table).schema.field("value").type
        for name, table in tables.items()
        if "/timers/" not in table
    }
    assert {name: found[name] for name in ("name", "total", "items", "scores", "session")} == {
        "name": pa.string(),
        "total": pa.int64(),
        "items": pa.list_(pa.field("element", pa.int32())),
        "scores": pa.float64(),
        "session": pa.string(),
    }
    assert pa.types.is_struct(found["avg"])
    assert pa.types.is_struct(found["triple"])
    assert rows_of(lake, record, tables["scores"]).schema.field("user_key").type == pa.string()


@every_case
def test_partitions_are_key_groups(case: GoldenCase, lake: Catalog, tmp_path: Path) -> None:
    """A file has its key groups in order, and they are whole; the log says the first and last."""
    record = import_as(lake, case.snapshot, "s")
    for operator in record.operators:
        for table in (
            record_table
            for record_table in operator.tables
            if record_table.units and record_table.partition_by
        ):
            opened = version_of(lake, record, table.path)
            assert opened.metadata().partition_columns == ["key_group_bucket"]
            actions = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
            groups_seen: list[int] = []
            for action in sorted(actions, key=lambda statistics: statistics["min.key_group"]):
                file = pq.ParquetFile(tmp_path / "lake" / table.path / action["path"])
                assert "key_group_bucket" not in file.schema_arrow.names
                groups = file.read(columns=["key_group"]).column("key_group").to_pylist()
                assert groups == sorted(groups)
                assert (action["min.key_group"], action["max.key_group"]) == (groups[0], groups[-1])
                bucket = groups[0] * 128 // operator.max_parallelism
                assert action["partition.key_group_bucket"] == bucket
                groups_seen += sorted(set(groups))
            assert groups_seen == sorted(set(groups_seen))


def test_wide_tables_have_the_key_group_as_a_column(lake: Catalog) -> None:
    """In a bucketed table the key group is a column that engines see, beside the bucket."""
    record = import_as(lake, WIDE, "s")
    rows = rows_of(lake, record, record.operators[0].states[0].table)
    assert rows.schema.names[0] == "key_group"
    assert rows.schema.names[-1] == "key_group_bucket"
    assert len(rows) == 300
    assert max(rows.column("key_group").to_pylist()) > 127


@pytest.mark.parametrize("savepoint", [KINDS, WIDE], ids=["kinds", "wide"])
def test_twice_changes_nothing(savepoint: Path, lake: Catalog, tmp_path: Path) -> None:
    """Not a file more, not a byte other, no version more; the answer is the first one's record."""
    source = str(savepoint)
    first = import_snapshot(lake, source, "orders", engine="local")
    before = files_of(tmp_path / "lake")
    again = import_snapshot(Catalog(tmp_path / "lake"), source, "orders", engine="local")
    assert (first.new, again.new) == (True, False)
    assert again.record == first.record
    assert again.written_files == 0
    assert files_of(tmp_path / "lake") == before


def test_a_copy_is_the_same_snapshot(lake: Catalog, tmp_path: Path) -> None:
    """A savepoint that was moved is known by its content, whatever its directory is called."""
    first = import_snapshot(lake, str(WORDS), "orders", engine="local")
    moved = tmp_path / "renamed"
    shutil.copytree(WORDS, moved)
    before = files_of(tmp_path / "lake")
    again = import_snapshot(lake, str(moved), "orders", engine="local")
    assert not again.new
    assert again.record.snapshot_id == first.record.snapshot_id
    assert files_of(tmp_path / "lake") == before


def test_jobs_do_not_meet(lake: Catalog, tmp_path: Path) -> None:
    """The same snapshot under two jobs: two sets of tables, and each job its own history."""
    for job in ("orders", "returns"):
        assert import_snapshot(lake, str(WORDS), job, snapshot_id="s", engine="local").new
    assert lake.jobs() == ["orders", "returns"]
    assert [summary.job for summary in lake.summaries("returns")] == ["returns"]
    for job in lake.jobs():
        assert exported(lake, "s", tmp_path / job, job) == entries(WORDS)


def test_an_id_belongs_to_one_snapshot(lake: Catalog, tmp_path: Path) -> None:
    """Another snapshot under a taken id is refused, and the lake stays as it was."""
    import_as(lake, WORDS, "s")
    before = files_of(tmp_path / "lake")
    other = WIDE
    with pytest.raises(ConflictError, match=r"has another snapshot 's'.*--snapshot"):
        import_as(lake, other, "s")
    assert files_of(tmp_path / "lake") == before


def test_operator_uids_of_flink_1(lake: Catalog) -> None:
    """Flink 1 keeps uids as hashes: a uid that is given names its operator's tables."""
    source = str(golden("wordcount-hashmap-canonical-p2-m128-flink1.20.0").snapshot)
    plain = import_snapshot(lake, source, "plain", engine="local").record
    known = import_snapshot(lake, source, "known", Import(uids=["counter"]), engine="local").record
    (operator,) = plain.operators
    assert operator.uid == ""
    assert operator.states[0].table == f"plain/keyed/{operator.operator_id}/count"
    assert known.operators[0].states[0].table == "known/keyed/counter/count"


def test_operator_state_has_tables(lake: Catalog) -> None:
    """One table a state, with the rows that the savepoint has; nothing of it is carried."""
    case = golden("operator-hashmap-canonical-p2-m128-flink2.3.0")
    record = import_as(lake, case.snapshot, "s")
    assert record.carried == []
    held = {
        (operator.operator_id, state.name): state
        for operator in record.operators
        for state in operator.operator_states
    }
    snapshot = open_snapshot(case.snapshot)
    states = {
        (op.operator_id, state.name): state
        for op in snapshot.operators
        for state in op.operator_states
    }
    assert held.keys() == states.keys()
    for key, state in states.items():
        rows = state.to_arrow()
        table = lake.table(held[key].table)
        assert "/operator/" in held[key].table
        assert held[key].elements == len(rows)
        found = DeltaTable(table.uri).to_pyarrow_table()
        assert found.select(rows.schema.names).to_pylist() == rows.to_pylist()
    assert record.entries == sum(part.elements for part in held.values()) > 0


def test_operator_state_that_stayed_is_not_written_again(lake: Catalog) -> None:
    """The next snapshot of the same state keeps its files."""
    case = golden("operator-hashmap-canonical-p2-m128-flink2.3.0")
    first = import_as(lake, case.snapshot, "a")
    second = import_as(lake, case.snapshot, "b")
    assert first.written_bytes > 0 == second.written_bytes
    assert [operator.tables for operator in first.operators] == [
        operator.tables for operator in second.operators
    ]


def test_raw_state_is_kept(lake: Catalog, tmp_path: Path) -> None:
    """State that only the job can read is carried along, once, under its digest."""
    source = raw_savepoint(tmp_path / "raw")
    record = import_as(lake, source, "s")
    kept = files_of(tmp_path / "lake" / "_statelake" / "carried")
    assert kept
    assert all(name.partition(".")[0] == digest for name, digest in kept.items())
    assert set(kept) == {carried.blob for carried in record.carried}
    assert set(kept.values()) == {hashlib.sha256((source / "opaque").read_bytes()).hexdigest()}


@pytest.mark.parametrize("job", ["snapshots", "_statelake", "a/b", "..", "ä ö", "a" * 200])
def test_any_name_of_a_job(job: str, lake: Catalog, tmp_path: Path) -> None:
    """Whatever a job is called, its tables lie in the lake and its snapshots are its own."""
    import_as(lake, WORDS, "s", "other")
    import_as(lake, WORDS, "s", job)
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    assert lake.jobs() == sorted(["other", job])
    assert exported(lake, "s", tmp_path / "out", job) == entries(WORDS)


@pytest.mark.parametrize(
    ("job", "snapshot_id", "problem"),
    [
        ("", "s", "a job needs a name"),
        ("orders", "", "a snapshot needs a name"),
        ("ö" * 40, "s", "too long: öö"),
    ],
)
def test_names_that_are_refused(
    job: str, snapshot_id: str, problem: str, lake: Catalog, tmp_path: Path
) -> None:
    """A name that can't be a directory's is refused, and no lake comes of it."""
    with pytest.raises(LakeError, match=problem):
        import_as(lake, WORDS, snapshot_id, job)
    assert files_of(tmp_path) == {}
