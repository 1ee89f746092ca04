"""Tasks of a slice that is imported in pieces (`large_slices`)."""

from __future__ import annotations

from dataclasses import dataclass

from statelake.pipelines.lake.ingest.import_slice import (
    ImportTask,
    SliceResult,
    import_slice,
    slice_name,
)
from statelake.pipelines.lake.tables.data_files import DataFileWriter, table_batch
from statelake.pipelines.lake.tables.file_spans import SLICE_BYTES
from statelake.pipelines.lake.tables.tables import table_directory
from statelake.pipelines.times import phase, phase_of_each
from statelake.state_core.errors import StateError
from statelake.state_core.model.entries import CuttableFile, FilePiece, KeyedFile
from statelake.state_core.model.measure import Measure

PIECE_BYTES = SLICE_BYTES


@dataclass(frozen=True)
class CutTask:
    """Task: find where the pieces of a slice begin; or guess it, which reads less."""

    task: ImportTask
    guess: bool


@dataclass(frozen=True)
class PieceTask:
    """Task: import a piece of a slice.

    Attributes:
        task: The slice, with the tables to write.
        piece: The piece of the file to read.
        measured: Whether it was measured before.
    """

    task: ImportTask
    piece: FilePiece
    measured: bool


@dataclass(frozen=True)
class WrittenFile:
    """A file, by its table, its path below that, its bytes and its rows."""

    table: str
    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class PieceResult:
    """The result of a piece.

    Attributes:
        measure: Its entries, in its own key groups alone; None if it was measured before.
        files: The file of each table of which it has rows.
    """

    measure: Measure | None
    files: list[WrittenFile]


class WrongGuess:
    """A wrong guess: no entry begins, or ends, at that offset."""


def task_name(task: object) -> str:
    """Return the name of a task in messages."""
    if isinstance(task, ImportTask):
        return slice_name(task)
    assert isinstance(task, CutTask | PieceTask)  # noqa: S101 - there is no other kind
    return f"a part of {slice_name(task.task)}"


def cut_or_import(task: ImportTask | CutTask) -> SliceResult | list[FilePiece]:
    """Import a slice, or find the pieces of one."""
    if isinstance(task, ImportTask):
        return import_slice(task)
    file = _file(task.task)
    assert isinstance(file, CuttableFile)  # noqa: S101 - otherwise it is not large
    with phase("cut"):
        return file.cut(task.task.key_groups, PIECE_BYTES, guess=task.guess)


def _import_piece(task: PieceTask) -> PieceResult:
    """Measure a piece, and write its rows."""
    import_task, file = task.task, _file(task.task)
    assert isinstance(file, CuttableFile)  # noqa: S101 - otherwise it was not cut
    measure = None
    if not task.measured:
        measure = Measure([state.name for state in file.states], task.piece.key_groups)
    writers = {
        target.path: DataFileWriter(
            table_directory(import_task.lake, target.path),
            import_task.attempt,
            target.partitioning,
        )
        for target in import_task.targets
    }
    table_of = {name: target.path for target in import_task.targets for name in target.states}
    count = dict.fromkeys(writers, 0)
    last = import_task.key_groups.last
    for entries in phase_of_each("read", file.entries_of(task.piece)):
        if measure is not None:
            with phase("measured"):
                measure.add(entries)
        for index, state in enumerate(file.states):
            of_state = entries.of_state(index)
            if len(of_state) and state.name in table_of:
                with phase("decoded"):
                    rows = table_batch(state, file.decode(index, of_state))
                table = table_of[state.name]
                count[table] += len(rows)
                with phase("wrote"):
                    writers[table].append(rows, last)
    with phase("wrote"):
        written = [
            WrittenFile(table, *writer.close(last), count[table])
            for table, writer in writers.items()
        ]
    return PieceResult(measure, [file for file in written if file.path])


def import_piece(task: PieceTask) -> PieceResult | WrongGuess:
    """Measure a piece, and write its rows, unless its offsets were guessed wrong."""
    try:
        return _import_piece(task)
    except StateError:
        if task.piece.guessed:  # if the file is damaged, cutting it raises the error
            return WrongGuess()
        raise


def _file(task: ImportTask) -> KeyedFile:
    """Return the keyed file of a large slice."""
    return task.files()[task.parts[0].file]
