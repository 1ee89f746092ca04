"""Slices as Spark tasks: one task a slice, and their results back on the driver.

Code of users (serializers, decoders) that the driver loaded goes along with the function, and each
Python worker loads it before its first task.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from pipelines.engine import Progress
from pipelines.spark.session import open_session
from state_core.errors import StateError
from state_core.serializers.framework.plugins import Plugin, loaded_plugins, restore_plugins

__all__ = ["SparkEngine"]

Task = TypeVar("Task")
Result = TypeVar("Result")

POLL_SECONDS = 0.2


class SparkEngine:
    """Maps slices over the executors of a session.

    Args:
        session: The session; the active one, or a new one, by default.

    Raises:
        StateError: The session is one of Spark Connect.
    """

    name = "spark"

    def __init__(self, session: SparkSession | None = None) -> None:
        self.session = session or open_session()
        if not hasattr(self.session, "sparkContext"):
            raise StateError(
                "slices run as tasks of a SparkContext, and a session of Spark Connect"
                " (SPARK_REMOTE) has none",
                remedy="run it here with --engine local, or on the cluster with --master or"
                " spark-submit",
            )

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        progress: Progress | None = None,
    ) -> list[Result]:
        """The function of every task, in order.

        Raises:
            StateError: What a task raised, as it raised it.
        """
        if not tasks:
            return []
        context = self.session.sparkContext
        # as bytes: what a task holds may be of a module that the worker has yet to load
        packed = [
            (index, cloudpickle.dumps(task))  # type: ignore[no-untyped-call]
            for index, task in enumerate(tasks)
        ]
        slices = context.parallelize(packed, len(tasks))
        done = threading.Event()
        if progress is not None:
            threading.Thread(
                target=self._report, args=(len(tasks), progress, done), daemon=True
            ).start()
        try:
            outcomes = slices.mapPartitions(_Guarded(function, loaded_plugins())).collect()
        finally:
            done.set()
        found: dict[int, Result] = {}
        for index, outcome in outcomes:
            if isinstance(outcome, StateError):
                raise outcome
            found[index] = outcome
        if progress is not None:
            progress(len(tasks), len(tasks))
        return [found[index] for index in range(len(tasks))]

    def _report(self, total: int, progress: Progress, done: threading.Event) -> None:
        tracker = self.session.sparkContext.statusTracker()
        while not done.wait(POLL_SECONDS):
            finished = 0
            for job in tracker.getActiveJobsIds():
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    stage_info = tracker.getStageInfo(stage)
                    finished += stage_info.numCompletedTasks if stage_info else 0
            progress(min(finished, total), total)


class _Guarded(Generic[Task, Result]):
    """Calls the function, and returns our own errors as results: they name file and offset."""

    def __init__(self, function: Callable[[Task], Result], plugins: tuple[Plugin, ...]) -> None:
        self.function = function
        self.plugins = plugins
        # a module of the directory that a command was called in is found there by workers too
        self.path = tuple(sys.path)

    def __call__(
        self, tasks: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, Result | StateError]]:
        sys.path += [one for one in self.path if one not in sys.path]
        for index, task in tasks:
            try:
                restore_plugins(self.plugins)
                yield index, self.function(pickle.loads(task))  # noqa: S301 - the driver's own
            except StateError as error:  # noqa: PERF203 - each task has its own outcome
                yield index, error
