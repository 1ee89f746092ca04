"""The model in notebooks and consoles: a line or a small table, without decoding anything."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from statelake.state_core.printable import printable

if TYPE_CHECKING:
    from statelake.state_core.model.operator_state import NonKeyedState
    from statelake.state_core.model.snapshot import KeyedState, Operator, Snapshot

__all__ = [
    "element_state_line",
    "keyed_state_line",
    "operator_html",
    "operator_line",
    "schema_html",
    "snapshot_html",
    "snapshot_line",
]

LONGEST = 120
SHOWN = 100


def snapshot_line(snapshot: Snapshot) -> str:
    """Return a line about a snapshot."""
    kind = " ".join(dict.fromkeys(filter(None, (snapshot.format, snapshot.kind)))) or "snapshot"
    size = sum(operator.total_bytes for operator in snapshot.operators)
    return (
        f"<Snapshot {_brief(snapshot.location)}: {kind}, checkpoint {snapshot.checkpoint_id},"
        f" {len(snapshot.operators)} operators, {size:,} bytes>"
    )


def snapshot_html(snapshot: Snapshot) -> str:
    """Return an HTML table of a snapshot's operators."""
    rows = [
        (operator.label, operator.name, operator.parallelism, operator.max_parallelism,
         len(operator.keyed_states), len(operator.operator_states), operator.total_bytes)
        for operator in snapshot.operators
    ]  # fmt: skip
    columns = (
        "uid or id", "name", "parallelism", "key groups", "keyed states", "operator states",
        "bytes",
    )  # fmt: skip
    return _table(snapshot_line(snapshot), columns, rows)


def operator_line(operator: Operator) -> str:
    """Return a line about an operator."""
    return (
        f"<Operator {_brief(operator.label)}: parallelism {operator.parallelism},"
        f" {operator.max_parallelism} key groups, {len(operator.keyed_states)} keyed and"
        f" {len(operator.operator_states)} operator states, {operator.total_bytes:,} bytes>"
    )


def operator_html(operator: Operator) -> str:
    """Return an HTML table of an operator's states."""
    rows = [
        (state.name, state.kind.value, state.namespace_type, state.key_type,
         _types(state.user_key_type, state.value_type))
        for state in operator.keyed_states
    ]  # fmt: skip
    rows += [
        (state.name, state.mode.name, "", state.key_type, state.value_type)
        for state in operator.operator_states
    ]
    columns = ("state", "kind", "namespace", "key", "value")
    return _table(operator_line(operator), columns, rows)


def keyed_state_line(state: KeyedState) -> str:
    """Return a line about a keyed state."""
    types = _types(state.key_type, state.user_key_type, state.value_type)
    return f"<KeyedState {_brief(state.name)}: {state.kind.value}, {types}>"


def element_state_line(state: NonKeyedState) -> str:
    """Return a line about an operator state."""
    types = _types(state.key_type, state.value_type)
    return f"<NonKeyedState {_brief(state.name)}: {state.mode.name}, {types}>"


def schema_html(line: str, schema: pa.Schema) -> str:
    """Return an HTML table of a state's columns."""
    return _table(line, ("column", "type"), [(column.name, column.type) for column in schema])


def _brief(name: str) -> str:
    """Return a name out of a file, shortened and escaped for a line."""
    return printable(name if len(name) <= LONGEST else f"{name[:LONGEST]}...")


def _types(*types: str) -> str:
    return _brief(" → ".join(filter(None, types)))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table, all text escaped, with only the first of many rows."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:SHOWN])
    left = len(rows) - SHOWN
    more = f"<p>... and {left:,} more</p>" if left > 0 else ""
    caption = f"<p>{html.escape(title)}</p>"
    return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else _brief(str(value))
    return f"<td>{html.escape(text)}</td>"
