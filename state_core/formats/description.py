"""A description of a snapshot: one value that every face prints, as text, JSON, HTML or charts.

The size of a state, a key group or a subtask is one thing everywhere: the bytes of the keys and
values of its entries, timers included, as Flink's serializers write them, before compression and
without the prefixes and heads that a file adds. Where entries were not counted, key groups have
the bytes that files store for them, and are marked as estimated.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import StateError
from statelake.state_core.formats.metadata.state_files import job_directory
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.redistribution import (
    NO_GROUPS,
    SubtaskPlan,
    plan_key_groups,
    skew_of,
)
from statelake.state_core.model.snapshot import (
    NO_NAMES,
    RowNames,
    RowTypes,
    Unread,
    lost_entries,
    state_title,
)
from statelake.state_core.nested import field_name, parts_of
from statelake.state_core.printable import (
    LONGEST,
    Printed,
    Table,
    brief,
    bytes_text,
    json_value,
    kind_text,
    printable_json,
)

if TYPE_CHECKING:
    from statelake.state_core.formats.key_weights import HeavyKey

I64Array: TypeAlias = npt.NDArray[np.int64]

HEAVIEST = 5
JOB_ID = re.compile(r"(?<![^/])[0-9a-f]{32}(?![^/])")
SHOWN_UNREAD = 50
UNKNOWN = "?"  # what is not known, as people see it
SHOWN = 500  # operators, and states of one: text for people ends somewhere
KINDS = {
    DistributionMode.SPLIT_DISTRIBUTE: "split",
    DistributionMode.UNION: "union",
    DistributionMode.BROADCAST: "broadcast",
}


@dataclass(frozen=True)
class StateDescription:
    """A keyed state, a queue of timers, or an operator state.

    Attributes:
        name: Its name.
        kind: `value`, `list`, ..., `timers`; of operator state `split`, `union` or `broadcast`.
        key_type: The Java type of the keys; of operator state only a broadcast state has one.
        namespace_type: The Java type of the namespaces; empty for operator state.
        value_type: The Java type of the values; empty for timers.
        user_key_type: The Java type of a map's keys; empty for other states.
        with_ttl: Whether each value has the time of its last access.
        mode: How operator state is redistributed; None for keyed state.
        elements: Of operator state, the elements of all subtasks, or the copies of a broadcast.
        subtasks: Of operator state, how many subtasks have a part of it.
        schema: Its columns; None if they were not requested.
        types: Its types in the words of `statelake types`, its type in Java's syntax, and Flink's
            classes of its serializers' snapshots; None for timers, or if they were not requested.
        entries: Entries, or elements of operator state, of a broadcast state those of one copy;
            None if they were not counted.
        size: The bytes of their keys and values; None if they were not counted.
        key_groups: Of keyed state, three rows: the key groups that have entries, how many, and
            their bytes; None if they were not counted.
        heaviest: The keys with the most bytes, the heaviest first, if they were requested.
        names: The names of the fields of rows; without any if there is no plan of Flink SQL.
        named: The types with these names; None without any.
        renamed: The columns that have another name than their field, each with the field's.
        uncounted: The reason why its entries can't be located; empty if they can be, or were not
            read.
        problem: The reason why not all of it can be read; empty if it can be, or was not read.
    """

    name: str
    kind: str
    key_type: str = ""
    namespace_type: str = ""
    value_type: str = ""
    user_key_type: str = ""
    with_ttl: bool = False
    mode: DistributionMode | None = None
    elements: int = 0
    subtasks: int = 0
    schema: pa.Schema | None = None
    types: dict[str, Any] | None = field(default=None, compare=False)
    entries: int | None = None
    size: int | None = None
    key_groups: I64Array | None = field(default=None, compare=False, repr=False)
    heaviest: tuple[HeavyKey, ...] = ()
    names: RowNames = NO_NAMES
    named: RowTypes | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    uncounted: str = ""
    problem: str = ""

    @property
    def counts_text(self) -> tuple[str, str]:
        """Its entries and bytes: empty if they were not counted, `?` if they can't be."""
        if self.problem:  # handles have the elements of lists
            is_list = self.mode in (DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.UNION)
            return f"{self.elements:,}" if is_list else UNKNOWN, UNKNOWN
        if self.uncounted:
            return UNKNOWN, UNKNOWN
        entries = "" if self.entries is None else f"{self.entries:,}"
        return entries, "" if self.size is None else bytes_text(self.size)

    @property
    def type_text(self) -> str:
        """The Java type of the values, with that of a map's or a broadcast state's keys."""
        key = self.user_key_type if self.mode is None else self.key_type
        shown = self.value_type
        if self.named is not None:
            key, shown = self.named.user_key, self.named.value
        value = f"{brief(key)} → {brief(shown)}" if key else brief(shown)
        return f"{value} (ttl)" if self.with_ttl else value

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        if self.mode is not None:
            described: dict[str, Any] = {
                "name": self.name,
                "mode": self.mode.name,
                "value_type": self.value_type,
                "elements": self.elements,
                "subtasks": self.subtasks,
            }
            if self.mode is DistributionMode.BROADCAST:
                described["key_type"] = self.key_type
            if self.problem:
                described |= {"problem": self.problem}
            if self.entries is not None:
                described |= {"entries": self.entries, "bytes": self.size}
            return described | self._columns_json()
        described = {
            "name": self.name,
            "kind": self.kind,
            "key_type": self.key_type,
            "namespace_type": self.namespace_type,
            "value_type": self.value_type or None,
            "ttl": self.with_ttl,
        }
        if self.user_key_type:
            described["user_key_type"] = self.user_key_type
        if self.named is not None:
            described["names"] = self.names.to_json()
        if self.uncounted:
            described |= {"entries": None, "bytes": None, "not_counted": self.uncounted}
        if self.problem:
            described |= {"problem": self.problem}
        if self.key_groups is not None:
            described["entries"] = self.entries
            described["bytes"] = self.size
            described["key_groups"] = [
                {"key_group": group, "entries": entries, "bytes": size}
                for group, entries, size in self.key_groups.T.tolist()
            ]
        return described | self._columns_json()

    def _columns_json(self) -> dict[str, Any]:
        types: dict[str, Any] = {} if self.types is None else {"types": self.types}
        if self.renamed:
            types["renamed"] = dict(self.renamed)
        if self.schema is None:
            return types
        columns = [column for column in self.schema if not column.name.startswith("raw_")]
        return types | {"columns": list(map(_column_json, columns))}

    def renamed_lines(self) -> Iterator[str]:
        """Yield a line for each column that has another name than its field."""
        for column, name in self.renamed.items():
            yield (
                f"  {brief(f'{self.name}.{column}')}: the field {brief(name)}, which another"
                " one differs from only in its case"
            )

    def types_line(self) -> str:
        """Return a line with its types and serializers."""
        types = self.types or {}
        parts = {name: value for name, value in types.items() if name != "serializers"}
        java = parts.pop("type_name")
        if parts.get("type") is None:
            parts["type"] = f"{java}, which `statelake types` has no text for"
        words = [
            f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for name, value in parts.items()
        ]
        classes = [
            f"{role} {java_class.rpartition('.')[2]}"
            for role, java_class in types["serializers"].items()
        ]
        return f"  {brief(self.name)}: {brief(', '.join(words))}; {brief(', '.join(classes))}"


