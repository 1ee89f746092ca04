"""Files below a directory of checkpoints that no snapshot needs, and their deletion.

A file is an orphan if it lies where Flink puts state, no `_metadata` names it (here, or in the list
of a cluster's checkpoints), it is old enough, and the job there, if it runs, can't name it later.
Files are compared by name alone: names are random, and a tree may have been moved, or be mounted
elsewhere. In doubt a file stays: a file too many costs little, a missing one costs the state.

What a running job may still name (`org.apache.flink.runtime.state`): files of a checkpoint in
progress; tables that ForSt works with, merged files that are open, logs of changes and what they
were materialized into, which lie there long before a checkpoint names them; and all that is
task-owned. Of other jobs an increment only names files of completed checkpoints, so that a shared
file without a reference, older than a completed one, is nobody's.
"""

from __future__ import annotations

import json
import os
import posixpath
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.find.scanning import (
    JOB_ID,
    SAVEPOINT_DIRECTORY,
    Tree,
    checkpoint_number,
    read_ahead,
)
from statelake.state_core.errors import (
    DeclarationError,
    MissingFileError,
    SnapshotError,
    StateError,
    UnsafePathError,
)
from statelake.state_core.files.confinement import relative_path
from statelake.state_core.files.filesystem import ConfinedDirectory, Directory, ListedFile
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    check_properties,
    read_metadata,
)
from statelake.state_core.formats.metadata.state_files import (
    CHECKPOINT_DIRECTORY,
    COPYING,
    METADATA_FILE,
    SHARED_DIRECTORIES,
)
from statelake.state_core.formats.metadata.stream_map import streams_of
from statelake.state_core.model.handles import (
    ChangelogHandle,
    FileHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
)
from statelake.state_core.printable import Printed, Table, bytes_text

JOURNAL = "statelake-orphans.json"
LISTINGS = 20
LISTING_PAUSE = 0.2  # a cluster names a checkpoint for 3 s after another took its place
DELETED_AT_ONCE = 1000
SHOWN = 20
HALF, LEFT, SHARED, CHANGES, TASK_OWNED = (
    "half-written", "left in a checkpoint", "shared", "changelog", "task-owned",
)  # fmt: skip
CLASSES = {
    HALF: "files of a chk-N or savepoint without `_metadata`",
    LEFT: "files beside a `_metadata` that does not name them",
    SHARED: "shared/ without a reference",
    CHANGES: "dstl/ without a reference",
    TASK_OWNED: "taskowned/ without a reference",
}
OF_DIRECTORY = {"shared": SHARED, "dstl": CHANGES, "taskowned": TASK_OWNED}
FOREIGN = b"PAR1"  # other programs call a file `_metadata`, too


@dataclass(frozen=True)
class Orphan:
    """A file that nothing needs.

    Attributes:
        path: Its path below the directory.
        size: Its bytes.
        time: When it was written.
        kind: One of `CLASSES`.
        job: The directory of its job, below the directory; empty if unknown.
    """

    JSON = ("path", "bytes=size", "class=kind", "job", "time=written_at")

    path: str
    size: int
    time: float
    kind: str
    job: str

    @property
    def written_at(self) -> datetime:
        """Return when it was written."""
        return datetime.fromtimestamp(self.time, timezone.utc)


@dataclass(frozen=True)
class KeptFiles:
    """Files without a reference that stay.

    Attributes:
        job: The directory of their job.
        reason: Why they stay.
        files: The number of files.
        size: Their bytes.
    """

    JSON = ("job", "reason", "files", "bytes=size")

    job: str
    reason: str
    files: int
    size: int


