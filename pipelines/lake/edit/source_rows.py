"""Rows of sources' states in an edit: elements replaced, dropped, or those of the next source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import Transform, kept_rows
from statelake.pipelines.lake.edit.subtask_layout import SubtaskLayout
from statelake.pipelines.lake.tables.records import OperatorRecord, OperatorStateRecord
from statelake.state_core.connectors.sources import READER_STATE
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import write_state_meta_info
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.rewriting.value_migration import rewritten_rows, with_value_bytes
from statelake.state_core.formats.writing.new_states import NewOperatorState


@dataclass(frozen=True)
class ElementsReplaced(Transform):
    """Replace elements of a source's state, or drop them.

    Attributes:
        elements: The new bytes, by subtask and position; None for an element that goes.
    """

    keeps_unchanged = True

    elements: Mapping[tuple[int, int], bytes | None]

    def apply(self, rows: Rows) -> Rows:
        """Replace the elements, and keep all others."""
        if not isinstance(rows, ElementRows):
            return rows
        places = _places(rows)
        changed = {
            row: data
            for row, place in enumerate(places)
            if (data := self.elements.get(place)) is not None
        }
        stays = [self.elements.get(place, b"") is not None for place in places]
        replaced = with_value_bytes(rows, changed) if changed else rows
        return kept_rows(replaced, pa.array(stays, pa.bool_()))


@dataclass(frozen=True)
class SourceSucceeded(Transform):
    """Replace the elements of an old source by those of the next one.

    Attributes:
        elements: The next one's, by subtask and position; an element without any goes.
        meta_info: The meta info of the next one's state.
    """

    elements: Mapping[tuple[int, int], bytes]
    meta_info: bytes

    def apply(self, rows: Rows) -> Rows:
        """Return the elements of the next source's state."""
        if not isinstance(rows, ElementRows):
            return rows
        stays = [place in self.elements for place in _places(rows)]
        kept = kept_rows(rows, pa.array(stays, pa.bool_()))
        written = pa.array([self.elements[place] for place in _places(kept)], pa.large_binary())
        layout = parse_operator_state(self.meta_info)[1]
        named = rewritten_rows(kept, layout.value, written)
        return replace(named, name=READER_STATE, layout=layout)


def succeeding_layout(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord, table: str
) -> SubtaskLayout:
    """Return the layout by which an old source's state becomes that of readers, in another table.

    Args:
        lake: The lake's location.
        operator: The old source.
        state: Its state.
        table: The path of the other table.
    """
    out = DataOutput()
    write_state_meta_info(NewOperatorState(READER_STATE, (), "split", "byte[]").meta_info(), out)
    parsed, _ = parse_operator_state(out.to_bytes())
    after = replace(
        state, name=parsed.name, mode=parsed.mode.name, value_type=parsed.value_type,
        meta_info=parsed.meta_info, table=table,
    )  # fmt: skip
    return SubtaskLayout(lake, operator.parallelism, state, after)


def _places(rows: ElementRows) -> list[tuple[int, int]]:
    """Return the subtask and position of each element."""
    subtasks, positions = (rows.batch.column(name).to_pylist() for name in ("subtask", "position"))
    return list(zip(subtasks, positions, strict=True))
