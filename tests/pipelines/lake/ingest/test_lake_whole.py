"""Importing: versions, what is kept, what a crash leaves, two at once, every golden snapshot."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.ingest import importing
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables.tables import StateTable
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import ConflictError, StateError
from tests.pipelines.lake.conftest import DEMO, JOB, WIDE
from tests.support.lakes import import_as
from tests.support.savepoints.golden_cases import GOLDEN, golden_cases
from tests.support.steps import die_as_gone

pytestmark = pytest.mark.thinned(4)

Listing = Callable[[Path], dict[str, str]]


def rows_of(lake: Catalog, snapshot_id: str, state: str) -> list[dict[str, Any]]:
    """The rows of a state's table, as any reader of Delta sees them at the snapshot's version."""
    record = lake.snapshot(JOB, snapshot_id)
    (operator,) = (
        operator for operator in record.operators if any(s.name == state for s in operator.states)
    )
    (path,) = (kept.table for kept in operator.states if kept.name == state)
    (version,) = (kept.version for kept in operator.tables if kept.path == path)
    table = DeltaTable(lake.table(path).uri, version)
    paths = [str(Path(lake.table(path).directory.root) / uri) for uri in table.file_uris()]
    found = pads.dataset(paths, partitioning=None).to_table().to_pylist()
    return sorted(found, key=repr)


def test_one_table_a_state_and_one_for_timers(lake: Catalog) -> None:
    """Eight states and two queues of timers are nine tables, partitioned by key group."""
    (operator,) = lake.snapshot(JOB, "monday").operators
    assert len(operator.states) == 10
    assert len({state.table for state in operator.states}) == len(operator.tables) == 9
    for table in operator.tables:
        assert lake.table(table.path).require().metadata().partition_columns == ["key_group_bucket"]


def test_rows_are_the_snapshot(lake: Catalog) -> None:
    """A table has the typed rows of the savepoint, each once."""
    state = open_snapshot(DEMO / "monday").operator("kinds").state("triple")
    columns = ["key", "value"]
    wanted = sorted(state.to_arrow().select(columns).to_pylist(), key=repr)
    found = [{name: row[name] for name in columns} for row in rows_of(lake, "monday", "triple")]
    assert sorted(found, key=repr) == wanted


def test_importing_twice_changes_nothing(lake: Catalog, listing: Listing) -> None:
    """The same snapshot under the same id is found, and not one file is touched."""
    before = listing(Path(lake.location))
    again = import_snapshot(lake, str(DEMO / "tuesday"), JOB, snapshot_id="tuesday", engine="local")
    assert not again.new
    assert listing(Path(lake.location)) == before


def test_another_snapshot_under_a_taken_id_is_refused(lake: Catalog, listing: Listing) -> None:
    """An id stands for one snapshot, and the refusal leaves the lake as it was."""
    before = listing(Path(lake.location))
    with pytest.raises(ConflictError, match="another snapshot 'monday'"):
        import_snapshot(lake, str(DEMO / "tuesday"), JOB, snapshot_id="monday", engine="local")
    assert listing(Path(lake.location)) == before


def test_unchanged_key_groups_are_not_written_again(tmp_path: Path) -> None:
    """The same content from another backend, order and compression costs no file."""
    lake = Catalog(tmp_path / "lake")
    first, second = (
        GOLDEN / "flink" / f"wordcount-{form}-flink2.3.0" / "savepoint"
        for form in ("hashmap-canonical-inline-p2-m128", "rocksdb-canonical-snappy-p2-m128")
    )
    options: dict[str, Any] = {"engine": "local", "request": Import(partitions=128)}
    import_snapshot(lake, str(first), JOB, snapshot_id="a", **options)
    done = import_snapshot(lake, str(second), JOB, snapshot_id="b", **options)
    assert (done.written_files, done.record.written_bytes) == (0, 0)
    assert done.kept_files == 115
    assert done.record.entries == 300


@pytest.mark.full
def test_a_new_version_of_what_changed_only(tmp_path: Path) -> None:
    """Tuesday has eight keys more: of a file for each key group most are Monday's."""
    lake = Catalog(tmp_path / "lake")
    for name in ("monday", "tuesday"):
        import_as(lake, DEMO / name, name, JOB, partitions=128)
    tuesday = lake.snapshot(JOB, "tuesday").operators[0]
    monday = lake.snapshot(JOB, "monday").operators[0]
    kept = {unit.path for table in monday.tables for unit in table.units}
    now = [unit.path for table in tuesday.tables for unit in table.units]
    assert 0 < len([path for path in now if path not in kept]) < len(now) / 2


