"""What a release is made of: workflows, the action and its page, files that hosts look for."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.lakes import DEMO

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "release" / "check_in_ci.py"
WORKFLOWS = sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("examples/ci/*.yml")])
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40}")
OURS = "statelake/statelake@v"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved to other code; a commit can't."""
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    steps = [step for job in jobs for step in (job, *job.get("steps", ()))]
    used = [step["uses"] for step in steps if "uses" in step]
    assert used
    for action in used:
        assert PINNED.fullmatch(action) or action.startswith(("./", OURS)), action


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_no_more(path: Path) -> None:
    """A job that needs more says so itself."""
    assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {"contents": "read"}


def steps_of_the_action() -> list[dict[str, str]]:
    """The steps of `action.yml`."""
    steps: list[dict[str, str]] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"][
        "steps"
    ]
    return steps


@pytest.mark.full
def test_the_action_imports_nothing_of_the_callers_checkout(tmp_path: Path) -> None:
    """Also if its first step ran in it: a module of a pull request has no rights of the job."""
    marker = tmp_path / "it-ran"
    for name in ("pip", "venv", "ensurepip", "argparse", "json", "tempfile", "setuptools"):
        text = f"open({str(marker)!r}, 'w').close()\n"
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    environment = {
        **os.environ, "SOURCE": str(ROOT), "RUNNER_TEMP": str(tmp_path / "temp"), "LENIENT": "",
        "CHECK": "no-such-check", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull,
    }  # fmt: skip
    for step in steps_of_the_action():
        ran = subprocess.run(
            ["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert ran.returncode != 0
        assert "Could not find a version" in ran.stderr or "invalid choice" in ran.stderr
        assert not marker.exists(), step["name"]
    assert steps_of_the_action()[0]["working-directory"] == "${{ github.action_path }}"


def test_what_a_build_runs_is_pinned() -> None:
    """In the action as in `make dist`: exactly, and as the tests have it."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    required = re.findall(r'"([^"]+)"', project.partition("requires = [")[2].partition("\n]")[0])
    pins = dict(line.partition(";")[0].split("==") for line in required)
    known = dict(
        line.partition(" ;")[0].split("==")
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if "==" in line
    )
    assert pins.keys() >= {"hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"}
    assert all(known.get(name, version) == version for name, version in pins.items())


def test_steps_are_targets_that_run_here() -> None:
    """Each `make` of a workflow is a target of the Makefile."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = "".join(path.read_text("utf-8") for path in ROOT.glob(".github/workflows/*.yml"))
    called = set(re.findall(r"\bmake (?:--[\w-]+ )*([\w-]+)", text))
    assert called >= {"test", "test-full", "check-dist", "docs", "version"}
    assert called <= targets


def test_the_version_is_said_once() -> None:
    """What a tag is compared with is what the command says."""
    said = subprocess.run(["make", "-s", "version"], cwd=ROOT, capture_output=True, check=True)
    statelake = Path(sys.executable).parent / "statelake"
    shown = subprocess.run([statelake, "--version"], capture_output=True, check=True)
    assert shown.stdout.split()[-1] == said.stdout.strip()


def check(*words: object, summary: Path) -> tuple[int, str]:
    """The exit code of a check as the action runs it, and what the job's page shows."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(summary)}
    ran = subprocess.run(
        [sys.executable, SCRIPT, *map(str, words)],
        cwd=summary.parent, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.returncode, summary.read_text("utf-8")


@pytest.mark.full
def test_a_type_that_does_not_fit_fails_the_job(tmp_path: Path) -> None:
    """The page's table says which state, and why."""
    types = ROOT / "examples" / "new_types.yaml"
    words = ("compatibility", "--savepoint", DEMO / "monday", "--against", types)
    code, page = check(*words, summary=tmp_path / "page")
    assert code == 1
    assert page.startswith("### statelake check compatibility: failed\n")
    assert "| ❌ | kinds | total | incompatible | value: Long → Double" in page
    assert "| ✅ | kinds | avg | compatible as is |  |" in page


@pytest.mark.full
def test_a_sound_savepoint_passes(tmp_path: Path) -> None:
    """The page says what was read."""
    words = ("integrity", "--savepoint", DEMO / "monday")
    code, page = check(*words, summary=tmp_path / "page")
    assert code == 0
    assert "1,170 entries" in page


@pytest.mark.full
def test_what_is_no_savepoint_says_what_to_give(tmp_path: Path) -> None:
    """As the command does, with its exit code."""
    code, page = check("integrity", "--savepoint", tmp_path, summary=tmp_path / "page")
    assert code == 3
    assert "could not run" in page
    assert "give the directory of a savepoint" in page


def test_names_out_of_a_savepoint_are_text_on_the_page() -> None:
    """No name ends a cell or a row, or is a link, an image or HTML."""
    spec = importlib.util.spec_from_file_location("check_in_ci", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    name = "a|b\n`c`<img src=x>[d](e)*f*_g_\\"
    shown = module._cell(name)
    assert not set(shown) & set("|\n`<>[]*_\\") - {"\\"}
    assert "u000a" in shown
