"""`statelake dump`: entries as JSON lines, without Spark."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

from pipelines.commands.terminal import plain
from state_core.errors import NotFoundError
from state_core.formats import open_snapshot
from state_core.handles import KeyGroupRange
from state_core.snapshot import KeyedState, Operator, StateKind

__all__ = ["dump"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class KeyGroups(click.ParamType[KeyGroupRange]):
    """`17` or `0-63`."""

    name = "range"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> KeyGroupRange:
        """Parse a range of key groups."""
        match = _RANGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no key group (17) and no range of them (0-63)", param, ctx)
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return KeyGroupRange(first, last)


@click.command()
@click.argument("savepoint")
@click.option("--operator", help="Only this operator: its uid, name or id.")
@click.option("--state", help="Only this state.")
@click.option("--key-groups", type=KeyGroups(), help="Only these key groups: 17, or 0-63.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many lines.")
@click.option("--uid", "uids", multiple=True, help="An operator uid to recognise (Flink < 2.0).")
@click.option(
    "--allow-external", multiple=True, help="A directory elsewhere that handles may lead to."
)
def dump(
    savepoint: str,
    operator: str | None,
    state: str | None,
    key_groups: KeyGroupRange | None,
    limit: int | None,
    uids: tuple[str, ...],
    allow_external: tuple[str, ...],
) -> None:
    """Print the entries of a savepoint's keyed state, one JSON object a line.

    \b
    Each has operator, state, kind, key_group, namespace, key, and value; a map state has one line
    for each user_key, a list state one for each key, a timer a timestamp instead of a value.

    \b
    Examples:
      statelake dump savepoint-5f1e2c-0a1b2c3d4e5f | head
      statelake dump savepoint-5f1e2c-0a1b2c3d4e5f --operator counter --state count
      statelake dump savepoint-5f1e2c-0a1b2c3d4e5f --key-groups 0-3 --limit 100
    """
    snapshot = open_snapshot(savepoint, allow_external=allow_external, uids=uids)
    operators = snapshot.operators if operator is None else (snapshot.operator(operator),)
    if state is not None and operator is not None:
        operators[0].state(state)
    elif state is not None and not any(state in _names(one) for one in operators):
        known = sorted({name for one in operators for name in _names(one)})
        raise NotFoundError(
            f"no operator has a state {state!r}", remedy=f"there are: {', '.join(known) or 'none'}"
        )
    printed = 0
    out = sys.stdout
    for one in operators:
        for held in one.keyed_states:
            if state is not None and held.name != state:
                continue
            for batch in held.batches(key_groups):
                for line in _lines(one, held, batch):
                    if limit is not None and printed >= limit:
                        return
                    out.write(json.dumps(line, ensure_ascii=False))
                    out.write("\n")
                    printed += 1
    out.flush()


def _names(operator: Operator) -> list[str]:
    return [state.name for state in operator.keyed_states]


def _lines(
    operator: Operator, state: KeyedState, batch: pa.RecordBatch
) -> Iterator[dict[str, Any]]:
    """A batch's rows as they are printed."""
    head = {"operator": operator.label, "state": state.name, "kind": state.kind.value}
    if state.kind is StateKind.TIMERS:
        domain, _ = state.timer_service
        head["kind"] = f"{domain}_timer"
    names = [name for name in batch.schema.names if not name.startswith("raw_")]
    order = ["key_group", "namespace", "key", "user_key", "timestamp", "value", "ttl"]
    names.sort(key=order.index)
    kinds = {name: batch.schema.field(name).type for name in names}
    for row in batch.select(names).to_pylist():
        yield head | {name: plain(row[name], kinds[name]) for name in names}
