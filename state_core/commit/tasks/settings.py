"""The settings of commits, by their names in a job's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from statelake.state_core.commit.records.records import (
    BLOB_STORE_FACTORY,
    CHANGELOG_FACTORY,
    SystemStreamPartition,
)
from statelake.state_core.errors import CommitError

SHORT_NAMES = {
    "blob_store": BLOB_STORE_FACTORY,
    "changelog": CHANGELOG_FACTORY,
}
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of one store.

    Attributes:
        backup: `stores.<store>.backup.factories`: the backends of every commit.
        restore: `stores.<store>.restore.factory`: the backend of a restore; by default the first of
            the backup backends.
        changelog: `stores.<store>.changelog`, as `system.stream`.
    """

    backup: tuple[str, ...] = ()
    restore: str | None = None
    changelog: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """The settings of a job.

    Attributes:
        commit_ms: `task.commit.ms`: the time from one commit to the next.
        max_commit_delay: `task.max.commit.delay`: the time that a commit may take before the next
            one, and processing, wait for it.
        commit_timeout: `task.commit.timeout.ms`: the time limit of that wait.
        read_versions: `checkpoint.read.versions`, the preferred one first.
        write_versions: `checkpoint.write.versions`, in the order of writing.
        stores: The settings of each store.
    """

    commit_ms: int = MINUTE_MS
    max_commit_delay: int = MINUTE_MS
    commit_timeout: int = 30 * MINUTE_MS
    read_versions: tuple[int, ...] = (2, 1)
    write_versions: tuple[int, ...] = (2,)
    stores: Mapping[str, StoreSettings] = field(default_factory=dict)

    @classmethod
    def parse(cls, config: Mapping[str, str], stores: Iterable[str]) -> CommitSettings:
        """Parse the settings of commits in a job's configuration, and ignore other settings.

        Args:
            config: The configuration: names and values.
            stores: The names of the job's stores.

        Raises:
            CommitError: A value is invalid.
        """
        reader, default = _Reader(config), cls()
        return cls(
            reader.number("task.commit.ms", default.commit_ms),
            reader.number("task.max.commit.delay", default.max_commit_delay),
            reader.number("task.commit.timeout.ms", default.commit_timeout),
            reader.numbers("checkpoint.read.versions", default.read_versions),
            reader.numbers("checkpoint.write.versions", default.write_versions),
            {store: reader.store(store) for store in stores},
        )

    def changelogs(self, partition: int) -> dict[str, SystemStreamPartition]:
        """Return the changelog of each store of a task.

        Args:
            partition: The task's partition, in every changelog.
        """
        return {
            name: SystemStreamPartition(*settings.changelog, partition)
            for name, settings in self.stores.items()
            if settings.changelog is not None
        }

    def backed_up_by(self, factory: str) -> list[str]:
        """Return the stores that a backend backs up."""
        return [name for name, settings in self.stores.items() if factory in settings.backup]

    @property
    def factories(self) -> list[str]:
        """Every backend that backs up a store."""
        return list(dict.fromkeys(name for store in self.stores.values() for name in store.backup))


@dataclass(frozen=True)
class _Reader:
    config: Mapping[str, str]

    def list(self, name: str) -> list[str]:
        """Return the parts of a value between commas."""
        return [part.strip() for part in self.config.get(name, "").split(",") if part.strip()]

    def number(self, name: str, default: int) -> int:
        """Return a whole number."""
        text = self.config.get(name, str(default))
        try:
            return int(text)
        except ValueError as error:
            raise CommitError(f"{name}={text!r} is no number") from error

    def numbers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return some whole numbers."""
        parts = self.list(name)
        if not all(part.isdecimal() for part in parts):
            raise CommitError(f"{name}={self.config[name]!r}: versions are numbers")
        return tuple(map(int, parts)) or default

    def store(self, store: str) -> StoreSettings:
        """Return the settings of a store."""
        prefix = f"stores.{store}"
        stream = self.config.get(f"{prefix}.changelog")
        changelog = None
        if stream is not None:
            system, separator, topic = stream.partition(".")
            if not separator or not system or not topic:
                raise CommitError(f"{prefix}.changelog={stream!r} is not system.stream")
            changelog = system, topic
        named = self.list(f"{prefix}.backup.factories") or self.list("stores.backup.factories")
        backup = [SHORT_NAMES.get(factory, factory) for factory in named]
        if not backup and changelog:
            backup = [CHANGELOG_FACTORY]
        if CHANGELOG_FACTORY in backup and changelog is None:
            raise CommitError(
                f"store {store!r} is backed up to a changelog, and has no changelog",
                remedy=f"set {prefix}.changelog to system.stream",
            )
        restore_factory = self.config.get(f"{prefix}.restore.factory")
        restore = (
            SHORT_NAMES.get(restore_factory, restore_factory)
            if restore_factory
            else next(iter(backup), None)
        )
        return StoreSettings(tuple(dict.fromkeys(backup)), restore, changelog)
