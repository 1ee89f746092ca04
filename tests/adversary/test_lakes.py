"""Hostile lakes, through every command that reads one."""

from __future__ import annotations

import pytest

from tests.adversary.cases.lakes import LAKE_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(LAKE_CASES)
def test_lake(case: Case, runner: Runner, scene: Scene) -> None:
    """Nothing outside the lake is read, written or removed, and what is honest stays."""
    play(case, runner, scene)
