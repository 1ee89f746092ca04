"""Compare two snapshots of a job: entries added, removed and changed, by state.

Partitions that both snapshots share, or whose fingerprints are equal, are not opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.engine_choice import choose_engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_parts
from statelake.pipelines.lake.tables.operator_tables import read_operator_rows
from statelake.pipelines.lake.tables.records import (
    AnyState,
    OperatorRecord,
    OperatorStateRecord,
    SnapshotRecord,
    StateRecord,
)
from statelake.pipelines.lake.tables.table_rows import TableReader, table_rows
from statelake.pipelines.requests.reading import Comparison
from statelake.pipelines.shown import bytes_text, json_text, plain, typed_row
from statelake.state_core.errors import NotFoundError
from statelake.state_core.formats.operator_state.operator_reader import parse_operator_state
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.printable import Printed, Table

_ElementDifference = tuple[int, int, int, list[dict[str, Any]]]
EXAMPLES = 3
USUAL = Comparison()
_Held: TypeAlias = tuple[OperatorRecord, AnyState]


@dataclass
class StateDifference:
    """The difference of one state.

    Attributes:
        operator: The state's operator; empty for state of master hooks.
        state: Its name; `(raw)`, `(in flight)`, `(coordinator)` or `(master)` for bytes that have
            no table: only those that differ are listed, and no entries are counted.
        status: `same`, `changed`, `added`, `removed`, or `retyped` if the types differ too much to
            compare entries.
        added: Entries only in the later snapshot.
        removed: Entries only in the earlier one.
        changed: Entries of the same key with another value.
        bytes_before: The bytes of its keys and values in the earlier snapshot.
        bytes_after: Those in the later one.
        examples: A few of each, as rows.
    """

    JSON = ("*", "bytes_change")

    operator: str
    state: str
    status: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bytes_change(self) -> int:
        """The bytes by which it grew."""
        return self.bytes_after - self.bytes_before


class Differences(Printed, list[StateDifference]):
    """The differences of two snapshots, state by state.

    Args:
        earlier: The id of the earlier snapshot.
        later: The id of the later one.
        states: The difference of each state.
        unread: The size of each file of keyed state that was not read, by its path: the catalog
            says that both snapshots have the same there. `check_lake` reads them.
    """

    def __init__(
        self,
        earlier: str,
        later: str,
        states: Iterable[StateDifference],
        unread: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(states)
        self.earlier = earlier
        self.later = later
        self.unread = dict(unread or {})

    @property
    def same(self) -> bool:
        """Return whether no state differs."""
        return all(state.status == "same" for state in self)

    @property
    def unread_text(self) -> str:
        """A sentence about files that were not read; empty without any."""
        if not self.unread:
            return ""
        return (
            f"{len(self.unread):,} files ({bytes_text(sum(self.unread.values()))}) were not read,"
            " as the catalog says that they are equal; `statelake lake check` compares their bytes"
        )

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        columns = (
            "<operator", "<state", "<=status", ">added:,", ">removed:,", ">changed:,",
            ">bytes before:B", ">bytes after:B", ">difference=bytes_change:+B",
        )  # fmt: skip
        yield Table.of(f"{self.earlier} → {self.later}", columns, self)
        for each in self:
            for example in each.examples:
                yield f"{each.operator}/{each.state} {json_text(plain(example))}"
        if self.unread:
            yield self.unread_text


def diff_snapshots(
    lake: Catalog,
    job: str,
    earlier: str,
    later: str,
    request: Comparison = USUAL,
    *,
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> Differences:
    """Compare two snapshots, state by state.

    Args:
        lake: The lake.
        job: The job.
        earlier: The earlier snapshot.
        later: The later one.
        request: How differences are shown.
        engine: Where files are compared.
        progress: Called with (done, total).

    Raises:
        NotFoundError: There is no such snapshot, or it was dropped meanwhile.
        ConflictError: Erasures changed a snapshot in every attempt.
    """
    work = _Diff(lake, request.examples, choose_engine(engine), progress)

    def differences(*records: SnapshotRecord) -> list[StateDifference]:
        work.unread.clear()  # of another attempt
        before, after = records[0], records[-1]  # only one if a snapshot is compared with itself
        return [
            difference
            for key in _operators(before, after)
            for difference in work.operator(_operator(before, key), _operator(after, key))
        ] + _without_tables(before, after)

    reading = SnapshotReading(lake, *lake.together([(job, earlier), (job, later)]))
    states = reading.at_once(differences)
    if request.sort == "bytes":
        states.sort(key=lambda each: (-each.bytes_change, each.operator, each.state))
    return Differences(earlier, later, states, work.unread)


def diff_state(
    lake: Catalog,
    job: str,
    earlier: str,
    later: str,
    operator: str,
    state: str,
    *,
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> StateDifference:
    """Compare one state of two snapshots, without examples.

    Args:
        lake: The lake.
        job: The job.
        earlier: The earlier snapshot.
        later: The later one.
        operator: The uid of the state's operator, or else the id.
        state: The state's name.
        engine: Where files are compared.
        progress: Called with (done, total).

    Raises:
        NotFoundError: There is no such snapshot or state, or it was dropped meanwhile.
        ConflictError: Erasures changed a snapshot in every attempt.
    """
    work = _Diff(lake, 0, choose_engine(engine), progress)

    def difference(before: SnapshotRecord, after: SnapshotRecord) -> StateDifference:
        sides = [
            [
                each.with_states(
                    [candidate for candidate in each.states if candidate.name == state],
                    [candidate for candidate in each.operator_states if candidate.name == state],
                )
                for each in record.operators
                if each.label == operator
            ]
            for record in (before, after)
        ]
        old, new = (side[0] if side else None for side in sides)
        differences = work.operator(old, new)
        if not differences:
            raise NotFoundError(f"no state {operator}/{state}", place=f"job {job!r}")
        return differences[0]

    reading = SnapshotReading(lake, *lake.together([(job, earlier), (job, later)]))
    return reading.at_once(difference)


def _without_tables(before: SnapshotRecord, after: SnapshotRecord) -> list[StateDifference]:
    """Return what differs in state that has no tables, whose bytes are compared as a whole."""
    labels = {op.operator_id: op.label for record in (after, before) for op in record.operators}
    old, new = unmanaged_parts(before), unmanaged_parts(after)
    differences = []
    for place in dict.fromkeys([*old, *new]):
        first, second = old.get(place), new.get(place)
        if first == second:
            continue
        operator, what = place
        status = "added" if first is None else "removed" if second is None else "changed"
        difference = StateDifference(labels.get(operator, operator), f"({what})", status)
        difference.bytes_before = first[0] if first else 0
        difference.bytes_after = second[0] if second else 0
        differences.append(difference)
    return differences


def _operators(*records: SnapshotRecord) -> list[str]:
    return list(dict.fromkeys(op.operator_id for record in records for op in record.operators))


def _operator(record: SnapshotRecord, operator_id: str) -> OperatorRecord | None:
    operators = [operator for operator in record.operators if operator.operator_id == operator_id]
    return operators[0] if operators else None


@dataclass(frozen=True)
class _DiffTask:
    before: TableReader
    after: TableReader
    key_groups: KeyGroupRange
    examples: int


@dataclass
class _Diff:
    lake: Catalog
    examples: int
    engine: Engine
    progress: Progress | None
    unread: dict[str, int] = field(default_factory=dict)

    def operator(
        self, before: OperatorRecord | None, after: OperatorRecord | None
    ) -> list[StateDifference]:
        """Compare all states of an operator: keyed states, then operator states."""
        present = after or before
        label = "" if present is None else present.label
        differences = []
        for kind in (StateRecord, OperatorStateRecord):
            first, second = _states(before, kind), _states(after, kind)
            for name in dict.fromkeys([*first, *second]):
                difference = StateDifference(label, name, "same")
                self._describe(difference, first.get(name), second.get(name))
                differences.append(difference)
        return differences

    def _describe(self, difference: StateDifference, old: _Held | None, new: _Held | None) -> None:
        """Fill in the difference of one state."""
        difference.bytes_before = old[1].state_bytes if old else 0
        difference.bytes_after = new[1].state_bytes if new else 0
        if old is not None and new is not None:
            if _types(*old) == _types(*new) or _named_otherwise(old, new):
                self._compare(difference, old, new)
                return
            difference.status = "retyped"
        else:
            difference.status = "removed" if new is None else "added"
            for side in filter(None, (old, new)):
                difference.examples = self._examples(difference.status, *side)
        difference.removed = old[1].entries if old else 0
        difference.added = new[1].entries if new else 0

    def _compare(self, difference: StateDifference, before: _Held, after: _Held) -> None:
        (first, old), (second, new) = before, after
        if isinstance(old, StateRecord) and isinstance(new, StateRecord):
            self._compare_keyed(difference, (first, old), (second, new))
        elif isinstance(old, OperatorStateRecord) and isinstance(new, OperatorStateRecord):
            difference.added, difference.removed, difference.changed, difference.examples = (
                _diff_operator_state(self.lake.location, (first, old), (second, new), self.examples)
            )
        if difference.added or difference.removed or difference.changed:
            difference.status = "changed"

    def _compare_keyed(
        self,
        difference: StateDifference,
        before: tuple[OperatorRecord, StateRecord],
        after: tuple[OperatorRecord, StateRecord],
    ) -> None:
        rows = [self._rows(*side) for side in (before, after)]
        differing = _differing(before[0], rows[0], after[0], rows[1])
        tasks = [_DiffTask(rows[0], rows[1], groups, self.examples) for groups in differing]
        self.unread |= {
            f"{side.path}/{file.path}": file.size
            for side in rows
            for file in side.units
            if not any(file.first <= each.last and each.first <= file.last for each in differing)
        }
        for result in self.engine.map(_compare_groups, tasks, self.progress):
            difference.added += result.added
            difference.removed += result.removed
            difference.changed += result.changed
            room = self.examples - len(difference.examples)
            difference.examples += result.examples[:room]

    def _examples(
        self, change: str, operator: OperatorRecord, state: AnyState
    ) -> list[dict[str, Any]]:
        """Return a few rows of a state that only one of the snapshots has."""
        place = "after" if change == "added" else "before"
        if isinstance(state, OperatorStateRecord):
            shown = _first_rows(self.lake.location, operator, state, self.examples)
            return [{"change": change, place: row} for row in shown]
        rows = self._rows(operator, state)
        examples: list[dict[str, Any]] = []
        for file in rows.units:
            if len(examples) >= self.examples:
                break
            states = replace(rows, units=(file,)).read(KeyGroupRange(file.first, file.last))
            count = sum(len(state_rows.batch) for state_rows in states)
            examples += [
                {"change": change, place: _shown(states, row)}
                for row in range(min(count, self.examples - len(examples)))
            ]
        return examples

    def _rows(self, operator: OperatorRecord, state: StateRecord) -> TableReader:
        table = operator.table_of(state)
        return table_rows(self.lake.location, operator, table).only(state)


def _states(
    operator: OperatorRecord | None, kind: type[StateRecord | OperatorStateRecord]
) -> dict[str, _Held]:
    """Return an operator's states of a kind, by name."""
    if operator is None:
        return {}
    return {s.name: (operator, s) for s in operator.all_states if isinstance(s, kind)}


