"""Real Flink with new classes: what it makes of old savepoints, and of those from a lake.

One job, `EvolvingJobs.java`, is compiled with old classes and with new ones of the same names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from tests.integration.flink.evolving import ask, restored, verdicts, written
from tests.support.savepoints.evolving_savepoints import (
    BACKENDS,
    GENERIC,
    KEPT_BY_NAME,
    MIGRATED,
    NEW_TYPES,
    STATES,
    VERDICTS,
    evolving_savepoint,
    migrated,
    old_lines,
    plain,
)
from tests.support.savepoints.expected_contents import same_lines

pytestmark = [pytest.mark.flink, pytest.mark.full]

ENGINE = LocalEngine()
JOB = "shop"
OTHER = dict(zip(BACKENDS, reversed(BACKENDS), strict=True))
FLINKS_OWN = ",".join(STATES)


def imported(lake: Catalog, backend: str, work: Path) -> str:
    """The old job's savepoint of a backend in a lake: its id."""
    savepoint = evolving_savepoint(f"old-{backend}", work / f"old-{backend}")
    import_snapshot(lake, str(savepoint), JOB, snapshot_id=backend, engine=ENGINE)
    return backend


def exported(lake: Catalog, snapshot: str, work: Path, **options: Any) -> Path:
    """A snapshot as a savepoint."""
    to = work / "-".join(["out", snapshot, *map(str, options.values())])
    export_snapshot(lake, JOB, snapshot, to, engine=ENGINE, **options)
    return to


def assert_lines(found: list[Any], expected: list[Any]) -> None:
    """The same lines, but for those of keys that hold nothing."""
    same_lines([plain(row) for row in found if row["event"]], [plain(entry) for entry in expected])


@pytest.mark.full
def test_unchanged_and_migrated_savepoints_in_the_other_backend(tmp_path: Path) -> None:
    """Through the lake, Flink's own migration makes the same; migrated here, it has none to do."""
    lake = Catalog(tmp_path / "lake")
    unchanged = [imported(lake, backend, tmp_path) for backend in BACKENDS]
    types = {
        backend: {
            state: type_
            for state, type_ in NEW_TYPES.items()
            if backend == "rocksdb" or state not in KEPT_BY_NAME
        }
        for backend in BACKENDS
    }
    moved = [migrated(lake, JOB, name, types[name], ENGINE) for name in BACKENDS]
    chosen = [
        (exported(lake, snapshot, tmp_path), OTHER[backend])
        for snapshots in (unchanged, moved)
        for snapshot, backend in zip(snapshots, BACKENDS, strict=True)
    ]
    for lines in restored("new", chosen[:2], tmp_path, FLINKS_OWN):
        assert_lines(lines, MIGRATED)
    for lines in restored("new", chosen[2:], tmp_path):
        assert_lines(lines, [{**line, GENERIC: line["event"]} for line in MIGRATED])


@pytest.mark.thinned(2)
@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_at_other_parallelisms_in_either_backend(backend: str, tmp_path: Path) -> None:
    """Exported as one subtask and as five, with old classes and with new ones."""
    lake = Catalog(tmp_path / "lake")
    snapshot = imported(lake, backend, tmp_path)
    savepoints = [exported(lake, snapshot, tmp_path, parallelism=number) for number in (1, 5)]
    chosen = [(path, into) for path in savepoints for into in BACKENDS]
    for lines in restored("new", chosen, tmp_path, FLINKS_OWN):
        assert_lines(lines, MIGRATED)
    for lines in restored("old", chosen, tmp_path):
        assert_lines(lines, old_lines())


@pytest.mark.full
def test_the_golden_lines_are_what_flink_prints_today(tmp_path: Path) -> None:
    """New savepoints of the old job hold the same, and are migrated to the same."""
    savepoints = list(zip(written("old", BACKENDS, tmp_path / "sp"), BACKENDS, strict=True))
    for lines in restored("old", savepoints, tmp_path):
        assert_lines(lines, old_lines())
    for lines in restored("new", savepoints, tmp_path, FLINKS_OWN):
        assert_lines(lines, MIGRATED)
    for version, expected in VERDICTS.items():
        for savepoint, _ in savepoints:
            assert verdicts(version, savepoint, tmp_path) == expected


@pytest.mark.full
def test_what_is_judged_incompatible_flink_refuses(tmp_path: Path) -> None:
    """State by state in RocksDB, which looks at a state when it is asked for."""
    savepoint = evolving_savepoint("old-rocksdb", tmp_path / "sp").as_uri()
    states = list(VERDICTS["refused"])
    asked = [("restore", "rocksdb", savepoint, state, tmp_path / "lines") for state in states]
    answers = dict(zip(states, ask("refused", asked), strict=True))
    for state, verdict in VERDICTS["refused"].items():
        refused = "must not be incompatible" in answers[state]
        assert refused == (verdict == "incompatible"), answers[state]
        assert refused or answers[state].startswith("ok ")


@pytest.mark.full
def test_flink_cannot_migrate_generic_records_itself(tmp_path: Path) -> None:
    """It says that it can, and then writes fields by position: here a text as a number."""
    savepoint = evolving_savepoint("old-rocksdb", tmp_path / "sp").as_uri()
    assert VERDICTS["new"][GENERIC] == "compatible_after_migration"
    (answer,) = ask("new", [("restore", "rocksdb", savepoint, GENERIC, tmp_path / "lines")])
    assert answer.startswith("error ")
    assert "ClassCastException" in answer
