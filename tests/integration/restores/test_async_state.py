"""Jobs of Flink 2's asynchronous state, which Flink itself can't move between backends.

Those of the DataStream API V2, whose functions declare their states, are among them. On ForSt the
tables of a checkpoint lie where ForSt works on them; no other backend restores them, and ForSt
restores no canonical savepoint.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from tests.integration.flink.forst import VARIANTS
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.command import run
from tests.support.savepoints.change_logs import rows_of

pytestmark = [pytest.mark.flink, pytest.mark.full]

KEYS, NEW_KEYS = 40, 10
FAR = 4_000_000_000_000
LINES = [
    {
        "key": f"key-{k}", "count": k * 31 - 7, "session": f"session-{k}", "score": k,
        "items": f"{k},{k + 1}", "total": k + k * k,
    }
    for k in range(KEYS)
]  # fmt: skip
TIMERS = [{"key": f"key-{k}", "timer": FAR + k} for k in range(KEYS)]
DECLARED = [
    {
        "key": k * 31 - 7, "name": f"name {k}", "items": [k, -k], "score": k, "total": k + k * k,
        "largest": 100, "rules": {str(rule): f"rule {rule}" for rule in range(5)},
    }
    for k in range(KEYS)
]  # fmt: skip
LISTED = [*({"split": k} for k in range(KEYS)), *({"union": f"of {k}"} for k in range(KEYS))]


def exported(place: Path, work: Path, *, external: tuple[str, ...] = ()) -> Path:
    """The snapshot through a lake, as a canonical savepoint at parallelism 3."""
    lake, target = Catalog(work / f"lake-{place.name}"), work / f"out-{place.name}"
    import_snapshot(
        lake, str(place), "job", Import(allow_external=external), snapshot_id="s", engine="local"
    )
    export_snapshot(lake, "job", "s", target, engine="local", parallelism=3)
    return target


@pytest.mark.parametrize(
    ("backend", "into"),
    [("hashmap", "rocksdb"), pytest.param("rocksdb", "hashmap", marks=pytest.mark.full)],
)
def test_moved_to_the_other_backend(
    backend: str, into: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """A native savepoint, through a lake, as a canonical one at another parallelism."""
    source = flink.generate("async", tmp_path / "sp", keys=KEYS, backend=backend, format="native")
    target = exported(source, tmp_path)
    lines = flink.restore("async", target, keys=KEYS, parallelism=3, backend=into)
    assert sorted_lines(lines) == sorted_lines([*LINES, *TIMERS])


@pytest.mark.parametrize(
    ("variant", "into"),
    [
        ("shared", "rocksdb"),
        *(
            pytest.param(variant, "hashmap", marks=pytest.mark.full)
            for variant in VARIANTS
            if variant != "shared"
        ),
    ],
)
def test_forst(variant: str, into: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Checkpoints and native savepoints, moved; what ForSt restores, other backends do, too."""
    places = flink.checkpoints(
        "async-changes", tmp_path / "written", keys=KEYS, generations=2, backend="forst",
        savepoints="NATIVE", **VARIANTS[variant],
    )  # fmt: skip
    again = {"keys": KEYS + 2 * NEW_KEYS, "parallelism": 3}
    expected = [
        sorted_lines(flink.restore("async-changes", place, **again, backend="forst"))
        for place in places
    ]
    listed = (places[0] / "_metadata").read_bytes()
    assert (b"_attempt_0/db/" in listed) == (variant in ("shared", "full"))
    shutil.copytree(places[0].parent, tmp_path / "moved")
    shutil.rmtree(places[0].parent)
    moved = [*(tmp_path / "moved" / place.name for place in places[:-1]), places[-1]]
    for place, lines in zip(moved, expected, strict=True):
        assert run("check", "integrity", place).code == 0
        target = exported(place, tmp_path)
        restored = flink.restore("async-changes", target, **again, backend=into)
        assert sorted_lines(restored) == lines


