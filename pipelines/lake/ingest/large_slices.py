"""A slice that is too large for one task: read in pieces, whose rows become one file again.

A key group is in one slice, so that one with most bytes would hold up all the others. Where its
file can be read in pieces, one task finds where these begin, others write the rows of one each, and
the last join what those wrote: a file of each table, with the rows as one task would have written
them. On a local disk most of it is joined while the last pieces are written.

Until then parts are files of the attempt that no log names. Whoever commits removes them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from pipelines.engine import Engine, Progress
from pipelines.lake.ingest.import_slice import (
    ImportTask,
    SliceResult,
    TableTarget,
    import_slice,
    opened_snapshot,
    slice_name,
)
from pipelines.lake.tables.joined_files import MovedFiles, join_files
from pipelines.lake.tables.names import new_folder
from pipelines.lake.tables.records import UnitRecord, key_group_records
from pipelines.lake.tables.tables import DATA_DIRECTORY, table_directory
from pipelines.lake.tables.unit_writer import UnitWriter, table_batch
from pipelines.lake.tables.units import SLICE_BYTES, Partitioning
from pipelines.times import Stopwatch, phase, phase_of_each
from state_core.errors import StateError
from state_core.files.moves import Move, move_all, plan_moves
from state_core.model.measure import Measure
from state_core.model.pieces import CuttableFile, FilePiece
from state_core.model.snapshot import KeyedFile

__all__ = ["import_slices"]

Task = TypeVar("Task")
Result = TypeVar("Result")

PIECE_BYTES = SLICE_BYTES
CUT_SPEED, MEASURE_SPEED, MOVE_SPEED = 16, 4, 2  # times that of an import
LATE_PIECES = 4  # a fourth of them is written while what the others wrote is moved


@dataclass(frozen=True)
class CutTask:
    """Find where the pieces of a slice begin; or guess it, which takes less reading."""

    whole: ImportTask
    guess: bool


@dataclass(frozen=True)
class PieceTask:
    """Import a piece of a slice.

    Attributes:
        whole: The slice, with those tables that are to be written.
        piece: What is read of it.
        measured: Whether it was measured before.
    """

    whole: ImportTask
    piece: FilePiece
    measured: bool


@dataclass(frozen=True)
class WrittenFile:
    """A file, by its table, its path below that, and its bytes."""

    table: str
    path: str
    size: int


@dataclass(frozen=True)
class PieceResult:
    """What a piece holds.

    Attributes:
        measure: Its entries, in its own key groups alone; None if it was measured before.
        parts: The file of each table that it has rows of.
    """

    measure: Measure | None
    parts: list[WrittenFile]


class WrongGuess:
    """There is no entry where a piece was guessed to begin, or to end."""


@dataclass(frozen=True)
class MoveTask:
    """Move what pieces wrote into a file that has the rows before theirs."""

    moves: list[Move]


@dataclass(frozen=True)
class JoinTask:
    """Make one file of several of a table, in a store where no file can be written into."""

    lake: str
    table: str
    attempt: str
    paths: list[str]


def import_slices(
    stopwatch: Stopwatch,
    engine: Engine,
    tasks: Sequence[ImportTask],
    sizes: Sequence[int],
    large: Collection[int],
    progress: Progress | None = None,
) -> list[SliceResult]:
    """Import slices; what each of them holds, in order.

    Args:
        stopwatch: Measures what they take.
        engine: Where tasks run.
        tasks: The slices.
        sizes: Their bytes as stored.
        large: Which of them are imported in pieces.
        progress: Called with (done, total) in bytes after each task.

    Raises:
        SnapshotError: The snapshot can't be read.
    """
    if not large:
        return stopwatch.map(engine, import_slice, tasks, sizes, progress, name=slice_name)
    stages = _Stages(stopwatch, engine, sum(sizes), progress)
    firsts = [CutTask(task, guess=True) if at in large else task for at, task in enumerate(tasks)]
    weights = [size // CUT_SPEED if at in large else size for at, size in enumerate(sizes)]
    results = stages.map(_cut_or_import, firsts, weights)
    cut = {
        at: _LargeSlice(tasks[at], result)
        for at, result in enumerate(results)
        if not isinstance(result, SliceResult)
    }
    _import_large(stages, list(cut.values()))
    wrong = [at for at, large_slice in cut.items() if large_slice.guessed_wrong]
    pieces = stages.map(
        _cut_or_import,
        [CutTask(tasks[at], guess=False) for at in wrong],
        [sizes[at] // CUT_SPEED for at in wrong],
    )
    cut |= {
        at: _LargeSlice(tasks[at], found)
        for at, found in zip(wrong, pieces, strict=True)
        if not isinstance(found, SliceResult)
    }
    _import_large(stages, [cut[at] for at in wrong])
    stages.end()
    return [
        result if isinstance(result, SliceResult) else cut[at].result()
        for at, result in enumerate(results)
    ]


def _import_large(stages: _Stages, slices: Sequence[_LargeSlice]) -> None:
    """Import slices in pieces; no more is done of one whose pieces were guessed wrong."""

    def works(of: Callable[[_LargeSlice], list[_Work]]) -> list[_Work]:
        return [work for large in slices if not large.guessed_wrong for work in of(large)]

    stages.run(works(_LargeSlice.to_measure))
    pieces = works(_LargeSlice.to_write)
    early = len(pieces)
    if slices and slices[0].is_local:
        early -= early // LATE_PIECES
    stages.run(pieces[:early])
    stages.run([*works(_LargeSlice.to_move), *pieces[early:]])
    stages.run(works(_LargeSlice.to_join))


@dataclass(frozen=True)
class _Work:
    """A task of a large slice, and how much it is in bytes that are imported."""

    large_slice: _LargeSlice
    task: PieceTask | MoveTask | JoinTask
    weight: int


class _Stages:
    """Maps tasks of one kind after those of another, and tells how far all of it is."""

    def __init__(
        self, stopwatch: Stopwatch, engine: Engine, total: int, progress: Progress | None
    ) -> None:
        self.stopwatch = stopwatch
        self.engine = engine
        self.total = total
        self.progress = progress
        self.done = 0

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
    ) -> list[Result]:
        """The function of every task, in order."""
        told = None if self.progress is None else self._told
        results = self.stopwatch.map(self.engine, function, tasks, weights, told, name=_name)
        self.done += sum(weights)
        return results

    def run(self, works: Sequence[_Work]) -> None:
        """Have tasks done, and give each result to its slice, in order."""
        if works:
            results = self.map(_run, [work.task for work in works], [work.weight for work in works])
            for work, result in zip(works, results, strict=True):
                work.large_slice.take(result)

    def end(self) -> None:
        """Say that all is done."""
        if self.progress is not None:
            self.progress(self.total, self.total)

    def _told(self, done: int, _: int) -> None:
        if self.progress is not None:
            self.progress(min(self.done + done, self.total - 1), self.total)


class _LargeSlice:
    """A slice on its way through the stages.

    Args:
        whole: The slice.
        pieces: What it was cut into.
    """

    def __init__(self, whole: ImportTask, pieces: Sequence[FilePiece]) -> None:
        self.whole = whole
        self.pieces = pieces
        self.measures: list[Measure] = []
        self.parts: dict[str, list[WrittenFile]] = {}
        self.moved: dict[str, MovedFiles] = {}
        self.moves: list[Move] = []
        self.files: list[WrittenFile] = []
        self.guessed_wrong = False
        self.is_local = table_directory(whole.lake, whole.targets[0].path).local

    def to_measure(self) -> list[_Work]:
        """Its pieces, where the snapshot before has files to compare with."""
        if not any(target.known for target in self.whole.targets):
            return []
        whole = replace(self.whole, targets=())
        return [
            _Work(self, PieceTask(whole, piece, measured=False), piece.size // MEASURE_SPEED)
            for piece in self.pieces
        ]

    def to_write(self) -> list[_Work]:
        """Its pieces, as far as they have rows of tables that are not as they were."""
        measured = bool(self.measures)
        targets = tuple(
            replace(target, known={})
            for target in self.whole.targets
            if not measured or self._differs(target)
        )
        whole = replace(self.whole, targets=targets)
        names = [name for target in targets if measured for name in self._states(target)]
        return [
            _Work(self, PieceTask(whole, piece, measured), piece.size)
            for at, piece in enumerate(self.pieces)
            if not measured or self.measures[at].rows(names, piece.key_groups)
        ]

    def take(self, result: PieceResult | WrittenFile | WrongGuess | None) -> None:
        """Take what came of the next task."""
        self.guessed_wrong |= isinstance(result, WrongGuess)
        if isinstance(result, WrittenFile):
            self.files.append(result)
        if not isinstance(result, PieceResult):
            return
        if result.measure is not None:
            self.measures.append(result.measure)
        for part in result.parts:
            self.parts.setdefault(part.table, []).append(part)
            if part.table in self.moved:
                self.moves.append(self.moved[part.table].add(part.path))
            elif self.is_local:
                directory = table_directory(self.whole.lake, part.table)
                self.moved[part.table] = MovedFiles(directory, part.path)

    def to_move(self) -> list[_Work]:
        """What pieces wrote that are behind the first, on a local disk."""
        tasks = plan_moves(self.moves)
        self.moves = []
        return [
            _Work(self, MoveTask(moves), sum(move.size for move in moves) // MOVE_SPEED)
            for moves in tasks
        ]

    def to_join(self) -> list[_Work]:
        """The tables of which there are several parts; one that is alone is the file itself."""
        works = []
        for table, parts in self.parts.items():
            paths = [part.path for part in parts]
            if len(parts) == 1:
                self.files += parts
            elif table in self.moved:
                last, size = self.moved[table].end(_new_path(self.whole.attempt, paths))
                self.files.append(WrittenFile(table, paths[0], size))
                self.moves.append(last)
            else:
                task = JoinTask(self.whole.lake, table, self.whole.attempt, paths)
                works.append(_Work(self, task, sum(part.size for part in parts) // MOVE_SPEED))
        return [*works, *self.to_move()]

    def result(self) -> SliceResult:
        """What the slice holds, and what was written of it."""
        measure = self._measure
        units = {
            target.path: [self._unit(target)]
            for target in self.whole.targets
            if measure.rows(self._states(target), self.whole.key_groups)
        }
        counted = {name: key_group_records(measure, name) for name in measure.states}
        written = sum(unit.size for of_table in units.values() for unit in of_table)
        return SliceResult(units, counted, written)

    @cached_property
    def _measure(self) -> Measure:
        """All pieces together."""
        whole = Measure(list(self.measures[0].states), self.whole.key_groups)
        for measure in self.measures:
            whole.merge(measure)
        return whole

    def _states(self, target: TableTarget) -> list[str]:
        return [name for name in target.states if name in self._measure.states]

    def _differs(self, target: TableTarget) -> bool:
        """Whether a table has rows here, and not those that the snapshot before has."""
        unit = self._unit(target)
        return unit.rows > 0 and target.known.get((unit.first, unit.last)) != unit.fingerprint

    def _unit(self, target: TableTarget) -> UnitRecord:
        """The only file of a table; without a path where it is that of the snapshot before."""
        states, within = self._states(target), self.whole.key_groups
        span = self._measure.span(states, within)
        partitioning = Partitioning(self.whole.max_parallelism, target.partition_by)
        files = [file for file in self.files if file.table == target.path]
        path, size = (files[0].path, files[0].size) if files else ("", 0)
        return UnitRecord(
            path,
            partitioning.partition_of(span.first),
            span.first,
            span.last,
            self._measure.rows(states, span),
            size,
            self._measure.fingerprint(states, span),
        )


def _name(task: object) -> str:
    """What a task is called where it is told of."""
    if isinstance(task, ImportTask):
        return slice_name(task)
    if isinstance(task, CutTask | PieceTask):
        return f"a part of {slice_name(task.whole)}"
    if isinstance(task, MoveTask):
        return f"joining {task.moves[0].to}"
    assert isinstance(task, JoinTask)  # noqa: S101 - there are no others
    return f"joining a file of {task.table}"


def _cut_or_import(task: ImportTask | CutTask) -> SliceResult | list[FilePiece]:
    """Import a slice, or find the pieces of one."""
    if isinstance(task, ImportTask):
        return import_slice(task)
    file = _file(task.whole)
    assert isinstance(file, CuttableFile)  # noqa: S101 - or it is not large
    with phase("cut"):
        return file.cut(task.whole.key_groups, PIECE_BYTES, guess=task.guess)


def _import_piece(task: PieceTask) -> PieceResult:
    """Measure a piece, and write its rows."""
    whole, file = task.whole, _file(task.whole)
    assert isinstance(file, CuttableFile)  # noqa: S101 - or it was not cut
    measure = None
    if not task.measured:
        measure = Measure([state.name for state in file.states], task.piece.key_groups)
    writers = {
        target.path: UnitWriter(
            table_directory(whole.lake, target.path),
            whole.attempt,
            Partitioning(whole.max_parallelism, target.partition_by),
        )
        for target in whole.targets
    }
    table_of = {name: target.path for target in whole.targets for name in target.states}
    last = whole.key_groups.last
    for entries in phase_of_each("read", file.entries_of(task.piece)):
        if measure is not None:
            with phase("measured"):
                measure.add(entries)
        for index, state in enumerate(file.states):
            of_state = entries.of_state(index)
            if len(of_state) and state.name in table_of:
                with phase("decoded"):
                    rows = table_batch(state, file.decode(index, of_state))
                with phase("wrote"):
                    writers[table_of[state.name]].append(rows, last)
    with phase("wrote"):
        written = [WrittenFile(table, *writer.close(last)) for table, writer in writers.items()]
    return PieceResult(measure, [part for part in written if part.path])


def _run(
    task: PieceTask | MoveTask | JoinTask,
) -> PieceResult | WrittenFile | WrongGuess | None:
    """Do what is to be done of a large slice."""
    if isinstance(task, PieceTask):
        try:
            return _import_piece(task)
        except StateError:
            if task.piece.guessed:  # if it is damaged, then who cuts it says so
                return WrongGuess()
            raise
    with phase("joined"):
        if isinstance(task, JoinTask):
            path = _new_path(task.attempt, task.paths)
            size = join_files(table_directory(task.lake, task.table), task.paths, path)
            return WrittenFile(task.table, path, size)
        move_all(task.moves)
    return None


def _new_path(attempt: str, paths: Sequence[str]) -> str:
    """A path of the attempt that no file has, for what files of a table become."""
    return f"{DATA_DIRECTORY}/{new_folder(attempt)}/{posixpath.basename(paths[0])}"


def _file(whole: ImportTask) -> KeyedFile:
    """The file that a large slice is of."""
    snapshot = opened_snapshot(whole.source, whole.opening, whole.allow_external)
    (operator,) = (op for op in snapshot.operators if op.operator_id == whole.operator_id)
    return operator.keyed_files[whole.parts[0].file]
