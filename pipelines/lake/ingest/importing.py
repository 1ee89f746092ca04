"""Import a snapshot: slices write files, each table gets one commit, and the catalog one row.

The order keeps the lake consistent: the attempt in the catalog's log, files below its token, a
version of every table, and the entry that adds the snapshot and ends the attempt. A crash before
that entry leaves an attempt, by which the next writer finds and deletes the files that were left.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial

import pyarrow as pa

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.attempts import Attempt, BasisChangedError
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import KEYED, keyed_as_bytes, store_unmanaged
from statelake.pipelines.lake.ingest.import_slice import (
    ImportTask,
    SliceResult,
    TableTarget,
    cached_snapshot,
)
from statelake.pipelines.lake.ingest.import_targets import (
    key_serializer,
    table_targets,
    with_previous,
)
from statelake.pipelines.lake.ingest.joined_files import SlicedTable, join_small_files
from statelake.pipelines.lake.ingest.large_slices import import_slices, is_large, large_bytes
from statelake.pipelines.lake.ingest.unchanged_slices import recorded_sums
from statelake.pipelines.lake.tables.data_files import table_columns
from statelake.pipelines.lake.tables.file_spans import Partitioning, plan_import_slices
from statelake.pipelines.lake.tables.names import TIMERS, check_names, default_snapshot_id
from statelake.pipelines.lake.tables.operator_tables import (
    OperatorTask,
    SubtaskSpanResult,
    describe_operator_states,
    import_operator_states,
    operator_table_paths,
    plan_operator_tasks,
    reusable_files,
)
from statelake.pipelines.lake.tables.records import (
    GIVEN,
    OF_FILE,
    DataFile,
    OperatorRecord,
    OperatorStateRecord,
    SliceRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
    by_span,
    differing_copies,
    key_group_records,
)
from statelake.pipelines.lake.tables.table_rows import sound_files
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.times import Stopwatch, Times
from statelake.state_core.errors import (
    ConflictError,
    DamagedLakeError,
    UnwalkableError,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.reader import (
    METADATA_FILE,
    metadata_digest,
    open_snapshot,
    snapshot_directory,
    with_plan,
    without_raw_timers,
)
from statelake.state_core.model.measure import GroupSums, not_found
from statelake.state_core.model.snapshot import NO_NAMES, TIMER_PREFIX, Operator, RowNames
from statelake.state_core.nested import refuse_twins
from statelake.state_core.printable import Printed, Table, bytes_text

ATTEMPTS = 4
"""The number of attempts of an import whose base is dropped or erased from meanwhile."""


@dataclass(frozen=True)
class ImportResult(Printed):
    """The result of an import.

    Attributes:
        record: The snapshot in the catalog.
        new: False if it had been imported before and nothing was done.
        kept_files: Files of the previous snapshot that hold this one's rows, too.
        written_files: Files that were written.
        engine: The engine that ran it.
        times: The times of its stages.
        same_as: The job's newest snapshot of the same savepoint; empty if there is none.
        as_bytes: Of each operator whose keyed state is kept as bytes, why it has no tables.
    """

    JSON = (
        "*record", "new", "kept_files", "written_files", "engine", "tables", "times", "as_bytes",
    )  # fmt: skip

    record: SnapshotRecord
    new: bool
    kept_files: int = 0
    written_files: int = 0
    engine: str = ""
    times: Times | None = None
    same_as: str = ""
    as_bytes: dict[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """The paths of its tables."""
        return sorted(table.path for table in self.record.tables)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        record = self.record
        if not self.new:
            yield f"{record.job} has snapshot {record.snapshot_id} already: nothing to do"
            return
        yield (
            f"imported {record.snapshot_id} of {record.job}: {record.entries:,} entries,"
            f" {bytes_text(record.state_bytes)} of state; wrote {self.written_files} files"
            f" ({bytes_text(record.written_bytes)}), kept {self.kept_files}"
        )
        if self.same_as:
            yield (
                f"it is the same savepoint as {self.same_as}; `statelake drop` deletes one of them"
            )
        for copies in differing_copies(record.operators):
            yield f"not kept: {copies}"
        for label, why in self.as_bytes.items():
            yield f"operator {label}: {KEYED}, without tables: {why}"
        versions = {table.path: str(table.version) for table in record.tables}
        rows = [
            (state.table, versions[state.table], f"{state.entries:,}",
             # several queues of timers may be in one table
             f"{TIMERS} {state.name.removeprefix(TIMER_PREFIX)}"
             if state.kind == TIMERS else state.kind,
             state.value_type)
            for state in sorted(record.all_states, key=lambda state: (state.table, state.name))
        ]  # fmt: skip
        yield Table("", ("<table", ">version", ">entries", "<kind", "<value"), rows)


AS_IT_IS = Import()


def import_snapshot(
    lake: Catalog,
    source: str,
    job: str,
    request: Import = AS_IT_IS,
    *,
    snapshot_id: str | None = None,
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> ImportResult:
    """Import a savepoint or checkpoint as the job's next snapshot.

    Args:
        lake: The lake.
        source: The snapshot's directory.
        job: The job; its tables are below that name.
        request: How it is read and kept. A shape that is found in values grows from that of the
            previous snapshot.
        snapshot_id: Its id in the lake; by default the name that Flink gave it.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) in bytes after each slice.

    Raises:
        SnapshotError: The snapshot can't be read; the lake has not changed.
        DeclarationError: The plan is not that of the snapshot's job, or can't be understood.
        ConflictError: Another snapshot has that id.
        LakeError: The name of the job or the snapshot is not valid.
    """
    check_names(job, snapshot_id)
    return _Import(lake, source, job, request).run(snapshot_id, engine, progress)


class _Import:
    def __init__(self, lake: Catalog, source: str, job: str, request: Import) -> None:
        self.stopwatch = Stopwatch()
        self.lake = lake
        self.source = source
        self.job = job
        self.request = request
        allow_external, uids = tuple(request.allow_external), tuple(request.uids)
        self.allow_external = allow_external
        self.same_as = ""
        self.as_bytes: dict[str, UnwalkableError] = {}  # by the operator's id
        self.directory = snapshot_directory(source)
        self.cache_key = secrets.token_hex(8)
        # opening costs requests in an object store: local tasks share this snapshot
        if self.directory.is_object_store:
            location = self.directory.location
            self.snapshot = cached_snapshot(location, self.cache_key, allow_external, uids)
        else:
            self.snapshot = open_snapshot(source, allow_external=allow_external, uids=uids)
        # after it is opened: if another takes its place meanwhile, `unchanged` refuses the import
        self.digest = metadata_digest(source, allow_external)
        if request.plan is not None:
            self.snapshot = with_plan(self.snapshot, request.plan)
        if request.decode:
            from statelake.state_core.formats.contents import with_contents  # noqa: PLC0415 - only for that

            self.snapshot = with_contents(self.snapshot, request.decode, self._contents())

    def _contents(self) -> dict[tuple[str, str], str]:
        """Return what texts and bytes of the previous snapshot held."""
        previous = self._previous()
        return {
            (operator.operator_id, state.name): state.content
            for operator in (previous.operators if previous is not None else ())
            for state in operator.states
            if state.content
        }

    def run(
        self, snapshot_id: str | None, choice: Engine | str, progress: Progress | None
    ) -> ImportResult:
        name = snapshot_id or default_snapshot_id(
            self.source, self.digest, self.snapshot.checkpoint_id
        )
        present = self._imported_before(name)
        if present is not None:
            return ImportResult(present, new=False)
        engine = choose_engine(choice)
        try:
            try:
                return self._run_retrying(name, engine, progress)
            except UnwalkableError:
                if not self._keep_unreadable_as_bytes():
                    raise
                return self._run_retrying(name, engine, progress)
        except ConflictError:  # perhaps another process has imported the same one meanwhile
            present = self._imported_before(name)
            if present is None:
                raise
            return ImportResult(present, new=False)

    def _run_retrying(self, name: str, engine: Engine, progress: Progress | None) -> ImportResult:
        for _ in range(ATTEMPTS):
            with suppress(BasisChangedError):  # then try again with the newest snapshot
                return self._run_once(name, engine, progress)
        return self._run_once(name, engine, progress)

    def _keep_unreadable_as_bytes(self) -> bool:
        """Take the tables from operators in whose keyed state not all entries are found.

        Returns:
            Whether the state of each of them can be kept as bytes.
        """
        for operator, state in zip(
            self.snapshot.operators, self.snapshot.metadata.operators, strict=True
        ):
            error = not_found(operator)
            subtasks = (state.subtasks or {}).values()
            if error is not None:
                self.as_bytes[operator.operator_id] = error
                if not all(each.managed_keyed is None or keyed_as_bytes(each) for each in subtasks):
                    return False
        return bool(self.as_bytes)

    def _run_once(self, name: str, engine: Engine, progress: Progress | None) -> ImportResult:
        """Import the snapshot on the basis of the job's newest one.

        Raises:
            BasisChangedError: That one was dropped or erased from meanwhile, or this attempt was
                taken back.
            PluginError: Fields that a plugin gives a state differ only in their case.
        """
        self.name = name
        self.leaves_files = engine.repeats
        for operator in self._operators():
            columns = [(state.name, state.schema) for state in operator.keyed_states]
            columns += [(state.name, state.schema) for state in operator.operator_states]
            for state_name, schema in columns:
                refuse_twins(schema, f"{operator.label}/{state_name}")
        self.previous = self._previous()
        self.tables = {
            operator.label: table_targets(self.lake, self.job, operator, self.request.partitions)
            for operator in self._operators()
        }
        self.operator_tables = operator_table_paths(self.job, self._operators())
        paths = [target.path for targets in self.tables.values() for target in targets]
        paths += self.operator_tables.values()
        bases = [self.previous] if self.previous is not None else []
        with Attempt(self.lake, self.job, name, paths, bases) as attempt:
            self.token = attempt.token
            with self.snapshot.files.unchanged():
                pieces = self._import_operator_states(engine)
                results = self._import_keyed(engine, progress)
            record = attempt.commit(self._commit_tables(results, pieces))
        data_files = [file for table in record.tables for file in table.units]
        written = sum(attempt.token in file.path for file in data_files)
        times = self.stopwatch.times()
        kept = len(data_files) - written
        why = {
            operator.label: self.as_bytes[operator.operator_id].why
            for operator in self.snapshot.operators
            if operator.operator_id in self.as_bytes
        }
        return ImportResult(record, True, kept, written, engine.name, times, self.same_as, why)

    def _previous(self) -> SnapshotRecord | None:
        """Return the snapshot whose files this one may share; None if it is not known."""
        try:
            return self.lake.latest(self.job)
        except DamagedLakeError:
            return None

    def _operators(self) -> list[Operator]:
        """Return the operators that have tables."""
        operators = [
            replace(operator, keyed_files=(), keyed_states=())
            if operator.operator_id in self.as_bytes
            else operator
            for operator in self.snapshot.operators
        ]
        return [each for each in operators if each.keyed_states or each.operator_states]

    def _import_operator_states(self, engine: Engine) -> list[SubtaskSpanResult]:
        """Import operator state."""
        alike = {
            path: sound_files(self.lake.table(path).directory, files)
            for path, files in reusable_files(self._operators(), self.previous).items()
        }
        tasks = [
            OperatorTask(
                self.directory.location,
                self.allow_external,
                self.lake.location,
                self.token,
                pieces,
            )
            for pieces in plan_operator_tasks(self._operators(), self.operator_tables, alike)
        ]
        if not tasks:
            return []
        self.stopwatch.end_step("planned")
        results = engine.map(import_operator_states, tasks)
        self.stopwatch.end_step("operator state")
        return [piece for pieces in results for piece in pieces]

    def _imported_before(self, name: str) -> SnapshotRecord | None:
        """Return the same snapshot, if it was imported before under that id."""
        if not self.lake.exists():
            return None
        summaries, bad = self.lake.listed(self.job)
        for record in summaries:
            if record.digest == self.digest and not record.parent:
                self.same_as = record.snapshot_id
        for row in bad:
            if row.snapshot_id == name:
                raise row.error
        for record in summaries:
            if record.snapshot_id == name:
                if record.digest != self.digest:
                    raise ConflictError(
                        f"job {self.job!r} has another snapshot {name!r}"
                        f" (imported from {record.source})",
                        remedy="choose another id with --snapshot",
                    )
                present = self.lake.snapshot(self.job, name)
                if (self.request.plan is not None or self.request.decode) and not self._has_columns(
                    present
                ):
                    what = "columns of what --decode says"
                    if self.request.plan is not None:
                        what = f"names of {os.fspath(self.request.plan)}"
                    raise ConflictError(
                        f"job {self.job!r} has snapshot {name!r} already, without the {what}",
                        remedy="choose another id with --snapshot, and drop that one",
                    )
                return present
        return None

    def _has_columns(self, record: SnapshotRecord) -> bool:
        """Return whether a snapshot has the names that the plan gives, and forms that were said."""
        recorded = {
            (operator.operator_id, state.name): operator.names_of(state)
            for operator in record.operators
            for state in operator.states
        }
        shaped = {word.partition("=json:")[0] for word in self.request.decode if "=json:" in word}
        return all(
            _are_alike(
                recorded.get((operator.operator_id, state.name), NO_NAMES),
                state.names,
                grows=shaped.isdisjoint(
                    f"{label}/{state.name}" for label in (operator.label, operator.operator_id)
                ),
            )
            for operator in self._operators()
            for state in operator.keyed_states
        )

    def _import_keyed(
        self, engine: Engine, progress: Progress | None
    ) -> dict[str, list[SliceResult]]:
        tasks, sizes, operators, sliced = [], [], [], []
        local = self.directory.local and self.lake.directory.local
        limit = large_bytes(self._operators(), local=local)
        previous = [] if self.previous is None else self.previous.operators
        before = {operator.operator_id: operator for operator in previous}
        marks = defaultdict(set)
        for operator_id, operator_before in before.items():
            for recorded in operator_before.slices:
                marks[operator_id, recorded.first, recorded.last].add(recorded.mark)
        for operator in self._operators():
            targets = with_previous(
                self.tables[operator.label], self.lake.location, operator, self.previous
            )
            sliced += [(operator, target) for target in targets]
            partitioning = Partitioning(operator.max_parallelism)
            present = {span for target in targets for span in target.fingerprints}
            files = operator.keyed_files
            for parts, size in plan_import_slices(files, partitioning, present, limit):
                first, last = parts[0].key_groups.first, parts[-1].key_groups.last
                tasks.append(
                    ImportTask(
                        self.directory.location,
                        self.cache_key,
                        self.allow_external,
                        operator.operator_id,
                        parts,
                        operator.max_parallelism,
                        self.lake.location,
                        self.token,
                        targets,
                        self.request.partitions,
                        tuple((each.name, each.names) for each in operator.keyed_states)
                        if any(each.names != NO_NAMES for each in operator.keyed_states)
                        else (),
                        self.directory.local,
                        frozenset(marks[operator.operator_id, first, last]),
                    )
                )
                sizes.append(size)
                operators.append(operator)
        slices: dict[str, list[SliceResult]] = {op.operator_id: [] for op in self._operators()}
        large = {
            at
            for at, (operator, task, size) in enumerate(zip(operators, tasks, sizes, strict=True))
            if is_large(operator, task, size, limit)
        }
        results = import_slices(self.stopwatch, engine, tasks, sizes, large, progress)
        self.leaves_files |= bool(large)
        self.marks = defaultdict(list)
        sums: dict[str, dict[str, GroupSums]] = {}
        for task, result in zip(tasks, results, strict=True):
            name, read = task.operator_id, task.key_groups
            if result.unchanged:
                if name not in sums:
                    sums[name] = recorded_sums(before[name])
                result.take_recorded(sums[name], task)
            slices[name].append(result)
            if result.mark:
                self.marks[name].append(SliceRecord(read.first, read.last, result.mark))
        keyed = [
            SlicedTable(
                target,
                table_columns(operator.state(target.states[0])),
                slices[operator.operator_id],
                self.request.partitions,
            )
            for operator, target in sliced
        ]
        self.keyed = join_small_files(engine, self.lake.location, self.token, keyed)
        self.stopwatch.end_step("joined files")
        return slices

    def _commit_tables(
        self, results: dict[str, list[SliceResult]], pieces: list[SubtaskSpanResult]
    ) -> SnapshotRecord:
        """Commit every table, and return the snapshot's record."""
        # first the steps that may fail because of the snapshot: a table that is created stays
        files = StateFiles(self.directory, self.allow_external)
        with files.unchanged():
            stripped = without_raw_timers(self.snapshot.metadata, files, self.as_bytes)
            metadata, carried = store_unmanaged(
                stripped, files, self.lake.directory, self.token, self.previous, self.as_bytes
            )
        operators = []
        for operator in self._operators():
            slices = results[operator.operator_id]
            targets = self.tables[operator.label]
            with ThreadPoolExecutor(max(1, min(8, len(targets)))) as pool:
                committed = list(pool.map(partial(self._commit, operator), targets))
            committed += self._commit_operator_tables(operator, pieces)
            states = describe_operator_states(operator, self.operator_tables, pieces)
            described = _describe_operator(operator, targets, committed, slices, states)
            operators.append(replace(described, slices=self.marks[operator.operator_id]))
        written = sum(
            span.size for spans in self.keyed.files.values() for span in spans if span.path
        )
        return SnapshotRecord(
            job=self.job,
            snapshot_id=self.name,
            parent="",
            origin="import",
            kind=self.snapshot.kind,
            format=self.snapshot.format,
            metadata_version=self.snapshot.metadata_version,
            checkpoint_id=self.snapshot.checkpoint_id,
            taken_at=self.request.taken
            or datetime.fromtimestamp(self.directory.modified(METADATA_FILE), timezone.utc),
            imported_at=datetime.now(timezone.utc),
            source=self.snapshot.location,
            digest=self.digest,
            compression=self.snapshot.compression,
            note=self.request.note,
            entries=sum(operator.entries for operator in operators),
            state_bytes=sum(operator.state_bytes for operator in operators),
            written_bytes=written + sum(piece.file.size for piece in pieces),
            metadata=metadata,
            carried=carried,
            operators=operators,
            taken_from=OF_FILE if self.request.taken is None else GIVEN,
        )

    def _commit(self, operator: Operator, target: TableTarget) -> TableRecord:
        """Commit the next version of a table of keyed state."""
        partitioning, files = target.partitioning, self.keyed.files[target.path]
        schema = partitioning.table_schema(table_columns(operator.state(target.states[0])))
        return self._committed(target.path, schema, files, partitioning.column)

    def _commit_operator_tables(
        self, operator: Operator, pieces: list[SubtaskSpanResult]
    ) -> list[TableRecord]:
        """Commit the next version of each table of operator state."""
        tables = []
        for state in operator.operator_states:
            path = self.operator_tables[operator.operator_id, state.name]
            files = [each.file for each in pieces if each.piece.table == path and each.file.rows]
            tables.append(self._committed(path, state.schema, files, ""))
        return tables

    def _committed(
        self, path: str, schema: pa.Schema, files: list[DataFile], partition_by: str
    ) -> TableRecord:
        """Commit written and kept files as a table's next version, and delete temporary ones."""
        tables = [] if self.previous is None else self.previous.tables
        before = by_span(file for table in tables if table.path == path for file in table.units)
        current = [
            file
            for data_file in files
            for file in ([data_file] if data_file.path else before[data_file.span])
        ]
        state_table = self.lake.table(path)
        if self.leaves_files or path in self.keyed.joined:
            state_table.delete_leftovers(self.token, [file.path for file in current])
        record = TableRecord(path, 0, partition_by, current)
        return state_table.commit_files(record, schema, self.token, self.name)


