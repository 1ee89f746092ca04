"""Search every byte below a lake for erased keys and values: the proof of an erasure.

Each file is searched as stored, and its compressed parts unpacked: pages of Parquet, RocksDB's
tables, and blocks of Snappy, gzip and zstd. Besides, the rows of all snapshots are searched by
their structure.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from statelake.pipelines.engine import Engine, LocalEngine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.deletions import sweep_rows
from statelake.pipelines.lake.erase.audit_records import (
    AuditRecord,
    add_record,
    audit_records,
    broken_record,
    requester_here,
)
from statelake.pipelines.lake.erase.needles import LEAST_BYTES, needles_of
from statelake.pipelines.lake.erase.parquet_pages import pages_of
from statelake.pipelines.lake.erase.planning import Planner, records_of
from statelake.pipelines.lake.erase.requests import ErasureRequest, keyed_digest
from statelake.pipelines.lake.erase.searching import Searcher, unpacked, unpacked_table
from statelake.pipelines.lake.erase.task_state import all_jobs
from statelake.pipelines.lake.tables.names import ERASURE_RECORDS
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    EncodeError,
    LakeError,
    NotFoundError,
    StateError,
    did_you_mean,
)
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import Printed, Table, bytes_text

PIECE_BYTES = 64 << 20
PARQUET = b"PAR1"
ROCKSDB = bytes.fromhex("f7cff485b741e288")  # the end of one of RocksDB's tables
SHOWN_HITS = 1000
SHOWN = 20  # of hits and of files, to people
NAMED_BY_IT = "[a name that tells it]"
_NO_FILES = {"files": 0, "bytes": 0}
MOST_UNPACKED = 64  # bytes for each of a file's bytes; more are reported, and not searched
UNPACKED_ROOM = 16 << 20


@dataclass(frozen=True)
class NeedleHit:
    """A place where a needle was found.

    Attributes:
        file: The file, below the lake or with the place that was named; for a note, the snapshot.
        where: `bytes`, the unpacked part, `name`, or `note`.
        form: The form in which it was found.
        at: The position of its first byte.
    """

    file: str
    where: str
    form: str
    at: int


@dataclass(frozen=True)
class AuditResult(Printed):
    """The result of an audit.

    Attributes:
        request: The erasure.
        files: The number of files that were searched.
        file_bytes: All their bytes.
        unpacked_bytes: The unpacked bytes, which were searched as well.
        places: The number of files and bytes in each place.
        forms: The forms that were searched.
        forms_left_out: Forms that are too short to be searched.
        hits: The hits; the record has at most `SHOWN_HITS` of them.
        rows: The rows of snapshots that the erasure would still find.
        not_unpacked: Files with compressed parts that could not be unpacked completely.
        unread: Why rows of snapshots could not be searched; empty if they could.
        record: The record of this audit.
        only: The only snapshots of the erasure; empty if it was all.
    """

    JSON = ("*", "clean")

    request: str
    files: int
    file_bytes: int
    unpacked_bytes: int
    places: dict[str, dict[str, int]]
    forms: dict[str, int]
    forms_left_out: list[str]
    hits: list[NeedleHit]
    rows: int
    not_unpacked: list[str]
    unread: str
    record: AuditRecord
    only: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Return whether nothing was found, and everything could be searched."""
        return not (self.hits or self.rows or self.not_unpacked or self.unread)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: the searched places, and the hits."""
        yield Table.of(
            f"{self.request}: searched {self.files} files, {bytes_text(self.file_bytes)}, which"
            f" unpack to {bytes_text(self.unpacked_bytes)}",
            ("<place=0", ">files=1.files:,", ">bytes=1.bytes:,"),
            self.places.items(),
        )
        if self.forms_left_out:
            yield f"too short to be searched for: {', '.join(self.forms_left_out)}"
        for name in self.not_unpacked[:SHOWN]:
            yield f"not all of it could be unpacked: {name}"
        if self.unread:
            yield f"rows of snapshots can't be looked through: {self.unread}"
        if self.hits:
            columns = ("<file", "<where", "<form", ">byte=at")
            yield Table.of(f"{len(self.hits)} hits", columns, self.hits[:SHOWN])
        if self.only:
            yield f"only these snapshots were erased from: {', '.join(self.only)}"
        if self.rows:
            yield f"{self.rows:,} rows of snapshots have it"
        if self.clean:
            yield f"nothing is left; record {self.record.number}, {self.record.digest}"


@dataclass
class _Searched:
    """The result of a file."""

    hits: list[NeedleHit] = field(default_factory=list)
    unpacked: int = 0
    not_unpacked: bool = False


@dataclass(frozen=True)
class _AuditTask:
    searcher: Searcher
    directory: Directory
    path: str
    size: int
    name: str


def audit_erasure(
    lake: Catalog,
    request: ErasureRequest,
    also: Sequence[str] = (),
    *,
    secret: bytes = b"",
    progress: Progress | None = None,
) -> AuditResult:
    """Search for what was erased, and record what was found.

    Args:
        lake: The lake.
        request: What was erased, under which request. The lake does not know it.
        also: Other places to search: directories or URIs.
        secret: The secret of the erasure, by which its record can be compared with the request.
        progress: Called with (done, total) after each file.

    Raises:
        NotFoundError: No erasure of that request is recorded.
        ConflictError: The erasure had another request.
        DamagedLakeError: A record was changed since it was written.
        EncodeError: All its forms are too short to be searched.
    """
    erasure = _recorded(lake, request.request)
    digest = erasure.to_json()["said"].get("asked", "")
    if digest and secret and digest != keyed_digest(request, secret):
        raise ConflictError(
            f"request {request.request!r} had other keys or predicates, or another secret",
            remedy="give the keys, predicates and the secret of the erasure",
        )
    engine = LocalEngine()
    sweep_rows(lake, ERASURE_RECORDS)  # a killed audit may have left a part of a file
    there = set(all_jobs(lake))
    jobs = [job for job in erasure.to_json()["said"]["jobs"] if job in there]
    records = records_of(lake, jobs)
    needles, left_out = needles_of(
        request, [snapshot for of_job in records.values() for snapshot in of_job]
    )
    if not needles:
        raise EncodeError(
            f"each of its forms has less than {LEAST_BYTES} significant bytes, which occur"
            " everywhere",
            remedy="search the snapshots by their structure: `statelake erase` without --yes",
        )
    searcher = Searcher(needles)
    tasks = [task for place in ("", *also) for task in _tasks(lake, place, searcher)]
    searched = engine.map(_search_file, tasks, progress)
    rows, notes, unread = _left(lake, request, records, engine)
    hits = [hit for result in searched for hit in result.hits]
    hits += [NeedleHit(f"{job}/{snapshot_id}", "note", "text", 0) for job, snapshot_id in notes]
    places: dict[str, dict[str, int]] = {}
    for task in tasks:
        place = places.setdefault(_recorded_name(searcher, task.directory.uri), _NO_FILES.copy())
        place["files"] += 1
        place["bytes"] += task.size
    left = [task.name for task, result in zip(tasks, searched, strict=True) if result.not_unpacked]
    recorded = [replace(hit, file=_recorded_name(searcher, hit.file)) for hit in hits[:SHOWN_HITS]]
    content = {
        "erasure": erasure.digest,
        "files": len(tasks),
        "file_bytes": sum(task.size for task in tasks),
        "unpacked_bytes": sum(result.unpacked for result in searched),
        "places": places,
        "forms": dict(Counter(needle.form for needle in needles)),
        "forms_left_out": left_out,
        "hits": [asdict(hit) for hit in recorded],
        "hit_count": len(hits),
        "rows": rows,
        "not_unpacked": [_recorded_name(searcher, name) for name in left],
        "unread": unread,
        "only": erasure.to_json()["said"].get("only", []),
    }
    record = add_record(lake, "audit", request.request, requester_here(), content)
    shown: dict[str, Any] = {
        field.name: content[field.name] for field in fields(AuditResult) if field.name in content
    }
    shown |= {"hits": hits, "not_unpacked": left}
    return AuditResult(**shown, request=request.request, record=record)


def _recorded_name(searcher: Searcher, name: str) -> str:
    """Return a file's name for a record, which no erasure changes: replaced if it has a key."""
    telling = any(True for text in (name, unquote(name)) for _ in searcher.find(_name_bytes(text)))
    return NAMED_BY_IT if telling else name


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _recorded(lake: Catalog, request: str) -> AuditRecord:
    """Return the newest erasure of a request.

    Raises:
        NotFoundError: There is no such erasure.
        DamagedLakeError: A record was changed since it was written.
    """
    records = audit_records(lake)
    broken = broken_record(records)
    if broken is not None:
        raise DamagedLakeError(
            f"record {broken.number} was changed, or one before it was removed",
            place=lake.directory.full(),
            remedy="compare it with a copy: `statelake audit records --json`",
        )
    erasures = [record for record in records if (record.kind, record.request) == ("erase", request)]
    if not erasures:
        known = [*dict.fromkeys(record.request for record in records)]
        raise NotFoundError(
            f"no erasure {request!r} is recorded",
            remedy=f"there are: {', '.join(known) or 'none'}{did_you_mean(request, known)}",
        )
    return erasures[-1]


