"""Real Flink restores exports whose large key groups several tasks wrote in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.engine import LocalEngine, Progress
from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.export import exporting
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.export.large_groups import GroupPiece
from pipelines.lake.ingest.importing import import_snapshot
from pipelines.lake.tables import unit_writer
from state_core.checks.integrity import check_snapshot
from state_core.formats.keyed import unified
from state_core.formats.writing import spills
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.lakes import golden
from tests.support.savepoints.golden_cases import GoldenCase

pytestmark = [pytest.mark.flink, pytest.mark.full]

KINDS = golden("kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0")
WINDOWS = golden("windows-hashmap-canonical-p2-m128-flink2.3.0")


class Noting(LocalEngine):
    """The local engine, which knows the pieces of row groups that its tasks had."""

    def __init__(self) -> None:
        super().__init__(2)
        self.pieces: list[GroupPiece] = []

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], progress: Progress | None = None
    ) -> list[Any]:
        """As `Engine.map`."""
        chunks = [chunk for task in tasks for chunk in getattr(task, "chunks", ())]
        self.pieces += [chunk for chunk in chunks if isinstance(chunk, GroupPiece)]
        return super().map(function, tasks, progress)


@pytest.mark.parametrize(
    ("case", "compression", "backend", "parallelism", "max_parallelism"),
    [
        (KINDS, "snappy", "rocksdb", 2, 3),
        (KINDS, "none", "hashmap", 1, 128),
        (WINDOWS, "none", "rocksdb", 2, 3),
        (WINDOWS, "snappy", "hashmap", 3, 1000),
    ],
)
def test_flink_restores_key_groups_in_pieces(
    flink: FlinkOracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: GoldenCase,
    compression: str,
    backend: str,
    parallelism: int,
    max_parallelism: int,
) -> None:
    """Values, lists, maps and timers of few key groups, all of them cut at row groups."""
    lake = Lake(tmp_path / "lake")
    import_snapshot(lake, str(case.snapshot), "j", snapshot_id="all", engine="local")
    export_snapshot(lake, "j", "all", tmp_path / "few", parallelism=1, max_parallelism=3,
                    compression="none", engine="local")  # fmt: skip
    monkeypatch.setattr(unified, "TABLE_ROWS", 5)
    monkeypatch.setattr(unit_writer, "ROW_GROUP_BYTES", 200)
    import_snapshot(lake, str(tmp_path / "few"), "j", snapshot_id="few", engine="local")
    monkeypatch.setattr(exporting, "SLICE_BYTES", 2000)
    monkeypatch.setattr(exporting, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(spills, "PART_BYTES", 300)
    engine = Noting()
    target = tmp_path / "cut"
    export_snapshot(
        lake, "j", "few", target, parallelism=parallelism, max_parallelism=max_parallelism,
        compression=compression, engine=engine,
    )  # fmt: skip
    assert any(len(piece.row_groups or ()) > 1 for piece in engine.pieces)
    assert any(piece.row_groups is None for piece in engine.pieces)
    assert check_snapshot(target).sound
    found = flink.restore(
        case.facts["case"], target, keys=case.facts["keys"], parallelism=parallelism,
        max=max_parallelism, backend=backend,
    )  # fmt: skip
    assert sorted_lines(found) == sorted_lines(case.expected())
