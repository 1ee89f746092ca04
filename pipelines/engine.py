"""Engines that run slices, and where Spark is configured.

A slice is a plain function of a picklable task, whatever the engine. An engine maps it over tasks
and returns the results in order; progress is reported as they arrive.

The engine is chosen by Spark's configured master, not by size: on one machine Spark is slower than
this process at any size, as it has the same cores and the same kernels, and a JVM to start.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]

MASTER = "STATELAKE_MASTER"  # Spark's master, set by `--master`
SPARK_CONF = "STATELAKE_SPARK_CONF"  # settings of Spark's, KEY=VALUE, a line each
SPARK_PACK = "STATELAKE_SPARK_PACK"  # the archive for executors
_LOCAL = re.compile(r"local(\[.*\])?")
_SETTING = re.compile(r"\s*spark\.master[\s=:]+(\S+)\s*")


class Engine(Protocol):
    """Maps slices.

    Attributes:
        name: Its name.
        repeats: Whether a task may run more than once, even twice at once: one result counts, and
            files of the other runs are leftovers.
    """

    name: str
    repeats: bool

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        progress: Progress | None = None,
    ) -> list[Result]:
        """Return the function's result of every task, in order.

        Args:
            function: A module-level function.
            tasks: The tasks; each must be picklable.
            progress: Called with (done, total) after each task.
        """


class LocalEngine:
    """A pool of threads in this process: the kernels release Python's lock."""

    name = "local"
    repeats = False

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        progress: Progress | None = None,
    ) -> list[Result]:
        """Return the function's result of every task, in order; the first error ends it."""
        if len(tasks) == 1 or self.threads == 1:
            return list(_told(map(function, tasks), len(tasks), progress))
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(copy_context().run, function, task) for task in tasks]
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


def map_largest_first(
    engine: Engine,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    sizes: Sequence[int],
    progress: Progress | None = None,
) -> list[Result]:
    """Return the function's result of every task, in order; the largest tasks run first.

    Args:
        engine: The engine that runs tasks.
        function: A module-level function.
        tasks: The tasks.
        sizes: The bytes of each.
        progress: Called with (done, total) in bytes after each task.
    """
    order = sorted(range(len(tasks)), key=lambda index: -sizes[index])
    report = None
    if progress is not None:
        # not every engine reports which tasks have ended, but most end in the order of their start
        reached = [0, *accumulate(max(1, sizes[index]) for index in order)]
        report = partial(_told_in_bytes, progress, reached)
    results = engine.map(function, [tasks[index] for index in order], report)
    by_task = dict(zip(order, results, strict=True))
    return [by_task[index] for index in range(len(tasks))]


def _told_in_bytes(progress: Progress, reached: Sequence[int], done: int, _: int) -> None:
    progress(reached[done], reached[-1])


def cluster_configured() -> bool:
    """Return whether Spark is configured to run on more than this machine.

    That is the case with `SPARK_REMOTE`, in a process that `spark-submit` has started, with an
    active session on a cluster, and with a master that is not local.
    """
    remote = os.environ.get("SPARK_REMOTE", "")
    if remote:
        return _LOCAL.fullmatch(remote) is None
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    active = _active_context()
    master = spark_master() if active is None else str(active.master)
    return bool(master) and _LOCAL.fullmatch(master) is None


def spark_ui() -> str:
    """Return the URL of this process's Spark UI, while it runs; empty without one."""
    active = _active_context()
    return "" if active is None else str(active.uiWebUrl or "")


def _active_context() -> Any:
    """Return the Spark context of this process; None without one."""
    # PySpark is not imported here: without an import no session is active
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_active_spark_context", None)


def spark_master() -> str:
    """Return Spark's configured master; empty without one.

    It is the first one in `STATELAKE_MASTER`, `PYSPARK_SUBMIT_ARGS`, and `spark-defaults.conf` in
    `SPARK_CONF_DIR` or `SPARK_HOME`.
    """
    return os.environ.get(MASTER, "") or _submitted_master() or _default_master()


def _submitted_master() -> str:
    """Return the master in the options with which PySpark starts its JVM."""
    words: list[str] = []
    with suppress(ValueError):  # a quote is open: PySpark itself reports it
        words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    master = ""
    for option, value in pairwise([*words, ""]):
        if option == "--master":
            master = value
        elif option.startswith("--master="):
            master = option.partition("=")[2]
        elif option in {"--conf", "-c"} and not master and value.startswith("spark.master="):
            master = value.partition("=")[2]
    return master


def _default_master() -> str:
    """Return the master in Spark's own file of settings."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    if not folder:
        return ""
    try:
        lines = Path(folder, "spark-defaults.conf").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    settings = [match[1] for line in lines if (match := _SETTING.fullmatch(line))]
    return settings[-1] if settings else ""


def wait_for_threads(seconds: float) -> bool:
    """Wait for all other threads that Python would wait for, and return whether they have ended."""
    end = time.monotonic() + seconds
    this = threading.current_thread()
    others = [each for each in threading.enumerate() if each is not this and not each.daemon]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in others)