def _are_alike(recorded: RowNames, now: RowNames, *, grows: bool) -> bool:
    """Return whether both say the same, but for a found shape of JSON, which grows by imports."""
    forms = [names.content.partition(" ") for names in (recorded, now)]
    if grows and forms[0][0] == forms[1][0] == "json":
        recorded, now = (replace(names, content="") for names in (recorded, now))
    return recorded == now


def _describe_operator(
    operator: Operator,
    targets: list[TableTarget],
    tables: list[TableRecord],
    results: list[SliceResult],
    operator_states: list[OperatorStateRecord],
) -> OperatorRecord:
    owner = {name: target.path for target in targets for name in target.states}
    states = []
    for state in operator.keyed_states:
        sums = [result.sums[state.name] for result in results if state.name in result.sums]
        groups = [group for of_slice in sums for group in key_group_records(of_slice)]
        states.append(StateRecord.of(state, owner[state.name]).with_key_groups(groups))
    return OperatorRecord(
        operator.operator_id,
        operator.uid,
        operator.name,
        operator.parallelism,
        operator.max_parallelism,
        operator.keyed_states[0].key_type if operator.keyed_states else "",
        key_serializer(operator),
        states,
        tables,
        operator_states,
        operator.operator_state_version,
        operator.node,
        operator.query,
        list(operator.keyed_states[0].names.key) if operator.keyed_states else [],
    )
