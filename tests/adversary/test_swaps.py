"""Links that are put there between the check and the use."""

from __future__ import annotations

import pytest

from tests.adversary.cases.swaps import SWAP_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(SWAP_CASES)
def test_swap(case: Case, runner: Runner, scene: Scene) -> None:
    """Whoever wins the race, nothing outside is read, written or removed."""
    play(case, runner, scene)
