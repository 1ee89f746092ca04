"""The engine that derives a snapshot from another: keyed state, timers and operator state alike.

`derive` makes a snapshot from another one. A `Derivation` says which tables change, and what else
changes in the record. An operation on rows is a `Transform`. The engine cuts a table into pieces,
reads the rows of each by the table's layout, applies the transforms, and has the layout encode,
measure and write the result. The new files become the table's next version, and the counts of the
operator's states are updated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.attempts import Attempt
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.recorded_sources import check_edited_sources
from statelake.pipelines.lake.catalog.unmanaged_state import without_unused_files
from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.pieces import Piece, Rewritten, Rows, Staged, parts_by_piece
from statelake.pipelines.lake.edit.subtask_layout import SubtaskLayout
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.names import check_names, new_folder
from statelake.pipelines.lake.tables.records import (
    DataFile,
    OperatorRecord,
    SnapshotRecord,
    TableRecord,
    by_span,
)
from statelake.pipelines.lake.tables.table_rows import null_counts, open_data_file
from statelake.pipelines.lake.tables.tables import DATA_DIRECTORY
from statelake.pipelines.times import Stopwatch, Times, phase
from statelake.state_core.errors import ConflictError, InexactError, StateError
from statelake.state_core.formats.rewriting.value_migration import (
    null_value_fields,
    with_kinds,
    without_left_bytes,
)
from statelake.state_core.model.entries import by_size

SLICE_BYTES = 16 << 20
STAGED = "staged"  # the directory of rows that an attempt writes, and reads again
SLICES = 8  # the smallest number of tasks, if there are as many pieces
TableLayout: TypeAlias = KeyGroupLayout | SubtaskLayout


class Transform:
    """A change of rows, of any kind of state.

    A transform is picklable, since it goes to other processes with each task. It may drop rows and
    change their values, but must leave their order, and their key group or subtask.

    Attributes:
        keeps_unchanged: Whether a file stays as it is if `apply` returns the very rows that it
            got.
        validates: Whether changed rows are validated as rows are that a user has edited.
        keeps_count: Whether it must not drop a row.
        reads_back: Whether every value of its rows is read back from its bytes.
    """

    keeps_unchanged: ClassVar[bool] = False
    validates: ClassVar[bool] = False
    keeps_count: ClassVar[bool] = False
    reads_back: ClassVar[bool] = False

    def foresee(self, span: FileSpan) -> bool | None:
        """Return what is known of a span's rows before they are read.

        Returns:
            True if all rows stay as they are, False if none stays, None if they must be read.
        """
        return None

    def apply(self, rows: Rows) -> Rows:
        """Transform some rows of one state.

        Returns:
            The new rows; the same object if they stay as they are.

        Raises:
            StateError: The rows can't be transformed.
        """
        return rows


def kept_rows(rows: Rows, stays: pa.BooleanArray) -> Rows:
    """Filter rows: the same object if all of them stay."""
    if pc.all(stays).as_py() is not False:
        return rows
    return replace(rows, batch=rows.batch.filter(stays))


@dataclass(frozen=True)
class TableChange:
    """A change of one table.

    Attributes:
        layout: The layout of its next version.
        pieces: The pieces to rewrite; other files stay.
        transforms: The transforms of the rows, in order.
        moves: The transforms that come first, and give rows of all pieces other key groups; of
            keyed state alone.
    """

    layout: TableLayout
    pieces: Sequence[Piece]
    transforms: Sequence[Transform] = ()
    moves: Sequence[Transform] = ()


class Derivation:
    """The way a snapshot is made from another one: what a subclass does not change stays.

    Attributes:
        origin: The origin of the new snapshot in the catalog.
    """

    origin: ClassVar[str] = "edit"

    def begin(self, record: SnapshotRecord, rewriter: TableRewriter) -> Sequence[OperatorRecord]:
        """Return the operators of the new snapshot, before any table is rewritten.

        Args:
            record: The parent.
            rewriter: The rewriter of tables.
        """
        return record.operators

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table; None if it stays as it is."""
        return None

    def finish(self, record: SnapshotRecord) -> SnapshotRecord:
        """Return the record of the new snapshot, whose tables are rewritten, as it is committed.

        Raises:
            StateError: The new snapshot can't be made after all.
        """
        return record


