"""The catalog: which snapshots there are, whoever writes to it meanwhile, and what is no lake."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.lake.catalog import catalog
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogVersion
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.catalog.lake_format import FORMAT_KEY
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.records import (
    SNAPSHOT_SCHEMA,
    DataFile,
    KeyGroupRecord,
    OperatorRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
    UnmanagedFile,
)
from statelake.pipelines.runtime.commit_measures import CommitReports
from statelake.state_core.errors import (
    ConflictError,
    LakeFormatError,
    NotALakeError,
    NotFoundError,
    SnapshotError,
)
from statelake.state_core.files.filesystem import Directory
from tests.support.lakes import add_row, forge_claim, remove_rows
from tests.support.steps import Step, do_at

MONDAY = datetime(2026, 11, 16, tzinfo=timezone.utc)


def record(snapshot_id: str, job: str = "orders", hours: int = 0) -> SnapshotRecord:
    """A snapshot without any state, `hours` into Monday."""
    at = MONDAY + timedelta(hours=hours)
    return SnapshotRecord(
        job, snapshot_id, "", "import", "savepoint", "canonical", 6, 1, at, at, "source", "digest",
        "none", "", 0, 0, 0, b"metadata",
    )  # fmt: skip


WRITE: Step = (DeltaCommit, "write", "before", 1)


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake that is not there yet."""
    return Catalog(tmp_path / "lake")


def commit(lake: Catalog, made: SnapshotRecord) -> SnapshotRecord:
    """Make a snapshot exist as every command does: by an attempt."""
    with Attempt(lake, made.job, made.snapshot_id, []) as attempt:
        return attempt.commit(made)


def found(lake: Catalog, job: str, snapshot_id: str) -> SnapshotRecord:
    """A snapshot, but for its place among the others."""
    return replace(lake.snapshot(job, snapshot_id), sequence=0)


def ids(lake: Catalog, job: str | None = None) -> list[str]:
    """The snapshots that exist, in their order."""
    return [summary.snapshot_id for summary in lake.summaries(job)]


texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**63 - 1)
groups = st.integers(1, 1 << 15)
times = st.datetimes(datetime.fromisoformat("1970-01-01"), timezones=st.just(timezone.utc))
key_groups = st.lists(st.builds(KeyGroupRecord, counts, counts, counts), max_size=3)
units = st.lists(
    st.builds(DataFile, texts, numbers, counts, numbers, counts, counts, st.binary(max_size=16)),
    max_size=2,
)
operators = st.builds(
    OperatorRecord, st.from_regex(r"\A[0-9a-f]{32}\Z"), texts, texts, groups, groups, texts,
    st.binary(max_size=9),
    st.lists(
        st.builds(
            StateRecord, texts, st.sampled_from(["value", "timers"]), texts, texts, texts, texts,
            st.booleans(),
            st.binary(max_size=9), counts, counts, key_groups,
        ),
        max_size=2,
    ),
    st.lists(
        st.builds(TableRecord, texts, counts, st.sampled_from(["", "key_group"]), units), max_size=2
    ),
)  # fmt: skip
records = st.builds(
    SnapshotRecord, names, names, texts, texts, texts, texts, st.integers(2, 6), numbers, times,
    times, texts, texts, st.sampled_from(["snappy", "none"]), texts, counts, counts, counts,
    st.binary(max_size=9), st.lists(st.builds(UnmanagedFile, texts, texts, counts), max_size=2),
    st.lists(operators, max_size=2),
)  # fmt: skip


@given(records)
def test_rows_of_records(snapshot: SnapshotRecord) -> None:
    """A record through its Arrow row is the same record."""
    table = pa.Table.from_pylist([snapshot.to_row()], SNAPSHOT_SCHEMA)
    assert snapshot.to_table().equals(table)
    assert SnapshotRecord.from_row(table.to_pylist()[0]) == snapshot


def test_rows_of_other_versions() -> None:
    """A column that is missing is empty, and one that is unknown is left out."""
    row = record("s").to_row()
    del row["note"]
    del row["carried"]
    assert SnapshotRecord.from_row(row | {"color": "red"}) == record("s")


def test_there_and_gone(lake: Catalog) -> None:
    """Snapshots are listed by job, in the order in which they came, and removed by name."""
    assert not lake.exists()
    assert lake.latest("orders") is None
    for snapshot in (
        record("b", hours=2),
        record("a", hours=3),
        record("c", hours=1),
        record("x", "y"),
    ):
        add_row(lake, snapshot)
    assert lake.exists()
    assert lake.jobs() == ["orders", "y"]
    assert ids(lake, "orders") == ["b", "a", "c"]
    assert lake.latest("orders") == lake.snapshot("orders", "c")
    remove_rows(lake, "orders", ["a", "c", "x"])
    assert ids(lake) == ["b", "x"]
    assert found(lake, "y", "x") == record("x", "y")
    add_row(lake, record("a", hours=4))
    assert ids(lake, "orders") == ["b", "a"]


