"""Where slices run: in this process, or on Spark. The slices themselves do not know.

A slice is a plain function of a picklable task. An engine maps it over tasks and gives back
the results in order; progress is told as they come in.

What runs is decided by where Spark is told to run, not by size: on one machine Spark is slower than
this process at any size, as it has the same cores and the same kernels, and a JVM to start.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statelake.state_core.extras import has_extra

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]

MASTER = "STATELAKE_MASTER"  # where Spark is to run: what `--master` sets
SPARK_CONF = "STATELAKE_SPARK_CONF"  # settings of Spark's, KEY=VALUE, a line each
SPARK_PACK = "STATELAKE_SPARK_PACK"  # the archive that executors are sent
_LOCAL = re.compile(r"local(\[.*\])?")
_SETTING = re.compile(r"\s*spark\.master[\s=:]+(\S+)\s*")


class Engine(Protocol):
    """Maps slices.

    Attributes:
        name: Its name.
        repeats: Whether a task may run more than once, even twice at once: one result counts, and
            files of the other runs are nobody's.
    """

    name: str
    repeats: bool

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
    repeats = False

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


def map_largest_first(
    engine: Engine,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    sizes: Sequence[int],
    progress: Progress | None = None,
) -> list[Result]:
    """The function of every task, in order, begun with the largest, so that none is left for last.

    Args:
        engine: Where tasks run.
        function: A module-level function.
        tasks: What to call it with.
        sizes: The bytes of each.
        progress: Called with (done, total) in bytes after each task.
    """
    order = sorted(range(len(tasks)), key=lambda index: -sizes[index])
    told = None
    if progress is not None:
        # which tasks have ended is not known everywhere, but most end as they began
        reached = [0, *accumulate(max(1, sizes[index]) for index in order)]
        told = partial(_told_in_bytes, progress, reached)
    results = engine.map(function, [tasks[index] for index in order], told)
    by_task = dict(zip(order, results, strict=True))
    return [by_task[index] for index in range(len(tasks))]


def _told_in_bytes(progress: Progress, reached: Sequence[int], done: int, _: int) -> None:
    progress(reached[done], reached[-1])


def choose_engine(wanted: Engine | str) -> Engine:
    """The engine of that name; `auto` is Spark where that is told to run on a cluster.

    Args:
        wanted: `auto`, `spark`, `local`, or an engine, which is taken as it is.

    Raises:
        MissingExtraError: Spark is wanted, and not installed.
    """
    if not isinstance(wanted, str):
        return wanted
    if wanted == "local" or (
        wanted == "auto" and not (cluster_configured() and has_extra("spark"))
    ):
        return LocalEngine()
    from statelake.pipelines.spark.engine import SparkEngine  # noqa: PLC0415 - a JVM only where it is wanted

    return SparkEngine()


def cluster_configured() -> bool:
    """Whether Spark is told to run on more than this machine.

    It is by `SPARK_REMOTE`, by `spark-submit`, which has started this process then, by the session
    that is active in it, and by a master that is not local.
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
    """Where the interface of this process's Spark is, while it runs; empty if there is none."""
    active = _active_context()
    return "" if active is None else str(active.uiWebUrl or "")


def _active_context() -> Any:
    """The Spark context of this process; None if there is none."""
    # not imported to be asked: where nothing has imported it, no session is active
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_active_spark_context", None)


def spark_master() -> str:
    """The master that Spark is told to run on; empty if it is told none.

    The first that there is of `STATELAKE_MASTER`, `PYSPARK_SUBMIT_ARGS`, and `spark-defaults.conf`
    in `SPARK_CONF_DIR` or `SPARK_HOME`.
    """
    return os.environ.get(MASTER, "") or _submitted_master() or _default_master()


def _submitted_master() -> str:
    """The master in the options that PySpark starts its JVM with."""
    words: list[str] = []
    with suppress(ValueError):  # a quote is open: PySpark itself will say so
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
    """The master in Spark's own file of settings."""
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
