"""`statelake check legality`: by the rules alone, against the lake, against a savepoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.runtime.declarations import to_json
from tests.support.jobs import declared_jobs
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = pytest.mark.usefixtures("own_registry")

HERE = "tests.support.jobs.declared_jobs"
KINDS = golden_cases("kinds", form="canonical")[0].snapshot
OPERATORS = golden_cases("operator", form="canonical")[0].snapshot


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake with a snapshot of each job."""
    made = Catalog(tmp_path_factory.mktemp("legality") / "lake")
    for job, savepoint in (("kinds", KINDS), ("operator", OPERATORS)):
        import_snapshot(made, str(savepoint), job, snapshot_id="monday", engine="local")
    return made.location


def run(*words: str) -> int:
    """The command's exit code."""
    with pytest.raises(SystemExit) as left:
        main(["check", "legality", *words])
    return int(left.value.code or 0)


def found(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what is found."""
    code = run(*words, "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["legal"] == (code == 0)
    return code, said["findings"]


@pytest.mark.parametrize("name", ["KINDS", "OPERATORS", "given"])
def test_a_legal_job_is_legal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A job, or a function that gives one; no snapshot is needed."""
    assert found(capsys, f"{HERE}:{name}") == (0, [])


def test_an_illegal_job_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, all faults at once: eight states over a stream without keys, and the key."""
    code, findings = found(capsys, f"{HERE}:ILLEGAL")
    assert code == 1
    assert [finding["rule"] for finding in findings] == ["key"] + ["mode"] * 8
    assert {finding["severity"] for finding in findings} == {"fault"}
    assert {finding["state"] for finding in findings[1:]} == {
        state.name for state in declared_jobs.KINDS.operators[0].states
    }


def test_for_people_there_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """With a headline that counts, the operator with its function, and what would be legal."""
    assert run(f"{HERE}:ILLEGAL") == 1
    said = capsys.readouterr().out
    assert said.startswith("9 faults, no warnings\n")
    assert "kinds (Kinds)" in said
    assert "→ declare a list state with redistribute_by" in " ".join(said.split())
    assert run(f"{HERE}:KINDS") == 0
    assert capsys.readouterr().out == "no faults, no warnings\n"


@pytest.mark.parametrize(("job", "name"), [("kinds", "KINDS"), ("operator", "OPERATORS")])
def test_a_snapshot_and_a_savepoint_say_the_same(
    lake: str, job: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing about the job that wrote them; the same findings about another."""
    savepoint = str(KINDS if job == "kinds" else OPERATORS)
    of = ("--lake", lake, "--job", job, "--snapshot", "monday")
    assert found(capsys, f"{HERE}:{name}", *of) == (0, [])
    assert found(capsys, f"{HERE}:{name}", "--savepoint", savepoint) == (0, [])
    other = "OPERATORS" if name == "KINDS" else "KINDS"
    code, findings = found(capsys, f"{HERE}:{other}", *of)
    assert code == 1
    assert {finding["rule"] for finding in findings} == {"new_operator", "missing_operator"}
    assert found(capsys, f"{HERE}:{other}", "--savepoint", savepoint) == (code, findings)


def test_an_operator_may_be_gone_if_that_is_said(
    lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it is a warning, and warnings pass."""
    of = ("--lake", lake, "--job", "operator", "--snapshot", "monday")
    code, findings = found(capsys, f"{HERE}:KINDS", *of, "--allow-non-restored-state")
    assert code == 0
    assert {finding["severity"] for finding in findings} == {"warning"}


def test_warnings_pass(lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that is not declared, and a state that nobody reads."""
    of = ("--lake", lake, "--job", "kinds", "--snapshot", "monday")
    code, findings = found(capsys, f"{HERE}:RENAMED", *of)
    assert code == 0
    assert {finding["rule"] for finding in findings} == {"key", "extra_state"}


def test_a_job_can_be_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of Python, of JSON, or a module of the directory that the command is called in."""
    text = to_json(declared_jobs.ILLEGAL)
    (tmp_path / "job.json").write_text(text, "utf-8")
    (tmp_path / "job_of_a_test.py").write_text(
        "from statelake.state_core.runtime.declarations import job_from_json\n"
        f"class Jobs:\n    JOB = job_from_json({text!r})\n",
        "utf-8",
    )
    wanted = found(capsys, f"{HERE}:ILLEGAL")
    assert found(capsys, str(tmp_path / "job.json")) == wanted
    assert found(capsys, f"{tmp_path / 'job_of_a_test.py'}:Jobs.JOB") == wanted
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert found(capsys, "job_of_a_test:Jobs.JOB") == wanted


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("acme", "names no job"),
        (":JOB", "names no job"),
        ("no_such_module_here:JOB", "can't be loaded"),
        (f"{HERE}:NO_SUCH_JOB", "it is not there, not a JobDeclaration"),
        (f"{HERE}:__doc__", "it is of type str"),
        (f"{HERE}:not_a_job", "it fails (ZeroDivisionError"),
        ("no_such_file.json", "can't be read"),
        ("no_such_file.py:JOB", "can't be read"),
    ],
)
def test_what_names_no_job_is_bad_input(
    named: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, and one line that says what is missing."""
    assert run(named) == 3
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_broken_json_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the file and the place in it."""
    path = tmp_path / "job.json"
    path.write_text('{"version": 1, "name": "j", "operators": [1]}', "utf-8")
    assert run(str(path)) == 3
    said = capsys.readouterr().err
    assert str(path) in said
    assert "$.operators[0]" in said


@pytest.mark.parametrize(
    "words", [("--lake", "x"), ("--job", "x", "--savepoint", "y"), ("--snapshot", "x")]
)
def test_half_a_snapshot_is_a_mistake(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Lake, job and snapshot belong together, and a savepoint stands alone."""
    assert run(f"{HERE}:KINDS", *words) == 2
    assert "or --savepoint, or neither" in capsys.readouterr().err