def _types(operator: OperatorRecord, state: AnyState) -> tuple[object, ...]:
    if isinstance(state, OperatorStateRecord):
        return state.mode, state.key_type, state.value_type
    return (
        operator.key_type, state.kind, state.namespace_type, state.value_type,
        state.user_key_type, state.ttl,
    )  # fmt: skip


def _named_otherwise(old: _Held, new: _Held) -> bool:
    """Return whether only the names of a plan differ, or what texts hold, and no bytes do."""
    (first, before), (second, after) = old, new
    return (
        isinstance(before, StateRecord)
        and isinstance(after, StateRecord)
        and first.names_of(before) != second.names_of(after)
        and (before.meta_info, first.key_serializer) == (after.meta_info, second.key_serializer)
    )


def _differing(
    first: OperatorRecord, before: TableReader, second: OperatorRecord, after: TableReader
) -> list[KeyGroupRange]:
    """Return ranges of key groups that may differ, such that no file has rows of two ranges.

    If the numbers of key groups differ, all are in one range.
    """
    if first.max_parallelism != second.max_parallelism:
        top = max(first.max_parallelism, second.max_parallelism) - 1
        return [KeyGroupRange(0, top)]
    same_paths = {file.path for file in before.units} & {file.path for file in after.units}
    marks = [
        {part.span: part.fingerprint for file in rows.units for part in file.compared}
        for rows in (before, after)
    ]
    same = {key for key, value in marks[0].items() if value and marks[1].get(key) == value}
    ranges: list[tuple[KeyGroupRange, bool]] = []
    for file in sorted((*before.units, *after.units), key=lambda file: file.first):
        span = KeyGroupRange(*file.span)
        differs = file.path not in same_paths and any(
            part.span not in same for part in file.compared
        )
        if ranges and file.first <= ranges[-1][0].last:
            prior, did = ranges.pop()
            span, differs = KeyGroupRange(prior.first, max(prior.last, span.last)), did or differs
        ranges.append((span, differs))
    return [span for span, differs in ranges if differs]


