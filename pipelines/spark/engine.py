"""Run slices as Spark tasks, one task a slice, and return their results to the driver.

Tasks are rows of a DataFrame, so that a session of Spark Connect runs them like any other session.
Users' code (serializers, decoders) that the driver has loaded is sent with the function, and each
Python worker loads it before its first task.
"""

from __future__ import annotations

import pickle
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from statelake.pipelines.engine import Progress
from statelake.pipelines.spark.session import open_session
from statelake.state_core.errors import StateError
from statelake.state_core.files.confinement import written_is_synced
from statelake.state_core.serializers.framework.plugins import (
    Plugin,
    loaded_plugins,
    restore_plugins,
)

Task = TypeVar("Task")
Result = TypeVar("Result")

POLL_SECONDS = 0.2
NUMBER, TASK, OUTCOME = "number", "task", "outcome"
OUTCOMES = f"{NUMBER} bigint, {OUTCOME} binary"
_LIBRARIES = (
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("platstdlib"),
    f"{sys.base_prefix}/lib/python{sys.version_info.major}{sys.version_info.minor}.zip",
)
_PACKAGES = {"site-packages", "dist-packages"}
# Spark's errors about executors that can't run statelake's tasks, and the remedy for each
_NOT_READY = (
    (
        re.compile(r"PYTHON_VERSION_MISMATCH|different version in worker|is of Python \d"),
        "the executors have another version of Python than this process",
        "run it with the version that the executors have, or install this one on them",
    ),
    (
        re.compile(r"No module named '?[\w.]+'?|this needs \w+, which is not installed"),
        "the executors lack a module of Python's that statelake needs",
        "install statelake on them, or send it along: `statelake spark pack`, then --spark-pack",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "the executors can't start Python",
        "give its path with --spark-conf spark.pyspark.python=...",
    ),
)


class SparkEngine:
    """Maps slices over the executors of a session.

    Args:
        session: The session; the active one, or a new one, by default.
    """

    name = "spark"
    repeats = True

    def __init__(self, session: SparkSession | None = None) -> None:
        self.session = session or open_session(slices=True)

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        progress: Progress | None = None,
    ) -> list[Result]:
        """Return the function's result of every task, in order.

        Raises:
            StateError: A task raised it; or executors can't run statelake's tasks.
        """
        if not tasks:
            return []
        # as bytes: a task's values may be of a module that the worker has yet to load
        packed = [cloudpickle.dumps(task) for task in tasks]  # type: ignore[no-untyped-call]
        rows = pa.table({NUMBER: range(len(tasks)), TASK: pa.array(packed, pa.binary())})
        frame = self.session.createDataFrame(rows).repartitionByRange(len(tasks), NUMBER)
        guarded = _Guarded(function, loaded_plugins())
        with ExitStack() as stack:
            if progress is not None:
                stack.enter_context(self._reported(len(tasks), progress))
            try:
                outcomes = frame.mapInArrow(guarded, OUTCOMES).collect()
            except (PySparkException, Py4JError) as error:
                refusal = _not_ready(error)
                if refusal is None:
                    raise
                raise refusal from error
        results: dict[int, Result] = {}
        for number, packed_outcome in outcomes:
            outcome = pickle.loads(packed_outcome)  # noqa: S301 - of our own executors
            if isinstance(outcome, StateError):
                raise outcome
            results[number] = outcome
        if progress is not None:
            progress(len(tasks), len(tasks))
        return [results[number] for number in range(len(tasks))]

    @contextmanager
    def _reported(self, total: int, progress: Progress) -> Iterator[None]:
        """Call `progress` when a task ends."""
        if not hasattr(self.session, "sparkContext"):
            with self._reported_by_connect(total, progress):
                yield
            return
        ended = threading.Event()
        arguments = (total, progress, ended)
        threading.Thread(target=self._report, args=arguments, daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    @contextmanager
    def _reported_by_connect(self, total: int, progress: Progress) -> Iterator[None]:
        def handle(stages: Any, **_: Any) -> None:
            ended = sum(stage.num_completed_tasks for stage in stages or ())
            progress(min(ended, total), total)

        session: Any = self.session  # the class of Spark Connect's session
        session.registerProgressHandler(handle)
        try:
            yield
        finally:
            session.removeProgressHandler(handle)

    def _report(self, total: int, progress: Progress, ended: threading.Event) -> None:
        tracker = self.session.sparkContext.statusTracker()
        while not ended.wait(POLL_SECONDS):
            finished = 0
            for job in tracker.getActiveJobsIds():
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    stage_info = tracker.getStageInfo(stage)
                    # the first stage only distributes the tasks
                    if stage_info and stage_info.numTasks == total:
                        finished = max(finished, stage_info.numCompletedTasks)
            progress(min(finished, total), total)


def _not_ready(error: Exception) -> StateError | None:
    """Return the error of executors that can't run statelake's tasks; None for other errors."""
    message = str(error)
    for pattern, problem, remedy in _NOT_READY:
        match = pattern.search(message)
        if match:
            return StateError(f"{problem} ({match[0]})", remedy=remedy)
    return None


def _is_installed(place: str) -> bool:
    """Return whether a place in `sys.path` is Python's library, or its site-packages."""
    return place.startswith(_LIBRARIES) or not _PACKAGES.isdisjoint(re.split(r"[\\/]", place))


class _Guarded(Generic[Task, Result]):
    """Calls the function, and returns statelake's errors as results, with file and offset."""

    def __init__(self, function: Callable[[Task], Result], plugins: tuple[Plugin, ...]) -> None:
        self.function = function
        self.plugins = plugins
        # workers also find modules of the directory in which a command was called; packages
        # installed here are left out, as a worker may have them in another version
        self.path = tuple(place for place in sys.path if not _is_installed(place))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.path += [place for place in self.path if place not in sys.path]
        for batch in batches:
            numbers, tasks = batch.column(NUMBER), batch.column(TASK)
            for number, task in zip(numbers.to_pylist(), tasks.to_pylist(), strict=True):
                outcome = cloudpickle.dumps(self._outcome(task))  # type: ignore[no-untyped-call]
                yield pa.record_batch(
                    {
                        NUMBER: pa.array([number], pa.int64()),
                        OUTCOME: pa.array([outcome], pa.binary()),
                    }
                )

    def _outcome(self, task: bytes) -> Result | StateError:
        try:
            restore_plugins(self.plugins)
            with written_is_synced():
                return self.function(pickle.loads(task))  # noqa: S301 - the driver's own
        except StateError as error:
            return error