@dataclass(frozen=True)
class Orphans(Printed):
    """The orphans below a directory.

    Attributes:
        location: The directory.
        files: The orphans.
        kept: Files without a reference that stay, by job and reason.
        named: The number of files that snapshots name.
        snapshots: The number of snapshots that were read.
        deleted: The number of files that were deleted; None if only the plan was wanted.
        went_on: Of how many files an earlier deletion had been stopped.
    """

    JSON = (
        "location", "snapshots", "named", "files", "bytes=size", "kept", "deleted", "went_on",
    )  # fmt: skip

    location: str
    files: tuple[Orphan, ...]
    kept: tuple[KeptFiles, ...]
    named: int
    snapshots: int
    deleted: int | None = None
    went_on: int = 0

    @property
    def size(self) -> int:
        """Return the bytes of the orphans."""
        return sum(file.size for file in self.files)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        done = "were deleted" if self.deleted is not None else "are nobody's"
        yield (
            f"{len(self.files):,} files {done} ({bytes_text(self.size)});"
            f" {self.snapshots:,} snapshots name {self.named:,} others"
        )
        if self.went_on:
            yield f"an earlier deletion had left {self.went_on:,} of them"
        by_kind = {kind: [each for each in self.files if each.kind == kind] for kind in CLASSES}
        rows = [
            (CLASSES[kind], f"{len(files):,}", bytes_text(sum(each.size for each in files)))
            for kind, files in by_kind.items()
            if files
        ]
        if rows:
            yield Table("", ("<what", ">files", ">bytes"), rows)
            largest = sorted(self.files, key=lambda each: (-each.size, each.path))
            columns = ("<file=path", ">bytes=size:B", "<written=written_at:%Y-%m-%d %H:%M")
            yield Table.of("the largest", columns, largest, SHOWN)
        if self.kept:
            stays = ("<job:.", ">files:,", ">bytes=size:B", "<because=reason")
            yield Table.of("without a reference, and not touched", stays, self.kept)


# --------------------------------------------------------------------------- what a cluster knows


@dataclass(frozen=True)
class ClusterJob:
    """The description of a job by its cluster.

    Attributes:
        id: Its id.
        runs: Whether it has not ended for good.
        paths: The paths of its snapshots, and of the one that it was started from.
        own: Those of its checkpoints.
        newest: The path of its newest completed checkpoint; empty without one.
        completed: The id of that; -1 without one.
        triggered: When that was triggered, in seconds since 1970.
        in_progress: The ids of those in progress.
        takes_savepoint: Whether one of these is a savepoint.
    """

    id: str
    runs: bool
    paths: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    newest: str = ""
    completed: int = -1
    triggered: float = 0.0
    in_progress: frozenset[int] = frozenset()
    takes_savepoint: bool = False


# --------------------------------------------------------------------------- what snapshots name


@dataclass
class Family:
    """The directory of one job's checkpoints.

    Attributes:
        newest: When its newest file was written.
        numbers: The ids of its checkpoints with `_metadata`.
        written: When the newest `_metadata` was written.
        read: The number of its readable snapshots.
        buffers: Whether one of them has a changelog, merged files, or both.
    """

    newest: float = 0.0
    numbers: set[int] = field(default_factory=set)
    written: float = 0.0
    read: int = 0
    buffers: bool = False


@dataclass
class References:
    """What all snapshots name.

    Attributes:
        names: The names of files.
        unreadable: What can't be read, and why.
        copying: By the names of files that copies need which are not complete, what says so.
        snapshots: The number of snapshots that were read.
        families: By their directories.
    """

    names: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)
    copying: dict[str, str] = field(default_factory=dict)
    snapshots: int = 0
    families: dict[str, Family] = field(default_factory=lambda: defaultdict(Family))

    def doubt(self, what: str) -> None:
        """Note what can't be read, and why, once."""
        if what not in self.unreadable:
            self.unreadable.append(what)

    def held_by_copy(self, path: str) -> str:
        """Return which copy that is not complete needs a file; empty without one."""
        name = posixpath.basename(path)
        return path if name == COPYING else self.copying.get(name, "")


def find_orphans(
    location: str | os.PathLike[str],
    ask: Callable[[], list[ClusterJob]] | None,
    *,
    older_than: timedelta,
    paths: PathMap | None = None,
    now: float | None = None,
) -> Orphans:
    """Return the files below a directory that nothing needs.

    The directory is listed and the cluster asked until every snapshot of a listing has been read.
    What the earlier ones named counts too.

    Args:
        location: The directory, a path or URI.
        ask: Asks the cluster; None if none is to be asked.
        older_than: The age of orphans; younger files stay.
        paths: The directories of the cluster, if they have other names there.
        now: The time in seconds since 1970; by default the present.

    Raises:
        ClusterError: The cluster can't be asked.
        SnapshotError: The directory can't be listed, or changes too fast.
    """
    paths = paths or PathMap()
    tree = Tree(location)
    references, jobs = _references(tree, location, ask, paths)
    age = older_than.total_seconds()
    return _RemovalPlan(tree, references, jobs, paths, age, now or time.time()).result()


