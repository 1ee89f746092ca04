"""`statelake check compatibility` and `migrate`: verdicts, refusals, and runs that go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statelake import Lake, open_snapshot
from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.requests.imports import Import
from statelake.state_core.errors import DeclarationError
from tests.support.command import run as run_apart
from tests.support.forged_lakes import forged, make_scene
from tests.support.lakes import assert_whole, import_golden
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.operator_contents import OPERATOR_CASES, UIDS, state_of

pytestmark = pytest.mark.thinned(2)

DEMO = Path(__file__).parents[3] / "pipelines" / "cli" / "demo" / "savepoints"
POJO = GOLDEN / "flink" / "pojo-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"
OPERATORS = [operator_case.snapshot for operator_case in OPERATOR_CASES][:2]
JOB = "shop"
FIELDS = {
    "address": {"pojo": "Judge$Address", "fields": {"street": "String", "zip": "int"}},
    "balance": "Double",
    "color": {"enum": "Judge$Color", "constants": ["RED", "GREEN", "BLUE"]},
    "id": "Long",
    "name": "String",
}
DROPPED = ["scores", "tags"]  # the fields that go


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake with two snapshots of a job."""
    imports = [(name, DEMO / name) for name in ("monday", "tuesday")]
    return import_golden(Catalog(tmp_path / "lake"), *imports, job=JOB).location


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
    assert {state["verdict"] for state in found["states"]} == {"compatible_as_is"}
    assert len(found["states"]) == 11


