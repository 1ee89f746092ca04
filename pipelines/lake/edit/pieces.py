"""The unit of work of the engine: a piece of a table, and what it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from pipelines.lake.tables.records import UnitRecord
from pipelines.lake.tables.units import Unit
from state_core.formats.operator_state.operator_states import ElementRows
from state_core.formats.writing.unified_encode import StateRows

__all__ = ["Counts", "Piece", "Rewritten", "Rows"]

Rows = TypeVar("Rows", StateRows, ElementRows)
# by state: a KeyGroupRecord of each key group, or a SubtaskRecord of each subtask, with rows
Counts: TypeAlias = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Piece:
    """Some files of a table, whose rows become one file.

    Attributes:
        unit: The new file's partition, and the key groups or subtasks that it may hold.
        files: The snapshot's files that it replaces.
        staged: The files whose rows stand for theirs, written by SQL or by a user, in the types
            that the table is to have; None where the rows are those of `files`.
        edited: Whether a user wrote `staged`, so that its rows have to be validated.
    """

    unit: Unit
    files: tuple[UnitRecord, ...]
    staged: tuple[UnitRecord, ...] | None = None
    edited: bool = False

    @property
    def rows(self) -> int:
        """Rows of the files that it replaces."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Rewritten:
    """The files that stand for a piece now, and its counts; None if they are what they were."""

    files: tuple[UnitRecord, ...]
    counts: Counts | None = None
