"""Records of snapshots: the rows of the catalog's `snapshots` table, as values.

One `SnapshotRecord` is one snapshot of one job: its source, its operators and states, and for each
of its tables the Delta version and its files. `snapshots`, `rescale` and the next import need
nothing else, so they open no table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cache
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta

from statelake.pipelines.lake.tables.file_spans import BUCKET, KEY_GROUP
from statelake.state_core.errors import DamagedLakeError
from statelake.state_core.files.outside import Count, checked, matching, one_of
from statelake.state_core.formats.metadata.checkpoint_metadata import METADATA_VERSIONS
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.key_groups import MAX_PARALLELISM_LIMIT
from statelake.state_core.model.measure import GroupSums
from statelake.state_core.model.snapshot import KeyedState, RowNames, StateKind
from statelake.state_core.printable import printable

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
Parallelism: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PARALLELISM_LIMIT)]
GIVEN, OF_FILE = "given", "file"  # what says when a snapshot was taken


@dataclass(slots=True)  # there may be millions
class KeyGroupRecord:
    """One key group of one state: its entries, and the bytes of their keys and values."""

    key_group: Count
    entries: Count
    state_bytes: Count


@dataclass
class PartRecord:
    """Some key groups of a file that an import read and compares by themselves.

    Attributes:
        first: The first key group with rows.
        last: The last key group with rows.
        fingerprint: A hash of the content of these key groups.
    """

    first: Count
    last: int
    fingerprint: bytes = field(repr=False)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last key group."""
        return self.first, self.last


@dataclass
class DataFile:
    """One file of a table, and its content.

    Key groups with very many rows have several files, each with the same first and last key group,
    in the order of their rows: together they are the unit in which tables are rewritten.

    Attributes:
        path: Its path below the table.
        partition: The value of the partition column.
        first: The first key group that it may hold.
        last: The last key group that it may hold.
        rows: The number of its rows.
        size: The file's bytes.
        fingerprint: A hash of the content of its key groups, in all their files, whatever the order
            of entries; empty if unknown, or if its parts have theirs.
        parts: The parts of it that slices of an import had; empty if one had all of it.
    """

    path: str
    partition: int
    first: Count
    last: int
    rows: Count
    size: Count
    fingerprint: bytes = field(repr=False)
    parts: list[PartRecord] = field(default_factory=list, repr=False)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last key group."""
        return self.first, self.last

    @property
    def compared(self) -> list[PartRecord]:
        """Return the units of comparison: its parts, or the file itself."""
        return self.parts or [PartRecord(*self.span, self.fingerprint)]

    @property
    def content(self) -> tuple[bytes, ...]:
        """The fingerprints of its parts, or its own."""
        return tuple(part.fingerprint for part in self.compared)


@dataclass
class TableRecord:
    """One table of the snapshot: its version, and its files at that version."""

    path: str
    version: Count
    partition_by: Annotated[str, one_of(("", KEY_GROUP, BUCKET))]
    units: list[DataFile] = field(default_factory=list, repr=False)


def by_span(files: Iterable[DataFile]) -> dict[tuple[int, int], list[DataFile]]:
    """Return files by their first and last key group, or subtask, in the order of their rows."""
    spans: dict[tuple[int, int], list[DataFile]] = {}
    for file in files:
        spans.setdefault(file.span, []).append(file)
    return spans


@dataclass
class StateRecord:
    """One keyed state, or one queue of timers.

    Attributes:
        name: Its name.
        kind: `value`, `list`, `map`, `reducing`, `aggregating` or `timers`.
        table: The path of its table; all timers of an operator share one.
        namespace_type: The Java type of its namespaces, as Java writes it.
        value_type: The Java type of its values.
        user_key_type: The Java type of a map's keys.
        ttl: Whether each value carries the time of its last access.
        meta_info: Its meta info, as Flink wrote it.
        entries: The entries in all key groups.
        state_bytes: The bytes of keys and values, in all key groups.
        key_groups: The key groups that have entries.
        user_key_names: The names of the fields of a map's keys, from a plan of Flink SQL at import;
            empty without one, and in lakes that do not have it yet, as the next.
        value_names: Those of the rows that values are, or hold.
        content: The content of its texts or bytes, as given at import; empty if none was given.
        alias: What a plan of Flink SQL calls it at import; empty if it has no name there.
    """

    name: str
    kind: Annotated[str, one_of(kind.value for kind in StateKind)]
    table: str
    namespace_type: str
    value_type: str
    user_key_type: str
    ttl: bool
    meta_info: bytes = field(repr=False)
    entries: Count = 0
    state_bytes: Count = 0
    key_groups: list[KeyGroupRecord] = field(default_factory=list, repr=False)
    user_key_names: list[str] = field(default_factory=list)
    value_names: list[str] = field(default_factory=list)
    content: str = ""
    alias: str = ""

    @classmethod
    def of(cls, state: KeyedState, table: str) -> StateRecord:
        """Return a state without key groups, whose rows are in a table."""
        return cls(
            state.name, state.kind.value, table, state.namespace_type, state.value_type,
            state.user_key_type, state.with_ttl, state.meta_info,
        ).named(state.names)  # fmt: skip

    def named(self, names: RowNames) -> StateRecord:
        """Return it with the names of its rows' fields; its operator has those of the key."""
        return replace(
            self, user_key_names=list(names.user_key), value_names=list(names.value),
            content=names.content, alias=names.alias,
        )  # fmt: skip

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its names: its own, and its alias in a plan of Flink SQL, if it has one."""
        return tuple(filter(None, (self.name, self.alias)))

    def with_key_groups(self, groups: Iterable[KeyGroupRecord]) -> StateRecord:
        """Return this state with other key groups, in order, and its counts updated."""
        ordered = sorted(groups, key=lambda group: group.key_group)
        return replace(
            self,
            key_groups=ordered,
            entries=sum(group.entries for group in ordered),
            state_bytes=sum(group.state_bytes for group in ordered),
        )


@dataclass
class SubtaskRecord:
    """One subtask's share of an operator state: elements, and their bytes."""

    subtask: Count
    elements: Count
    state_bytes: Count


