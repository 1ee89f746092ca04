"""What runs the cases: each limit is one, and how a call ended is what really happened."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.adversary.runner import MEMORY, Runner

pytestmark = pytest.mark.full

PROBES = "tests.adversary.probes"
GIB = 1 << 30


def test_a_call_says_how_it_ended(runner: Runner, tmp_path: Path) -> None:
    """Its exit code, and both of its outputs."""
    ended = runner.run((5, "a", "b"), tmp_path, entry=f"{PROBES}:print_words")
    assert (ended.code, ended.out, ended.err, ended.stopped) == (5, "5 a b", "beside", "")


def test_memory_is_limited_where_it_is_asked_for(runner: Runner, tmp_path: Path) -> None:
    """A single allocation beyond the limit fails, though nobody touched it."""
    ended = runner.run((2 * GIB,), tmp_path, entry=f"{PROBES}:ask_for")
    assert ended.code > 0
    assert "Unable to allocate 2.00 GiB" in ended.err


def test_memory_is_limited_where_it_is_used(runner: Runner, tmp_path: Path) -> None:
    """Whoever has more than the limit is killed, and what it had is told."""
    ended = runner.run((2 * GIB,), tmp_path, entry=f"{PROBES}:allocate")
    assert ended.stopped == "memory"
    # two counters of the kernel's, which are some pages apart
    assert MEMORY - (1 << 20) < ended.peak_bytes < 2 * GIB
    assert "stopped for memory" in str(ended)


def test_memory_below_the_limit_is_measured(runner: Runner, tmp_path: Path) -> None:
    """What a call had at most is known to some MiB."""
    idle = runner.run((0,), tmp_path, entry=f"{PROBES}:print_words")
    ended = runner.run((GIB // 4,), tmp_path, entry=f"{PROBES}:allocate")
    assert (ended.code, ended.stopped) == (0, "")
    assert GIB // 4 <= ended.peak_bytes - idle.peak_bytes + (16 << 20) <= GIB // 3


def test_time_is_limited(runner: Runner, tmp_path: Path) -> None:
    """Whoever takes longer is killed, and that is told."""
    ended = runner.run((30,), tmp_path, entry=f"{PROBES}:sleep", seconds=0.3)
    assert ended.stopped == "time"
    assert 0.3 <= ended.seconds < 3


def test_a_call_that_a_signal_ended(runner: Runner, tmp_path: Path) -> None:
    """Has its number, and the next call goes on as ever."""
    assert runner.run((), tmp_path, entry=f"{PROBES}:panic").code == -6
    assert runner.run((0,), tmp_path, entry=f"{PROBES}:print_words").code == 0


def test_nothing_is_left_running(runner: Runner, tmp_path: Path) -> None:
    """What a call started ends with it."""
    ended = runner.run((60,), tmp_path, entry=f"{PROBES}:leave_behind")
    status = Path(f"/proc/{ended.out}/stat")
    for _ in range(100):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    pytest.fail(f"process {ended.out} is still there")


def test_no_file_gets_too_large(runner: Runner, tmp_path: Path) -> None:
    """A case can't fill the disk."""
    ended = runner.run((2 * GIB,), tmp_path, entry=f"{PROBES}:fill_the_disk")
    assert ended.code != 0
    assert (tmp_path / "filled").stat().st_size == 0
