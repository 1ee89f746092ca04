"""Readers beside an erasure or a drop: a snapshot as it was or as it is, and no mixture of both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

import statelake as sl
from statelake.pipelines.keys import rows_of_key
from statelake.pipelines.lake.catalog import reading
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogVersion
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.catalog.recorded_states import recorded_snapshot
from statelake.pipelines.lake.erase import erasing
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.log_rewriting import rewrite_log
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.keys.key_history import key_history
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.query.table_names import TableNames
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.pipelines.lake.verify.diffing import diff_snapshots
from statelake.pipelines.requests.reading import Comparison
from statelake.state_core.errors import ConflictError, NotFoundError
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory
from tests.support.command import run
from tests.support.lakes import LOCAL, edit, entries, exported, import_as
from tests.support.people import ALICE, BESIDE_KEYS, people_savepoint
from tests.support.steps import EndError, do_at, stop

UIDS = ("users", "places")
REQUEST = ErasureRequest("gdpr-4711", [ALICE], BESIDE_KEYS)
HERS = f"SELECT count(*) AS n FROM orders.users.{{}} WHERE key = '{ALICE}'"
STATES = ("profile", "visits", "timers")

Read: TypeAlias = "Callable[[Catalog, Path], object]"


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two snapshots, in which each table has a few files."""
    root = tmp_path_factory.mktemp("two-days")
    for day in range(2):
        savepoint = people_savepoint(root / f"day-{day}", day)
        import_as(Catalog(root / "lake"), savepoint, f"day-{day}", uids=UIDS, partitions=3)
    return root / "lake"


