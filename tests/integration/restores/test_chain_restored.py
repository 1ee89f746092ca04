"""Real Flink restores what is exported of incremental checkpoints, generation by generation."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.verify.diffing import diff_snapshots
from tests.integration.flink.oracle import FlinkOracle
from tests.support.savepoints.checkpoint_chains import (
    STATES,
    Chain,
    Moment,
    differences,
    golden_chain,
    pack,
    vanished,
)
from tests.support.savepoints.expected_contents import (
    contents_of,
    held_lines,
    same_lines,
    tables_of,
)

pytestmark = [pytest.mark.flink, pytest.mark.full]

GOLDEN_KEYS = 100
EVERY_RUN = (3, 5)
KEYS, GENERATIONS = 150, 9
ALL_KEYS = KEYS + 10 * GENERATIONS


def archived(chain: Chain, to: Path) -> Catalog:
    """A lake with every moment of a chain, one after another, by the names of directories."""
    lake = Catalog(to)
    for moment in chain.moments:
        name = moment.snapshot.name
        import_snapshot(lake, str(moment.snapshot), "job", snapshot_id=name, engine="local")
    return lake


def assert_restored(
    flink: FlinkOracle, lake: Catalog, moment: Moment, to: Path, keys: int, backend: str
) -> None:
    """Assert that Flink sees in an export at 3 what it saw in the snapshot at 2."""
    export_snapshot(lake, "job", moment.snapshot.name, to, parallelism=3, engine="local")
    lines = flink.restore("chain", to, keys=keys, parallelism=3, backend=backend)
    same_lines(held_lines(lines), moment.held)
    asked = {line["key"] for line in lines}
    assert len(asked) == keys  # the deleted ones, too, of which it sees nothing


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Chain, Catalog]:
    """The golden chain, and a lake with it."""
    work = tmp_path_factory.mktemp("chain")
    chain = golden_chain(work / "moved")
    return chain, archived(chain, work / "lake")


@pytest.mark.parametrize(
    "generation",
    [pytest.param(n, marks=[] if n in EVERY_RUN else pytest.mark.full) for n in range(6)],
)
def test_each_generation_of_the_golden_chain(
    generation: int, golden: tuple[Chain, Catalog], flink: FlinkOracle, tmp_path: Path
) -> None:
    """With either backend in turn; what was deleted stays so."""
    chain, lake = golden
    backend = ("hashmap", "rocksdb")[generation // 2 % 2]
    assert_restored(
        flink, lake, chain.checkpoints[generation], tmp_path / "export", GOLDEN_KEYS, backend
    )


@pytest.mark.full
@pytest.mark.parametrize("compression", ["false", pytest.param("true", marks=pytest.mark.nightly)])
def test_a_chain_of_today(flink: FlinkOracle, compression: str, tmp_path: Path) -> None:
    """Nine generations, compacted on the way: read, imported, compared, exported, restored."""
    written = tmp_path / "written"
    places = flink.checkpoints(
        "chain", written, keys=KEYS, generations=GENERATIONS, savepoints="NATIVE CANONICAL",
        compression=compression,
    )  # fmt: skip
    options = {"keys": ALL_KEYS, "backend": "rocksdb"}
    expected = [flink.restore("chain", place, **options) for place in places]
    chain = pack(places, expected, tmp_path / "moved")
    assert vanished(chain)
    for moment in chain.moments:
        same_lines(contents_of("chain", tables_of(open_snapshot(moment.snapshot))), moment.held)
    lake = archived(chain, tmp_path / "lake")
    for earlier, later in pairwise(chain.checkpoints):
        names = [moment.snapshot.name for moment in (earlier, later)]
        changes = {
            diff_snapshot.state: (diff_snapshot.added, diff_snapshot.removed, diff_snapshot.changed)
            for diff_snapshot in diff_snapshots(lake, "job", names[0], names[1], engine="local")
            if diff_snapshot.operator == "chain"
        }
        assert {name: changes[name] for name in STATES} == differences(earlier, later)
    for number, moment in enumerate(chain.moments):
        backend = ("hashmap", "rocksdb")[number % 2]
        assert_restored(flink, lake, moment, tmp_path / str(number), ALL_KEYS, backend)