@dataclass
class OperatorStateRecord:
    """One operator (non-keyed) state.

    Attributes:
        name: Its name.
        mode: `SPLIT_DISTRIBUTE`, `UNION` or `BROADCAST`.
        table: The path of its table.
        value_type: Java types, as Java writes them.
        key_type: The type of the keys of a broadcast state; empty for lists.
        meta_info: Its meta info, as Flink wrote it.
        elements: Rows of its table: elements of a list, entries of a broadcast state.
        state_bytes: Their bytes; for a broadcast state, those of one copy.
        subtasks: The subtasks that have elements; of a broadcast state, all that have a copy.
        disagreeing: Subtasks whose copy of a broadcast state is not the one in the table.
    """

    name: str
    mode: Annotated[str, one_of(mode.name for mode in DistributionMode)]
    table: str
    value_type: str
    key_type: str
    meta_info: bytes = field(repr=False)
    elements: Count = 0
    state_bytes: Count = 0
    subtasks: list[SubtaskRecord] = field(default_factory=list, repr=False)
    disagreeing: list[int] = field(default_factory=list)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its names: only its own."""
        return (self.name,)

    def with_subtasks(self, subtasks: Iterable[SubtaskRecord]) -> OperatorStateRecord:
        """Return this state with other subtasks, in order, and its counts updated."""
        ordered = sorted(subtasks, key=lambda subtask: subtask.subtask)
        # every subtask has a copy of a broadcast state, and the table has one
        counted = ordered[:1] if self.mode == DistributionMode.BROADCAST.name else ordered
        return replace(
            self,
            subtasks=ordered,
            elements=sum(subtask.elements for subtask in counted),
            state_bytes=sum(subtask.state_bytes for subtask in counted),
        )

    @property
    def entries(self) -> int:
        """Rows of its table, as of keyed state."""
        return self.elements

    @property
    def kind(self) -> str:
        """`split_distribute`, `union` or `broadcast`."""
        return self.mode.lower()


AnyState: TypeAlias = StateRecord | OperatorStateRecord


@dataclass
class SliceRecord:
    """Key groups that one task of an import read.

    Attributes:
        first: The first of them.
        last: The last of them.
        mark: A digest of their bytes as stored, and of what each table has of them.
    """

    first: Count
    last: int
    mark: bytes = field(repr=False)


@dataclass
class OperatorRecord:
    """One operator with keyed or operator state; `tables` are those of both.

    `slices` are those of its import, of which the next one compares the bytes.

    `node`, `query` and `key_names` are what a plan of Flink SQL said at import; empty without one.
    """

    operator_id: Annotated[str, matching("[0-9a-f]{32}")]
    uid: str
    name: str
    parallelism: Parallelism
    max_parallelism: Parallelism
    key_type: str
    key_serializer: bytes = field(repr=False)
    states: list[StateRecord] = field(default_factory=list, repr=False)
    tables: list[TableRecord] = field(default_factory=list, repr=False)
    operator_states: list[OperatorStateRecord] = field(default_factory=list, repr=False)
    operator_state_version: Count = 0
    node: str = ""
    query: str = ""
    key_names: list[str] = field(default_factory=list)
    slices: list[SliceRecord] = field(default_factory=list, repr=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return its names: its uid, its id, and its node in a plan of Flink SQL, if known."""
        return tuple(filter(None, (self.uid, self.operator_id, self.node)))

    def names_of(self, state: StateRecord) -> RowNames:
        """Return the names of the fields of a state's rows."""
        value, user_key = tuple(state.value_names), tuple(state.user_key_names)
        return RowNames(tuple(self.key_names), user_key, value, state.content, state.alias)

    @property
    def label(self) -> str:
        """Its uid, or else its id."""
        return self.uid or self.operator_id

    @property
    def keyed_tables(self) -> list[TableRecord]:
        """The tables of keyed state."""
        paths = {state.table for state in self.states}
        return [table for table in self.tables if table.path in paths]

    @property
    def all_states(self) -> list[AnyState]:
        """Its keyed states, and then its operator states."""
        return [*self.states, *self.operator_states]

    @property
    def entries(self) -> int:
        """The rows of all its tables."""
        return sum(state.entries for state in self.all_states)

    @property
    def state_bytes(self) -> int:
        """The bytes of all its states."""
        return sum(state.state_bytes for state in self.all_states)

    def table_of(self, state: AnyState) -> TableRecord:
        """Return the table that holds one of its states."""
        return next(table for table in self.tables if table.path == state.table)

    def states_in(self, table: TableRecord) -> list[AnyState]:
        """Return the states that a table holds: one, or all its timers."""
        return [state for state in self.all_states if state.table == table.path]

    def with_states(
        self, states: list[StateRecord], operator_states: list[OperatorStateRecord]
    ) -> OperatorRecord:
        """Return the operator with only these of its states, and only their tables."""
        left = replace(self, states=states, operator_states=operator_states)
        paths = {state.table for state in left.all_states}
        return replace(left, tables=[table for table in self.tables if table.path in paths])

    def with_table(self, new: TableRecord) -> OperatorRecord:
        """Return the operator with another version of one of its tables."""
        tables = [new if old.path == new.path else old for old in self.tables]
        return replace(self, tables=tables)


