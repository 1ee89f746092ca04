"""Counters of what commits and restores cost."""

from __future__ import annotations

from collections import Counter
from threading import Lock

__all__ = ["CommitMeasures"]


class CommitMeasures:
    """Counters by name, from several threads.

    ===================  ==========================================================
    `commits`            that began
    `commits_skipped`    because one was under way, for no longer than the delay
    `commits_blocked`    that held up processing, since the one before was late
    `snapshot_ms`        while nothing was processed
    `upload_ms`          beside processing
    `bytes_sent`         to blob stores
    `bytes_saved`        that were there already
    `files_sent`         the same in files
    `files_saved`        the same in files
    `bytes_restored`     from blob stores
    `changes_restored`   from changelogs
    ===================  ==========================================================
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name] += amount

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def as_dict(self) -> dict[str, int]:
        """Return all counters."""
        with self._lock:
            return dict(self._counts)
