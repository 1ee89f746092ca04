"""The engine that rewrites tables: keyed state, timers and operator state alike.

An operation is one or more transforms: what becomes of some rows. The engine cuts a table into
pieces, reads each piece's rows by the table's layout, puts them through the transforms, and lets
the layout encode, measure and write what comes out. Then the new files become the table's next
version, and the operator's record says what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import is_
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.engine import Engine, Progress
from pipelines.lake.catalog.attempts import recover_attempts
from pipelines.lake.catalog.catalog import Lake
from pipelines.lake.edit.key_group_layout import KeyGroupLayout
from pipelines.lake.edit.pieces import Piece, Rewritten, Rows
from pipelines.lake.edit.subtask_layout import SubtaskLayout
from pipelines.lake.tables.operator_tables import NO_PARTITION
from pipelines.lake.tables.records import OperatorRecord, TableRecord, UnitRecord
from pipelines.lake.tables.tables import DATA_DIRECTORY, TableFile
from pipelines.lake.tables.units import Unit
from state_core.errors import ConflictError, StateError
from state_core.files.filesystem import Directory
from state_core.formats.operator_state.operator_states import ElementRows
from state_core.formats.writing.unified_encode import StateRows

__all__ = [
    "SLICE_BYTES",
    "STAGED",
    "TableLayout",
    "TableRewriter",
    "Transform",
    "clear_the_way",
    "kept_rows",
    "layout_of",
    "pieces_of",
]

SLICE_BYTES = 16 << 20
SLICES = 8  # at least so many tasks, if there are as many pieces
STAGED = "staged"  # the directory of what SQL writes for an attempt
TableLayout: TypeAlias = KeyGroupLayout | SubtaskLayout


class Transform:
    """What an operation does to rows; picklable, and the same for every piece of a table.

    Rows keep their order and their key group or subtask.

    Attributes:
        only_drops: Rows, or elements of their lists, go, and nothing else happens to them: a
            file that loses none stays the table's.
        keeps_count: No row may come or go.
        compares: Whether `compare` wants to see the rows in place of which others are staged.
    """

    only_drops: ClassVar[bool] = False
    keeps_count: ClassVar[bool] = False
    compares: ClassVar[bool] = False

    def foresee(self, unit: Unit) -> bool | None:
        """What is known of a unit's rows without reading them.

        Returns:
            True if all of them stay as they are, False if none stays, else None.
        """
        return None

    def compare(self, rows: StateRows | ElementRows) -> None:
        """Look at the snapshot's rows in place of which others are staged, and refuse to."""

    def apply(self, rows: Rows) -> Rows:
        """Some rows of one state as they are to be: the same object if nothing happens to them.

        Raises:
            StateError: They can't be.
        """
        return rows


def kept_rows(rows: Rows, stays: pa.BooleanArray) -> Rows:
    """The rows of which it is true; the same object if it is true of all."""
    if pc.all(stays).as_py() is not False:
        return rows
    return replace(rows, batch=rows.batch.filter(stays))


def clear_the_way(lake: Lake, job: str, snapshot_id: str) -> None:
    """Before a snapshot is made: undo what crashed attempts left in the job's tables.

    Raises:
        ConflictError: The job has a snapshot of that id.
    """
    if any(one.snapshot_id == snapshot_id for one in lake.summaries(job)):
        raise ConflictError(
            f"job {job!r} has a snapshot {snapshot_id!r} already",
            remedy="choose another id with --snapshot",
        )
    recover_attempts(lake, job)


def layout_of(lake: Lake, operator: OperatorRecord, table: TableRecord) -> TableLayout:
    """The layout of a table, whichever kind of state is in it."""
    for state in operator.operator_states:
        if state.table == table.path:
            return SubtaskLayout(lake.location, operator.parallelism, state, state)
    return KeyGroupLayout.of(lake.location, operator, table)


def pieces_of(
    lake: Lake, table: TableRecord, staged: Mapping[int, str] | None = None
) -> list[Piece]:
    """All files of a table: each a piece of its own, unless what is staged for them is in one.

    Args:
        lake: The lake.
        table: The table.
        staged: Where SQL wrote the rows that stand for the table's: the directory of those of
            each partition or subtask, or of all of them as `NO_PARTITION`. None if it wrote none.
    """
    units: list[tuple[Unit, tuple[UnitRecord, ...]]] = [
        (Unit(file.partition, file.first, file.last), (file,)) for file in table.units
    ]
    if staged is None:
        return [Piece(*one) for one in units]
    if NO_PARTITION in staged and units:
        whole = replace(units[0][0], last=units[-1][0].last)
        units = [(whole, tuple(table.units))]
    directory = lake.table(table.path).directory
    return [Piece(unit, files, _staged_files(directory, staged, unit)) for unit, files in units]


def _staged_files(
    directory: Directory, staged: Mapping[int, str], unit: Unit
) -> tuple[UnitRecord, ...]:
    """The files that SQL wrote for a unit's rows; none if it left none of them."""
    subtasks = [NO_PARTITION, *range(unit.first, unit.last + 1)]
    parts = subtasks if unit.partition == NO_PARTITION else [unit.partition]
    return tuple(
        UnitRecord(f"{staged[part]}/{name}", unit.partition, unit.first, unit.last, -1, 0, b"")
        for part in parts
        if part in staged
        for name in directory.names(staged[part])
        if name.endswith(".parquet")
    )


