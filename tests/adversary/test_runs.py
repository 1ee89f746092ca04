"""Hostile records of runs, through the command that goes on where they end."""

from __future__ import annotations

import pytest

from tests.adversary.cases.runs import RUN_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = [pytest.mark.full, pytest.mark.thinned(5)]


@as_parameters(RUN_CASES)
def test_run(case: Case, runner: Runner, scene: Scene) -> None:
    """Nothing outside the lake is read, and only it and the job's sinks are written."""
    play(case, runner, scene)