def _compare_groups(task: _DiffTask) -> StateDifference:
    """Join the entries of both sides by the bytes of their keys."""
    before, after = task.before.read(task.key_groups), task.after.read(task.key_groups)
    left, right = _keys_and_values(before), _keys_and_values(after)
    joined = left.join(right, "key", right_suffix="_after", join_type="full outer")
    old, new = joined.column("row"), joined.column("row_after")
    added, removed = pc.is_null(old), pc.is_null(new)
    differs = pc.fill_null(
        pc.not_equal(joined.column("value"), joined.column("value_after")), False
    )
    difference = StateDifference("", "", "")
    difference.added, difference.removed, difference.changed = (
        int(pc.sum(mask).as_py() or 0) for mask in (added, removed, differs)
    )
    for what, mask in (("changed", differs), ("removed", removed), ("added", added)):
        for row in joined.filter(mask).slice(0, task.examples).to_pylist():
            example: dict[str, Any] = {"change": what}
            if row["row"] is not None:
                example["before"] = _shown(before, row["row"])
            if row["row_after"] is not None:
                example["after"] = _shown(after, row["row_after"])
            difference.examples.append(example)
    return difference


def _keys_and_values(states: list[StateRows]) -> pa.Table:
    keys = [state.layout.key_writer(state.batch).to_binary() for state in states]
    values = [state.layout.value_writer(state.batch).to_binary() for state in states]
    empty = [pa.array([], pa.large_binary())]
    count = sum(len(key) for key in keys)
    return pa.table(
        {
            "key": pa.chunked_array(keys or empty),
            "value": pa.chunked_array(values or empty),
            "row": pa.array(np.arange(count)),
        }
    )


