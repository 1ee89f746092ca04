"""What every test may use: golden data by name, and how hard Hypothesis tries."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from statelake.state_core.kernels import compiler
from statelake.state_core.serializers.framework import opaque_values, plugins, registry
from statelake.state_core.serializers.kryo import decoding
from tests.support.covering import thin
from tests.support.savepoints.golden_cases import GOLDEN

# machine code reads what is large, so tests of small snapshots run that; some compare both
compiler.interpreting = compiler.Interpreting(seconds=0)

settings.register_profile(
    "fast",
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("full", settings.get_profile("fast"), max_examples=30)
settings.register_profile("nightly", settings.get_profile("fast"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


pytest_plugins = ["tests.support.costs"]

# tens of thousands of objects are made while tests are collected, and none of them is garbage
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thin tests that go through many snapshots or attacks."""
    thin(items)


@pytest.fixture(autouse=True)
def no_store_of_other_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """No keys of the S3 of other tests, which is in the environment for as long as it runs."""
    with pytest.MonkeyPatch.context() as patch:
        if "s3" not in request.fixturenames and not request.node.get_closest_marker("s3"):
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of small vectors computed by Flink's classes."""
    return GOLDEN / "vectors"


@pytest.fixture
def wordcount() -> Path:
    """A savepoint of 300 keys of one value state: heap backend, parallelism 2, max 128."""
    return GOLDEN / "flink" / "wordcount-hashmap-canonical-p2-m128-flink1.20.0" / "savepoint"


# what was derived from a registry is kept by its number of changes: no test has another's
_CHANGES = count(1_000_000, 1_000_000)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten behind it; no entry points, nothing was loaded yet."""
    monkeypatch.setattr(registry, "_classes", registry.registered_classes())
    monkeypatch.setattr(opaque_values, "_decoders", {})
    monkeypatch.setattr(decoding, "_declared", decoding._Declared())
    state = plugins._State()
    state.changes = next(_CHANGES)
    monkeypatch.setattr(plugins, "_state", state)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    monkeypatch.delenv(plugins.ENVIRONMENT, raising=False)