def _tasks(lake: Catalog, place: str, searcher: Searcher) -> Iterator[_AuditTask]:
    """Yield a task for each file of the lake, or of another place."""
    directory = Directory(place).confined() if place else lake.directory
    if place and not directory.exists():
        raise NotFoundError("it does not exist", place=place, remedy="give a directory")
    for path, size in directory.files_below():
        name = posixpath.relpath(directory.full(path), directory.root)
        yield _AuditTask(searcher, directory, path, size, f"{place}:{name}" if place else name)


def _left(
    lake: Catalog, request: ErasureRequest, records: dict[str, list[SnapshotRecord]], engine: Engine
) -> tuple[int, list[tuple[str, str]], str]:
    """Return the rows and notes that an erasure would find, and why rows can't be searched."""
    with closing(Planner(lake, request, records, engine)) as planner:
        try:
            plan = planner.find()[0]
        except LakeError as error:
            return 0, [], str(error)
    return plan.rows, plan.notes, ""


def _search_file(task: _AuditTask) -> _Searched:
    """Search a file, its name, and its unpacked parts; a large file piece by piece."""
    result = _Searched()
    for name in {task.path, unquote(task.path)}:
        _search(task, result, "name", _name_bytes(name))
    with task.directory.open_input(task.path) as file:
        if task.size > 8 and file.read_at(8, task.size - 8) == ROCKSDB:
            _search_table(task, result)
        of_table = result.unpacked
        if task.size <= PIECE_BYTES or _is_parquet(file, task.size):
            file.seek(0)
            data = file.read_buffer() if task.size else pa.py_buffer(b"")
            _search(task, result, "bytes", data)
            _search_unpacked(task, result, data)
            return result
        overlap = task.searcher.longest - 1
        for start in range(0, task.size, PIECE_BYTES):
            data = pa.py_buffer(file.read_at(PIECE_BYTES + overlap, start))
            _search(task, result, "bytes", data, start)
            _search_unpacked(task, result, data)
        # a compressed part may extend from one piece into the next
        result.not_unpacked |= result.unpacked > of_table
    return result


