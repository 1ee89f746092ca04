"""Find every savepoint and checkpoint below a directory, and say which can be restored.

A tree is listed once, and each `_metadata` is read once: whether a file exists, and how long it is,
follows from the listing. A submit script asks before each start, and a store bills each request.

Flink looks for a file where a handle says. So a checkpoint that was moved is not restorable, though
all its files are there; savepoints, whose handles are relative, are.

A file that lies outside of the directory, such as in the `shared` of another job or in another
bucket, is not looked up, as only what was named is read: the checkpoint is neither sound nor
damaged. If files of the same job were found inside, though, the job was moved, and the file is
missing.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import accumulate, islice

import numpy as np

from statelake.pipelines.find.path_map import PathMap
from statelake.pipelines.requests.find import FindSnapshots
from statelake.pipelines.requests.request import takes
from statelake.state_core.errors import (
    MissingFileError,
    StateError,
    UnreachableFileError,
    UnsafePathError,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    check_properties,
    kind_and_format,
    read_metadata,
    subtask_bytes,
)
from statelake.state_core.formats.metadata.state_files import (
    CHECKPOINT_DIRECTORY,
    METADATA_FILE,
    job_directory,
    place_of,
)
from statelake.state_core.formats.metadata.stream_map import keyed_handles, logs_of, streams_of
from statelake.state_core.model.handles import (
    ChangelogHandle,
    FileHandle,
    IncrementalHandle,
    NestedKeyGroupsHandle,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
    keyed_bytes,
)
from statelake.state_core.printable import (
    JsonFields,
    Printed,
    Table,
    bytes_text,
    kind_text,
    printable,
    without_keys,
)

RESTORABLE, MOVED, INCOMPLETE, DAMAGED = "restorable", "moved", "incomplete", "damaged"
ELSEWHERE = "elsewhere"
JOB_ID = re.compile(r"[0-9a-f]{32}")
PLAIN_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+")
SAVEPOINT_DIRECTORY = re.compile(r"savepoint-([0-9a-f]{6})-[0-9a-f]{12}")
READS_AT_ONCE = {True: 4, False: 32}  # by whether files are local: a store answers many at once
NEWEST_AT_ONCE = 8
SHOWN = 200  # snapshots, to people
SHOWN_PROBLEMS = 3

Progress = Callable[[int, int], None]


class Tree:
    """The files below a directory, from one listing.

    Args:
        location: The directory, a path or URI. Of a checkpoint, the directory above it is listed,
            as its shared files are there.

    Attributes:
        directory: The directory that was listed.
        within: The path of the given directory below it; empty if it is the same.
        files: The files by their paths below it.
        links: The paths of symbolic links, which are not followed.
        unread: What is called `_metadata` and is no file, such as a link: by its path, what it is.

    Raises:
        MissingFileError: There is no such directory.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        given, self.named = Directory(location), self.listed_directory(location)
        is_above = given.root != self.named.root
        self.within = posixpath.basename(given.root) if is_above else ""
        self.directory = self.named.confined()
        listed = list(self.directory.listed())
        if not listed and not given.exists():
            raise MissingFileError(
                "no such directory", place=given.full(), remedy="give the directory of checkpoints"
            )
        self.files = {file.path: file for file in listed if not (file.is_link or file.is_other)}
        self.links = [file.path for file in listed if file.is_link]
        self.unread = {
            file.path: "a link, and links are not followed" if file.is_link else "no regular file"
            for file in listed
            if (file.is_link or file.is_other) and posixpath.basename(file.path) == METADATA_FILE
        }
        roots = {self.directory.root}
        if self.directory.local:
            roots.add(os.path.realpath(self.directory.root))
        self._prefixes = tuple(f"{root.rstrip('/')}/" for root in roots)

    @staticmethod
    def listed_directory(location: str | os.PathLike[str]) -> Directory:
        """Return the directory that is listed for a location."""
        given = Directory(location)
        is_checkpoint = CHECKPOINT_DIRECTORY.fullmatch(posixpath.basename(given.root))
        return given.child("..") if is_checkpoint else given

    def led_to(self, link: str) -> str | None:
        """Return the path below the directory to which a link leads now, None if it leads out."""
        place = f"{os.path.realpath(f'{self.directory.root}/{link}')}/"
        paths = (place[len(each) : -1] for each in self._prefixes if place.startswith(each))
        return next(paths, None)

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The paths of files by their names."""
        named: dict[str, list[str]] = {}
        for path in self.files:
            named.setdefault(posixpath.basename(path), []).append(path)
        return named

    def below(self, uri: str) -> str | None:
        """Return the path below the directory that a URI names, None if it leads elsewhere."""
        place = place_of(uri, self.directory)
        for prefix in self._prefixes:
            if place.startswith(prefix):
                return place[len(prefix) :]
        return None

    def read(self, path: str) -> bytes:
        """Return the content of a listed file."""
        return self.directory.read_listed(path, self.files[path].size)

    def first_byte(self, path: str) -> int:
        """Return the first byte of a listed file, -1 if it is empty."""
        if not self.files[path].size:
            return -1
        if self.directory.is_object_store:
            return self.directory.read_listed(path, 1)[0]
        first = np.empty(1, np.uint8)
        self.directory.read_into(path, 0, first)
        return int(first[0])

    def location(self, path: str) -> str:
        """Return the location that opens a directory below, in any process."""
        return self.named.child(path).given_location if path else self.named.given_location


@dataclass(frozen=True)
class FoundSnapshot(JsonFields):
    """A savepoint or checkpoint of a scan.

    Attributes:
        path: Its directory, below the one that was scanned.
        location: Its directory: a path, or a URI without options.
        state: `restorable`: `_metadata` can be read, and every handle leads to a file of its
            length, where Flink looks for it. `moved`: every file is there, but not where the
            handles say. `elsewhere`: nothing is wrong with what was read, and some of it lies
            outside, or can't be read for want of access. `incomplete`: no `_metadata`. `damaged`:
            anything else.
        time: When `_metadata` was written, or the last file of an incomplete one.
        problems: Why it is not restorable: the first reasons.
        more_problems: How many others there are.
        kind: `savepoint` or `checkpoint`; empty if unknown.
        format: `canonical`, `native` or `checkpoint`; empty if unknown.
        traits: `incremental`, `changelog`, `file-merged`, `unaligned`.
        job: The id of the job, or its first 6 digits in a savepoint's name; empty if unknown.
        checkpoint_id: Flink's id of it; None if unknown.
        bytes: The bytes of its state.
        incremental_bytes: Those that it wrote itself.
        parallelism: The largest of its operators'.
        operators: The number of operators.
        files: The number of files that its handles name.
        shared_files: How many of them others below name, too; None if only the newest was wanted.
        shared_bytes: Their bytes.
    """

    path: str
    location: str
    state: str
    time: datetime
    problems: tuple[str, ...] = ()
    more_problems: int = 0
    kind: str = ""
    format: str = ""
    traits: tuple[str, ...] = ()
    job: str = ""
    checkpoint_id: int | None = None
    bytes: int = 0
    incremental_bytes: int = 0
    parallelism: int = 0
    operators: int = 0
    files: int = 0
    shared_files: int | None = None
    shared_bytes: int | None = None
    named: AbstractSet[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def restorable(self) -> bool:
        """Return whether Flink can start from it."""
        return self.state == RESTORABLE

    @property
    def reason(self) -> str:
        """Return why it is not restorable, in one line."""
        shown = "; ".join(self.problems)
        return f"{shown}; and {self.more_problems:,} more" if self.more_problems else shown


@dataclass(frozen=True)
class Scan(Printed):
    """The snapshots below a directory.

    Attributes:
        location: The directory.
        snapshots: The snapshots, the newest first.
        skipped: Those that are not restorable, where only sound ones were wanted; of these only
            the newer ones, where only the newest was.
    """

    location: str
    snapshots: tuple[FoundSnapshot, ...]
    skipped: tuple[FoundSnapshot, ...] = ()

    @property
    def newest(self) -> FoundSnapshot | None:
        """Return the newest of them; None without any."""
        return self.snapshots[0] if self.snapshots else None

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        counts = Counter(each.state for each in self.snapshots)
        states = ", ".join(f"{counts[state]:,} {state}" for state in counts)
        jobs = len({each.job for each in self.snapshots if each.job})
        text = f"{len(self.snapshots):,} snapshots of {jobs:,} jobs" if self.snapshots else "none"
        yield f"{text}: {states}" if states else text
        if not self.snapshots:
            return
        columns = (
            "<snapshot", "<kind", ">id", "<written", ">state", ">wrote", ">shared", ">operators",
            "<is",
        )  # fmt: skip
        shown = self.snapshots[:SHOWN]
        rows = [
            (each.path or ".", _kind(each),
             "" if each.checkpoint_id is None else str(each.checkpoint_id),
             f"{each.time:%Y-%m-%d %H:%M}", *_sizes(each), each.state)
            for each in shown
        ]  # fmt: skip
        yield Table("", columns, rows, len(self.snapshots) - len(rows))
        for each in (*self.skipped, *shown):
            if each.problems:
                yield printable(f"{each.path or '.'} is {each.state}: {each.reason}")


def _kind(snapshot: FoundSnapshot) -> str:
    if snapshot.kind == "checkpoint" and snapshot.traits:
        return ", ".join(snapshot.traits)
    return kind_text(snapshot.format, snapshot.kind)


def _sizes(snapshot: FoundSnapshot) -> tuple[str, ...]:
    if not snapshot.operators:
        return ("",) * 4
    shared = "" if snapshot.shared_bytes is None else bytes_text(snapshot.shared_bytes)
    return (
        bytes_text(snapshot.bytes),
        bytes_text(snapshot.incremental_bytes),
        shared,
        f"{snapshot.operators} (p{snapshot.parallelism})",
    )


@takes(FindSnapshots)
def scan(request: FindSnapshots) -> Scan:
    """Find every savepoint and checkpoint below a directory, the newest first.

    Raises:
        SnapshotError: The directory can't be listed.
    """
    tree, paths = Tree(request.directory), PathMap.parse(request.path_map)
    latest, progress = request.latest, request.progress
    wanted = [
        each for each in candidates(tree)
        if each.job.startswith(request.job_id) and _is_within(each.path, tree.within)
    ]  # fmt: skip

    snapshots: list[FoundSnapshot] = []
    skipped: list[FoundSnapshot] = []
    listed = [path for each in wanted if (path := _metadata_of(each)) in tree.files]
    contents = read_ahead(tree, listed, (1 if request.deep else NEWEST_AT_ONCE) if latest else None)
    with closing(contents):
        for candidate in wanted:
            content = next(contents) if _metadata_of(candidate) in tree.files else b""
            each = examine(tree, candidate, content, paths)
            del content
            each = _read_whole(tree, each) if request.deep else each
            (snapshots if each.restorable or not request.sound else skipped).append(each)
            if progress is not None:
                progress(len(snapshots) + len(skipped), len(wanted))
            if latest and snapshots:
                return Scan(tree.directory.uri, tuple(snapshots), tuple(skipped))
    shared = _with_shared(tree, [*snapshots, *skipped], snapshots)
    return Scan(tree.directory.uri, tuple(shared), tuple(skipped))


def read_ahead(
    tree: Tree, paths: Sequence[str], most: int | None = None
) -> Generator[bytes | StateError, None, None]:
    """Yield the contents of listed files, or why one can't be read, in their order.

    Threads only read, some files ahead: what is done with contents takes longer, and the thread
    that does it is the one that hears when the command is to end. Nobody waits for the others then.

    Args:
        tree: Has the files.
        paths: Their paths.
        most: How many are read at once; by default as many as disks or stores like.
    """

    def read(path: str) -> bytes | StateError:
        try:
            return tree.read(path)
        except StateError as error:
            return error

    most = most or READS_AT_ONCE[tree.directory.local]
    left = iter(paths)
    pool = ThreadPoolExecutor(most, "statelake-read")
    try:
        ahead = deque(pool.submit(read, path) for path in islice(left, most))
        while ahead:
            content = ahead.popleft().result()
            ahead.extend(pool.submit(read, path) for path in islice(left, 1))
            yield content
            del content
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _metadata_of(snapshot: FoundSnapshot) -> str:
    return _below(snapshot.path, METADATA_FILE)


def _below(directory: str, name: str) -> str:
    """Return a path to look up in the listing; no file is opened by one that is not in it."""
    return f"{directory}/{name}" if directory else name


def _is_within(path: str, directory: str) -> bool:
    return not directory or path == directory or path.startswith(f"{directory}/")


# --------------------------------------------------------------------------- which there are


def candidates(tree: Tree) -> list[FoundSnapshot]:
    """Return the snapshots of a tree by the names of its files, unread, the newest first.

    Within the directory of a job, the order is that of the checkpoints' ids: the time of a
    `_metadata` that was copied is too late. A checkpoint is at most as old as any later one.
    """
    complete = {
        posixpath.dirname(path): file
        for path, file in tree.files.items()
        if posixpath.basename(path) == METADATA_FILE
    }
    halves: dict[str, float] = {}
    unread: dict[str, str] = {}
    for path, file in tree.files.items():
        directory = snapshot_directory_of(path)
        if directory is not None and directory not in complete:
            halves[directory] = max(halves.get(directory, 0.0), file.modified)
            if f"{directory}/{METADATA_FILE}" in tree.unread:
                unread[directory] = tree.unread[f"{directory}/{METADATA_FILE}"]
    times = {path: file.modified for path, file in complete.items()} | halves
    families: dict[str, list[tuple[int, str]]] = {}
    for path in times:
        above, _, name = path.rpartition("/")
        number = checkpoint_number(name)
        if number is not None:
            families.setdefault(above, []).append((number, path))
    order = {path: (time, -1) for path, time in times.items()}
    for family in families.values():
        family.sort(reverse=True)
        earliest = accumulate((times[path] for _, path in family), min)
        for (number, path), time in zip(family, earliest, strict=True):
            order[path] = (time, number)
    jobs = {part for path in tree.files for part in path.split("/") if JOB_ID.fullmatch(part)}
    listed = sorted(times, key=lambda path: (*order[path], path), reverse=True)
    return [
        FoundSnapshot(
            path,
            f"{tree.directory.uri}/{path}".rstrip("/"),
            INCOMPLETE if path in halves and path not in unread else DAMAGED,
            datetime.fromtimestamp(times[path], timezone.utc),
            (f"`_metadata` is {unread[path]}",)
            if path in unread
            else ("it has no `_metadata`: it is being written, or one that failed left it",)
            if path in halves
            else (),
            job=_job_of(tree, path, jobs),
            checkpoint_id=checkpoint_number(posixpath.basename(path)),
        )
        for path in listed
    ]


def snapshot_directory_of(path: str) -> str | None:
    """Return the directory of a checkpoint or savepoint, by its name, that a file is in."""
    parts = path.split("/")
    for depth, part in enumerate(parts[:-1], 1):
        if CHECKPOINT_DIRECTORY.fullmatch(part) or SAVEPOINT_DIRECTORY.fullmatch(part):
            return "/".join(parts[:depth])
    return None


def checkpoint_number(name: str) -> int | None:
    """Return the number in a name like `chk-42`, None if it is another name."""
    return int(name[4:]) if CHECKPOINT_DIRECTORY.fullmatch(name) and name[4:].isascii() else None


def _job_of(tree: Tree, path: str, jobs: set[str]) -> str:
    parts = [*tree.directory.root.split("/"), *path.split("/")]
    above = [part for part in parts if JOB_ID.fullmatch(part)]
    if above:
        return above[-1]
    savepoint = SAVEPOINT_DIRECTORY.fullmatch(parts[-1])
    if savepoint is None:
        return ""
    known = [job for job in jobs if job.startswith(savepoint[1])]
    return known[0] if len(known) == 1 else savepoint[1]


# --------------------------------------------------------------------------- what they are


def examine(
    tree: Tree, candidate: FoundSnapshot, content: bytes | StateError, paths: PathMap
) -> FoundSnapshot:
    """Return what a snapshot is by the content of its `_metadata`, and by the listing."""
    if candidate.problems:
        return candidate
    try:
        if isinstance(content, StateError):
            raise content
        metadata = read_metadata(content, tree.directory.full(_metadata_of(candidate)))
        check_properties(metadata)
    except StateError as error:
        state = ELSEWHERE if isinstance(error, UnreachableFileError) else candidate.state
        return replace(candidate, state=state, problems=(f"`_metadata`: {error.problem}",))
    kind, format_name = kind_and_format(metadata)
    files = _Files(tree, candidate.path, paths)
    logs = logs_of(metadata)
    streams = streams_of(metadata)
    for stream in streams:
        files.look_up(stream, is_log=bool(logs) and stream in logs)
    files.settle()
    size = sum(_state_bytes(operator) for operator in metadata.operators)
    return replace(
        candidate,
        state=(
            DAMAGED
            if files.problems
            else ELSEWHERE
            if files.outside or files.refused
            else MOVED
            if files.moved
            else RESTORABLE
        ),
        problems=tuple(files.messages()),
        more_problems=files.more_problems,
        kind=kind,
        format=format_name,
        traits=_traits(metadata, streams, kind),
        checkpoint_id=metadata.checkpoint_id,
        bytes=size,
        incremental_bytes=max(0, size - sum(map(_unmanaged_bytes, metadata.operators))),
        parallelism=max((each.parallelism for each in metadata.operators), default=0),
        operators=len(metadata.operators),
        files=len(files.needed),
        named=files.present,
    )


class _Files:
    """Looks up the files of one snapshot.

    Attributes:
        needed: The length of each file that handles name, by what they call it.
        present: The paths of files that were found.
        problems: The first files that are missing or too short.
        more_problems: The number of others.
        moved: The number of files that are not where handles say.
        outside: The names of the files that lie outside of the tree.
        refused: Why files of the tree can't be read.
    """

    def __init__(self, tree: Tree, path: str, paths: PathMap) -> None:
        self.tree = tree
        self.path = path
        self.paths = paths
        self.needed: dict[str, int] = {}
        self.present: set[str] = set()
        self.problems: list[str] = []
        self.more_problems = 0
        self.moved = 0
        self.outside: list[str] = []
        self.refused: list[str] = []
        self._first_moved = ("", "")
        self._moved_from: set[str] = set()
        self._places: dict[str, str | None] = {}

    def look_up(self, stream: StreamHandle, *, is_log: bool) -> None:
        """Look up the file of a handle, once for those of one length."""
        if isinstance(stream, NestedKeyGroupsHandle):
            if stream.stream is not None:
                self.look_up(stream.stream, is_log=is_log)
            return
        length = stream.size
        if isinstance(stream, FileHandle):
            name = stream.uri
        elif isinstance(stream, SegmentHandle):
            name, length = stream.uri, stream.start + length
        elif isinstance(stream, RelativeHandle):
            name = stream.path
        else:
            return
        length += is_log  # a log has one byte before what its handle counts
        if length <= self.needed.get(name, -1):
            return
        self.needed[name] = length
        is_relative = isinstance(stream, RelativeHandle)
        there = _below(self.path, name) if is_relative else self._there(name)
        if there is not None and there in self.tree.files:
            self._measure(there, length, is_log=is_log)
            return
        for other in self.tree.by_name.get(name.rpartition("/")[2], ()):
            if self.tree.files[other].size >= length:
                self.present.add(other)
                self._first_moved = self._first_moved if self.moved else (other, name)
                self._moved_from.add(job_directory(name))
                self.moved += 1
                return
        if there is None:
            self.outside.append(name)
        else:
            self._note(f"{there} is missing")

    def settle(self) -> None:
        """Tell what lies outside of the tree from what a job that was moved has lost."""
        lost = [
            name for name in self.outside
            if job_directory(name) in self._moved_from
            or posixpath.basename(name) in ("", ".", "..")
        ]  # fmt: skip
        for name in lost:
            self._note(f"{without_keys(name)} is not below {self.tree.directory.uri}")
        if lost:
            gone = set(lost)
            self.outside = [name for name in self.outside if name not in gone]

    def _note(self, problem: str) -> None:
        if len(self.problems) == SHOWN_PROBLEMS:
            self.more_problems += 1
        else:
            self.problems.append(problem)

    def messages(self) -> Iterator[str]:
        """Yield what is wrong, and what could not be looked up."""
        yield from self.problems
        yield from self.refused[:SHOWN_PROBLEMS]
        if self.outside:
            directories: dict[str, list[str]] = {}
            for name in self.outside:
                directories.setdefault(posixpath.dirname(name), []).append(name)
            shown = [
                without_keys(f"{directory} ({len(names):,} files)" if names[1:] else names[0])
                for directory, names in islice(directories.items(), SHOWN_PROBLEMS)
            ]
            left = len(directories) - len(shown)
            more = f" and {left:,} more directories" if left else ""
            yield (
                f"it needs {', '.join(shown)}{more}, which is not below"
                f" {self.tree.directory.uri}, and was not looked for"
            )
        if self.moved and not self.problems:
            here, there = self._first_moved
            many = f" ({self.moved:,} files)" if self.moved > 1 else ""
            yield (
                f"Flink looks for {there}, which is {here} here{many}: move it back, name its"
                " directory with --path-map, or let `statelake copy` write one that leads there"
            )

    def _there(self, uri: str) -> str | None:
        """Return where a URI is in the tree, None if elsewhere: by one look for each directory."""
        above, slash, name = uri.rpartition("/")
        if not (slash and PLAIN_NAME.fullmatch(name)):
            return self._looked_up(uri)
        if above not in self._places:
            there = self._looked_up(uri)
            if there is not None and posixpath.basename(there) != name:
                return there
            self._places[above] = there and there[: -len(name)]
        place = self._places[above]
        return None if place is None else place + name

    def _looked_up(self, uri: str) -> str | None:
        try:
            return self.tree.below(self.paths.here(uri))
        except UnsafePathError:
            return None

    def _measure(self, path: str, length: int, *, is_log: bool) -> None:
        size = self.tree.files[path].size
        self.present.add(path)
        if size >= length:
            return
        try:
            if is_log and self.tree.first_byte(path) == 1:
                return  # compressed, and handles count the bytes before
        except UnreachableFileError as error:
            self.refused.append(f"{path}: {error.problem}")
            return
        except StateError as error:
            self._note(f"{path}: {error.problem}")
            return
        self._note(f"{path} has {size:,} bytes, and `_metadata` says {length:,}")


def _traits(
    metadata: CheckpointMetadata, streams: Iterable[StreamHandle], kind: str
) -> tuple[str, ...]:
    kinds = {type(handle) for handle in keyed_handles(metadata)}
    is_changelog = ChangelogHandle in kinds
    subtasks = [
        subtask for operator in metadata.operators for subtask in (operator.subtasks or {}).values()
    ]
    traits = {
        "incremental": kind != "savepoint" and IncrementalHandle in kinds and not is_changelog,
        "changelog": is_changelog,
        "file-merged": any(isinstance(each, SegmentHandle) for each in streams),
        "unaligned": any(subtask.inputs or subtask.outputs for subtask in subtasks),
    }
    return tuple(name for name, has in traits.items() if has)


def _state_bytes(operator: OperatorMetadata) -> int:
    coordinator = operator.coordinator.size if operator.coordinator is not None else 0
    return coordinator + sum(map(subtask_bytes, (operator.subtasks or {}).values()))


def _unmanaged_bytes(operator: OperatorMetadata) -> int:
    """Return the bytes of earlier checkpoints, which Flink's checkpointed size is without."""
    carried = 0
    for subtask in (operator.subtasks or {}).values():
        handle = subtask.managed_keyed
        if isinstance(handle, IncrementalHandle | ChangelogHandle):
            written = handle.checkpointed_size
            carried += keyed_bytes(handle) - written if written >= 0 else 0
    return min(carried, _state_bytes(operator)) if carried else 0


