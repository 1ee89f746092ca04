"""`statelake warm`, and what a first command after an install has to compile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lakes import DEMO


def run(cache: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with an empty cache of kernels."""
    command = [sys.executable, "-m", "statelake.pipelines.cli.main", *map(str, arguments)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["monday", "tuesday"])  # the second one is compressed
@pytest.mark.full
def test_a_small_savepoint_goes_there_and_back_without_a_compilation(
    name: str, tmp_path: Path
) -> None:
    """Python's interpreter is done before the first kernel would be compiled."""
    lake = ("--lake", tmp_path / "lake", "--job", "kinds")
    shown = [
        run(tmp_path / "cache", "inspect", DEMO / name),
        run(tmp_path / "cache", "import", DEMO / name, *lake, "--engine", "local"),
        run(tmp_path / "cache", "export", *lake, "--to", tmp_path / "back", "--engine", "local"),
    ]
    assert not (tmp_path / "cache").exists()
    assert not any("compiling" in process.stderr for process in shown)


@pytest.mark.nightly
@pytest.mark.full
def test_all_kernels_are_compiled_once(tmp_path: Path) -> None:
    """A second time they are loaded; the first time says that it compiles, on one line."""
    first, second = (run(tmp_path, "warm", "--json") for _ in range(2))
    assert first.stderr.count("compiling kernels") == 1
    assert not second.stderr
    assert json.loads(first.stdout)["kernels"] == json.loads(second.stdout)["kernels"] > 70
