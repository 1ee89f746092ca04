"""Consistent reads of snapshots: each before or after an erasure, and never a mixture.

A record names every file of its snapshot, and readers open those files and no others; the logs of
tables are for other engines. An erasure exchanges records in one commit, and a drop removes them;
both delete files afterwards. So a reader that fails reads the records again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogVersion
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import ConflictError, NotFoundError, StateError

READINGS = 5
HELD = 64  # results that are held back, so that most readers get all results or begin again
Result = TypeVar("Result")
Key = tuple[str, str]


class SnapshotReading:
    """Snapshots that are read, each by one record from beginning to end.

    Give it records of one version of the catalog: all are replaced by those of another version.

    Args:
        lake: The lake.
        records: The records of the snapshots.

    Attributes:
        records: The records that are read, by job and id.
    """

    def __init__(self, lake: Catalog, *records: SnapshotRecord) -> None:
        self.lake = lake
        self.records = {(record.job, record.snapshot_id): record for record in records}
        self._given = False

    def add(self, record: SnapshotRecord) -> SnapshotRecord:
        """Add a snapshot, and return the record by which it is read, perhaps an earlier one."""
        return self.records.setdefault((record.job, record.snapshot_id), record)

    def at_once(self, read: Callable[..., Result]) -> Result:
        """Read to the end before a result is returned; again from the start after an erasure.

        Args:
            read: Called with the records.

        Raises:
            ConflictError: An erasure interfered each time.
            NotFoundError: A snapshot was dropped meanwhile.
        """
        for _ in range(READINGS):
            try:
                return read(*self.records.values())
            except StateError:  # noqa: PERF203 - each time is a new reading
                exchanged = self._exchanged()
                if not exchanged:
                    raise
                self.records |= exchanged
        raise _erased(exchanged)

    def each(self, read: Callable[..., Iterator[Result]]) -> Iterator[Result]:
        """Yield results, the first ones together: until then, start again after an erasure.

        Args:
            read: Called with the records.

        Raises:
            ConflictError: An erasure interfered.
            NotFoundError: A snapshot was dropped meanwhile.
        """

        def begun(*records: SnapshotRecord) -> tuple[list[Result], Iterator[Result]]:
            results = read(*records)
            return list(islice(results, HELD)), results

        with self.in_part():
            first, others = begun(*self.records.values()) if self._given else self.at_once(begun)
            for result in chain(first, others):
                self._given = True
                yield result

    @contextmanager
    def in_part(self) -> Iterator[None]:
        """Replace an error by its cause, an erasure or a drop, since some results were yielded.

        Raises:
            ConflictError: A snapshot was erased from meanwhile.
            NotFoundError: A snapshot was dropped meanwhile.
        """
        try:
            yield
        except StateError as error:
            if exchanged := self._exchanged():
                raise _erased(exchanged) from error
            raise

    def check(self) -> None:
        """Check that the records are still those of the snapshots.

        Raises:
            ConflictError: A snapshot was erased from meanwhile.
            NotFoundError: A snapshot was dropped meanwhile.
        """
        if exchanged := self._exchanged():
            raise _erased(exchanged)

    def _exchanged(self) -> dict[Key, SnapshotRecord]:
        """Return the new records of snapshots whose files were exchanged since reading began."""

        def now(version: CatalogVersion) -> dict[Key, SnapshotRecord]:
            return {key: self._record_in(version, *key) for key in self.records}

        return {
            key: record
            for key, record in self.lake.at_one_version(now).items()
            if record.files_digest() != self.records[key].files_digest()
        }

    def _record_in(self, version: CatalogVersion, job: str, snapshot_id: str) -> SnapshotRecord:
        try:
            return version.snapshot(job, snapshot_id)
        except NotFoundError as error:
            raise NotFoundError(
                f"snapshot {snapshot_id!r} was dropped while it was read",
                place=f"job {job!r}",
                remedy="see `statelake snapshots`",
            ) from error


def read_together(
    lake: Catalog,
    choose: Callable[[CatalogVersion], list[SnapshotRecord]],
    read: Callable[[list[SnapshotRecord]], Result],
) -> Result:
    """Read snapshots of one version of the catalog; all again after an erasure from the outer ones.

    Those between may be dropped meanwhile: of them `read` uses what the records say.

    Args:
        lake: The lake.
        choose: Returns the snapshots.
        read: Called with them.

    Raises:
        ConflictError: An erasure interfered each time.
        NotFoundError: The first or the last snapshot was dropped meanwhile.
    """
    for attempt in range(1, READINGS + 1):
        records = lake.at_one_version(choose)
        reading = SnapshotReading(lake, *records[:1], *records[-1:])
        result = read(records)
        try:
            reading.check()
        except ConflictError:
            if attempt == READINGS:
                raise
        else:
            break
    return result


def _erased(exchanged: dict[Key, SnapshotRecord]) -> ConflictError:
    job, snapshot_id = next(iter(exchanged))
    return ConflictError(
        f"snapshot {snapshot_id!r} was erased from while it was read",
        place=f"job {job!r}",
        remedy="run it again",
    )