def _is_parquet(file: pa.NativeFile, size: int) -> bool:
    return size > 8 and file.read_at(4, 0) == PARQUET and file.read_at(4, size - 4) == PARQUET


def _search_table(task: _AuditTask, result: _Searched) -> None:
    """Search the entries of one of RocksDB's tables."""
    try:
        for what, content in unpacked_table(task.directory.source(task.path)):
            _search(task, result, what, content)
            result.unpacked += len(content)
            if result.unpacked > MOST_UNPACKED * task.size + UNPACKED_ROOM:
                result.not_unpacked = True
                return
    except StateError:
        result.not_unpacked = True


def _search_unpacked(task: _AuditTask, result: _Searched, data: pa.Buffer) -> None:
    if data.size > 8 and data[: len(PARQUET)].to_pybytes() == PARQUET:
        try:
            for what, content in pages_of(data):
                _search(task, result, what, content)
                result.unpacked += len(content)
        except StateError:
            result.not_unpacked = True
        return
    limit = MOST_UNPACKED * data.size + UNPACKED_ROOM
    for what, content in unpacked(data, limit):
        _search(task, result, what, content)
        result.unpacked += len(content)
        if len(content) >= limit or result.unpacked > limit + task.size * MOST_UNPACKED:
            result.not_unpacked = True
            return


def _search(
    task: _AuditTask, result: _Searched, where: str, data: pa.Buffer | bytes, start: int = 0
) -> None:
    for at, needle in task.searcher.find(data):
        result.hits.append(NeedleHit(task.name, where, needle.form, start + at))