def _shown(states: list[StateRows], row: int) -> dict[str, Any]:
    for state in states:
        if row < len(state.batch):
            return typed_row(state.batch.slice(row, 1), state.layout)
        row -= len(state.batch)
    return {}


def _diff_operator_state(
    lake: str,
    before: tuple[OperatorRecord, OperatorStateRecord],
    after: tuple[OperatorRecord, OperatorStateRecord],
    examples: int,
) -> _ElementDifference:
    """Compare one state of two snapshots: added, removed, changed, and a few examples.

    Elements of a list have no keys, and are compared as collections, whatever the position and the
    subtask of each. Broadcast entries are compared by key.
    """
    first, second = (_elements(lake, *side) for side in (before, after))
    broadcast = before[1].mode == "BROADCAST"
    removed, added = list((first - second).items()), list((second - first).items())
    shown: list[dict[str, Any]] = []
    changed = 0
    if broadcast:
        old, new = ({key: value for (key, value), _ in some} for some in (removed, added))
        both = old.keys() & new.keys()
        changed = len(both)
        removed = [item for item in removed if item[0][0] not in both]
        added = [item for item in added if item[0][0] not in both]
    sides = {"removed": (before, removed), "added": (after, added)}
    for what, (side, some) in sides.items():
        for element, _ in some[: max(0, examples - len(shown))]:
            place = "before" if what == "removed" else "after"
            shown.append({"change": what, place: _shown_element(lake, side, element)})
    counts = [sum(count for _, count in some) for some in (added, removed)]
    return counts[0], counts[1], changed, shown


def _first_rows(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord, count: int
) -> list[dict[str, Any]]:
    """Return the first rows of a state, as they are shown."""
    rows = _operator_rows(lake, operator, state).slice(0, count) if count else None
    if rows is None:
        return []
    _, layout = parse_operator_state(state.meta_info)
    return [typed_row(rows.slice(at, 1), layout) for at in range(len(rows))]


def _elements(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord
) -> Counter[tuple[bytes, bytes]]:
    """Count each element's bytes (with an empty key), or each entry's key and value."""
    rows = _operator_rows(lake, operator, state)
    _, layout = parse_operator_state(state.meta_info)
    return Counter(layout.pairs(rows))


def _operator_rows(
    lake: str, operator: OperatorRecord, state: OperatorStateRecord
) -> pa.RecordBatch:
    return read_operator_rows(lake, state, operator.table_of(state).units)


def _shown_element(
    lake: str, side: tuple[OperatorRecord, OperatorStateRecord], element: tuple[bytes, bytes]
) -> dict[str, Any]:
    rows = _operator_rows(lake, *side)
    _, layout = parse_operator_state(side[1].meta_info)
    at = layout.pairs(rows).index(element)
    return typed_row(rows.slice(at, 1), layout)
