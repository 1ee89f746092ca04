"""Slices of a bootstrap: pieces of a source become a spill of a new state's rows.

Plain functions of a task, as in `import_slice`. What is done with the spills is `write_snapshot`'s
matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipelines.engine import Engine, Progress
from pipelines.lake.bootstrap_columns import RowPlan, SourceColumn, map_batches, source_columns
from pipelines.lake.sources import PIECE_BYTES, Piece, read_piece
from state_core.formats.new_rows import SpillTask, batches_of, spill_batches
from state_core.formats.spills import Spill

__all__ = ["ArrowRows", "FileRows", "SpillSlice", "mapped_batches", "spill_slice"]


@dataclass(frozen=True)
class SpillSlice:
    """Pieces that one task sorts by key group."""

    task: SpillTask
    plan: RowPlan
    pieces: tuple[Piece, ...]


def spill_slice(one: SpillSlice) -> Spill:
    """Sort some pieces' rows by key group into a spill.

    Raises:
        StateError: They can't be read, or are no rows of such a state.
    """
    return spill_batches(one.task, mapped_batches(one.plan, one.pieces, one.task.layout.schema))


def mapped_batches(
    plan: RowPlan, pieces: Iterable[Piece], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of pieces, with the state's columns."""
    columns = sorted({name for one in plan.columns.values() for name in source_columns(one)})
    hints = pa.schema(
        {
            one.path[0]: schema.field(name).type
            for name, one in plan.columns.items()
            if isinstance(one, SourceColumn) and len(one.path) == 1 and name in schema.names
            if name not in ("ttl", "timestamp")
        }
    )
    for piece in pieces:
        batches = read_piece(piece, columns, hints)
        yield from map_batches(plan, batches, schema, piece.name, piece.first_row)


@dataclass(frozen=True)
class FileRows:
    """A state's rows in files: slices of them run on an engine."""

    plan: RowPlan
    pieces: Sequence[Piece]
    engine: Engine
    progress: Progress | None = None

    def spill(self, task: SpillTask) -> list[Spill]:
        """Spill all of them, in order."""
        slices: list[list[Piece]] = []
        held = 0
        for piece in self.pieces:
            if not slices or held + piece.size > PIECE_BYTES:
                slices.append([])
                held = 0
            slices[-1].append(piece)
            held += piece.size
        tasks = [SpillSlice(task, self.plan, tuple(one)) for one in slices]
        return self.engine.map(spill_slice, tasks, self.progress)


@dataclass(frozen=True)
class ArrowRows:
    """A state's rows as Arrow tables or batches, which this process has."""

    plan: RowPlan
    rows: object

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Them, with the state's columns."""
        return map_batches(self.plan, batches_of(self.rows, "rows"), schema, "", 0)

    def spill(self, task: SpillTask) -> list[Spill]:
        """Spill all of them."""
        return [spill_batches(task, self.batches(task.layout.schema))]
