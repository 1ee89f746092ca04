"""Engines: the local one maps in order and tells of progress; the choice depends on size."""

from __future__ import annotations

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.engine import AUTO_LOCAL_BYTES, LocalEngine, choose_engine
from state_core.errors import MissingExtraError


class TaskError(Exception):
    """What a task fails with."""


def double(value: int) -> int:
    """A slice."""
    return 2 * value


def fail_at_three(value: int) -> int:
    """A slice that fails for one task."""
    if value == 3:
        raise TaskError
    return value


threads = pytest.mark.parametrize("engine", [LocalEngine(1), LocalEngine(2), LocalEngine(16)])


@threads
@given(st.lists(st.integers(), max_size=20))
def test_results_are_in_order(engine: LocalEngine, tasks: list[int]) -> None:
    """As many as tasks, each where its task was."""
    assert engine.map(double, tasks) == [2 * task for task in tasks]


@threads
@pytest.mark.parametrize("count", [0, 1, 7])
def test_progress(engine: LocalEngine, count: int) -> None:
    """It is told after each task how many of how many are done."""
    told: list[tuple[int, int]] = []
    engine.map(double, range(count), lambda done, total: told.append((done, total)))
    assert told == [(done, count) for done in range(1, count + 1)]


@threads
@pytest.mark.parametrize("tasks", [[3], [1, 3], list(range(50))])
def test_the_first_error_ends_it(engine: LocalEngine, tasks: list[int]) -> None:
    """The task's own error comes out, and no task runs on behind it."""
    before = threading.active_count()
    with pytest.raises(TaskError):
        engine.map(fail_at_three, tasks)
    assert threading.active_count() == before


def test_an_error_cancels_what_has_not_begun() -> None:
    """Tasks behind a failed one are not started once it is known."""
    done: list[int] = []

    def work(value: int) -> None:
        if value == 0:
            raise TaskError
        done.append(value)

    with pytest.raises(TaskError):
        LocalEngine(1).map(work, range(1000))
    assert done == []


def test_threads_work_together() -> None:
    """Two tasks that wait for each other end."""
    meeting = threading.Barrier(2, timeout=60)
    assert sorted(LocalEngine(2).map(lambda _: meeting.wait(), range(2))) == [0, 1]


@pytest.mark.parametrize(
    ("wanted", "size"), [("local", 1 << 50), ("auto", 0), ("auto", AUTO_LOCAL_BYTES - 1)]
)
def test_small_is_local(wanted: str, size: int) -> None:
    """What is small, or asked for so, runs here."""
    assert isinstance(choose_engine(wanted, size), LocalEngine)


def test_large_is_local_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large runs here, too, where Spark is not installed; asked for, it is an error."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [module for module in sys.modules if module.startswith("pipelines.spark")]:
        monkeypatch.delitem(sys.modules, name)
    assert isinstance(choose_engine("auto", AUTO_LOCAL_BYTES), LocalEngine)
    with pytest.raises(MissingExtraError, match=r"needs PySpark, .*'statelake\[spark\]'"):
        choose_engine("spark", 0)


@pytest.mark.parametrize(("wanted", "size"), [("spark", 0), ("auto", AUTO_LOCAL_BYTES)])
def test_large_is_spark(wanted: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large, or asked for so, runs on Spark; no session is started to find that out."""
    made: list[object] = []

    class Stub:
        """In the place of the module that would import pyspark."""

        @staticmethod
        def SparkEngine() -> str:  # noqa: N802 - the class's name
            made.append(True)
            return "spark"

    monkeypatch.setitem(sys.modules, "pipelines.spark.engine", Stub)
    assert choose_engine(wanted, size) == "spark"
    assert made == [True]
