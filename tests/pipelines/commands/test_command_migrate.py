"""`statelake check compatibility` and `migrate`: verdicts, refusals, and runs that go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli import main
from pipelines.lake.catalog import Lake
from pipelines.lake.importing import import_snapshot
from state_core import open_snapshot
from tests.golden_cases import GOLDEN

DEMO = Path(__file__).parents[3] / "pipelines" / "demo" / "savepoints"
POJO = GOLDEN / "flink" / "pojo-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"
JOB = "shop"
FIELDS = {
    "address": {"pojo": "Judge$Address", "fields": {"street": "String", "zip": "int"}},
    "balance": "Double",
    "color": {"enum": "Judge$Color", "constants": ["RED", "GREEN", "BLUE"]},
    "id": "Long",
    "name": "String",
}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with two snapshots of a job."""
    made = Lake(tmp_path / "lake")
    for name in ("monday", "tuesday"):
        import_snapshot(made, str(DEMO / name), JOB, snapshot_id=name, engine="local")
    return made.location


def run(*words: str) -> int:
    """The command's exit code."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    return int(left.value.code or 0)


def spec(tmp_path: Path, states: dict[str, Any]) -> str:
    """A file that says what states become."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"states": states}), "utf-8")
    return str(path)


def test_a_savepoint_of_the_same_job_is_compatible(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every state of Monday may be restored by the job that wrote Tuesday's."""
    words = ("--lake", lake, "--job", JOB, "--snapshot", "monday", "--json")
    assert run("check", "compatibility", *words, "--against", str(DEMO / "tuesday")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compatible"] is True
    assert {one["verdict"] for one in found["states"]} == {"compatible_as_is"}
    assert len(found["states"]) == 11


def test_an_incompatible_type_is_the_answer_no(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, and the reason with path, old type and new type."""
    against = spec(tmp_path, {"kinds/items": {"type": "String"}})
    words = ("--lake", lake, "--job", JOB, "--snapshot", "monday", "--json")
    assert run("check", "compatibility", *words, "--against", against) == 1
    found = json.loads(capsys.readouterr().out)
    (bad,) = (one for one in found["states"] if one["verdict"] == "incompatible")
    assert bad["state"] == "items"
    (reason,) = bad["reasons"]
    assert (reason["path"], reason["old"], reason["new"]) == ("value.element", "Integer", "String")


def test_a_missing_operator_is_incompatible_unless_allowed(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Flink refuses state that nothing claims, without the flag of that name."""
    other = GOLDEN / "flink" / "wordcount-hashmap-canonical-inline-p2-m128-flink2.3.0"
    words = ("--lake", lake, "--job", JOB, "--snapshot", "monday", "--json")
    against = ("--against", str(other / "savepoint"))
    assert run("check", "compatibility", *words, *against) == 1
    assert "allowNonRestoredState" in capsys.readouterr().out
    assert run("check", "compatibility", *words, *against, "--allow-non-restored-state") == 0


def test_a_migration_without_a_way_is_refused_with_its_reason(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, one sentence, and no snapshot."""
    to = spec(tmp_path, {"kinds/name": {"type": "Long"}})
    words = ("--lake", lake, "--job", JOB, "--snapshot", "monday", "--state", "kinds/name")
    assert run("migrate", *words, "--to", to) == 1
    said = capsys.readouterr().err
    assert "String → Long" in said
    assert said.count("\n") == 1
    assert len(Lake(lake).summaries(JOB)) == 2


@pytest.mark.spark
def test_expressions_over_all_snapshots_and_once_more(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """New values by SQL, in a list state too; a second run finds everything done."""
    to = spec(tmp_path, {"kinds/items": {"type": "Long", "expressions": "old * 10"}})
    words = ("--lake", lake, "--job", JOB, "--all", "--state", "kinds/items", "--to", to, "--json")
    assert run("migrate", *words) == 0
    first = json.loads(capsys.readouterr().out)
    assert [one["outcome"] for one in first] == ["migrated", "migrated"]
    assert run("migrate", *words) == 0
    again = json.loads(capsys.readouterr().out)
    assert [one["outcome"] for one in again] == ["migrated before", "migrated before"]
    target = str(tmp_path / "export")
    assert (
        run("export", "--lake", lake, "--job", JOB, "--snapshot", "monday-migrated", "--to", target)
        == 0
    )
    items = {
        name: open_snapshot(path)
        .operator("kinds")
        .state("items")
        .to_arrow()
        .select(["key", "value"])
        .to_pylist()
        for name, path in (("before", DEMO / "monday"), ("after", Path(target)))
    }
    before = {row["key"]: row["value"] for row in items["before"]}
    after = {row["key"]: row["value"] for row in items["after"]}
    assert after == {key: [10 * one for one in value] for key, value in before.items()}


def test_a_pojo_gains_and_loses_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Flink would do at the restore: new fields begin as Java has them, old ones go."""
    lake = str(tmp_path / "lake")
    import_snapshot(Lake(lake), str(POJO), JOB, snapshot_id="sp", uids=["customers"])
    table = open_snapshot(POJO, uids=["customers"]).operator("customers").state("customer")
    before = {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}
    fields = {**FIELDS, "points": "int", "level": "Integer"}
    to = spec(
        tmp_path, {"customers/customer": {"type": {"pojo": "Judge$Customer", "fields": fields}}}
    )
    words = ("--lake", lake, "--job", JOB, "--snapshot", "sp", "--state", "customers/customer")
    assert run("migrate", *words, "--to", to, "--json") == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert (outcome["outcome"], outcome["entries"]) == ("migrated", len(before))
    target = tmp_path / "export"
    export = ("--lake", lake, "--job", JOB, "--snapshot", "sp-migrated", "--to", str(target))
    assert run("export", *export) == 0
    state = open_snapshot(target, uids=["customers"]).operator("customers").state("customer")
    for row in state.to_arrow().to_pylist():
        old, new = before[row["key"]], row["value"]
        assert set(new) == set(fields)
        assert (new["points"], new["level"]) == (0, None)
        assert {name: new[name] for name in FIELDS} == {name: old[name] for name in FIELDS}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no mapping"),
        ("states: {}", "says nothing of any state"),
        ("states: {kinds: {type: Long}}", "not of the form operator/state"),
        ("states: {kinds/name: {type: Lon}}", "no known type"),
        ("states: [", "can't be read"),
    ],
)
def test_a_file_that_is_no_spec(
    content: str, said: str, lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with the file's name, exit 3."""
    path = tmp_path / "spec.yaml"
    path.write_text(content, "utf-8")
    words = ("--lake", lake, "--job", JOB, "--snapshot", "monday", "--against", str(path))
    assert run("check", "compatibility", *words) == 3
    error = capsys.readouterr().err
    assert said in error
    assert str(path) in error