def _references(
    tree: Tree,
    location: str | os.PathLike[str],
    ask: Callable[[], list[ClusterJob]] | None,
    paths: PathMap,
) -> tuple[References, list[ClusterJob] | None]:
    """Return what all snapshots name, and the jobs.

    There are at least two listings: one alone can miss a name that is exchanged for another while
    the names of its directory are read, such as `COPYING` for `_metadata`.

    Args:
        tree: The first listing.
        location: The directory, for others.
        ask: Asks the cluster; None if none is to be asked.
        paths: The directories of the cluster.

    Raises:
        ClusterError: The cluster can't be asked.
        SnapshotError: The directory can't be listed, or changes too fast.
    """
    references = References()
    known: set[str] = set()
    _read_new(references, tree, known)
    for _ in range(LISTINGS):
        jobs = None if ask is None else ask()
        gone = _read_new(references, Tree(location), known)
        gone += _read_elsewhere(references, tree, jobs or [], known, paths)
        if not gone:
            return references, jobs
        time.sleep(LISTING_PAUSE)
    raise SnapshotError(
        f"checkpoints come and go faster than they are read: {gone[0]} is gone",
        place=tree.directory.full(),
        remedy="run it again, or for the directory of one job; if it is a checkpoint that somebody"
        " deleted, wait for the job's next one",
    )


def _read_new(references: References, tree: Tree, known: set[str]) -> list[str]:
    """Read every `_metadata` of a listing that is not known; return those that are gone by now.

    Another snapshot may have come that names the files of one that is gone. What is called
    `_metadata` and is not read may name any file, and so may what a link leads to.
    """
    for path, what in tree.unread.items():
        references.doubt(f"{path}: {what}")
    for link in tree.links:
        led_to = tree.led_to(link)
        if led_to is None:
            references.doubt(f"{link}: a link that leads outside")
        elif led_to:
            references.names.add(posixpath.basename(led_to))
    new = [
        path
        for path in tree.files
        if posixpath.basename(path) in (METADATA_FILE, COPYING) and path not in known
    ]
    gone = []
    with closing(read_ahead(tree, new)) as contents:
        for path, content in zip(new, contents, strict=True):
            metadata = _content(path, content)
            if isinstance(metadata, StateError) and _is_gone(metadata, tree.directory, path):
                gone.append(path)
                continue
            known.add(path)
            _note(references, path, metadata, tree.files[path])
    return gone


def _is_gone(error: StateError | OSError, directory: Directory, path: str) -> bool:
    """Return whether a file can't be read as it is not there any more; in doubt it is."""
    try:
        return isinstance(error, MissingFileError) and not directory.exists(path)
    except (StateError, OSError):
        return False


def _read_elsewhere(
    references: References, tree: Tree, jobs: Iterable[ClusterJob], known: set[str], paths: PathMap
) -> list[str]:
    """Read the snapshots that a cluster knows and no listing has; return those that are gone.

    Only the newest one of a job that runs has to be there; Flink deletes those before it.
    """
    gone = []
    for job in jobs:
        for path in sorted(job.paths):
            below = _place(tree, path, paths)
            listed = None if below is None else f"{below}/{METADATA_FILE}".lstrip("/")
            if path in known or listed in known:
                continue
            if _note_elsewhere(references, job, path, paths):
                known.add(path)
            elif job.runs and path == job.newest:
                gone.append(path)
    return gone


def _place(tree: Tree, path: str, paths: PathMap) -> str | None:
    """Return where a path of the cluster is below a tree, None if it is elsewhere."""
    try:
        return tree.below(paths.here(path))
    except UnsafePathError:
        return None


def _content(path: str, data: bytes | StateError) -> CheckpointMetadata | StateError | None:
    """Return what a `_metadata` says, or why it can't be read; None if it is another program's."""
    if isinstance(data, StateError):
        return data
    directory = posixpath.basename(posixpath.dirname(path))
    is_flinks = CHECKPOINT_DIRECTORY.fullmatch(directory) or SAVEPOINT_DIRECTORY.fullmatch(
        directory
    )
    if data.startswith(FOREIGN) and not is_flinks:
        return None
    try:
        metadata = read_metadata(data, path)
        check_properties(metadata)
    except StateError as error:
        return error
    return metadata


def _note(
    references: References,
    path: str,
    metadata: CheckpointMetadata | StateError | None,
    file: ListedFile,
) -> None:
    if metadata is None:
        return
    if posixpath.basename(path) == COPYING and not isinstance(metadata, StateError):
        references.copying.update(dict.fromkeys(_names(metadata), path))
        return
    above, _, name = posixpath.dirname(path).rpartition("/")
    number = checkpoint_number(name)
    if number is not None and posixpath.basename(path) == METADATA_FILE:
        family = references.families[above]
        family.numbers.add(number)
        family.written = max(family.written, file.modified)
    if isinstance(metadata, StateError):
        references.doubt(f"{path}: {metadata.problem}")
        return
    buffers = _name_files(references, metadata)
    if number is not None:
        family.read += 1
        family.buffers |= buffers


