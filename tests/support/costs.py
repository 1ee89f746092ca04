"""What modules of tests cost: the dearest begin first, and a run of several workers says its own.

`tests/costs.json` has the seconds of each module, without its `full` tests and of these alone;
`make costs` writes it. Modules of one server stay with one worker; each other module is a piece of
work of its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

COSTS = Path(__file__).parents[1] / "costs.json"
# fixtures of what all tests of a piece share: a server, a session of Spark; some are marks, too
SERVERS = {
    "oracle": ("flink", "old_flink"),
    "spark": ("spark",),
    "s3": ("s3",),
    "kafka": ("kafka",),
    "hdfs": ("hdfs",),
    "samza": (),
    "live_flink": ("live_flink",),
}
SHORT, FULL = "short", "full"
LEAST_SECONDS = 0.5
DEAREST = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which costs are kept."""
    parser.addoption(
        "--keep-costs", action="store_true", help="write what modules cost to tests/costs.json"
    )


@pytest.hookimpl(trylast=True)  # what is not selected is gone
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort a worker's pieces: the dearest first. A test of a server has its name in its id."""
    if not hasattr(config, "workerinput"):
        return
    kept = _read()
    parts: dict[str, set[tuple[str, str]]] = defaultdict(set)
    servers = _servers(items)
    for item in items:
        module = _module(item.nodeid)
        if module in servers:
            item._id = NodeId.parse(f"{item.nodeid}@{servers[module]}")
        parts[_scope(item.nodeid)].add((module, _part(item.keywords)))
    cost = {
        scope: sum(kept.get(module, {}).get(part, 0.0) for module, part in found)
        for scope, found in parts.items()
    }
    items.sort(key=lambda item: (-cost[_scope(item.nodeid)], _scope(item.nodeid)))


def _servers(items: Iterable[pytest.Item]) -> dict[str, str]:
    """The server of each module that has one."""
    return {
        _module(item.nodeid): server
        for item in items
        for server, fixtures in SERVERS.items()
        if item.get_closest_marker(server)
        or not set(fixtures).isdisjoint(getattr(item, "fixturenames", ()))
    }


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/")


def _scope(nodeid: str) -> str:
    _, at, server = nodeid.rpartition("@")
    return server if at and server in SERVERS else _module(nodeid)


def _part(keywords: Iterable[str]) -> str:
    return FULL if "full" in keywords else SHORT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the servers of a piece with it: they would hold memory as long as the others run."""
    yield
    scope = _scope(item.nodeid)
    if nextitem is None or scope not in SERVERS or scope == _scope(nextitem.nodeid):
        return
    servers = {
        fixture
        for each in item.session.items
        if _scope(each.nodeid) == scope
        for name in chain.from_iterable(SERVERS.values())
        for fixture in each._fixtureinfo.name2fixturedefs.get(name, ())  # type: ignore[attr-defined]
    }
    for fixture in servers:
        fixture.finish(item._request)  # type: ignore[attr-defined]


class _Scheduling(LoadScopeScheduling):
    """Gives a worker piece after piece, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Schedule by what modules cost, and not by their number of tests."""
    if config.getvalue("dist") != "loadscope":
        return None
    config.option.loadscopereorder = False
    return _Scheduling(config, log)


class _Sums:
    """Sums what the tests of all workers take, and says it at the end."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what a test took, its fixtures among it."""
        self._seconds[_module(report.nodeid)][_part(report.keywords)] += report.duration

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Print the dearest modules, and keep the costs if that is wanted."""
        sums = {module: sum(parts.values()) for module, parts in self._seconds.items()}
        terminalreporter.section(f"{sum(sums.values()):.0f} s of all workers; the dearest modules")
        for module in sorted(sums, key=lambda module: -sums[module])[:DEAREST]:
            terminalreporter.line(f"{sums[module]:7.1f} s  {module}")
        if config.getoption("--keep-costs"):
            self._keep()

    def _keep(self) -> None:
        kept = _read()
        for module, parts in self._seconds.items():
            rounded = {part: round(seconds, 1) for part, seconds in parts.items()}
            kept[module] = {**kept.get(module, {}), **rounded}
        lines = [
            f"{json.dumps(module)}: {json.dumps(parts, sort_keys=True)}"
            for module, parts in sorted(kept.items())
            if sum(parts.values()) >= LEAST_SECONDS and (COSTS.parent / module).exists()
        ]
        COSTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _read() -> dict[str, dict[str, float]]:
    kept: dict[str, dict[str, float]] = json.loads(COSTS.read_text("utf-8"))
    return kept


def pytest_configure(config: pytest.Config) -> None:
    """Sum costs in the process that the workers report to."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Sums())
