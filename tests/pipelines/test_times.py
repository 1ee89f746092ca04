"""Where time went: what slices say of themselves, added up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelake.pipelines.cli.commands import terminal
from statelake.pipelines.engine import LocalEngine
from statelake.pipelines.times import Stopwatch, phase, phase_of_each
from tests.support.command import run
from tests.support.savepoints.golden_cases import golden_cases

SAVEPOINT = golden_cases("kinds", form="canonical")[0].snapshot
LAKE = ("--job", "j", "--lake")


def work(milliseconds: int) -> int:
    """A slice that reads three times, and writes after each."""
    with phase("wrote"):
        for _ in phase_of_each("read", numbers()):
            time.sleep(milliseconds / 1000)
    return milliseconds


def numbers() -> Iterator[int]:
    """What takes its time to come."""
    for number in range(3):
        time.sleep(0.002)
        yield number


def refuse(_: int) -> int:
    """A slice that fails."""
    with phase("read"):
        raise ValueError("refused")


def test_phases_add_up_to_what_slices_took() -> None:
    """Each moment is of one phase: the innermost."""
    stopwatch = Stopwatch()
    results = stopwatch.run_timed(
        LocalEngine(1), work, [1, 5, 2], [1, 5, 2], rest="begun", name=str
    )
    times = stopwatch.times()
    assert results == [1, 5, 2]
    assert set(times.work) == {"begun", "read", "wrote"}
    assert times.work["read"] >= 9 * 0.002
    assert times.work["wrote"] >= 3 * 0.008
    assert sum(times.work.values()) <= times.steps["slices"]
    assert (times.slices, times.workers, times.slowest_slice) == (3, 1, "5")
    assert times.slowest >= times.work["wrote"] / 3
    assert sum(times.steps.values()) == pytest.approx(times.seconds)
    assert list(times.steps) == ["planned", "slices", "committed"]


def test_a_phase_of_no_slice_is_nowhere() -> None:
    """Code that says what it is at may run where nobody asks, as it may after a slice failed."""
    with pytest.raises(ValueError, match="refused"):
        Stopwatch().run_timed(LocalEngine(1), refuse, [1], [1])
    assert work(0) == 0
    stopwatch = Stopwatch()
    assert stopwatch.run_timed(LocalEngine(2), work, [], []) == []
    assert stopwatch.times().work == {}
    assert "slices on" not in str(stopwatch.times())


def test_commands_say_where_time_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As fields of JSON always, as a line where it was long."""
    lake = (*LAKE, str(tmp_path / "lake"))
    printed = run("import", str(SAVEPOINT), *lake, "--snapshot", "a", "--json").out
    times = json.loads(printed)["times"]
    assert {"read", "measured", "decoded", "wrote"} <= set(times["work"])
    assert times["slices"] > 0
    assert times["slowest_slice"].startswith("operator ")
    export = ("export", *lake, "--snapshot", "a", "--to")
    times = json.loads(run(*export, str(tmp_path / "b"), "--json").out)["times"]
    assert {"read", "encoded", "wrote"} <= set(times["work"])
    assert "where time went" not in run(*export, str(tmp_path / "c")).out
    monkeypatch.setattr(terminal, "LONG_SECONDS", 0)
    line = run(*export, str(tmp_path / "d"), "--max-parallelism", "100").out.splitlines()[-1]
    assert line.startswith("where time went: ")
    for what in ("planned", "slices", "committed", "read", "rehashed", "gathered", "the slowest"):
        assert what in line