def _name_files(references: References, metadata: CheckpointMetadata) -> bool:
    """Note the names of files; return whether the job has files that no snapshot names yet."""
    references.names.update(_names(metadata))
    references.snapshots += 1
    return any(isinstance(stream, SegmentHandle) for stream in streams_of(metadata)) or any(
        isinstance(subtask.managed_keyed, ChangelogHandle)
        for operator in metadata.operators
        for subtask in (operator.subtasks or {}).values()
    )


def _names(metadata: CheckpointMetadata) -> Iterator[str]:
    """Yield the names of the files of a snapshot."""
    for stream in streams_of(metadata):
        while isinstance(stream, NestedKeyGroupsHandle) and stream.stream is not None:
            stream = stream.stream  # noqa: PLW2901 - the innermost
        if isinstance(stream, RelativeHandle):
            yield posixpath.basename(stream.path)
        elif isinstance(stream, FileHandle | SegmentHandle):
            yield posixpath.basename(stream.uri)


def _note_elsewhere(references: References, job: ClusterJob, path: str, paths: PathMap) -> bool:
    """Note what a snapshot names that the cluster knows; return whether it is there."""
    directory = None
    try:
        directory = Directory(paths.here(path))
        metadata = read_metadata(directory.read(METADATA_FILE), path)
    except (StateError, OSError) as error:
        if directory is not None and _is_gone(error, directory, METADATA_FILE):
            return False
        problem = error.problem if isinstance(error, StateError) else str(error)
        references.doubt(f"{path}, which job {job.id} has: {problem}")
    else:
        _name_files(references, metadata)
    return True


# --------------------------------------------------------------------------- which are nobody's


