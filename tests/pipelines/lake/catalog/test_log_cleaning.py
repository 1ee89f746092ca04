"""Logs stay as long as snapshots need them, whoever is suspended or killed meanwhile."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from statelake.pipelines.lake.catalog import attempts, dropping
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogChange, CatalogVersion
from statelake.pipelines.lake.catalog.claims import Claims, DeletionClaim, read_claims
from statelake.pipelines.lake.catalog.deletions import Freed, sweep_catalog
from statelake.pipelines.lake.catalog.dropping import clean_lake, drop_snapshots
from statelake.pipelines.lake.catalog.holds import hold_snapshot, release_snapshot
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.tables import delta_commit, table_log
from statelake.pipelines.lake.tables.delta_commit import DeltaCommit
from statelake.pipelines.lake.tables.table_log import write_checkpoint
from statelake.pipelines.lake.verify.lake_checking import check_lake
from statelake.state_core.errors import ConflictError, NotFoundError, StateError
from tests.support.lakes import (
    WORDS,
    assert_whole,
    edit,
    edited_savepoint,
    exported,
    files_of,
    import_as,
    rows_of,
)

COUNTS = "orders/keyed/counter/count"
EVERY, KEPT = 3, 2
CYCLES = 8


@pytest.fixture(scope="module", autouse=True)
def _often() -> Iterator[None]:
    """Checkpoints of few entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_commit, "CHECKPOINT_EVERY", EVERY)
        patch.setattr(attempts, "CHECKPOINT_EVERY", EVERY)
        yield


