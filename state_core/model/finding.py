"""Find a value anywhere in the state of a snapshot, a batch of entries at a time.

The value is given as text. Each column, and each field below it, is compared in its own type: texts
by their characters, numbers by number, times as they are shown, bytes by hex. Columns that can't
have the value are not decoded; all columns of a row are decoded only for hits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timezone
from decimal import Decimal, DecimalException, localcontext
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import (
    EncodeError,
    NotFoundError,
    OversizedError,
    StateError,
    UnwalkableError,
    did_you_mean,
)
from statelake.state_core.files.file_sources import Workers
from statelake.state_core.model.entries import Entries, KeyedFile, entries_of_state, plan_slices
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import (
    KeyedState,
    Operator,
    OperatorState,
    Snapshot,
    lost_entries,
)
from statelake.state_core.nested import ELEMENTS, LeafColumn, leaf_types, leaves
from statelake.state_core.printable import is_text

State: TypeAlias = KeyedState | OperatorState
Rows: TypeAlias = npt.NDArray[np.int64]

NOT_SEARCHED = ("key_group", "subtask", "position")  # the place of an entry, not its content
INSTANTS = ("timestamp", "ttl")  # milliseconds since 1970, which are shown as times
RAW = "raw_"  # columns of exact bytes, for values that typed columns can't represent
LONGEST_NUMBER = 80  # digits
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?")
_HEX = re.compile(r"0[xX]((?:[0-9a-fA-F]{2})*)")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Hit:
    """A place at which the value was found.

    Attributes:
        operator: The operator's uid or id.
        state: The state.
        path: The column, and the path to the value within it: `value.tags[2]`.
        row: The entry, one row of typed columns.
    """

    operator: str
    state: State
    path: str
    row: pa.RecordBatch


@dataclass(frozen=True)
class Unsearched:
    """A part of the snapshot that was not searched.

    Attributes:
        operator: The operator's uid or id.
        state: The name of the state; empty for parts that are not a named state.
        column: The column, with the path to the part; empty for all columns.
        why: The reason.
    """

    operator: str
    state: str
    column: str
    why: str


@dataclass
class SearchResult:
    """The result of a search.

    Attributes:
        hits: The first places at which the value was found.
        count: The number of all places.
        unsearched: The parts that were not searched.
        problems: The parts of a partial snapshot that could not be read, with the reason.
        not_located: The states in which not all entries can be located, with the reason: the value
            may be in the missing ones.
    """

    hits: list[Hit] = field(default_factory=list)
    count: int = 0
    unsearched: list[Unsearched] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_located: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.count > 0


class SearchValue:
    """The value to find, as a test for each type.

    Args:
        value: The value: text as the command line has it, or a value of Python's.
        contains: Whether texts, and bytes, may have more before and behind it.

    Raises:
        EncodeError: The value is not Unicode text.
    """

    def __init__(self, value: object, *, contains: bool) -> None:
        self.text = _as_text(value)
        self.contains = contains
        if not is_text(self.text):
            raise EncodeError(
                "the value has an unpaired surrogate", remedy="search its bytes, as 0x..."
            )
        match = _HEX.fullmatch(self.text)
        self.bytes = None if match is None else bytes.fromhex(match[1])
        self.number: Decimal | None = None
        if _NUMBER.fullmatch(self.text):
            with localcontext() as context:
                context.prec = 2 * LONGEST_NUMBER
                with suppress(DecimalException):
                    self.number = Decimal(self.text).normalize()
        self._tests: dict[tuple[pa.DataType, bool], Callable[[pa.Array], pa.Array] | None] = {}

    def test(
        self, kind: pa.DataType, *, instant: bool = False
    ) -> Callable[[pa.Array], pa.Array] | None:
        """Return a function that marks the equal values of a type; None if none can be equal.

        Args:
            kind: A type without fields.
            instant: Whether numbers are milliseconds since 1970, so that they are compared with
                times, too.
        """
        if (kind, instant) not in self._tests:
            self._tests[kind, instant] = self._new_test(kind, instant)
        return self._tests[kind, instant]

    def can_be_in(self, kind: pa.DataType, *, instant: bool = False) -> bool:
        """Return whether a value of that type, or one below it, can be equal."""
        return any(self.is_comparable(leaf, instant=instant) for _, leaf in leaf_types(kind))

    def is_comparable(self, kind: pa.DataType, *, instant: bool) -> bool:
        """Return whether a value of a type without fields can be equal."""
        return self.test(kind, instant=instant) is not None

    def _new_test(self, kind: pa.DataType, instant: bool) -> Callable[[pa.Array], pa.Array] | None:
        is_string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_string and self.contains:
            return partial(pc.match_substring, pattern=self.text)
        if _is_binary(kind):
            if self.bytes is None:
                return None
            return partial(_equal_bytes, self.bytes, self.contains)
        if pa.types.is_floating(kind) and self.text.lower() == "nan":
            return partial(pc.is_nan)
        values: list[Any] = []
        with suppress(pa.ArrowException, ValueError, OverflowError, ArithmeticError):
            values += self._values(kind)
        if instant and pa.types.is_integer(kind):
            with suppress(ValueError, OverflowError):
                moment = datetime.fromisoformat(_zone_as_offset(self.text))
                moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
                micros = (moment - EPOCH) // (moment.resolution)
                if not micros % 1000:
                    values.append(pa.scalar(micros // 1000, kind))
        if not values:
            return None
        return partial(_equal, values)

    def _values(self, kind: pa.DataType) -> list[Any]:
        """Return the value in a type; raise Arrow's or Python's error if it can't be converted."""
        text, number = self.text, self.number
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return [pa.scalar(text, kind)]
        if pa.types.is_boolean(kind):
            return [pa.scalar(text == "true")] if text in ("true", "false") else []
        if pa.types.is_floating(kind):
            return _nearest(text, kind)
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            if number is None or number.adjusted() >= LONGEST_NUMBER:
                return []
            if pa.types.is_decimal(kind):
                return [pa.scalar(number, kind)]
            is_integral = number == number.to_integral_value()
            return [pa.scalar(int(number), kind)] if is_integral else []
        if pa.types.is_timestamp(kind):
            moment = datetime.fromisoformat(_zone_as_offset(text))
            if moment.tzinfo is not None and kind.tz is None:
                moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
            return [pa.scalar(moment, kind)]
        if pa.types.is_date(kind):
            return [pa.scalar(date.fromisoformat(text), kind)]
        if pa.types.is_time(kind):
            return [pa.scalar(time.fromisoformat(text), kind)]
        return [pa.scalar(text).cast(kind)]


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)


