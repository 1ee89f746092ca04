"""Crashes and errors at every step: nothing half done is ever seen, and the next run cleans up.

Two ways to end at a step: an error, after which the same process takes back what it did, and
death, after which the next run does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.ingest import importing
from statelake.pipelines.lake.tables.data_files import DataFileWriter
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.state_core.files.confinement import ConfinedTree
from tests.support.lakes import (
    LOCAL,
    WINDOWS,
    Contents,
    assert_shown,
    assert_whole,
    edit,
    edited_savepoint,
    entries,
    exported,
    files_of,
    import_as,
)
from tests.support.steps import Step, end

pytestmark = pytest.mark.thinned(3)

NOTE: Step = (importing._Import, "_import_keyed", "before", 1)
FIRST_FILE: Step = (DataFileWriter, "_create", "before", 1)
SECOND_FILE: Step = (DataFileWriter, "_create", "after", 2)
NO_VERSION: Step = (StateTable, "replace_files", "before", 1)
ONE_VERSION: Step = (StateTable, "replace_files", "after", 1)
ALL_VERSIONS: Step = (importing, "store_unmanaged", "before", 1)
CARRIED: Step = (importing, "store_unmanaged", "after", 1)
BEGUN: Step = (Catalog, "transact", "after", 1)
NO_ROW: Step = (Catalog, "transact", "before", 2)
ROW: Step = (Catalog, "transact", "after", 2)


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint that differs from `WINDOWS` in both operators."""
    to = tmp_path_factory.mktemp("later") / "savepoint"
    return edited_savepoint(
        WINDOWS, to,
        ("tumbling/window-contents", "key_group < 20", {"value": "value + 1"}),
        ("sliding/window-contents", "key_group > 120", {}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with `WINDOWS` as its snapshot `first`."""
    root = tmp_path_factory.mktemp("prepared") / "lake"
    import_as(Catalog(root), WINDOWS, "first")
    return root


@pytest.fixture(scope="module")
def contents(later: Path) -> dict[str, Contents]:
    """What each of the two savepoints holds."""
    return {"first": entries(WINDOWS), "later": entries(later)}


@pytest.fixture
def lake(tmp_path: Path, prepared: Path) -> Catalog:
    """A copy of the prepared lake: a lake can be moved."""
    shutil.copytree(prepared, tmp_path / "lake")
    return Catalog(tmp_path / "lake")


def ids(lake: Catalog) -> list[str]:
    """The snapshots that exist."""
    return [summary.snapshot_id for summary in lake.summaries()] if lake.exists() else []


IMPORT_STEPS = {
    "noted": NOTE,
    "no file": FIRST_FILE,
    "two files": SECOND_FILE,
    "no version": NO_VERSION,
    "one version": ONE_VERSION,
    "all versions": ALL_VERSIONS,
    "carried": CARRIED,
    "no row": NO_ROW,
}
every_way = pytest.mark.parametrize("way", ["error", "death"])


@pytest.mark.thinned(6)
@every_way
@pytest.mark.parametrize("step", IMPORT_STEPS.values(), ids=IMPORT_STEPS.keys())
def test_a_second_import(
    step: Step, way: str, lake: Catalog, later: Path, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """The first snapshot alone is there, and reads as before; a second run leaves no trace."""
    end(lambda: import_as(lake, later, "later"), step, way)
    assert ids(lake) == ["first"]
    assert_whole(lake, orphans=way == "death")
    assert exported(lake, "first", tmp_path / "first") == contents["first"]
    if way == "error":
        assert_shown(lake, "first")
    import_as(lake, later, "later")
    assert ids(lake) == ["first", "later"]
    assert_whole(lake)
    assert_shown(lake, "later")
    assert exported(lake, "later", tmp_path / "later") == contents["later"]


@every_way
@pytest.mark.parametrize("step", [SECOND_FILE, ONE_VERSION, NO_ROW], ids=["file", "table", "row"])
def test_the_first_import(
    step: Step, way: str, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """There is no snapshot, and a second run makes one."""
    lake = Catalog(tmp_path / "lake")
    end(lambda: import_as(lake, WINDOWS, "first"), step, way)
    assert ids(lake) == []
    assert len(lake.version().claims.attempts) == (1 if way == "death" else 0)
    import_as(lake, WINDOWS, "first")
    assert_whole(lake)
    assert_shown(lake, "first")
    assert exported(lake, "first", tmp_path / "first") == contents["first"]


@every_way
def test_an_end_behind_the_row_is_no_loss(
    way: str, lake: Catalog, later: Path, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """What is in the catalog exists, although its run never learned of it."""
    end(lambda: import_as(lake, later, "later"), ROW, way)
    assert ids(lake) == ["first", "later"]
    before = files_of(tmp_path / "lake")
    import_as(lake, later, "later")
    assert files_of(tmp_path / "lake") == before
    assert exported(lake, "later", tmp_path / "later") == contents["later"]
    import_as(lake, WINDOWS, "again")
    assert_whole(lake)


def test_a_death_as_soon_as_it_has_begun(lake: Catalog, later: Path) -> None:
    """The next one takes it back."""
    end(lambda: import_as(lake, later, "later"), BEGUN, "death")
    assert len(lake.version().claims.attempts) == 1
    assert_whole(lake, orphans=True)
    import_as(lake, later, "later")
    assert_whole(lake)


@pytest.mark.full
def test_a_killed_process(lake: Catalog, later: Path) -> None:
    """A process that is really gone, its files and versions behind it."""
    program = (
        "import os, sys\n"
        "from statelake.pipelines.lake.catalog.catalog import Catalog\n"
        "from statelake.pipelines.lake.catalog.attempts import Attempt\n"
        "from statelake.pipelines.lake.ingest.importing import import_snapshot\n"
        "Attempt.commit = lambda *_: os._exit(9)\n"
        "import_snapshot(Catalog(sys.argv[1]), sys.argv[2], 'orders', engine='local')\n"
    )
    gone = subprocess.run(
        [sys.executable, "-c", program, lake.location, str(later)], check=False, timeout=120
    )
    assert gone.returncode == 9
    assert ids(lake) == ["first"]
    assert len(lake.version().claims.attempts) == 1
    import_as(lake, later, "later")
    assert_whole(lake)


def test_a_run_that_goes_on_is_left_alone(lake: Catalog, later: Path) -> None:
    """Another import, while one is under way, touches nothing of it."""
    with Attempt(lake, "orders", "slow", ["orders/keyed/tumbling/window-contents"]) as slow:
        mine = f"orders/keyed/tumbling/window-contents/_data/{slow.token}/key-group-00001.parquet"
        lake.directory.write(mine, b"in progress")
        import_as(lake, later, "later")
        drop_snapshots(lake, "orders", keep=1)
        assert lake.directory.read(mine) == b"in progress"


EDITED = "orders/keyed/tumbling/window-contents"
COMMIT_STEPS = {
    "no file": FIRST_FILE,
    "two files": SECOND_FILE,
    "no version": NO_VERSION,
    "one version": ONE_VERSION,
    "no row": NO_ROW,
}


@pytest.mark.thinned(6)
@every_way
@pytest.mark.parametrize("step", COMMIT_STEPS.values(), ids=COMMIT_STEPS.keys())
def test_a_commit(
    step: Step, way: str, lake: Catalog, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """The edit is still in the tables, and committing it again succeeds."""
    edit(lake, EDITED).update({"value": "value + 1"}, predicate="key_group < 10")
    edit(lake, "orders/keyed/sliding/window-contents").delete("key_group < 20")

    def commit() -> None:
        commit_snapshot(ChildSnapshot(lake, "orders", "first", "edited", engine=LOCAL))

    end(commit, step, way)
    assert ids(lake) == ["first"]
    assert exported(lake, "first", tmp_path / "first") == contents["first"]
    commit()
    assert ids(lake) == ["first", "edited"]
    assert_shown(lake, "edited")
    assert_whole(lake)
    found = exported(lake, "edited", tmp_path / "edited")
    for operator in lake.snapshot("orders", "edited").operators:
        name = operator.operator_id, "window-contents"
        before, after = contents["first"][name], found[name]
        if operator.label == "sliding":
            assert after == [row for row in before if row[0] >= 20]
        else:
            changed = set(before) ^ set(after)
            assert len(before) == len(after)
            assert {group for group, _, _ in changed} == {g for g, _, _ in before if g < 10}


DROP_STEPS: dict[str, Step] = {
    "rows are gone": (Catalog, "transact", "after", 1),
    "a table is shown": (StateTable, "replace_files", "after", 1),
    "a file is deleted": (StateTable, "open", "after", 20),
    "all is deleted": (Catalog, "transact", "before", 2),
}
every_drop_step = pytest.mark.parametrize("step", DROP_STEPS.values(), ids=DROP_STEPS.keys())


@every_drop_step
def test_a_drop(
    step: Step, lake: Catalog, later: Path, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """The snapshot is gone at once, the others stay whole, and the next drop takes what is left."""
    import_as(lake, later, "later")
    end(lambda: drop_snapshots(lake, "orders", snapshot_ids=["later"]), step, "error")
    assert ids(lake) == ["first"]
    assert exported(lake, "first", tmp_path / "first") == contents["first"]
    drop_snapshots(lake, "orders", keep=1)
    assert_whole(lake)
    assert_shown(lake, "first")


@every_drop_step
def test_a_drop_of_all_that_a_job_has(step: Step, lake: Catalog) -> None:
    """Whoever writes next, into whatever job, finishes it: no row of it is left."""
    end(lambda: drop_snapshots(lake, "orders", keep=0), step, "error")
    assert ids(lake) == []
    import_as(lake, WINDOWS, "other", "returns")
    assert not [name for name in files_of(Path(lake.location) / "orders") if "_data/" in name]
    assert_whole(lake)


def test_a_drop_that_ends_before_its_entry_changes_nothing(
    lake: Catalog, contents: dict[str, Contents], tmp_path: Path
) -> None:
    """What is still in the catalog exists."""
    step: Step = (Catalog, "transact", "before", 1)
    end(lambda: drop_snapshots(lake, "orders", keep=0), step, "error")
    assert lake.version().claims == Claims()
    assert exported(lake, "first", tmp_path / "first") == contents["first"]
    assert_whole(lake)


EXPORT_STEPS: dict[str, Step] = {
    "a file": (ConfinedTree, "create", "after", 1),
    "before _metadata": (ConfinedTree, "write", "before", 1),
}


@pytest.mark.parametrize("step", EXPORT_STEPS.values(), ids=EXPORT_STEPS.keys())
@pytest.mark.parametrize("max_parallelism", [None, 256])
def test_an_export(
    step: Step, max_parallelism: int | None, lake: Catalog, contents: dict[str, Contents],
    tmp_path: Path,
) -> None:  # fmt: skip
    """There is no savepoint and no remains of one, and a second run writes it."""
    to = tmp_path / "exports" / "savepoint"
    options = {"max_parallelism": max_parallelism}
    end(lambda: exported(lake, "first", to, **options), step, "error")
    assert list((tmp_path / "exports").iterdir()) == []
    found = exported(lake, "first", to, **options)
    assert sum(map(len, found.values())) == sum(map(len, contents["first"].values()))
