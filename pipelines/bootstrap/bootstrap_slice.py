"""Slices of a bootstrap: pieces of a source become a spill of a new state's rows.

Plain functions of a task, as in `import_slice`. The spills are consumed by `write_snapshot`.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from statelake.pipelines.bootstrap.bootstrap_columns import (
    RowPlan,
    SourceBatch,
    SourceColumn,
    map_batches,
    source_columns,
)
from statelake.pipelines.bootstrap.sources import PIECE_BYTES, SourcePiece, read_piece
from statelake.pipelines.engine import Engine, Progress
from statelake.state_core.errors import EncodeError, StateError
from statelake.state_core.formats.writing.new_rows import (
    BATCH_BYTES,
    BATCH_ROWS,
    SpillTask,
    batches_of,
)
from statelake.state_core.formats.writing.new_rows import spill_batches as spill_made_rows
from statelake.state_core.formats.writing.spills import Spill

Mapped = tuple[SourceBatch, pa.RecordBatch]


@dataclass(frozen=True)
class SpillSlice:
    """Pieces that one task sorts by key group."""

    task: SpillTask
    plan: RowPlan
    pieces: tuple[SourcePiece, ...]


def spill_slice(work: SpillSlice) -> Spill:
    """Sort some pieces' rows by key group into a spill.

    Raises:
        StateError: The rows can't be read, or are not rows of such a state.
    """
    return spill_rows(work.task, mapped_batches(work.plan, work.pieces, work.task.layout.schema))


def spill_rows(task: SpillTask, batches: Iterable[Mapped]) -> Spill:
    """Sort rows by key group into a spill; an invalid value is reported with its row.

    Raises:
        EncodeError: A row is not valid for such a state.
    """
    # the batches that the writer may be using when it finds an error
    pending: deque[Mapped] = deque()
    rows = size = 0

    def made() -> Iterator[pa.RecordBatch]:
        nonlocal rows, size
        for batch in batches:
            pending.append(batch)
            rows += len(batch[1])
            size += batch[1].nbytes
            while len(pending) > 1 and (
                rows - len(pending[0][1]) > 2 * BATCH_ROWS
                or size - pending[0][1].nbytes > 2 * BATCH_BYTES
            ):
                _, gone = pending.popleft()
                rows -= len(gone)
                size -= gone.nbytes
            yield batch[1]

    try:
        return spill_made_rows(task, made())
    except EncodeError as error:
        if ", row " not in error.place:
            for source, batch in pending:
                _name_row(task, source, batch)
        raise


def _name_row(task: SpillTask, source: SourceBatch, batch: pa.RecordBatch) -> None:
    """Raise an error that names the first row of a batch that can't be written, if any."""
    with tempfile.TemporaryDirectory() as name:
        scratch = replace(task, directory=name)

        def refused(first: int, end: int) -> StateError | None:
            try:
                spill_made_rows(scratch, [batch.slice(first, end - first)])
            except EncodeError as error:
                return error
            return None

        if refused(0, len(batch)) is None:
            return
        low, high = 0, len(batch)  # before `low` all can be written, before `high` not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if refused(low, middle) else (middle, high)
        refusal = refused(low, high)
    if refusal is not None:
        problem = refusal.problem.replace("row 0 is null, and", "there is a null, and")
        source.refuse(problem, "", refusal.remedy, low)


def mapped_batches(
    plan: RowPlan, pieces: Iterable[SourcePiece], schema: pa.Schema
) -> Iterator[Mapped]:
    """Yield pieces batch by batch, with the rows of the state from each."""
    columns = sorted({name for column in plan.columns.values() for name in source_columns(column)})
    hints = pa.schema(
        {
            column.path[0]: schema.field(name).type
            for name, column in plan.columns.items()
            if isinstance(column, SourceColumn) and len(column.path) == 1 and name in schema.names
            if name not in ("ttl", "timestamp")
        }
    )
    for piece in pieces:
        batches = read_piece(piece, columns, hints)
        try:
            yield from map_batches(plan, batches, schema, piece.name, piece.first_row)
        except EncodeError as error:
            if not plan.place or error.place.startswith(plan.place):
                raise
            raise error.within(plan.place) from error


@dataclass(frozen=True)
class FileRows:
    """A state's rows in files: slices of them run on an engine."""

    plan: RowPlan
    pieces: Sequence[SourcePiece]
    engine: Engine
    progress: Progress | None = None

    def spill(self, task: SpillTask) -> list[Spill]:
        """Spill all of them, in order."""
        slices: list[list[SourcePiece]] = []
        filled = 0
        for piece in self.pieces:
            if not slices or filled + piece.size > PIECE_BYTES:
                slices.append([])
                filled = 0
            slices[-1].append(piece)
            filled += piece.size
        tasks = [SpillSlice(task, self.plan, tuple(slice_)) for slice_ in slices]
        return self.engine.map(spill_slice, tasks, self.progress)


@dataclass(frozen=True)
class ArrowRows:
    """A state's rows as Arrow tables or batches, which this process has."""

    plan: RowPlan
    rows: object

    def batches(self, schema: pa.Schema) -> Iterator[Mapped]:
        """Yield the source's rows, with the state's rows made of them."""
        source_batches = batches_of(self.rows, self.plan.place or "rows")
        return map_batches(self.plan, source_batches, schema, "", 0)

    def spill(self, task: SpillTask) -> list[Spill]:
        """Spill all of them."""
        return [spill_rows(task, self.batches(task.layout.schema))]
