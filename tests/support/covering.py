"""Few of many cases, in which everything occurs that any of them has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from tests.support.savepoints.golden_cases import GoldenCase

FACTS = ("case", "backend", "format", "compression", "parallelism", "max_parallelism", "flink")


def covering(cases: Sequence[Collection[Hashable]]) -> list[int]:
    """The numbers of few cases that have all that any case has: first those with the most.

    Of cases with as much that is new, the one is taken whose other things were taken least: so
    what has no part in a choice is still spread evenly.
    """
    missing = {thing for case in cases for thing in case}
    taken: Counter[Hashable] = Counter()
    chosen: list[int] = []
    while missing:
        best = max(
            range(len(cases)),
            key=lambda at: (
                sum(thing in missing for thing in cases[at]),
                -sum(taken[thing] for thing in cases[at]),
                -at,
            ),
        )
        chosen.append(best)
        missing.difference_update(cases[best])
        taken.update(cases[best])
    return chosen


def values(test: str, parameters: Mapping[str, Any]) -> list[Hashable]:
    """The test and the value of each of its parameters: also each fact of a golden snapshot."""
    found: list[Hashable] = [("test", test)]
    for name, value in parameters.items():
        found.append((name, repr(value)))
        if isinstance(value, GoldenCase):
            found += _facts(value)
    return found


def pairs(test: str, parameters: Mapping[str, Any]) -> list[Hashable]:
    """Every two of them; of a golden snapshot the facts, and the snapshot itself once."""
    of_dimensions = {
        name: value for name, value in parameters.items() if not isinstance(value, GoldenCase)
    }
    goldens = [value for value in parameters.values() if isinstance(value, GoldenCase)]
    found = values(test, of_dimensions) + [fact for golden in goldens for fact in _facts(golden)]
    return [*combinations(found, 2), *goldens]


@cache
def _facts(golden: GoldenCase) -> list[Hashable]:
    facts = golden.facts
    return [(fact, facts[fact]) for fact in FACTS]


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark tests that are `thinned(n)`: each n-th is in every run, then each fourth `full`.

    Where they are thinned `by` a function, those are `full` that cover what it names of a test and
    its parameters: of all tests of the module that are thinned so. All others are `nightly`, too.
    """
    groups: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("thinned")
        if mark is not None and hasattr(item, "callspec"):
            by, test = mark.kwargs.get("by"), item.nodeid.partition("[")[0]
            groups[test.partition("::")[0] if by else test, mark.args[0], by].append(item)
    for (_, each, by), group in groups.items():
        if by is None:
            always = [*range(0, len(group), each)]
            others = [at for at in range(len(group)) if at % each]
            in_ci = always + others[::4]
        else:
            tests = [item.originalname for item in group]
            in_ci = covering([by(item.originalname, item.callspec.params) for item in group])
            left = {test: -(-count // each) for test, count in Counter(tests).items()}
            always = []
            for at in in_ci:
                left[tests[at]] -= 1
                if left[tests[at]] >= 0:
                    always.append(at)
        for at, item in enumerate(group):
            if at not in always:
                item.add_marker(pytest.mark.full)
            if at not in in_ci:
                item.add_marker(pytest.mark.nightly)
