"""Hostile checkpoint logs and blob stores, through every command that reads them."""

from __future__ import annotations

import pytest

from tests.adversary.cases.checkpoints import CHECKPOINT_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(CHECKPOINT_CASES)
def test_checkpoints(case: Case, runner: Runner, scene: Scene) -> None:
    """Nothing outside the log and the store is read, written or removed."""
    play(case, runner, scene)
