"""`docs/offsets.md` shows what its commands print."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.command import run

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "offsets.md"
GOLDEN = ROOT / "tests" / "golden" / "sources"
PROMPT, LEFT_OUT = "$ statelake ", "..."


def test_its_commands_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; three dots stand for all that is printed."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "kafka-5.0", tmp_path / "savepoints" / "orders")
    shutil.copytree(GOLDEN / "old-kafka-3.2", tmp_path / "savepoints" / "old")
    shutil.copytree(GOLDEN / "numbers-to-kafka-5.0", tmp_path / "savepoints" / "numbers")
    shutil.copytree(GOLDEN / "mysql-cdc-binlog-3.5", tmp_path / "savepoints" / "shop")
    shutil.copytree(GOLDEN / "iceberg-committer-1.9", tmp_path / "savepoints" / "lake")
    blocks = [block.lstrip("\n") for block in PAGE.read_text("utf-8").split("```")[1::2]]
    shown = "".join(block for block in blocks if block.startswith(PROMPT)).replace("\\\n", " ")
    calls = shown.split(PROMPT)[1:]
    assert len(calls) == 11
    for call in calls:
        command, *lines = call.strip().split("\n")
        ran = run(*shlex.split(command))
        printed = [line.rstrip() for line in (ran.out or ran.err).strip().splitlines()]
        assert ran.code == (3 if lines[0].startswith("error") else 0), ran.err
        if lines != [LEFT_OUT]:
            assert [line.split() for line in printed] == [line.split() for line in lines]
