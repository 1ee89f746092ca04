"""Progress of long work in a run's log: percent, bytes, rate."""

from __future__ import annotations

import logging
from time import monotonic

from statelake.pipelines.engine import spark_ui
from statelake.pipelines.shown import bytes_text

SECONDS = 5.0


class LoggedProgress:
    """Logs progress every few seconds and at the end of the work, and the address of Spark's UI.

    Called with (done, total).

    Args:
        log: The log.
        what: The name of the work, at the beginning of a line.
        of_bytes: Whether (done, total) are bytes, and not parts.
    """

    def __init__(self, log: logging.Logger, what: str, *, of_bytes: bool = False) -> None:
        self.log = log
        self.what = what
        self.of_bytes = of_bytes
        self.spark = ""  # the address of its UI, once it was logged
        self.began = self.logged = monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Log how far the work is, at most once in `SECONDS`."""
        if not self.spark and (address := spark_ui()):
            self.spark = address
            self.log.info("%s: Spark shows its jobs at %s", self.what, address)
        now = monotonic()
        if done < total and now - self.logged < SECONDS:
            return
        self.logged = now
        line = f"{self.what}: {done / max(1, total):.0%}, {done:,} of {total:,} parts"
        if self.of_bytes:
            rate = done / max(now - self.began, 1e-3)
            line = (
                f"{self.what}: {done / max(1, total):.0%}, about {bytes_text(done)} of"
                f" {bytes_text(total)}, {bytes_text(rate)}/s"
            )
            if done < total:
                line += f", {(total - done) / max(rate, 1):,.0f} s left"
        self.log.info(line)
