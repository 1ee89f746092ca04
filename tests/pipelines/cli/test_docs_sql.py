"""`docs/sql.md` shows what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from tests.support.command import run
from tests.support.lakes import DEMO, import_as

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"
BLOCK = re.compile(r"```\n\$ statelake (.*?)\n(.*?)```", re.DOTALL)


@pytest.mark.full
def test_every_command_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other; `...` stands for what differs from run to run."""
    monkeypatch.chdir(tmp_path)
    for name in ("monday", "tuesday"):
        import_as(Catalog("lake"), DEMO / name, name, job="demo")
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) > 6
    for command, shown in blocks:
        ran = run(*shlex.split(command))
        assert ran.code == 0, (command, ran.err)
        printed = "\n".join(line.rstrip() for line in ran.out.splitlines()) + "\n"
        pattern = re.escape(shown).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{command}\n{printed}"
