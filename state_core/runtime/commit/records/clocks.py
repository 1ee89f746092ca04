"""The default clocks."""

from __future__ import annotations

import time


def now_millis() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def now_nanos() -> int:
    """Return nanoseconds since 1970."""
    return time.time_ns()