class _RemovalPlan:
    """Decides for each file of a tree."""

    def __init__(
        self,
        tree: Tree,
        references: References,
        jobs: list[ClusterJob] | None,
        paths: PathMap,
        age: float,
        now: float,
    ) -> None:
        self.tree = tree
        self.references = references
        self.jobs = jobs
        self.age = age
        self.now = now
        self.zones = {path: zone for path in tree.files if (zone := _zone(path)) is not None}
        for path, (family, _) in self.zones.items():
            known = references.families[family]
            known.newest = max(known.newest, tree.files[path].modified)
        self.owners: dict[str, list[ClusterJob]] = defaultdict(list)
        for job in jobs or ():
            below = {_place(tree, path, paths) for path in job.own}
            above = {posixpath.dirname(path) for path in below if path is not None}
            for family in references.families:
                name = self._name(family)
                if name == job.id or (not JOB_ID.fullmatch(name) and family in above):
                    self.owners[family].append(job)
        self.kept: Counter[tuple[str, str]] = Counter()
        self.kept_bytes: Counter[tuple[str, str]] = Counter()

    def result(self) -> Orphans:
        """Return the orphans, and what stays."""
        orphans = []
        for path, (family, part) in sorted(self.zones.items()):
            file = self.tree.files[path]
            name = posixpath.basename(path)
            if name in self.references.names or not self._is_flinks(family, part):
                continue
            kind = self._kind(path, family, part)
            if kind is None:
                continue
            reason = self._reason(file, family, part, kind)
            if reason:
                self.kept[family, reason] += 1
                self.kept_bytes[family, reason] += file.size
            else:
                orphans.append(Orphan(path, file.size, file.modified, kind, family))
        kept = [
            KeptFiles(family, reason, count, self.kept_bytes[family, reason])
            for (family, reason), count in sorted(self.kept.items())
        ]
        names = self.references.names
        named = sum(posixpath.basename(path) in names for path in self.tree.files)
        return Orphans(
            self.tree.directory.uri, tuple(orphans), tuple(kept), named, self.references.snapshots
        )

    def _is_flinks(self, family: str, part: str) -> bool:
        """Return whether a directory is one of Flink's, by more than the name of one part."""
        return (
            JOB_ID.fullmatch(self._name(family)) is not None
            or SAVEPOINT_DIRECTORY.fullmatch(part) is not None
            or bool(self.references.families[family].numbers)
        )

    def _name(self, family: str) -> str:
        return posixpath.basename(family or self.tree.directory.root)

    def _kind(self, path: str, family: str, part: str) -> str | None:
        """Return the class of a file; None if it is a `_metadata`."""
        if part in OF_DIRECTORY:
            return OF_DIRECTORY[part]
        directory = f"{family}/{part}".lstrip("/")
        metadata = f"{directory}/{METADATA_FILE}"
        if path == metadata:
            return None
        return LEFT if metadata in self.tree.files else HALF

    def _reason(self, file: ListedFile, directory: str, part: str, kind: str) -> str:
        """Return why a file stays; empty if it is an orphan."""
        try:
            relative_path(file.path, what="a file")
        except UnsafePathError:
            return "Flink gives no file such a name, and it is not touched: remove it by hand"
        family = self.references.families[directory]
        if self.references.unreadable:
            return f"it may be named by what can't be read: {self.references.unreadable[0]}"
        if copy := self.references.held_by_copy(file.path):
            return f"a copy that is not complete needs it: complete it, or remove {copy}"
        if not file.modified or file.modified > self.now - self.age:
            return f"it is not {_age_text(self.age)} old"
        if SAVEPOINT_DIRECTORY.fullmatch(part):
            return self._reason_of_savepoint(part)
        owners = self.owners[directory]
        is_fresh = family.newest > self.now - self.age
        if self.jobs is not None and not owners and is_fresh:
            return "a job writes there that the cluster does not know: ask the job's own cluster"
        running = [job for job in owners if job.runs]
        if not (running or (self.jobs is None and is_fresh)):
            return ""
        return self._reason_of_running(file, family, running, part, kind)

    def _reason_of_savepoint(self, part: str) -> str:
        started = SAVEPOINT_DIRECTORY.fullmatch(part)
        for job in self.jobs or ():
            if started and job.id.startswith(started[1]) and job.takes_savepoint:
                return "the job takes a savepoint"
        return ""

    def _reason_of_running(
        self, file: ListedFile, family: Family, running: list[ClusterJob], part: str, kind: str
    ) -> str:
        """Return why a file of a job that runs stays."""
        if kind in {TASK_OWNED, CHANGES}:
            return "the job runs, and may name it later"
        completed = max([*family.numbers, *(job.completed for job in running)], default=-1)
        if completed < 0 or not family.read:
            return "the job runs, and has no checkpoint that says what it has"
        if family.buffers:
            return "the job runs with a changelog or merged files, and may name it later"
        if kind == SHARED:
            below = file.path.partition("/shared/")[2] or file.path.removeprefix("shared/")
            if "/" in below:
                return "the job runs, and works with files in directories of `shared`"
            triggered = [job.triggered for job in running if job.triggered] or [family.written]
            if file.modified > min(triggered) - self.age:
                return f"it is not {_age_text(self.age)} older than the newest checkpoint"
            return ""
        number = checkpoint_number(part)
        if number is None or number >= completed or any(number in j.in_progress for j in running):
            return "the job runs, and has completed no later checkpoint"
        return ""


def _zone(path: str) -> tuple[str, str] | None:
    """Return the directory of a job, and the part of it, in which a file is."""
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1]):
        if (
            part in SHARED_DIRECTORIES
            or CHECKPOINT_DIRECTORY.fullmatch(part)
            or SAVEPOINT_DIRECTORY.fullmatch(part)
        ):
            return "/".join(parts[:depth]), part
    return None


def _age_text(seconds: float) -> str:
    return str(timedelta(seconds=seconds)).removesuffix(", 0:00:00")


# --------------------------------------------------------------------------- their deletion


def delete_orphans(location: str | os.PathLike[str], plan: Orphans) -> Orphans:
    """Delete the files of a plan; their names are written down before.

    Then the directory is listed again, and every snapshot read again: what has changed since it was
    planned stays, and what is named by now. Whoever was killed while deleting runs the same again:
    what is left is planned anew, and deleted.

    A copy that is being made beside it writes `COPYING`, and then looks for these names. So either
    it is seen here and keeps its files, or it sees here what it can't rely on.

    Args:
        location: The directory that was planned.
        plan: The plan.

    Returns:
        The plan, with the files that were deleted.

    Raises:
        SnapshotError: The directory can't be listed, or a file can't be deleted; those before it
            are.
        SnapshotError: Another process deletes there.
    """
    directory = Tree(location).directory
    before = _written_down(directory)
    if not (plan.files or before):
        return replace(plan, deleted=0)
    names = [{"path": each.path, "bytes": each.size} for each in plan.files]
    descriptor = _hold(directory, json.dumps({"version": 1, "files": names}).encode())
    try:
        tree = Tree(location)
        references, _ = _references(tree, location, None, PathMap())
        files = {file.path: file for file in plan.files if _is_as_planned(tree, references, file)}
        went_on = sum(path in files for path in before)
        paths = list(files)
        for start in range(0, len(paths), DELETED_AT_ONCE):
            directory.delete_files(paths[start : start + DELETED_AT_ONCE])
        directory.delete(JOURNAL)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return replace(plan, files=tuple(files.values()), deleted=len(files), went_on=went_on)


