"""A key group that is larger than what one task writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelake import open_snapshot
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export import cutting, large_groups
from statelake.pipelines.lake.export.export_slice import AssembleTask, ShuffleTask, WriteTask
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.export.large_groups import GroupPiece
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.share.mask_file import read_mask
from statelake.pipelines.lake.share.sharing import SharedForm
from statelake.pipelines.lake.tables import data_files as unit_writer
from statelake.state_core.formats.keyed import unified_file
from statelake.state_core.formats.writing import spills
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.key_groups import key_groups_of_hashes
from tests.support.lakes import edit

ENTRIES = 3000
MASK = "{secret: {env: SECRET}, keys: {op: hash}, others: keep}"


class Noting(LocalEngine):
    """The local engine, which knows the tasks that it had."""

    def __init__(self) -> None:
        super().__init__(2)
        self.tasks: list[Any] = []

    def map(self, function: Any, tasks: Any, progress: Any = None) -> list[Any]:
        """As `Engine.map`."""
        self.tasks += tasks
        return super().map(function, tasks, progress)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A key has most entries of a map, in many row groups; one state has none of its key group."""
    root = tmp_path_factory.mktemp("large")
    many = {
        "key": [7] * ENTRIES + list(range(100)),
        "user_key": list(range(ENTRIES + 100)),
        "value": [f"value {index}" for index in range(ENTRIES + 100)],
    }
    few = {"key": list(range(100)), "value": list(range(100))}
    groups = key_groups_of_hashes(np.arange(100, dtype=np.int32), 128)
    others = pa.table(few).filter(pa.array(groups != groups[7]))
    states = (
        NewKeyedState("elsewhere", others, value="Long"),
        NewKeyedState("first", pa.table(few), value="Long"),
        NewKeyedState("many", pa.table(many), kind="map", user_key="Long", value="String"),
        NewKeyedState("more", pa.table(many), kind="map", user_key="Long", value="String"),
        NewKeyedState.timers("event", pa.table({"key": few["key"], "timestamp": few["value"]})),
        NewKeyedState.timers("processing", pa.table({"key": [7], "timestamp": [7]})),
    )
    operator = NewOperator("op", "Long", states, parallelism=2, max_parallelism=128)
    write_snapshot(root / "savepoint", [operator], metadata_version=6)
    made = Catalog(root / "lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unified_file, "TABLE_ROWS", 100)
        patch.setattr(unit_writer, "ROW_GROUP_BYTES", 5000)
        import_snapshot(made, str(root / "savepoint"), "j", snapshot_id="s", engine="local")
    return made


def contents(savepoint: Path) -> list[bytes]:
    """The files of a savepoint but for `_metadata`."""
    files = [path for path in savepoint.iterdir() if path.name != "_metadata"]
    return sorted(path.read_bytes() for path in files)


def rows_of(savepoint: Path) -> list[Any]:
    """What a savepoint holds, in its order."""
    (operator,) = open_snapshot(savepoint).operators
    return [(state.name, state.to_arrow().to_pylist()) for state in operator.keyed_states]


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_pieces_are_what_one_task_writes(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """Several tasks write a key group; together they are the bytes of one that writes it whole."""
    export_snapshot(lake, "j", "s", tmp_path / "whole", compression=compression, engine="local")
    monkeypatch.setattr(cutting, "SLICE_BYTES", 20_000)
    monkeypatch.setattr(cutting, "CHUNK_BYTES", 6_000)
    monkeypatch.setattr(large_groups, "ENCODED_BYTES", 2_000)
    engine = Noting()
    export_snapshot(lake, "j", "s", tmp_path / "cut", compression=compression, engine=engine)
    cut = [
        task for task in engine.tasks
        if isinstance(task, WriteTask) and isinstance(task.chunks[0], GroupPiece)
    ]  # fmt: skip
    assert len(cut) > 3
    assert any(chunk.row_groups is None for task in cut for chunk in task.chunks)
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    if compression == "none":
        assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("masked", [False, True])
def test_new_key_groups_are_put_together_from_pieces(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, masked: bool
) -> None:
    """Sorted by new key group in pieces, and put together in parts: the bytes of uncut ones."""
    monkeypatch.setenv("SECRET", "a secret of the tests")
    (tmp_path / "mask").write_text(MASK)
    options = {
        "max_parallelism": None if masked else 60,
        "sharing": SharedForm(mask=read_mask(str(tmp_path / "mask"))) if masked else None,
        "compression": compression,
    }
    export_snapshot(lake, "j", "s", tmp_path / "whole", engine="local", **options)
    monkeypatch.setattr(cutting, "SLICE_BYTES", 20_000)
    monkeypatch.setattr(cutting, "CHUNK_BYTES", 6_000)
    monkeypatch.setattr(large_groups, "ENCODED_BYTES", 2_000)
    monkeypatch.setattr(spills, "PIECE_BYTES", 5_000)
    engines = Noting(), Noting()
    export_snapshot(lake, "j", "s", tmp_path / "uncut", engine=engines[0], **options)
    monkeypatch.setattr(spills, "PART_BYTES", 20_000)
    monkeypatch.setattr(spills, "LARGE_SHARE", 1 << 40)
    export_snapshot(lake, "j", "s", tmp_path / "cut", engine=engines[1], **options)
    shuffles = [task for task in engines[1].tasks if isinstance(task, ShuffleTask)]
    assert any(isinstance(task.chunks[0], GroupPiece) for task in shuffles)
    uncut, cut = (
        [task.part for task in engine.tasks if isinstance(task, AssembleTask)] for engine in engines
    )
    assert len(uncut) == 2
    assert sum(not part.runs[0, spills.FLAGS] & spills.BEGINS_GROUP for part in cut) > 5
    assert max(part.size for part in cut) < 30_000
    assert contents(tmp_path / "cut") == contents(tmp_path / "uncut")
    assert rows_of(tmp_path / "cut") == rows_of(tmp_path / "whole")
    if compression == "none":  # where runs are cut, compressed blocks are, too
        assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert check_snapshot(tmp_path / "cut").faults == ()


def test_an_edited_key_group_has_row_groups_to_cut(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit writes files anew, and in row groups that are no larger than those of an import."""
    edited = Catalog(shutil.copytree(lake.location, tmp_path / "lake"))
    (operator,) = edited.snapshot("j", "s").operators
    (table,) = (one.path for one in operator.tables if one.path.endswith("/many"))
    edit(edited, table).delete(f"user_key = {ENTRIES - 1}")
    monkeypatch.setattr(unit_writer, "ROW_GROUP_BYTES", 5000)
    commit_snapshot(ChildSnapshot(edited, "j", "s", "edited", engine="local"))
    (operator,) = edited.snapshot("j", "edited").operators
    (unit,) = (unit for one in operator.tables if one.path == table
               for unit in one.units if unit.rows >= ENTRIES - 1)  # fmt: skip
    metadata = pq.ParquetFile(edited.table(table).directory.full(unit.path)).metadata
    rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert len(rows) > 10
    assert max(rows) < 2 * min(rows[:-1])
