"""Plan an erasure: search its rows, once in each file, even if several snapshots share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.deletions import file_sizes
from statelake.pipelines.lake.catalog.snapshot_names import absent_snapshot
from statelake.pipelines.lake.catalog.unmanaged_state import (
    UNMANAGED_DIRECTORY,
    refuse_unmanaged_keyed,
)
from statelake.pipelines.lake.edit.rewriting import (
    RewriteTask,
    Transform,
    layout_of,
    piece_of,
)
from statelake.pipelines.lake.edit.selecting import find_state, tables_of
from statelake.pipelines.lake.edit.sql_editing import refuse_no_condition, rows_where, session_over
from statelake.pipelines.lake.erase.matching import ErasedKeys, erased_keys, rows_met
from statelake.pipelines.lake.erase.needles import without_words
from statelake.pipelines.lake.erase.opaque_state import KINDS, has_opaque_state
from statelake.pipelines.lake.erase.requests import ErasureRequest, keyed_digest, words_of
from statelake.pipelines.lake.erase.task_state import TaskState, all_jobs
from statelake.pipelines.lake.query.session import Session
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    SnapshotRecord,
    TableRecord,
    by_span,
)
from statelake.state_core.errors import EncodeError, NotFoundError, StateError, did_you_mean
from statelake.state_core.printable import Printed, Table, bytes_text


@dataclass(frozen=True)
class MatchedFile:
    """A file with rows to erase, or several of the same key groups.

    Attributes:
        table: The path of its table below the lake.
        units: The records of the files.
        rows: By state, the number of rows that are dropped or lose elements.
        dropped: The number of rows that are dropped.
        task: The task that rewrites it.
    """

    table: str
    units: tuple[DataFile, ...]
    rows: Mapping[str, int]
    dropped: int
    task: RewriteTask


@dataclass
class MatchedState:
    """The rows to erase of one state.

    Attributes:
        job: The job.
        operator: The label of its operator.
        state: The state.
        rows: The rows that are dropped or lose elements, each counted once, even if several
            snapshots share it.
        files: The files with these rows.
        snapshots: The number of snapshots that have one of these files.
    """

    job: str
    operator: str
    state: str
    rows: int = 0
    files: int = 0
    snapshots: int = 0


@dataclass(frozen=True)
class ErasurePlan(Printed):
    """The plan of an erasure.

    Attributes:
        request: The id of the erasure.
        jobs: The jobs whose snapshots are searched.
        snapshots: The number of these snapshots.
        states: The rows that were found, by state.
        rows: The rows that are dropped or lose elements, each once.
        files: The files that are rewritten.
        file_bytes: Their bytes.
        matched_snapshots: The snapshots with such rows, as job and id.
        notes: Snapshots whose note repeats a word of the request, as job and id.
        opaque: Snapshots with state that can't be searched, as job and id.
        emptied_states: States whose every row matches a predicate.
        elsewhere: Places that may have copies, and can't be changed from here.
        kept_for: Snapshots that the request does not name, but that share files with such rows,
            which stay for them; as job and id.
        partial_matches: Changelogs with changes that only contain a key.
        leftover_runs: Leftovers of runs, which are deleted completely.
        key_in_leftovers: Whether a key is in these leftovers.
        carried: The treatment of state that can't be searched: `drop`, `keep`, or empty.
        all_rows: Whether a predicate may match every row of a state.
    """

    JSON = (
        "request", "planned", "jobs", "snapshots", "states", "rows", "files", "file_bytes",
        "snapshots_found=matched_snapshots", "notes", "opaque", "whole=emptied_states",
        "elsewhere", "kept_for",
        "mentions=partial_matches", "left=leftover_runs", "holding=key_in_leftovers",
    )  # fmt: skip
    planned = True

    request: str
    jobs: list[str]
    snapshots: int
    states: list[MatchedState]
    rows: int
    files: int
    file_bytes: int
    matched_snapshots: list[tuple[str, str]]
    notes: list[tuple[str, str]]
    opaque: list[tuple[str, str]]
    emptied_states: list[str]
    elsewhere: list[str]
    kept_for: list[tuple[str, str]]
    partial_matches: list[str]
    leftover_runs: list[str]
    key_in_leftovers: bool
    carried: str = ""
    all_rows: bool = False

    def changed(self, request: ErasureRequest) -> set[tuple[str, str]]:
        """Return the snapshots that will change, as job and id."""
        dropped = self.opaque if request.carried == "drop" else []
        return {*self.matched_snapshots, *self.notes, *dropped}

    @property
    def empty(self) -> bool:
        """Return whether nothing was found."""
        return not (self.rows or self.notes or self.key_in_leftovers)

    @property
    def changes_nothing(self) -> bool:
        """Return whether nothing was found, and no state that can't be searched is dropped."""
        return self.empty and not (self.carried == "drop" and self.opaque)

    @property
    def table(self) -> Table:
        """The table of states with rows to erase."""
        return Table.of(
            f"{self.request} would erase {self.rows:,} rows in {self.files} files"
            f" ({bytes_text(self.file_bytes)}), from {len(self.matched_snapshots)} of"
            f" {self.snapshots} snapshots",
            ("<job", "<operator", "<state", ">rows:,", ">files", ">snapshots"),
            self.states,
        )

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        becomes = {
            "drop": "would be dropped (--carried drop)", "keep": "would be kept (--carried keep)"
        }.get(self.carried, "give --carried drop or --carried keep")  # fmt: skip
        intended = "which --all allows" if self.all_rows else "if that is intended, give --all"
        yield self.table
        for job, snapshot_id in self.notes:
            yield f"the note of {snapshot_id} of {job} names it"
        if self.opaque:
            yield (
                f"{KINDS}, which only the job can search, in"
                f" {len(self.opaque)} of {self.snapshots} snapshots: {becomes}"
            )
        for state in self.emptied_states:
            yield f"the predicate is true of every row of {state}: {intended}"
        for place in self.partial_matches:
            yield (
                f"rows with the key as a part of a longer key or of a value, in {place}: {becomes}"
            )
        for place in self.leftover_runs:
            yield f"deleted completely, since snapshots have the same state: {place}"
        yield from not_erased(self.kept_for, self.elsewhere)
        yield "nothing was written; --yes erases"

    def record_content(self, request: ErasureRequest, secret: bytes) -> dict[str, Any]:
        """Return the content of the record, with only a keyed hash of the request."""
        return {
            "asked": keyed_digest(request, secret),
            "keys": len(request.keys),
            "predicates": len(request.where),
            "jobs": self.jobs,
            "snapshots": self.snapshots,
            "snapshots_erased_from": [list(names) for names in self.matched_snapshots],
            "states": [asdict(state) for state in self.states],
            "rows": self.rows,
            "files": self.files,
            "file_bytes": self.file_bytes,
            "notes": len(self.notes),
            "carried": request.carried,
            "elsewhere": self.elsewhere,
            "changed": len(self.changed(request)),
            "only": sorted(request.snapshots),
            "kept_for": [list(names) for names in self.kept_for],
            "mentions": self.partial_matches,
            "left": self.leftover_runs,
        }


