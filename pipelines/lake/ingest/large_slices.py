"""A slice that is too large for one task: read in pieces, each of which writes files of its own.

A key group is in one slice, so that one with most of the bytes would delay all the others. If its
file can be read in pieces, one task finds where these begin, and others write the rows of one piece
each. The files of a table, in the order of the pieces, have the rows that one task would have
written into one file. They all name the key groups of the slice, and the fingerprint of all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.ingest.import_slice import (
    ImportTask,
    SliceResult,
    TableTarget,
    import_slice,
    slice_name,
)
from statelake.pipelines.lake.ingest.large_slice_tasks import (
    PIECE_BYTES,
    CutTask,
    PieceResult,
    PieceTask,
    WrittenFile,
    WrongGuess,
    cut_or_import,
    import_piece,
    task_name,
)
from statelake.pipelines.lake.tables.data_files import measured_file
from statelake.pipelines.lake.tables.records import DataFile
from statelake.pipelines.times import Stopwatch
from statelake.state_core.model.entries import CuttableFile, FilePiece
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.measure import Measure
from statelake.state_core.model.snapshot import Operator

Task = TypeVar("Task")
Result = TypeVar("Result")

LARGE_BYTES = 2 * PIECE_BYTES
SHARE = 64  # a smaller share of all bytes delays nothing
HUGE_BYTES = 4 << 30  # but is cut on local disks, where it is cheap to read bytes again
CUT_SPEED, MEASURE_SPEED = 16, 4  # relative to the speed of an import


def large_bytes(operators: Iterable[Operator], *, local: bool) -> int:
    """Return the largest number of bytes of a slice that one task imports.

    Args:
        operators: All operators of the snapshot.
        local: Whether both snapshot and lake are on local disks.
    """
    files = (file for operator in operators for file in operator.keyed_files)
    share = sum(size for file in files for _, size in file.group_bytes()) // SHARE
    return max(LARGE_BYTES, min(share, HUGE_BYTES) if local else share)


def is_large(operator: Operator, task: ImportTask, size: int, large: int) -> bool:
    """Return whether to import a slice in pieces: a large one of one bucket, whose file allows it.

    Args:
        operator: Its operator.
        task: The slice.
        size: Its bytes as stored.
        large: The result of `large_bytes`.
    """
    if size <= large or len(task.parts) > 1:
        return False
    (part,) = task.parts
    file = operator.keyed_files[part.file]
    if not isinstance(file, CuttableFile):
        return False
    sizes = file.looked_up_bytes()
    groups = [group for group, count in sizes if count and group in part.key_groups]
    return all(
        len({partitioning.partition_of(group) for group in groups}) == 1
        for partitioning in {target.partitioning for target in task.targets}
    )


def import_slices(
    stopwatch: Stopwatch,
    engine: Engine,
    tasks: Sequence[ImportTask],
    sizes: Sequence[int],
    large: Collection[int],
    progress: Progress | None = None,
) -> list[SliceResult]:
    """Import slices, and return the result of each, in order.

    Args:
        stopwatch: Measures their times.
        engine: The engine that runs tasks.
        tasks: The slices.
        sizes: Their bytes as stored.
        large: The indices of those that are imported in pieces.
        progress: Called with (done, total) in bytes after each task.

    Raises:
        SnapshotError: The snapshot can't be read.
    """
    if not large:
        return stopwatch.run_timed(engine, import_slice, tasks, sizes, progress, name=slice_name)
    stages = _Stages(stopwatch, engine, sum(sizes), progress)
    firsts = [CutTask(task, guess=True) if at in large else task for at, task in enumerate(tasks)]
    weights = [size // CUT_SPEED if at in large else size for at, size in enumerate(sizes)]
    results = stages.map(cut_or_import, firsts, weights)
    cut = {
        at: _LargeSlice(tasks[at], result)
        for at, result in enumerate(results)
        if not isinstance(result, SliceResult)
    }
    _import_large(stages, list(cut.values()))
    wrong = [at for at, large_slice in cut.items() if large_slice.guessed_wrong]
    pieces = stages.map(
        cut_or_import,
        [CutTask(tasks[at], guess=False) for at in wrong],
        [sizes[at] // CUT_SPEED for at in wrong],
    )
    cut |= {
        at: _LargeSlice(tasks[at], outcome)
        for at, outcome in zip(wrong, pieces, strict=True)
        if not isinstance(outcome, SliceResult)
    }
    _import_large(stages, [cut[at] for at in wrong])
    stages.end()
    return [
        result if isinstance(result, SliceResult) else cut[at].result()
        for at, result in enumerate(results)
    ]


def _import_large(stages: _Stages, slices: Sequence[_LargeSlice]) -> None:
    """Import slices in pieces; one whose pieces were guessed wrong is not continued."""

    def works(of: Callable[[_LargeSlice], list[_Work]]) -> list[_Work]:
        return [work for large in slices if not large.guessed_wrong for work in of(large)]

    stages.run(works(_LargeSlice.to_measure))
    stages.run(works(_LargeSlice.to_write))


@dataclass(frozen=True)
class _Work:
    """A task of a large slice, and its cost as a number of imported bytes."""

    large_slice: _LargeSlice
    task: PieceTask
    weight: int


@dataclass
class _Stages:
    """Runs the tasks of one kind after those of another, and reports the progress of all."""

    stopwatch: Stopwatch
    engine: Engine
    total: int
    progress: Progress | None
    done: int = 0

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        weights: Sequence[int],
    ) -> list[Result]:
        """Return the function's result of every task, in order."""
        report = None if self.progress is None else self._told
        results = self.stopwatch.run_timed(
            self.engine, function, tasks, weights, report, name=task_name
        )
        self.done += sum(weights)
        return results

    def run(self, works: Sequence[_Work]) -> None:
        """Run tasks, and pass each result to its slice, in order."""
        if works:
            results = self.map(
                import_piece, [work.task for work in works], [work.weight for work in works]
            )
            for work, result in zip(works, results, strict=True):
                work.large_slice.take(result)

    def end(self) -> None:
        """Report that all is done."""
        if self.progress is not None:
            self.progress(self.total, self.total)

    def _told(self, done: int, _: int) -> None:
        if self.progress is not None:
            self.progress(min(self.done + done, self.total - 1), self.total)