@pytest.fixture
def lake(two_days: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    shutil.copytree(two_days, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


@pytest.fixture(scope="module")
def erased(two_days: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A copy of it that she was erased from, with nobody beside."""
    root = tmp_path_factory.mktemp("erased") / "lake"
    shutil.copytree(two_days, root)
    erase_her(Catalog(root))
    return Catalog(root)


def erase_her(lake: Catalog) -> None:
    """Erase her from all snapshots."""
    erase(lake, REQUEST, all_rows=True)


def rows(lake: Catalog, query: str, as_of: str | None = None) -> list[dict[str, Any]]:
    """The rows of a query."""
    with Session(lake, TableNames(lake, as_of=as_of)) as session:
        return [row for batch in session.query(query).batches for row in batch.to_pylist()]


def end_between_two_logs(lake: Catalog) -> None:
    """Erase, up to the second table's log."""
    done: list[str] = []

    def rewrite(table: StateTable, *arguments: Any) -> None:
        done.append(table.path)
        if len(done) > 1:
            stop()
        rewrite_log(table, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasing, "rewrite_log", rewrite)
        with pytest.raises(EndError):
            erase_her(lake)


@contextmanager
def before_file(number: int, action: Callable[[], object]) -> Iterator[None]:
    """Do something once, before that file of a state is opened."""
    local = type(Directory("/").confined())
    real, opened = local.open_input, [0]

    def open_input(self: ConfinedDirectory, path: str) -> pa.NativeFile:
        opened[0] += path.startswith("_data/")
        if path.startswith("_data/") and opened[0] == number:
            action()
        return real(self, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "open_input", open_input)
        yield


def sql_as_of(lake: Catalog, _: Path) -> object:
    """Rows of two states of the earlier snapshot."""
    query = "SELECT key, p.value, v.value FROM orders.users.{} JOIN orders.users.{} USING (key)"
    return rows(lake, f"{query.format('profile p', 'visits v')} ORDER BY key", "day-0")


def sql_of_all(lake: Catalog, _: Path) -> object:
    """Rows of a state in all snapshots, beside those of the newest."""
    return rows(
        lake,
        "SELECT snapshot, a.key, v.key AS now FROM orders.users.visits@all a"
        " FULL JOIN orders.users.visits v USING (key) ORDER BY ALL",
    )


def get(lake: Catalog, _: Path) -> object:
    """All that is held for a friend of hers."""
    ran = run("get", "--lake", lake.location, "--job", "orders", "--key", "person-001", "--json")
    return ran.code, ran.json


def top(lake: Catalog, _: Path) -> object:
    """The heaviest keys."""
    ran = run("top", "--lake", lake.location, "--job", "orders", "--limit", 80, "--json")
    return ran.code, ran.json


def check(lake: Catalog, _: Path) -> object:
    """Faults of a snapshot."""
    words = ("--lake", lake.location, "--job", "orders", "--snapshot", "day-0", "--json")
    ran = run("check", "integrity", *words)
    return ran.code, ran.json


def report(lake: Catalog, to: Path) -> object:
    """The page of a snapshot, but for how much each wrote."""
    words = ("--lake", lake.location, "--job", "orders", "--check", "--to", to, "--json")
    ran = run("report", *words)
    return ran.code, json.loads(ran.out)["faults"], ALICE in to.read_text()


def history(lake: Catalog, _: Path) -> object:
    """What changed of a friend of hers."""
    return [each.changes for each in key_history(lake, "orders", "person-001").snapshots]


def diff(lake: Catalog, _: Path) -> object:
    """What changed between the days."""
    return diff_snapshots(lake, "orders", "day-0", "day-1", Comparison(examples=0), engine=LOCAL)


def growth(lake: Catalog, _: Path) -> object:
    """How its state grew."""
    return sl.Lake(lake.location).job("orders", engine="local").growth().to_json()


def export(lake: Catalog, to: Path) -> object:
    """The entries of an export."""
    return exported(lake, "day-0", to)


READERS = [sql_as_of, sql_of_all, get, top, check, report, history, diff, export]
by_name = pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)


class TestAnErasureThatEndedBetweenTwoLogs:
    """The catalog has the new files, and so have readers, whatever the tables' logs say."""

    @pytest.mark.thinned(2)
    @pytest.mark.parametrize("as_of", ["day-0", "day-1", None])
    @pytest.mark.full
    def test_sql_shows_her_nowhere(self, lake: Catalog, as_of: str | None) -> None:
        """As of each snapshot, and of the newest by default."""
        assert rows(lake, HERS.format("profile"), as_of) == [{"n": 1}]
        end_between_two_logs(lake)
        for state in STATES:
            assert rows(lake, HERS.format(state), as_of) == [{"n": 0}]

    @pytest.mark.full
    def test_a_view_of_all_snapshots_shows_her_nowhere(self, lake: Catalog) -> None:
        """The rows of each snapshot are those of its record."""
        end_between_two_logs(lake)
        for state in STATES:
            assert rows(lake, HERS.format(f"{state}@all")) == [{"n": 0}]

    @pytest.mark.thinned(3)
    @pytest.mark.parametrize("read", [get, top, history, diff, export])
    @pytest.mark.full
    def test_others_read_what_is_read_when_it_has_ended(
        self, read: Read, lake: Catalog, erased: Catalog, tmp_path: Path
    ) -> None:
        """To the last row."""
        end_between_two_logs(lake)
        assert read(lake, tmp_path / "between") == read(erased, tmp_path / "after")


@pytest.mark.thinned(4)
@by_name
@pytest.mark.full
def test_an_erasure_while_a_snapshot_is_read_is_seen_whole(
    read: Read, lake: Catalog, erased: Catalog, tmp_path: Path
) -> None:
    """The record was read, its files are gone: all is read again, by the record of now."""
    with before_file(1, partial(erase_her, lake)):
        found = read(lake, tmp_path / "meanwhile")
    assert found == read(erased, tmp_path / "after")


@pytest.mark.parametrize("read", [sql_of_all, diff, growth])
@pytest.mark.full
def test_a_comparison_beside_an_erasure_is_no_mixture(
    read: Read, lake: Catalog, erased: Catalog, tmp_path: Path
) -> None:
    """An erasure between two records: both snapshots are shown before it, or both after it."""
    either = [read(lake, tmp_path), read(erased, tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        step = (CatalogVersion, "snapshot", "after", 1)
        do_at(patch, step, partial(end_between_two_logs, lake))
        assert read(lake, tmp_path) in either
    assert read(lake, tmp_path) == either[1]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("read", [sql_as_of, history, diff, export])
@pytest.mark.full
def test_an_erasure_behind_some_files_is_seen_whole(
    read: Read, lake: Catalog, erased: Catalog, tmp_path: Path
) -> None:
    """Nothing of the record of before stays in what is given."""
    with before_file(3, partial(erase_her, lake)):
        found = read(lake, tmp_path / "meanwhile")
    assert found == read(erased, tmp_path / "after")
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("read", [sql_as_of, sql_of_all, history, diff, export])
def test_a_drop_while_a_snapshot_is_read_is_told(read: Read, lake: Catalog, tmp_path: Path) -> None:
    """What was asked for is not there any more, and nothing half-written is either."""
    dropping = partial(drop_snapshots, lake, "orders", snapshot_ids=["day-0"])
    with (
        before_file(2, dropping),
        pytest.raises(NotFoundError, match=r"snapshot 'day-0' was dropped while it was read"),
    ):
        read(lake, tmp_path / "export")
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}


def test_a_drop_while_a_command_reads_is_bad_input(lake: Catalog) -> None:
    """The exit code is that of a snapshot that is not there."""
    words = ("--lake", lake.location, "--job", "orders", "--snapshot", "day-0")
    with before_file(1, partial(drop_snapshots, lake, "orders", snapshot_ids=["day-0"])):
        ran = run("get", *words, "--key", "person-001")
    assert (ran.code, ran.out) == (3, "")
    assert "snapshot 'day-0' was dropped while it was read" in ran.err


def test_rows_that_were_given_out_are_not_given_again(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure behind the first of them is an error that says what to do."""
    monkeypatch.setattr(reading, "HELD", 1)
    of_operators = rows_of_key(recorded_snapshot(lake, lake.snapshot("orders", "day-0")), ALICE)
    batches = next(each.batches for each in of_operators if each.operator == "users")
    next(batches)
    erase_her(lake)
    message = r"snapshot 'day-0' was erased from while it was read; run it again"
    with pytest.raises(ConflictError, match=message):
        list(batches)


def test_a_missing_file_is_no_erasure(lake: Catalog, tmp_path: Path) -> None:
    """Where the record is as it was, the error names the file."""
    table = lake.snapshot("orders", "day-0").tables[0]
    (Path(lake.table(table.path).uri) / table.units[0].path).unlink()
    with pytest.raises(Exception, match=r"_data/.*can't be read"):
        export_snapshot(lake, "orders", "day-0", tmp_path / "export", engine=LOCAL)
    assert not (tmp_path / "export").exists()


class TestWithoutAsOf:
    """The newest snapshot's tables, and what others than statelake changed in them since."""

    def test_an_import_that_has_not_ended_is_not_seen(
        self, lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its version of a table is newer than that of any snapshot."""
        before = rows(lake, "SELECT * FROM orders.users.visits ORDER BY key")
        day_2 = people_savepoint(tmp_path / "day-2", 2)
        during: list[Any] = []

        def look() -> None:
            assert lake.table("orders/keyed/users/visits").require().version() == 2
            during.extend(rows(lake, "SELECT * FROM orders.users.visits ORDER BY key"))

        do_at(monkeypatch, (Attempt, "commit", "before", 1), look)
        import_as(lake, day_2, "day-2", uids=UIDS)
        assert during == before
        assert rows(lake, "SELECT * FROM orders.users.visits ORDER BY key") != before

    def test_edits_of_others_are_seen_until_they_are_left_out(self, lake: Catalog) -> None:
        """A commit registers them; a snapshot that is named is read without them."""
        edit(lake, "orders/keyed/users/visits").delete(f"key = '{ALICE}'")
        query = "SELECT min(key) AS first FROM orders.users.visits"
        assert rows(lake, query) == [{"first": "person-000"}]
        assert rows(lake, query, "day-1") == [{"first": ALICE}]

    def test_a_session_sees_what_was_imported_between_two_queries(
        self, lake: Catalog, tmp_path: Path
    ) -> None:
        """Each query is of the newest snapshot that there is."""
        day_2 = people_savepoint(tmp_path / "day-2", 2)
        query = "SELECT max(value) // 100 AS day FROM orders.users.visits"
        with Session(lake, TableNames(lake)) as session:
            days = [batch.to_pylist() for batch in session.query(query).batches]
            import_as(lake, day_2, "day-2", uids=UIDS)
            days += [batch.to_pylist() for batch in session.query(query).batches]
        assert days == [[{"day": 1}], [{"day": 2}]]


def test_a_snapshot_exports_as_before_until_the_switch(lake: Catalog, tmp_path: Path) -> None:
    """An erasure that ended before it has changed nothing for a reader."""
    before = exported(lake, "day-0", tmp_path / "before")
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (erasing.Erasure, "switch", "before", 1), stop)
        with pytest.raises(EndError):
            erase_her(lake)
    assert exported(lake, "day-0", tmp_path / "export") == before
    assert entries(tmp_path / "export") == entries(tmp_path / "before")
