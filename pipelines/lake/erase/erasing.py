"""Erase rows from every snapshot of some jobs, and the bytes that held them from the lake.

The erasure is a claim in the catalog's log, which names its process and how far it is. The steps,
in their order:

1. `take`: the claim closes the jobs, once no other process writes to them.
2. `find`: the rows to erase are found, and the plan is refused if there is a reason.
3. `write_files`: each file with such rows is written again without them, beside the old one.
4. `note_files`: each old file is mapped to its new one.
5. `switch`: one entry of the catalog's log makes the rows of all snapshots name the new files, if
   the claim is still this process's own, and the snapshots are those that were searched.
6. `rewrite_logs`: every version of each Delta table names them, too.
7. `delete_old`: files that no snapshot names are deleted, old rows of the catalog as well.
8. `erase_task_state`: copies in the state of runs and tasks are deleted.
9. `record`: the result is added to the records, once, by whichever process ends the erasure.
10. `close`: the claim is removed.

An erasure that ends before the fifth step has changed no snapshot; one that ends after it is
continued by the same request. Of two processes with one request only one can switch: the claim
names one. As it holds no key, who continues it may ask for something else: what is left of that is
erased as well, after the erasure that was begun.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from typing import Any

import msgspec

from statelake.pipelines.engine import Engine, LocalEngine, Progress
from statelake.pipelines.lake.catalog.attempts import (
    Heartbeat,
    refuse_during_erasure,
    refuse_running,
    settle_attempts,
    without_dead,
)
from statelake.pipelines.lake.catalog.catalog import (
    Catalog,
    CatalogChange,
    CatalogVersion,
    RowsEdit,
)
from statelake.pipelines.lake.catalog.catalog_rows import rows_replaced
from statelake.pipelines.lake.catalog.claims import AttemptClaim, Claims, ErasureClaim, NewFile
from statelake.pipelines.lake.catalog.deletions import (
    file_sizes,
    finish_deletions,
    named_files,
    sweep_unmanaged,
)
from statelake.pipelines.lake.catalog.dropping import tables_of_job
from statelake.pipelines.lake.catalog.holds import refuse_held
from statelake.pipelines.lake.catalog.processes import is_gone, is_this_process, this_process
from statelake.pipelines.lake.edit.pieces import Rewritten
from statelake.pipelines.lake.edit.rewriting import layout_of, rewrite_pieces
from statelake.pipelines.lake.erase.audit_records import (
    AuditRecord,
    add_record,
    audit_records,
    requester_here,
)
from statelake.pipelines.lake.erase.log_rewriting import check_log, rewrite_log
from statelake.pipelines.lake.erase.needles import without_words
from statelake.pipelines.lake.erase.opaque_state import without_opaque_state
from statelake.pipelines.lake.erase.own_versions import give_own_versions
from statelake.pipelines.lake.erase.planning import (
    ErasurePlan,
    MatchedFile,
    Planner,
    not_erased,
    records_of,
)
from statelake.pipelines.lake.erase.refusals import (
    changelogs_of,
    refuse_fewer_places,
    refuse_other_snapshots,
    refuse_plan,
    refuse_telling_id,
)
from statelake.pipelines.lake.erase.requests import ErasureRequest, check_request, words_of
from statelake.pipelines.lake.erase.task_state import TaskState, all_jobs
from statelake.pipelines.lake.tables.log_entries import LOG_DIRECTORY
from statelake.pipelines.lake.tables.names import is_edited_file, token_of
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    SnapshotRecord,
    by_span,
)
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY, sync_attempt
from statelake.state_core.errors import ConflictError, LakeError, NoMatchError, StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.printable import Printed

STEPS = (
    "take", "find", "write_files", "note_files", "switch",
    "rewrite_logs", "delete_old", "erase_task_state", "record", "close",
)  # fmt: skip
SWITCH = STEPS.index("switch")
LOG = logging.getLogger(__name__)
# changed rows and deletion vectors, in files of Delta's engines
_CHANGES = re.compile(r"_change_data/.+\.parquet|([\w=-]+/)?deletion_vector_[\w-]+\.bin", re.ASCII)


@dataclass(frozen=True)
class ErasureResult(Printed):
    """The result of an erasure.

    Attributes:
        request: Its id.
        resumed: Whether an interrupted erasure was continued.
        content: The content of its record: the found and the deleted rows and files.
        record: Its record.
        begun: The erasure that was continued, if it was begun for something else.
    """

    JSON = ("request", "resumed", "begun?", "*content", "digest=record.digest")

    request: str
    resumed: bool
    content: Mapping[str, Any]
    record: AuditRecord
    begun: ErasureResult | None = None

    def lines(self) -> Iterator[str]:
        """Yield the text form: lines and tables."""
        content = self.content
        if self.begun is not None:
            yield f"{self.request} was begun for something else, which is erased, too:"
            yield from self.begun.lines()
        yield (
            f"erased {self.request}: {content['rows']:,} rows of {len(content['states'])} states in"
            f" {content['files']} files, from {len(content['snapshots_erased_from'])} of"
            f" {content['snapshots']} snapshots"
        )
        yield from not_erased(content["kept_for"], content["elsewhere"])


@dataclass(frozen=True)
class _Options:
    all_rows: bool
    secret: bytes
    requested_by: str
    engine: Engine
    progress: Progress | None
    approve: Callable[[ErasurePlan], None] | None = None


def plan_erasure(
    lake: Catalog,
    request: ErasureRequest,
    jobs: Sequence[str] = (),
    *,
    progress: Progress | None = None,
) -> ErasurePlan:
    """Plan an erasure, and write nothing.

    Args:
        lake: The lake.
        request: The request.
        jobs: The jobs whose snapshots are searched; all by default.
        progress: Called with (done, total) after each file.

    Raises:
        EncodeError: No operator can have a key of that type.
        NotFoundError: There is no such job, or no such state.
        QueryError: A predicate is not valid.
    """
    check_request(request.request)
    with closing(Planner(lake, request, records_of(lake, jobs), LocalEngine())) as planner:
        return planner.find(progress)[0]


def erase(
    lake: Catalog,
    request: ErasureRequest,
    jobs: Sequence[str] = (),
    *,
    all_rows: bool = False,
    secret: bytes = b"",
    requested_by: str = "",
    engine: Engine | None = None,
    progress: Progress | None = None,
    approve: Callable[[ErasurePlan], None] | None = None,
) -> ErasureResult:
    """Erase rows, or continue an interrupted erasure of the same request.

    Args:
        lake: The lake.
        request: The request.
        jobs: The jobs from whose snapshots is erased; all by default.
        all_rows: Whether a predicate may be true of every row of a state.
        secret: The key of the hash by which the record identifies the request.
        requested_by: Who requests it; the user of this process by default.
        engine: The engine that rewrites files.
        progress: Called with (done, total) after each file.
        approve: Called with the plan of what is left of the request after an interrupted erasure
            was continued; may raise an error to refuse it.

    Raises:
        StateError: An interrupted erasure was continued, but of this request something is left.
        NoMatchError: Nothing was found; nothing was written.
        ConflictError: Other processes write to the jobs, or a table has edits without a commit.
        EncodeError: No operator can have a key of that type, or state can't be searched and
            `carried` does not say whether to drop it.
    """
    check_request(request.request)
    refuse_telling_id(request)  # before the claim, which stays in the log
    audit_records(lake)  # fail early: no record can be added if these can't be read
    options = _Options(
        all_rows,
        secret,
        requested_by or requester_here(),
        engine or LocalEngine(),
        progress,
        approve,
    )
    done = Erasure(lake, request, jobs, options).run()
    return _erased_the_rest(lake, request, jobs, options, done) if done.resumed else done


def _erased_the_rest(
    lake: Catalog,
    given: ErasureRequest,
    jobs: Sequence[str],
    options: _Options,
    begun: ErasureResult,
) -> ErasureResult:
    """Erase what is left of a request, if the erasure that was continued was begun for another.

    Raises:
        ConflictError: Changelogs may have keys for which the erasure was begun.
        StateError: Something is left.
    """
    # a blob store that the erasure left empty may not exist any more
    blobs = [place for place in given.blobs if Directory(place).confined().exists("blobs")]
    rest = replace(given, blobs=blobs)
    try:
        plan = plan_erasure(lake, rest, jobs, progress=options.progress)
        if plan.changes_nothing:
            return begun
        if options.approve is not None:
            options.approve(plan)
        done = Erasure(lake, rest, jobs, options).run()
    except NoMatchError:
        return begun
    except StateError as error:
        again = (
            f"erasure {given.request!r} was continued as it was begun, but what is asked for now"
        )
        raise type(error)(
            f"{again} is not erased: {error.problem}",
            place=error.place,
            remedy="; ".join(filter(None, [error.remedy, "then give the same request again"])),
        ) from error
    for place, changelog in changelogs_of(begun.content):  # only its keys tell its changes there
        raise ConflictError(
            f"erasure {given.request!r} was begun for something else, of which changes may be left"
            f" in the changelog {changelog}; all else of both is erased",
            place=place,
            remedy="erase what it was begun for again, under another --request",
        )
    return replace(done, resumed=True, begun=begun)


class Erasure:
    """One erasure: `STEPS` names its steps, each of which is a method.

    Args:
        lake: The lake.
        erasure: The request.
        jobs: The jobs; all if empty.
        options: The options of `erase`.
    """

    def __init__(
        self, lake: Catalog, erasure: ErasureRequest, jobs: Sequence[str], options: _Options
    ) -> None:
        self.lake = lake
        self.erasure = erasure
        self.options = options
        self.words = words_of(erasure, parts=True)
        self.token = uuid.uuid4().hex[:16]
        self.claim = ErasureClaim(
            jobs=list(jobs), every_job=not jobs, token=self.token, switched=False, replaced={},
            said={}, process=this_process(),
        )  # fmt: skip
        self.files: list[MatchedFile] = []
        self.rewritten: list[Rewritten] = []
        self.replaced: dict[str, dict[str, DataFile | None]] = {}
        self.records: dict[str, list[SnapshotRecord]] = {}
        self.added: AuditRecord | None = None
        self._said: Mapping[str, Any] = {}
        self._stack = ExitStack()  # resources of the plan, until files are written

    def run(self) -> ErasureResult:
        """Run the steps, or the remaining ones."""
        start = self._first_step()
        with self._stack, Heartbeat(self.lake.directory, self.token):
            try:
                for step in STEPS[start : SWITCH + 1]:
                    getattr(self, step)()
            except Exception:
                self._take_back()
                raise
            for step in STEPS[max(start, SWITCH + 1) :]:
                getattr(self, step)()
        if self.added is None:
            raise LakeError("the erasure was not recorded")
        return ErasureResult(self.erasure.request, start > 0, self._said, self.added)

    def _first_step(self) -> int:
        """Return the first step: 0, or the one after the switch of an interrupted process.

        Raises:
            ConflictError: That process is running, or another one has taken over.
        """
        request = self.erasure.request
        claims = self.lake.version().claims
        before = claims.erasures.get(request)
        if before is not None:
            if not is_this_process(before.process) and not is_gone(before.process):
                self._watch(before)
            refuse_other_snapshots(before.said, self.erasure)
            refuse_fewer_places(before.said, self.erasure)
        if before is None or not before.switched:  # no snapshot was changed
            self.claim = replace(self.claim, jobs=self.claim.jobs or all_jobs(self.lake))
            return 0
        self.claim = replace(
            before, token=self.token, process=this_process(),
            jobs=before.jobs or all_jobs(self.lake),
        )  # fmt: skip
        self.replaced = {table: _units(files) for table, files in before.replaced.items()}
        self._said = before.said
        self.erasure = replace(
            self.erasure, carried=before.said.get("carried", self.erasure.carried)
        )
        self.lake.transact(partial(self._taken, before.token))
        return SWITCH + 1

    def _taken(self, before: str, version: CatalogVersion) -> CatalogChange:
        """Replace another process's claim by this one's, if it has not changed.

        Raises:
            ConflictError: Another process has taken it.
        """
        claim = version.claims.erasures.get(self.erasure.request)
        if claim is None or claim.token != before:
            raise ConflictError(
                f"erasure {self.erasure.request!r} is continued by another process, or has ended",
                remedy="this process changed nothing; see `statelake audit`",
            )
        return CatalogChange(version.claims.with_erasure(self.erasure.request, self.claim))

    def take(self) -> None:
        """Close the jobs, once no other process writes to them.

        Raises:
            ConflictError: Others write to them, or erase from one of them.
        """
        settle_attempts(self.lake, self._attempts, "nothing can be erased")
        self.lake.transact(self._closed)
        finish_deletions(self.lake, self.claim.jobs)

    def _attempts(self, version: CatalogVersion) -> Mapping[str, AttemptClaim]:
        """Return the attempts that write to the jobs, or keep their files."""
        claims = version.claims
        return claims.attempts if self.claim.every_job else claims.attempts_on(self.claim.jobs)

    def _closed(self, version: CatalogVersion) -> CatalogChange:
        request = self.erasure.request
        if self.claim.every_job:
            jobs = sorted({*self.claim.jobs, *version.jobs()})
            self.claim = replace(self.claim, jobs=jobs)
        claims = without_dead(version.claims)
        for job in self.claim.jobs:
            refuse_during_erasure(claims, job, request)
        before = claims.erasures.get(request)
        if before is not None and (before.switched or not is_this_process(before.process)):
            self._watch(before)
        for claim in self._attempts(version).values():
            raise ConflictError(
                f"job {claim.job!r} is being written to, for snapshot {claim.snapshot_id!r}",
                remedy="try again when it has ended",
            )
        return CatalogChange(claims.with_erasure(request, self.claim))

    def _watch(self, claim: ErasureClaim) -> None:
        """Refuse to go on if the process of a claim seems to be running."""
        what = f"erasure {self.erasure.request!r} is running"
        refuse_running(self.lake.directory, {claim.token: claim.process}, what)

    def _own(self, claims: Claims) -> ErasureClaim:
        """Return this process's claim.

        Raises:
            ConflictError: Another process has taken it.
        """
        claim = claims.erasures.get(self.erasure.request)
        if claim is None or claim.token != self.token:
            raise ConflictError(
                f"erasure {self.erasure.request!r} was taken over by another process, which saw no "
                f"sign of life",
                remedy="let that process end it; or give the same request again",
            )
        return claim

    def find(self) -> None:
        """Find the rows to erase, and refuse the plan if there is a reason.

        Raises:
            NoMatchError: Nothing was found.
            ConflictError: A table has edits without a commit.
            HeldError: There is a hold on a snapshot with such rows.
            EncodeError: State can't be searched, or a predicate is true of all rows.
        """
        self.records = records_of(self.lake, self.claim.jobs)
        planner = Planner(self.lake, self.erasure, self.records, self.options.engine)
        self._stack.callback(planner.close)
        planner.tasks.refuse_running()
        plan, self.files = planner.find(self.options.progress)
        refuse_plan(plan, self.erasure, all_rows=self.options.all_rows)
        refuse_held(self.lake, plan.changed(self.erasure))
        for job, path in self._table_paths():
            self._check_table(job, path)
        # the token identifies this erasure of the request, so that it gets only one record
        self._said = {**plan.record_content(self.erasure, self.options.secret), "token": self.token}

    def _table_paths(self) -> Iterator[tuple[str, str]]:
        for job, records in self.records.items():
            for path in tables_of_job(self.lake, job, records):
                yield job, path

    def _check_table(self, job: str, path: str) -> None:
        table = self.lake.table(path)
        if table.open() is None:
            return
        if {file.path for file in table.files()} - named_files(self.records[job], path):
            raise ConflictError(
                "it has edits without a commit, so the rows to keep are not known",
                place=table.uri,
                remedy="make a snapshot of it with `statelake commit`, or RESTORE TABLE to the"
                " version of a snapshot",
            )
        check_log(table)

    def write_files(self) -> None:
        """Write each file again without the erased rows."""
        tasks = [replace(file.task, prefix=self.token) for file in self.files]
        rewritten = self.options.engine.map(rewrite_pieces, tasks, self.options.progress)
        self.rewritten = [of_file for (of_file,) in rewritten]

    def note_files(self) -> None:
        """Map each old file to its new one, so that the erasure can continue after a crash."""
        for file, rewritten_file in zip(self.files, self.rewritten, strict=True):
            replaced = self.replaced.setdefault(file.table, {})
            replaced.update(
                zip_longest((data_file.path for data_file in file.units), rewritten_file.files)
            )
        # the catalog names them before a log does
        sync_attempt(self.lake.directory, self.replaced, self.token)

    def switch(self) -> None:
        """Make the catalog name the new files, in one commit.

        Raises:
            ConflictError: The claim, or a snapshot, has changed.
            HeldError: There is a hold on a snapshot with erased rows.
        """
        results = {
            (file.table, file.units[0].path): rewritten_file
            for file, rewritten_file in zip(self.files, self.rewritten, strict=True)
        }
        changed = []
        for records in self.records.values():
            for record in records:
                new = self._erased(record, results)
                if new != record and self.erasure.of_snapshot(record.snapshot_id):
                    changed.append(replace(new, erased=[*record.erased, self.erasure.request]))
        planned = _digests(self.records)
        done = replace(
            self.claim, switched=True, said=dict(self._said),
            replaced={
                table: {old: None if new is None else _shown(new) for old, new in files.items()}
                for table, files in self.replaced.items()
            },
        )  # fmt: skip

        def decide(version: CatalogVersion) -> CatalogChange:
            self._own(version.claims)
            now = {job: version.records(job)[0] for job in self.claim.jobs}
            if self._attempts(version) or _digests(now) != planned:
                raise ConflictError(
                    "a snapshot was added or dropped during the search",
                    remedy="nothing was changed: give the same request again",
                )
            claims = version.claims.with_erasure(self.erasure.request, done)
            return CatalogChange(claims, edits=rows_edits(changed))

        self.lake.transact(decide)
        self.claim = done

    def _erased(
        self, record: SnapshotRecord, results: Mapping[tuple[str, str], Rewritten]
    ) -> SnapshotRecord:
        """Return a snapshot without the erased rows; an equal one if it has no such rows."""
        operators = [self._erased_operator(operator, results) for operator in record.operators]
        record = replace(record.with_operators(operators), note=without_words(record, self.words))
        return without_opaque_state(record) if self.erasure.carried == "drop" else record

    def _erased_operator(
        self, operator: OperatorRecord, results: Mapping[tuple[str, str], Rewritten]
    ) -> OperatorRecord:
        for table in operator.tables:
            data_files: list[DataFile] = []
            moved: set[int] = set()
            counts: dict[str, list[Any]] = {}
            for (first, last), files in by_span(table.units).items():
                rewritten = results.get((table.path, files[0].path))
                if rewritten is None:
                    data_files += files
                    continue
                data_files += rewritten.files
                moved.update(range(first, last + 1))
                for state, counted in (rewritten.counts or {}).items():
                    counts.setdefault(state, []).extend(counted)
            if moved:
                layout = layout_of(self.lake, operator, table)
                data_files.sort(key=lambda file: file.first)
                recorded = layout.recorded(operator, moved, counts)
                operator = recorded.with_table(replace(table, units=data_files))
        return operator

    def rewrite_logs(self) -> None:
        """Make every version of each table name the new files; it may be repeated."""
        self.records = records_of(self.lake, self.claim.jobs)
        # an old file is still named if a snapshot outside of the request has it
        kept = file_sizes(chain.from_iterable(self.records.values()))
        for _, path in self._table_paths():
            table, files = self.lake.table(path), self.replaced.get(path, {})
            self._own(self.lake.version().claims)
            if table.open() is not None:
                gone = {old: new for old, new in files.items() if (path, old) not in kept}
                rewrite_log(table, gone)
        changed = give_own_versions(
            self.lake, self.erasure, self.records, kept, self.replaced, self.token
        )

        def decide(version: CatalogVersion) -> CatalogChange:
            self._own(version.claims)
            return CatalogChange(edits=rows_edits(changed, on_hold=True))

        if changed:
            self.lake.transact(decide)

    def delete_old(self) -> None:
        """Delete files that no snapshot names; it may be repeated."""
        self.records = records_of(self.lake, self.claim.jobs)
        for job, path in self._table_paths():
            directory = self.lake.table(path).directory
            present = [name for name, _ in directory.files_below()]
            version = self.lake.version()  # after the listing: later files stay
            self._own(version.claims)
            needed = named_files(version.records(job)[0], path)
            for name in present:
                is_ours = token_of(name) or _is_engines(name)
                if is_ours and name not in needed and not name.startswith(f"{LOG_DIRECTORY}/"):
                    directory.delete(name)
        finish_deletions(self.lake, self.claim.jobs)
        self.lake.delete_old_rows(self.claim.jobs)
        sweep_unmanaged(self.lake)

    def erase_task_state(self) -> None:
        """Erase from the state of runs and tasks; it may be repeated."""
        TaskState(self.lake, self.erasure, self.records).erase()

    def record(self) -> None:
        """Add the result to the records."""
        self._own(self.lake.version().claims)
        requested_by = self.options.requested_by
        self.added = add_record(self.lake, "erase", self.erasure.request, requested_by, self._said)

    def close(self) -> None:
        """Open the jobs to other writers again."""
        self.lake.transact(self._opened)

    def _opened(self, version: CatalogVersion) -> CatalogChange | None:
        """Remove the claim, if it is this process's own."""
        claim = version.claims.erasures.get(self.erasure.request)
        if claim is None or claim.token != self.token:
            return None
        return CatalogChange(version.claims.without_erasure(self.erasure.request))

    def _take_back(self) -> None:
        """Undo an erasure that did not switch.

        The claim is removed first: without it, a switch whose response was lost can't succeed.
        """
        try:
            claim = self.lake.version().claims.erasures.get(self.erasure.request)
            if claim is not None and claim.token == self.token and claim.switched:
                return  # the response was lost: the same request continues
            self.lake.transact_to_free(self._opened)
            if not self.files:
                return  # no file was written, and the reason may be that rows can't be read
            records = records_of(self.lake, self.claim.jobs)
            named = {path for _, path in file_sizes(chain.from_iterable(records.values()))}
            for table in {file.table for file in self.files}:
                directory = self.lake.table(table).directory
                for name, _ in directory.files_below(f"{DATA_DIRECTORY}/{self.token}"):
                    if name not in named and token_of(name) == self.token:
                        directory.delete(name)
            self.lake.reserve()
        except StateError as error:
            LOG.warning(
                "the jobs stay closed until the next command finds that this one has ended: %s",
                error,
            )