@dataclass
class UnmanagedFile:
    """A file of the source, kept as bytes: `handle` is its name there, `blob` its name here."""

    handle: str
    blob: str
    size: Count


@dataclass
class HoldRecord:
    """A hold: why a snapshot may not be dropped, and since when."""

    reason: str
    since: Time


@dataclass(repr=False)
class SnapshotRecord:
    """One snapshot of one job.

    Attributes:
        job: The job.
        snapshot_id: Its id, unique within the job.
        parent: The snapshot from which it was made; empty for an import.
        origin: `import` or `commit`.
        kind: `savepoint` or `checkpoint`.
        format: `canonical`, `native` or `checkpoint`.
        metadata_version: The version of its `_metadata`.
        checkpoint_id: The checkpoint's number in the job.
        taken_at: When it was taken, as given to the import; by default when its file `_metadata`
            was last written, which a copy changes.
        imported_at: When this row was written.
        source: The location from which it was imported.
        digest: The digest of its `_metadata`, by which the same snapshot is recognised.
        compression: `snappy` or `none`, as it was written.
        note: The user's note.
        entries: The entries of all states.
        state_bytes: The bytes of all keys and values.
        written_bytes: The bytes that this snapshot added to the lake.
        metadata: Its `_metadata` without the state that has tables: the basis of an export.
        carried: Files of state that has no tables: raw state, in-flight buffers.
        operators: The operators with keyed or operator state.
        holds: The holds: while there is one, it may not be dropped.
        erased: The erasures that deleted rows of it, by their requests.
        sequence: Its place among the job's snapshots: the version of the catalog that added it; 0
            in lakes that do not have it yet.
        applied: The digest of the change by which a migration or an upgrade of Flink SQL made it;
            empty for all others, and in lakes that do not have it yet.
        taken_from: Where `taken_at` is from: `given` to the import, or `file`, which is a guess;
            empty in lakes that do not have it yet.
    """

    job: Name
    snapshot_id: Name
    parent: str
    origin: str
    kind: str
    format: str
    metadata_version: Annotated[int, Meta(ge=METADATA_VERSIONS[0], le=METADATA_VERSIONS[-1])]
    checkpoint_id: int
    taken_at: Time
    imported_at: Time
    source: str
    digest: str
    compression: Annotated[str, one_of(("snappy", "none"))]
    note: str
    entries: Count
    state_bytes: Count
    written_bytes: Count
    metadata: bytes
    carried: list[UnmanagedFile] = field(default_factory=list)
    operators: list[OperatorRecord] = field(default_factory=list)
    holds: list[HoldRecord] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)
    sequence: Count = 0
    applied: str = ""
    taken_from: str = ""

    def __repr__(self) -> str:
        made = f"{self.origin} of {self.parent}" if self.parent else f"{self.format} {self.kind}"
        return printable(
            f"<SnapshotRecord {self.job}/{self.snapshot_id}: {made}, taken"
            f" {self.taken_at:%Y-%m-%d %H:%M}, {self.entries:,} entries,"
            f" {self.state_bytes:,} bytes>"
        )

    @property
    def age(self) -> tuple[datetime, int, datetime]:
        """Return the key that sorts a job's snapshots by the time when they were taken."""
        return self.taken_at, self.sequence, self.imported_at

    @property
    def made_from(self) -> str:
        """What it was made from, for people: an import from its format."""
        return f"{self.origin} of {self.parent}" if self.parent else self.format

    @property
    def held_text(self) -> str:
        """The reasons of its holds, for people."""
        return "; ".join(hold.reason or "held" for hold in self.holds)

    @property
    def taken_text(self) -> str:
        """When it was taken, for people; with a question mark if only a file says it."""
        return taken_text(self.taken_at, self.taken_from)

    @property
    def tables(self) -> list[TableRecord]:
        """The tables of all its operators."""
        return [table for operator in self.operators for table in operator.tables]

    @property
    def all_states(self) -> list[AnyState]:
        """The keyed states of all its operators, and then their operator states."""
        keyed: list[AnyState] = [state for operator in self.operators for state in operator.states]
        return keyed + [state for operator in self.operators for state in operator.operator_states]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that lists of snapshots show."""
        hidden = ("metadata", "carried", "operators")
        return {name: value for name, value in self.to_row().items() if name not in hidden}

    def files_digest(self) -> str:
        """Return the digest of its files, which changes when an erasure exchanges some."""
        named = sorted(f"{table.path}/{file.path}" for table in self.tables for file in table.units)
        named += sorted(carried.blob for carried in self.carried)
        return hashlib.sha256("\n".join(named).encode("utf-8", "surrogatepass")).hexdigest()

    def with_operators(self, operators: list[OperatorRecord]) -> SnapshotRecord:
        """Return the snapshot with other operators, and its counts updated."""
        return replace(
            self,
            operators=operators,
            entries=sum(operator.entries for operator in operators),
            state_bytes=sum(operator.state_bytes for operator in operators),
        )

    def followed_by(
        self,
        snapshot_id: str,
        origin: str,
        operators: list[OperatorRecord],
        written: int,
        note: str,
    ) -> SnapshotRecord:
        """Return the record of a new snapshot that is made from this one.

        Args:
            snapshot_id: Its id.
            origin: How it was made: `edit`, `commit`, `migrate`.
            operators: Its operators.
            written: The bytes that were written for it.
            note: A note to keep with it.
        """
        return replace(
            self.with_operators(operators),
            snapshot_id=snapshot_id,
            parent=self.snapshot_id,
            origin=origin,
            imported_at=datetime.now(timezone.utc),
            note=note,
            written_bytes=written,
            holds=[],
            erased=[],
            sequence=0,
            applied="",
        )

    def to_row(self) -> dict[str, Any]:
        """Return the row of the `snapshots` table."""
        row: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes, datetime))
        return row

    def to_table(self) -> pa.Table:
        """Return the row as a table, without a Python object for each nested value."""
        return pa.Table.from_struct_array(_to_arrow(SnapshotRecord, [self]))

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> SnapshotRecord:
        """Return the record of a row, without columns that this version does not know.

        Raises:
            DamagedLakeError: A value is not of its type, or out of bounds.
        """
        kind: Any = cls  # mypy knows no hash of a class that is an argument of a cached function
        empty = {name: hint() for name, hint, _ in _fields(kind) if hint in (str, int, bytes)}
        return checked(empty | _without_nulls(row), cls, DamagedLakeError)


def differing_copies(operators: Iterable[OperatorRecord]) -> list[str]:
    """Return which copies of broadcast states the lake does not have, as it keeps the first one.

    A job that restores them, or goes on in other subtasks, decides by another content than it did.
    """
    return [
        f"the copies of {operator.label}/{state.name} in subtasks"
        f" {', '.join(map(str, state.disagreeing))}, which differ from the first one: a broadcast"
        " state has to be the same in all"
        for operator in operators
        for state in operator.operator_states
        if state.disagreeing
    ]


def taken_text(taken_at: datetime, taken_from: str) -> str:
    """Return when a snapshot was taken; with a question mark if it is a guess."""
    return f"{taken_at:%Y-%m-%d %H:%M}{' ?' if taken_from == OF_FILE else ''}"


def key_group_records(sums: GroupSums) -> list[KeyGroupRecord]:
    """Return the key groups in which a state has entries."""
    columns = (sums.key_groups, sums.entries, sums.state_bytes)
    return list(map(KeyGroupRecord, *(column.tolist() for column in columns)))


_SCALARS = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def _arrow_type(hint: Any) -> pa.DataType:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if get_origin(hint) is list:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    return pa.struct(arrow_fields(hint))


def arrow_fields(cls: Any) -> list[pa.Field]:
    """Return the columns of the records of a class."""
    return [pa.field(name, _arrow_type(hint)) for name, hint, _ in _fields(cls)]


@cache
def _fields(cls: Any) -> list[tuple[str, Any, Any]]:
    """Return the name of each field, its type, and the type of a list's elements."""
    hints = get_type_hints(cls)
    return [
        (name, hints[name], get_args(hints[name])[0] if get_origin(hints[name]) is list else None)
        for name in (attribute.name for attribute in fields(cls))
    ]


def _to_arrow(cls: Any, records: Sequence[Any]) -> pa.StructArray:
    """Return records of a class as an array, field by field."""
    columns = []
    for name, hint, item in _fields(cls):
        values = [getattr(record, name) for record in records]
        if item is None or item in _SCALARS:
            columns.append(pa.array(values, _arrow_type(hint)))
            continue
        ends = np.cumsum([len(inner) for inner in values], dtype=np.int32)
        inside = _to_arrow(item, [inner for of_record in values for inner in of_record])
        columns.append(pa.ListArray.from_arrays(np.append(np.int32(0), ends), inside))
    return pa.StructArray.from_arrays(columns, fields=arrow_fields(cls))


def _without_nulls(value: Any) -> Any:
    """Return a row without columns and fields that its lake does not have."""
    if isinstance(value, dict):
        return {name: _without_nulls(v) for name, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


SNAPSHOT_SCHEMA = pa.schema(arrow_fields(SnapshotRecord))