def test_more_than_128_key_groups_share_buckets(tmp_path: Path) -> None:
    """1,024 key groups are at most 128 partitions, and the column is there still."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(
        lake, str(WIDE), JOB, Import(partitions=128), snapshot_id="wide", engine="local"
    )
    (table,) = (
        t for t in lake.snapshot(JOB, "wide").operators[0].tables if t.path.endswith("/count")
    )
    opened = lake.table(table.path).require()
    assert opened.metadata().partition_columns == ["key_group_bucket"]
    assert 100 < len(table.units) <= 128
    groups = {row["key_group"] for row in rows_of(lake, "wide", "count")}
    assert len(groups) > 128


@pytest.mark.parametrize("golden", golden_cases(), ids=lambda case: case.name)
def test_every_golden_snapshot_has_all_its_entries(golden: Any, tmp_path: Path) -> None:
    """As many entries of each state as the snapshot has, whatever its format and types."""
    snapshot = open_snapshot(golden.snapshot)
    counts = {
        (operator.operator_id, state.name): state.to_arrow().num_rows
        for operator in snapshot.operators
        for state in operator.keyed_states
    }
    done = import_snapshot(Catalog(tmp_path), str(golden.snapshot), JOB, engine="local")
    found = {
        (operator.operator_id, state.name): state.entries
        for operator in done.record.operators
        for state in operator.states
    }
    assert found == counts


class ProcessDiedError(Exception):
    """Where a process is taken to have died."""


@pytest.mark.parametrize("step", ["slices", "tables", "row"])
def test_a_crash_leaves_nothing_visible_and_the_next_run_succeeds(
    step: str, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed behind the files, between two tables, or before the row: no snapshot, no remains."""
    name = "later"
    before = {
        table.path: table.version for table in lake.snapshot(JOB, "tuesday").operators[0].tables
    }

    def crash(*_: Any, **__: Any) -> None:
        raise ProcessDiedError

    with monkeypatch.context() as patch:
        die_as_gone(patch)
        if step == "slices":
            patch.setattr(importing._Import, "_commit_tables", crash)
        elif step == "tables":
            real, calls = StateTable.replace_files, []

            def some(self: StateTable, *args: Any, **kwargs: Any) -> int:
                calls.append(self)
                if len(calls) > 3:
                    raise ProcessDiedError
                return real(self, *args, **kwargs)

            patch.setattr(StateTable, "replace_files", some)
        else:
            patch.setattr(Attempt, "commit", crash)
        with pytest.raises(ProcessDiedError):
            import_snapshot(lake, str(DEMO / "monday"), JOB, snapshot_id=name, engine="local")
    assert [summary.snapshot_id for summary in lake.summaries(JOB)] == ["monday", "tuesday"]
    done = import_snapshot(lake, str(DEMO / "monday"), JOB, snapshot_id=name, engine="local")
    assert done.new
    assert lake.version().claims == Claims()
    assert rows_of(lake, name, "name") == rows_of(lake, "monday", "name")
    for path, version in before.items():
        assert lake.table(path).require(version).version() == version


def test_an_error_takes_back_what_was_written(
    lake: Catalog, listing: Listing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk in the middle: no data file is left, and both snapshots read as before."""
    before = {name for name in listing(Path(lake.location)) if "/_data/" in name}
    monkeypatch.setattr(Attempt, "commit", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        import_snapshot(lake, str(DEMO / "monday"), JOB, snapshot_id="later", engine="local")
    after = {name for name in listing(Path(lake.location)) if "/_data/" in name}
    assert after == before
    assert len(rows_of(lake, "tuesday", "name")) == 128


@pytest.mark.parametrize("alike", [True, False] * 3)
def test_two_imports_at_once(alike: bool, tmp_path: Path) -> None:
    """Both the same, or two different ones: each snapshot is there once, and whole."""
    lake = tmp_path / "lake"
    wanted = ["tuesday", "tuesday"] if alike else ["monday", "tuesday"]

    def run(name: str) -> str:
        try:
            source = str(DEMO / name)
            import_snapshot(Catalog(lake), source, JOB, snapshot_id=name, engine="local")
        except ConflictError:
            return "conflict"
        return name

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(run, wanted))
    made = Catalog(lake)
    present = sorted(summary.snapshot_id for summary in made.summaries(JOB))
    assert present == sorted({outcome for outcome in done if outcome != "conflict"})
    for name in present:
        assert len(rows_of(made, name, "name")) == {"monday": 120, "tuesday": 128}[name]


def test_a_broken_savepoint_leaves_the_lake_as_it_was(
    lake: Catalog, listing: Listing, tmp_path: Path
) -> None:
    """A state file that is cut off is an error that names it; nothing changes."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in (DEMO / "monday").iterdir():
        data = path.read_bytes()
        (broken / path.name).write_bytes(data if path.name == "_metadata" else data[:-40])
    before = listing(Path(lake.location))
    with pytest.raises(StateError, match="cut off") as raised:
        import_snapshot(lake, str(broken), JOB, snapshot_id="broken", engine="local")
    assert str(broken) in str(raised.value)
    assert listing(Path(lake.location)) == before
