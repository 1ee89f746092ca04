"""Erased from some snapshots alone; lists with a time to live; a disk that is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from statelake import NewKeyedState, NewOperator, write_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.edit.sql_editing import edit_by_sql
from statelake.pipelines.lake.erase.auditing import audit_erasure
from statelake.pipelines.lake.erase.erasing import STEPS, Erasure, erase, plan_erasure
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.query.table_names import TableNames
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.state_core.errors import ConflictError, NotFoundError
from tests.support.command import run as command
from tests.support.lakes import (
    Contents,
    assert_shown,
    assert_whole,
    exported,
    import_as,
    raw_savepoint,
    unit_paths,
)
from tests.support.people import ALICE, files_with, people_savepoint
from tests.support.steps import EndError, Step, do_at, stop

UIDS = ("users", "places")
KEY = ErasureRequest("r", [ALICE])
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of three snapshots of which each shares files with the one before."""
    root = tmp_path_factory.mktemp("three")
    lake = Catalog(root / "lake")
    import_as(lake, people_savepoint(root / "day", 0), "day-0", uids=UIDS)
    for parent, name in (("day-0", "day-1"), ("day-1", "day-2")):
        statement = f"UPDATE users.visits SET value = {name[-1]} WHERE key_group < 64"
        edit_by_sql(ChildSnapshot(lake, "orders", parent, name), [statement])
    return root / "lake"


@pytest.fixture
def lake(three: Path, tmp_path: Path) -> Catalog:
    """A copy of it."""
    shutil.copytree(three, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


def contents(lake: Catalog, to: Path) -> dict[str, Contents]:
    """What each snapshot exports."""
    names = [summary.snapshot_id for summary in lake.summaries()]
    return {name: exported(lake, name, to / name) for name in names}


def keys_left(lake: Catalog, snapshot_id: str) -> int:
    """Her rows in a state whose file all three share, as SQL sees it at the snapshot's version."""
    with Session(lake, TableNames(lake, as_of=snapshot_id, job="orders")) as session:
        query = f"SELECT count(*) n FROM users.profile WHERE key = '{ALICE}'"
        (batch,) = session.query(query).batches
        return int(batch.column("n")[0].as_py())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("named", [["day-1"], ["day-0", "day-2"]], ids="+".join)
@pytest.mark.full
def test_only_snapshots_that_are_named(named: list[str], lake: Catalog, tmp_path: Path) -> None:
    """The others stay byte for byte; each table has a version for either, and shows the newest."""
    request = ErasureRequest("r", [ALICE], snapshots=named)
    before = contents(lake, tmp_path / "before")
    units = {name: unit_paths(lake.snapshot("orders", name)) for name in before}
    plan = plan_erasure(lake, request)
    assert plan.kept_for == [("orders", name) for name in before if name not in named]
    erase(lake, request)
    after = contents(lake, tmp_path / "after")
    for name in before:
        assert (after[name] == before[name]) == (name not in named)
        assert (unit_paths(lake.snapshot("orders", name)) == units[name]) == (name not in named)
        assert (lake.snapshot("orders", name).erased == ["r"]) == (name in named)
        assert keys_left(lake, name) == (name not in named)
        assert list(stored_faults(lake, lake.snapshot("orders", name))) == []
    assert_whole(lake)
    assert_shown(lake, "day-2")
    audited = audit_erasure(lake, KEY)
    assert audited.rows > 0
    assert not audited.clean
    assert audited.only == sorted(named)
    erase(lake, ErasureRequest("all", [ALICE], {"users/friends": f"user_key = '{ALICE}'",
          "places/members": f"element = '{ALICE}'", "places/pending": f"value = '{ALICE}'",
          "places/shared": f"value = '{ALICE}'", "places/rules": f"key = '{ALICE}'"}),
          all_rows=True)  # fmt: skip
    assert files_with(Path(lake.directory.root), ALICE) == []
    assert_whole(lake)


def test_a_carried_file_stays_for_who_was_not_named(tmp_path: Path) -> None:
    """And the plan says so, as it does of tables."""
    lake = Catalog(tmp_path / "lake")
    for name in ("one", "two"):
        import_as(lake, raw_savepoint(tmp_path / name), name)
    for carried, kept in (("drop", [("orders", "two")]), ("keep", [])):
        request = ErasureRequest("r", [ALICE], snapshots=["one"], carried=carried)
        assert plan_erasure(lake, request).kept_for == kept


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "step", [(Erasure, step, "after", 1) for step in STEPS[4:8]], ids=lambda step: str(step[1])
)
@pytest.mark.full
def test_a_crash_of_some_snapshots_is_gone_on_from(
    step: Step, lake: Catalog, tmp_path: Path
) -> None:
    """By the same request of the same snapshots, and of no others."""

    class DiesError(BaseException):
        pass

    def die() -> None:
        raise DiesError

    request = ErasureRequest("r", [ALICE], snapshots=["day-1"])
    before = contents(lake, tmp_path / "before")
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, step, die)
        with pytest.raises(DiesError):
            erase(lake, request)
    with pytest.raises(ConflictError, match="other snapshots"):
        erase(lake, KEY)
    erase(lake, request)
    after = contents(lake, tmp_path / "after")
    assert [name for name in before if before[name] != after[name]] == ["day-1"]
    assert_whole(lake)
    assert_shown(lake, "day-2")