@pytest.fixture(scope="module")
def savepoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two, of which one state differs."""
    change = ("counter/count", "key_group < 30", {"value": "value * 2"})
    return WORDS, edited_savepoint(WORDS, tmp_path_factory.mktemp("changed") / "to", change)


def cycles(lake: Catalog, savepoints: tuple[Path, Path], numbers: range) -> None:
    """Import the savepoints in turn, and keep two snapshots."""
    for number in numbers:
        import_as(lake, savepoints[number % 2], f"s{number}", partitions=8)
        drop_snapshots(lake, "orders", keep=KEPT)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, savepoints: tuple[Path, Path]) -> Path:
    """A lake whose logs were cleaned again and again."""
    root = tmp_path_factory.mktemp("short") / "lake"
    cycles(Catalog(root), savepoints, range(CYCLES))
    return root


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory, savepoints: tuple[Path, Path]) -> Path:
    """The same lake with logs that nobody has cleaned."""
    root = tmp_path_factory.mktemp("long") / "lake"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropping, "log_cuts", lambda *_: {})
        patch.setattr(dropping, "sweep_catalog", lambda *_: Freed())
        patch.setattr(attempts, "sweep_catalog", lambda *_: Freed())
        cycles(Catalog(root), savepoints, range(CYCLES))
    return root


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Catalog]:
    """Return a copy of a lake."""

    def copy(lake: Path) -> Catalog:
        shutil.copytree(lake, tmp_path / "lake", dirs_exist_ok=False)
        return Catalog(tmp_path / "lake")

    return copy


def kept_names(lake: Catalog) -> list[str]:
    """The ids of its snapshots."""
    return [record.snapshot_id for record in lake.summaries("orders")]


def versions(lake: Catalog, path: str = COUNTS) -> list[int]:
    """The versions that a table can show."""
    return sorted(lake.table(path).versions_after(-1))


def others(lake: Path) -> None:
    """What other processes do while one is suspended: so many changes that the log is cleaned."""
    catalog = Catalog(lake)
    for _ in range(3 * EVERY):
        hold_snapshot(catalog, "orders", f"s{CYCLES - 1}", "meanwhile")
        release_snapshot(catalog, "orders", f"s{CYCLES - 1}", "meanwhile")
    sweep_catalog(catalog)


def once(work: Callable[[], None]) -> Callable[[], None]:
    """Return what does the work at the first call."""
    left = [work]
    return lambda: left.pop()() if left else None


@pytest.mark.full
def test_files_are_as_many_as_snapshots_need(
    short: Path, savepoints: tuple[Path, Path], copied: Callable[[Path], Catalog]
) -> None:
    """After many imports as after few; so an opening reads as few entries of each log."""
    lake = copied(short)
    root = Path(lake.location)
    before = len(files_of(root))
    cycles(lake, savepoints, range(CYCLES, CYCLES + 3 * EVERY))
    most = 3 * EVERY  # as far as three checkpoints
    assert abs(len(files_of(root)) - before) <= 2 * most
    logs = list(root.rglob("_delta_log"))
    assert len(logs) == 3
    assert all(len(list(log.glob("*.json"))) <= most for log in logs)
    assert len(list(root.glob("snapshots/job=*/*"))) <= most
    assert_whole(lake)


@pytest.mark.full
def test_what_snapshots_name_can_be_read_at_its_version(
    short: Path, copied: Callable[[Path], Catalog], tmp_path: Path
) -> None:
    """By any engine, and exported; an older version is refused."""
    lake = copied(short)
    for name in kept_names(lake):
        record = lake.snapshot("orders", name)
        for table in (table for operator in record.operators for table in operator.tables):
            assert len(rows_of(lake, record, table.path)) == sum(u.rows for u in table.units)
        assert exported(lake, name, tmp_path / name)
    first = versions(lake)[0]
    assert first > 0
    with pytest.raises(Exception, match="No files in log"):
        DeltaTable(lake.table(COUNTS).uri, first - 1)
    with pytest.raises(NotFoundError, match="was cleaned up"):
        lake.table(COUNTS).open(first - 1)


@pytest.mark.full
def test_a_hold_keeps_the_log_from_its_version_on(
    copied: Callable[[Path], Catalog], short: Path, savepoints: tuple[Path, Path]
) -> None:
    """And an attempt that writes to a table keeps all of its log."""
    lake = copied(short)
    held, _ = kept_names(lake)
    hold_snapshot(lake, "orders", held, "case")
    tables = lake.snapshot("orders", held).tables
    for number in range(2 * EVERY):
        import_as(lake, savepoints[number % 2], f"t{number}", partitions=8)
    before = versions(lake)
    with Attempt(lake, "orders", "", [COUNTS]):
        drop_snapshots(lake, "orders", keep=1)
        assert versions(lake)[0] == before[0]
    assert all(versions(lake, table.path)[0] <= table.version for table in tables)
    assert_whole(lake)


@pytest.mark.full
def test_a_clean_up_finds_what_earlier_versions_left(
    long: Path, copied: Callable[[Path], Catalog]
) -> None:
    """At least what it says before; there is nothing then."""
    lake = copied(long)
    names = kept_names(lake)
    planned = clean_lake(lake)
    assert planned.files > 30
    assert clean_lake(lake, dry_run=False).files >= planned.files  # it writes entries, too
    assert clean_lake(lake) == Freed()
    assert kept_names(lake) == names
    assert_whole(lake)


@pytest.mark.parametrize("at", [0, 1, 7, 20])
@pytest.mark.full
def test_a_killed_cleaning_is_ended_by_the_next_one(
    at: int, long: Path, copied: Callable[[Path], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile every snapshot can be read; the second one does the rest, and no more."""
    lake = copied(long)
    deleted: list[str] = []
    kind: Any = type(lake.directory)
    delete = kind.delete

    def until_killed(self: Any, path: str) -> None:
        if len(deleted) == at:
            raise KeyboardInterrupt
        deleted.append(path)
        delete(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "delete", until_killed)
        with pytest.raises(KeyboardInterrupt):
            clean_lake(lake, dry_run=False)
    assert_whole(Catalog(lake.location), orphans=True)
    clean_lake(lake, dry_run=False)
    assert clean_lake(lake) == Freed()
    assert_whole(lake)


