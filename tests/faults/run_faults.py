"""Runs of the example job that are killed or fail at a call, each judged against calm runs.

Each case is a second run that meets a fault, perhaps a second one while it is repeated, and a third
run. All state goes to the lake, a blob store and a changelog; the run is restored from each in
turn. Afterwards output and state are those of undisturbed runs, and each backend alone has them.
"""

from __future__ import annotations

import os
import random
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.state_core.errors import StateError
from tests.faults.playing import start
from tests.faults.shim import Calls, Fault
from tests.support.jobs.alert_orders import (
    EXAMPLE,
    alerts_module,
    expected,
    feed,
    sink_rows,
    state_rows,
)
from tests.support.jobs.committed_runs import assert_alike

__all__ = ["RunFaults"]

SOURCES = ("lake", "blob", "changelog")
KINDS = ("kill", "half", "term", "ENOSPC", "EIO", "full")
BACKENDS = ("blob=blobs", "changelog=changelogs")
DATA = "alerts-data"


class RunFaults:
    """A world after one run, of which each case is a copy.

    Args:
        directory: Where worlds are made.
        seed: Of what is chosen.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._chance = random.Random(seed)
        self._first = directory / "first"
        (self._first / "tmp").mkdir(parents=True)
        feed(self._first / DATA, 0)
        assert self._run(self._first, 0) == 0
        self._calm = {source: self._calls_of(number) for number, source in enumerate(SOURCES)}

    def __call__(self, count: int) -> Iterator[tuple[str, bool, str]]:
        """Yield each case, whether its fault struck, and what is wrong; nothing if all is well."""
        for number in range(count):
            source = number % len(SOURCES)
            kind = self._chance.choice(KINDS)
            at = self._chance.randrange(1, self._calm[SOURCES[source]] + 1)
            again = self._chance.choice((0, self._chance.randrange(1, at + 1)))
            case = f"run from {SOURCES[source]}: {kind} at {at}, then {again}"
            world = self._copy(f"case-{number}")
            feed(world / DATA, 1)
            try:
                struck = self._meet(world, source, Fault(kind, at)).hits > 0
                if again:
                    self._meet(world, source, Fault("kill", again))
                yield case, struck, self._judge(world, source)
            finally:
                shutil.rmtree(world)

    def _calls_of(self, source: int) -> int:
        world = self._copy("calm")
        feed(world / DATA, 1)
        calls = self._meet(world, source, None)
        problem = self._judge(world, source)
        assert not problem, problem
        shutil.rmtree(world)
        return calls.count

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._first, self._directory / name, symlinks=True))

    def _meet(self, world: Path, source: int, fault: Fault | None) -> Calls:
        calls = Calls()
        start(self._words(source), world, calls=calls, fault=fault).end()
        return calls

    def _run(self, world: Path, source: int) -> int:
        played = start(self._words(source), world).end()
        self._said = played.err
        return played.code

    def _words(self, source: int) -> tuple[str, ...]:
        backends = [word for backend in BACKENDS for word in ("--commit-to", backend)]
        return (
            "run", f"{EXAMPLE}:JOB", "--lake", "lake", "--engine", "local", *backends,
            "--restore-from", SOURCES[source],
        )  # fmt: skip

    def _judge(self, world: Path, source: int) -> str:
        """Complete the run, run once more, and return what is wrong; nothing if all is well."""
        for part in (1, 2):
            feed(world / DATA, part)
            if self._run(world, (source + part) % len(SOURCES)):
                return f"run {part + 1}: {self._said}"
        return _apart(world / "tmp" / "verdict", lambda: _difference(world))


def _difference(world: Path) -> str:
    """Return how a world differs from one after three calm runs; nothing if it does not."""
    data, lake = world / DATA, Catalog(world / "lake")
    rows = sink_rows(data / "alerts")
    told = sorted((row["customer"], row["rule"], row["spent"]) for row in rows)
    alerts, spent = expected(range(3))
    if told != sorted(alerts):
        return "the output is another"
    if state_rows(lake, 3, "alert", "spent", world / "tmp") != spent:
        return "the state is another"
    try:
        places = [backend.replace("=", f"={world}/") for backend in BACKENDS]
        assert_alike(alerts_module().alerts(str(data)), world / "lake", places)
    except (AssertionError, StateError) as error:
        return f"a backend has another state: {error}"
    return ""


def _apart(verdict: Path, judge: Callable[[], str]) -> str:
    """Judge in a process that is forked, as Delta's threads don't fork."""
    child = os.fork()
    if child == 0:
        try:
            verdict.write_text(judge(), "utf-8")
        except BaseException:  # noqa: BLE001 - it is the verdict
            verdict.write_text(traceback.format_exc(), "utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return verdict.read_text("utf-8")