def rows_edits(records: Iterable[SnapshotRecord], *, on_hold: bool = False) -> dict[str, RowsEdit]:
    """Return the edits that replace the rows of snapshots.

    Args:
        records: The new records.
        on_hold: Whether rows with a hold are replaced as well, and keep it.
    """
    rows_by_job: dict[str, dict[str, dict[str, object]]] = {}
    for record in records:
        rows_by_job.setdefault(record.job, {})[record.snapshot_id] = record.to_row()
    return {
        job: partial(rows_replaced, job, rows, on_hold=on_hold) for job, rows in rows_by_job.items()
    }


def _digests(records: Mapping[str, Sequence[SnapshotRecord]]) -> dict[tuple[str, str], str]:
    """Return digests by which a new, a dropped or a changed snapshot is detected."""
    return {
        (record.job, record.snapshot_id): record.files_digest()
        for of_job in records.values()
        for record in of_job
    }


def _shown(file: DataFile) -> NewFile:
    return NewFile(*(getattr(file, name) for name in NewFile.__struct_fields__))


def _units(files: Mapping[str, NewFile | None]) -> dict[str, DataFile | None]:
    return {
        old: None if new is None else DataFile(**msgspec.structs.asdict(new), fingerprint=b"")
        for old, new in files.items()
    }


def _is_engines(name: str) -> bool:
    """Return whether a file of that name in a table is one of a Delta engine."""
    return is_edited_file(name) or _CHANGES.fullmatch(name) is not None
