"""Hostile savepoints and checkpoints, through every command that reads one."""

from __future__ import annotations

import pytest

from tests.adversary.cases.savepoints import SAVEPOINT_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(SAVEPOINT_CASES)
def test_savepoint(case: Case, runner: Runner, scene: Scene) -> None:
    """Nothing outside the snapshot is read, and what is refused leaves nothing behind."""
    play(case, runner, scene)
