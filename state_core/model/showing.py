"""The model in notebooks and consoles: a line or a small table, without decoding anything."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.state_core.model.operator_state import OperatorState
    from statelake.state_core.model.snapshot import KeyedState, Operator, Snapshot

LONGEST = 120  # characters of a name in a line or in a cell of HTML
LONGEST_NAME = 5000  # of a name in text, of which a terminal folds the lines
SHOWN = 100


@dataclass(frozen=True)
class Table:
    """A headline and rows of text, which each face prints in its own way.

    Attributes:
        title: The headline.
        columns: Their names, behind `<` (left) or `>` (right).
        rows: The cells of each row.
        left: How many more rows there are.
    """

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    left: int = 0

    def __str__(self) -> str:
        lines = [[column[1:] for column in self.columns], *self.rows]
        cells = [[printable(cell) for cell in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        shown = [
            "  ".join(
                cell.rjust(width) if column[0] == ">" else cell.ljust(width)
                for cell, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in cells
        ]
        return "\n".join([printable(self.title), *shown])

    def to_html(self) -> str:
        """Return it as HTML, all of whose text is escaped, with the first rows of many."""
        caption = f"<p>{html.escape(brief(self.title, 2 * LONGEST))}</p>" if self.title else ""
        if not self.columns:
            return caption
        head = "".join(f"<th>{html.escape(column[1:])}</th>" for column in self.columns)
        cells = ("".join(map(_cell, row)) for row in self.rows[:SHOWN])
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        left = len(self.rows) + self.left - SHOWN
        more = f"<p>... and {left:,} more</p>" if left > 0 else ""
        return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: str) -> str:
    return f"<td>{html.escape(brief(value, LONGEST))}</td>"


def brief(name: str, longest: int = LONGEST_NAME) -> str:
    """Return a name out of a file as a line may have it: cut, what can't be seen escaped."""
    return printable(name if len(name) <= longest else f"{name[:longest]}...")


def kind_text(format_: str, kind: str) -> str:
    """Return a snapshot's format and kind in words; empty if neither is known."""
    return " ".join(dict.fromkeys(filter(None, (format_, kind))))


def snapshot_line(snapshot: Snapshot) -> str:
    """Return a line about a snapshot."""
    kind = kind_text(snapshot.format, snapshot.kind) or "snapshot"
    return (
        f"<Snapshot {brief(snapshot.location, LONGEST)}: {kind}, checkpoint"
        f" {snapshot.checkpoint_id}, {len(snapshot.operators)} operators,"
        f" {snapshot.total_bytes:,} bytes>"
    )


def operator_line(operator: Operator) -> str:
    """Return a line about an operator."""
    return (
        f"<Operator {brief(operator.label, LONGEST)}: parallelism {operator.parallelism},"
        f" {operator.max_parallelism} key groups, {len(operator.keyed_states)} keyed and"
        f" {len(operator.operator_states)} operator states, {operator.total_bytes:,} bytes>"
    )


def keyed_state_line(state: KeyedState) -> str:
    """Return a line about a keyed state."""
    types = _types(state.key_type, state.user_key_type, state.value_type)
    return f"<KeyedState {brief(state.name, LONGEST)}: {state.kind.value}, {types}>"


def element_state_line(state: OperatorState) -> str:
    """Return a line about an operator state."""
    types = _types(state.key_type, state.value_type)
    return f"<OperatorState {brief(state.name, LONGEST)}: {state.mode.name}, {types}>"


def schema_table(line: str, schema: pa.Schema) -> Table:
    """Return a table of a state's columns."""
    return Table(line, ("<column", "<type"), [(column.name, str(column.type)) for column in schema])


def _types(*types: str) -> str:
    return brief(" → ".join(filter(None, types)), LONGEST)
