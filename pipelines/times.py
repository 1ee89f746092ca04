"""Measure the time of an operation: by steps, by phases of slices, and the slowest slice.

A slice marks its phases by `phase`, which costs nothing outside of a measurement. A `Stopwatch`
maps slices and adds up their phases.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from statelake.pipelines.engine import Engine, Progress, map_largest_first

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Times:
    """The times of an operation, in seconds.

    Attributes:
        seconds: The time from its beginning to its end.
        steps: The time of each step, which follow one another.
        work: The sum of the slices' times by phase; slices run at the same time.
        slices: The number of slices.
        workers: The number of threads, or Python processes of executors, that ran them.
        slowest: The seconds of the slowest slice.
        slowest_slice: The name of that slice.
    """

    seconds: float
    steps: dict[str, float]
    work: dict[str, float]
    slices: int
    workers: int
    slowest: float
    slowest_slice: str

    def __str__(self) -> str:
        """Return a line for people."""
        line = f"{self.seconds:.1f} s: {_listed(self.steps)}"
        if not self.slices:
            return line
        slices = f"{self.slices} slices on {self.workers} workers"
        if self.slices == 1:
            return f"{line}; {_listed(self.work)} in one slice"
        return (
            f"{line}; {_listed(self.work)} in {slices},"
            f" the slowest {self.slowest:.1f} s ({self.slowest_slice})"
        )


def _listed(seconds: dict[str, float]) -> str:
    return ", ".join(f"{what} {took:.1f} s" for what, took in seconds.items())


@dataclass
class _SliceTimes:
    """The times of one slice by phase, and its worker."""

    worker: tuple[str, int, int]
    seconds: float = 0
    work: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class _Running(threading.local):
    """The slice that this thread runs, its phase, and since when."""

    times: _SliceTimes | None = None
    phase: str = ""
    since: float = 0


_running = _Running()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Count the time as that of a phase of the running slice, except for inner phases."""
    if _running.times is None:
        yield
        return
    before = _enter(name)
    try:
        yield
    finally:
        _enter(before)


def _enter(name: str) -> str:
    """Begin a phase, and return the one that ended."""
    now = time.perf_counter()
    before = _running.phase
    if _running.times is not None and before:
        _running.times.work[before] += now - _running.since
    _running.phase, _running.since = name, now
    return before


def phase_of_each(name: str, items: Iterable[Item]) -> Iterator[Item]:
    """Count the time of creating the items as that of a phase."""
    making = iter(items)
    while True:
        with phase(name):
            try:
                item = next(making)
            except StopIteration:
                return
        yield item


def _timed(function: Callable[[Task], Result], rest: str, task: Task) -> tuple[Result, _SliceTimes]:
    """Return the function's result of a task, and its times by phase; `rest` outside of phases."""
    times = _SliceTimes((socket.gethostname(), os.getpid(), threading.get_ident()))
    began = time.perf_counter()
    _running.times = times
    try:
        with phase(rest):
            result = function(task)
    finally:
        _running.times, _running.phase = None, ""
    times.seconds = time.perf_counter() - began
    return result, times


class Stopwatch:
    """Measures an operation from now on."""

    def __init__(self) -> None:
        self._began = self._lapped = time.perf_counter()
        self._steps: defaultdict[str, float] = defaultdict(float)
        self._slices: list[tuple[str, _SliceTimes]] = []

    def end_step(self, name: str) -> None:
        """Count the time since the step before as that of a step of the operation."""
        now = time.perf_counter()
        self._steps[name] += now - self._lapped
        self._lapped = now

    def run_timed(
        self,
        engine: Engine,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        sizes: Sequence[int],
        progress: Progress | None = None,
        *,
        rest: str = "other",
        name: Callable[[Task], str] = str,
    ) -> list[Result]:
        """Run `map_largest_first` as the step `slices`; the time before it is `planned`.

        Args:
            engine: The engine that runs tasks.
            function: A module-level function.
            tasks: The tasks.
            sizes: The bytes of each.
            progress: Called with (done, total) in bytes after each task.
            rest: The name of a task's time outside of its phases.
            name: Returns the name of a task, for the slowest one.
        """
        self.end_step("planned")
        timed = partial(_timed, function, rest)
        outcomes = map_largest_first(engine, timed, tasks, sizes, progress)
        self.end_step("slices")
        slowest = max(range(len(tasks)), key=lambda at: outcomes[at][1].seconds, default=0)
        self._slices += [
            (name(task) if at == slowest else "", times)
            for at, (task, (_, times)) in enumerate(zip(tasks, outcomes, strict=True))
        ]
        return [result for result, _ in outcomes]

    def times(self) -> Times:
        """Return the times until now; the time after the slices is `committed`."""
        self.end_step("committed")
        work: defaultdict[str, float] = defaultdict(float)
        for _, times in self._slices:
            for what, seconds in times.work.items():
                work[what] += seconds
        slowest, times = max(
            self._slices, key=lambda timed: timed[1].seconds, default=("", _SliceTimes(("", 0, 0)))
        )
        return Times(
            self._lapped - self._began,
            dict(self._steps),
            dict(work),
            len(self._slices),
            len({times.worker for _, times in self._slices}),
            times.seconds,
            slowest,
        )
