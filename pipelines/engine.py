"""Where slices run: in this process, or on Spark. The slices themselves do not know.

A slice is a plain function of a picklable task. An engine maps it over tasks and gives back
the results in order; progress is told as they come in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

from state_core.extras import has_extra

__all__ = ["Engine", "LocalEngine", "Progress", "choose_engine"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]

AUTO_LOCAL_BYTES = 256 << 20


class Engine(Protocol):
    """Maps slices."""

    name: str

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        progress: Progress | None = None,
    ) -> list[Result]:
        """The function of every task, in order.

        Args:
            function: A module-level function.
            tasks: What to call it with; each must be picklable.
            progress: Called with (done, total) after each task.
        """


class LocalEngine:
    """A pool of threads in this process: the kernels hold no lock that would be in the way."""

    name = "local"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        progress: Progress | None = None,
    ) -> list[Result]:
        """The function of every task, in order; the first error ends it."""
        if len(tasks) == 1 or self.threads == 1:
            return list(_told(map(function, tasks), len(tasks), progress))
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    if progress is not None:
                        progress(done, len(tasks))
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            return [future.result() for future in futures]


def _told(results: Iterable[Result], total: int, progress: Progress | None) -> Iterable[Result]:
    for done, result in enumerate(results, 1):
        if progress is not None:
            progress(done, total)
        yield result


def choose_engine(wanted: str, size: int) -> Engine:
    """The engine of that name; `auto` is Spark for what is large, where Spark is installed.

    Args:
        wanted: `auto`, `spark` or `local`.
        size: Bytes of state to go through.

    Raises:
        MissingExtraError: Spark is wanted, and not installed.
    """
    small = size < AUTO_LOCAL_BYTES or not has_extra("spark")
    if wanted == "local" or (wanted == "auto" and small):
        return LocalEngine()
    from pipelines.spark.engine import SparkEngine  # noqa: PLC0415 - a JVM only where it is wanted

    return SparkEngine()