@dataclass(frozen=True)
class ChildSnapshot:
    """A snapshot that is to be made from another one of its job.

    Attributes:
        lake: The lake.
        job: The job.
        parent: The snapshot from which it is made.
        snapshot_id: Its name.
        note: Kept with it: say why.
        dry_run: Whether it is only described: no table gets a version, and the files that were
            written to measure it are deleted.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) after each task of a table.
    """

    lake: Catalog
    job: str
    parent: str
    snapshot_id: str
    note: str = ""
    dry_run: bool = False
    engine: Engine | str = "auto"
    progress: Progress | None = None

    @property
    def exists(self) -> bool:
        """Return whether there is a snapshot of its name."""
        return self.lake.has(self.job, self.snapshot_id)

    @property
    def parent_record(self) -> SnapshotRecord:
        """The parent as it is now.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        return self.lake.snapshot(self.job, self.parent)

    def taken_error(self, made_by: str) -> ConflictError:
        """Return the error that the snapshot of its name is not what something makes of it."""
        return ConflictError(
            f"job {self.job!r} has a snapshot {self.snapshot_id!r} already, which is not what"
            f" {made_by} makes of {self.parent!r}",
            remedy="choose another --suffix, or drop that snapshot first",
        )


@dataclass(frozen=True)
class Derived:
    """The result of `derive`.

    Attributes:
        record: The new snapshot.
        parent: The snapshot from which it is made.
        times: The times of the stages.
    """

    record: SnapshotRecord
    parent: SnapshotRecord
    times: Times


def derive(
    child: ChildSnapshot,
    record: SnapshotRecord,
    derivation: Derivation,
    *,
    paths: Sequence[str] | None = None,
    others: Sequence[SnapshotRecord] = (),
) -> Derived:
    """Make a snapshot from another one, for every command that changes state.

    Args:
        child: The new snapshot.
        record: Its parent as the caller has read it, which must still be the catalog's.
        derivation: The way it is made.
        paths: The tables to rewrite; by default all of the parent's.
        others: Other snapshots that must stay as they are meanwhile.

    Raises:
        NotFoundError: There is no such parent.
        ConflictError: The name is taken, or a parent was dropped or erased from meanwhile. With
            any error nothing is registered, and files that were written are deleted.
    """
    lake, name = child.lake, child.snapshot_id
    check_names(child.job, name)
    if paths is None:
        paths = [table.path for table in record.tables]
    chosen = choose_engine(child.engine)
    lake.check_tables(paths)
    with Attempt(lake, child.job, name, paths, [record, *others], "edit") as attempt:
        rewriter = TableRewriter(lake, attempt, chosen, child.progress, child.dry_run)
        operators = [
            _derived(operator, derivation, rewriter)
            for operator in derivation.begin(record, rewriter)
        ]
        derived = record.followed_by(
            name, derivation.origin, operators, rewriter.written, child.note
        )
        derived = without_unused_files(derivation.finish(derived))
        check_edited_sources(lake.location, record, derived)
        if not child.dry_run:
            derived = attempt.commit(derived)
    return Derived(derived, record, rewriter.stopwatch.times())


def _derived(
    operator: OperatorRecord, derivation: Derivation, rewriter: TableRewriter
) -> OperatorRecord:
    """Return the operator with its tables rewritten."""
    for table in operator.tables:
        change = derivation.change(operator, table)
        if change is not None:
            pieces = change.pieces
            if change.moves:
                pieces = rewriter.stage_moved(table, change.layout, pieces, change.moves)
            operator = rewriter.rewrite_table(operator, table, change, pieces)
            if change.moves:
                rewriter.delete_staged(table)
    return operator


def layout_of(lake: Catalog, operator: OperatorRecord, table: TableRecord) -> TableLayout:
    """Return the layout of a table: by subtask for operator state, else by key group."""
    for state in operator.operator_states:
        if state.table == table.path:
            return SubtaskLayout(lake.location, operator.parallelism, state, state)
    return KeyGroupLayout.of(lake.location, operator, table)


def pieces_of(table: TableRecord) -> list[Piece]:
    """Cut a whole table into pieces: the files of the same key groups, or subtasks, each."""
    return [piece_of(files) for files in by_span(table.units).values()]


def piece_of(files: Sequence[DataFile]) -> Piece:
    """Return the piece of all files of the same key groups, or subtasks."""
    return Piece(FileSpan(files[0].partition, files[0].first, files[0].last), tuple(files))


@dataclass(frozen=True)
class MoveTask:
    """Some pieces of a table whose rows get other key groups.

    Attributes:
        layout: The table's layout.
        transforms: The transforms of the rows, in order.
        pieces: What is read.
        spans: The key groups of the new pieces, in order.
        prefix: The directory of new files, below that of all data.
    """

    layout: KeyGroupLayout
    transforms: tuple[Transform, ...]
    pieces: tuple[Piece, ...]
    spans: tuple[FileSpan, ...]
    prefix: str


def move_pieces(task: MoveTask) -> list[Staged]:
    """Sort the rows of a task's pieces by their new key groups, and write those of each piece."""
    return [_move_piece(task, piece) for piece in task.pieces]


