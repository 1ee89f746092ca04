"""Progress of long work in a run's log: percent, bytes, rate."""

from __future__ import annotations

import logging
from time import monotonic

from pipelines.engine import spark_ui
from pipelines.shown import bytes_text

__all__ = ["LoggedProgress"]

SECONDS = 5.0


class LoggedProgress:
    """Logs how far a piece of work is, every few seconds and when it is done; where Spark shows it.

    Called with (done, total) by what does the work.

    Args:
        log: Where to.
        what: What is done, as a line begins.
        size: The bytes of all of it; 0 if nobody knows.
    """

    def __init__(self, log: logging.Logger, what: str, size: int = 0) -> None:
        self.log = log
        self.what = what
        self.size = size
        self.spark = ""  # where its interface is, once that was told
        self.began = self.told = monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Log how far the work is, at most once in `SECONDS`."""
        if not self.spark and (address := spark_ui()):
            self.spark = address
            self.log.info("%s: Spark shows its jobs at %s", self.what, address)
        now = monotonic()
        if done < total and now - self.told < SECONDS:
            return
        self.told = now
        part = done / max(1, total)
        line = f"{self.what}: {part:.0%}, {done:,} of {total:,} parts"
        if self.size:
            reached = self.size * part
            rate = bytes_text(reached / max(now - self.began, 1e-3))
            line += f", about {bytes_text(reached)} of {bytes_text(self.size)}, {rate}/s"
        self.log.info(line)
