"""Pieces of a table for the rewrite engine: files, their rows, and the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.records import DataFile
from statelake.state_core.errors import InexactError
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.writing.unified_encode import StateRows

Rows = TypeVar("Rows", StateRows, ElementRows)
# by state: a KeyGroupRecord for each key group, or a SubtaskRecord for each subtask, with rows
Counts: TypeAlias = Mapping[str, Sequence[Any]]
# of a piece the files that have rows of it, and the row group
Parts: TypeAlias = tuple[tuple[DataFile, int], ...]
# a file, and the pieces that have a row group in it; None without rows
Staged: TypeAlias = tuple[DataFile, list[int]] | None


@dataclass(frozen=True)
class Piece:
    """Some files of a table that one new file replaces.

    Attributes:
        span: The new file's partition, and the key groups or subtasks that it may hold.
        files: The snapshot's files that are replaced.
        staged: The files to read instead, which SQL or a user wrote, with the new types of the
            table. None if the rows are those of `files`.
        edited: Whether a user wrote `staged`, so that its rows have to be validated.
        row_groups: Those of each of `staged` that are read; all, if this is empty.
    """

    span: FileSpan
    files: tuple[DataFile, ...]
    staged: tuple[DataFile, ...] | None = None
    edited: bool = False
    row_groups: tuple[tuple[int, ...], ...] = ()

    @property
    def rows(self) -> int:
        """Rows of the files that are replaced."""
        return sum(file.rows for file in self.files)

    def with_staged(self, parts: Parts) -> Piece:
        """Return the piece with rows that were staged."""
        staged = tuple(file for file, _ in parts)
        return replace(self, staged=staged, row_groups=tuple((each,) for _, each in parts))


def parts_by_piece(staged: Iterable[Staged], pieces: int) -> tuple[Parts, ...]:
    """Return the row groups of each of some pieces."""
    parts: list[list[tuple[DataFile, int]]] = [[] for _ in range(pieces)]
    for file, indexes in filter(None, staged):
        for row_group, index in enumerate(indexes):
            parts[index].append((file, row_group))
    return tuple(map(tuple, parts))


@dataclass(frozen=True)
class Rewritten:
    """The result of a piece.

    Attributes:
        files: Its new files.
        counts: The new counts; None if nothing was written.
        refused: The rows for which it was not written, as columns do not hold their values.
    """

    files: tuple[DataFile, ...]
    counts: Counts | None = None
    refused: InexactError | None = None
