"""Futures, combined without a thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
_U = TypeVar("_U")


class Pool(Protocol):
    """Runs functions later: a `ThreadPoolExecutor`, or a test that controls the order."""

    def submit(self, function: Callable[[], _T], /) -> Future[_T]:
        """Run a function later, and return a future of its result."""


def wait_for(future: Future[Any], seconds: float) -> None:
    """Wait for a result or an error, without raising it.

    Raises:
        TimeoutError: The future did not end in time.
    """
    if wait([future], seconds).not_done:
        raise TimeoutError


def done(value: _T) -> Future[_T]:
    """Return a future with a result."""
    future: Future[_T] = Future()
    future.set_result(value)
    return future


def all_of(futures: Iterable[Future[_T]]) -> Future[list[_T]]:
    """Return a future of all results in order, or of the first error.

    An error is set when all have ended, so that nothing runs after it.
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
        errors = [error for future in waited if (error := future.exception()) is not None]
        if errors:
            joined.set_exception(errors[0])
        else:
            joined.set_result([future.result() for future in waited])

    if not waited:
        return done([])
    for future in waited:
        future.add_done_callback(count)
    return joined


def mapped(future: Future[_T], function: Callable[[_T], _U]) -> Future[_U]:
    """Return a future of a function of a result, called at once in the thread that sets it."""
    result: Future[_U] = Future()
    _follow(future, result, lambda value: result.set_result(function(value)))
    return result


def flattened(future: Future[Future[_T]]) -> Future[_T]:
    """Return a future of the result of a future."""
    result: Future[_T] = Future()
    _follow(future, result, lambda inner: _follow(inner, result, result.set_result))
    return result


def then(pool: Pool, future: Future[_T], function: Callable[[_T], _U]) -> Future[_U]:
    """Return a future of a function of a result, called on the pool; errors skip the function."""
    return flattened(mapped(future, lambda value: pool.submit(lambda: function(value))))


def _follow(future: Future[_T], result: Future[Any], step: Callable[[_T], None]) -> None:
    """Call a function with a result, and pass errors on to another future."""

    def follow(ended: Future[_T]) -> None:
        error = ended.exception()
        if error is None:
            try:
                step(ended.result())
            except Exception as problem:  # noqa: BLE001 - it is passed on
                error = problem
        if error is not None:
            result.set_exception(error)

    future.add_done_callback(follow)
