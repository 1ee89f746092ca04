"""What is kept stays: VACUUM, log clean-up, checkpoints of the log, a lake that moves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from tests.support.lakes import (
    LOCAL,
    WORDS,
    Contents,
    assert_whole,
    edit,
    edited_savepoint,
    exported,
    import_as,
    unit_paths,
)

COUNTS = "orders/keyed/counter/count"
NAMES = ["monday", "tuesday", "edited"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two imports and a commit, of two jobs, one called like the catalog."""
    root = tmp_path_factory.mktemp("prepared")
    lake = Catalog(root / "lake")
    change = ("counter/count", "key_group < 30", {"value": "value * 2"})
    tuesday = edited_savepoint(WORDS, root / "tuesday", change)
    import_as(lake, WORDS, "monday", partitions=8)
    import_as(lake, tuesday, "tuesday", partitions=8)
    edit(lake, COUNTS).delete("key_group < 60")
    commit_snapshot(ChildSnapshot(lake, "orders", "tuesday", "edited", engine=LOCAL))
    import_as(lake, WORDS, "monday", "snapshots")
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


def tables(lake: Catalog) -> list[DeltaTable]:
    """Every Delta table of a lake, the catalog among them."""
    root = Path(lake.location)
    return [DeltaTable(str(log.parent)) for log in sorted(root.rglob("_delta_log"))]


def assert_readable(lake: Catalog, contents: dict[str, Contents], to: Path) -> None:
    """Assert that all snapshots can be exported, and read as versions by any Delta engine."""
    assert_whole(lake, orphans=True)
    for name in NAMES:
        assert exported(lake, name, to / name) == contents[name]
        for operator in lake.snapshot("orders", name).operators:
            for table in operator.tables:
                found = DeltaTable(lake.table(table.path).uri, table.version)
                assert len(found.to_pyarrow_table()) == sum(unit.rows for unit in table.units)
    snapshots = exported(lake, "monday", to / "other", "snapshots")
    assert snapshots == contents["monday"]


@pytest.mark.full
def test_vacuum(lake: Catalog, contents: dict[str, Contents], tmp_path: Path) -> None:
    """VACUUM RETAIN 0 of every table takes what edits left, and nothing that a snapshot has."""
    taken = set()
    for table in tables(lake):
        names = table.vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
        )
        taken |= set(names)
    assert not any("_data/" in name for name in taken)
    assert_readable(lake, contents, tmp_path)


def test_log_clean_up(lake: Catalog, contents: dict[str, Contents], tmp_path: Path) -> None:
    """Checkpoints and clean-ups of the log forget no version that a snapshot has."""
    for table in tables(lake):
        table.create_checkpoint()
        before = sorted(Path(table.table_uri.removeprefix("file://")).rglob("_delta_log/*.json"))
        table.cleanup_metadata()
        after = sorted(Path(table.table_uri.removeprefix("file://")).rglob("_delta_log/*.json"))
        assert after == before
        assert before
    assert_readable(lake, contents, tmp_path)


@pytest.mark.full
def test_both_and_then_more_imports(
    lake: Catalog, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """A lake that was looked after like that takes further snapshots, and shares files still."""
    for table in tables(lake):
        table.create_checkpoint()
        table.cleanup_metadata()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    again = import_as(lake, WORDS, "again", partitions=8)
    assert exported(lake, "again", tmp_path / "again") == contents["monday"]
    assert unit_paths(again) & unit_paths(lake.snapshot("orders", "edited"))
    assert_readable(lake, contents, tmp_path)


def test_tables_say_so_themselves(lake: Catalog) -> None:
    """Every table is told to keep its log and its files; other engines obey these properties."""
    for table in tables(lake):
        configuration = table.metadata().configuration
        assert configuration["delta.logRetentionDuration"] == "interval 36500 days"
        assert configuration["delta.deletedFileRetentionDuration"] == "interval 36500 days"
        assert configuration["delta.enableExpiredLogCleanup"] == "false"


def test_a_lake_can_be_moved(lake: Catalog, contents: dict[str, Contents], tmp_path: Path) -> None:
    """Nothing in it says where it lies."""
    shutil.move(lake.location, tmp_path / "elsewhere")
    assert_readable(Catalog(tmp_path / "elsewhere"), contents, tmp_path)
