"""What stands for all cases in CI has everything that any of them has."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.covering import covering, pairs, thin, values
from tests.support.savepoints.golden_cases import golden_cases

sizes = st.lists(st.integers(1, 4), min_size=2, max_size=4)


@given(sizes, st.data())
def test_every_pair_of_values_occurs(sizes: list[int], data: st.DataObject) -> None:
    """Of a product, or of any part of one, every two values that stand together anywhere."""
    whole = [dict(zip("abcd", row, strict=False)) for row in product(*map(range, sizes))]
    part = data.draw(st.sets(st.sampled_from(range(len(whole))), min_size=1))
    cases = [pairs("test", whole[at]) for at in sorted(part)]
    chosen = covering(cases)
    assert len(chosen) == len(set(chosen))
    assert {pair for at in chosen for pair in cases[at]} == {
        pair for case in cases for pair in case
    }


@pytest.mark.parametrize(("sizes", "most"), [((8, 5, 3), 42), ((3, 3, 3, 3), 12), ((2,) * 8, 10)])
def test_pairs_are_few(sizes: tuple[int, ...], most: int) -> None:
    """Hardly more than the two largest dimensions have."""
    rows = [dict(enumerate(map(str, row))) for row in product(*map(range, sizes))]
    cases = [list(combinations(row.items(), 2)) for row in rows]
    assert len(covering(cases)) <= most


def test_a_golden_snapshot_is_all_its_facts() -> None:
    """Pairs are of its facts, and each snapshot occurs; nothing is new in the same row again."""
    cases = golden_cases("kinds", "wordcount", form="canonical")
    rows = [pairs("test", {"golden": case, "to": to}) for case in cases for to in (1, 3)]
    chosen = covering(rows)
    assert {at // 2 for at in chosen} == set(range(len(cases)))
    assert (("to", "3"), ("backend", "rocksdb")) in {pair for at in chosen for pair in rows[at]}
    assert len(chosen) < len(rows)


def test_what_is_as_good_is_spread() -> None:
    """Ten values of one parameter of three tests are not all taken from the first test."""
    rows = [values(test, {"value": value}) for test in "abc" for value in range(10)]
    assert sorted(at // 10 for at in covering(rows)) == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


class Marked(SimpleNamespace):
    """As much of a test as is thinned."""

    def get_closest_marker(self, _: str) -> pytest.Mark:
        """The mark of all of them."""
        return self.mark

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        """Note the name."""
        self.marks.add(mark.name)


@pytest.mark.parametrize(
    ("by", "always", "in_ci"),
    [({}, [0, 4, 8], [0, 1, 4, 6, 8, 11]), ({"by": values}, [0, 5, 10], [0, 5, 10, 3])],
)
def test_runs_of_thinned_tests(by: dict[str, Any], always: list[int], in_ci: list[int]) -> None:
    """Those of every run have no mark, those of CI are full, and the rest is nightly."""
    mark = pytest.mark.thinned(4, **by).mark
    rows = product(range(3), range(4))
    items: list[Any] = [
        Marked(
            nodeid=f"m::f[{row}]", originalname="f", mark=mark, marks=set(),
            callspec=SimpleNamespace(params={"a": row[0], "b": row[1]}),
        )
        for row in rows
    ]  # fmt: skip
    thin(items)
    assert [at for at, item in enumerate(items) if not item.marks] == sorted(always)
    assert [at for at, item in enumerate(items) if "nightly" not in item.marks] == sorted(in_ci)
    assert all("full" in item.marks for item in items if item.marks)
