"""One process that forks, for all the cases that a worker runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversary.makers.scene import Scene, tree
from tests.adversary.makers.seed import Seed, make_seed
from tests.adversary.runner import Runner


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """Calls of the command under limits."""
    with Runner() as started:
        yield started


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seed]:
    """What scenes are copied from; no case may change it."""
    root = tmp_path_factory.mktemp("seed")
    seeded = make_seed(root)
    before = tree(root)
    yield seeded
    assert tree(root) == before


@pytest.fixture
def scene(tmp_path: Path, seed: Seed) -> Scene:
    """The directories of a case."""
    return Scene(tmp_path, seed)