def not_erased(kept_for: Iterable[Sequence[str]], elsewhere: Iterable[str]) -> Iterator[str]:
    """Yield a line for each place that an erasure does not change."""
    for job, snapshot_id in kept_for:
        yield f"keeps shared files, since the request does not name it: {snapshot_id} of {job}"
    for place in elsewhere:
        yield f"not erased from here: {place}"


KeyNames: TypeAlias = tuple[tuple[str, ...], ...]


@dataclass
class _SharedFile:
    """A file that snapshots share, or several of the same key groups, with one of the snapshots."""

    units: tuple[DataFile, ...]
    record: SnapshotRecord
    operator: OperatorRecord
    table: TableRecord
    owners: list[tuple[str, str]] = field(default_factory=list)


def records_of(lake: Catalog, jobs: Sequence[str]) -> dict[str, list[SnapshotRecord]]:
    """Return all snapshots of some jobs; of all jobs if `jobs` is empty.

    Raises:
        NotFoundError: There is no such job.
        DamagedLakeError: A row of a job is invalid, so that its content is not known.
    """
    known = all_jobs(lake)
    records_by_job: dict[str, list[SnapshotRecord]] = {}
    for job in jobs or known:
        records = lake.records(job).all_valid()
        if not records and job not in known:
            lake.snapshot(job, "")  # raises the error that lists the jobs
        records_by_job[job] = records
    return records_by_job


