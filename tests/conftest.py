"""What every test may use: golden data by name, and how hard Hypothesis tries."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from state_core.serializers import decoders, plugins, registry
from tests.golden_cases import GOLDEN

settings.register_profile(
    "fast",
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("full", settings.get_profile("fast"), max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of small vectors computed by Flink's classes."""
    return GOLDEN / "vectors"


@pytest.fixture
def wordcount() -> Path:
    """A savepoint of 300 keys of one value state: heap backend, parallelism 2, max 128."""
    return GOLDEN / "flink" / "wordcount-hashmap-canonical-p2-m128-flink2.3.0" / "savepoint"


# what was derived from a registry is kept by its number of changes: no test has another's
_CHANGES = count(1_000_000, 1_000_000)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten behind it; no entry points, nothing was loaded yet."""
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(decoders, "_decoders", {})
    state = plugins._State()
    state.changes = next(_CHANGES)
    monkeypatch.setattr(plugins, "_state", state)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    monkeypatch.delenv(plugins.ENVIRONMENT, raising=False)
