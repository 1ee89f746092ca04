"""Real Flink restores what statelake exports: every golden savepoint, at every parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.engine import LocalEngine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export import cutting
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.export.large_groups import GroupPiece
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables import data_files as unit_writer
from statelake.state_core.formats.keyed import unified_file
from statelake.state_core.formats.writing import spills
from statelake.state_core.integrity import check_snapshot
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.covering import pairs
from tests.support.lakes import golden
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.thinned(20, by=pairs)]

KINDS = golden("kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0")
WINDOWS = golden("windows-hashmap-canonical-p2-m128-flink2.3.0")
CASES = golden_cases("wordcount", "kinds", "windows", form="canonical")
PARALLELISMS = (1, 2, 3, 5, 128)
MAX_PARALLELISMS = (128, 256, 1000)
every_restore = pytest.mark.parametrize(
    ("golden", "parallelism", "max_parallelism"),
    [
        pytest.param(*row, id=f"{row[0].name}-to-p{row[1]}-m{row[2]}")
        for row in product(CASES, PARALLELISMS, MAX_PARALLELISMS)
    ],
)


def restored(
    oracle: FlinkOracle, golden: GoldenCase, savepoint: Path, parallelism: int, groups: int
) -> list[str]:
    """What Flink sees in an export, with one backend or the other."""
    backend = "rocksdb" if (parallelism + groups) % 2 else "hashmap"
    case, keys = golden.facts["case"], golden.facts["keys"]
    return sorted_lines(
        oracle.restore(
            case, savepoint, keys=keys, parallelism=parallelism, max=groups, backend=backend
        )
    )


@every_restore
def test_flink_sees_every_key_of_an_export(
    golden: GoldenCase,
    parallelism: int,
    max_parallelism: int,
    golden_lake: Catalog,
    flink: FlinkOracle,
    tmp_path: Path,
) -> None:
    """Nothing is lost, whatever the parallelism and the max parallelism become."""
    target = tmp_path / "export"
    export_snapshot(
        golden_lake, golden.name, "sp", target,
        parallelism=parallelism, max_parallelism=max_parallelism,
    )  # fmt: skip
    lines = restored(flink, golden, target, parallelism, max_parallelism)
    assert lines == sorted_lines(golden.expected())


@pytest.mark.full
@every_restore
def test_an_older_flink_sees_every_key_of_an_export(
    golden: GoldenCase,
    parallelism: int,
    max_parallelism: int,
    golden_lake: Catalog,
    old_flink: FlinkOracle,
    tmp_path: Path,
) -> None:
    """In version 3 of `_metadata`, Flink 1.20 restores even what Flink 2.3 wrote."""
    target = tmp_path / "export"
    export_snapshot(
        golden_lake, golden.name, "sp", target, metadata_version=3,
        parallelism=parallelism, max_parallelism=max_parallelism,
    )  # fmt: skip
    lines = restored(old_flink, golden, target, parallelism, max_parallelism)
    assert lines == sorted_lines(golden.expected())


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


@pytest.mark.full
@pytest.mark.thinned(2)
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
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(case.snapshot), "j", snapshot_id="all", engine="local")
    export_snapshot(lake, "j", "all", tmp_path / "few", parallelism=1, max_parallelism=3,
                    compression="none", engine="local")  # fmt: skip
    monkeypatch.setattr(unified_file, "TABLE_ROWS", 5)
    monkeypatch.setattr(unit_writer, "ROW_GROUP_BYTES", 200)
    import_snapshot(lake, str(tmp_path / "few"), "j", snapshot_id="few", engine="local")
    monkeypatch.setattr(cutting, "SLICE_BYTES", 2000)
    monkeypatch.setattr(cutting, "CHUNK_BYTES", 1300)  # two row groups
    monkeypatch.setattr(spills, "PIECE_BYTES", 300)
    engine = Noting()
    target = tmp_path / "cut"
    export_snapshot(
        lake, "j", "few", target, parallelism=parallelism, max_parallelism=max_parallelism,
        compression=compression, engine=engine,
    )  # fmt: skip
    assert any(len(piece.row_groups or ()) > 1 for piece in engine.pieces)
    assert any(piece.row_groups is None for piece in engine.pieces)
    assert check_snapshot(target).sound
    lines = flink.restore(
        case.facts["case"], target, keys=case.facts["keys"], parallelism=parallelism,
        max=max_parallelism, backend=backend,
    )  # fmt: skip
    assert sorted_lines(lines) == sorted_lines(case.expected())