@pytest.mark.full
def test_a_writer_that_read_before_a_cleaning_reads_again(
    short: Path, copied: Callable[[Path], Catalog]
) -> None:
    """Its change is made once, on what there is now."""
    lake = copied(short)
    seen: list[int] = []
    interrupted = once(partial(others, Path(lake.location)))

    def decide(version: CatalogVersion) -> CatalogChange:
        interrupted()
        seen.append(version.number)
        return CatalogChange(edits={"orders": lambda rows: rows.slice(0)})

    made = lake.transact(decide)
    assert len(seen) == 2
    assert made == seen[1] + 1 == lake.version().number


@pytest.mark.full
def test_a_writer_that_was_suspended_before_it_put_its_entry_claims_nothing(
    short: Path, copied: Callable[[Path], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is where nobody reads the log, until the next cleaning."""
    lake = copied(short)
    put = DeltaCommit._put
    interrupted = once(partial(others, Path(lake.location)))

    def late(self: DeltaCommit, *args: Any) -> None:
        interrupted()
        put(self, *args)

    monkeypatch.setattr(DeltaCommit, "_put", late)
    with pytest.raises(ConflictError, match="not known whether"):
        hold_snapshot(lake, "orders", f"s{CYCLES - 1}", "late")
    assert not lake.snapshot("orders", f"s{CYCLES - 1}").holds
    first, last = versions(lake, "snapshots")[0], lake.version().number
    assert versions(lake, "snapshots") == list(range(first, last + 1))
    others(Path(lake.location))
    assert versions(lake, "snapshots")[0] > first
    assert len(list(Path(lake.location).glob("snapshots/_delta_log/*.json"))) <= 3 * EVERY


@pytest.mark.full
def test_a_reader_that_began_before_a_cleaning_reads_again(
    short: Path, copied: Callable[[Path], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has listed the log, or opened a version; that version itself says what is gone."""
    lake = copied(short)
    before = lake.version()
    reader = Catalog(lake.location)
    check = table_log.check_log_files
    interrupted = once(partial(others, Path(lake.location)))

    def listed(*args: Any) -> None:
        check(*args)
        interrupted()

    monkeypatch.setattr(table_log, "check_log_files", listed)
    assert reader.version().number > before.number
    assert kept_names(reader) == kept_names(lake)
    _, bad = before.records("orders")
    assert bad
    assert all("can't be read" in row.error.problem for row in bad)
    assert before.is_exchanged


@pytest.mark.full
def test_logs_stay_short_where_somebody_is_erased_again_and_again(
    tmp_path: Path, savepoints: tuple[Path, Path]
) -> None:
    """Between two imports, as every night: checkpoints are kept, by which logs are cleaned."""
    lake, lengths = Catalog(tmp_path / "lake"), []
    for number in range(4 * EVERY):
        cycles(lake, savepoints, range(number, number + 1))
        newest = lake.snapshot("orders", kept_names(lake)[-1])
        key = rows_of(lake, newest, COUNTS).column("key")[number].as_py()
        erase(lake, ErasureRequest(f"gdpr-{number}", [key], carried="keep"), ["orders"])
        lengths.append(len(versions(lake)))
    assert max(lengths) <= 2 * EVERY + KEPT
    assert_whole(lake)
    assert check_lake(lake.directory.root).sound
    newest = lake.snapshot("orders", kept_names(lake)[-1])
    assert key not in rows_of(lake, newest, COUNTS).column("key").to_pylist()


def test_a_log_without_its_beginning_is_erased_from(
    short: Path, copied: Callable[[Path], Catalog]
) -> None:
    """No version that there is shows the erased rows, or names the old files."""
    lake = copied(short)
    record = lake.snapshot("orders", kept_names(lake)[0])
    before = {unit.path for table in record.tables if table.path == COUNTS for unit in table.units}
    key = rows_of(lake, record, COUNTS).column("key")[0].as_py()
    erase(lake, ErasureRequest("gdpr-1", [key], carried="keep"), ["orders"])
    assert_whole(lake)
    found = versions(lake)
    assert found[0] > 0
    old = before - {
        unit.path
        for name in kept_names(lake)
        for table in lake.snapshot("orders", name).tables
        for unit in table.units
    }
    assert old
    for version in found:
        table = DeltaTable(lake.table(COUNTS).uri, version)
        assert old.isdisjoint(table.get_add_actions(flatten=True).column("path").to_pylist())
    for name in kept_names(lake):
        rows = rows_of(lake, lake.snapshot("orders", name), COUNTS)
        assert key not in rows.column("key").to_pylist()
    assert_whole(lake)


def test_a_damaged_checkpoint_is_done_without_after_a_cleaning(
    short: Path, copied: Callable[[Path], Catalog]
) -> None:
    """There is one before the newest, and the entries since."""
    lake = copied(short)
    logs = Path(lake.location) / "snapshots" / "_delta_log"
    newest = max(logs.glob("*.checkpoint.parquet"))
    newest.write_bytes(newest.read_bytes()[:-20] + bytes(20))
    assert len(kept_names(Catalog(lake.location))) == KEPT
    assert not newest.exists()
    oldest = min(logs.glob("*.checkpoint.parquet"))
    oldest.write_bytes(b"")
    with pytest.raises(StateError):
        Catalog(lake.location).version()


def test_a_damaged_checkpoint_that_alone_has_what_was_before_stays(
    short: Path, copied: Callable[[Path], Catalog]
) -> None:
    """It is told as damaged, also after somebody has tried to read it; newer versions are read."""
    lake = copied(short)
    import_as(lake, WORDS, "more", partitions=8)
    for _ in range(2 * EVERY):
        edit(lake, COUNTS).update({"value": "value"})
    write_checkpoint(lake.table(COUNTS).directory)
    checkpoints = sorted((Path(lake.location) / COUNTS / "_delta_log").glob("*.checkpoint.parquet"))
    oldest = checkpoints[0]
    assert len(checkpoints) > 1
    data = bytearray(oldest.read_bytes())
    data[len(data) // 2] ^= 1
    oldest.write_bytes(data)
    for _ in range(2):
        (damaged,) = check_lake(lake.location).damaged
        assert damaged.path.endswith(oldest.name)
        assert not any("deleted" in source for source in damaged.sources)
        with pytest.raises(StateError):
            lake.table(COUNTS).open(int(oldest.name[:20]))
        assert lake.table(COUNTS).open() is not None
        assert oldest.read_bytes() == data


def test_a_commit_by_a_version_without_chains_is_no_sign_of_a_cleaning(
    short: Path, copied: Callable[[Path], Catalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the property as it was, and names itself in its entry alone."""
    lake = copied(short)
    newest = lake.listed("orders")[0][-1].snapshot_id
    real = DeltaCommit._metadata_after

    def unchained(self: DeltaCommit, table: DeltaTable) -> dict[str, Any]:
        self.chained = False
        return real(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaCommit, "_metadata_after", unchained)
        hold_snapshot(lake, "orders", newest, "by an older statelake")
    assert release_snapshot(lake, "orders", newest)
    assert hold_snapshot(lake, "orders", newest, "by this one")


@pytest.mark.full
def test_what_another_engine_restored_is_no_rest(
    savepoints: tuple[Path, Path], tmp_path: Path
) -> None:
    """A file that an old version named is needed again if the newest one names it."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, savepoints[0], "s0", partitions=8)
    before = lake.version().number
    for _ in range(2 * EVERY):
        hold_snapshot(lake, "orders", "s0", "audit")
        release_snapshot(lake, "orders", "s0")
    DeltaTable(str(tmp_path / "lake" / "snapshots")).restore(before)
    sweep_catalog(lake)
    assert [record.snapshot_id for record in Catalog(tmp_path / "lake").records("orders")[0]] == [
        "s0"
    ]
    assert_whole(lake)


def test_a_deletion_without_logs_is_one_that_older_versions_know() -> None:
    """They refuse fields that they do not know, and say that statelake wrote none of them."""
    claim = DeletionClaim("orders", tokens=["f" * 16], carried=[], tables=[], shown=[])
    claims = Claims(deletions={"a" * 16: claim})
    (text,) = claims.to_properties().values()
    assert "logs" not in json.loads(text)
    assert read_claims(claims.to_properties(), "") == claims
