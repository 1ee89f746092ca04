"""Threads that read or copy for a command: whoever is told to end does not wait for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

__all__ = ["Workers"]


class Workers(ThreadPoolExecutor):
    """Threads that are awaited at the end, but at Ctrl-C or SIGTERM.

    What they have not begun is dropped at an error. They must write nothing that whoever leaves
    takes back.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = kind is not None and not issubclass(kind, Exception)
        self.shutdown(wait=not ended, cancel_futures=kind is not None)