def test_ids_are_taken_once(lake: Catalog) -> None:
    """A second row of the same job and id is refused; of another job it is not."""
    commit(lake, record("s"))
    with pytest.raises(ConflictError, match="has a snapshot 's' already"):
        commit(lake, record("s", hours=1))
    commit(lake, record("s", "other"))
    assert ids(lake) == ["s", "s"]
    assert found(lake, "orders", "s") == record("s")


@pytest.mark.parametrize(
    "name", ["it's", 'say "so"', "a b", "50%", "a/b", "ü", "=", "a%2Fb", "__HIVE", "'; --", "null"]
)
def test_any_name(name: str, lake: Catalog) -> None:
    """Jobs and snapshots are called anything, and are found and removed by that name alone."""
    for job in ("plain", name):
        for snapshot_id in ("plain", name):
            add_row(lake, record(snapshot_id, job))
    assert found(lake, name, name) == record(name, name)
    remove_rows(lake, name, [name])
    left = {(summary.job, summary.snapshot_id) for summary in lake.summaries()}
    assert left == {("plain", "plain"), ("plain", name), (name, "plain")}


def test_unknown_names(lake: Catalog) -> None:
    """The message names what there is instead."""
    for hours in range(12):
        add_row(lake, record(f"s{hours:02}", hours=hours))
    here = r"no job 'returns' in the lake; it has: orders; did you mean 'orders'\?$"
    with pytest.raises(NotFoundError, match=here):
        lake.snapshot("returns", "s00")
    with pytest.raises(NotFoundError, match=r"no snapshot 'x'; its latest are: s02, .*, s11$"):
        lake.snapshot("orders", "x")
    remove_rows(lake, "orders", [f"s{hours:02}" for hours in range(12)])
    with pytest.raises(NotFoundError, match=r"it has: none$"):
        lake.snapshot("orders", "s00")


def _nothing(_: Path) -> None:
    """Leave it away."""


def _a_file(path: Path) -> None:
    path.write_text("not a directory", "utf-8")


def _other_files(path: Path) -> None:
    path.mkdir()
    (path / "snapshots").mkdir()
    (path / "snapshots" / "notes.txt").write_text("mine", "utf-8")


def _another_table(path: Path) -> None:
    write_deltalake(str(path / "snapshots"), pa.table({"photo": ["cat", "dog"]}))


def _an_empty_log(path: Path) -> None:
    (path / "snapshots" / "_delta_log").mkdir(parents=True)


