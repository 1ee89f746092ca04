"""Exactly once: killed with -9 at every step and called again, all is as if never killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.attempts import Heartbeat
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.run_log import RunLog
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.runtime import STEPS, RunOptions, run_job
from statelake.state_core.errors import ConflictError, StateError
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows, state_rows
from tests.support.jobs.committed_runs import assert_alike
from tests.support.steps import EndError, as_process

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, signal, sys
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from tests.support.jobs.committed_runs import assert_alike
from tests.support.jobs.alert_orders import alerts_module

lake, data, step, parallelism, *commit_to = sys.argv[1:]

def observe(done):
    if done == step:
        os.kill(os.getpid(), signal.SIGKILL)

job = alerts_module().alerts(data)
options = RunOptions(
    parallelism=int(parallelism), engine="local", observe=observe, commit_to=commit_to
)
run_job(job, Catalog(lake), options)
"""
alerts = alerts_module()


def killed_at(
    step: str, lake: Path, data: Path, parallelism: int, commit_to: Sequence[str] = ()
) -> None:
    """Run the job in a process that does not live beyond a step."""
    command = [sys.executable, "-c", PROGRAM, str(lake), str(data), step, str(parallelism)]
    command += commit_to
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def check(lake: Path, data: Path, runs: int, work: Path) -> None:
    """Output and state agree, and are those of an uninterrupted run."""
    wanted, spent = expected(range(runs))
    rows = sink_rows(data / "alerts")
    found = sorted((row["customer"], row["rule"], row["spent"]) for row in rows)
    assert found == sorted(wanted)
    assert state_rows(Catalog(lake), runs, "alert", "spent", work) == spent
    told = sorted(sink_row["alerts"] for sink_row in sink_rows(data / "alerts-by-rule"))
    counts = [
        sum(rule == name for _, rule, _ in wanted) for name in {effect[1] for effect in wanted}
    ]
    assert told == sorted(n for count in counts for n in range(1, count + 1))


@pytest.mark.full
def test_every_step_twice_over(tmp_path: Path) -> None:
    """A run a step; each is killed there, and at another step while it is made good.

    Restored from each backend alone, the state is the same.
    """
    lake, data = tmp_path / "lake", tmp_path / "data"
    commit_to = (f"blob={tmp_path / 'blobs'}", f"changelog={tmp_path / 'changelogs'}")
    sources = ("lake", "blob", "changelog")
    for part, step in enumerate(STEPS[:-1]):
        feed(data, part)
        killed_at(step, lake, data, 1 + part % 3, commit_to)
        if part % 2 and STEPS.index(step) < STEPS.index("prepared"):
            killed_at("processed", lake, data, 2, commit_to)
        options = RunOptions(engine="local", commit_to=commit_to, restore_from=sources[part % 3])
        done = run_job(alerts.alerts(str(data)), Catalog(lake), options)
        assert (done.run, done.resumed) == (part + 1, True)
        assert_alike(alerts.alerts(str(data)), lake, commit_to)
    check(lake, data, len(STEPS) - 1, tmp_path)


