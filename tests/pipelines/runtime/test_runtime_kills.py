"""Exactly once: killed with -9 at every step and called again, all is as if never killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.lake.api import Lake
from pipelines.runtime import STEPS, RunOptions, run_job
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows, state_rows

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, signal, sys
from pipelines.lake.api import Lake
from pipelines.runtime import RunOptions, run_job
from tests.support.jobs.alert_orders import alerts_module

lake, data, step, parallelism = sys.argv[1:]

def observe(done):
    if done == step:
        os.kill(os.getpid(), signal.SIGKILL)

job = alerts_module().alerts(data)
run_job(job, Lake(lake), RunOptions(int(parallelism), engine="local", observe=observe))
"""
alerts = alerts_module()


def killed_at(step: str, lake: Path, data: Path, parallelism: int) -> None:
    """Run the job in a process that does not live beyond a step."""
    command = [sys.executable, "-c", PROGRAM, str(lake), str(data), step, str(parallelism)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def check(lake: Path, data: Path, runs: int, work: Path) -> None:
    """Output and state agree, and are those of an uninterrupted run."""
    wanted, spent = expected(range(runs))
    rows = sink_rows(data / "alerts")
    found = sorted((row["customer"], row["rule"], row["spent"]) for row in rows)
    assert found == sorted(wanted)
    assert state_rows(Lake(lake), runs, "alert", "spent", work) == spent
    told = sorted(sink_row["alerts"] for sink_row in sink_rows(data / "alerts-by-rule"))
    counts = [
        sum(rule == name for _, rule, _ in wanted) for name in {effect[1] for effect in wanted}
    ]
    assert told == sorted(n for count in counts for n in range(1, count + 1))


@pytest.mark.full
def test_every_step_twice_over(tmp_path: Path) -> None:
    """A run a step; each is killed there, and at another step while it is made good."""
    lake, data = tmp_path / "lake", tmp_path / "data"
    for part, step in enumerate(STEPS[:-1]):
        feed(data, part)
        killed_at(step, lake, data, 1 + part % 3)
        if part % 2 and STEPS.index(step) < STEPS.index("prepared"):
            killed_at("processed", lake, data, 2)
        done = run_job(alerts.alerts(str(data)), Lake(lake), RunOptions(engine="local"))
        assert (done.run, done.resumed) == (part + 1, True)
    check(lake, data, len(STEPS) - 1, tmp_path)


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
        options = RunOptions(chance.randrange(1, 5), engine="local")
        assert run_job(alerts.alerts(str(data)), Lake(lake), options).run == part + 1
    check(lake, data, 6, tmp_path)
