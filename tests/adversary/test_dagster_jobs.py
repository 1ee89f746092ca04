"""Hostile lakes, savepoints and logs, through Dagster's jobs."""

from __future__ import annotations

from tests.adversary.cases_dagster import DAGSTER_CASES
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner
from tests.adversary.scene import Scene


@as_parameters(DAGSTER_CASES)
def test_dagster(case: Case, runner: Runner, scene: Scene) -> None:
    """The same as through the command."""
    play(case, runner, scene)
