"""`docs/erase.md` shows what its commands print."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.lakes import DEMO

PAGE = Path(__file__).parents[4] / "docs" / "erase.md"
PROMPT = "$ statelake "
LEFT_OUT = "..."


@pytest.mark.full
def test_its_commands_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; three dots stand for the rest of a line, or for a line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STATELAKE_ERASE_SECRET", raising=False)
    shutil.copytree(DEMO, tmp_path / "demo" / "savepoints")
    for name in ("monday", "tuesday"):
        words = ("--lake", "lake", "--job", "orders", "--snapshot", name)
        assert run("import", f"demo/savepoints/{name}", *words).code == 0
    blocks = [block.strip("\n").split("\n") for block in PAGE.read_text("utf-8").split("```")[1::2]]
    blocks = [block for block in blocks if block[0].startswith(PROMPT)]
    assert len(blocks) == 4
    for command, *shown in blocks:
        ran = run(*shlex.split(command.removeprefix(PROMPT)))
        assert ran.code == 0, ran.err
        printed = [line.rstrip() for line in ran.out.splitlines()]
        assert len(printed) == len(shown)
        for line, known in zip(printed, shown, strict=True):
            if "searched" in known or "digest" in known:  # sizes and names of the machine's own
                assert line.split()[0] == known.split()[0]
            elif LEFT_OUT in known:
                assert line.startswith(known[: known.index(LEFT_OUT)])
            else:
                assert line.replace(" ", "") == known.replace(" ", "")
