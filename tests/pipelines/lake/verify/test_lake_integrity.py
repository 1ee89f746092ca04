"""A snapshot in a lake, whose files are damaged on purpose: every fault is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.formats.keyed.raw_timers import IDENTIFIER
from statelake.state_core.integrity import check_snapshot
from tests.support.lakes import KINDS, WIDE, WORDS, exported, golden, import_as, raw_savepoint
from tests.support.savepoints.golden_cases import GOLDEN, GoldenCase, golden_cases

OLD = GOLDEN / "old" / "savepoint-rocksdb-flink1.8.3"
OPERATOR = golden("operator-hashmap-canonical-p2-m128-flink2.3.0").snapshot


@pytest.fixture
def lake(tmp_path: Path) -> Catalog:
    """A lake without anything in it."""
    return Catalog(tmp_path / "lake")


def files(lake: Catalog, record: SnapshotRecord, state: str) -> list[Path]:
    """The data files of a state's table."""
    tables = {
        in_state.name: in_state.table for held in record.operators for in_state in held.states
    }
    path = tables[state]
    (table,) = (table for held in record.operators for table in held.tables if table.path == path)
    return [Path(lake.location) / path / unit.path for unit in table.units]


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a data file again."""
    with path.open("rb") as file:
        table = pq.read_table(file)
    pq.write_table(change(table), path)


@pytest.mark.parametrize("case", golden_cases("wordcount", "windows"), ids=lambda case: case.name)
def test_sound(case: GoldenCase, lake: Catalog) -> None:
    """What was just imported."""
    assert stored_faults(lake, import_as(lake, case.snapshot, "s")) == []


@pytest.mark.parametrize("source", [KINDS, OPERATOR], ids=["kinds", "operator"])
def test_sound_of_every_kind(source: Path, lake: Catalog) -> None:
    """All kinds of keyed state, timers, lists and broadcasts; told of each operator."""
    record = import_as(lake, source, "s")
    told: list[tuple[int, int]] = []
    assert stored_faults(lake, record, lambda done, total: told.append((done, total))) == []
    count = len(record.operators)
    assert told == [(done, count) for done in range(1, count + 1)]


def test_rows_that_moved(lake: Catalog) -> None:
    """As many rows as before, but in another key group, where their keys do not belong."""
    record = import_as(lake, WIDE, "s")

    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index("key_group")
        moved = pc.subtract(table.column(index), pa.scalar(1, pa.int32()))
        shifted = pc.max_element_wise(moved, pa.scalar(0, pa.int32()))
        return table.set_column(index, table.schema.field(index), shifted)

    rewrite(files(lake, record, "count")[0], change)
    faults = stored_faults(lake, record)
    assert any("rows, and" in fault and "in the catalog" in fault for fault in faults)
    assert any("a key group that is not theirs" in fault for fault in faults)
    assert all("count" in fault for fault in faults)


def test_keys_that_changed(lake: Catalog) -> None:
    """As many rows in every key group, but one key is another."""
    record = import_as(lake, WORDS, "s")

    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index("key")
        keys = table.column(index).to_pylist()
        return table.set_column(index, table.schema.field(index), [["nobody", *keys[1:]]])

    rewrite(files(lake, record, "count")[0], change)
    content, fault = stored_faults(lake, record)
    assert "its rows are not those of its fingerprint" in content
    assert "1 or more keys in a key group that is not theirs, 'nobody' the first" in fault


def test_files_that_are_no_more(lake: Catalog) -> None:
    """Of two states one file each: gone, and no Parquet any more; both are told."""
    record = import_as(lake, KINDS, "s")
    files(lake, record, "total")[0].unlink()
    files(lake, record, "items")[0].write_bytes(b"nonsense")
    faults = stored_faults(lake, record)
    assert len(faults) == 2
    assert any("is not there" in fault for fault in faults)
    assert any("can't be read" in fault for fault in faults)


def test_carried_files(lake: Catalog, tmp_path: Path) -> None:
    """A file that is kept as it was must be what it was, and there."""
    record = import_as(lake, raw_savepoint(tmp_path / "raw"), "s")
    assert stored_faults(lake, record) == []
    (carried,) = record.carried
    path = Path(lake.location) / "_statelake" / "carried" / carried.blob
    path.write_bytes(b"Only the job can read this")
    (fault,) = stored_faults(lake, record)
    assert "does not have the digest in its name" in fault
    path.unlink()
    (fault,) = stored_faults(lake, record)
    assert "is not there" in fault


def test_exports_are_sound(lake: Catalog, tmp_path: Path) -> None:
    """Timers of Flink 1.8, which were raw keyed state, are like any others."""
    record = import_as(lake, OLD, "s")
    assert record.carried == []
    exported(lake, "s", tmp_path / "export", parallelism=5)
    report = check_snapshot(tmp_path / "export")
    assert report.faults == ()
    assert report.unchecked == ()


def test_raw_state_goes_with_an_export(lake: Catalog, tmp_path: Path) -> None:
    """What only its operator understands, wherever the source is then, at its parallelism."""
    source = tmp_path / "source"
    shutil.copytree(OLD, source)
    raw = [path for path in source.iterdir() if path.read_bytes()[:4] == IDENTIFIER]
    for path in raw:
        path.write_bytes(path.read_bytes().replace(IDENTIFIER, b"mine"))
    kept = {path.read_bytes() for path in raw}
    record = import_as(lake, source, "s")
    assert len(record.carried) == len(raw) == 2
    shutil.rmtree(source)
    exported(lake, "s", tmp_path / "export")
    report = check_snapshot(tmp_path / "export")
    assert report.faults == ()
    assert ["raw keyed state" in unchecked.why for unchecked in report.unchecked] == [True]
    assert kept <= {path.read_bytes() for path in (tmp_path / "export").iterdir()}
    with pytest.raises(UnsupportedFormatError, match="raw keyed state, which only Flink can move"):
        exported(lake, "s", tmp_path / "other", parallelism=5)
