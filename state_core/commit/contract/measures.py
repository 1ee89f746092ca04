"""Counters of the cost of commits and restores."""

from __future__ import annotations

from collections import Counter
from threading import Lock


class CommitMeasures:
    """Counters by name, from several threads.

    ===================  ==========================================================
    `commits`            begun commits
    `commits_skipped`    commits skipped since one was running, for no longer than the delay
    `commits_blocked`    commits that blocked processing, since the previous one was late
    `snapshot_ms`        time of snapshots, while nothing was processed
    `upload_ms`          time of uploads, during processing
    `bytes_sent`         bytes uploaded to blob stores
    `bytes_saved`        bytes that existed already
    `files_sent`         files uploaded
    `files_saved`        files that existed already
    `bytes_restored`     bytes downloaded from blob stores
    `changes_restored`   changes read from changelogs
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
