"""`statelake notebook`: a file that real marimo runs, and in which nothing of a snapshot is."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelake as sl
from statelake.pipelines.report.notebook import notebook_text
from tests.support.command import run
from tests.support.lakes import DEMO, demo_lake
from tests.support.marimo import run_notebook
from tests.support.savepoints.hostile_names import hostile_savepoint


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two snapshots of the demo's job."""
    return demo_lake(tmp_path_factory.mktemp("notebook") / "lake")


@pytest.mark.full
def test_marimo_runs_that_of_a_lake(lake: Path, tmp_path: Path) -> None:
    """Each cell, at the job and the snapshot that were named."""
    target = tmp_path / "demo.py"
    ran = run("notebook", lake, "--to", target, "--job", "demo", "--snapshot", "monday", "--json")
    assert (ran.code, json.loads(ran.out)["snapshot"]) == (0, "monday")
    told = run_notebook(
        target,
        "import json; print(json.dumps([values['snapshot'].name, len(values['states']),"
        " len(values['rows']), len(values['answer']), values['grown'].sentences]))",
    )
    name, states, rows, tables, sentences = json.loads(told)
    held = sl.Lake(lake).job("demo", engine="local")
    operators = held["monday"].operators
    assert name == "monday"
    assert states == sum(len(each.keyed_states) + len(each.operator_states) for each in operators)
    assert rows > 0
    assert tables > 0
    assert sentences == held.growth().sentences


@pytest.mark.full
def test_marimo_runs_that_of_a_directory_with_hostile_names(tmp_path: Path) -> None:
    """Names are data: no cell runs them, and nothing is written."""
    for name in ("one", "two"):
        hostile_savepoint(tmp_path / "all" / name)
    target = tmp_path / "all.py"
    assert run("notebook", tmp_path / "all", "--to", target).code == 0
    told = run_notebook(target, "print(len(values['states']), len(values['answer']))")
    assert all(int(count) > 0 for count in told.split())
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"__pycache__"} == {"all", "all.py"}


def test_what_is_there_is_not_written_over(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless that is said; and what is not there is not opened."""
    target = tmp_path / "demo.py"
    target.write_text("mine")
    ran = run("notebook", lake, "--to", target)
    assert (ran.code, "--overwrite replaces it" in ran.err) == (3, True)
    assert target.read_text() == "mine"
    for words in (("--job", "no"), ("--job", "demo", "--snapshot", "no"), ("--snapshot", "monday")):
        assert run("notebook", lake, "--to", target, "--overwrite", *words).code == 3
    for words in (("--job", "demo"), ("--snapshot", "../demo")):
        assert run("notebook", DEMO, "--to", target, "--overwrite", *words).code == 3
    assert target.read_text() == "mine"
    (tmp_path / "statelake.toml").write_text('job = "demo"\n')
    monkeypatch.chdir(tmp_path)  # a configured job alone changes nothing
    assert run("notebook", DEMO, "--to", target, "--overwrite").code == 0
    assert run("notebook", lake, "--to", target, "--overwrite").code == 0
    assert "first_job = ''" in target.read_text()


@given(location=st.text(), job=st.text(), snapshot=st.text(), in_lake=st.booleans())
def test_no_name_is_code(location: str, job: str, snapshot: str, *, in_lake: bool) -> None:
    """Each is one literal of ASCII; all else is the same text whatever they are."""

    def told(text: str) -> tuple[dict[str, object], str]:
        assert text.isascii()
        tree = ast.parse(text)
        names = {}
        for each in ast.walk(tree):
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                name = each.targets[0].id
                if name in ("location", "first_job", "first_snapshot"):
                    names[name] = ast.literal_eval(each.value)
                    each.value = ast.Constant(None)
        return names, ast.dump(tree)

    names, rest = told(notebook_text(location, job, snapshot, in_lake=in_lake))
    assert names == {"location": location, "first_job": job, "first_snapshot": snapshot}
    assert rest == told(notebook_text("a", "b", "c", in_lake=in_lake))[1]
