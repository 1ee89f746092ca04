"""Check a whole lake: every byte of its logs, its files of rows, and its carried files.

Files are compared with what they say about themselves: a seal, the digest of an entry, the digest
in a name. So a damaged file is named even if the catalog can't be read. Files without a seal, which
earlier versions of statelake or other engines wrote, are read; if a snapshot has them, their rows
are compared with the catalog's fingerprints.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.deletions import file_sizes, is_named, named_files
from statelake.pipelines.lake.catalog.unmanaged_state import UNMANAGED_DIRECTORY, digest_of
from statelake.pipelines.lake.erase.audit_records import audit_records, broken_record
from statelake.pipelines.lake.tables.log_entries import LOG_DIRECTORY, check_entry
from statelake.pipelines.lake.tables.names import (
    ERASURE_RECORDS,
    digest_in,
    is_edited_file,
    is_unmanaged_name,
    version_in,
)
from statelake.pipelines.lake.tables.parquet_bounds import open_parquet
from statelake.pipelines.lake.tables.parquet_seals import check_whole
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, TableRecord
from statelake.pipelines.lake.tables.table_log import LAST_CHECKPOINT, spare_checkpoints
from statelake.pipelines.lake.tables.table_rows import has_fingerprint, table_rows
from statelake.pipelines.lake.tables.tables import files_of
from statelake.state_core.errors import MissingFileError, StateError
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.files.filesystem import Directory, ListedFile
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.printable import Printed, bytes_text, printable

READERS = 8
NOT_THERE = "it is not there"  # which is damage only if a snapshot has it
Progress = Callable[[int, int], None]
_LOG_FILE = re.compile(rf"(?:.*/)?{LOG_DIRECTORY}/(\d{{20}}\.json|.*\.parquet|_last_checkpoint)")
_CHECKPOINT = re.compile(rf"(?:.*/)?{LOG_DIRECTORY}/(.*\.parquet|_last_checkpoint)")
_BACKUP = "a backup or a copy of the lake"


@dataclass(frozen=True)
class DamagedFile:
    """A file of a lake that is damaged, or missing.

    Attributes:
        path: Its path below the lake.
        problem: What is wrong with it.
        snapshots: The snapshots that have it, as `job/snapshot`; empty if it is of the catalog, or
            if the catalog can't be read.
        sources: Where its content can be had again.
    """

    path: str
    problem: str
    snapshots: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LakeReport(Printed):
    """The result of the check of a lake.

    Attributes:
        files: The number of files that were checked, in this run or the one that it resumed.
        size: Their bytes.
        without_digest: The number of files that could only be read, since they have no digest and
            no fingerprint: they are readable, but may have other values than were written.
        damaged: The damaged and missing files.
    """

    JSON = ("sound", "files", "bytes=size", "without_digest", "damaged")

    files: int
    size: int
    without_digest: int
    damaged: list[DamagedFile]

    @property
    def sound(self) -> bool:
        """Return whether nothing is damaged."""
        return not self.damaged

    @property
    def verdict(self) -> str:
        """The first words of the report."""
        return f"{len(self.damaged)} damaged" if self.damaged else "sound"

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        yield f"{self.verdict}: {self.files} files, {bytes_text(self.size)}"
        if self.without_digest:
            yield f"  {self.without_digest} files have no digest, and could only be read"
        for file in self.damaged:
            yield ""
            yield f"{printable(file.path)}: {printable(file.problem)}"
            of = ", ".join(map(printable, file.snapshots)) or "no snapshot that is known"
            yield f"    of {of}"
            for source in file.sources:
                yield f"    -> {printable(source)}"


def check_lake(
    location: str, resume: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> LakeReport:
    """Check all files of a lake.

    Nothing is changed, but that a damaged checkpoint of a log is deleted, as by whoever reads.

    Args:
        location: The lake.
        resume: A local file that says which files were found whole until a run was stopped. It is
            written if it does not exist, and deleted at the end.
        progress: Called with (done, total) bytes after each file.

    Raises:
        NotALakeError: There is no lake.
    """
    return _LakeCheck(Catalog(location), resume).run(progress)


class _LakeCheck:
    def __init__(self, lake: Catalog, resume: str | os.PathLike[str] | None) -> None:
        self.lake = lake
        self.directory: Directory = lake.directory
        self.journal = Path(resume) if resume else None
        self.problems: dict[str, str] = {}
        self.unsealed: set[str] = set()
        self.records: list[SnapshotRecord] = []
        self.has_all_records = False

    def run(self, progress: Progress | None) -> LakeReport:
        """Check all files, and find the snapshots of those that are damaged."""
        files = sorted(
            (file for file in self.directory.listed() if not file.is_link and _is_checked(file)),
            key=lambda file: file.path,
        )
        self._check_files(files, progress)
        present = {
            file.path: file.size for file in files if self.problems.get(file.path) != NOT_THERE
        }
        self.problems = {path: what for path, what in self.problems.items() if path in present}
        self._check_logs(present)
        # behind the files, since whoever opens a table deletes a damaged checkpoint of its log
        self._read_catalog()
        self._leave_out_unfinished()
        self._check_recorded(present)
        with_fingerprint = self._check_unsealed()
        self._check_records()
        if self.journal is not None:
            self.journal.unlink(missing_ok=True)
        return LakeReport(
            len(files),
            sum(file.size for file in files),
            len(self.unsealed - with_fingerprint - self.problems.keys()),
            [self._described(path, present) for path in sorted(self.problems)],
        )

    def _read_catalog(self) -> None:
        try:
            self.lake.version()
            self.records, bad = self.lake.records()
        except StateError as error:
            if not self.directory.names(f"snapshots/{LOG_DIRECTORY}"):
                raise
            self._tell(error)
            return
        for row in bad:
            self._tell(row.error)
        self.has_all_records = not bad

    def _leave_out_unfinished(self) -> None:
        """Forget files that are no damage: a command is writing them, or was killed as it did.

        No log names them, and `lake clean` deletes them; or one names them by now, and they are
        whole.
        """
        for path in [path for path in self.problems if path.endswith(".parquet")]:
            if f"/{LOG_DIRECTORY}/" in path:
                continue
            if self._is_nobodys(path) or not self._fault(path)[0]:
                del self.problems[path]

    def _is_nobodys(self, path: str) -> bool:
        """Return whether neither a snapshot nor a log names a file; False if it is not known."""
        place, log = posixpath.dirname(path), ""
        while place and not self.directory.exists(log := f"{place}/{LOG_DIRECTORY}"):
            place = posixpath.dirname(place)
        if not (place and self.has_all_records) or any(
            each.startswith(f"{log}/") for each in self.problems
        ):
            return False
        table, name = self.lake.table(place), path[len(place) + 1 :]
        try:
            if (latest := table.open()) is None or name in named_files(self.records, place):
                return False
            if is_edited_file(name) and (version := version_in(name)):
                return version > latest.version() or not is_named(table, version, name)
            return name not in {file.path for file in files_of(latest)}
        except StateError:
            return False

    def _tell(self, error: StateError) -> None:
        """Add the problem of an error, at the place that it names."""
        place = error.place.partition(", ")[0].removeprefix(self.directory.uri).strip("/")
        self.problems.setdefault(place or "snapshots", error.problem)

    def _check_files(self, files: list[ListedFile], progress: Progress | None) -> None:
        """Compare each file with what it says about itself, several at once."""
        known = self._found_whole()
        total = sum(file.size for file in files)
        done = 0

        def checked(file: ListedFile) -> tuple[ListedFile, str | None, bool]:
            key = json.dumps([file.path, file.size, file.modified])
            if key in known:
                return file, None, known[key]
            problem, has_digest = self._fault(file.path)
            return file, problem, has_digest

        with Workers(READERS) as pool:
            for file, problem, has_digest in pool.map(checked, files):
                if problem:
                    self.problems.setdefault(file.path, problem)
                elif not has_digest:
                    self.unsealed.add(file.path)
                if self.journal is not None and not problem:
                    with self.journal.open("a", encoding="utf-8") as out:
                        print(
                            json.dumps([file.path, file.size, file.modified]), int(has_digest),
                            file=out, sep="\t",
                        )  # fmt: skip
                done += file.size
                if progress is not None:
                    progress(done, total)

    def _found_whole(self) -> dict[str, bool]:
        """Return the files that were found whole before this run, and whether they have digests."""
        if self.journal is None or not self.journal.is_file():
            return {}
        lines = self.journal.read_text("utf-8").splitlines()
        parts = (line.rpartition("\t") for line in lines)
        return {key: flag == "1" for key, _, flag in parts if flag in ("0", "1")}

    def _fault(self, path: str) -> tuple[str, bool]:
        """Return what is wrong with a file, empty if nothing is; and whether it has a digest."""
        name = posixpath.basename(path)
        try:
            if path.startswith(f"{UNMANAGED_DIRECTORY}/"):
                same = digest_of(self.directory.source(path)) == digest_in(name)
                return "" if same else "it is not of the digest in its name", True
            if name.endswith(".parquet"):
                with self.directory.open_input(path) as file:
                    if check_whole(file):
                        return "", True
                    opened = open_parquet(file, path)
                    for _ in opened.iter_batches():
                        pass
                return "", False
            data = self.directory.read(path)
            if name.endswith(".json"):
                check_entry(data, path)
            else:
                return self._fault_of_last(posixpath.dirname(path), json.loads(data)), True
        except MissingFileError:
            return NOT_THERE, True
        except StateError as error:
            at = error.place.partition("at offset ")[2]
            return error.problem + (f", at offset {at}" if at else ""), True
        except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
            return " ".join(str(error).split()), True
        return "", True

    def _fault_of_last(self, log: str, last: Any) -> str:
        """Return what is wrong with the note of the last checkpoint; empty if nothing is."""
        if not isinstance(last, dict) or type(version := last.get("version")) is not int:
            return "it names no version"
        path = f"{log}/{version:020d}.checkpoint.parquet"
        try:
            with self.directory.open_input(path) as file:
                rows = open_parquet(file, path).metadata.num_rows
        except MissingFileError:
            return f"there is no checkpoint of version {version}"
        return "" if last.get("size") == rows else f"it is not of the checkpoint, which has {rows}"

    def _check_logs(self, present: Iterable[str]) -> None:
        """Tell the entries that are missing between others."""
        versions = defaultdict(set)
        for path in present:
            log, _, name = path.rpartition("/")
            if name.endswith(".json") and log.endswith(LOG_DIRECTORY):
                versions[log].add(int(name[:20]))
        for log, there in versions.items():
            for version in set(range(min(there), max(there))) - there:
                self.problems[f"{log}/{version:020d}.json"] = NOT_THERE

    def _units(self) -> Iterator[tuple[SnapshotRecord, OperatorRecord, TableRecord]]:
        for record in self.records:
            for operator in record.operators:
                for table in operator.tables:
                    yield record, operator, table

    def _check_recorded(self, present: dict[str, int]) -> None:
        """Compare the files of snapshots with those that there are."""
        problems = {}
        for path, size in self._named().items():
            problem = ""
            if path not in present:  # or it came after the files were listed
                problem = self._fault(path)[0]
            elif present[path] != size and (now := self._size(path)) != size:
                problem = f"{now} bytes, and {size} in the catalog"
            if problem:
                problems[path] = problem
        if problems:  # others may have dropped snapshots meanwhile
            with suppress(StateError):
                self.records, _ = self.lake.records()
            still = self._named()
            problems = {path: problem for path, problem in problems.items() if path in still}
        self.problems = problems | self.problems

    def _named(self) -> dict[str, int]:
        """Return the files of all snapshots, with their sizes."""
        sizes = file_sizes(self.records).items()
        return {f"{folder}/{name}": size for (folder, name), size in sizes}

    def _size(self, path: str) -> int:
        return self.directory.modified_and_size(path)[1]

    def _check_unsealed(self) -> set[str]:
        """Compare the rows of files without a seal with their fingerprints; return these files."""
        compared: set[str] = set()
        done: set[tuple[frozenset[str], int, int, bytes]] = set()
        for _, operator, table in self._units():
            spans = defaultdict(list)
            for file in table.units if table in operator.keyed_tables else ():
                for part in file.compared:
                    if part.fingerprint:
                        spans[part.first, part.last, part.fingerprint].append(file)
            for (first, last, fingerprint), files in spans.items():
                paths = {f"{table.path}/{file.path}" for file in files}
                content = frozenset(paths), first, last, fingerprint
                if not paths & self.unsealed or content in done or paths & self.problems.keys():
                    continue
                done.add(content)
                problem = "its rows are not those of its fingerprint"
                try:
                    rows = table_rows(self.lake.location, operator, table)
                    if has_fingerprint(rows, KeyGroupRange(first, last), fingerprint):
                        problem = ""
                except (StateError, OSError, pa.ArrowException) as error:
                    problem = " ".join(str(error).split())
                compared |= paths
                if problem:
                    self.problems |= dict.fromkeys(paths, problem)
        return compared

    def _check_records(self) -> None:
        """Check that the records of erasures are a chain."""
        try:
            broken = broken_record(audit_records(self.lake))
        except StateError as error:
            if not any(path.startswith(f"{ERASURE_RECORDS}/") for path in self.problems):
                self._tell(error)
            return
        if broken is not None:
            self.problems[ERASURE_RECORDS] = f"record {broken.number} is not of its digest"

    def _described(self, path: str, present: dict[str, int]) -> DamagedFile:
        """Return a damaged file with its snapshots, and the places that have its content, too."""
        owners: list[SnapshotRecord] = []
        twins: set[str] = set()
        marks = Counter[tuple[str, tuple[bytes, ...]]]()
        for record, _, table in self._units():
            for file in table.units:
                if f"{table.path}/{file.path}" == path:
                    owners.append(record)
                    marks[table.path, file.content] += 1
        for _, _, table in self._units():
            for file in table.units:
                twin = f"{table.path}/{file.path}"
                is_equal = all(file.content) and marks[table.path, file.content] > 0
                if is_equal and twin in present and twin not in self.problems:
                    twins.add(twin)
        owners += [
            record
            for record in self.records
            if any(f"{UNMANAGED_DIRECTORY}/{each.blob}" == path for each in record.carried)
        ]
        sources = [f"{twin} has the same rows, for another snapshot" for twin in sorted(twins)]
        sources += sorted(set(_savepoints(owners)))
        snapshots = dict.fromkeys(f"{record.job}/{record.snapshot_id}" for record in owners)
        if _CHECKPOINT.fullmatch(path) and self._is_spare(path):
            sources.append("the log's entries have the same: it is deleted when the table is read")
        else:
            sources.append(f"restore it from {_BACKUP}")
        return DamagedFile(path, self.problems[path], list(snapshots), sources)

    def _is_spare(self, path: str) -> bool:
        """Return whether a log does without one of its checkpoints."""
        table, _, name = path.rpartition(f"/{LOG_DIRECTORY}/")
        log = self.lake.directory.child(table)
        return name == LAST_CHECKPOINT or not log.local or name in spare_checkpoints(log)


def _is_checked(file: ListedFile) -> bool:
    """Return whether a file says itself whether it is whole."""
    path = file.path
    if file.is_link:
        return False
    if f"/{LOG_DIRECTORY}/" in path:
        return _LOG_FILE.fullmatch(path) is not None
    if path.startswith(f"{UNMANAGED_DIRECTORY}/"):
        return is_unmanaged_name(posixpath.basename(path))
    return path.endswith(".parquet")


def _savepoints(records: Iterable[SnapshotRecord]) -> Iterator[str]:
    """Yield the savepoints that some snapshots were imported from, if these are still there."""
    for record in records:
        if record.origin != "import" or not record.source:
            continue
        with suppress(StateError, OSError, ValueError, MissingFileError):
            metadata = Directory(record.source).confined().read("_metadata")
            if hashlib.sha256(metadata).hexdigest() == record.digest:
                yield f"import {record.source} again: {record.job}/{record.snapshot_id} is of it"
