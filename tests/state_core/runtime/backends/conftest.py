"""Fixtures that give every test of the contract each backend in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.runtime.backends import BackendConfiguration, KeyedStateBackend
from tests.support.jobs.backend_cases import BACKENDS, Clock, MakeBackend


@pytest.fixture(params=sorted(BACKENDS))
def make_backend(request: pytest.FixtureRequest) -> MakeBackend:
    """What makes a backend of one kind."""
    return BACKENDS[request.param]


@pytest.fixture
def clock() -> Clock:
    """The backend's clock."""
    return Clock(1_000)


@pytest.fixture
def backend(make_backend: MakeBackend, clock: Clock) -> Iterator[KeyedStateBackend]:
    """A backend of all 128 key groups, with strings for keys."""
    with make_backend(
        BackendConfiguration("String", KeyGroupRange(0, 127), 128, clock=clock)
    ) as made:
        yield made