def _move_piece(task: MoveTask, piece: Piece) -> Staged:
    layout = task.layout
    try:
        with phase("read"):
            states = layout.read(piece)
        for transform in task.transforms:
            states = [transform.apply(rows) for rows in states]
        with phase("wrote"):
            path = f"{new_folder(f'{task.prefix}/{STAGED}')}/moved"
            return layout.stage(states, task.spans, path)
    except StateError as error:
        raise error.within(layout.place(piece.span)) from error


@dataclass(frozen=True)
class RewriteTask:
    """Some pieces of a table, and the transforms of their rows.

    Attributes:
        layout: The table's layout.
        transforms: The transforms of the rows, in order.
        pieces: What is rewritten.
        prefix: The directory of new files, below that of all data.
        lake: The lake's location.
        table: The table as the snapshot has it.
        read_back: Whether every value is read back from its bytes.
    """

    layout: TableLayout
    transforms: tuple[Transform, ...]
    pieces: tuple[Piece, ...]
    prefix: str
    lake: str
    table: TableRecord
    read_back: bool = False


@dataclass
class TableRewriter:
    """Rewrites tables for one attempt.

    Attributes:
        lake: The lake.
        attempt: The attempt.
        engine: The engine that rewrites pieces.
        progress: Called with (done, total) after each task of a table.
        dry_run: Whether tables get no new version.
        written: The bytes of the files written so far.
        stopwatch: The stopwatch of the stages.
    """

    lake: Catalog
    attempt: Attempt
    engine: Engine
    progress: Progress | None
    dry_run: bool
    written: int = 0
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    @property
    def token(self) -> str:
        """The attempt's token."""
        return self.attempt.token

    def stage_moved(
        self,
        table: TableRecord,
        layout: TableLayout,
        pieces: Sequence[Piece],
        moves: Sequence[Transform],
    ) -> list[Piece]:
        """Give all rows of a table other key groups.

        Args:
            table: The table.
            layout: The table's layout.
            pieces: The pieces of the table.
            moves: The transforms of the rows, of which the last ones give them other key groups.

        Returns:
            The new pieces, whose rows are in staged files.

        Raises:
            StateError: Rows can't be read or transformed.
        """
        assert isinstance(layout, KeyGroupLayout)  # noqa: S101 - only those have key groups
        new = layout.new_pieces(table.units)
        spans = tuple(piece.span for piece in new)
        tasks = [
            MoveTask(layout, tuple(moves), part, spans, self.token) for part in slices_of(pieces)
        ]
        done = self.stopwatch.run_timed(
            self.engine, move_pieces, tasks, [0] * len(tasks), self.progress,
            rest="transformed", name=_slice_name,
        )  # fmt: skip
        staged = parts_by_piece((each for of_task in done for each in of_task), len(new))
        return [piece.with_staged(parts) for piece, parts in zip(new, staged, strict=True)]

    def delete_staged(self, table: TableRecord) -> None:
        """Delete the files that only this attempt reads."""
        directory = self.lake.table(table.path).directory
        directory.delete_tree(f"{DATA_DIRECTORY}/{self.token}/{STAGED}")

    def rewrite_table(
        self,
        operator: OperatorRecord,
        table: TableRecord,
        change: TableChange,
        pieces: Sequence[Piece],
    ) -> OperatorRecord:
        """Rewrite some pieces of a table as its next version.

        Rows of states that the operator no longer has are left out.

        Args:
            operator: The operator whose table it is.
            table: The table.
            change: Its change.
            pieces: The pieces to rewrite, which are staged where keys move; other files stay.

        Returns:
            The operator with the new version of the table, and the counts of its states.

        Raises:
            InexactError: A transform refuses rows; all of the table are counted.
            StateError: Rows can't be read, transformed, or written back to Flink.
        """
        layout, transforms = change.layout, tuple(change.transforms)
        read_back = any(transform.reads_back for transform in (*change.moves, *transforms))
        tasks = [
            RewriteTask(
                layout, transforms, part, self.token, self.lake.location, table, read_back
            )
            for part in slices_of(pieces)
        ]  # fmt: skip
        done = self.stopwatch.run_timed(
            self.engine, rewrite_or_refuse, tasks, [0] * len(tasks), self.progress,
            rest="transformed", name=_slice_name,
        )  # fmt: skip
        results = [result for of_task in done for result in of_task]
        refused = [result.refused for result in results if result.refused is not None]
        if refused:
            raise _sum_of(refused).within(f"operator {operator.label}")
        moved: set[int] = set()
        counts: dict[str, list[Any]] = {}
        for piece, result in zip(pieces, results, strict=True):
            if result.counts is not None:
                self.written += sum(file.size for file in result.files)
                moved.update(range(piece.span.first, piece.span.last + 1))
                for state, counted in result.counts.items():
                    counts.setdefault(state, []).extend(counted)
        replaced = {file.path for piece in pieces for file in piece.files}
        files = [file for file in table.units if file.path not in replaced]
        files += [file for result in results for file in result.files]
        files.sort(key=lambda file: file.first)
        if self.engine.repeats:
            named = [file.path for file in files]
            self.lake.table(table.path).delete_leftovers(self.token, named)
        rewritten = replace(table, units=files)
        if not self.dry_run:
            rewritten = self.lake.table(table.path).commit_files(
                rewritten, layout.schema, self.token, self.attempt.claim.snapshot_id
            )
        return layout.recorded(operator, moved, counts).with_table(rewritten)