def _hold(directory: ConfinedDirectory, names: bytes) -> int:
    """Write the names of files that are to be deleted, held while this process deletes them.

    On a disk, those of a process that was killed make way.

    Raises:
        SnapshotError: Another process deletes there, or may do so.
    """
    descriptor = directory.hold(JOURNAL, names)
    if descriptor is None and directory.local and directory.remove_left_part(JOURNAL):
        descriptor = directory.hold(JOURNAL, names)
    if descriptor is None:
        raise SnapshotError(
            "another process deletes files there" if directory.local
            else "another process deletes files there, or was killed while it did",
            place=directory.full(JOURNAL),
            remedy="wait for it" if directory.local
            else "wait for it; if none runs any more, remove this file, and run it again",
        )  # fmt: skip
    return descriptor


def refuse_planned(directory: Directory, files: AbstractSet[str]) -> None:
    """Refuse to rely on files of a directory that are being deleted, there or from above it.

    Args:
        directory: The directory.
        files: The paths of the files below it.

    Raises:
        SnapshotError: One of them is to be deleted, or it can't be told.
    """
    if directory.local:  # the directory that is named elsewhere may have links above it
        directory = Directory(os.path.realpath(directory.root))
    above, below, planned = directory, "", _written_down(directory)
    while True:
        for path in planned:
            if not path or (path.startswith(below) and path[len(below) :] in files):
                raise SnapshotError(
                    f"{path or 'a file'} is being deleted: `orphans` planned it before it was"
                    " needed",
                    place=above.full(JOURNAL),
                    remedy="run the copy again when that is done; if it was killed, run `orphans"
                    " --yes` there again, which keeps what the copy needs",
                )
        try:
            last, above = above, above.child("..")
        except UnsafePathError:  # it is a bucket, or the root of a cluster
            return
        if above.root in {last.root, "", "."}:
            return
        below = f"{posixpath.basename(last.root)}/{below}"
        try:
            planned = _written_down(above)
        except (StateError, OSError):  # files of other users may be unreadable
            planned = []


def _is_as_planned(tree: Tree, references: References, file: Orphan) -> bool:
    """Return whether a file is the one that was planned, and no snapshot has come for it."""
    now = tree.files.get(file.path)
    if now is None or (now.size, now.modified) != (file.size, file.time):
        return False
    if references.unreadable or references.held_by_copy(file.path):
        return False
    if posixpath.basename(file.path) in references.names:
        return False
    if file.kind != HALF:
        return True
    part = file.path.removeprefix(f"{file.job}/").partition("/")[0]
    return f"{file.job}/{part}/{METADATA_FILE}".lstrip("/") not in tree.files


def _written_down(directory: Directory) -> list[str]:
    """Return the names that an earlier deletion wrote down, which is believed in no other way."""
    try:
        content: Mapping[str, Any] = json.loads(directory.read(JOURNAL))
        return [str(each["path"]) for each in content["files"]]
    except MissingFileError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError):
        return [""]  # it was cut off, and is written anew


def check_request(is_asked: bool, *, no_cluster: bool, older_than: timedelta | None) -> None:
    """Check that jobs are asked, or that somebody says that files of an age are not needed.

    Raises:
        DeclarationError: Neither is given, or the age is not valid.
    """
    if older_than is not None and older_than < timedelta(0):
        raise DeclarationError("no file is younger than the present: --older-than is negative")
    if is_asked or (no_cluster and older_than is not None):
        return
    problem = "--no-cluster without an age" if no_cluster else "no cluster to ask for its jobs"
    raise DeclarationError(
        f"{problem}: a job may need files that no checkpoint names yet",
        remedy="name its cluster with --flink, or say --no-cluster --older-than AGE if none needs"
        " files that old",
    )
