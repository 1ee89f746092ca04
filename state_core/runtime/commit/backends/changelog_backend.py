"""The changelog backend: puts and deletes are appended at once; a commit flushes them.

`snapshot` flushes, while nothing is processed, and the marker is the offset of the last change, so
`upload` does nothing. `restore` applies the changes up to the marker, to an empty store.

Behind the marker there are changes of work that was never committed. They can't be cut off a log
such as Kafka's, so they are undone: when a backup begins, each of their keys is appended once more,
as it is in the restored store. So the log is equal to the store again, and the next marker is
right; also if the store was restored from another backend, as when a changelog is added to a store
that a blob store has (then every key that differs is appended).

A log has no way to refuse a second writer, such as a process that was taken for dead. A commit can
read back what it appended (`reads_back`): records of another one between its own fail it.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import closing

from statelake.state_core.errors import CommitError
from statelake.state_core.runtime.commit.backends.changelog import Change, Changelog, Changelogs
from statelake.state_core.runtime.commit.contract.futures import done
from statelake.state_core.runtime.commit.contract.interfaces import (
    StateBackendFactory,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)
from statelake.state_core.runtime.commit.records.records import (
    CHANGELOG_FACTORY,
    ChangelogMarker,
    Checkpoint,
    CheckpointId,
)
from statelake.state_core.runtime.commit.records.serdes import (
    changelog_markers,
    read_changelog_marker,
    upgrade,
    write_changelog_marker,
)
from statelake.state_core.runtime.commit.stores.local_disk import CHUNK

LOG = logging.getLogger(__name__)

COMPACT_EVERY = 1_000_000
CHANGES = 4096
_OFFSET = re.compile(r"\d{1,19}", re.ASCII)


def undoing(
    changes: Iterable[Change], content: Mapping[bytes, bytes | None]
) -> Iterable[tuple[bytes, bytes | None]]:
    """Return the changes that make a log equal to the content of a store.

    Args:
        changes: The changes that may differ from the store.
        content: The content of the store, for each key of the changes; other keys are appended if
            they have a value.
    """
    logged = {change.key: change.value for change in changes}
    return [
        (key, value)
        for key, value in sorted(content.items())
        if (key in logged and logged[key] != value) or (key not in logged and value is not None)
    ]


def _markers(context: TaskContext, checkpoint: Checkpoint | None) -> dict[str, ChangelogMarker]:
    if checkpoint is None:
        return {}
    markers = changelog_markers(upgrade(checkpoint, context.changelogs))
    for store, marker in markers.items():
        if marker.offset is not None and not _OFFSET.fullmatch(marker.offset):
            raise CommitError(
                f"{marker.offset!r:.100} is not an offset",
                place=f"task {context.task}, the changelog of store {store!r}",
                remedy="restore from another backend, or from an older checkpoint",
            )
    return markers


def _reaches(log: Changelog, marker: ChangelogMarker) -> bool:
    if marker.offset is None:
        return True
    newest = log.newest()
    return newest is not None and int(marker.offset) <= newest


class _Appended:
    """The changes that a task appends to a log, to be read back.

    Args:
        log: The log.
        newest: The offset of the last change before them; None without one.
    """

    def __init__(self, log: Changelog, newest: int | None) -> None:
        self._log = log
        self._next = 0 if newest is None else newest + 1
        self._count = self._checksum = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        """Append a change."""
        self._log.append(key, value)
        self._count += 1
        self._checksum = _checksum(self._checksum, key, value)

    def read_back(self, place: str) -> None:
        """Check that the log has exactly these changes since the last call.

        Raises:
            CommitError: It has others.
        """
        newest = self._log.newest()
        count = checksum = 0
        if newest is not None and newest >= self._next:
            for change in self._log.read(self._next, newest):
                count += 1
                checksum = _checksum(checksum, change.key, change.value)
        if (count, checksum) != (self._count, self._checksum):
            raise CommitError(
                f"another process has appended to the changelog: it has {count} changes since "
                f"offset {self._next}, and {self._count} are this task's",
                place=place,
                remedy="end the other process, and run again: what it appended is undone",
            )
        self._next = self._next if newest is None else newest + 1
        self._count = self._checksum = 0


def _checksum(before: int, key: bytes, value: bytes | None) -> int:
    head = b"%d %d " % (len(key), -1 if value is None else len(value))
    return zlib.crc32(value or b"", zlib.crc32(key, zlib.crc32(head, before)))


class _ChangelogBackup(TaskBackupManager):
    _backend: ChangelogBackend

    def _init(self, checkpoint: Checkpoint | None) -> None:
        self._logs: dict[str, Changelog] = {}
        self._appended: dict[str, _Appended] = {}
        self._compacted: dict[str, int] = {}
        markers = _markers(self.context, checkpoint)
        for name in self.stores:
            partition = self.context.changelogs[name]
            log = self._backend.changelogs.open(partition)
            self._logs[name] = self._resources.enter_context(closing(log))
            store = self.context.stores.open(name)
            marker = markers.get(name)
            content: dict[bytes, bytes | None]
            newest = log.newest()
            if marker and marker.changelog == partition and _reaches(log, marker):
                start = 0 if marker.offset is None else int(marker.offset) + 1
                changes = list(log.read(start, newest))
                content = {change.key: store.get(change.key) for change in changes}
            else:
                changes = list(log.read(0, newest))
                content = {change.key: None for change in changes}
                content.update(store.items())
            appended = _Appended(log, newest)
            append = appended.append if self._backend.reads_back else log.append
            for key, value in undoing(changes, content):
                append(key, value)
            log.flush()
            if self._backend.reads_back:
                self._appended[name] = appended
            self._compacted[name] = log.newest() or 0
            store.subscribe(append)

    def _snapshot(self, checkpoint: CheckpointId) -> dict[str, str]:
        markers = {}
        for name, log in self._logs.items():
            log.flush()
            if name in self._appended:
                place = f"{self.context.changelogs[name]}, task {self.context.task}"
                self._appended[name].read_back(place)
            newest = log.newest()
            offset = None if newest is None else str(newest)
            marker = ChangelogMarker(self.context.changelogs[name], offset)
            markers[name] = write_changelog_marker(marker)
        return markers

    def _upload(
        self, checkpoint: CheckpointId, markers: Mapping[str, str]
    ) -> Future[dict[str, str]]:
        return done(dict(markers))

    def _clean_up(self, checkpoint: CheckpointId, markers: Mapping[str, str]) -> Future[None]:
        ends = {name: read_changelog_marker(marker) for name, marker in markers.items()}
        due = {
            name: int(marker.offset)
            for name, marker in ends.items()
            if marker.offset is not None
            and marker.changelog == self.context.changelogs[name]
            and int(marker.offset) - self._compacted[name] >= self._backend.compact_every
        }

        def compact() -> None:
            for name, end in due.items():
                self._logs[name].compact(end)
                self._compacted[name] = end

        return self._later(compact) if due else done(None)


class _ChangelogRestore(TaskRestoreManager):
    _backend: ChangelogBackend

    def _init(self, checkpoint: Checkpoint | None) -> None:
        self._markers = _markers(self.context, checkpoint)
        self._logs: dict[str, Changelog] = {}
        self._aged = False
        lag = self._backend.changelogs.compaction_lag
        if checkpoint is not None and lag is not None:
            at = upgrade(checkpoint, self.context.changelogs).id.millis
            self._aged = (self.context.millis - at) * 10 > lag * 9
        for name in self.stores:
            marker = self._markers.get(name)
            partition = marker.changelog if marker else self.context.changelogs[name]
            log = self._backend.changelogs.open(partition)
            self._logs[name] = self._resources.enter_context(closing(log))
            if marker and not _reaches(log, marker):
                raise CommitError(
                    f"the changelog of store {name!r} ends at {log.newest()}, before the "
                    f"checkpoint's {marker.offset}",
                    place=str(partition),
                    remedy="it was made anew: restore from another backend, or drop the checkpoint",
                )

    def _restore(self, store: str) -> None:
        marker = self._markers.get(store)
        end: int | None = None
        if marker and self._backend.exact:
            if marker.offset is None:
                return
            end = int(marker.offset)
            newest = self._logs[store].newest()
            if self._aged and newest is not None and newest > end:
                LOG.warning(
                    "task %s: the changelog of store %r may be compacted before %d by now: it is "
                    "restored to its end, with what was processed after the checkpoint",
                    self.context.task,
                    store,
                    end,
                )
                end = None
        elif marker is None and not self._backend.retain_existing:
            return
        opened = self.context.stores.open(store)
        count = size = 0
        content: dict[bytes, bytes | None] = {}
        for _, key, value in self._logs[store].read(0, end, self._check):
            content[key] = value
            count += 1
            size += len(key) + len(value or b"")
            if size >= CHUNK or len(content) >= CHANGES:
                self._check()
                opened.apply_all(content)
                content, size = {}, 0
        self._check()
        opened.apply_all(content)
        self.context.measures.add("changes_restored", count)


class ChangelogBackend(StateBackendFactory):
    """A state backend that appends the changes of stores to logs.

    Args:
        changelogs: The logs.
        transactional: Whether a restore ends at the checkpoint; otherwise it ends with the log, and
            includes later changes.
        retain_existing: Whether a store without a marker is restored from the whole log; otherwise
            it starts empty, and the log is undone.
        compact_every: The number of changes after which the log is compacted up to the committed
            marker.
        streams: The streams that the admin creates and checks, with their numbers of partitions.
        reads_back: Whether a commit checks that nobody else has appended since the task's start.
    """

    name = CHANGELOG_FACTORY
    backup = _ChangelogBackup
    restore = _ChangelogRestore

    def __init__(
        self,
        changelogs: Changelogs,
        *,
        transactional: bool = True,
        retain_existing: bool = True,
        compact_every: int = COMPACT_EVERY,
        streams: Mapping[str, int] | None = None,
        reads_back: bool = False,
    ) -> None:
        self.changelogs = changelogs
        self.exact = transactional
        self.retain_existing = retain_existing
        self.compact_every = compact_every
        self.streams = dict(streams or {})
        self.reads_back = reads_back

    def create_resources(self) -> None:
        """Create the streams that do not exist."""
        for stream, partitions in self.streams.items():
            self.changelogs.create(stream, partitions)

    def validate_resources(self) -> None:
        """Check the number of partitions of each stream."""
        for stream, partitions in self.streams.items():
            self.changelogs.validate(stream, partitions)