def slices_of(pieces: Sequence[Piece]) -> list[tuple[Piece, ...]]:
    """Cut pieces into tasks of about `SLICE_BYTES`, but into `SLICES` of them if possible."""

    def size_of(piece: Piece) -> int:
        return sum(file.size for file in piece.files)

    limit = min(SLICE_BYTES, sum(map(size_of, pieces)) // SLICES)
    return list(map(tuple, by_size(pieces, size_of, limit)))


def _slice_name(task: RewriteTask | MoveTask) -> str:
    """Return the name of a slice in messages."""
    places = [task.layout.place(piece.span) for piece in task.pieces]
    return " to ".join(dict.fromkeys([*places[:1], *places[-1:]]))


def _sum_of(refused: Sequence[InexactError]) -> InexactError:
    """Return one refusal for the rows of several pieces; of keys or values, as the first."""
    first = refused[0]
    count = sum(error.count for error in refused if error.what == first.what)
    return InexactError.of(count, first.what, place=first.place, remedy=first.remedy)


def rewrite_pieces(task: RewriteTask) -> list[Rewritten]:
    """Rewrite the pieces of a task, one after the other."""
    return [_rewrite_piece(task, piece) for piece in task.pieces]


def rewrite_or_refuse(task: RewriteTask) -> list[Rewritten]:
    """Rewrite the pieces of a task, and count the rows that are refused in each."""
    done = []
    for piece in task.pieces:
        try:
            done.append(_rewrite_piece(task, piece))
        except InexactError as error:  # noqa: PERF203 - each has its own
            done.append(Rewritten(piece.files, refused=error))
    return done


def _rewrite_piece(task: RewriteTask, piece: Piece) -> Rewritten:
    """Read, transform and write one piece, unless its files remain as they are."""
    layout, transforms = task.layout, task.transforms
    foreseen = [transform.foresee(piece.span) for transform in transforms]
    if transforms and all(foreseen) and piece.staged is None:
        return Rewritten(piece.files)
    if False in foreseen:
        piece = replace(piece, staged=(), edited=False)
    with phase("read"):
        before: Sequence[Any] = layout.read(piece)  # all of the kind that the layout has
    try:
        if piece.edited:
            for rows in before:
                layout.validate(rows)
        after = [_transformed(transforms, rows) for rows in before]
        count = sum(len(rows.batch) for rows in after)
        if count != piece.rows and any(transform.keeps_count for transform in transforms):
            raise ConflictError(f"{piece.rows} rows became {count}")
        same = count == piece.rows and all(map(is_, after, before))
        if (
            same
            and piece.staged is None
            and all(transform.keeps_unchanged for transform in transforms)
        ):
            return Rewritten(piece.files)
        if any(transform.validates for transform in transforms):
            for rows in after:
                layout.validate(rows)
        if piece.edited or any(transform.validates for transform in transforms):
            _refuse_new_nulls(task, piece, after)
            after = [without_left_bytes(rows) for rows in after]
        with phase("wrote"):
            return layout.write(after, piece.span, task.prefix, read_back=task.read_back)
    except InexactError:
        raise
    except StateError as error:
        raise error.within(layout.place(piece.span)) from error


def _refuse_new_nulls(task: RewriteTask, piece: Piece, after: Iterable[Any]) -> None:
    """Refuse null in a POJO's field that may be primitive, unless Flink wrote such a null before.

    Raises:
        EncodeError: The snapshot has no such null in any entry.
    """
    nulls = {path: null for rows in after for path, null in null_value_fields(rows).items()}
    if not nulls:
        return
    for rows in task.layout.read(replace(piece, staged=None, edited=False)):
        for path in null_value_fields(rows):
            nulls.pop(path, None)
    for file in task.table.units if nulls else ():
        with open_data_file(task.lake, task.table.path, file) as opened:
            counts = null_counts(opened)
        nulls = {path: null for path, null in nulls.items() if not null.was_written(counts)}
    for null in nulls.values():
        raise null.error()


def _transformed(transforms: Iterable[Transform], before: Rows) -> Rows:
    """Return transformed rows; those of Flink SQL keep their kinds of change."""
    rows = before
    for transform in transforms:
        rows = transform.apply(rows)
    return with_kinds(before, rows)
