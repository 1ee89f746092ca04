"""Extras: what is missing is named, with what to install."""

from __future__ import annotations

import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from statelake.state_core import extras
from statelake.state_core.errors import MissingExtraError, StateError
from statelake.state_core.extras import has_extra, require_extra

PROJECT = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")


def declared(extra: str) -> set[str]:
    """The distributions that the project declares for an extra."""
    (listed,) = re.findall(rf"^{extra} = \[(.*?)\]$", PROJECT, re.MULTILINE | re.DOTALL)
    return {re.match(r"[\w-]+", requirement)[0] for requirement in re.findall(r'"(.*?)"', listed)}  # type: ignore[index]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("extra", extras._PACKAGES)
@pytest.mark.full
def test_extras_are_what_the_project_declares(extra: str) -> None:
    """What is looked for is brought by the extra of that name, and by `all`."""
    known = packages_distributions()
    wanted = {known[module][0].lower() for module in extras._PACKAGES[extra]}
    assert wanted <= declared(extra)
    (everything,) = re.findall(r'^all = \["statelake\[(.*)\]"\]$', PROJECT, re.MULTILINE)
    assert extra in everything.split(",")


def test_what_is_there_is_not_missed() -> None:
    """Nothing is raised, nothing is imported."""
    assert has_extra("spark")
    require_extra("spark", "dagster", "kafka")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install, for one extra and for several; an error of ours and of Python's."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert not has_extra("spark")
    with pytest.raises(MissingExtraError) as raised:
        require_extra("dagster", "spark")
    said = "this needs PySpark, which is not installed; pip install 'statelake[spark]'"
    assert str(raised.value) == said
    assert isinstance(raised.value, StateError)
    monkeypatch.setitem(sys.modules, "dagster", None)
    with pytest.raises(ImportError) as both:
        require_extra("dagster", "spark")
    assert str(both.value) == (
        "this needs Dagster and PySpark, which are not installed;"
        " pip install 'statelake[dagster,spark]'"
    )
