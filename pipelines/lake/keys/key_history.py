"""The changes of one key from snapshot to snapshot of a job.

Snapshots share the files of key groups that did not change between them; each file is read once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from statelake.pipelines.keys import keys_in
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.reading import SnapshotReading
from statelake.pipelines.lake.catalog.recorded_states import recorded_snapshot
from statelake.pipelines.lake.tables.key_rows import files_with_key, read_key
from statelake.pipelines.lake.tables.records import DataFile, OperatorRecord, SnapshotRecord
from statelake.pipelines.lake.tables.table_rows import TableReader
from statelake.pipelines.shown import cell_text, json_text, plain_rows, state_head, state_title
from statelake.state_core.errors import EncodeError, NotFoundError, StateError
from statelake.state_core.model.key_groups import SearchKey
from statelake.state_core.printable import Printed, Table

# the entries at one place, each with value and time of last access as in `statelake dump`
_Held: TypeAlias = "dict[str, list[dict[str, Any]]]"

SHOWN_CHANGES = 1000  # in the table for people
_VALUES = ("value", "raw_value", "ttl")
_ELSEWHERE = ("key_group",)  # changes with the max parallelism, which is no change of the entry


@dataclass(frozen=True)
class KeyChange:
    """A change of one entry of a key since the snapshot before.

    Attributes:
        change: `added`, `changed` or `gone`.
        entry: Its place: operator, state, kind, namespace, key and user key; of a timer the
            timestamp.
        before: Its value (and `ttl`, the time of its last access) in the snapshot before; empty for
            a timer.
        after: Its value (and `ttl`) in this snapshot.
    """

    JSON = ("change", "*entry", "before", "after")

    change: str
    entry: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True)
class KeySnapshot:
    """A snapshot in a key's history.

    Attributes:
        snapshot_id: Its id.
        taken_at: When it was taken.
        entries: The number of entries of the key.
        changes: The changes since the snapshot before.
    """

    JSON = ("snapshot=snapshot_id", "taken=taken_at", "entries", "changes")

    snapshot_id: str
    taken_at: datetime
    entries: int
    changes: list[KeyChange] = field(default_factory=list)


@dataclass(frozen=True)
class KeyHistory(Printed):
    """A key through a job's snapshots.

    Attributes:
        key: The key, as text.
        snapshots: The job's snapshots, the oldest first.
        files_read: The number of files that were read for all of them.
    """

    JSON = "snapshots"

    key: str
    snapshots: list[KeySnapshot]
    files_read: int

    @property
    def has_entries(self) -> bool:
        """Return whether a snapshot holds anything for the key."""
        return any(each.entries for each in self.snapshots)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        if not self.has_entries:
            yield f"no snapshot holds anything for key {self.key}"
            return
        rows = [
            (each.snapshot_id, f"{each.taken_at:%Y-%m-%d %H:%M}",
             f"{change.entry['operator']}/{_state(change.entry)}", _place(change.entry),
             change.change, _values(change.before, change.after))
            for each in self.snapshots
            for change in each.changes
        ]  # fmt: skip
        columns = ("<snapshot", "<taken", "<state", "<entry", "<change", "<value")
        title = f"{self.key} in {len(self.snapshots)} snapshots"
        yield Table(title, columns, rows[:SHOWN_CHANGES])
        if len(rows) > SHOWN_CHANGES:
            yield f"... and {len(rows) - SHOWN_CHANGES:,} more changes: --json has all"


def _state(entry: Mapping[str, Any]) -> str:
    return state_title(entry["state"], entry.get("alias", ""))


def _place(entry: Mapping[str, Any]) -> str:
    """Return the namespace and the user key of an entry, and the time of a timer."""
    names = [name for name in ("namespace", "user_key") if entry.get(name) is not None]
    timer = [f"fires {cell_text('timestamp', entry['timestamp'])}"] if "timestamp" in entry else []
    return " ".join([json_text(entry[name]) for name in names] + timer)


def _values(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """Return the value or its change; of equal ones that of their bytes, or of the last access."""
    name = "value"
    if before and after:
        name = next((each for each in _VALUES if before.get(each) != after.get(each)), name)
    shown = [
        cell_text(name, values[name]) for values in (before, after) if values and name in values
    ]
    text = " → ".join(shown)
    return f"last access {text}" if text and name == "ttl" else text


class _HistoryReader:
    """A reader of the rows of keys, which reads each file only once."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, bytes], list[dict[str, Any]]] = {}

    def read(
        self, lake: str, operator: OperatorRecord, key: SearchKey, state: str | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a key in an operator's tables, as they are printed."""
        for table, file in files_with_key(lake, operator, key, state):
            for row in self._of_file(table, file, key):
                yield row | {"operator": operator.label}

    def _of_file(self, table: TableReader, file: DataFile, key: SearchKey) -> list[dict[str, Any]]:
        name = (table.path, file.path, key.encoded.encoded)
        if name not in self.rows:
            self.rows[name] = [
                row
                for state, rows in read_key(table, file, key)
                for row in plain_rows(state_head("", state), rows, state.layout)
            ]
        return self.rows[name]


def key_history(
    lake: Catalog,
    job: str,
    text: str,
    *,
    operator: str | None = None,
    state: str | None = None,
) -> KeyHistory:
    """Return the changes of a key from each snapshot of a job to the next.

    All entries of the oldest snapshot count as added there. An operator or a state that a snapshot
    lacks has no entries there.

    Args:
        lake: The lake.
        job: The job.
        text: The key as text, for `pipelines.keys.key_from_text`.
        operator: Only of this operator: its uid, name or id.
        state: Only of the state of that name.

    Raises:
        EncodeError: No operator of any snapshot can have that key.
        LakeError: A file can't be read.
        NotFoundError: There is no such job, or no snapshot has such an operator or state; or one
            was dropped meanwhile.
        DamagedLakeError: The row of a snapshot is invalid.
        ConflictError: An erasure changed a snapshot meanwhile, each time.
    """
    records, bad = lake.records(job)
    if bad:
        raise bad[0].error
    if not records:
        lake.snapshot(job, "")  # raises the error that lists the jobs

    def history(*records: SnapshotRecord) -> KeyHistory:
        return _history(lake, records, text, operator, state)

    return SnapshotReading(lake, *records).at_once(history)


def _history(
    lake: Catalog,
    records: Iterable[SnapshotRecord],
    text: str,
    operator: str | None,
    state: str | None,
) -> KeyHistory:
    reader = _HistoryReader()
    history: list[KeySnapshot] = []
    before: _Held = {}
    refused: StateError | None = None
    any_read = False
    for record in _named_alike(records):
        owners = {each.operator_id: each for each in record.operators}
        try:
            snapshot = recorded_snapshot(lake, record)
            keys = keys_in(snapshot, text, operator=operator, state=state)
            any_read = True
        except (EncodeError, NotFoundError) as error:
            refused, keys = error, []
        rows = [
            row
            for each in keys
            for row in reader.read(
                lake.location, owners[each.owner.operator_id], each.sought, state
            )
        ]
        after = _by_place(rows)
        history.append(_snapshot(record, before, after, len(rows)))
        before = after
    if refused is not None and not any_read:
        raise refused
    return KeyHistory(text, history, len({name[:2] for name in reader.rows}))


def _named_alike(records: Iterable[SnapshotRecord]) -> list[SnapshotRecord]:
    """Return snapshots in which the columns of Flink SQL's rows are named in those of all.

    An import without the plan changes nothing in state.
    """
    known: dict[str, OperatorRecord] = {}
    listed = list(records)
    for record in listed:
        known |= {each.operator_id: each for each in record.operators if each.node}
    return [
        replace(
            record,
            operators=[_named_like(each, known.get(each.operator_id)) for each in record.operators],
        )
        for record in listed
    ]


def _named_like(operator: OperatorRecord, named: OperatorRecord | None) -> OperatorRecord:
    """Return an operator without names with those of another, where its types are the same."""
    if named is None or operator.node or operator.key_serializer != named.key_serializer:
        return operator
    alike = {(each.name, each.meta_info): each for each in named.states}
    states = [
        each.named(named.names_of(other))
        if (other := alike.get((each.name, each.meta_info))) is not None
        else each
        for each in operator.states
    ]
    return replace(operator, node=named.node, key_names=named.key_names, states=states)


def _by_place(rows: Iterable[Mapping[str, Any]]) -> _Held:
    places: _Held = defaultdict(list)
    for row in rows:
        entry = {
            name: value
            for name, value in row.items()
            if name not in _VALUES and name not in _ELSEWHERE
        }
        values = {name: row[name] for name in _VALUES if name in row}
        places[json.dumps(entry)].append(values)
    return places


def _snapshot(record: SnapshotRecord, before: _Held, after: _Held, entries: int) -> KeySnapshot:
    changes = [
        change
        for place in dict.fromkeys([*before, *after])
        for change in _changes(json.loads(place), before.get(place, []), after.get(place, []))
    ]
    return KeySnapshot(record.snapshot_id, record.taken_at, entries, changes)


def _changes(
    entry: dict[str, Any], before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> Iterator[KeyChange]:
    """Yield the changes at one place, which has one entry: more only in a damaged table."""
    for index in range(max(len(before), len(after))):
        old = before[index] if index < len(before) else None
        new = after[index] if index < len(after) else None
        if old is None:
            yield KeyChange("added", entry, None, new)
        elif new is None:
            yield KeyChange("gone", entry, old, None)
        elif old != new:
            yield KeyChange("changed", entry, old, new)