def _with_shared(
    tree: Tree, listed: Iterable[FoundSnapshot], wanted: Iterable[FoundSnapshot]
) -> list[FoundSnapshot]:
    """Return the wanted ones of the listed snapshots with what they share with any of these."""
    users = Counter(path for each in listed for path in each.named)
    counted = []
    for each in wanted:
        shared = [path for path in each.named if users[path] > 1]
        size = sum(tree.files[path].size for path in shared)
        counted.append(replace(each, shared_files=len(shared), shared_bytes=size))
    return counted


def _read_whole(tree: Tree, snapshot: FoundSnapshot) -> FoundSnapshot:
    """Read every byte of a snapshot, and note its faults."""
    if snapshot.state not in (RESTORABLE, MOVED):
        return snapshot
    from statelake.state_core.integrity import check_snapshot  # noqa: PLC0415 - reads state

    report = check_snapshot(tree.location(snapshot.path), allow_external=[tree.location("")])
    if report.sound:
        return snapshot
    wrong = [fault for fault in report.faults if not fault.unreachable]
    shown = wrong or report.faults
    faults = [f"{fault.where}: {fault.problem}" for fault in shown[:SHOWN_PROBLEMS]]
    return replace(
        snapshot,
        state=DAMAGED if wrong else ELSEWHERE,
        problems=tuple(faults),
        more_problems=len(shown) - len(faults),
    )