@pytest.mark.full
def test_the_command_names_snapshots(lake: Catalog) -> None:
    """The plan says whose files stay; a snapshot that is not there is refused."""
    of = ("erase", "--lake", lake.location, "--key", ALICE, "--request", "r", "--snapshot")
    ran = command(*of, "day-1")
    assert ran.code == 0
    assert "keeps shared files, since the request does not name it: day-0 of orders" in ran.out
    assert command(*of, "day-7").code == 3
    assert command(*of, "day-1", "--yes").code == 0
    audited = command("audit", "erase", "--lake", lake.location, "--key", ALICE, "--request", "r")
    assert audited.code == 1
    assert "only these snapshots were erased from: day-1" in audited.out
    with pytest.raises(
        NotFoundError, match="job 'orders': there is no snapshot day-7; its latest are:"
    ):
        plan_erasure(lake, ErasureRequest("r", [ALICE], snapshots=["day-7"]))


def test_elements_of_lists_with_a_time_to_live(tmp_path: Path) -> None:
    """Each has a time of last access, which goes with it."""
    rows = pa.table(
        {
            "key": ["east", "north", "south"],
            "value": [["east-1", ALICE, "east-2"], [ALICE], ["south-1"]],
            "ttl": [[1, 2, 3], [4], [5]],
        }
    )
    visits = NewKeyedState("visitors", rows, kind="list", value="String", with_ttl=True)
    write_snapshot(tmp_path / "savepoint", [NewOperator("places", "String", (visits,))])
    lake = Catalog(tmp_path / "lake")
    import_as(lake, tmp_path / "savepoint", "day", uids=("places",))
    where = {"places/visitors": f"element = '{ALICE}'"}
    assert erase(lake, ErasureRequest("r", where=where)).content["rows"] == 2
    with Session(lake, TableNames(lake, job="orders")) as session:
        query = "SELECT key, value, ttl FROM places.visitors ORDER BY key"
        left = [row for batch in session.query(query).batches for row in batch.to_pylist()]
    assert left == [
        {"key": "east", "value": ["east-1", "east-2"], "ttl": [1, 3]},
        {"key": "south", "value": ["south-1"], "ttl": [5]},
    ]
    exported(lake, "day", tmp_path / "out")
    assert files_with(tmp_path / "lake", ALICE) == []
    assert files_with(tmp_path / "out", ALICE) == []
    assert list(stored_faults(lake, lake.snapshot("orders", "day"))) == []


FULL_DISK = """
import errno, os, shutil, sys
from pathlib import Path
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.state_core.errors import StateError
from tests.support.lakes import assert_whole, exported
from tests.support.people import ALICE

disk, source, work = map(Path, sys.argv[1:])
request = ErasureRequest("r", [ALICE])

def contents(lake, name):
    shutil.rmtree(work / name, ignore_errors=True)
    return {one.snapshot_id: exported(lake, one.snapshot_id, work / name / one.snapshot_id)
            for one in lake.summaries()}

before = contents(Catalog(source), "before")
whole = Catalog(shutil.copytree(source, work / "whole"))
erase(whole, request)
expected = contents(whole, "expected")
errors = 0
for room in range(2, 4096, 24):
    shutil.rmtree(disk / "lake", ignore_errors=True)
    lake = Catalog(shutil.copytree(source, disk / "lake"))
    status = os.statvfs(disk)
    ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(ballast, 0, status.f_bavail * status.f_bsize - room * 1024)
    os.close(ballast)
    try:
        erase(lake, request)
        ended = True
    except (StateError, OSError) as error:
        assert "space" in str(error).lower(), error
        ended = False
    (disk / "ballast").unlink()
    between = contents(lake, "between")
    assert all(between[name] in (before[name], expected[name]) for name in before)
    if ended:
        break
    errors += 1
    erase(lake, request)
    assert contents(lake, "between") == expected
    assert_whole(lake)
assert ended
print(errors)
"""
MOUNT = 'mount -t tmpfs -o size=8m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4" "$5"'


@pytest.mark.full
def test_a_disk_that_is_full(three: Path, tmp_path: Path) -> None:
    """A real one, with a little more room each time: before or after, and then gone on with."""
    names = ("disk", "work")
    disk, work = (tmp_path / name for name in names)
    for path in (disk, work):
        path.mkdir()
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    tried = subprocess.run(
        [*unshare, f"mount -t tmpfs tmpfs {disk}"], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip("this system mounts no file system of a user's")
    ran = subprocess.run(
        [*unshare, MOUNT, "sh", disk, sys.executable, FULL_DISK, three, work],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    assert int(ran.stdout) > 3


@pytest.mark.full
def test_an_error_behind_the_switch_is_gone_on_from(lake: Catalog) -> None:
    """As before it, but that the jobs stay closed until the same request comes again."""
    with pytest.MonkeyPatch.context() as patch:
        do_at(patch, (Erasure, "delete_old", "before", 1), stop)
        with pytest.raises(EndError):
            erase(lake, KEY)
    assert lake.version().claims.erasures["r"].switched
    assert erase(lake, KEY).resumed
    assert_whole(lake)
