"""TAB: commands, options, the lake's jobs and snapshots; nothing that a shell would run."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, CompletionItem

from statelake.pipelines.cli.main import COMMANDS, statelake
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.tables.records import SnapshotRecord
from tests.support.lakes import add_row

pytestmark = pytest.mark.thinned(2)

MONDAY = datetime(2026, 11, 16, tzinfo=timezone.utc)
EVIL = [
    "$(touch pwned)",
    "`touch pwned`",
    "a;b",
    "two words",
    "line\nbreak",
    "-rf",
    "a'b",
    "*",
    "~x",
]


@pytest.fixture(autouse=True)
def _nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATELAKE_LAKE", "STATELAKE_JOB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two jobs, one of which has ids that a shell would not take as they are."""
    lake = Catalog(tmp_path_factory.mktemp("completed") / "lake")
    rows = [("orders", name) for name in ("monday", "tuesday", "größe-1")]
    rows += [("returns", name) for name in ("monday-r", *EVIL)]
    for hours, (job, name) in enumerate(rows):
        at = MONDAY + timedelta(hours=hours)
        add_row(
            lake,
            SnapshotRecord(
                job, name, "", "import", "savepoint", "canonical", 6, 1, at, at, "source",
                "digest", "none", "", 0, 0, 0, b"metadata",
            )
        )  # fmt: skip
    return lake.location


def items(*words: str) -> list[CompletionItem]:
    """What is offered for the last word, which may be empty."""
    completing = BashComplete(statelake, {}, "statelake", "_STATELAKE_COMPLETE")
    return completing.get_completions(list(words[:-1]), words[-1])


def offered(*words: str) -> list[str]:
    """The same, without what is said of each."""
    return [str(item.value) for item in items(*words)]


def test_commands_and_options() -> None:
    """Commands in their order, with what they do; options of the one that is typed."""
    assert offered("") == list(COMMANDS)
    assert {item.value: item.help for item in items("sn")} == {
        "snapshots": "List the snapshots of a lake"
    }
    assert {"--lake", "--job", "--engine"} <= set(offered("export", "--"))
    assert offered("export", "--engine", "s") == ["spark"]


def test_jobs(lake: str) -> None:
    """Of the lake that is given."""
    assert offered("export", "--lake", lake, "--job", "") == ["orders", "returns"]
    assert offered("commit", "--lake", lake, "--job", "ret") == ["returns"]


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--snapshot"), ("drop", "--snapshot"), ("plan-rescale", "--snapshot"),
        ("migrate", "--snapshot"), ("commit", "--parent"), ("edit", "--parent"),
        ("check", "compatibility", "--snapshot"), ("check", "integrity", "--snapshot"),
        ("check", "legality", "jobs.py:JOB", "--snapshot"), ("diff",), ("diff", "monday"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_snapshots(words: tuple[str, ...], lake: str) -> None:
    """Of the job that is given, the newest first, with the time at which each was taken."""
    named = 2 if words[0] == "check" else 1  # the words of the command itself
    line = [*words[:named], "--lake", lake, "--job", "orders", *words[named:]]
    assert offered(*line, "") == ["größe-1", "tuesday", "monday"]
    assert [item.help for item in items(*line, "tu")] == ["2026-11-16 01:00"]


def test_of_what_is_configured(lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment and `statelake.toml` count as they do for the command."""
    (tmp_path / "statelake.toml").write_text(f'lake = "{lake}"\njob = "orders"\n')
    assert offered("export", "--snapshot", "m") == ["monday"]
    monkeypatch.setenv("STATELAKE_JOB", "returns")
    assert offered("export", "--snapshot", "m") == ["monday-r"]


def test_names_that_mean_something_to_a_shell_are_not_offered(lake: str) -> None:
    """What TAB puts into a line is run with it: whoever wrote the lake could have chosen it."""
    assert offered("export", "--lake", lake, "--job", "returns", "--snapshot", "") == ["monday-r"]


@pytest.mark.parametrize("text", ["lake = ", 'lake = "nowhere"', 'lake = "s3://"', "job = 1"])
def test_errors_are_silent(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lake that can't be read, and a wrong file, offer nothing and print nothing."""
    (tmp_path / "statelake.toml").write_text(text)
    assert offered("export", "--snapshot", "") == []
    assert offered("export", "--job", "") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_as_a_shell_asks(shell: str, lake: str, tmp_path: Path) -> None:
    """The program itself answers, as the line of the docs lets the shell ask it."""
    docs = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text("utf-8")
    assert f"_STATELAKE_COMPLETE={shell}_source statelake" in docs
    words = f"statelake export --lake {lake} --job orders --snapshot tu"
    cword = "tu" if shell == "fish" else "7"
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "COMP_WORDS": words,
        "COMP_CWORD": cword,
    }  # fmt: skip
    answers = {}
    for what in ("source", "complete"):
        if (shell, what) == ("bash", "source"):
            continue  # which asks the bash that is installed for its version
        ran = subprocess.run(
            [sys.executable, "-m", "statelake.pipelines.cli.main"],
            check=False, capture_output=True,
            text=True, timeout=120, cwd=tmp_path,
            env=environment | {"_STATELAKE_COMPLETE": f"{shell}_{what}"},
        )  # fmt: skip
        assert ran.stderr == ""
        answers[what] = ran.stdout
    assert "tuesday" in answers["complete"]
    assert "monday" not in answers["complete"]
    assert "statelake" in answers.get("source", "statelake")
