"""Names, contradictions and a database's files: data, shown escaped or refused by name."""

from __future__ import annotations

import pytest

from tests.adversary.cases.names import CONTRADICTION_CASES, NAME_CASES, ROCKSDB_CASES
from tests.adversary.makers.scene import Scene
from tests.adversary.playing import Case, as_parameters, play
from tests.adversary.runner import Runner

pytestmark = pytest.mark.full


@as_parameters(NAME_CASES)
def test_name(case: Case, runner: Runner, scene: Scene) -> None:
    """Nothing that a terminal obeys is printed, and no name is a path."""
    play(case, runner, scene)


@as_parameters(CONTRADICTION_CASES)
def test_contradiction(case: Case, runner: Runner, scene: Scene) -> None:
    """What contradicts itself is not imported, and both places are named."""
    play(case, runner, scene)


@as_parameters(ROCKSDB_CASES)
def test_database(case: Case, runner: Runner, scene: Scene) -> None:
    """A file of a database is called and lies as Flink calls and puts it."""
    play(case, runner, scene)
