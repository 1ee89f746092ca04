"""A later Flink goes on from the savepoint of an earlier one, with the results of no stop at all.

All queries that both versions keep alike run in a few jobs. Each reads the first half of its tables
in the old version and stops with a savepoint; that is upgraded for the plan that the new version
compiles of the same queries, and the new job reads the other half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import statelake as sl
from statelake.state_core.plans.versions import OLD_PLAN
from tests.integration.flink.sql_jobs import SqlFlink
from tests.integration.flink.sql_versions import (
    CHANGED,
    QUERIES,
    VERSIONS,
    Statements,
    compiles,
    is_changed,
    write_rows,
)

pytestmark = [pytest.mark.flink, pytest.mark.full]
# a savepoint of Flink 1 has hashes alone: the uids of the tests' sources
UIDS = [f"{number}_{name}" for number in range(400) for name in ("numbers", "rows")]
KEYED = ("Keyed", "Upserted")  # sinks of a primary key, whose rows take the place of others
MOST = 8  # queries in a job
OLD, NEW = VERSIONS[0], VERSIONS[-1]


@pytest.fixture
def flinks(tmp_path: Path) -> Iterator[dict[str, SqlFlink]]:
    """Each version of Flink, started when asked."""
    with ExitStack() as stack:

        class Started(dict[str, SqlFlink]):
            def __missing__(self, version: str) -> SqlFlink:
                self[version] = stack.enter_context(SqlFlink(version, tmp_path / version))
                return self[version]

        yield Started()


def jobs(names: Iterable[str]) -> list[list[str]]:
    """Return queries, those of the same settings together, as many as a cluster has memory for."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        found.setdefault(Statements.of([name], NEW).settings, []).append(name)
    return [names[at : at + MOST] for names in found.values() for at in range(0, len(names), MOST)]


def halves(plan: Mapping[str, Any], rows: Path) -> list[dict[str, tuple[int, int]]]:
    """Return the first half of the rows of the tables of a plan, the other one, and all of them."""
    sources = [node["scanTableSource"] for node in plan["nodes"] if "scanTableSource" in node]
    names = sorted({each["table"]["identifier"].split(".")[-1].strip("`") for each in sources})
    sizes = {name: len((rows / name).read_text().splitlines()) for name in names}
    return [
        {name: (0, size // 2) for name, size in sizes.items()},
        {name: (size // 2, size) for name, size in sizes.items()},
        {name: (0, size) for name, size in sizes.items()},
    ]


def results(lines: Iterable[str]) -> dict[str, Counter[tuple[str, ...]]]:
    """Return what each sink has in the end: how often each row came, less how often it went."""
    found: dict[str, Counter[tuple[str, ...]]] = {}
    for line in lines:
        sink, kind, *values = line.split("|")
        count = found.setdefault(sink, Counter())
        if sink == "Keyed" and kind == "+U":
            for row in [row for row in count if row[0] == values[0]]:
                del count[row]
        count[tuple(values)] += 1 if kind[0] == "+" else -1
    return {
        sink: Counter({row: n for row, n in count.items() if n}) for sink, count in found.items()
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD, NEW),
        *(
            pytest.param(*pair, marks=pytest.mark.nightly)
            for pair in (("1.20.0", NEW), ("1.19.1", NEW), (OLD, "1.20.0"), *pairwise(VERSIONS))
        ),
    ],
)
def test_a_later_flink_has_the_results_of_no_stop_at_all(
    old: str, new: str, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """Of all queries that both keep alike; the verdict is that all state keeps."""
    kept = [
        name
        for name in QUERIES
        if compiles(name, old) and compiles(name, new) and not is_changed(name, old, new)
    ]
    for number, names in enumerate(jobs(kept)):
        plans = [
            flinks[version].compile(write_rows(Statements.of(names, version).sql, tmp_path))
            for version in (old, new)
        ]
        first, second, whole = halves(plans[1][1], tmp_path)
        taken, before = flinks[old].run(plans[0][0], first)
        made = sl.sql_upgrade(
            taken, tmp_path / f"upgraded-{number}", plans[0][0], plans[1][0], uids=UIDS
        )
        assert {each.fate for each in made.operators} == {"keeps"}, made
        assert made.made
        _, after = flinks[new].run(plans[1][0], second, tmp_path / f"upgraded-{number}")
        _, never = flinks[new].run(plans[1][0], whole)
        wanted = results(never)
        assert wanted
        assert results([*before, *after]) == wanted, names


@pytest.mark.parametrize("old", [OLD, pytest.param("1.20.0", marks=pytest.mark.nightly)])
def test_the_old_plan_goes_on_in_the_new_flink(
    old: str, flinks: dict[str, SqlFlink], tmp_path: Path
) -> None:
    """As we say of what the new version keeps otherwise: from the savepoint as it is."""
    for name in (name for name, change in CHANGED.items() if change.remedy == OLD_PLAN):
        sql = write_rows(Statements.of([name], old).sql, tmp_path)
        plan, content = flinks[old].compile(sql)
        first, second, whole = halves(content, tmp_path)
        taken, before = flinks[old].run(plan, first)
        _, after = flinks[NEW].run(plan, second, taken)
        _, never = flinks[NEW].run(plan, whole)
        assert results([*before, *after]) == results(never), name