@dataclass(frozen=True)
class _Task:
    """Some pieces of a table, and what becomes of their rows."""

    layout: TableLayout
    transforms: tuple[Transform, ...]
    pieces: tuple[Piece, ...]
    prefix: str


class TableRewriter:
    """Rewrites tables for one attempt.

    Args:
        lake: The lake.
        token: The attempt's.
        engine: Where pieces are rewritten.
        progress: Called with the numbers of finished and of all tasks of a table.

    Attributes:
        written: The bytes that were written so far.
    """

    def __init__(
        self, lake: Lake, token: str, engine: Engine, progress: Progress | None = None
    ) -> None:
        self.lake = lake
        self.token = token
        self.engine = engine
        self.progress = progress
        self.written = 0

    def rewrite_table(
        self,
        operator: OperatorRecord,
        table: TableRecord,
        layout: TableLayout,
        pieces: Sequence[Piece],
        transforms: Sequence[Transform] = (),
    ) -> OperatorRecord:
        """Rewrite some pieces of a table, and make what they become its next version.

        Rows of states that the layout has not are left out.

        Args:
            operator: The operator whose table it is.
            table: The table.
            layout: How its rows lie in files.
            pieces: What is rewritten; other files stay.
            transforms: What becomes of the rows, one after the other.

        Returns:
            The operator with the new version of the table.

        Raises:
            StateError: Rows can't be read, transformed, or written back to Flink.
        """
        tasks = [_Task(layout, tuple(transforms), some, self.token) for some in _slices(pieces)]
        done = self.engine.map(_rewrite_pieces, tasks, self.progress)
        results = [result for some in done for result in some]
        if any(piece.staged is not None and not piece.edited for piece in pieces):
            self.lake.table(table.path).directory.delete_tree(
                f"{DATA_DIRECTORY}/{self.token}/{STAGED}"
            )
        moved: set[int] = set()
        counts: dict[str, list[Any]] = {}
        for piece, result in zip(pieces, results, strict=True):
            if result.counts is not None:
                self.written += sum(file.size for file in result.files)
                moved.update(range(piece.unit.first, piece.unit.last + 1))
                for state, counted in result.counts.items():
                    counts.setdefault(state, []).extend(counted)
        replaced = {file.path for piece in pieces for file in piece.files}
        files = [file for file in table.units if file.path not in replaced]
        files += [file for result in results for file in result.files]
        files.sort(key=lambda file: file.first)
        version = self.lake.table(table.path).replace_files(
            layout.schema,
            [TableFile(one.path, one.size, one.rows, one.partition) for one in files],
            partition_by=table.partition_by or None,
            attempt=self.token,
        )
        made = replace(table, version=version, units=files)
        tables = [made if one is table else one for one in operator.tables]
        return replace(layout.recorded(operator, moved, counts), tables=tables)


def _slices(pieces: Sequence[Piece]) -> list[tuple[Piece, ...]]:
    """Pieces in order, in slices of about `SLICE_BYTES`, or of less where there are few."""
    sizes = [sum(file.size for file in piece.files) for piece in pieces]
    limit = min(SLICE_BYTES, sum(sizes) // SLICES)
    bounds, held = [0], 0
    for at, size in enumerate(sizes):
        if held and held + size > limit:
            bounds.append(at)
            held = 0
        held += size
    return [tuple(pieces[first:last]) for first, last in pairwise([*bounds, len(pieces)])]


def _rewrite_pieces(task: _Task) -> list[Rewritten]:
    """Rewrite the pieces of a task, one after the other."""
    return [_rewrite_piece(task, piece) for piece in task.pieces]


def _rewrite_piece(task: _Task, piece: Piece) -> Rewritten:
    layout, transforms = task.layout, task.transforms
    foreseen = [one.foresee(piece.unit) for one in transforms]
    if transforms and all(foreseen) and piece.staged is None:
        return Rewritten(piece.files)
    if False in foreseen:
        piece = replace(piece, staged=(), edited=False)
    rows: Sequence[Any] = layout.read(piece)  # all of the kind that the layout has
    try:
        if piece.edited:
            for one in rows:
                layout.validate(one)
        _compare(task, piece)
        made = [_transformed(transforms, one) for one in rows]
        count = sum(len(one.batch) for one in made)
        if count != piece.rows and any(one.keeps_count for one in transforms):
            raise ConflictError(f"{piece.rows} rows became {count}")
        same = count == piece.rows and all(map(is_, made, rows))
        if same and not piece.edited and all(one.only_drops for one in transforms):
            return Rewritten(piece.files)
        return layout.write(made, piece.unit, task.prefix)
    except StateError as error:
        raise error.within(layout.place(piece.unit)) from error


def _compare(task: _Task, piece: Piece) -> None:
    """Show the rows in place of which others are staged to the transforms that want to see them."""
    comparing = [one for one in task.transforms if one.compares]
    if comparing and piece.staged is not None:
        for rows in task.layout.read(replace(piece, staged=None)):
            for transform in comparing:
                transform.compare(rows)


def _transformed(transforms: Iterable[Transform], rows: Rows) -> Rows:
    for transform in transforms:
        rows = transform.apply(rows)
    return rows
