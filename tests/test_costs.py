"""How tests are shared between workers, and what is known of their costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.nodeid import NodeId

from tests.support import costs


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Callable[..., pytest.Item]:
    """Makes items of pytest's own class, with an id and marks."""

    def item(nodeid: str, marks: tuple[str, ...] = ()) -> pytest.Item:
        item: Any = copy(request.node)
        item._id = NodeId.parse(nodeid)
        item.keywords = marks
        item.get_closest_marker = lambda name: name if name in marks else None
        return cast("pytest.Item", item)

    return item


def in_order(monkeypatch: pytest.MonkeyPatch, *items: pytest.Item) -> list[str]:
    """The ids of tests in the order in which they are given to workers."""
    kept = {"a.py": {"short": 1.0}, "b.py": {"short": 2.0, "full": 9.0}, "c.py": {"full": 5.0}}
    monkeypatch.setattr(costs, "_read", lambda: kept)
    listed: list[Any] = list(items)
    worker: Any = SimpleNamespace(workerinput={})
    costs.pytest_collection_modifyitems(worker, listed)
    return [item.nodeid for item in listed]


def test_the_dearest_module_begins_first(
    monkeypatch: pytest.MonkeyPatch, made: Callable[..., pytest.Item]
) -> None:
    """By what is selected of it; what is not known comes last, and no module is torn."""
    chosen = [made("tests/a.py::x"), made("tests/new.py::x"), made("tests/b.py::x"),
              made("tests/a.py::y"), made("tests/c.py::x", ("full",))]  # fmt: skip
    assert in_order(monkeypatch, *chosen) == [
        "tests/c.py::x", "tests/b.py::x", "tests/a.py::x", "tests/a.py::y", "tests/new.py::x",
    ]  # fmt: skip


def test_modules_of_one_server_are_one_piece_of_work(
    monkeypatch: pytest.MonkeyPatch, made: Callable[..., pytest.Item]
) -> None:
    """Its name is in the ids of their tests, also of those that do without it."""
    chosen = [made("tests/a.py::x[a@b]"), made("tests/b.py::x", ("s3",)), made("tests/b.py::y"),
              made("tests/c.py::x", ("s3", "full"))]  # fmt: skip
    ordered = in_order(monkeypatch, *chosen)
    assert ordered == [
        "tests/b.py::x@s3", "tests/b.py::y@s3", "tests/c.py::x@s3", "tests/a.py::x[a@b]",
    ]  # fmt: skip
    assert [costs._scope(nodeid) for nodeid in ordered] == ["s3", "s3", "s3", "a.py"]


@pytest.mark.parametrize(
    ("this", "following", "ends"),
    [("b.py::x@s3", "a.py::x", True), ("b.py::x@s3", "c.py::x@s3", False),
     ("a.py::x", "b.py::x@s3", False), ("b.py::x@s3", None, False)],
)  # fmt: skip
def test_servers_end_with_the_last_test_of_their_piece(
    this: str, following: str | None, ends: bool
) -> None:
    """The next piece may come later, or never: the session ends what runs then."""
    ended: list[object] = []

    class Fixture(SimpleNamespace):
        __hash__ = object.__hash__

    server = Fixture(finish=ended.append)
    item: Any = SimpleNamespace(nodeid=this, _request="request")
    item._fixtureinfo = SimpleNamespace(name2fixturedefs={"s3": [server]})
    item.session = SimpleNamespace(items=[item, item])
    following_item: Any = following and SimpleNamespace(nodeid=following)
    assert list(costs.pytest_runtest_teardown(item, following_item)) == [None]
    assert ended == (["request"] if ends else [])


def test_what_is_kept_is_of_modules_that_are_there() -> None:
    """What a module that is gone has cost says nothing."""
    kept = json.loads(costs.COSTS.read_text("utf-8"))
    assert [module for module in kept if not (costs.COSTS.parent / module).is_file()] == []
