"""Engines that do what a cluster may: run tasks more than once, or work while others do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow.parquet as pq
import pytest

from statelake.pipelines.engine import LocalEngine, Progress

__all__ = ["Interrupted", "Noting", "Repeating"]


class _Lost(BaseException):
    """An executor that is gone."""


class Repeating:
    """An engine that runs each task twice, takes the second result, and loses a third run.

    Args:
        patch: Of pytest's.
        written: The method of a writer, as a class and a name, in which the third run is lost.

    Attributes:
        lost: How many were.
    """

    name = "repeating"
    repeats = True

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        written: tuple[type, str] = (pq.ParquetWriter, "write_table"),
    ) -> None:
        self.patch = patch
        self.written = written
        self.lost = 0

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], progress: Progress | None = None
    ) -> list[Any]:
        """The function of every task."""
        results = []
        for task in tasks:
            function(task)
            results.append(function(task))
            with self._losing(), suppress(_Lost):
                function(task)
        return results

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Lose whoever has begun a file, before there are rows in it."""

        def lost(*_: object, **__: object) -> None:
            self.lost += 1
            raise _Lost

        with self.patch.context() as patch:
            patch.setattr(*self.written, lost)
            yield


class Interrupted(LocalEngine):
    """An engine whose tasks may repeat, and before and after which something else happens.

    Args:
        before: Called before tasks are run.
        after: Called when they have run, or failed.
    """

    repeats = True

    def __init__(
        self, before: Callable[[], object] = bool, after: Callable[[], object] = bool
    ) -> None:
        super().__init__(1)
        self.before, self.after = before, after

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], progress: Progress | None = None
    ) -> list[Any]:
        """As `Engine.map`."""
        self.before()
        try:
            return super().map(function, tasks, progress)
        finally:
            self.after()


class Noting(LocalEngine):
    """The local engine, which knows the tasks that it had, and sends them as a cluster's would."""

    def __init__(self) -> None:
        super().__init__(2)
        self.tasks: list[Any] = []
        self.results: list[Any] = []

    def map(self, function: Any, tasks: Any, progress: Any = None) -> list[Any]:
        """As `Engine.map`."""
        self.tasks += tasks
        sent = pickle.loads(pickle.dumps((function, tasks)))  # noqa: S301 - ours
        results = super().map(*sent, progress)
        received: list[Any] = pickle.loads(pickle.dumps(results))  # noqa: S301 - ours
        self.results += [result for result, _ in received]
        return received

    def count(self, kind: type) -> int:
        """How many tasks of a kind there were."""
        return sum(isinstance(task, kind) for task in self.tasks)