def _zone_as_offset(text: str) -> str:
    """Return a time with `+00:00` for `Z`, which Python 3.10 can't read."""
    return f"{text[:-1]}+00:00" if text.endswith("Z") else text


def _nearest(text: str, kind: pa.DataType) -> list[Any]:
    """Return the nearest number of a floating type; empty for other texts or beyond its range."""
    if not _NUMBER.fullmatch(text) and text not in ("inf", "-inf"):
        return []
    wanted = float(text)
    with np.errstate(over="ignore"):
        nearest = kind.to_pandas_dtype()(wanted)
    return [] if np.isinf(nearest) and "inf" not in text else [pa.scalar(nearest, kind)]


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _equal(values: Sequence[Any], array: pa.Array) -> pa.Array:
    equal = pc.equal(array, values[0])
    for value in values[1:]:
        equal = pc.or_(equal, pc.equal(array, value))
    return equal


def _equal_bytes(wanted: bytes, contains: bool, array: pa.Array) -> pa.Array:
    stored = array.cast(pa.large_binary())
    if contains:
        return pc.match_substring(stored, pattern=wanted)
    return pc.equal(stored, pa.scalar(wanted, pa.large_binary()))


def _places(
    array: pa.Array, sought: SearchValue, *, instant: bool
) -> Iterator[tuple[LeafColumn, Rows]]:
    """Yield the leaves of an array that have the value, with its positions in each."""
    for leaf in leaves(array, partial(sought.is_comparable, instant=instant)):
        test = sought.test(leaf.values.type, instant=instant)
        assert test is not None  # noqa: S101 - the leaf is wanted
        places = np.flatnonzero(pc.fill_null(test(leaf.values), False))
        if len(places):
            yield leaf, places