@pytest.mark.full
def test_forst_goes_on_with_tables_of_another_job(flink: FlinkOracle, tmp_path: Path) -> None:
    """A claimed checkpoint at another parallelism: the next one has tables of both jobs."""
    before = flink.checkpoints(
        "async-changes", tmp_path / "first", keys=KEYS, generations=1, backend="forst"
    )[-1]
    place = flink.checkpoints(
        "async-changes", tmp_path / "second", keys=KEYS, generations=1, first=1, backend="forst",
        parallelism=3,
        **{
            "execution.state-recovery.path": before.as_uri(),
            "execution.state-recovery.claim-mode": "CLAIM",
        },
    )[-1]  # fmt: skip
    again = {"keys": KEYS + NEW_KEYS, "parallelism": 2}
    lines = sorted_lines(flink.restore("async-changes", place, **again, backend="forst"))
    ran = run("inspect", place)
    shared = before.parent / "shared"
    assert (ran.code, f"--allow-external {shared}\n" in ran.err) == (3, True)
    target = exported(place, tmp_path, external=(str(shared),))
    restored = flink.restore("async-changes", target, **again, backend="hashmap")
    assert sorted_lines(restored) == lines


@pytest.mark.full
def test_forst_of_a_job_without_asynchronous_state(flink: FlinkOracle, tmp_path: Path) -> None:
    """Row by row what the canonical savepoint of RocksDB has, in another run of the same job."""
    options = {"keys": KEYS, "generations": 2}
    (*_, checkpoint) = flink.checkpoints("changes", tmp_path / "forst", backend="forst", **options)
    (*_, savepoint) = flink.checkpoints(
        "changes", tmp_path / "rocksdb", backend="rocksdb", savepoints="CANONICAL", **options
    )
    seen, expected = (rows_of(open_snapshot(place)) for place in (checkpoint, savepoint))
    # when a state was last touched, and which of merged windows has the state, is chance
    chance = {name for name in expected if name[0] != "changes" or name[1] == "session"}
    assert len(chance) == 7
    for name, rows in expected.items():
        assert len(seen[name]) == len(rows) if name in chance else seen[name] == rows
    assert seen.keys() == expected.keys()
    again = {"keys": KEYS + 2 * NEW_KEYS, "parallelism": 3}
    lines = sorted_lines(flink.restore("changes", checkpoint, **again, backend="forst"))
    target = exported(checkpoint, tmp_path)
    found_lines = flink.restore("changes", target, **again, backend="rocksdb")
    assert sorted_lines(found_lines) == lines


@pytest.mark.parametrize(
    ("backend", "into"),
    [
        ("forst", "hashmap"),
        pytest.param("rocksdb", "hashmap", marks=pytest.mark.full),
        pytest.param("hashmap", "rocksdb", marks=pytest.mark.full),
    ],
)
def test_declared_states(backend: str, into: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """The DataStream API V2: keyed, split, union and broadcast states, and timers."""
    place = flink.generate("declared", tmp_path / "sp", keys=KEYS, backend=backend, format="native")
    (declared,) = (op for op in open_snapshot(place).operators if op.label == "declared")
    types = {state.name: state.value_type for state in declared.keyed_states if state.value_type}
    assert types == {
        "name": "String", "items": "Long", "scores": "Integer", "total": "Long", "largest": "Long"
    }  # fmt: skip
    times = declared.state("_timer_state/processing_processing timer").to_arrow()["timestamp"]
    assert sorted(times.to_pylist()) == [FAR + k for k in range(KEYS)]
    target = exported(place, tmp_path)
    lines = flink.restore("declared", target, keys=KEYS, parallelism=3, backend=into)
    # a union list comes to each subtask, though Flink 2.3 splits those that are declared
    assert set(sorted_lines(lines)) == set(sorted_lines([*DECLARED, *LISTED]))
