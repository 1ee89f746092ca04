"""The decisions of a commit and a restore, as pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from statelake.state_core.runtime.commit.records.records import (
    CheckpointId,
    CheckpointV2,
)


class CommitDecision(Enum):
    """The decision on a requested commit."""

    START = "start"
    SKIP = "skip"
    BLOCK = "block"


class RestoreSource(Enum):
    """The source of a restore."""

    LOCAL = "the local checkpoint"
    MARKER = "a marker of the record"
    BOOTSTRAP = "the whole changelog"
    EMPTY = "nothing: it starts empty"
    LOST = "nowhere: only backends that are not configured have it"


@dataclass(frozen=True, slots=True)
class RestoreDecision:
    """The decision how to restore one store.

    Attributes:
        source: The source.
        factory: The backend of the restore; None if it is not needed.
        error: A message to log as an ERROR; empty if the restore is as configured.
    """

    source: RestoreSource
    factory: str | None = None
    error: str = ""


def decide_commit(started: int | None, now: int, max_delay: int) -> CommitDecision:
    """Decide whether a commit begins, is skipped, or waits with processing for the previous one.

    Args:
        started: The start of the unfinished commit, in milliseconds; None without one.
        now: The time in milliseconds.
        max_delay: `task.max.commit.delay`.
    """
    if started is None:
        return CommitDecision.START
    return CommitDecision.SKIP if now - started <= max_delay else CommitDecision.BLOCK


def decide_restore(
    store: str,
    checkpoint: CheckpointV2 | None,
    local: Collection[CheckpointId],
    wanted: str | None,
    known: Sequence[str],
    bootstrap: str | None,
    *,
    exact: bool = True,
) -> RestoreDecision:
    """Decide how to restore a store to a checkpoint.

    Args:
        store: The store's name.
        checkpoint: The last checkpoint in the log.
        local: The ids of the store's complete local checkpoints. An id that is not in the log
            belongs to a commit that was interrupted, and never counts.
        wanted: The backend of `stores.<store>.restore.factory`; None without a backup.
        known: The available backends, in the order of preference.
        bootstrap: The backend with the store's changelog; None without one.
        exact: Whether the wanted backend restores a checkpoint exactly; if not, local ones are not
            used.
    """
    if checkpoint is not None and exact and checkpoint.id in local:
        return RestoreDecision(RestoreSource.LOCAL, wanted)
    markers = {} if checkpoint is None else checkpoint.markers
    having = [factory for factory, stores in markers.items() if store in stores]
    if wanted in having and wanted in known:
        return RestoreDecision(RestoreSource.MARKER, wanted)
    missing = f"the last checkpoint has no marker of {wanted} for store {store!r}"
    for factory in known:
        if factory in having:
            return RestoreDecision(
                RestoreSource.MARKER, factory, f"{missing}: it is restored from {factory}"
            )
    if having:
        return RestoreDecision(
            RestoreSource.LOST, None, f"{missing}, but of {', '.join(sorted(having))}"
        )
    error = "" if checkpoint is None or wanted is None else missing
    if bootstrap is not None:
        if error:
            error += ": it is made of the whole changelog"
        return RestoreDecision(RestoreSource.BOOTSTRAP, bootstrap, error)
    if error:
        error += ": it starts empty"
    return RestoreDecision(RestoreSource.EMPTY, None, error)