def _path(column: str, leaf: LeafColumn, indexes: Iterable[Rows], at: int) -> str:
    index = iter(indexes)
    return column + "".join(
        f"[{next(index)[at]}]" if step is ELEMENTS else f".{step}" for step in leaf.steps
    )


def _paths_in(
    batch: pa.RecordBatch, sought: SearchValue, limit: int | None
) -> tuple[list[tuple[int, str]], int]:
    """Return the first hits in a batch, each as row and path, and the number of all hits."""
    first: list[tuple[int, int, str]] = []
    count = 0
    for order, name in enumerate(batch.schema.names):
        if name in NOT_SEARCHED:
            continue
        for leaf, places in _places(batch.column(order), sought, instant=name in INSTANTS):
            rows, indexes = leaf.rows(places)
            count += len(rows)
            first += [
                (int(rows[at]), order, _path(name, leaf, indexes, at))
                for at in range(len(rows) if limit is None else min(limit, len(rows)))
            ]
    first.sort(key=lambda place: place[:2])
    return [(row, path) for row, _, path in first[:limit]], count


def _columns(schema: pa.Schema, sought: SearchValue) -> list[str]:
    """Return the columns that can hold the value, and the exact bytes beside them."""
    names = [
        each.name
        for each in schema
        if each.name not in NOT_SEARCHED
        and not each.name.startswith(RAW)
        and sought.can_be_in(each.type, instant=each.name in INSTANTS)
    ]
    raw = [name for name in schema.names if name.startswith(RAW)]
    if sought.bytes is None:
        of_value = {"value", "ttl"}
        raw = [
            name
            for name in raw
            if any((each in of_value) == (name == "raw_value") for each in names)
        ]
    return [*names, *raw]


