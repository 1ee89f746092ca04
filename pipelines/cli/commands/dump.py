"""`statelake dump`: print entries as JSON lines, without Spark."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from statelake import KeyGroupRange, open_snapshot
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import json_text
from statelake.pipelines.cli.options import (
    option_of,
    refuse_problems,
    typed_reading_options,
)
from statelake.pipelines.requests.reading import Selection
from statelake.pipelines.requests.shared import TypedReading
from statelake.pipelines.shown import plain_rows, state_head
from statelake.state_core.errors import NotFoundError, StateError, did_you_mean

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from statelake.state_core.model.snapshot import KeyedState, Operator, OperatorState

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class KeyGroups(click.ParamType[KeyGroupRange]):
    """A range of key groups: `17` or `0-63`."""

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
@option_of(Selection, "operator")
@option_of(Selection, "state")
@click.option("--key-groups", type=KeyGroups(), help="Only these key groups: 17, or 0-63.")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most so many lines.")
@typed_reading_options
@plugins_option
def dump(
    savepoint: str,
    operator: str | None,
    state: str | None,
    key_groups: KeyGroupRange | None,
    limit: int | None,
    reading: TypedReading,
) -> None:
    """Print the entries of a savepoint's state, one JSON object a line.

    \b
    Each has operator, state, kind, key_group, namespace, key, and value; a map state has one line
    for each user_key, a list state one for each key, a timer a timestamp instead of a value.
    Operator state has subtask, position and value; of a broadcast state one copy's key and value.
    Numbers and times have all of their digits, whatever a column holds; where JSON does not say all
    of a key or value, its bytes are beside it in Base64, as raw_key or raw_value. With --plan, of a
    Flink SQL job, keys and rows have the columns of its query.

    What can't be read ends nothing else: it is named at the end, with exit code 3.

    \b
    Examples:
      statelake dump savepoint-5f1e2c-0a1b2c3d4e5f | head
      statelake dump savepoint-5f1e2c-0a1b2c3d4e5f --operator counter --state count
      statelake dump savepoint-5f1e2c-0a1b2c3d4e5f --key-groups 0-3 --limit 100
    """
    snapshot = open_snapshot(savepoint, partial=True, **vars(reading))
    operators = snapshot.operators if operator is None else (snapshot.operator(operator),)
    problems = snapshot.problems_of(operator, state, keyed=key_groups is not None)
    if problems and state is not None and not any(state in _names(each) for each in operators):
        refuse_problems(problems)
    if state is not None and operator is not None and state not in _names(operators[0]):
        operators[0].state(state)  # which says what there is
    if state is not None and not any(state in _names(other) for other in operators):
        names = sorted({name for other in operators for name in _names(other)})
        raise NotFoundError(
            f"no operator has a state {state!r}",
            remedy=f"there are: {', '.join(names) or 'none'}{did_you_mean(state, names)}",
        )
    if key_groups is not None:
        _check_key_groups(operators, key_groups)
    out = sys.stdout
    count = 0
    for line in islice(_all_lines(operators, state, key_groups, problems), limit):
        out.write(json_text(line))
        out.write("\n")
        count += 1
    out.flush()
    if count != limit:
        refuse_problems(problems)


def _check_key_groups(operators: Iterable[Operator], key_groups: KeyGroupRange) -> None:
    """Refuse key groups that no operator has.

    Raises:
        NotFoundError: All operators have fewer.
    """
    most = max((operator.max_parallelism for operator in operators), default=0)
    if key_groups.first >= most:
        raise NotFoundError(
            f"no operator has key group {key_groups.first}",
            remedy=f"key groups are 0-{most - 1}" if most else "there is no operator",
        )


def _names(operator: Operator) -> list[str]:
    keyed = [label for state in operator.keyed_states for label in state.labels]
    return keyed + [state.name for state in operator.operator_states]


def _all_lines(
    operators: Iterable[Operator],
    state: str | None,
    key_groups: KeyGroupRange | None,
    problems: list[str],
) -> Iterator[dict[str, Any]]:
    """Yield the lines of all operators, keyed state first; key groups select keyed state only.

    Args:
        operators: The operators.
        state: Only this state.
        key_groups: Only these key groups.
        problems: Receives the unreadable parts, state by state.
    """
    for operator in operators:
        for keyed in operator.keyed_states:
            if state in (None, *keyed.labels):
                for file in keyed.files:
                    batches = replace(keyed, files=(file,)).batches(key_groups)
                    yield from _lines(operator, keyed, batches, problems)
        for other in operator.operator_states:
            if state in (None, other.name) and key_groups is None:
                parts = other.parts[:1] if other.broadcast else other.parts
                for part in parts:
                    batches = replace(other, parts=(part,)).batches()
                    yield from _lines(operator, other, batches, problems)


def _lines(
    operator: Operator,
    state: KeyedState | OperatorState,
    batches: Iterator[RecordBatch],
    problems: list[str],
) -> Iterator[dict[str, Any]]:
    """Yield the lines of one subtask's part of a state, up to what can't be read."""
    head = state_head(operator.label, state)
    try:
        for batch in batches:
            yield from plain_rows(head, batch, state.layout)
    except StateError as error:
        problem = error.within(f"operator {operator.label}, state {state.name!r}")
        problems.append(str(problem))
