"""Functions of savepoints and checkpoints, without a lake, or by a temporary one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from statelake.pipelines.api.lake import Lake
from statelake.pipelines.api.snapshots import LakeSnapshot
from statelake.pipelines.engine import Progress
from statelake.pipelines.live.requests import FindOrphans
from statelake.pipelines.requests.bootstrap import WatchedBootstrap
from statelake.pipelines.requests.changes import (
    CheckSqlOfSavepoint,
    UpgradeSavepoint,
    UpgradeSql,
    UpgradeSqlSavepoint,
    Upgrading,
)
from statelake.pipelines.requests.checks import CheckLegalityOfSavepoint
from statelake.pipelines.requests.reading import (
    Comparison,
    DiffSavepoints,
    GrowthOfSavepoints,
    SavepointPage,
)
from statelake.pipelines.requests.request import Request, takes
from statelake.pipelines.requests.savepoints import Compress, ReadSavepoint
from statelake.pipelines.requests.shared import NewSavepoint, Reading, TypedReading

if TYPE_CHECKING:
    from statelake.pipelines.bootstrap.bootstrapping import BootstrapResult
    from statelake.pipelines.find.growth import Growth
    from statelake.pipelines.find.orphans import Orphans
    from statelake.pipelines.lake.change.migrations import UpgradeOutcome
    from statelake.pipelines.lake.verify.diffing import Differences
    from statelake.pipelines.report.contents import ReportResult
    from statelake.pipelines.sql_jobs.sql_upgrades import SqlUpgrade
    from statelake.state_core.formats.layout.state_types import StateTypes, TypeDifferences
    from statelake.state_core.formats.rewriting.recompression import Recompression
    from statelake.state_core.runtime.declarations.findings import JobFindings

Made = TypeVar("Made", "UpgradeOutcome", "SqlUpgrade")


@takes(WatchedBootstrap)
def bootstrap(request: WatchedBootstrap) -> BootstrapResult:
    """Create a savepoint from tables, without a lake."""
    from statelake.pipelines.bootstrap.bootstrapping import bootstrap

    return bootstrap(None, **vars(request))


@takes(Compress)
def compress(request: Compress) -> Recompression:
    """Compress a canonical savepoint, or decompress it: entry for entry the same state."""
    from statelake.state_core.files.compression import configured_compression
    from statelake.state_core.formats.rewriting.recompression import recompress_snapshot

    codec = configured_compression(request.conf, request.compression) or "snappy"
    return recompress_snapshot(
        request.savepoint, request.to, codec, allow_external=request.allow_external,
        progress=request.progress,
    )  # fmt: skip


@takes(FindOrphans)
def orphans(request: FindOrphans) -> Orphans:
    """Find, and delete, the files below a directory of checkpoints that no snapshot needs.

    Raises:
        DeclarationError: No cluster is given and `no_cluster` is not set, or that without an age.
        ClusterError: The cluster can't be asked.
        SnapshotError: The directory can't be listed, or a file can't be deleted.
    """
    from statelake.pipelines.find.orphans import check_request, delete_orphans, find_orphans
    from statelake.pipelines.find.path_map import PathMap
    from statelake.pipelines.live.cluster_view import cluster_jobs

    cluster, older_than = request.cluster, request.older_than
    check_request(cluster is not None, no_cluster=request.no_cluster, older_than=older_than)
    plan = find_orphans(
        request.directory,
        partial(cluster_jobs, cluster) if cluster is not None else None,
        older_than=timedelta(days=7) if older_than is None else older_than,
        paths=PathMap.parse(request.path_map),
    )
    return delete_orphans(request.directory, plan) if request.delete else plan


@takes(SavepointPage)
def report(request: SavepointPage) -> ReportResult:
    """Write a page of HTML that shows a savepoint or checkpoint.

    Raises:
        ConflictError: The file exists.
        DeclarationError: The plan is not that of the savepoint's job.
        SnapshotError: The savepoint can't be opened.
    """
    from statelake.pipelines.report.gathering import savepoint_report
    from statelake.pipelines.report.page import write_report

    gather = partial(savepoint_report, request)
    return write_report(gather, request.to, overwrite=request.overwrite)


@takes(CheckLegalityOfSavepoint)
def check_legality(request: CheckLegalityOfSavepoint) -> JobFindings:
    """Return all that is wrong with a declared job, also with its restore from a savepoint."""
    from statelake.pipelines.lake.verify.legality import check_declared, load_job
    from statelake.state_core.formats.reader import open_snapshot
    from statelake.state_core.runtime.legality.stored_states import held_operators

    job, stored = load_job(request.declared), None
    if request.savepoint is not None:
        uids = [operator.uid for operator in job.operators]
        stored = held_operators(open_snapshot(request.savepoint, uids=uids).operators)
    return check_declared(job, stored, allow_missing=request.allow_non_restored_state)


@takes(DiffSavepoints)
def diff(request: DiffSavepoints) -> Differences:
    """Compare two savepoints or checkpoints, state by state; see `LakeSnapshot.diff`.

    Both are imported into a lake that is removed afterwards: all of their state is read.

    Raises:
        SnapshotError: One can't be opened or read.
    """
    from statelake.pipelines.lake.verify.diffing import Differences
    from statelake.state_core.formats.reader import open_snapshot

    reading = request.words(Reading)
    names = []
    for path in (os.fspath(request.earlier), os.fspath(request.later)):  # before all the work
        opened = open_snapshot(path, **reading)
        names.append(opened.location if "://" in path else path)  # without its credentials
    with in_temporary_lake(request.earlier, **reading) as before:
        before.job.import_snapshot(request.later, "later", **reading)
        differences = before.diff("later", **request.words(Comparison))
    return Differences(names[0], names[1], differences)


def diff_types(
    old: StateTypes | str | os.PathLike[str], new: StateTypes | str | os.PathLike[str]
) -> TypeDifferences:
    """Return the differences of two files of types, or of snapshots' types, in words.

    Args:
        old: A file as `Snapshot.types` prints it, such as the one that was committed last; or what
            `Snapshot.types` returns.
        new: The same of the new job.

    Raises:
        EncodeError: A file is not valid.
    """
    from statelake.pipelines.lake.change.changes import read_types
    from statelake.state_core.formats.layout.state_types import StateTypes, differences_of

    return differences_of(
        *(
            each.content() if isinstance(each, StateTypes) else read_types(os.fspath(each))
            for each in (old, new)
        )
    )


@takes(GrowthOfSavepoints)
def growth(request: GrowthOfSavepoints) -> Growth:
    """Return how state grew over some savepoints or checkpoints of a job; see `Job.growth`.

    All of their state is read. Their times are those of their files `_metadata`.

    Raises:
        SnapshotError: A savepoint can't be opened or read.
        NotFoundError: There are fewer than two.
    """
    from statelake.pipelines.find.growth import described, growth_of
    from statelake.state_core.formats.reader import open_snapshot

    reading = request.words(Reading)
    snapshots = (described(open_snapshot(each, **reading)) for each in request.savepoints)
    return growth_of(snapshots, request)


@takes(UpgradeSavepoint)
def upgrade(request: UpgradeSavepoint) -> UpgradeOutcome:
    """Write a savepoint that Flink 2 restores of one that Flink 1 wrote.

    Raises:
        SnapshotError: The savepoint can't be opened, or something is at `to` already.
        EncodeError: An argument can't be understood.
    """
    from statelake.pipelines.lake.change.migrations import values_as_bytes
    from statelake.state_core.formats.reader import open_snapshot

    with values_as_bytes(lambda: open_snapshot(request.savepoint, **request.words(Reading))):
        return _exported(request, LakeSnapshot.upgrade, Upgrading)


@takes(CheckSqlOfSavepoint)
def check_sql(request: CheckSqlOfSavepoint) -> SqlUpgrade:
    """Say what a Flink SQL job of a changed query keeps of a savepoint.

    Raises:
        DeclarationError: A plan can't be understood.
        IncompatibleError: The savepoint is not of the old plan.
    """
    return sql_upgrade(to=None, **vars(request))


@takes(UpgradeSqlSavepoint)
def sql_upgrade(request: UpgradeSqlSavepoint) -> SqlUpgrade:
    """Write a savepoint from which a Flink SQL job of a changed query goes on.

    What is accepted, `LakeSnapshot.sql_upgrade` says.

    Raises:
        DeclarationError: A plan can't be understood.
        IncompatibleError: The savepoint is not of the old plan.
        SnapshotError: The savepoint can't be opened, or something is at `to` already.
    """
    return _exported(request, LakeSnapshot.sql_upgrade, UpgradeSql)


def _exported(request: NewSavepoint, change: Callable[..., Made], words: type[Request]) -> Made:
    """Change a savepoint as a snapshot of a lake, and write what is made as a new savepoint."""
    place, to = os.fspath(request.savepoint), request.to
    with in_temporary_lake(place, to, **request.words(Reading)) as snapshot:
        done = change(snapshot, **request.words(words), dry_run=to is None)
        if to is None or not (done.made or getattr(done, "restorable", False)):
            return replace(done, snapshot=place)
        snapshot.job[done.made or snapshot.name].export(to)
        return replace(done, snapshot=place, made=os.fspath(to))


@contextmanager
@takes(ReadSavepoint)
def in_temporary_lake(request: ReadSavepoint) -> Iterator[LakeSnapshot]:
    """Yield a savepoint as the snapshot of a lake that is removed afterwards, for an export.

    Raises:
        SnapshotError: The savepoint can't be opened, or something is at `to` already.
    """
    from statelake.state_core.files.held_directories import (
        EXPORT_PREFIX,
        held_temporary,
        remove_left,
        stale_temporary_directories,
    )
    from statelake.state_core.formats.writing.writer import require_free

    if request.to is not None:
        require_free(request.to)
    for left in stale_temporary_directories(EXPORT_PREFIX):
        remove_left(left)
    with held_temporary(EXPORT_PREFIX) as directory:
        job = Lake(directory).job("savepoint", engine="local")
        job.import_snapshot(request.savepoint, "savepoint", **request.words(TypedReading))
        yield job["savepoint"]


def warm(progress: Progress | None = None) -> int:
    """Compile all kernels, for images and new machines; return their number."""
    from statelake.state_core.kernels.compiler import all_kernels

    kernels = all_kernels()
    for done, kernel in enumerate(kernels, 1):
        kernel.compile()
        if progress is not None:
            progress(done, len(kernels))
    return len(kernels)
