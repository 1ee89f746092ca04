"""Real Flink SQL goes on from what statelake exports: its operators, and all their state."""

from __future__ import annotations

import lzma
import subprocess
from pathlib import Path

import pytest

import statelake as sl
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.integration.flink.sql_jobs import FACTORY
from tests.support.java import java
from tests.support.lakes import entries
from tests.support.savepoints.golden_cases import GOLDEN as DATA
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]

MODULES = ("flink-table-planner_2.12", "flink-table-runtime", "flink-table-api-java-bridge")
SOURCES = ("SqlQueries.java", "SqlOperators.java", "IndexedTables.java")
(GOLDEN,) = golden_cases("queries")


def run_job(
    program: str, backend: str, to: Path, restored: Path | None, *options: str
) -> tuple[Path, list[str]]:
    """Restore a savepoint in a job of the same queries, or begin without one.

    Returns:
        Where the savepoint lies that it took, and the lines that it printed before.
    """
    jars = flink_jars("2.3.0", MODULES)
    classes = compiled([JAVA_SOURCES / name for name in SOURCES], jars, "sql-2.3.0")
    services = to.parent / "factories" / "META-INF" / "services"  # for plans that are loaded
    services.mkdir(parents=True, exist_ok=True)
    (services / FACTORY).write_text("IndexedTables$Tables\n")
    words = [program, backend, to.as_uri(), *([] if restored is None else [restored.as_uri()])]
    done = subprocess.run(
        java("2g", [classes, services.parents[1], *jars], *options, *OPENS, *words),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *lines, savepoint = done.stdout.splitlines()
    return Path(savepoint.removeprefix("file:")), lines


def unpacked(name: str, to: Path) -> Path:
    """A golden savepoint whose state all lies in its `_metadata`."""
    to.mkdir()
    packed = (DATA / name / f"{name}.metadata.xz").read_bytes()
    (to / "_metadata").write_bytes(lzma.decompress(packed))
    return to


def exported_at(parallelism: int, savepoint: Path, to: Path) -> Path:
    """What statelake makes of a savepoint at another parallelism."""
    lake = Catalog(to / "lake")
    import_snapshot(lake, str(savepoint), "job", snapshot_id="s", engine=LocalEngine())
    exported = to / "exported"
    export_snapshot(lake, "job", "s", exported, parallelism=parallelism, engine=LocalEngine())
    return exported


@pytest.mark.parametrize("backend", [pytest.param("hashmap", marks=pytest.mark.nightly), "rocksdb"])
def test_queries_go_on(backend: str, tmp_path: Path) -> None:
    """Import, export, restore in either backend, savepoint: every entry is what it was."""
    lake = Catalog(tmp_path / "lake")
    snapshot = import_snapshot(lake, str(GOLDEN.snapshot), "queries", engine=LocalEngine())
    exported = tmp_path / "exported"
    export_snapshot(lake, "queries", snapshot.record.snapshot_id, exported, engine=LocalEngine())
    after, _ = run_job("SqlQueries", backend, tmp_path / "after", exported)
    assert entries(after) == entries(GOLDEN.snapshot)


@pytest.mark.nightly
def test_multi_joins_go_on(tmp_path: Path) -> None:
    """The same of joins of three tables each, from parallelism 2 to 3."""
    golden = unpacked("multijoin", tmp_path / "golden")
    exported = exported_at(3, golden, tmp_path)
    options = ("-Dnew-queries=true", "-Dparallelism=3")
    after, _ = run_job("SqlQueries", "rocksdb", tmp_path / "after", exported, *options)
    assert entries(after) == entries(golden)


@pytest.mark.nightly
def test_new_operators_go_on(tmp_path: Path) -> None:
    """The same of records that wait for lookups, and of a process table function."""
    golden = unpacked("sqloperators", tmp_path / "golden")
    exported = exported_at(3, golden, tmp_path)
    options = ("-Dparallelism=3",)
    after, _ = run_job("SqlOperators", "rocksdb", tmp_path / "after", exported, *options)
    assert entries(after) == entries(golden)


@pytest.mark.nightly
def test_records_that_waited_are_joined(tmp_path: Path) -> None:
    """A delta join that is restored, whose lookups are answered, joins all; nothing waits then."""
    golden = unpacked("sqloperators", tmp_path / "golden")
    exported = exported_at(3, golden, tmp_path)
    options = ("-Dparallelism=3", "-Danswers=true")
    after, lines = run_job("SqlOperators", "hashmap", tmp_path / "after", exported, *options)
    joined = {line.partition("joined ")[2] for line in lines}
    assert joined == {f"{a} {b}" for a in range(12) for b in range(12) if a % 5 == b % 5}
    assert not any(held for (_, name), held in entries(after).items() if "wait_state" in name)


@pytest.mark.nightly
def test_records_that_wait_for_a_delta_join_go_on_in_a_changed_job(tmp_path: Path) -> None:
    """Behind another query, under another id; of a job without the join they would be lost."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    taken, _ = run_job("SqlOperators", "hashmap", tmp_path / "taken", None, f"-Ddelta={old}")
    options = (f"-Ddelta={new}", "-Daside=true", "-Dcompile=true")
    run_job("SqlOperators", "hashmap", tmp_path / "none", None, *options)
    upgraded = sl.sql_upgrade(taken, tmp_path / "upgraded", old, new)
    (join,) = (each for each in upgraded.operators if each.operator.startswith("DeltaJoin["))
    assert (join.fate, join.operator != join.goes_on_from) == ("keeps", True)
    assert {each.fate for each in upgraded.operators} == {"keeps"}
    held = [
        sl.open_snapshot(taken, plan=old)[join.goes_on_from],
        sl.open_snapshot(tmp_path / "upgraded", plan=new)[join.operator],
    ]
    rows = [each.keyed_states[0].to_arrow() for each in held]
    assert rows[0].sort_by("key_group").equals(rows[1].sort_by("key_group"))
    options = (f"-Ddelta={new}", "-Daside=true", "-Danswers=true")
    _, lines = run_job(
        "SqlOperators", "hashmap", tmp_path / "after", tmp_path / "upgraded", *options
    )
    joined = {line.partition("joined ")[2] for line in lines}
    assert joined == {f"{a} {b}" for a in range(12) for b in range(12) if a % 5 == b % 5}
