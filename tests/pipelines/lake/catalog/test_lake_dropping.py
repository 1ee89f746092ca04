"""Dropping: what goes is exactly what no other snapshot needs, and it is said how much."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.state_core.errors import NotFoundError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_states import value_snapshot
from statelake.state_core.formats.layout.meta_info import read_state_meta_info
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from tests.support.lakes import (
    LOCAL,
    WINDOWS,
    Contents,
    assert_shown,
    assert_whole,
    data_bytes,
    edit,
    edited_savepoint,
    entries,
    exported,
    files_of,
    golden,
    import_as,
    raw_savepoint,
    rows_of,
    unit_paths,
)

pytestmark = pytest.mark.thinned(2)

TUMBLING = "orders/keyed/tumbling/window-contents"
NAMES = ["first", "second", "third", "edited"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with three imports, each a few key groups different, and an edit of the third."""
    root = tmp_path_factory.mktemp("prepared")
    lake = Catalog(root / "lake")
    import_as(lake, WINDOWS, "first", partitions=8)
    for name, groups in (("second", "key_group < 20"), ("third", "key_group BETWEEN 10 AND 40")):
        change = ("tumbling/window-contents", groups, {"value": "value + 1"})
        later = edited_savepoint(WINDOWS, root / name, change)
        import_as(lake, later, name, partitions=8)
    edit(lake, TUMBLING).delete("key_group > 100")
    commit_snapshot(ChildSnapshot(lake, "orders", "third", "edited", engine=LOCAL))
    return root / "lake"


@pytest.fixture(scope="module")
def contents(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Contents]:
    """What each snapshot exports to."""
    to = tmp_path_factory.mktemp("contents")
    return {name: exported(Catalog(prepared), name, to / name) for name in NAMES}


@pytest.fixture
def lake(tmp_path: Path, prepared: Path) -> Catalog:
    """A copy of the prepared lake."""
    shutil.copytree(prepared, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


def sizes(lake: Catalog) -> dict[str, int]:
    """The bytes of every file."""
    root = Path(lake.location)
    return {name: (root / name).stat().st_size for name in files_of(root)}


def needed(lake: Catalog, names: Sequence[str]) -> set[str]:
    """The files that some snapshots name."""
    return {path for name in names for path in unit_paths(lake.snapshot("orders", name))}


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "names",
    [["first"], ["second"], ["third"], ["edited"], ["first", "third"], ["third", "edited"], NAMES],
    ids="+".join,
)
@pytest.mark.full
def test_what_is_freed(
    names: list[str], lake: Catalog, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """The bytes of the files that only the dropped ones name; the others read as before."""
    kept = [name for name in NAMES if name not in names]
    drop_snapshots(lake, "orders", snapshot_ids=[])  # takes what the edit itself left
    only = needed(lake, names) - needed(lake, kept)
    before = sizes(lake)
    result = drop_snapshots(lake, "orders", snapshot_ids=names)
    after = sizes(lake)
    assert (result.dropped, result.kept) == (names, kept)
    assert {name for name in before if name not in after} >= only
    assert result.files == len(only)
    assert result.freed_bytes == sum(before[name] for name in only)
    assert [summary.snapshot_id for summary in lake.summaries("orders")] == kept
    assert_whole(lake)
    if kept:
        assert_shown(lake, kept[-1])
    for name in kept:
        assert exported(lake, name, tmp_path / name) == contents[name]


@pytest.mark.parametrize("keep", range(6))
@pytest.mark.full
def test_keeping_the_newest(keep: int, lake: Catalog) -> None:
    """`keep` counts from the newest; more than there are is all."""
    result = drop_snapshots(lake, "orders", keep=keep)
    assert result.kept == (NAMES[-keep:] if keep else [])
    assert result.dropped == NAMES[: len(NAMES) - len(result.kept)]
    assert [summary.snapshot_id for summary in lake.summaries()] == result.kept
    assert_whole(lake)


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]], ids=["oldest first", "newest first"])
@pytest.mark.full
def test_one_after_the_other(names: list[str], lake: Catalog) -> None:
    """Whatever the order, in the end nothing is held, and all of it was told."""
    drop_snapshots(lake, "orders", snapshot_ids=[])
    start = data_bytes(Path(lake.location))
    freed = 0
    for name in names:
        freed += drop_snapshots(lake, "orders", snapshot_ids=[name]).freed_bytes
        assert_whole(lake)
        assert freed == start - data_bytes(Path(lake.location))
    assert freed == start
    for path in (TUMBLING, "orders/timers/tumbling"):
        assert edit(lake, path).to_pyarrow_table().num_rows == 0


