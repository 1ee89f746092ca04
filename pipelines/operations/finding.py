"""A value searched in all that a snapshot holds: keys, values, and all that is within them.

Each column is searched as a whole, by Arrow's kernels. What a text means depends on the column: in
one of numbers `4711` is a number, in one of texts the text, in one of bytes nothing. Hexadecimal
digits behind `0x` mean bytes, which are searched in the exact bytes of what is not decoded, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.shown import (
    json_text,
    operator_state_head,
    plain,
    plain_rows,
    state_head,
)
from statelake.state_core.errors import EncodeError, NotFoundError, did_you_mean
from statelake.state_core.model.snapshot import KeyedState, Operator, OperatorState
from statelake.state_core.printable import Printed, Table, brief
from statelake.state_core.serializers.framework.columns import list_offsets

LIMIT = 100
SHOWN_VALUE = 60
HEX = "0x"
RAW = "raw_"
NOT_SEARCHED = ("key_group", "subtask", "position")  # numbers of Flink's, and not of the job


@dataclass(frozen=True)
class Hit:
    """A value that was found.

    Attributes:
        operator: The operator's uid or id.
        state: The state.
        kind: Its kind, as `dump` has it.
        path: The place in the row: `key`, `value.tags[2]`.
        row: The row, as `dump` prints it.
    """

    operator: str
    state: str
    kind: str
    path: str
    row: dict[str, Any]


@dataclass(frozen=True)
class Found(Printed):
    """What a search found.

    Attributes:
        value: What was searched.
        hits: The places, in the order of states.
        stopped: Whether the search ended at its limit, so that there may be more.
        not_searched: Columns of which only bytes are known, each `operator/state, column`.
    """

    value: str
    hits: list[Hit]
    stopped: bool = False
    not_searched: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    def lines(self) -> Iterator[str | Table]:
        """Yield what people read."""
        names = [name for name in ("key", "namespace", "user_key", "timestamp", "value")
                 if any(hit.row.get(name) is not None for hit in self.hits)]  # fmt: skip
        rows = [
            (f"{hit.operator}/{hit.state}", hit.path,
             *(brief(json_text(hit.row.get(name)), SHOWN_VALUE) for name in names))
            for hit in self.hits
        ]  # fmt: skip
        if rows:
            columns = ("<state", "<where", *(f"<{name.replace('_', ' ')}" for name in names))
            count = f"{len(rows):,} place{'' if len(rows) == 1 else 's'}"
            yield Table(f"{brief(self.value)} in {count}", columns, rows)
        else:
            yield f"{brief(self.value)} was not found"
        if self.stopped:
            yield f"the search stopped at {len(self.hits):,}: there may be more, see --limit"
        if self.not_searched:
            yield f"not searched, as only bytes are known: {'; '.join(self.not_searched)}"


class Sought:
    """A value, as each type of column would have it.

    Args:
        text: The value, as `dump` prints it; bytes as hexadecimal digits behind `0x`.
        contains: Whether texts and bytes that contain it are found, too.

    Raises:
        EncodeError: It is empty, or its digits are not hexadecimal.
    """

    def __init__(self, text: str, *, contains: bool = False) -> None:
        if not text:
            raise EncodeError("nothing to search", remedy="give a value")
        self.text = text
        self.contains = contains
        self.data: bytes | None = None
        if text.startswith(HEX):
            try:
                self.data = bytes.fromhex(text.removeprefix(HEX))
            except ValueError as error:
                raise EncodeError(
                    f"{text} is not hexadecimal", remedy="write bytes as 0x0a1b"
                ) from error

    def places(self, values: pa.Array, path: str) -> Iterator[tuple[int, str]]:
        """Yield the row and the path of each place in a column that has the value."""
        kind = values.type
        if pa.types.is_struct(kind):
            for index, child in enumerate(values.flatten()):
                yield from self.places(child, f"{path}.{kind.field(index).name}")
        elif pa.types.is_map(kind):
            yield from self._in_map(values, path)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            first = list_offsets(values)
            items = values.values.slice(int(first[0]), int(first[-1] - first[0]))
            for row, index, within in self._in_lists(values, items, first - first[0]):
                yield row, f"{path}[{index}]{within}"
        else:
            yield from ((row, path) for row in np.flatnonzero(self._equal(values)).tolist())

    def _in_map(self, values: pa.MapArray, path: str) -> Iterator[tuple[int, str]]:
        first = list_offsets(values)
        start, count = int(first[0]), int(first[-1] - first[0])
        keys, items = values.keys.slice(start, count), values.items.slice(start, count)
        for row, index, within in self._in_lists(values, keys, first - start):
            yield row, f"{path}.key[{index}]{within}"
        for row, index, within in self._in_lists(values, items, first - start):
            shown = json_text(plain(keys[int(first[row]) - start + index].as_py(), keys.type))
            yield row, f"{path}[{brief(shown)}]{within}"

    def _in_lists(
        self, values: pa.Array, items: pa.Array, first: Any
    ) -> Iterator[tuple[int, int, str]]:
        """Yield row, index and the path within the element, of lists that are not null."""
        held = np.asarray(values.is_valid())
        for at, within in self.places(items, ""):
            row = int(np.searchsorted(first, at, side="right")) - 1
            if held[row]:
                yield row, at - int(first[row]), within

    def _equal(self, values: pa.Array) -> Any:
        """Return whether each row of a column without parts has the value."""
        kind = values.type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            if self.data is None:
                return np.zeros(len(values), np.bool_)
            return self._same(values, self.data)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._same(values, self.text)
        try:
            scalar = pa.scalar(self.text, pa.string()).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # it is no such number or time
            return np.zeros(len(values), np.bool_)
        return _true(pc.equal(values, scalar))

    def _same(self, values: pa.Array, sought: str | bytes) -> Any:
        if self.contains:
            return _true(pc.match_substring(values, sought))
        return _true(pc.equal(values, pa.scalar(sought, values.type)))


def _true(found: pa.BooleanArray) -> Any:
    return np.asarray(pc.fill_null(found, False))


def find_value(
    operators: Iterable[Operator],
    value: str,
    *,
    operator: str | None = None,
    state: str | None = None,
    contains: bool = False,
    limit: int = LIMIT,
) -> Found:
    """Search a value in keys, user keys, namespaces, values and all within them.

    Args:
        operators: The operators of a snapshot.
        value: The value, as `dump` prints it; bytes as hexadecimal digits behind `0x`.
        operator: Only in this operator: its uid, name or id.
        state: Only in the states of that name.
        contains: Whether texts and bytes that contain it are found, too.
        limit: The number of places at which the search ends.

    Raises:
        EncodeError: There is nothing to search, or its digits are not hexadecimal.
        NotFoundError: There is no such operator or state.
    """
    sought = Sought(value, contains=contains)
    wanted = list(_wanted(list(operators), operator, state))
    unknown: dict[str, None] = {}
    hits = list(islice(_hits(wanted, sought, unknown), limit + 1))
    return Found(value, hits[:limit], len(hits) > limit, list(unknown))


def _wanted(
    operators: Sequence[Operator], operator: str | None, state: str | None
) -> Iterator[tuple[Operator, KeyedState | OperatorState]]:
    chosen = [
        each for each in operators if operator in (None, each.label, each.name, each.operator_id)
    ]
    if not chosen:
        _refuse("operator", operator, [each.label for each in operators])
    every: list[tuple[Operator, KeyedState | OperatorState]] = []
    for each in chosen:
        every += [(each, keyed) for keyed in each.keyed_states]
        every += [(each, other) for other in each.operator_states]
    found = [pair for pair in every if state in (None, pair[1].name)]
    if state is not None and not found:
        _refuse("state", state, sorted({held.name for _, held in every}))
    yield from found


def _refuse(what: str, name: str | None, there: Sequence[str]) -> None:
    meant = "" if name is None else did_you_mean(name, there)
    raise NotFoundError(
        f"no {what} {name!r}", remedy=f"there are: {', '.join(there) or 'none'}{meant}"
    )


def _hits(
    states: Iterable[tuple[Operator, KeyedState | OperatorState]],
    sought: Sought,
    unknown: dict[str, None],
) -> Iterator[Hit]:
    for operator, state in states:
        if isinstance(state, KeyedState):
            head = state_head(operator.label, state)
        else:
            head = operator_state_head(operator.label, state)
        for batch in state.batches():
            for row, path in _in_batch(batch, sought, f"{operator.label}/{state.name}", unknown):
                (shown,) = plain_rows(head, batch.slice(row, 1))
                yield Hit(operator.label, state.name, head["kind"], path, shown)


def _in_batch(
    batch: pa.RecordBatch, sought: Sought, place: str, unknown: dict[str, None]
) -> Iterator[tuple[int, str]]:
    for name in batch.schema.names:
        column = batch.column(name)
        if name in NOT_SEARCHED or column.null_count == len(column):
            continue
        only_bytes = pa.types.is_binary(column.type)
        if name.startswith(RAW):  # the exact bytes of values; of those that are decoded, too
            typed = batch.column(name.removeprefix(RAW))
            only_bytes = bool(pc.any(pc.and_(pc.is_valid(column), pc.is_null(typed))).as_py())
        if only_bytes and sought.data is None:
            unknown[f"{place}, {name.removeprefix(RAW)}"] = None
        yield from sought.places(column, name)
