"""Rows go out of every snapshot of some jobs, and the bytes that held them out of the lake.

A note in the lake says what is going on. The steps, in their order:

1. `take`: the note is written, and nobody else begins to write to the jobs.
2. `find`: where rows are that go, and whether anything stands against it.
3. `write_files`: each file that has some is written again without them, beside the old one.
4. `note_files`: the note says which new file stands for which old one.
5. `switch`: the rows of all snapshots in the catalog name the new files, in one commit.
6. `rewrite_logs`: every version of each Delta table names them, too.
7. `delete_old`: what no snapshot names any more is deleted, old rows of the catalog as well.
8. `erase_task_state`: what runs and tasks keep of it goes.
9. `record`: what was done is added to the records.
10. `close`: the note goes.

What ends before the fifth has changed no snapshot; what ends behind it is gone on with by the same
request.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pipelines.engine import Engine, LocalEngine, Progress
from pipelines.lake.catalog.attempts import (
    attempt_tokens,
    recover_attempts,
    refuse_during_erasure,
    running_attempts,
)
from pipelines.lake.catalog.catalog import Catalog
from pipelines.lake.catalog.dropping import sweep_carried, tables_of_job
from pipelines.lake.catalog.holds import refuse_held
from pipelines.lake.edit.pieces import Rewritten
from pipelines.lake.edit.rewriting import layout_of, rewrite_pieces
from pipelines.lake.erase.audit_records import AuditRecord, add_record, requester_here
from pipelines.lake.erase.erasure_note import ErasureNote, note_path
from pipelines.lake.erase.log_rewriting import check_log, rewrite_log
from pipelines.lake.erase.opaque_state import without_opaque_state
from pipelines.lake.erase.own_versions import give_own_versions
from pipelines.lake.erase.planning import ErasurePlan, FoundFile, Planner, records_of
from pipelines.lake.erase.refusals import refuse_other_snapshots, refuse_plan
from pipelines.lake.erase.requests import ErasureRequest, check_request, without_words, words_of
from pipelines.lake.erase.task_state import TaskState, all_jobs
from pipelines.lake.tables.names import is_edited_file, is_table_of, token_of
from pipelines.lake.tables.records import OperatorRecord, SnapshotRecord, UnitRecord
from pipelines.lake.tables.table_log import LOG_DIRECTORY
from pipelines.lake.tables.tables import sync_attempt
from state_core.errors import ConflictError, DamagedLakeError, LakeError

__all__ = ["STEPS", "Erasure", "ErasureResult", "erase", "plan_erasure"]

STEPS = (
    "take", "find", "write_files", "note_files", "switch",
    "rewrite_logs", "delete_old", "erase_task_state", "record", "close",
)  # fmt: skip
SWITCH = STEPS.index("switch")
# rows that changed, and rows that are hidden, as Delta's engines keep them
_CHANGES = re.compile(r"_change_data/.+\.parquet|([\w=-]+/)?deletion_vector_[\w-]+\.bin", re.ASCII)


@dataclass(frozen=True)
class ErasureResult:
    """What was done.

    Attributes:
        request: The id.
        resumed: Whether an erasure that had ended too soon was gone on with.
        said: What was found and removed, as it is recorded.
        record: The record of it.
    """

    request: str
    resumed: bool
    said: Mapping[str, Any]
    record: AuditRecord


@dataclass(frozen=True)
class _Options:
    whole: bool
    secret: bytes
    requested_by: str
    engine: Engine
    progress: Progress | None


def plan_erasure(
    lake: Catalog,
    asked: ErasureRequest,
    jobs: Sequence[str] = (),
    *,
    progress: Progress | None = None,
) -> ErasurePlan:
    """Say what an erasure would do; nothing is written.

    Args:
        lake: The lake.
        asked: What is to be erased.
        jobs: The jobs whose snapshots are looked through; all by default.
        progress: Called with (done, total) after each file.

    Raises:
        EncodeError: A key can be none of any operator.
        NotFoundError: There is no such job, or no such state.
        QueryError: A predicate can't be understood.
    """
    check_request(asked.request)
    planner = Planner(lake, asked, records_of(lake, jobs), LocalEngine())
    try:
        return planner.find(progress)[0]
    finally:
        planner.close()


def erase(
    lake: Catalog,
    asked: ErasureRequest,
    jobs: Sequence[str] = (),
    *,
    whole: bool = False,
    secret: bytes = b"",
    requested_by: str = "",
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> ErasureResult:
    """Erase, or go on with an erasure of that request that ended too soon.

    Args:
        lake: The lake.
        asked: What is to be erased.
        jobs: The jobs whose snapshots it is erased from; all by default.
        whole: Whether a predicate may be true of every row of a state.
        secret: By which the record has a keyed hash of what was asked.
        requested_by: Who asks; by default who runs this process.
        engine: Where files are written again.
        progress: Called with (done, total) after each file.

    Raises:
        NoMatchError: Nothing is found; nothing was written.
        ConflictError: Others write to the jobs, or a table was edited and not committed.
        EncodeError: A key can be none of any operator, or state can't be searched and nobody said
            what is to become of it.
    """
    check_request(asked.request)
    options = _Options(
        whole, secret, requested_by or requester_here(), engine or LocalEngine(), progress
    )
    return Erasure(lake, asked, jobs, options).run()


class Erasure:
    """One erasure: `STEPS` names its steps, each of which is a method.

    Args:
        lake: The lake.
        asked: What is to be erased.
        jobs: The jobs; all if none is named.
        options: How.
    """

    def __init__(
        self, lake: Catalog, asked: ErasureRequest, jobs: Sequence[str], options: _Options
    ) -> None:
        self.lake = lake
        self.asked = asked
        self.options = options
        self.words = words_of(asked)
        self.note = ErasureNote(asked.request, list(jobs), uuid.uuid4().hex[:16])
        self.files: list[FoundFile] = []
        self.rewritten: list[Rewritten] = []
        self.records: dict[str, list[SnapshotRecord]] = {}
        self.added: AuditRecord | None = None
        self._stack = ExitStack()  # what of the plan is needed until files are written

    def run(self) -> ErasureResult:
        """Go through the steps, or through those that are left."""
        start = self._first_step()
        with self._stack:
            try:
                for step in STEPS[start:SWITCH]:
                    getattr(self, step)()
            except Exception:
                self._take_back()
                raise
            for step in STEPS[max(start, SWITCH) :]:
                getattr(self, step)()
        if self.added is None:
            raise LakeError("the erasure was not recorded")
        return ErasureResult(self.asked.request, start > 0, self.note.said, self.added)

    def _first_step(self) -> int:
        """Where to begin: at the start, or behind what a process before this one did.

        Raises:
            ConflictError: Its process is at work, or another erasure of a job has not ended.
        """
        before = ErasureNote.read(self.lake, self.asked.request)
        start = 0
        if before is not None:
            self.note = before
            refuse_other_snapshots(before.said, self.asked)
            if before.said and self._is_switched():
                start = SWITCH + 1
            else:
                self.note = replace(before, replaced={}, said={})
        self.note.jobs = self.note.jobs or all_jobs(self.lake)
        for job in self.note.jobs:
            refuse_during_erasure(self.lake, job, self.asked.request)
            if before is None:
                recover_attempts(self.lake, job)
        return start

    def _is_switched(self) -> bool:
        """Whether the catalog names new files, as the note of an erasure that ended says.

        Raises:
            DamagedLakeError: The catalog names neither the new files nor the old ones.
        """
        named = _named(
            record
            for records in records_of(self.lake, self.note.jobs).values()
            for record in records
            if self.asked.of_snapshot(record.snapshot_id)
        )
        new = {
            (table, unit.path)
            for table, files in self.note.replaced.items()
            for unit in files.values()
            if unit is not None
        }
        old = {(table, path) for table, files in self.note.replaced.items() for path in files}
        if old & named:
            return False
        if not new <= named or not all(
            any(is_table_of(job, table) for job in self.note.jobs) for table in self.note.replaced
        ):
            raise DamagedLakeError(
                "no erasure of this lake: its files are of no snapshot",
                place=self.lake.directory.full(note_path(self.asked.request)),
                remedy="statelake did not write that note: remove the file",
            )
        # of an erasure that met notes alone, the snapshots say it
        return (
            bool(old)
            or self.note.said.get("changed") == 0
            or any(
                self.asked.request in record.erased
                for records in records_of(self.lake, self.note.jobs).values()
                for record in records
            )
        )

    def take(self) -> None:
        """Say what is going on, and see that nobody else writes.

        Raises:
            ConflictError: Others do.
        """
        self.note.write(self.lake)
        for job in self.note.jobs:
            refuse_during_erasure(self.lake, job, self.asked.request)
            for snapshot_id in running_attempts(self.lake, job):
                raise ConflictError(
                    f"job {job!r} is being written to, for snapshot {snapshot_id!r}",
                    remedy="try again when that is done",
                )
        if self.asked.carried == "drop" and attempt_tokens(self.lake):
            raise ConflictError(
                "another job is being written to, so that no file that is carried can be deleted",
                remedy="try again when that is done",
            )

    def find(self) -> None:
        """Look where rows are that go, and whether anything stands against it.

        Raises:
            NoMatchError: Nothing is found.
            ConflictError: A table was edited and not committed.
            HeldError: There is a hold on a snapshot that has some.
            EncodeError: State can't be searched, or a predicate is true of all rows.
        """
        self.records = records_of(self.lake, self.note.jobs)
        self._delete_unnamed(of_token=True)  # what was written before a crash
        planner = Planner(self.lake, self.asked, self.records, self.options.engine)
        self._stack.callback(planner.close)
        planner.tasks.refuse_running()
        plan, self.files = planner.find(self.options.progress)
        refuse_plan(plan, self.asked, whole=self.options.whole)
        refuse_held(self.lake, plan.changed(self.asked))
        for job, path in self._table_paths():
            self._check_table(job, path)
        self.note.said = plan.said(self.asked, self.options.secret)

    def _table_paths(self) -> Iterator[tuple[str, str]]:
        for job, records in self.records.items():
            for path in tables_of_job(self.lake, job, records):
                yield job, path

    def _check_table(self, job: str, path: str) -> None:
        table = self.lake.table(path)
        if table.open() is None:
            return
        if {file.path for file in table.files()} - self._needed(job, path):
            raise ConflictError(
                "it was edited and not committed, so that nobody knows what of it is to stay",
                place=table.uri,
                remedy="make a snapshot of it with `statelake commit`, or RESTORE TABLE to the"
                " version of a snapshot",
            )
        check_log(table)

    def _needed(self, job: str, path: str) -> set[str]:
        """The files of a table that snapshots of a job have."""
        return {
            unit.path
            for record in self.records[job]
            for table in record.tables
            if table.path == path
            for unit in table.units
        }

    def write_files(self) -> None:
        """Write each file again without the rows that go."""
        tasks = [replace(file.task, prefix=self.note.token) for file in self.files]
        rewritten = self.options.engine.map(rewrite_pieces, tasks, self.options.progress)
        self.rewritten = [of_file for (of_file,) in rewritten]

    def note_files(self) -> None:
        """Say which new file stands for which old one, so that a crash is gone on from."""
        for file, rewritten_file in zip(self.files, self.rewritten, strict=True):
            new = rewritten_file.files[0] if rewritten_file.files else None
            self.note.replaced.setdefault(file.table, {})[file.unit.path] = new
        # the catalog is to name them before a log does
        sync_attempt(self.lake.directory, self.note.replaced, self.note.token)
        self.note.write(self.lake)

    def switch(self) -> None:
        """Let the catalog name the new files, in one commit."""
        results = {
            (file.table, file.unit.path): rewritten_file
            for file, rewritten_file in zip(self.files, self.rewritten, strict=True)
        }
        changed = []
        for records in self.records.values():
            for record in records:
                new = self._erased(record, results)
                if new != record and self.asked.of_snapshot(record.snapshot_id):
                    changed.append(replace(new, erased=[*record.erased, self.asked.request]))
        self.lake.replace(changed)

    def _erased(
        self, record: SnapshotRecord, results: Mapping[tuple[str, str], Rewritten]
    ) -> SnapshotRecord:
        """A snapshot without what goes; an equal one if it has nothing of it."""
        operators = [self._erased_operator(operator, results) for operator in record.operators]
        record = replace(record.with_operators(operators), note=without_words(record, self.words))
        return without_opaque_state(record) if self.asked.carried == "drop" else record

    def _erased_operator(
        self, operator: OperatorRecord, results: Mapping[tuple[str, str], Rewritten]
    ) -> OperatorRecord:
        for table in operator.tables:
            units: list[UnitRecord] = []
            moved: set[int] = set()
            counts: dict[str, list[Any]] = {}
            for unit in table.units:
                rewritten = results.get((table.path, unit.path))
                if rewritten is None:
                    units.append(unit)
                    continue
                units += rewritten.files
                moved.update(range(unit.first, unit.last + 1))
                for state, counted in (rewritten.counts or {}).items():
                    counts.setdefault(state, []).extend(counted)
            if moved:
                layout = layout_of(self.lake, operator, table)
                units.sort(key=lambda unit: unit.first)
                recorded = layout.recorded(operator, moved, counts)
                operator = recorded.with_table(replace(table, units=units))
        return operator

    def rewrite_logs(self) -> None:
        """Let every version of each table name the new files; it may be done once more."""
        self.records = records_of(self.lake, self.note.jobs)
        # an old file is still named if a snapshot that was not asked for has it
        kept = _named(chain.from_iterable(self.records.values()))
        for _, path in self._table_paths():
            table, files = self.lake.table(path), self.note.replaced.get(path, {})
            if table.open() is not None:
                gone = {old: new for old, new in files.items() if (path, old) not in kept}
                rewrite_log(table, gone)
        give_own_versions(self.lake, self.asked, self.records, kept, self.note)

    def delete_old(self) -> None:
        """Delete what no snapshot names any more; it may be done once more."""
        self._delete_unnamed()
        for job in self.note.jobs:
            self.lake.delete_old_rows(job)
        sweep_carried(self.lake)

    def _delete_unnamed(self, *, of_token: bool = False) -> None:
        """Delete files of tables that no snapshot has: all, or those of this erasure."""
        for job, path in self._table_paths():
            directory, needed = self.lake.table(path).directory, self._needed(job, path)
            for name, _ in directory.files_below():
                token = token_of(name)
                ours = token == self.note.token if of_token else token or _is_engines(name)
                if ours and name not in needed and not name.startswith(f"{LOG_DIRECTORY}/"):
                    directory.delete(name)

    def erase_task_state(self) -> None:
        """Let go what runs and tasks keep of it; it may be done once more."""
        TaskState(self.lake, self.asked, self.records).erase()

    def record(self) -> None:
        """Add what was done to the records."""
        requested_by = self.options.requested_by
        self.added = add_record(
            self.lake, "erase", self.asked.request, requested_by, self.note.said
        )

    def close(self) -> None:
        """Let others write again."""
        self.lake.directory.delete(note_path(self.asked.request))

    def _take_back(self) -> None:
        """Leave nothing behind."""
        self._delete_unnamed(of_token=True)
        self.lake.directory.delete(note_path(self.asked.request))


def _named(records: Iterable[SnapshotRecord]) -> set[tuple[str, str]]:
    """Table and path of every file that snapshots have."""
    return {
        (table.path, unit.path)
        for record in records
        for table in record.tables
        for unit in table.units
    }


def _is_engines(name: str) -> bool:
    """Whether an engine of Delta's wrote a file of that name into a table."""
    return is_edited_file(name) or _CHANGES.fullmatch(name) is not None