def test_a_job_that_begins_again(
    lake: Catalog, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """After all is dropped the same snapshot can be imported again, under the same name."""
    drop_snapshots(lake, "orders", keep=0)
    record = import_as(lake, WINDOWS, "first")
    assert record.written_bytes == data_bytes(Path(lake.location))
    assert_shown(lake, "first")
    assert exported(lake, "first", tmp_path / "out") == contents["first"]


@pytest.mark.parametrize(
    ("job", "names", "message"),
    [
        ("clicks", ["first"], r"no job 'clicks' in the lake; it has: orders$"),
        ("orders", ["first", "fifth"], r"no snapshot fifth; its latest are: first, second, third"),
        ("orders", ["sixth", "first", "fifth"], r"no snapshots fifth, sixth; its latest are: fir"),
    ],
)
def test_what_is_not_there(job: str, names: list[str], message: str, lake: Catalog) -> None:
    """An unknown name is refused, and nothing at all is dropped."""
    before = sizes(lake)
    with pytest.raises(NotFoundError, match=message):
        drop_snapshots(lake, job, snapshot_ids=names)
    assert sizes(lake) == before


def test_an_edit_that_is_not_committed_stays(lake: Catalog) -> None:
    """Rows that someone changed and has not committed yet are not lost to a drop."""
    edit(lake, TUMBLING).update({"value": "0"}, predicate="key_group < 60")
    wanted = edit(lake, TUMBLING).to_pyarrow_table().sort_by("key")
    drop_snapshots(lake, "orders", keep=1)
    assert edit(lake, TUMBLING).to_pyarrow_table().sort_by("key") == wanted
    commit_snapshot(ChildSnapshot(lake, "orders", "edited", "again", engine=LOCAL))
    assert_whole(lake, orphans=True)
    found = rows_of(lake, lake.snapshot("orders", "again"), TUMBLING)
    assert found.sort_by("key") == wanted


def test_what_an_edit_left(lake: Catalog) -> None:
    """Files that an edit wrote, and that its commit replaced by our own, go too."""
    edit(lake, TUMBLING).update({"value": "0"}, predicate="key_group < 60")
    commit_snapshot(ChildSnapshot(lake, "orders", "edited", "again", engine=LOCAL))
    root = Path(lake.location) / TUMBLING
    left = list(root.glob("key_group_bucket=*/*.parquet"))
    size = sum(path.stat().st_size for path in left)
    result = drop_snapshots(lake, "orders", snapshot_ids=[])
    assert left
    assert (result.files, result.freed_bytes) == (len(left), size)
    assert list(root.glob("key_group_bucket=*/*.parquet")) == []
    assert_whole(lake)


def test_carried_files_are_shared(tmp_path: Path) -> None:
    """A file that is carried goes with the last snapshot that has it; each job has its own."""
    lake = Catalog(tmp_path / "lake")
    source = raw_savepoint(tmp_path / "raw")
    for job, name in (("orders", "first"), ("orders", "second"), ("returns", "s")):
        import_as(lake, source, name, job)
    carried = tmp_path / "lake" / "_statelake" / "carried"
    held, kept = data_bytes(tmp_path / "lake"), files_of(carried)
    (mine,) = (file.blob for file in lake.snapshot("orders", "first").carried)
    (other,) = (file.blob for file in lake.snapshot("returns", "s").carried)
    assert set(kept) == {mine, other}
    drop_snapshots(lake, "orders", keep=1)
    assert files_of(carried) == kept
    freed = drop_snapshots(lake, "orders", keep=0).freed_bytes
    assert 0 < freed < held
    assert set(files_of(carried)) == {other}
    assert entries(source) == exported(lake, "s", tmp_path / "out", "returns")
    assert drop_snapshots(lake, "returns", keep=0).freed_bytes == held - freed
    assert data_bytes(tmp_path / "lake") == 0


def test_tables_show_the_types_of_what_is_kept(tmp_path: Path) -> None:
    """The migrated snapshot goes: its table has the columns of the one before again."""
    lake = Catalog(tmp_path / "lake")
    source = golden("pojo-rocksdb-canonical-p2-m128-flink2.3.0").snapshot
    import_as(lake, source, "old")
    (state,) = (
        state for op in lake.snapshot("orders", "old").operators for state in op.states
        if state.name == "customer"
    )  # fmt: skip
    before = edit(lake, state.table).schema()
    old = value_snapshot(read_state_meta_info(DataInput(state.meta_info)))
    assert isinstance(old, PojoSerializerSnapshot)
    fields = {
        field.name: field.value.snapshot for field in old.pojo.fields if field.value is not None
    }
    del fields["tags"]
    new = PojoSerializerSnapshot.of(old.pojo.java_class, fields)
    change = ValueChange("customers", "customer", new)
    migrate_snapshot(ChildSnapshot(lake, "orders", "old", "new", engine=LOCAL), change)
    assert edit(lake, state.table).schema() != before
    drop_snapshots(lake, "orders", snapshot_ids=["new"])
    assert edit(lake, state.table).schema() == before
    rows = rows_of(lake, lake.snapshot("orders", "old"), state.table)
    assert edit(lake, state.table).to_pyarrow_table().sort_by("key") == rows.sort_by("key")
    assert_whole(lake)
