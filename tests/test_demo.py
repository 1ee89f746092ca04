"""`statelake demo`: the way that every newcomer goes first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statelake import open_snapshot

ERASED = -820795872871
SAID = (
    "monday in", "tables of _timers, avg, items", "check integrity of state_tables: passed",
    "tuesday in", "tables of SourceReaderState, _timers", "check integrity of state_tables: passed",
    "2 snapshots", "people  total", "575960", "erased gdpr-4711: 18 rows", "nothing is left",
    "exported tuesday", "done in",
)  # fmt: skip


@pytest.mark.full
def test_the_whole_way(tmp_path: Path) -> None:
    """Each step says what it did, in order, and the savepoint at its end lacks the one person."""
    done = subprocess.run(
        [sys.executable, "-m", "statelake.pipelines.cli.main", "demo",
         "--dir", str(tmp_path / "demo")],
        capture_output=True, text=True, check=False,
        env={**os.environ, "DAGSTER_HOME": str(tmp_path / "dagster")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    at = 0
    for said in SAID:
        assert said in done.stdout[at:], said
        at = done.stdout.index(said, at) + len(said)
    operator = open_snapshot(tmp_path / "demo" / "exports" / "tuesday-erased").operator("kinds")
    keys = {key for state in operator.keyed_states for key in state.to_arrow()["key"].to_pylist()}
    assert len(keys) > 100
    assert ERASED not in keys
