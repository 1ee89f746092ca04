"""`docs/one-key.md` shows what its commands print."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.lakes import DEMO

PAGE = Path(__file__).parents[3] / "docs" / "one-key.md"
TAKEN = {"monday": 1_795_205_920, "tuesday": 1_795_228_560}
PROMPT = "$ statelake "
LEFT_OUT = "..."


def blocks() -> Iterator[list[str]]:
    """The lines of each block that begins with a command."""
    for block in PAGE.read_text("utf-8").split("```")[1::2]:
        lines = block.strip("\n").split("\n")
        if lines[0].startswith(PROMPT):
            yield lines


def lines_of(command: str) -> list[str]:
    """What a command prints, errors last."""
    ran = run(*shlex.split(command.removeprefix(PROMPT)))
    return [line.rstrip() for line in (ran.out + ran.err).splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's commands run: the demo's savepoints, and a lake of both."""
    root = tmp_path_factory.mktemp("page")
    shutil.copytree(DEMO, root / "demo" / "savepoints")
    lake = ("--lake", root / "lake", "--job", "demo")
    for name, taken in TAKEN.items():
        path = root / "demo" / "savepoints" / name
        os.utime(path / "_metadata", (taken, taken))
        assert run("import", path, *lake, "--snapshot", name, "--engine", "local").code == 0
    expired = (
        "edit",
        *lake,
        "--parent",
        "tuesday",
        "--snapshot",
        "expired",
        "--expire",
        "kinds/session",
    )
    assert run(*expired, "1s", "--engine", "local").code == 0
    return root


@pytest.mark.parametrize("block", list(blocks()), ids=lambda block: block[0].split()[2])
def test_a_command_prints_what_the_page_shows(
    block: list[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line for line; three dots stand for lines that are left out."""
    monkeypatch.chdir(place)
    printed = lines_of(block[0])
    shown = [line.replace("/data", str(place)) for line in block[1:]]
    if LEFT_OUT not in shown:
        assert printed == shown
        return
    before, behind = shown[: shown.index(LEFT_OUT)], shown[shown.index(LEFT_OUT) + 1 :]
    assert printed[: len(before)] == before
    assert printed[len(printed) - len(behind) :] == behind
