"""The settings of commits, with their names in a job's configuration of Samza."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of one store.

    Attributes:
        backup: `stores.<store>.backup.factories`: the backends of every commit.
        restore: `stores.<store>.restore.factory`: the backend of a restore; None for any.
    """

    backup: tuple[str, ...] = ()
    restore: str | None = None


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """The settings of a job.

    Attributes:
        max_commit_delay: `task.max.commit.delay`: the time that a commit may take before the next
            one, and processing, wait for it.
        commit_timeout: `task.commit.timeout.ms`: the time limit of that wait.
        stores: The settings of each store.
    """

    max_commit_delay: int = MINUTE_MS
    commit_timeout: int = 30 * MINUTE_MS
    stores: Mapping[str, StoreSettings] = field(default_factory=dict)

    def backed_up_by(self, factory: str) -> list[str]:
        """Return the stores that a backend backs up."""
        return [name for name, settings in self.stores.items() if factory in settings.backup]

    @property
    def factories(self) -> list[str]:
        """Every backend that backs up a store."""
        return list(dict.fromkeys(name for store in self.stores.values() for name in store.backup))