@pytest.mark.parametrize("make", [_nothing, _a_file, _other_files, _another_table, _an_empty_log])
def test_what_is_no_lake(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A directory that is missing, or somebody else's, is told to be no lake."""
    make(tmp_path / "lake")
    with pytest.raises(NotALakeError, match=r"no lake.*--lake"):
        Catalog(tmp_path / "lake").summaries()


def files_in_catalog(lake: Catalog) -> int:
    """How many files a reader of the catalog opens."""
    return len(DeltaTable(lake.table("snapshots").uri).file_uris())


@pytest.mark.full
def test_many_snapshots_are_few_files(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a job are put together, and none is lost."""
    monkeypatch.setattr(catalog, "MANY_FILES", 4)
    for hours in range(11):
        commit(lake, record(f"s{hours:02}", hours=hours))
    commit(lake, record("x", "other"))
    assert files_in_catalog(lake) < 6
    assert ids(lake, "orders") == [f"s{hours:02}" for hours in range(11)]
    assert found(lake, "orders", "s05") == record("s05", hours=5)
    remove_rows(lake, "orders", ["s05"])
    assert len(ids(lake)) == 11


def test_another_snapshot_comes_during_a_removal(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there afterwards, and the other one gone."""
    add_row(lake, record("a", hours=1))
    add_row(lake, record("b", hours=2))
    do_at(monkeypatch, WRITE, lambda: add_row(lake, record("x", hours=3)))
    remove_rows(lake, "orders", ["a"])
    assert ids(lake) == ["b", "x"]


@pytest.mark.parametrize("what", ["append", "remove"])
def test_a_change_comes_while_files_are_put_together(
    what: str, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot whose import put files together is there, and the change was made."""
    monkeypatch.setattr(catalog, "MANY_FILES", 3)
    add_row(lake, record("a", hours=1))
    add_row(lake, record("b", hours=2))
    change: dict[str, Callable[[], object]] = {
        "append": lambda: add_row(lake, record("x", hours=3)),
        "remove": lambda: remove_rows(lake, "orders", ["a"]),
    }
    do_at(monkeypatch, (CatalogVersion, "rows", "after", 1), change[what])
    commit(lake, record("c", hours=4))
    assert ids(lake) == {"append": ["a", "b", "c", "x"], "remove": ["b", "c"]}[what]


def test_a_store_that_breaks_off_behind_a_commit_makes_no_error_of_it(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is there: whether files should be put together can be looked at later."""
    add_row(lake, record("a", hours=1))

    def break_off() -> None:
        raise SnapshotError("no answer")

    behind = lambda: do_at(monkeypatch, (Catalog, "version", "before", 1), break_off)  # noqa: E731
    do_at(monkeypatch, (Attempt, "commit", "before", 1), behind)
    commit(lake, record("b", hours=2))
    assert ids(lake) == ["a", "b"]


def test_a_catalog_of_an_older_version_gets_the_new_columns(lake: Catalog, tmp_path: Path) -> None:
    """When its format is upgraded, once; those that it had are as they were."""
    add_row(lake, record("a", hours=1))
    place = str(tmp_path / "lake" / "snapshots")
    (row,) = DeltaTable(place).to_pyarrow_table().to_pylist()
    (last,) = SNAPSHOT_SCHEMA.names[-1:]
    older = pa.Table.from_pylist([row], SNAPSHOT_SCHEMA).drop_columns([last])
    write_deltalake(place, older, mode="overwrite", schema_mode="overwrite", partition_by=["job"])
    forge_claim(Path(lake.location), FORMAT_KEY, None)
    with pytest.raises(LakeFormatError, match="lake upgrade"):
        add_row(lake, record("b", hours=2))
    assert lake.upgrade().columns == [last]
    for name, hours in (("b", 2), ("c", 3)):
        add_row(lake, record(name, hours=hours))
    assert ids(lake, "orders") == ["a", "b", "c"]
    assert set(DeltaTable(place).to_pyarrow_table().column_names) == set(SNAPSHOT_SCHEMA.names)
    assert DeltaTable(place).version() == 6
    remove_rows(lake, "orders", ["a"])
    assert ids(lake, "orders") == ["b", "c"]


def test_the_order_is_that_of_the_log(lake: Catalog) -> None:
    """A clock that goes back makes no older snapshot the newest, nor does a lake of before."""
    for name, hours in (("a", 9), ("b", 8)):
        add_row(lake, record(name, hours=hours))
    place = str(lake.table("snapshots").uri)
    older = DeltaTable(place).to_pyarrow_table().drop_columns(["sequence"])
    write_deltalake(place, older, mode="overwrite", schema_mode="overwrite", partition_by=["job"])
    assert ids(lake) == ["b", "a"]
    for name, hours in (("c", 7), ("d", 1)):
        commit(lake, record(name, hours=hours))
    assert ids(lake) == ["b", "a", "c", "d"]
    assert lake.latest("orders") == lake.snapshot("orders", "d")
    assert drop_snapshots(lake, "orders", keep=1).kept == ["d"]
    assert ids(lake) == ["d"]


def test_removals_meet(lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two removals of the same snapshot: it is gone, and no one is told otherwise."""
    add_row(lake, record("a", hours=1))
    add_row(lake, record("b", hours=2))
    do_at(monkeypatch, WRITE, lambda: remove_rows(lake, "orders", ["a"]))
    remove_rows(lake, "orders", ["a"])
    assert ids(lake) == ["b"]


def at_once(work: Callable[[int], object]) -> list[object]:
    """What three threads come to that begin at the same moment."""
    barrier = Barrier(3)

    def begin(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(3) as threads:
        return list(threads.map(begin, range(3)))


@pytest.mark.parametrize("attempt", range(8))
def test_the_very_first_of_one_id(tmp_path: Path, attempt: int) -> None:
    """Of all that find no catalog and make one at the same moment, one makes the snapshot exist."""

    def append(_: int) -> bool:
        try:
            commit(Catalog(tmp_path / str(attempt)), record("monday"))
        except ConflictError:
            return False
        return True

    assert sorted(at_once(append), key=bool) == [False, False, True]
    lake = Catalog(tmp_path / str(attempt))
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == ["monday"]


@pytest.mark.parametrize("attempt", range(4))
def test_other_tables_are_made_once(tmp_path: Path, attempt: int) -> None:
    """However many begin them; of runs the last is in it, and those before it that were earlier."""
    directory = Directory(tmp_path / str(attempt))
    counts = {"commits": 1}
    at_once(lambda run: CommitReports(directory, "orders").append({f"run {run}": counts}, run))
    history = DeltaTable(directory.child("orders/_commits").uri).history()
    assert [version["operation"] for version in history].count("CREATE TABLE") == 1
    assert history[-1]["operation"] == "CREATE TABLE"
    tasks = [report.task for report in CommitReports(directory, "orders").read()]
    assert len(tasks) == len(set(tasks))
    assert "run 2" in tasks
