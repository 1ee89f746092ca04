"""Attempts: work that either ends with a snapshot or leaves nothing behind.

An attempt announces its work in the catalog's log before it writes its first file, and writes files
below its own token only. Its last commit adds the snapshot and ends the attempt in one entry, and
only if the attempt is still in the log, its bases are unchanged, and no erasure of its jobs is
open. So an attempt may be taken back at any time, whether its process is dead or alive: a process
that was taken for dead can't commit any more, and its files are deleted only after that.

Safety does not depend on how long to wait before taking back another process's attempt. If this
process can see the other one, it checks at once whether that is running. Otherwise it waits for a
sign of life: a file that a running attempt rewrites again and again.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any

from typing_extensions import Self

from statelake.pipelines.lake.catalog.catalog import Catalog, CatalogChange, CatalogVersion
from statelake.pipelines.lake.catalog.claims import (
    AttemptClaim,
    Claims,
    DeletionClaim,
    base_name,
)
from statelake.pipelines.lake.catalog.deletions import (
    SIGNS_OF_LIFE_DIRECTORY,
    execute_deletion,
    finish_deletions,
    sweep_catalog,
)
from statelake.pipelines.lake.catalog.processes import (
    described,
    is_gone,
    is_this_process,
    this_process,
)
from statelake.pipelines.lake.tables.delta_commit import CHECKPOINT_EVERY
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import ConflictError, LakeError, MissingFileError, StateError
from statelake.state_core.files.filesystem import Directory

LEASE_VARIABLE = "STATELAKE_LEASE"
LEASE_SECONDS = 60.0
BEATS = 6
"""The number of signs of life that a running attempt gives during one lease."""

LOG = logging.getLogger(__name__)


class BasisChangedError(ConflictError):
    """A base of an attempt has changed, or the attempt was taken back."""


class Attempt:
    """Work on some tables of a job.

    Args:
        lake: The lake.
        job: The job whose tables they are.
        snapshot_id: The snapshot to create.
        tables: Paths of the tables.
        builds_on: The snapshots whose files the new one may keep: they can't be dropped meanwhile.
        operation: The operation's name, for messages.
    """

    def __init__(
        self,
        lake: Catalog,
        job: str,
        snapshot_id: str,
        tables: Iterable[str],
        builds_on: Iterable[SnapshotRecord] = (),
        operation: str = "import",
    ) -> None:
        self.lake = lake
        self.token = uuid.uuid4().hex[:16]
        self.bases = {
            (record.job, record.snapshot_id): record.files_digest() for record in builds_on
        }
        self.claim = AttemptClaim(
            job=job,
            snapshot_id=snapshot_id,
            operation=operation,
            builds_on={base_name(*base): digest for base, digest in self.bases.items()},
            tables=sorted(tables),
            process=this_process(),
        )
        self._is_committed = False
        self._has_deletions = False
        self._began = 0
        self._beats = Heartbeat(lake.directory, self.token)

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            ConflictError: An erasure of a job has not ended, or the snapshot's name is taken.
            BasisChangedError: A snapshot on which it builds has changed, or is gone.
        """
        try:
            self._began = self.lake.transact(self._begin, create=True)
            self._beats.__enter__()
            if self._has_deletions:
                self._finish_deletions()
        except StateError:
            raise
        except BaseException:  # interrupted: the claim may have been written
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _finish_deletions(self) -> None:
        try:
            finish_deletions(self.lake)
        except StateError as error:
            LOG.warning("deletions are left to the next writer: %s", error)

    def commit(self, record: SnapshotRecord) -> SnapshotRecord:
        """Add the snapshot to the catalog, and end the attempt.

        Returns:
            The snapshot, with its sequence number.

        Raises:
            ConflictError: The snapshot's name is taken, or an erasure of a job has not ended.
            BasisChangedError: The attempt was taken back, or a base has changed.
        """

        def decide(version: CatalogVersion) -> CatalogChange:
            self._refuse_foreign(version)
            if self.token not in version.claims.attempts:
                raise self._taken_back_error()
            return CatalogChange(version.claims.without_attempt(self.token), added=record)

        sequence = self.lake.transact(decide)
        self._is_committed = True
        self.lake.put_together(record.job)
        if sequence // CHECKPOINT_EVERY > self._began // CHECKPOINT_EVERY:
            try:
                sweep_catalog(self.lake)
            except StateError as error:
                LOG.warning("the catalog's log is left to the next writer to clean: %s", error)
        return replace(record, sequence=sequence)

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: object
    ) -> None:
        """End the attempt; take it back unless it was committed.

        Raises:
            BasisChangedError: A file was missing because the attempt was taken back.
        """
        self._beats.__exit__(kind, raised, trace)
        if self._is_committed:
            return
        try:
            version = self.lake.version()
            name = self.claim.snapshot_id
            is_taken = self.token not in version.claims.attempts and not (
                name and version.has(self.claim.job, name)
            )
            is_named = False

            def take_back(version: CatalogVersion) -> CatalogChange:
                nonlocal is_named
                is_named = self.token in version.claims.attempts
                return CatalogChange(taken_back(version.claims, {self.token: self.claim}))

            self.lake.transact(take_back)
            finish_deletions(self.lake, {self.claim.job})
            if not is_named:  # taken back by others: no deletion names later files
                execute_deletion(self.lake, _deletion_of(self.token, self.claim))
        except StateError as error:
            LOG.warning(
                "attempt %s is left for the next writer to take back: %s", self.token, error
            )
            return
        if is_taken and isinstance(raised, MissingFileError | LakeError):
            raise self._taken_back_error() from raised

    def _taken_back_error(self) -> BasisChangedError:
        return BasisChangedError(
            f"the {self.claim.operation} of snapshot {self.claim.snapshot_id!r} gave no"
            " sign of life, so another process took it back",
            remedy="nothing was changed: run it again",
        )

    def _begin(self, version: CatalogVersion) -> CatalogChange:
        self._refuse_foreign(version)
        claims = without_dead(version.claims)
        self._has_deletions = bool(claims.deletions)
        return CatalogChange(claims.with_attempt(self.token, self.claim))

    def _refuse_foreign(self, version: CatalogVersion) -> None:
        """Refuse to continue if other writers have changed a requirement of this attempt."""
        jobs = {self.claim.job, *(job for job, _ in self.bases)}
        for job in sorted(jobs):
            refuse_during_erasure(version.claims, job)
        name = self.claim.snapshot_id
        if name and version.has(self.claim.job, name):
            raise ConflictError(
                f"job {self.claim.job!r} has a snapshot {name!r} already",
                remedy="choose another id",
            )
        for (job, snapshot_id), digest in self.bases.items():
            if _digest_at(version, job, snapshot_id) != digest:
                raise BasisChangedError(
                    f"snapshot {snapshot_id!r} of job {job!r} was dropped, or erased from, while"
                    f" the {self.claim.operation} was going on",
                    remedy="nothing was changed: run it again",
                )


