"""`make demo-live`: all that it promises, and that nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# it waits for a whole minute of the clock, and starts six runs of Dagster
pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.nightly]

ROOT = Path(__file__).parents[3]
SAID = (
    "cars_take_savepoint, asked for by cars_nightly_flink_savepoint: SUCCESS",
    "Tuple4<Integer, Integer, Double, Long>",
    "Rescale to 3 subtasks and 300 key groups", "counting_rescale_job, asked for by us: SUCCESS",
    "runs, and has completed a checkpoint", "rescaled", "none lost, none twice",
    "An upgrade to a JAR", "counting_rescale_job, asked for by us: FAILURE", "confirm old",
    "put back", "StateMigrationException", "none lost, none twice", "2 jobs", "done in",
)  # fmt: skip
COMMAND = (sys.executable, "-m", "tests.integration.live.demo_live", "--dir")


def left_behind(directory: Path) -> list[str]:
    """The processes that are about a directory: by their arguments or their environment."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or is somebody else's
        if bytes(directory) in about and int(process.name) != os.getpid():
            processes.append(about.decode("utf-8", "replace")[:200])
    return processes


def test_the_whole_way(tmp_path: Path) -> None:
    """Each step says what it did, in order; no count says that anything was lost."""
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "demo")], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "160"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    at = 0
    for text in SAID:
        assert text in done.stdout[at:], (text, done.stdout)
        at = done.stdout.index(text, at) + len(text)
    counts = [line.split() for line in done.stdout.splitlines() if line.rstrip().endswith("true")]
    assert len(counts) >= 3 + 5
    assert " false" not in done.stdout
    assert [row[0] for row in counts][-1] == "put-back"
    assert left_behind(tmp_path / "demo") == []


def test_an_interrupt_ends_all_that_it_started(tmp_path: Path) -> None:
    """Be Flink up or not."""
    with subprocess.Popen(
        [*COMMAND, str(tmp_path / "demo")], cwd=ROOT, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        assert any("defs.yaml" in line for line in demo.stdout)
        time.sleep(5)
        assert len(left_behind(tmp_path / "demo")) > 1
        demo.send_signal(signal.SIGINT)
        _, output = demo.communicate(timeout=120)
    assert demo.returncode == 1
    assert "interrupted" in output
    assert left_behind(tmp_path / "demo") == []
