"""Results that come later, joined without a thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any, Protocol, TypeVar

__all__ = ["Pool", "all_of", "done", "mapped", "then", "wait_for"]

_T = TypeVar("_T")
_U = TypeVar("_U")


class Pool(Protocol):
    """Whoever runs functions later: a `ThreadPoolExecutor`, or a test that chooses when."""

    def submit(self, function: Callable[[], _T], /) -> Future[_T]:
        """Run a function at some time; its result or its error."""


def wait_for(future: Future[Any], seconds: float) -> None:
    """Wait for a result or an error, without taking it.

    Raises:
        TimeoutError: Neither came in time.
    """
    if wait([future], seconds).not_done:
        raise TimeoutError


def done(value: _T) -> Future[_T]:
    """A result that is there already."""
    made: Future[_T] = Future()
    made.set_result(value)
    return made


def all_of(futures: Iterable[Future[_T]]) -> Future[list[_T]]:
    """The results of all, in their order, when the last is there; or the first error of any.

    The error comes when all have ended: nothing runs on behind it.
    """
    waited = list(futures)
    joined: Future[list[_T]] = Future()
    left = len(waited)
    lock = Lock()

    def count(_: Future[_T]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        errors = [error for one in waited if (error := one.exception()) is not None]
        if errors:
            joined.set_exception(errors[0])
        else:
            joined.set_result([one.result() for one in waited])

    if not waited:
        return done([])
    for one in waited:
        one.add_done_callback(count)
    return joined


def mapped(future: Future[_T], function: Callable[[_T], _U]) -> Future[_U]:
    """What a function makes of a result, where the result is made: for what takes no time."""
    made: Future[_U] = Future()

    def follow(ended: Future[_T]) -> None:
        error = ended.exception()
        if error is not None:
            made.set_exception(error)
            return
        try:
            made.set_result(function(ended.result()))
        except Exception as problem:  # noqa: BLE001 - it is passed on
            made.set_exception(problem)

    future.add_done_callback(follow)
    return made


def then(pool: Pool, future: Future[_T], function: Callable[[_T], _U]) -> Future[_U]:
    """What a function makes of a result, on the pool, once it is there; errors pass by it."""
    made: Future[_U] = Future()

    def finish(ended: Future[_U]) -> None:
        error = ended.exception()
        if error is not None:
            made.set_exception(error)
        else:
            made.set_result(ended.result())

    def follow(ended: Future[_T]) -> None:
        error = ended.exception()
        if error is not None:
            made.set_exception(error)
            return
        try:
            pool.submit(lambda: function(ended.result())).add_done_callback(finish)
        except RuntimeError as problem:  # the pool was shut down meanwhile
            made.set_exception(problem)

    future.add_done_callback(follow)
    return made