def _digest_at(version: CatalogVersion, job: str, snapshot_id: str) -> str:
    """Return the digest of a snapshot's files; empty if the snapshot does not exist."""
    if not version.has(job, snapshot_id):
        return ""
    return version.snapshot(job, snapshot_id).files_digest()


def refuse_during_erasure(claims: Claims, job: str, request: str | None = None) -> None:
    """Refuse to continue while an erasure of a job has not ended, or was interrupted.

    Args:
        claims: The claims.
        job: The job.
        request: The erasure that is allowed.

    Raises:
        ConflictError: An erasure of the job has not ended.
    """
    for other, claim in claims.erasures_of(job).items():
        if other != request:
            raise ConflictError(
                f"erasure {other!r} of job {job!r} has not ended ({described(claim.process)})",
                remedy="try again when it is done; if its process is gone, give the same"
                " `statelake erase --request ID` again",
            )


def taken_back(claims: Claims, attempts: Mapping[str, AttemptClaim]) -> Claims:
    """Return claims without some attempts, and with deletions of their files."""
    for token, claim in attempts.items():
        if token in claims.attempts:
            claims = claims.without_attempt(token).with_deletion(token, _deletion_of(token, claim))
    return claims


def without_dead(claims: Claims, dead: Collection[str] = ()) -> Claims:
    """Return claims without the attempts and erasures whose processes are certainly gone.

    An erasure whose new files are already in snapshots stays: it can only be continued.

    Args:
        claims: The claims.
        dead: The tokens of others that are taken for gone.
    """
    gone = {
        token: claim
        for token, claim in claims.attempts.items()
        if token in dead or is_gone(claim.process)
    }
    claims = taken_back(claims, gone)
    for request, claim in claims.erasures.items():
        if not claim.switched and (claim.token in dead or is_gone(claim.process)):
            claims = claims.without_erasure(request)
    return claims


def _deletion_of(token: str, claim: AttemptClaim) -> DeletionClaim:
    return DeletionClaim(claim.job, tokens=[token], tables=list(claim.tables))