class _LargeSlice:
    """A slice on its way through the stages.

    Args:
        task: The slice.
        pieces: Its pieces.
    """

    def __init__(self, whole: ImportTask, pieces: Sequence[FilePiece]) -> None:
        self.task = whole
        self.pieces = pieces
        self.measures: list[Measure] = []
        self.files: list[WrittenFile] = []
        self.guessed_wrong = False

    def to_measure(self) -> list[_Work]:
        """Return the tasks that measure its pieces, if there are known files to compare."""
        if not any(target.fingerprints for target in self.task.targets):
            return []
        task = replace(self.task, targets=())
        return [
            _Work(self, PieceTask(task, piece, measured=False), piece.size // MEASURE_SPEED)
            for piece in self.pieces
        ]

    def to_write(self) -> list[_Work]:
        """Return the tasks of its pieces with rows of changed tables."""
        measured = bool(self.measures)
        targets = tuple(
            replace(target, previous=None)
            for target in self.task.targets
            if not measured or self._differs(target)
        )
        task = replace(self.task, targets=targets)
        names = [name for target in targets if measured for name in self._states(target)]
        return [
            _Work(self, PieceTask(task, piece, measured), piece.size)
            for at, piece in enumerate(self.pieces)
            if not measured or self.measures[at].rows(names, piece.key_groups)
        ]

    def take(self, result: PieceResult | WrongGuess) -> None:
        """Take the result of the next task."""
        if isinstance(result, WrongGuess):
            self.guessed_wrong = True
            return
        if result.measure is not None:
            self.measures.append(result.measure)
        self.files += result.files

    def result(self) -> SliceResult:
        """Return the result of the slice."""
        measure = self._measure
        files = {
            target.path: self._files(target)
            for target in self.task.targets
            if measure.rows(self._states(target), self.task.key_groups)
        }
        return SliceResult(files, {name: measure.sums(name) for name in measure.states})

    @cached_property
    def _measure(self) -> Measure:
        """The measure of all pieces together."""
        total = Measure(list(self.measures[0].states), self.task.key_groups)
        for measure in self.measures:
            total.merge(measure)
        return total

    def _states(self, target: TableTarget) -> list[str]:
        return [name for name in target.states if name in self._measure.states]

    def _differs(self, target: TableTarget) -> bool:
        """Return whether a table has rows here that differ from the previous snapshot's."""
        file = self._file(target)
        span = KeyGroupRange(*file.span)
        return file.rows > 0 and not target.keeps(span, file.fingerprint)

    def _files(self, target: TableTarget) -> list[DataFile]:
        """Return the files of a table; one without a path for those of the previous snapshot."""
        data_file = self._file(target)
        return [
            replace(data_file, path=file.path, rows=file.rows, size=file.size)
            for file in self.files
            if file.table == target.path
        ] or [data_file]

    def _file(self, target: TableTarget) -> DataFile:
        """Return the record of one file with all rows of a table, without a path."""
        states, within = self._states(target), self.task.key_groups
        return measured_file(self._measure, states, within, target.partitioning)