def _column_json(column: pa.Field) -> dict[str, Any]:
    fields = _fields_of(column.type)
    described: dict[str, Any] = {"name": column.name, "type": _type_text(column.type)}
    return described | ({"fields": list(map(_column_json, fields))} if fields else {})


def renamed_columns(columns: Iterable[pa.Field], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each column that has another name than its field, and that name."""
    for column in columns:
        path, name = f"{before}{column.name}", field_name(column)
        if name != column.name:
            yield path, name
        yield from renamed_columns(_fields_of(column.type), f"{path}.")


def _fields_of(kind: pa.DataType) -> list[pa.Field]:
    """Return what a POJO, a tuple or a row has, be it in a list or a map."""
    fields = [field for _, field in parts_of(kind)]
    if pa.types.is_struct(kind):
        return fields
    return [below for field in fields for below in _fields_of(field.type)]


def _type_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_map(kind):
        return f"map<{_type_text(kind.key_type)}, {_type_text(kind.item_type)}>"
    return f"list<{_type_text(kind.value_type)}>" if pa.types.is_nested(kind) else str(kind)


def _column_lines(columns: Iterable[dict[str, Any]], before: str) -> Iterator[str]:
    """Yield a line for each column and field: its whole name and its type."""
    for column in columns:
        name = f"{before}{brief(column['name'])}"
        yield f"  {name}: {column['type']}"
        yield from _column_lines(column.get("fields", ()), f"{name}.")


@dataclass(frozen=True)
class Load:
    """The share of keyed state of each subtask at some parallelism.

    Attributes:
        subtasks: What each subtask has, in order.
    """

    subtasks: list[SubtaskPlan]

    @property
    def sizes(self) -> list[int]:
        """The bytes of each subtask."""
        return [subtask.state_bytes for subtask in self.subtasks]

    @property
    def skew(self) -> float:
        """The bytes of the heaviest subtask over the mean: 1 is even."""
        return skew_of(self.sizes)

    def __str__(self) -> str:
        least, most = bytes_text(min(self.sizes)), bytes_text(max(self.sizes))
        heaviest = self.sizes.index(max(self.sizes))
        return (
            f"At parallelism {len(self.subtasks)}: {least} to {most} a subtask; skew"
            f" {self.skew:.3f}; the heaviest is subtask {heaviest}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "parallelism": len(self.subtasks),
            "skew": round(self.skew, 3),
            "subtasks": [dict(vars(subtask)) for subtask in self.subtasks],
        }


@dataclass(frozen=True)
class OperatorDescription:
    """An operator and its states.

    Attributes:
        operator_id: Its id: 32 hex digits.
        uid: Its uid; empty if it is not known.
        name: Its name; empty if it is not known.
        parallelism: The number of its subtasks.
        max_parallelism: The number of its key groups.
        total_bytes: The bytes of all its state: as stored in a savepoint, of keys and values in a
            lake.
        subtask_states: The number of subtasks with state.
        coordinator_bytes: The bytes of its coordinator's state.
        raw_bytes: The bytes of raw state, keyed or not.
        in_flight_bytes: The bytes of in-flight records of an unaligned checkpoint.
        finished: Whether all its subtasks had finished.
        keyed_states: Its keyed states, timers included.
        operator_states: Its operator states.
        key_groups: Three rows: the key groups that have state, their entries (zeros if not
            counted), and their bytes, counted or else as stored; None if they were not requested.
        counted: Whether entries were counted.
        spread: Whether key groups of one file got equal shares, since only reading tells more.
        heaviest_key: The key of the heaviest key group with the most bytes in all states.
        keys_asked: Whether somebody asked for it.
        problem: Why its state could not be read; empty if it could.
        node: What a plan of Flink SQL calls it, `GroupAggregate[5]`; empty without a plan.
        query: Flink's description of it in that plan.
        unread: Its state that can't be read, of a snapshot that was opened as far as it can be.
    """

    operator_id: str
    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    total_bytes: int = 0
    subtask_states: int = 0
    coordinator_bytes: int = 0
    raw_bytes: int = 0
    in_flight_bytes: int = 0
    finished: bool = False
    keyed_states: tuple[StateDescription, ...] = ()
    operator_states: tuple[StateDescription, ...] = ()
    key_groups: I64Array = field(default_factory=lambda: NO_GROUPS, compare=False, repr=False)
    counted: bool = False
    spread: bool = False
    heaviest_key: HeavyKey | None = None
    keys_asked: bool = False
    problem: str = ""
    node: str = ""
    query: str = ""
    unread: tuple[Unread, ...] = field(default=(), compare=False)

    @property
    def label(self) -> str:
        """Its name in tables and messages: its uid, or else its id."""
        return self.uid or self.operator_id

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the reasons why not all of its state can be read, each once."""
        of_states = (state.problem for state in self.states if state.problem)
        return tuple(dict.fromkeys([*(each.problem for each in self.unread), *of_states]))

    @property
    def not_located(self) -> list[str]:
        """Of which states not all entries are found, and why."""
        return lost_entries(
            self.label, {state.name: state.uncounted for state in self.states if state.uncounted}
        )

    @property
    def is_whole(self) -> bool:
        """Return whether all of its keyed state can be read, so that its key groups are known."""
        keyed = any(each.is_keyed for each in self.unread)
        return not keyed and not any(state.problem for state in self.keyed_states)

    @property
    def key_type(self) -> str:
        """The Java type of its keys; empty without keyed state."""
        return self.keyed_states[0].key_type if self.keyed_states else ""

    @property
    def key_text(self) -> str:
        """The Java type of its keys, with the names of columns if they are known."""
        named = self.keyed_states[0].named if self.keyed_states else None
        return self.key_type if named is None else named.key

    @property
    def states(self) -> tuple[StateDescription, ...]:
        """Its keyed states, then its operator states."""
        return self.keyed_states + self.operator_states

    @property
    def other(self) -> tuple[tuple[str, int], ...]:
        """The bytes that are no state with a name, each with what they are."""
        sizes = (
            ("coordinator", self.coordinator_bytes),
            ("raw", self.raw_bytes),
            ("in flight", self.in_flight_bytes),
        )
        return tuple((what, size) for what, size in sizes if size)

    @property
    def sizes(self) -> I64Array:
        """Return the bytes of each key group; zeros if they were not requested."""
        return self._of_all(self.key_groups[2])

    @property
    def entries(self) -> I64Array:
        """The entries of each key group; zeros if they were not counted."""
        return self._of_all(self.key_groups[1])

    def _of_all(self, numbers: I64Array) -> I64Array:
        of_all = np.zeros(self.max_parallelism, np.int64)
        of_all[self.key_groups[0]] = numbers
        return of_all

    @property
    def skew(self) -> float:
        """The bytes of the heaviest key group over the mean of all."""
        return skew_of(self.key_groups[2], self.max_parallelism)

    @property
    def with_data(self) -> int:
        """Return the number of key groups with data."""
        return int(np.count_nonzero(self.key_groups[2]))

    @property
    def heaviest(self) -> list[int]:
        """The key groups with the most bytes, the heaviest first."""
        return [group for group, _, _ in self._heaviest]

    @property
    def _heaviest(self) -> list[tuple[int, int, int]]:
        """The same with their entries and bytes."""
        with_data = self.key_groups[:, self.key_groups[2] > 0]
        order = np.argsort(-with_data[2], kind="stable")[:HEAVIEST]
        return [(group, entries, size) for group, entries, size in with_data[:, order].T.tolist()]

    def load(self, parallelism: int | None = None) -> Load:
        """Return what each subtask has at another parallelism, or at its own.

        Raises:
            KeyGroupError: The parallelism is out of range.
        """
        before = None if parallelism is None else self.parallelism
        wanted = parallelism or self.parallelism
        return Load(plan_key_groups(self.key_groups, self.max_parallelism, wanted, before))

    def loads(self, parallelism: int | None) -> dict[str, Load]:
        """Return the load `now`, and `then` at another parallelism if there is keyed state.

        Nothing is returned if not all of its keyed state can be read.
        """
        if not self.is_whole:
            return {}
        then = {} if parallelism is None or not self.keyed_states else {
            "then": self.load(parallelism)
        }  # fmt: skip
        return {"now": self.load(), **then}

    def to_json(self, checkpoint_id: int, parallelism: int | None = None) -> dict[str, Any]:
        """Return the JSON form, with the columns of Flink's `savepoint_metadata` first."""
        described = {
            "checkpoint-id": checkpoint_id,
            "operator-name": self.name or None,
            "operator-uid": self.uid or None,
            "operator-uid-hash": self.operator_id,
            "operator-parallelism": self.parallelism,
            "operator-max-parallelism": self.max_parallelism,
            "operator-subtask-state-count": self.subtask_states,
            "operator-coordinator-state-size-in-bytes": self.coordinator_bytes,
            "operator-total-size-in-bytes": self.total_bytes,
            "finished": self.finished,
            "raw_state_bytes": self.raw_bytes,
            "in_flight_bytes": self.in_flight_bytes,
            "key_type": self.key_type if self.keyed_states else None,
            "keyed_states": [state.to_json() for state in self.keyed_states],
            "operator_states": [state.to_json() for state in self.operator_states],
            "key_groups": self._key_groups_json() if self.is_whole else None,
            "subtasks": {
                when: load.to_json() for when, load in self.loads(parallelism).items()
            } or None,
        }  # fmt: skip
        if self.unread:
            described["unread"] = [each.to_json() for each in self.unread]
        return described | ({"node": self.node, "query": self.query} if self.node else {})

    def _key_groups_json(self) -> dict[str, Any]:
        key = self.heaviest_key
        described: dict[str, Any] = {
            "estimated": bool(self.keyed_states) and not self.counted,
            "with_data": None if self.spread else self.with_data,
            "skew": round(self.skew, 3),
            "heaviest": [
                {"key_group": group, "bytes": size} | ({"entries": entries} if self.counted else {})
                for group, entries, size in self._heaviest
            ],
        }
        if self.keys_asked:
            described["heaviest_key"] = key and {
                "key_group": key.key_group, "key": key.key, "entries": key.entries,
                "bytes": key.size,
            }  # fmt: skip
        return described

    def states_table(self) -> Table:
        """Return a table of its states."""
        counted = any(
            state.entries is not None or state.uncounted or state.problem for state in self.states
        )
        columns = ["<state", "<kind", "<namespace", "<value"]
        rows: list[tuple[str, ...]] = []
        for state in (*self.keyed_states[:SHOWN], *self.operator_states[:SHOWN]):
            kind = state.kind if state.mode is None else f"operator, {state.kind}"
            name = state_title(state.name, state.names.alias)
            row = (brief(name), kind, brief(state.namespace_type), state.type_text)
            rows.append((*row, *state.counts_text) if counted else row)
        key = f", keyed by {brief(self.key_text)}" if self.key_text else ""
        columns += [">entries", ">bytes"] if counted else []
        return Table(f"{brief(self.label)}{key}", columns, rows, len(self.states) - len(rows))

    def lines(self, parallelism: int | None = None) -> Iterator[str | Table]:
        """Yield the text form; nothing if it has no states."""
        if not self.states:
            return
        yield ""
        if self.node:
            yield brief(f"{self.node}: {self.query}")
        yield self.states_table()
        yield from self._uncounted_lines()
        for state in self.states[:SHOWN]:
            if state.types is not None:
                yield state.types_line()
            yield from islice(state.renamed_lines(), SHOWN)
            columns = state.to_json().get("columns", ()) if state.schema is not None else ()
            lines = _column_lines(columns, f"{brief(state.name)}.")
            yield from islice(lines, SHOWN)
            if next(lines, None) is not None:
                yield "  ... and more: --json lists all"
        if self.heaviest:
            yield self._key_groups_line()
            key = self.heaviest_key
            if key is not None:
                shown = printable_json(json.dumps(key.key, ensure_ascii=False))
                yield (
                    f"heaviest key of key group {key.key_group}: {brief(shown)}, {key.entries:,}"
                    f" entries, {bytes_text(key.size)}"
                )
            for when, load in self.loads(parallelism).items():
                yield (
                    f"{'at' if when == 'now' else 'what if at'} parallelism {len(load.subtasks)}:"
                    f"{'' if self.counted else ' about'} {bytes_text(min(load.sizes))} to"
                    f" {bytes_text(max(load.sizes))} a subtask, skew {round(load.skew, 3)}"
                )

    def _uncounted_lines(self) -> Iterator[str]:
        """Yield why states were not counted: those with the same reason in one line."""
        reasons: dict[str, list[str]] = {}
        for state in self.states:
            if state.uncounted:
                reasons.setdefault(state.uncounted, []).append(brief(state.name))
        for why, names in reasons.items():
            shown = [
                *names[:HEAVIEST],
                *([f"{len(names) - HEAVIEST} more"] * (len(names) > HEAVIEST)),
            ]
            yield f"?: not all entries of {', '.join(shown)} were found: {why}"

    def _key_groups_line(self) -> str:
        """Return how key groups are filled, and whether that was counted."""
        heaviest = ", ".join(f"{group} ({bytes_text(size)})" for group, _, size in self._heaviest)
        skew = round(self.skew, 3)
        filled = f"{self.with_data} of {self.max_parallelism} key groups have data; "
        if self.counted:
            return f"{filled}skew {skew}; heaviest: {heaviest}"
        source = "the indexes of RocksDB's files" if self.spread else "the bytes that files store"
        return (
            f"{'' if self.spread else filled}bytes of key groups are estimated from {source},"
            f" --entries counts them: skew about {skew}; heaviest: {heaviest}"
        )

    def _repr_html_(self) -> str:
        return "".join(_html(line) for line in self.lines())


@dataclass(frozen=True)
class NeededDirectory:
    """A directory with files that a snapshot names, and that can't be read.

    Attributes:
        directory: As the handles have it; `.` for that of `_metadata`.
        job: The id of the job whose it is, if its path has one.
        owner: Whose it is in words: `the snapshot`, `its job`, `another job`; empty if unknown.
        files: The names of the files.
        bytes: Their bytes, as far as handles lead to them.
    """

    directory: str
    job: str
    owner: str
    files: tuple[str, ...]
    bytes: int

    @property
    def whose(self) -> str:
        """Whose it is, with the id of the job."""
        return ": ".join(filter(None, (self.owner, self.job)))


def _short(error: StateError) -> str:
    """Return what is wrong with a file: its directory is in the table of those."""
    name = posixpath.basename(error.place)
    return f"{name}: {error.problem}" if name and name != "_metadata" else error.problem


def needed_directories(snapshot: SnapshotDescription) -> tuple[NeededDirectory, ...]:
    """Return the directories of the files of a snapshot that can't be read."""
    sizes: dict[str, int] = {}
    for operator in snapshot.operators:
        for each in operator.unread:
            for name, size in each.files.items():
                sizes[name] = sizes.get(name, 0) + size
    own = f"/chk-{snapshot.checkpoint_id}"
    homes = {job_directory(name) for name in sizes if posixpath.dirname(name).endswith(own)}
    by_directory: dict[str, list[str]] = {}
    for name in sizes:
        by_directory.setdefault(posixpath.dirname(name), []).append(name)
    needed = []
    for directory, names in sorted(by_directory.items()):
        home = job_directory(names[0])
        jobs = JOB_ID.findall(home)
        owner = "" if directory else "the snapshot"
        if directory and homes:
            owner = "its job" if home in homes else "another job"
        needed.append(
            NeededDirectory(
                directory or ".",
                jobs[-1] if jobs else "",
                owner,
                tuple(posixpath.basename(name) for name in names),
                sum(sizes[name] for name in names),
            )
        )
    return tuple(needed)


@dataclass(frozen=True)
class SnapshotDescription(Printed):
    """A snapshot and what it holds; `str` gives the text that `statelake inspect` prints.

    Attributes:
        location: The path or URI of its directory.
        kind: `savepoint` or `checkpoint`; empty before version 4 of `_metadata`.
        format: `canonical`, `native` or `checkpoint`.
        metadata_version: The version of `_metadata`.
        checkpoint_id: The number that the job gave it.
        compression: `snappy` or `none`; `?` if too little can be read to tell.
        operators: Its operators.
        parallelism: The parallelism at which it might run, for a comparison; None without one.
    """

    JSON = (
        "location", "kind", "format", "metadata_version", "checkpoint_id", "compression",
        "size_bytes=total_bytes",
    )  # fmt: skip

    location: str
    kind: str
    format: str
    metadata_version: int
    checkpoint_id: int
    compression: str
    operators: tuple[OperatorDescription, ...]
    parallelism: int | None = None

    @property
    def total_bytes(self) -> int:
        """The bytes of all its state, as stored."""
        return sum(operator.total_bytes for operator in self.operators)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the reasons why not all of it can be read; empty if it can be, or was not read."""
        return tuple(
            problem for each in self.operators for problem in (*each.problems, *each.not_located)
        )

    @property
    def needs(self) -> tuple[NeededDirectory, ...]:
        """The directories of the files that can't be read."""
        return needed_directories(self)

    @property
    def kind_text(self) -> str:
        """Its format and kind in words; empty if neither is known."""
        return kind_text(self.format, self.kind)

    def operator(self, label: str) -> OperatorDescription:
        """Return the first operator of that uid or id.

        Raises:
            StopIteration: There is none.
        """
        return next(operator for operator in self.operators if operator.label == label)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        described: dict[str, Any] = super().to_json()
        described["operators"] = [
            operator.to_json(self.checkpoint_id, self.parallelism) for operator in self.operators
        ]
        if self.problems:
            described |= {"problems": list(self.problems), "needs": json_value(self.needs)}
        return described

    def operators_table(self) -> Table:
        """Return a table of its operators."""
        columns = ("<uid or id", "<name", ">parallelism", ">key groups", ">size", "<state")
        rows = []
        for operator in self.operators[:SHOWN]:
            counts = {"keyed": operator.keyed_states, "operator": operator.operator_states}
            there = [f"{len(states)} {what}" for what, states in counts.items() if states]
            if not operator.keyed_states and not operator.is_whole:
                there.insert(0, f"{UNKNOWN} keyed")
            there += [what for what, _ in operator.other]
            rows.append(
                (
                    brief(operator.label),
                    brief(operator.name),
                    str(operator.parallelism),
                    str(operator.max_parallelism),
                    bytes_text(operator.total_bytes),
                    ", ".join(there) or "none",
                )
            )
        return Table("operators", columns, rows, len(self.operators) - len(rows))

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables, the location first."""
        yield self.location
        yield (
            f"{self.kind_text or 'snapshot'}, checkpoint {self.checkpoint_id}, _metadata version"
            f" {self.metadata_version}, compression {self.compression},"
            f" {bytes_text(self.total_bytes)}"
        )
        yield ""
        yield self.operators_table()
        uids = [operator.uid for operator in self.operators if operator.states]
        if not all(uids):
            yield (
                f"{uids.count('')} of {len(uids)} operators with state have no uid in the"
                " snapshot, which Flink writes since 2.0: give those that the job sets with --uid"
            )
        if any(operator.in_flight_bytes for operator in self.operators):
            yield "it is unaligned: `statelake channels` shows the records in flight"
        left = SHOWN
        for operator in self.operators:
            if left > 0:
                yield from operator.lines(self.parallelism)
            left -= 1 + len(operator.states)
        if left < 0:
            yield f"... and more of {len(self.operators)} operators: --json lists all"
        if any(operator.problems for operator in self.operators):
            yield from self._unread_lines()

    def _unread_lines(self) -> Iterator[str | Table]:
        """Yield what can't be read: tables of states, and of the directories of their files."""
        unread = [
            (operator, each, _short(each.error)) for operator in self.operators
            for each in operator.unread
        ]  # fmt: skip
        rows = [
            (
                brief(operator.label), str(each.subtask),
                each.what if each.complete else f"a part of {each.what}",
                brief(", ".join(each.states)), each.handle, f"{len(each.files):,}",
                bytes_text(sum(each.files.values())), brief(why, LONGEST),
            )
            for operator, each, why in unread[:SHOWN_UNREAD]
        ]  # fmt: skip
        columns = (
            "<operator", ">subtask", "<what", "<states", "<handle", ">files", ">bytes", "<why",
        )  # fmt: skip
        yield ""
        if rows:
            yield Table("could not be read", columns, rows, len(unread) - len(rows))
        yield from list(dict.fromkeys(each.error.remedy for _, each, _ in unread))[:SHOWN_UNREAD]
        listed = {each.problem for _, each, _ in unread}
        others = (problem for operator in self.operators for problem in operator.problems)
        yield from islice((problem for problem in others if problem not in listed), SHOWN)
        needs = self.needs
        if needs:
            yield ""
            yield Table(
                "its files: --json names all",
                ("<directory", "<of", ">files", ">bytes", "<such as"),
                [
                    (each.directory, each.whose, f"{len(each.files):,}", bytes_text(each.bytes),
                     each.files[0])
                    for each in needs[:SHOWN]
                ],
                max(0, len(needs) - SHOWN),
            )  # fmt: skip

    def _repr_html_(self) -> str:
        return "".join(map(_html, self.lines()))


def _html(line: str | Table) -> str:
    return Table(line).to_html() if isinstance(line, str) else line.to_html()
