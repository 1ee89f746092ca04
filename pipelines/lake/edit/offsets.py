"""The transform by which the sources of a snapshot go on from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.value_migration import with_value_bytes


@dataclass(frozen=True)
class OffsetsMoved(Transform):
    """Give elements of a source's state other bytes.

    Attributes:
        elements: The new bytes, by subtask and position.
    """

    keeps_unchanged = True
    keeps_count = True

    elements: Mapping[tuple[int, int], bytes]

    def apply(self, rows: Rows) -> Rows:
        """Replace the elements, and leave all others as they are."""
        if not isinstance(rows, ElementRows):
            return rows
        subtasks = rows.batch.column("subtask").to_pylist()
        positions = rows.batch.column("position").to_pylist()
        changed = {
            row: self.elements[place]
            for row, place in enumerate(zip(subtasks, positions, strict=True))
            if place in self.elements
        }
        return with_value_bytes(rows, changed) if changed else rows
