"""Checkpoints of the changelog backend: what was materialized, with the changes in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_core import open_snapshot
from tests.support.savepoints.change_logs import CHECKPOINTS, rows_of, savepoint_of, unpack


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden checkpoints; nothing may write to them."""
    return unpack(tmp_path_factory.mktemp("changelog"))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_it_holds_what_the_savepoint_of_its_moment_holds(name: str, golden: Path) -> None:
    """Before, between and after materializations, and behind a restore at another parallelism."""
    found = rows_of(open_snapshot(golden / name))
    expected = rows_of(open_snapshot(savepoint_of(golden / name)))
    assert found == expected
    assert len(found) == 14
