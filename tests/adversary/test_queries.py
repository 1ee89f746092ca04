"""Hostile lakes and queries, through `statelake sql`."""

from __future__ import annotations

import pytest

from tests.adversary.cases.queries import QUERY_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(QUERY_CASES)
def test_query(case: Case, runner: Runner, scene: Scene) -> None:
    """A query reads the lake's tables, changes them alone, and leaves what is beside as it was."""
    play(case, runner, scene)