def test_an_incompatible_type_is_the_answer_no(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, and the reason with path, old type and new type."""
    against = spec(tmp_path, {"kinds/items": {"type": "String"}})
    words = ("--lake", lake, "--job", JOB, "--snapshot", "monday", "--json")
    assert run("check", "compatibility", *words, "--against", against) == 1
    found = json.loads(capsys.readouterr().out)
    (bad,) = (state for state in found["states"] if state["verdict"] == "incompatible")
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
    assert len(Catalog(lake).summaries(JOB)) == 2


def test_expressions_over_all_snapshots_and_once_more(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """New values by SQL, in a list state too; a second run finds everything done."""
    to = spec(tmp_path, {"kinds/items": {"type": "Long", "expressions": "old * 10"}})
    words = ("--lake", lake, "--job", JOB, "--all", "--state", "kinds/items", "--to", to, "--json")
    assert run("migrate", *words) == 0
    first = json.loads(capsys.readouterr().out)
    assert [outcome["outcome"] for outcome in first] == ["migrated", "migrated"]
    assert run("migrate", *words) == 0
    again = json.loads(capsys.readouterr().out)
    assert [outcome["outcome"] for outcome in again] == ["migrated before", "migrated before"]
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
    assert after == {key: [10 * item for item in value] for key, value in before.items()}


@pytest.fixture
def customers(tmp_path: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The words that migrate all customers of a lake, and the file's content that does it."""
    lake = str(tmp_path / "lake")
    for name in ("one", "two"):
        import_snapshot(Catalog(lake), str(POJO), JOB, Import(uids=["customers"]), snapshot_id=name)
    states = {
        "customers/customer": {
            "type": {"pojo": "Judge$Customer", "fields": {**FIELDS, "points": "int"}},
            "drop": DROPPED,
        }
    }
    return ("--lake", lake, "--job", JOB, "--all", "--state", "customers/customer"), states


def outcomes(words: tuple[str, ...], to: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a migration says of each snapshot, and whether its exit code is the answer no."""
    code = run("migrate", *words, "--to", to, "--json")
    found = [outcome["outcome"] for outcome in json.loads(capsys.readouterr().out)]
    assert code == (1 if "failed" in found else 0)
    return found


def test_the_same_migration_twice_is_done_once(
    customers: tuple[tuple[str, ...], dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second run finds what the first made, and makes nothing of that."""
    words, states = customers
    to = spec(tmp_path, states)
    assert outcomes(words, to, capsys) == ["migrated", "migrated"]
    assert outcomes(words, to, capsys) == ["migrated before", "migrated before"]
    assert len(Catalog(words[1]).summaries(JOB)) == 4


@pytest.mark.parametrize("corrected", ["type", "fields"])
def test_a_corrected_migration_is_not_taken_for_the_first(
    customers: tuple[tuple[str, ...], dict[str, Any]],
    corrected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its name alone does not say that a snapshot is migrated: another suffix makes another."""
    words, states = customers
    outcomes(words, spec(tmp_path, states), capsys)
    points = {"type": {"points": "Integer"}, "fields": {"points": "int", "level": "Integer"}}
    states["customers/customer"]["type"]["fields"] = {**FIELDS, **points[corrected]}
    to = spec(tmp_path, states)
    assert outcomes(words, to, capsys) == ["failed", "failed"]
    assert run("migrate", *words, "--to", to, "--json") == 1
    assert "another migration made it" in json.loads(capsys.readouterr().out)[0]["why"]
    assert outcomes((*words, "--suffix", "-2"), to, capsys)[:2] == ["migrated", "migrated"]


def test_several_states_are_migrated_at_once_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One snapshot has all of them, and a state that can't follow keeps the others as they were."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(POJO), JOB, snapshot_id="one", request=Import(uids=["customers"]))
    words = ("--lake", lake.location, "--job", JOB, "--snapshot", "one")
    address = {"pojo": "Judge$Address", "fields": {**FIELDS["address"]["fields"], "floor": "int"}}  # type: ignore[call-overload]
    states: dict[str, Any] = {
        "customers/customer": {
            "type": {"pojo": "Judge$Customer", "fields": {**FIELDS, "points": "int"}},
            "drop": DROPPED,
        },
        "customers/past": {"type": "Long"},
    }
    assert run("migrate", *words, "--to", spec(tmp_path, states)) == 1
    assert "customers/past" in capsys.readouterr().err
    assert [summary.snapshot_id for summary in lake.summaries(JOB)] == ["one"]
    states["customers/past"]["type"] = address
    to = spec(tmp_path, states)
    assert outcomes(words, to, capsys) == ["migrated"]
    assert outcomes(words, to, capsys) == ["migrated before"]
    assert len(lake.summaries(JOB)) == 2
    assert (
        run("export", *words[:4], "--snapshot", "one-migrated", "--to", str(tmp_path / "out")) == 0
    )
    operator = open_snapshot(tmp_path / "out", uids=["customers"]).operator("customers")
    assert {
        row["points"] for row in operator.state("customer").to_arrow()["value"].to_pylist()
    } == {0}
    past = [row for rows in operator.state("past").to_arrow()["value"].to_pylist() for row in rows]
    assert {row["floor"] for row in past} == {0}
    assert_whole(lake)
    assert run("migrate", *words, "--to", to, "--state", "customers/past", "--suffix", "-2") == 0
    (made,) = (table for table in lake.snapshot(JOB, "one-2").tables if table.version == 2)
    assert made.path.endswith("/past")


def test_a_name_that_something_else_has_is_no_migration(
    customers: tuple[tuple[str, ...], dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An import called as a migration's result would be is told, and is migrated itself."""
    words, states = customers
    lake = Catalog(words[1])
    import_snapshot(lake, str(POJO), JOB, Import(uids=["customers"]), snapshot_id="two-migrated")
    found = outcomes(words, spec(tmp_path, states), capsys)
    assert found == ["migrated", "failed", "migrated"]
    made = {summary.snapshot_id: summary.parent for summary in lake.summaries(JOB)}
    assert made["two-migrated-migrated"] == "two-migrated"


def test_a_migration_of_older_lakes_is_known_by_its_type(
    customers: tuple[tuple[str, ...], dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a snapshot does not say what was applied, the state's type tells."""
    words, states = customers
    with monkeypatch.context() as patch:
        patch.setattr(ValueChange, "digest", lambda _: "")
        outcomes(words, spec(tmp_path, states), capsys)
    assert outcomes(words, spec(tmp_path, states), capsys) == ["migrated before"] * 2
    states["customers/customer"]["type"]["fields"] = {**FIELDS, "level": "Integer"}
    assert outcomes(words, spec(tmp_path, states), capsys) == ["failed", "failed"]


def test_a_pojo_gains_and_loses_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What Flink would do at the restore: new fields begin as Java has them, old ones go."""
    lake = str(tmp_path / "lake")
    import_snapshot(Catalog(lake), str(POJO), JOB, Import(uids=["customers"]), snapshot_id="sp")
    table = open_snapshot(POJO, uids=["customers"]).operator("customers").state("customer")
    before = {row["key"]: row["value"] for row in table.to_arrow().to_pylist()}
    fields = {**FIELDS, "points": "int", "level": "Integer"}
    to = spec(
        tmp_path,
        {
            "customers/customer": {
                "type": {"pojo": "Judge$Customer", "fields": fields},
                "drop": DROPPED,
            }
        },
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


@pytest.fixture
def rules(tmp_path: Path) -> str:
    """A lake with two snapshots of a job of lists and a broadcast state."""
    made = Catalog(tmp_path / "rules")
    for name, golden in zip(("first", "second"), OPERATORS, strict=True):
        import_snapshot(made, str(golden), JOB, Import(uids=UIDS), snapshot_id=name, engine="local")
    return made.location


def test_operator_state_has_a_verdict_each(
    rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against a savepoint, which may be of another Flink, and against a file."""
    words = ("--lake", rules, "--job", JOB, "--snapshot", "first", "--json")
    assert run("check", "compatibility", *words, "--against", str(OPERATORS[1])) == 0
    found = json.loads(capsys.readouterr().out)["states"]
    assert {verdict["state"]: verdict["verdict"] for verdict in found} == dict.fromkeys(
        ("split", "offsets", "union", "rules"), "compatible_as_is"
    )
    against = spec(tmp_path, {"rules/rules": {"type": "Long"}, "opstate/split": {"type": "Long"}})
    assert run("check", "compatibility", *words, "--against", against) == 1
    found = json.loads(capsys.readouterr().out)["states"]
    (bad,) = (verdict for verdict in found if verdict["verdict"] == "incompatible")
    (reason,) = bad["reasons"]
    assert (bad["operator"], bad["state"], reason["path"]) == ("rules", "rules", "value")
    assert (reason["old"], reason["new"]) == ("Integer", "Long")


def test_operators_of_operator_state_alone_must_be_there(
    rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless they are allowed to be gone."""
    words = ("--lake", rules, "--job", JOB, "--snapshot", "first", "--json")
    against = ("--against", str(DEMO / "monday"))
    assert run("check", "compatibility", *words, *against) == 1
    found = json.loads(capsys.readouterr().out)["states"]
    gone = [verdict["operator"] for verdict in found if verdict["verdict"] == "incompatible"]
    assert sorted(gone) == ["opstate", "rules"]
    assert run("check", "compatibility", *words, *against, "--allow-non-restored-state") == 0


def test_a_dry_run_says_what_would_become_of_operator_state(
    rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict, how many elements, and the reason."""
    to = spec(tmp_path, {"opstate/offsets": {"type": "Tuple2<String, Long>"}})
    words = ("--lake", rules, "--job", JOB, "--all", "--state", "opstate/offsets", "--to", to)
    assert run("migrate", *words, "--dry-run", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [outcome["outcome"] for outcome in found] == ["incompatible"] * 2
    assert all("Integer → Long" in outcome["why"] and outcome["entries"] > 2 for outcome in found)
    assert len(Catalog(rules).summaries(JOB)) == 2


PAIR = {"type": "Tuple2<String, Long>", "expressions": {"f1": "old.f1 * 2"}}
BIG = {"type": "Long", "expressions": "old * 1000000000000"}


@pytest.mark.parametrize(
    ("state", "said", "made"),
    [
        ("opstate/offsets", PAIR, lambda pair: {"f0": pair["f0"], "f1": pair["f1"] * 2}),
        ("opstate/union", {"type": "Integer", "expressions": "length(old)"}, len),
        ("rules/rules", BIG, lambda number: number * 10**12),
    ],
)
def test_expressions_over_operator_state_of_all_snapshots(
    state: str, said: Any, made: Any, rules: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Elements of lists and values of a broadcast state; a second run finds everything done."""
    words = ("--lake", rules, "--job", JOB, "--all", "--state", state, "--json")
    words = (*words, "--to", spec(tmp_path, {state: said}))
    assert run("migrate", *words) == 0
    outcomes = json.loads(capsys.readouterr().out)
    assert [outcome["outcome"] for outcome in outcomes] == ["migrated", "migrated"]
    assert run("migrate", *words) == 0
    assert "migrated before" in capsys.readouterr().out
    for name, golden, outcome in zip(("first", "second"), OPERATORS, outcomes, strict=True):
        to = ("--snapshot", f"{name}-migrated", "--to", str(tmp_path / name))
        assert run("export", "--lake", rules, "--job", JOB, *to) == 0
        before, after = (
            state_of(open_snapshot(path, uids=UIDS), state.partition("/")[2]).to_arrow().to_pylist()
            for path in (golden, tmp_path / name)
        )
        assert [{**row, "value": made(row["value"])} for row in before] == after
        assert outcome["entries"] == len(before)


@pytest.mark.parametrize(
    ("type_", "expression", "said"),
    [
        ("String", "NULL", "row 0 has no element"),
        ("Long", "old +", "Parser Error: syntax error"),
        ("Long", "length(new)", 'column "new" not found'),
        ("Long", "CAST(old AS BIGINT)", "Could not convert string 'subtask-0' to INT64"),
        ("Long", {"f1": "1"}, "a value without fields"),
    ],
)
def test_an_expression_that_gives_no_element(
    type_: str, expression: Any, said: str, rules: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Flink's lists hold no null: it is refused at once, as is bad SQL, and nothing is left."""
    to = spec(tmp_path, {"opstate/union": {"type": type_, "expressions": expression}})
    words = ("--lake", rules, "--job", JOB, "--snapshot", "first", "--state", "opstate/union")
    assert run("migrate", *words, "--to", to) in (1, 3)
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("error: ")
    assert said in told
    assert len(Catalog(rules).summaries(JOB)) == 2
    assert_whole(Catalog(rules))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no mapping"),
        ("states: {}", "no state is given"),
        ("states: {kinds: {type: Long}}", "not of the form operator/state"),
        ("states: {kinds/name: {type: Lon}}", "no known type"),
        ("states: [", "spec.yaml:1: it is no YAML"),
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


@pytest.mark.full
def test_several_states_and_files_make_one_snapshot(
    lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named states of one file, or a file for each; by the command and in Python alike."""
    states = {
        f"kinds/{name}": {"type": "String", "expressions": "CAST(old AS VARCHAR)"}
        for name in ("total", "name")
    }
    to = spec(tmp_path, states | {"kinds/nope": {"type": "Long"}})
    words = ("migrate", "--lake", lake, "--job", JOB, "--snapshot", "monday")
    both = ("--state", "kinds/total", "--state", "kinds/name")
    assert run(*words, "--to", to, *both, "--suffix", "-1") == 0
    files = []
    for name, state in states.items():
        files.append(tmp_path / f"{name.partition('/')[2]}.json")
        files[-1].write_text(json.dumps(state), "utf-8")
    pairs = [word for file in files for word in ("--to", str(file))]
    assert run(*words, *pairs, *both, "--suffix", "-2") == 0
    job = Lake(lake).job(JOB, engine="local")
    migrated = job["monday"].migrate(list(map(str, files)), state=list(states), suffix="-3")
    assert migrated.outcome == "migrated"
    made = [job[f"monday-{number}"]["kinds"] for number in (1, 2, 3)]
    for operator in made:
        for name in ("total", "name"):
            assert operator.state(name).value_type == "String"
            assert operator.state(name).to_arrow() == made[0].state(name).to_arrow()
    assert len({job[f"monday-{number}"].record.applied for number in (1, 2, 3)}) == 1
    capsys.readouterr()
    assert run(*words, *pairs, "--state", "kinds/total") == 2
    assert "one --state for each --to" in capsys.readouterr().err
    assert run(*words, "--to", to, "--state", "kinds/total", "--state", "kinds/avg") == 3
    assert "no change of kinds/avg is given" in capsys.readouterr().err
    with pytest.raises(DeclarationError, match="one --state for each --to"):
        job["monday"].migrate(list(map(str, files)), state="kinds/total")
    assert len(job.snapshots()) == 5


@pytest.mark.full
def test_python_migrates_all_snapshots_as_the_command_does(lake: str, tmp_path: Path) -> None:
    """Those that were migrated are skipped, and an error is the result of its snapshot."""
    job = Lake(lake).job(JOB, engine="local")
    to = spec(tmp_path, {"kinds/total": {"type": "Double", "expressions": "old + 0.5"}})
    assert [each.outcome for each in job.migrate(to, dry_run=True).outcomes] == [
        "compatible by expression"
    ] * 2
    assert job.not_migrated() == ["monday", "tuesday"]
    job.drop("tuesday")
    job["monday"].edit("other").drop_state("kinds/total").save()
    done = job.migrate(to)
    assert (done.failed, [each.outcome for each in done.outcomes]) == (True, ["migrated", "failed"])
    assert str(done).startswith("kinds/total of 2 snapshots\nsnapshot  made")
    assert job.not_migrated() == ["monday", "other"]


def test_time_to_live_is_switched_by_the_command(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planned, then done in one snapshot; words that go with nothing are refused."""
    words = ("migrate", "--lake", lake, "--job", JOB, "--snapshot", "monday")
    ttl = ("--ttl", "kinds/total=on", "--ttl", "kinds/session=off", "--last-access", "taken_at")
    assert run(*words, *ttl, "--dry-run", "--json") == 0
    (planned,) = json.loads(capsys.readouterr().out)
    assert (planned["outcome"], planned["made"]) == ("compatible_after_migration", "")
    assert run(*words, *ttl, "--json") == 0
    (done,) = json.loads(capsys.readouterr().out)
    assert (done["outcome"], done["entries"]) == ("migrated", 240)
    states = Lake(lake).job(JOB)["monday-migrated"]["kinds"]
    assert [states.state(name).with_ttl for name in ("total", "session")] == [True, False]
    assert run(*words, "--ttl", "kinds/total=off", "--last-access", "taken_at") == 2
    assert "--last-access is for --ttl OPERATOR/STATE=on" in capsys.readouterr().err


ALL = {
    "migrate": ("--all", "--ttl", "counter/name=on"),
    "upgrade": ("--all",),
}


@pytest.mark.parametrize("command", ALL)
def test_all_snapshots_of_no_job_are_an_error(command: str, tmp_path: Path) -> None:
    """Its name may be a slip, and nothing would have been done."""
    scene = make_scene(tmp_path)
    done = run_apart(command, "--lake", scene.lake.location, "--job", "ordres", *ALL[command])
    assert (done.code, "no job 'ordres'" in done.err) == (3, True)


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.full
def test_an_invalid_row_fails_alone_of_all(command: str, listed: bool, tmp_path: Path) -> None:
    """It is told, as the newest one or where lists leave it out; the others are done."""
    scene = make_scene(tmp_path)
    if listed:
        forged(scene, lambda row: row["operators"][0].update(parallelism=-1))
    else:
        forged(scene, lambda row: row.update(taken_at=None))
    assert (len(scene.lake.summaries("orders")) == 2) is listed
    done = run_apart(
        command, "--lake", scene.lake.location, "--job", "orders", *ALL[command], "--json"
    )
    assert done.code == (1 if command == "migrate" else 3)
    if command == "migrate":
        assert [each["outcome"] for each in done.json] == ["migrated", "failed"]
        assert "statelake did not write this row" in done.json[1]["why"]
    else:
        assert [each["snapshot"] for each in done.json] == ["good"]
        assert "statelake did not write this row" in done.err