def settle_attempts(
    lake: Catalog,
    blocking: Callable[[CatalogVersion], Mapping[str, AttemptClaim]],
    why: str,
) -> None:
    """Take back blocking attempts whose processes are gone.

    An attempt of a process that this machine can't see is watched for a whole lease by this
    process's own clock: without a sign of life it is taken back, too. Taking back is safe even if
    it was alive.

    Args:
        lake: The lake.
        blocking: Returns the blocking attempts, by their tokens.
        why: The operation that they block, for messages.

    Raises:
        ConflictError: One of them is running.
    """
    while attempts := blocking(lake.version()):
        dead = {token: claim for token, claim in attempts.items() if is_gone(claim.process)}
        if not dead:
            what = "; ".join(
                f"job {claim.job!r} is being written to, for snapshot {claim.snapshot_id!r}"
                f" ({claim.operation})"
                for claim in attempts.values()
            )
            processes = {token: claim.process for token, claim in attempts.items()}
            refuse_running(lake.directory, processes, f"{why}: {what}")
            dead = dict(attempts)
        lake.transact(partial(_take_back, dead))
        # nothing blocks now; the caller decides for which jobs deletions must succeed
        finish_deletions(lake, ())


def refuse_running(lake: Directory, processes: Mapping[str, Mapping[str, Any]], what: str) -> None:
    """Wait for a lease to find out whether processes that this machine can't see are silent.

    Args:
        lake: The lake's directory.
        processes: Processes that are not known to be gone, by the tokens of their work.
        what: Their work, for messages.

    Raises:
        ConflictError: One of them seems to be running.
    """
    if silent_processes(lake, processes) != processes.keys():
        names = ", ".join(sorted({described(process) for process in processes.values()}))
        raise ConflictError(f"{what} by {names}", remedy="try again when that is done")


def silent_processes(lake: Directory, processes: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the tokens of processes without a sign of life for a lease, by this process's clock.

    Args:
        lake: The lake's directory.
        processes: Processes that are not known to be gone, by the tokens of their work.
    """
    unseen = {token for token, process in processes.items() if not _is_seen(process)}
    if not unseen:
        return set()
    names = ", ".join(sorted({described(processes[token]) for token in unseen}))
    LOG.warning("waiting %.0f s for a sign of life of %s", lease_seconds(), names)
    before = {token: _sign_of_life(lake, token) for token in unseen}
    until = time.monotonic() + lease_seconds()
    while unseen and time.monotonic() < until:
        time.sleep(lease_seconds() / BEATS)
        unseen = {token for token in unseen if _sign_of_life(lake, token) == before[token]}
    return unseen


def take_back_dead(lake: Catalog) -> None:
    """Take back the attempts and erasures of processes that are gone, or give no sign of life."""
    claims = without_dead(lake.version().claims)
    processes = {token: claim.process for token, claim in claims.attempts.items()}
    erasures = {claim.token: claim.process for claim in claims.erasures.values()}
    dead = silent_processes(lake.directory, processes | erasures)
    lake.transact(lambda version: CatalogChange(without_dead(version.claims, dead)))
    finish_deletions(lake)


def _take_back(dead: Mapping[str, AttemptClaim], version: CatalogVersion) -> CatalogChange:
    return CatalogChange(taken_back(version.claims, dead))


def lease_seconds() -> float:
    """Return the seconds without a sign of life after which others take an attempt back."""
    return float(os.environ.get(LEASE_VARIABLE, LEASE_SECONDS))


def _is_seen(process: Mapping[str, Any]) -> bool:
    """Return whether this machine can see a process that is not gone."""
    table = this_process()["processes"]
    return is_this_process(process) or bool(table and process.get("processes") == table)


def _sign_of_life(lake: Directory, token: str) -> bytes:
    try:
        return lake.read(f"{SIGNS_OF_LIFE_DIRECTORY}/{token}")
    except MissingFileError:
        return b""


class Heartbeat:
    """Signs of life for machines that can't see this process. Safety does not depend on them.

    Args:
        lake: The lake's directory.
        token: The token of this process's work.
    """

    def __init__(self, lake: Directory, token: str) -> None:
        self._lake = lake
        self._path = f"{SIGNS_OF_LIFE_DIRECTORY}/{token}"
        self._ended = Event()
        self._thread = Thread(target=self._beat, daemon=True, name="statelake-alive")
        self._is_written = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _beat(self) -> None:
        count = 0
        while not self._ended.wait(lease_seconds() / BEATS):
            count += 1
            try:
                self._lake.write(self._path, str(count).encode())
                self._is_written = True
            except StateError as error:
                LOG.warning("no sign of life can be given: %s", error)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._is_written:
            try:
                self._lake.delete(self._path)
            except StateError as error:
                LOG.warning("%s stays: %s", self._path, error)
