"""Tasks that run more than once, as Spark's do when it takes an executor for lost or slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.keyed_states import value_snapshot
from statelake.state_core.formats.layout.meta_info import read_state_meta_info
from statelake.state_core.formats.writing import spills
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from tests.pipelines.lake.conftest import JOB
from tests.support.engines import Repeating
from tests.support.savepoints.golden_cases import GOLDEN

SOURCE = GOLDEN / "flink" / "pojo-rocksdb-canonical-p2-m128-flink2.3.0" / "savepoint"


def files_of(lake: Catalog) -> set[str]:
    """All files of tables that are not their logs."""
    return {
        str(path.relative_to(lake.location))
        for path in Path(lake.location).rglob("_data/**/*")
        if path.is_file()
    }


def named(lake: Catalog) -> set[str]:
    """The files of tables that snapshots name."""
    return {
        f"{table.path}/{unit.path}"
        for summary in lake.summaries(JOB)
        for operator in lake.snapshot(JOB, summary.snapshot_id).operators
        for table in operator.tables
        for unit in table.units
    }


def without_tags(lake: Catalog) -> ValueChange:
    """Customers without one of their fields."""
    states = [state for op in lake.snapshot(JOB, "old").operators for state in op.states]
    (state,) = (state for state in states if state.name == "customer")
    old = value_snapshot(read_state_meta_info(DataInput(state.meta_info)))
    assert isinstance(old, PojoSerializerSnapshot)
    fields = {
        field.name: field.value.snapshot
        for field in old.pojo.fields
        if field.value is not None and field.value.snapshot is not None
    }
    del fields["tags"]
    new = PojoSerializerSnapshot.of(old.pojo.java_class, fields)
    return ValueChange("customers", "customer", new)


def rows_of(savepoint: str | Path) -> list[Any]:
    """What a savepoint holds, in its order."""
    return [
        (state.name, state.to_arrow().to_pylist())
        for operator in open_snapshot(savepoint).operators
        for state in operator.keyed_states
    ]


def test_one_run_of_a_task_counts_and_nothing_of_the_others_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import, migration and export: what an undisturbed run makes, and not a file beside it."""
    monkeypatch.setattr(spills, "PART_BYTES", 500)
    monkeypatch.setattr(spills, "LARGE_SHARE", 1 << 40)
    monkeypatch.setattr(spills, "PIECE_BYTES", 100)
    repeating = Repeating(monkeypatch)
    lakes = []
    for name, engine in (("lost", repeating), ("calm", "local")):
        lake = Catalog(tmp_path / name)
        import_snapshot(lake, str(SOURCE), JOB, snapshot_id="old", engine=engine)
        migrate_snapshot(ChildSnapshot(lake, JOB, "old", "new", engine=engine), without_tags(lake))
        for snapshot in ("old", "new"):
            to = tmp_path / f"{name}-{snapshot}"
            export_snapshot(lake, JOB, snapshot, to, parallelism=5, engine=engine)
        to = tmp_path / f"{name}-wide"
        export_snapshot(lake, JOB, "old", to, max_parallelism=100, engine=engine)
        lakes.append(lake)
    assert repeating.lost
    assert files_of(lakes[0]) == named(lakes[0])
    for target in ("old", "new", "wide"):
        lost, calm = (tmp_path / f"{name}-{target}" for name in ("lost", "calm"))
        assert rows_of(lost) == rows_of(calm)
        assert len(Directory(str(lost)).names()) == len(Directory(str(calm)).names())
