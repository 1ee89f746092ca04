"""Threads that read or copy for a command, which does not wait for them when it is interrupted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

__all__ = ["Workers"]


class Workers(ThreadPoolExecutor):
    """A thread pool whose `with` block waits for its threads, except after Ctrl-C or SIGTERM.

    After an error, tasks that have not begun are cancelled. Tasks must not write files that the
    command deletes when it fails: they may still run then.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = kind is not None and not issubclass(kind, Exception)
        self.shutdown(wait=not ended, cancel_futures=kind is not None)
