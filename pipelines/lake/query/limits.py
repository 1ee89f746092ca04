"""The limits of a query's time and memory, and the watch that ends a query."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb

from statelake.state_core.errors import StateError

AGAIN = 0.05  # seconds: DuckDB forgets an interrupt that comes before its query
SECONDS, MOST_AT_ONCE, LEAST_MEMORY = 60.0, 4, 256 << 20
SPILLED = 8  # times the memory
# of a container, by version 2 and 1 of control groups
_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
Result = TypeVar("Result")


@dataclass(frozen=True)
class QueryLimits:
    """The limits of a query.

    Attributes:
        memory: The bytes of DuckDB's memory; None for its default, 80 % of the machine's.
        seconds: How long it may run; None without an end.
        at_once: The number of queries of a server that run at the same time.
    """

    memory: int | None = None
    seconds: float | None = None
    at_once: int = 1

    @classmethod
    def of_server(
        cls, memory: int | None = None, seconds: float = SECONDS, at_once: int | None = None
    ) -> QueryLimits:
        """Return those of a server: by default in proportion to the machine.

        Args:
            memory: As above; by default all queries together get a quarter of the machine's.
            seconds: As above.
            at_once: As above; by default one for each core, up to 4.
        """
        at_once = at_once or max(1, min(os.cpu_count() or 1, MOST_AT_ONCE))
        share = max(LEAST_MEMORY, machine_memory() // 4 // at_once)
        return cls(memory or share, seconds, at_once)


def machine_memory() -> int:
    """Return the bytes of the machine's memory, or of its container's if these are fewer."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER:
        with suppress(OSError, ValueError):  # no control groups, or `max`
            least = min(least, int(Path(path).read_text("ascii")))
    return least


def interruptible(work: Callable[[], Result], end: Callable[[], None]) -> Result:
    """Return what work returns; the main thread, which waits for it, hears signals meanwhile.

    Args:
        work: Runs in a thread of its own, as no signal is heard within DuckDB.
        end: Called if a signal ends the wait: makes `work` end.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        try:
            return future.result()
        finally:
            if not future.done():
                end()


class QueryWatch:
    """Ends what a connection runs: after a time, or when it is called; until it is stopped.

    Args:
        connection: The connection.
        seconds: The time; None without one.
        too_long: The error if it takes longer.

    Attributes:
        error: Why queries are ended; None while they may run.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, seconds: float | None, too_long: StateError
    ) -> None:
        self.error: StateError | None = None
        self._connection = connection
        self._seconds = seconds
        self._too_long = too_long
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        if seconds is not None:
            self._start()

    def end(self, error: StateError) -> None:
        """End the running query with an error, and each later one."""
        self.error = self.error or error
        self._wake.set()
        self._start()

    def stop(self) -> None:
        """Stop watching, so that the connection may be closed."""
        with self._starting:
            self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._watch, daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        if not self._wake.wait(self._seconds):
            self.error = self._too_long
        while not self._stopped.is_set():
            self._connection.interrupt()
            self._stopped.wait(AGAIN)