class TestTakenForDead:
    """A run in a container that gives no sign of life is taken over by another container."""

    @pytest.fixture(autouse=True)
    def suspended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """This is the container; others wait a moment for a sign."""
        monkeypatch.setenv("STATELAKE_LEASE", "0.2")
        monkeypatch.setattr(Heartbeat, "_beat", lambda _: None)
        as_process(monkeypatch, os.getpid(), "this container")

    def elsewhere(self, lake: Path, data: Path, *, step: str = "", parts: int = 0) -> None:
        """Run the job in another container: to its end, or until it ends at a step."""

        def observe(done: str) -> None:
            if done == step:
                raise EndError

        with pytest.MonkeyPatch.context() as patch:
            as_process(patch, os.getpid(), f"another container, {step}")
            if step:  # killed: it takes its lock with it no more
                patch.setattr(RunLog, "unlock", lambda *_: None)
            job, options = (
                alerts.alerts(str(data)),
                RunOptions(parallelism=3, engine="local", observe=observe),
            )
            with suppress(EndError):
                run_job(job, Catalog(lake), options)
            for part in range(1, 1 + parts):
                feed(data, part)
                run_job(job, Catalog(lake), options)

    @pytest.mark.thinned(8)
    @pytest.mark.parametrize("parts", [0, pytest.param(3, marks=pytest.mark.full)])
    @pytest.mark.parametrize("step", STEPS[:-1])
    def test_it_commits_nothing_any_more(self, step: str, parts: int, tmp_path: Path) -> None:
        """The other's run counts, and those behind it; the one that lives after all is told."""
        lake, data = tmp_path / "lake", tmp_path / "data"
        feed(data, 0)

        def observe(done: str) -> None:
            if done == step:
                self.elsewhere(lake, data, parts=parts)

        options = RunOptions(parallelism=2, engine="local", observe=observe)
        with pytest.raises(ConflictError, match="taken for dead"):
            run_job(alerts.alerts(str(data)), Catalog(lake), options)
        check(lake, data, 1 + parts, tmp_path)
        feed(data, 1 + parts)
        assert run_job(alerts.alerts(str(data)), Catalog(lake)).run == 2 + parts
        check(lake, data, 2 + parts, tmp_path)
        assert_no_attempt_is_left(lake, data)

    @pytest.mark.thinned(8)
    @pytest.mark.parametrize("parts", [0, pytest.param(3, marks=pytest.mark.full)])
    @pytest.mark.parametrize("step", STEPS[:-1])
    def test_nothing_hangs_on_looking_whether_it_was_taken_over(
        self, step: str, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As that may come between a look and what is done behind it."""
        monkeypatch.setattr(RunLog, "require", lambda *_: None)
        lake, data = tmp_path / "lake", tmp_path / "data"
        feed(data, 0)

        def observe(done: str) -> None:
            if done == step:
                self.elsewhere(lake, data, parts=parts)

        options = RunOptions(parallelism=2, engine="local", observe=observe)
        with suppress(StateError):
            run_job(alerts.alerts(str(data)), Catalog(lake), options)
            assert step not in {"restored", "processed", "state written"}
        check(lake, data, 1 + parts, tmp_path)
        feed(data, 1 + parts)
        assert run_job(alerts.alerts(str(data)), Catalog(lake)).run == 2 + parts
        check(lake, data, 2 + parts, tmp_path)

    @pytest.mark.thinned(4)
    @pytest.mark.parametrize("second", ["restored", "processed", "prepared"])
    @pytest.mark.parametrize("first", ["planned", "processed", "state written"])
    def test_of_many_that_are_taken_over_one_counts(
        self, first: str, second: str, tmp_path: Path
    ) -> None:
        """Two lost their containers; a third goes on; the first lives after all."""
        lake, data = tmp_path / "lake", tmp_path / "data"
        feed(data, 0)

        def observe(done: str) -> None:
            if done == first:
                self.elsewhere(lake, data, step=second)
                self.elsewhere(lake, data, step="output committed")

        options = RunOptions(parallelism=2, engine="local", observe=observe)
        with pytest.raises(ConflictError, match="taken for dead"):
            run_job(alerts.alerts(str(data)), Catalog(lake), options)
        assert run_job(alerts.alerts(str(data)), Catalog(lake)).run == 1
        check(lake, data, 1, tmp_path)

    @pytest.mark.thinned(2)
    @pytest.mark.parametrize("step", STEPS[:4])
    def test_an_erasure_comes_between(self, step: str, tmp_path: Path) -> None:
        """What was worked out from rows of before is not committed behind it."""
        lake, data = tmp_path / "lake", tmp_path / "data"
        feed(data, 0)
        run_job(alerts.alerts(str(data)), Catalog(lake))
        feed(data, 1)
        ((key, *_),) = list(state_rows(Catalog(lake), 1, "alert", "spent", tmp_path).items())[:1]

        def observe(done: str) -> None:
            if done == step:
                with pytest.MonkeyPatch.context() as patch:
                    as_process(patch, os.getpid(), "another container")
                    erase(Catalog(lake), ErasureRequest("gdpr-1", [str(key)]))

        options = RunOptions(parallelism=2, engine="local", observe=observe)
        with pytest.raises(ConflictError, match="taken for dead"):
            run_job(alerts.alerts(str(data)), Catalog(lake), options)
        assert [record.snapshot_id for record in Catalog(lake).summaries("alerts")] == [
            "run-00000001"
        ]

    def test_one_that_gives_signs_of_life_is_waited_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other is refused, and says who runs the job."""
        monkeypatch.undo()
        monkeypatch.setenv("STATELAKE_LEASE", "1")
        as_process(monkeypatch, os.getpid(), "this container")
        lake, data = tmp_path / "lake", tmp_path / "data"
        feed(data, 0)

        def observe(done: str) -> None:
            if done == "processed":
                with pytest.raises(ConflictError, match="is run by process"):
                    self.elsewhere(lake, data)

        options = RunOptions(parallelism=2, engine="local", observe=observe)
        assert run_job(alerts.alerts(str(data)), Catalog(lake), options).run == 1
        check(lake, data, 1, tmp_path)


def assert_no_attempt_is_left(lake: Path, data: Path) -> None:
    """Assert that each run has the files of one attempt in a sink, and no sign of life is left."""
    for sink in ("alerts", "alerts-by-rule"):
        folders = [path.name for path in (data / sink / "_data").iterdir()]
        runs = [name.rpartition("-attempt-")[0] for name in folders]
        assert len(runs) == len(set(runs))
    assert not list(lake.glob("*/_runs/running*"))


@pytest.mark.thinned(5)
@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_killed_many_times_over(seed: int, tmp_path: Path) -> None:
    """Six runs, each killed up to three times at random steps, at random parallelisms."""
    chance = random.Random(seed)
    lake, data = tmp_path / "lake", tmp_path / "data"
    for part in range(6):
        feed(data, part)
        least = 0
        for _ in range(chance.randrange(4)):
            step = chance.choice(STEPS[least:-1])
            killed_at(step, lake, data, chance.randrange(1, 5))
            # what is prepared is not done again: its earlier steps do not come any more
            least = STEPS.index("output committed") if step in STEPS[4:] else 1
        options = RunOptions(parallelism=chance.randrange(1, 5), engine="local")
        assert run_job(alerts.alerts(str(data)), Catalog(lake), options).run == part + 1
    check(lake, data, 6, tmp_path)
