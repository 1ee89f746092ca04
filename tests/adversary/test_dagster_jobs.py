"""Hostile lakes, savepoints and logs, through Dagster's jobs."""

from __future__ import annotations

import pytest

from tests.adversary.cases.dagster import DAGSTER_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = [pytest.mark.full, pytest.mark.thinned(2)]


@as_parameters(DAGSTER_CASES)
def test_dagster(case: Case, runner: Runner, scene: Scene) -> None:
    """The same as through the command."""
    play(case, runner, scene)
