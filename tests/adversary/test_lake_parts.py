"""Hostile parts of lakes: what is carried, Delta's logs, the catalog."""

from __future__ import annotations

import pytest

from tests.adversary.cases.lake_parts import LAKE_PART_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(LAKE_PART_CASES)
def test_part_of_lake(case: Case, runner: Runner, scene: Scene) -> None:
    """Nothing outside the lake is read, written or removed, and what is honest stays."""
    play(case, runner, scene)
