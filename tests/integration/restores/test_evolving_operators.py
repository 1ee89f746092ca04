"""Real Flink with new classes restores operator state: old savepoints, and those from a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrations import migrate_one
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.state_core.serializers.type_spec import parse_type
from tests.integration.flink.evolving import ask, operators_restored
from tests.support.lakes import LOCAL, import_as
from tests.support.savepoints.evolving_operators import (
    HOLDERS,
    MIGRATED_HOLDERS,
    NEW_HOLDERS,
    OLD_HOLDERS,
    settled_lines,
)
from tests.support.savepoints.evolving_savepoints import FOLDER, evolving_savepoint

pytestmark = [pytest.mark.flink, pytest.mark.full]

JOB = "orders"
FORMS = ("split", "union", "broadcast")
WRITTEN = dict(zip(HOLDERS, ("split", "union", "broadcast", "broadcast"), strict=True))
BY_SQL = {"country": "'DE'", "floor": "length(old.city)", "checked": "old.zip > 60"}


def imported(work: Path) -> Catalog:
    """A lake with the old job's savepoint."""
    lake = Catalog(work / "lake")
    import_as(lake, evolving_savepoint("operator-old", work / "old"), "old")
    return lake


def migrated(lake: Catalog, expressions: dict[str, dict[str, str]]) -> str:
    """All of it under the new types, one snapshot after another; the last one's id."""
    last = "old"
    for state, spec in NEW_HOLDERS.items():
        change = ValueChange("holders", state, parse_type(spec), expressions.get(state, {}), spec)
        last = migrate_one(
            ChildSnapshot(lake, JOB, last, f"{last}-{state}", engine=LOCAL), change
        ).made
    return last


def exported(lake: Catalog, snapshot: str, work: Path, **options: Any) -> Path:
    """A snapshot as a savepoint."""
    to = work / "-".join(["out", snapshot, *map(str, options.values())])
    export_snapshot(lake, JOB, snapshot, to, engine=LOCAL, **options)
    return to


@pytest.mark.full
@pytest.mark.spark
def test_migrated_operator_state_is_restored_by_the_new_job(tmp_path: Path) -> None:
    """POJOs with other fields, in a list, a union and a broadcast state; new values by SQL, too."""
    lake = imported(tmp_path)
    plain = exported(lake, migrated(lake, {}), tmp_path)
    by_sql = Catalog(tmp_path / "by-sql")
    import_as(by_sql, tmp_path / "old", "old")
    computed = migrated(by_sql, {"addresses": BY_SQL, "depots": BY_SQL})
    computed_at = tmp_path / "computed"
    export_snapshot(by_sql, JOB, computed, computed_at, engine=LOCAL)
    lines, with_values = operators_restored("new", [plain, computed_at], tmp_path)
    assert settled_lines(lines) == MIGRATED_HOLDERS
    cities = {
        address["street"]: address["city"]
        for line in OLD_HOLDERS
        for address in [*line["addresses"], *(depot for _, depot in line["depots"])]
        if address
    }
    expected = json.loads(json.dumps(MIGRATED_HOLDERS))
    for line in expected:
        for address in [*line["addresses"], *(depot for _, depot in line["depots"])]:
            if address:
                added = {"country": "DE", "floor": len(cities[address["street"]])}
                address |= {**added, "checked": address["zip"] > 60}
    assert settled_lines(with_values) == settled_lines(expected)


@pytest.mark.full
@pytest.mark.parametrize("parallelism", [1, 5])
def test_at_other_parallelisms(parallelism: int, tmp_path: Path) -> None:
    """Migrated here or by Flink itself, the job has the same elements and copies."""
    lake = imported(tmp_path)
    savepoints = [
        exported(lake, snapshot, tmp_path, parallelism=parallelism)
        for snapshot in ("old", migrated(lake, {}))
    ]
    restored = [settled_lines(lines) for lines in operators_restored("new", savepoints, tmp_path)]
    for name in HOLDERS[1:]:
        expected = MIGRATED_HOLDERS[0][name]
        assert all(line[name] == expected for lines in restored for line in lines), name
    for lines in restored:
        addresses = [address for line in lines for address in line["addresses"]]
        everything = [address for line in MIGRATED_HOLDERS for address in line["addresses"]]
        assert sorted(addresses, key=json.dumps) == sorted(everything, key=json.dumps)


@pytest.mark.full
def test_the_golden_lines_and_verdicts_are_flinks_today(tmp_path: Path) -> None:
    """A new savepoint of the old job holds the same, is migrated to the same, and judged so."""
    (answer,) = ask("old", [("write-operators", (tmp_path / "sp").as_uri())])
    assert answer.startswith("ok "), answer
    savepoint = Path(answer.removeprefix("ok file:"))
    for version, expected in (("old", OLD_HOLDERS), ("new", MIGRATED_HOLDERS)):
        (lines,) = operators_restored(version, [savepoint], tmp_path)
        assert settled_lines(lines) == expected
    told = json.loads((FOLDER / "operator-verdicts.json").read_text("utf-8"))
    for version, verdicts in told.items():
        file = tmp_path / version
        (answer,) = ask(version, [("operator-verdicts", savepoint.as_uri(), file)])
        assert answer.startswith("ok "), answer
        assert json.loads(file.read_text("utf-8")) == verdicts


@pytest.mark.full
def test_a_state_in_another_form_is_refused_or_begins_empty(tmp_path: Path) -> None:
    """A list keeps its mode; a list and a broadcast state of one name are two."""
    savepoint = evolving_savepoint("operator-old", tmp_path / "sp").as_uri()
    asked = [(state, form) for state in HOLDERS for form in FORMS if form != WRITTEN[state]]
    files = {names: tmp_path / "-".join(names) for names in asked}
    commands = [
        ("restore-operators", savepoint, ":".join(names), file) for names, file in files.items()
    ]
    for (state, form), answer in zip(asked, ask("old", commands), strict=True):
        if "broadcast" not in (form, WRITTEN[state]):
            assert "Incompatible state assignment modes" in answer
            continue
        assert answer.startswith("ok "), answer
        lines = files[state, form].read_text("utf-8").splitlines()
        assert [json.loads(line)[state] for line in lines] == [[], []]


@pytest.mark.full
def test_what_is_judged_incompatible_flink_does_not_restore(tmp_path: Path) -> None:
    """It reads all operator state at once with the new classes, asked for or not."""
    savepoint = evolving_savepoint("operator-old", tmp_path / "sp").as_uri()
    commands = [("restore-operators", savepoint, holder, tmp_path / "lines") for holder in HOLDERS]
    for answer in ask("refused", commands):
        assert answer.startswith("error ")
        assert "Could not restore operator state backend" in answer