def _key_names(records: Iterable[SnapshotRecord]) -> dict[tuple[str, str], KeyNames]:
    """Return the names that the columns of keys have in some snapshots, by job and operator id.

    A key that is written with these names applies to the rows of all snapshots, even of those
    without names.
    """
    by_operator: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for record in records:
        for operator in record.operators:
            if operator.key_names:
                names = by_operator.setdefault((record.job, operator.operator_id), set())
                names.add(tuple(operator.key_names))
    return {of: tuple(sorted(names)) for of, names in by_operator.items()}


class Planner:
    """Find the rows to erase.

    Args:
        lake: The lake.
        erasure: The request.
        records: The snapshots to search, by job.
        engine: The engine that searches files.
    """

    def __init__(
        self,
        lake: Catalog,
        erasure: ErasureRequest,
        records: Mapping[str, Sequence[SnapshotRecord]],
        engine: Engine,
    ) -> None:
        self.lake = lake
        self.erasure = erasure
        self.records = {job: _requested(erasure, of_job) for job, of_job in records.items()}
        self.others = [
            record
            for of_job in records.values()
            for record in of_job
            if not erasure.of_snapshot(record.snapshot_id)
        ]
        self.tasks = TaskState(lake, erasure, self.records)
        self.engine = engine
        self._fitting: set[str] = set()
        self._keys: dict[tuple[bytes, int, KeyNames], ErasedKeys] = {}
        self._key_names = _key_names(self._all())
        self._sessions: dict[tuple[str, str], Session] = {}
        self._named: set[str] = set()
        self._tried: set[tuple[str, str]] = set()  # tables with predicates
        self._stack = ExitStack()

    def close(self) -> None:
        """Close the DuckDB sessions."""
        self._stack.close()

    def find(self, progress: Progress | None = None) -> tuple[ErasurePlan, list[MatchedFile]]:
        """Search all files that may have rows to erase.

        Raises:
            EncodeError: No operator can have a key of that type.
            NotFoundError: No snapshot has the state of a predicate, or a given id.
            QueryError: A predicate is not valid.
        """
        self._refuse_unnamed()
        shared = self._shared_files()
        tasks: list[RewriteTask] = []
        looked_at: list[_SharedFile] = []
        for file in shared:
            piece = piece_of(file.units)
            transforms = self._transforms(file, piece.span)
            if transforms and not all(transform.foresee(piece.span) for transform in transforms):
                layout = layout_of(self.lake, file.operator, file.table)
                tasks.append(
                    RewriteTask(
                        layout, tuple(transforms), (piece,), "", self.lake.location, file.table
                    )
                )
                looked_at.append(file)
        self._refuse_unknown()
        counts = self.engine.map(_dropped_rows, tasks, progress)
        found_files = [
            (file, MatchedFile(file.table.path, file.units, met, dropped, task))
            for file, task, (met, dropped) in zip(looked_at, tasks, counts, strict=True)
            if met
        ]
        return self._plan(shared, found_files), [file for _, file in found_files]

    def _shared_files(self) -> list[_SharedFile]:
        files: dict[tuple[str, ...], _SharedFile] = {}
        for record in self._all():
            for operator in record.operators:
                for table in operator.tables:
                    for data_files in by_span(table.units).values():
                        name = table.path, *(file.path for file in data_files)
                        if name not in files:
                            files[name] = _SharedFile(tuple(data_files), record, operator, table)
                        files[name].owners.append((record.job, record.snapshot_id))
        return list(files.values())

    def _all(self) -> Iterator[SnapshotRecord]:
        for records in self.records.values():
            yield from records

    def _transforms(self, file: _SharedFile, span: FileSpan) -> list[Transform]:
        transforms: list[Transform] = []
        operator = file.operator
        if self.erasure.keys and file.table.path in {state.table for state in operator.states}:
            names = self._key_names.get((file.record.job, operator.operator_id), ())
            name = operator.key_serializer, operator.max_parallelism, names
            if name not in self._keys:
                self._keys[name], fitting = erased_keys(operator, self.erasure.keys, names)
                self._fitting |= fitting
            if len(self._keys[name].keys):
                transforms.append(self._keys[name].of_span(span))
        for state_name, predicate in self.erasure.where.items():
            with suppress(NotFoundError):
                owner, state = find_state([operator], state_name, file.record.snapshot_id)
                self._named.add(state_name)
                if file.table.path in tables_of(owner, state):
                    session = self._session(file.record)
                    transforms.append(
                        rows_where(session, operator, file.table, predicate, inexact=True)
                    )
                    if (file.table.path, predicate) not in self._tried:
                        refuse_no_condition(session, operator, file.table, predicate)
                        self._tried.add((file.table.path, predicate))
        return transforms

    def _session(self, record: SnapshotRecord) -> Session:
        name = record.job, record.snapshot_id
        if name not in self._sessions:
            self._sessions[name] = self._stack.enter_context(session_over(self.lake, record))
        return self._sessions[name]

    def _refuse_unknown(self) -> None:
        """Refuse keys of the wrong type, and states that no snapshot has.

        Raises:
            EncodeError: No operator can have such a key.
            NotFoundError: No snapshot has such a state.
            UnsupportedFormatError: The state is keyed state that is kept as bytes.
        """
        for key in self.erasure.keys:
            if key not in self._fitting and self._keys:
                types = {op.key_type for record in self._all() for op in record.operators}
                raise EncodeError(
                    f"{key!r:.80} is not a key of any operator",
                    remedy=f"keys are of type {', '.join(sorted(types - {''}))}; write them as"
                    " `statelake dump` prints them",
                )
        for state_name in self.erasure.where:
            if state_name not in self._named:
                for record in self._all():
                    refuse_unmanaged_keyed(record, state_name)
                operators = [op for record in self._all() for op in record.operators]
                labels = sorted({operator.label for operator in operators})
                states = {f"{op.label}/{state.name}" for op in operators for state in op.all_states}
                raise NotFoundError(
                    f"no snapshot has a state {state_name!r}",
                    remedy=f"write it as operator/state; operators are: {', '.join(labels)}"
                    f"{did_you_mean(state_name, sorted(states))}",
                )

    def _plan(
        self, shared: Sequence[_SharedFile], found_files: Sequence[tuple[_SharedFile, MatchedFile]]
    ) -> ErasurePlan:
        states: dict[tuple[str, str, str], MatchedState] = {}
        owners: dict[tuple[str, str, str], set[str]] = {}
        everywhere: set[tuple[str, str]] = set()
        for file, going in found_files:
            everywhere.update(file.owners)
            for state, rows in going.rows.items():
                name = file.record.job, file.operator.label, state
                entry = states.setdefault(name, MatchedState(*name))
                entry.rows += rows
                entry.files += len(going.units)
                owners.setdefault(name, set()).update(snapshot for _, snapshot in file.owners)
        for name, entry in states.items():
            entry.snapshots = len(owners[name])
        words = words_of(self.erasure, parts=True)
        records = list(self._all())
        of_tasks = self.tasks.find()
        for changelog in of_tasks.changelogs:
            if changelog.rows:
                name = changelog.place, "changelogs", changelog.name
                states[name] = MatchedState(*name, changelog.rows)
        return ErasurePlan(
            request=self.erasure.request,
            jobs=list(self.records),
            snapshots=len(records),
            states=sorted(
                states.values(), key=lambda state: (state.job, state.operator, state.state)
            ),
            rows=sum(entry.rows for entry in states.values()),
            files=sum(len(going.units) for _, going in found_files),
            file_bytes=sum(data_file.size for _, going in found_files for data_file in going.units),
            matched_snapshots=sorted(everywhere),
            notes=[
                (record.job, record.snapshot_id)
                for record in records
                if without_words(record, words) != record.note
            ],
            opaque=[
                (record.job, record.snapshot_id) for record in records if has_opaque_state(record)
            ],
            emptied_states=self._emptied_states(shared, found_files),
            elsewhere=self._elsewhere() + of_tasks.elsewhere,
            kept_for=self._kept_for(
                {
                    (going.table, data_file.path)
                    for _, going in found_files
                    for data_file in going.units
                }
                | {
                    (UNMANAGED_DIRECTORY, carried.blob)
                    for record in records
                    for carried in record.carried
                    if self.erasure.carried == "drop"
                }
            ),
            partial_matches=[
                f"changelogs/{changelog.name} of {changelog.place}"
                for changelog in of_tasks.changelogs
                if changelog.partial_matches
            ],
            leftover_runs=of_tasks.leftovers,
            key_in_leftovers=of_tasks.key_in_leftovers,
            carried=self.erasure.carried,
        )

    def _kept_for(self, dropped: set[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the other snapshots that have one of some files, as in `file_sizes`."""
        return [
            (record.job, record.snapshot_id)
            for record in self.others
            if not dropped.isdisjoint(file_sizes([record]))
        ]

    def _refuse_unnamed(self) -> None:
        """Refuse snapshots that do not exist.

        Raises:
            NotFoundError: A snapshot does not exist.
        """
        ids = {record.snapshot_id for record in self._all()}
        for snapshot_id in self.erasure.snapshots:
            if snapshot_id not in ids:
                listed = {job: self.lake.listed(job) for job in self.records}
                raise absent_snapshot(snapshot_id, listed)

    def _emptied_states(
        self, shared: Sequence[_SharedFile], found_files: Sequence[tuple[_SharedFile, MatchedFile]]
    ) -> list[str]:
        """Return the states that would have no rows left after a predicate."""
        rows: Counter[str] = Counter()
        for file in shared:
            rows[file.table.path] += sum(data_file.rows for data_file in file.units)
        going: Counter[str] = Counter()
        for _, found_file in found_files:
            going[found_file.table] += found_file.dropped
        names: list[str] = []
        for state_name in self.erasure.where:
            for file, found_file in found_files:
                with suppress(NotFoundError):
                    owner, state = find_state([file.operator], state_name, "")
                    emptied = rows[found_file.table] == going[found_file.table]
                    if (
                        found_file.table in tables_of(owner, state)
                        and emptied
                        and state_name not in names
                    ):
                        names.append(state_name)
        return names

    def _elsewhere(self) -> list[str]:
        """Return places that may have copies, known from the lake's records but not searched."""
        sources = {record.source for record in self._all() if record.source}
        return [
            f"the imported snapshot, if it still exists: {source}" for source in sorted(sources)
        ]


def _requested(request: ErasureRequest, records: Sequence[SnapshotRecord]) -> list[SnapshotRecord]:
    return [record for record in records if request.of_snapshot(record.snapshot_id)]


def _dropped_rows(task: RewriteTask) -> tuple[dict[str, int], int]:
    """Return the number of rows that a task drops or changes, by state, and that it drops."""
    (piece,) = task.pieces
    met: Counter[str] = Counter()
    dropped = 0
    try:
        for rows in task.layout.read(piece):
            after: Any = rows  # of the class that the layout reads
            for transform in task.transforms:
                before, after = after, transform.apply(after)
                if after is not before:
                    met[rows.name] += rows_met(transform, len(before.batch), len(after.batch))
            dropped += len(rows.batch) - len(after.batch)
    except StateError as error:
        raise error.within(task.layout.place(piece.span)) from error
    return dict(met), dropped
