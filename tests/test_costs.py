"""How tests are shared between workers, and what is known of their costs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import costs


@dataclass
class Item:
    """What is looked at of a test."""

    nodeid: str
    keywords: tuple[str, ...] = ()
    _nodeid: str = field(default="", init=False)

    def get_closest_marker(self, name: str) -> object:
        """A mark, if the test has it."""
        return name if name in self.keywords else None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__("nodeid" if name == "_nodeid" and value else name, value)


def in_order(monkeypatch: pytest.MonkeyPatch, *items: Item) -> list[str]:
    """The ids of tests in the order in which they are given to workers."""
    kept = {"a.py": {"short": 1.0}, "b.py": {"short": 2.0, "full": 9.0}, "c.py": {"full": 5.0}}
    monkeypatch.setattr(costs, "_read", lambda: kept)
    listed: list[Any] = list(items)
    worker: Any = SimpleNamespace(workerinput={})
    costs.pytest_collection_modifyitems(worker, listed)
    return [item.nodeid for item in listed]


def test_the_dearest_module_begins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is selected of it; what is not known comes last, and no module is torn."""
    chosen = [Item("tests/a.py::x"), Item("tests/new.py::x"), Item("tests/b.py::x"),
              Item("tests/a.py::y"), Item("tests/c.py::x", ("full",))]  # fmt: skip
    assert in_order(monkeypatch, *chosen) == [
        "tests/c.py::x", "tests/b.py::x", "tests/a.py::x", "tests/a.py::y", "tests/new.py::x",
    ]  # fmt: skip


def test_modules_of_one_server_are_one_piece_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is in the ids of their tests, also of those that do without it."""
    chosen = [Item("tests/a.py::x[a@b]"), Item("tests/b.py::x", ("s3",)), Item("tests/b.py::y"),
              Item("tests/c.py::x", ("s3", "full"))]  # fmt: skip
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
    fixtures = {"s3": [SimpleNamespace(finish=ended.append)]}
    manager = SimpleNamespace(_arg2fixturedefs=fixtures)
    item: Any = SimpleNamespace(
        nodeid=this, session=SimpleNamespace(_fixturemanager=manager), _request="request"
    )
    following_item: Any = following and SimpleNamespace(nodeid=following)
    assert list(costs.pytest_runtest_teardown(item, following_item)) == [None]
    assert ended == (["request"] if ends else [])


def test_what_is_kept_is_of_modules_that_are_there() -> None:
    """What a module that is gone has cost says nothing."""
    kept = json.loads(costs.COSTS.read_text("utf-8"))
    assert [module for module in kept if not (costs.COSTS.parent / module).is_file()] == []
