"""The places in which state is read: a few at once, in threads of their own.

What reads state may take long, so it waits for a place; pages that need none always answer. A query
ends when its time is over, when nobody waits for it any more, and when the server ends.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

import anyio
import anyio.to_thread

from statelake.pipelines.lake.query.limits import QueryLimits
from statelake.pipelines.lake.query.session import Session
from statelake.state_core.errors import StateError

WAITING = 8  # for each place
Result = TypeVar("Result")


class BusyError(StateError):
    """As many queries run, and wait, as may."""


class EndedError(StateError):
    """Nobody waits for the query any more."""


class QueryReader:
    """What reads state for one request.

    Attributes:
        at_end: Closed when the request is done with.
    """

    def __init__(self, threads: anyio.CapacityLimiter) -> None:
        self.at_end = ExitStack()
        self._threads = threads
        self._sessions: list[Session] = []
        self._changing = threading.Lock()
        self._error: StateError | None = None

    @contextmanager
    def holding(self, session: Session) -> Iterator[None]:
        """End a session's queries with the place."""
        with self._changing:
            self._sessions.append(session)
            if self._error is not None:
                session.end(self._error)
        try:
            yield
        finally:
            with self._changing:
                self._sessions.remove(session)

    def end(self, error: StateError) -> None:
        """End all its queries."""
        with self._changing:
            self._error = self._error or error
            for session in self._sessions:
                session.end(self._error)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what work returns, in a thread; if it is cancelled, its queries are ended."""
        done, results, errors = anyio.Event(), list[Result](), list[Exception]()

        def worked() -> None:
            try:
                results.append(work())
            except Exception as error:  # noqa: BLE001 - raised below: a group would wrap it
                errors.append(error)

        async def end_with_it() -> None:
            try:
                await done.wait()
            finally:
                if not done.is_set():
                    self.end(EndedError("nobody waits for the query"))

        async with anyio.create_task_group() as group:
            group.start_soon(end_with_it)
            await anyio.to_thread.run_sync(worked, limiter=self._threads)
            done.set()
        for error in errors:
            raise error
        return results[0]


PLACE: ContextVar[QueryReader | None] = ContextVar("place", default=None)


class QueryPool:
    """The places of a server.

    Args:
        limits: What queries may take.
    """

    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits
        self._free = anyio.CapacityLimiter(limits.at_once)
        self._threads = anyio.CapacityLimiter(math.inf)
        self._places: set[QueryReader] = set()
        self._error: StateError | None = None

    @property
    def running(self) -> int:
        """Return the number of places in use."""
        return len(self._places)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[QueryReader]:
        """Wait for a place, and hold it.

        Raises:
            BusyError: Others wait already, none got free in time, or the server ends.
        """
        place, took = QueryReader(self._threads), False
        if self._free.statistics().tasks_waiting < WAITING * self.limits.at_once:
            with anyio.move_on_after(self.limits.seconds):
                await self._free.acquire_on_behalf_of(place)
                took = True
        if not took:
            raise BusyError(
                f"{self.running} queries run, and others wait",
                remedy="try again, or let more run at once: --queries",
            )
        self._places.add(place)
        token = PLACE.set(place)
        try:
            if self._error is not None:
                raise self._error
            yield place
        finally:
            PLACE.reset(token)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(place.at_end.close, limiter=self._threads)
            self._places.remove(place)
            self._free.release_on_behalf_of(place)

    def end(self) -> None:
        """End all queries, since the server ends."""
        self._error = BusyError("the server ends", remedy="start it again")
        for place in self._places:
            place.end(self._error)