def _bytes_below(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths to bytes in a type."""
    for steps, leaf in leaf_types(kind):
        if _is_binary(leaf):
            yield "".join([path, *(step if step is ELEMENTS else f".{step}" for step in steps)])


@dataclass
class _PartResult:
    """The hits in a part of an operator's state.

    Attributes:
        hits: The first places.
        count: The number of all.
        exact: The number of rows with exact bytes, which were not searched, by state and column.
        not_located: The reasons why not all entries of a state can be located, by state.
        problems: The errors of states that could not be read, by state.
    """

    hits: list[Hit] = field(default_factory=list)
    count: int = 0
    exact: dict[tuple[str, str], int] = field(default_factory=dict)
    not_located: dict[str, str] = field(default_factory=dict)
    problems: dict[str, StateError] = field(default_factory=dict)

    def add(
        self, operator: str, state: State, batch: pa.RecordBatch, sought: SearchValue,
        limit: int | None, all_columns: Callable[[npt.NDArray[np.intp]], pa.RecordBatch],
    ) -> None:  # fmt: skip
        """Search a batch of a state.

        Args:
            operator: The operator.
            state: The state.
            batch: The columns that may have the value.
            sought: The value.
            limit: The number of hits to keep; None for all.
            all_columns: Returns rows of the batch with all columns.
        """
        left = None if limit is None else max(0, limit - len(self.hits))
        places, count = _paths_in(batch, sought, left)
        self.count += count
        if sought.bytes is None:
            for name in batch.schema.names:
                if name.startswith(RAW):
                    exact = len(batch) - batch.column(name).null_count
                    if exact:
                        at = state.name, name
                        self.exact[at] = self.exact.get(at, 0) + exact
        if places:
            rows = np.unique([row for row, _ in places])
            shown = all_columns(rows)
            self.hits += [
                Hit(operator, state, path, shown.slice(int(np.searchsorted(rows, row)), 1))
                for row, path in places
            ]

    def merge(self, other: _PartResult, limit: int | None) -> None:
        """Include the hits of a later part."""
        left = None if limit is None else max(0, limit - len(self.hits))
        self.hits += other.hits[:left]
        self.count += other.count
        for at, exact in other.exact.items():
            self.exact[at] = self.exact.get(at, 0) + exact
        self.not_located.update(other.not_located)
        self.problems = other.problems | self.problems


def find_in_snapshot(
    snapshot: Snapshot,
    value: object,
    *,
    operator: str | None = None,
    state: str | None = None,
    contains: bool = False,
    limit: int | None = 100,
    threads: int | None = None,
    readable: bool = False,
) -> SearchResult:
    """Return the places of a value in the state of a snapshot.

    Args:
        snapshot: The snapshot.
        value: The value; see `Snapshot.find`.
        operator: Only in this operator: its uid, name or id.
        state: Only in states of that name.
        contains: Whether texts, and bytes, may have more before and behind it.
        limit: The number of places to return; all of them are counted. None for all.
        threads: The number of threads; by default that of the cores.
        readable: Whether the search goes on after a state that can't be read, which is then in
            `SearchResult.problems`.

    Raises:
        NotFoundError: There is no such operator or state.
        CorruptSnapshotError: The bytes are not what the header describes.
    """
    sought = SearchValue(value, contains=contains)
    operators = snapshot.operators if operator is None else (snapshot.operator(operator),)
    states: list[State] = []
    for owner in operators:
        states += [*owner.keyed_states, *owner.operator_states]
    names = sorted({label for each in states for label in each.labels})
    if state is not None and state not in names:
        raise NotFoundError(
            f"no operator has a state {state!r}",
            remedy=f"there are: {', '.join(names) or 'none'}{did_you_mean(state, names)}",
        )
    result = SearchResult()
    for owner in operators:
        part = _PartResult()
        for other in _search(owner, state, sought, limit, threads, readable):
            left = None if limit is None else max(0, limit - len(result.hits))
            part.merge(other, left)
        result.hits += part.hits[: None if limit is None else max(0, limit - len(result.hits))]
        result.count += part.count
        result.unsearched += _unsearched(owner, state, sought, part)
        result.problems += owner.problems_among(part.problems)
        searched = [each.name for each in owner.keyed_states if state in (None, *each.labels)]
        result.not_located += lost_entries(
            owner.label,
            {name: part.not_located[name] for name in searched if name in part.not_located},
        )
    return result


def _search(
    operator: Operator,
    state: str | None,
    sought: SearchValue,
    limit: int | None,
    threads: int | None,
    readable: bool,
) -> Iterator[_PartResult]:
    """Yield the hits of each part of an operator's state."""
    jobs = [
        (operator.keyed_files[piece.file], piece.key_groups)
        for piece in plan_slices(operator.keyed_files)
    ]
    keyed = {each.name: each for each in operator.keyed_states}

    def search(job: tuple[KeyedFile, KeyGroupRange]) -> _PartResult:
        return _search_slice(*job, operator.label, keyed, state, sought, limit, readable)

    workers = min(len(jobs), threads or os.cpu_count() or 1)
    with Workers(workers) if workers > 1 else nullcontext() as pool:
        yield from map(search, jobs) if pool is None else pool.map(search, jobs)
    keyed_here = () if operator.keyed_files else operator.keyed_states  # a snapshot of a lake
    others: list[State] = [*keyed_here, *operator.operator_states]
    for each in others:
        if state in (None, *each.labels):
            part = _PartResult()
            try:
                for batch in each.batches():
                    part.add(operator.label, each, batch, sought, limit, partial(_taken, batch))
            except StateError as error:
                if not readable:
                    raise
                part.problems[each.name] = error
            yield part


def _taken(batch: pa.RecordBatch, rows: npt.NDArray[np.intp]) -> pa.RecordBatch:
    return batch.take(pa.array(rows))


def _search_slice(
    file: KeyedFile, key_groups: KeyGroupRange, operator: str, keyed: dict[str, KeyedState],
    state: str | None, sought: SearchValue, limit: int | None, readable: bool,
) -> _PartResult:  # fmt: skip
    """Return the hits in key groups of a file; all of its states are read in one pass.

    If that fails and `readable` is set, each state is read by itself.
    """
    columns = {
        index: names
        for index, each in enumerate(file.states)
        if state in (None, *each.labels) and (names := _columns(file.layouts[index].schema, sought))
    }
    if not columns:
        return _PartResult()
    search = partial(_search_states, file, operator, keyed, sought, limit)
    try:
        return search(file.entries(key_groups), columns, _PartResult())
    except OversizedError:
        raise  # reading state by state would take as much memory
    except StateError:
        if not readable:
            raise
    part = _PartResult()
    for index, names in columns.items():
        try:
            search(entries_of_state(file, index, key_groups), {index: names}, part)
        except StateError as error:  # noqa: PERF203 - the other states are searched
            part.problems[file.states[index].name] = error
    return part


def _search_states(
    file: KeyedFile, operator: str, keyed: dict[str, KeyedState], sought: SearchValue,
    limit: int | None, read: Iterator[Entries], columns: dict[int, list[str]], part: _PartResult,
) -> _PartResult:  # fmt: skip
    """Add the hits in entries of states to a part, and return the part."""
    try:
        for entries in read:
            for index in np.unique(entries.state_of).tolist():
                if index in columns:
                    mine = entries.of_state(index)
                    batch = file.decode(index, mine, columns[index])

                    def whole(
                        rows: npt.NDArray[np.intp], index: int = index, mine: Any = mine
                    ) -> pa.RecordBatch:
                        return file.decode(index, mine.take(rows))

                    of_state = keyed[file.states[index].name]
                    part.add(operator, of_state, batch, sought, limit, whole)
    except UnwalkableError as error:
        part.not_located |= dict.fromkeys(error.states, error.why)
    return part


def _unsearched(
    operator: Operator, state: str | None, sought: SearchValue, part: _PartResult
) -> Iterator[Unsearched]:
    """Yield the parts of an operator that were not searched."""
    states: list[State] = [*operator.keyed_states, *operator.operator_states]
    for each in states:
        if state not in (None, *each.labels):
            continue
        if sought.bytes is None:
            for column in each.schema:
                if not column.name.startswith(RAW):
                    for path in _bytes_below(column.type, column.name):
                        why = "bytes, which are searched for 0x..."
                        yield Unsearched(operator.label, each.name, path, why)
        if each.name in part.not_located:
            why = f"entries that could not be located: {part.not_located[each.name]}"
            yield Unsearched(operator.label, each.name, "", why)
        for (name, column), rows in part.exact.items():
            if name == each.name:
                why = f"of {rows:,} entries only the bytes are exact: search for 0x..."
                yield Unsearched(operator.label, name, column, why)
        if isinstance(each, OperatorState) and (differ := each.disagreeing()):
            why = f"the copies of {len(differ)} subtasks differ from the one that was searched"
            yield Unsearched(operator.label, each.name, "", why)
    if state is None:
        for what, size in (
            ("state of its coordinator", operator.coordinator_bytes),
            ("raw state", operator.raw_bytes),
            ("records in flight", operator.in_flight_bytes),
        ):
            if size:
                yield Unsearched(operator.label, "", "", f"{size:,} bytes of {what}")
