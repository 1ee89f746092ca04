"""Upgrades of Flink SQL jobs: a snapshot from which a job of a changed query goes on.

Two compiled plans are matched by meaning, and held to the snapshot: its operators must be the old
plan's, their states of the types that it predicts. Then each state whose rows change is rewritten,
column by column; operators get the uids of the new plan. What was not matched is left out. Where
the columns of a key have another order, or wider types, entries and timers go to other key groups.
"""

from __future__ import annotations

import hashlib
import posixpath
import struct
import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.pipelines.engine import Engine, Progress
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import (
    KEYED,
    ids_kept_as_bytes,
    unmanaged_metadata,
)
from statelake.pipelines.lake.change.folding import (
    FoldedColumn,
    FoldedRows,
    FoldUpgrade,
    MergedCounts,
    stage_folded,
    staged_piece,
)
from statelake.pipelines.lake.change.migrating import SwitchedTtl, value_type
from statelake.pipelines.lake.change.sql_rows import (
    constant,
    merged_column,
    merged_counts,
)
from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.merging import copy_table, has_state, path_beside
from statelake.pipelines.lake.edit.pieces import Piece, Rows
from statelake.pipelines.lake.edit.rewriting import (
    Derivation,
    TableChange,
    TableRewriter,
    Transform,
    derive,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.edit.selecting import refuse_cut_channels
from statelake.pipelines.lake.tables.file_spans import FileSpan
from statelake.pipelines.lake.tables.names import path_segment
from statelake.pipelines.lake.tables.operator_tables import NO_PARTITION
from statelake.pipelines.lake.tables.records import (
    OperatorRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
)
from statelake.pipelines.lake.tables.table_rows import TableState, table_rows
from statelake.state_core.column_names import plain_names
from statelake.state_core.errors import EncodeError, IncompatibleError, StateError
from statelake.state_core.formats.layout.keyed_layout import (
    KEY,
    RAW_KEY,
    RAW_VALUE,
    USER_KEY,
    VALUE,
)
from statelake.state_core.formats.layout.keyed_states import (
    has_ttl,
    key_parts,
    meta_info_bytes,
    parse_keyed_state,
    with_key_parts,
    with_row_names,
    with_timer_key,
    with_ttl_bytes,
    with_value_bytes,
)
from statelake.state_core.formats.layout.meta_info import (
    KEYED_STATE_TYPE,
    VALUE_SERIALIZER,
    BackendStateType,
    parse_key_serializer,
    parse_state_meta_info,
    serializer_entry,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    OperatorMetadata,
    write_metadata,
)
from statelake.state_core.formats.rewriting.value_migration import (
    OF_BYTES,
    OF_VALUES,
    refuse_inexact,
    with_columns,
)
from statelake.state_core.formats.writing.rehash import check_key_groups, rehash_rows
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.model.snapshot import (
    NO_NAMES,
    Operator,
    RowNames,
    Snapshot,
    StateKind,
    state_title,
)
from statelake.state_core.plans.data_views import (
    extreme_map,
    extreme_row,
    map_view_serializer,
    map_view_type,
)
from statelake.state_core.plans.folds import Fold
from statelake.state_core.plans.lineage import SET_NUMBER
from statelake.state_core.plans.matching import (
    ColumnMatch,
    Fate,
    OperatorMatch,
    PlanMatch,
    StateMatch,
    merged_by,
    with_held,
    worst,
)
from statelake.state_core.plans.naming import (
    LONGEST_QUERY,
    known_type,
    nodes_by_uid,
    numbered_as,
    refuse_other_types,
    row_at,
    row_names,
    view_names,
)
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import (
    ALL_ROWS,
    NO_INITIAL,
    NodeStates,
    StateColumn,
    ValuePlace,
)
from statelake.state_core.plans.topology import (
    SOURCE,
    Shape,
    name_in_uid,
    operator_ids_of,
    shape_in,
)
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, BooleanSerializer
from statelake.state_core.serializers.composite.collections import ListSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import restore_key
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.sql.binary.projected import projected_row, reserved_bytes
from statelake.state_core.serializers.sql.row_data import (
    RowDataSerializerSnapshot,
    internal_snapshot,
    row_in,
    with_row,
)
from statelake.state_core.serializers.sql.section_data import RowDataSerializer
from statelake.state_core.serializers.sql.types.logical_type_streams import WrittenType
from statelake.state_core.serializers.sql.types.logical_types import LogicalType, RawType

TIME_BYTES = 8  # of a timer, before its key
LENGTH_BYTES = 4  # of a row, before it
ACCUMULATORS = "accState"
NEW = "(new)"  # what a state is called beside one of its name that is there, and gets another
_LIKE = "name a savepoint of the new job, --like, also one without data"
NoUids: TypeAlias = bool | Literal["old"]  # of the old job alone, or of both
OLD: Literal["old"] = "old"


@dataclass(frozen=True)
class RowChange:
    """The columns of a new row: of each the old one that it continues, or a constant.

    Attributes:
        old: The index of the old column, or -1.
        initial: The constant of those that continue none.
        filled: Whether the constant also stands where the old column is null.
        counted: The index of an old column, where which is 0 the new one is null; or -1.
    """

    old: tuple[int, ...]
    initial: tuple[Any, ...]
    filled: tuple[bool, ...]
    counted: tuple[int, ...]

    @classmethod
    def of(cls, matches: Sequence[ColumnMatch]) -> RowChange:
        """Return the change of a row whose columns were matched."""
        old = tuple(-1 if match.old is None else match.old for match in matches)
        constants = tuple(
            match.column.initial if match.column.initial is not NO_INITIAL else None
            for match in matches
        )
        counted = tuple(-1 if match.counted is None else match.counted for match in matches)
        return cls(old, constants, tuple(match.filled for match in matches), counted)

    def rebuilt(self, rows: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
        """Return rows with the new columns.

        Args:
            rows: The old rows.
            kind: The new rows' type.
        """
        fields = [kind.field(index) for index in range(kind.num_fields)]
        children = [
            self._child(rows, index, each.type)
            for index, each in enumerate(fields if self.old else ())
        ]
        if not self.old:  # the columns of a row without fields have a placeholder
            children = [pa.nulls(len(rows), each.type) for each in fields]
        mask = rows.is_null() if rows.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    def _child(self, rows: pa.StructArray, index: int, kind: pa.DataType) -> pa.Array:
        old, initial = self.old[index], self.initial[index]
        if old < 0:
            return constant(initial, kind, len(rows))
        child = rows.field(old).cast(kind)
        if self.filled[index]:
            return pc.fill_null(child, pa.scalar(initial, kind))
        if self.counted[index] >= 0:
            some = pc.not_equal(rows.field(self.counted[index]), 0)
            return pc.if_else(some, child, pa.scalar(None, kind))
        return child


@dataclass(frozen=True)
class SqlRows(Transform):
    """Rewrite the rows of Flink SQL's state for other columns.

    Attributes:
        before: The state's meta info.
        after: That of the new state, with the same time to live.
        changes: What becomes of the rows, by place.
        merges: Whether rows of a map's keys may become equal, so that their counts are added up.
        names: The names of the fields of the new rows.
        inexact: Whether it goes by what columns show of values that they don't hold in full.
    """

    before: bytes
    after: bytes
    changes: Mapping[ValuePlace, RowChange]
    merges: bool = False
    names: RowNames = NO_NAMES
    inexact: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the rows.

        Raises:
            InexactError: A row is more than its columns say.
        """
        assert isinstance(rows, StateRows)  # noqa: S101 - Flink SQL's rows are keyed state
        batch = rows.batch
        before, _ = _parsed(self.before)
        value, user_key = _parsed(self.after)
        read: list[str] = [] if self.inexact else [VALUE]
        for column in [*read, *([KEY] if ValuePlace.USER_KEY in self.changes else [])]:
            refuse_inexact(rows, column, OF_BYTES if column == KEY else OF_VALUES)
        layout, columns = rows.layout, {RAW_VALUE: pa.nulls(len(batch), pa.binary())}
        if ValuePlace.VALUE in self.changes:
            named = with_row_names(value, self.names.value)
            layout = replace(layout, value=named.restore_serializer())
            kind = layout.schema.field(VALUE).type
            if layout.kind is StateKind.LIST:
                before = ListSerializerSnapshot.around(before)
            columns[VALUE] = _rebuilt(
                batch.column(VALUE), kind, before, self.changes[ValuePlace.VALUE]
            )
        if ValuePlace.USER_KEY in self.changes:
            assert user_key is not None  # noqa: S101 - only maps have rows there
            named = with_row_names(user_key, self.names.user_key)
            layout = replace(layout, user_key=restore_key(named))
            kind = layout.schema.field(USER_KEY).type
            columns[USER_KEY] = self.changes[ValuePlace.USER_KEY].rebuilt(
                batch.column(USER_KEY), kind
            )
        changed = replace(rows, layout=layout, batch=with_columns(rows, layout, columns))
        return merged_counts(changed) if self.merges else changed


@dataclass(frozen=True)
class MovedBits(Transform):
    """Give values of a set of distinct values the bits of other calls.

    Attributes:
        bits: For each new bit the old ones that must all be set; a bit without any is 0.
    """

    bits: tuple[tuple[int, ...], ...]

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the bits.

        Raises:
            EncodeError: A value has none.
        """
        assert isinstance(rows, StateRows)  # noqa: S101 - Flink SQL's rows are keyed state
        values = rows.batch.column(VALUE)
        if values.null_count:
            raise EncodeError("a distinct value without bits", place=f"state {rows.name!r}")
        old = values.to_numpy()
        new = np.zeros(len(old), np.int64)
        for at, bits in enumerate(self.bits):
            wanted = sum(1 << bit for bit in bits)
            if wanted:
                new |= (old & wanted == wanted).astype(np.int64) << at
        columns = {VALUE: pa.array(new), RAW_VALUE: pa.nulls(len(new), pa.binary())}
        return replace(rows, batch=with_columns(rows, rows.layout, columns))


@dataclass(frozen=True)
class MarkedKeys(Transform):
    """Say of each key that it was there, in the place of what it held."""

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the rows: the value of each is true."""
        assert isinstance(rows, StateRows)  # noqa: S101 - Flink SQL's rows are keyed state
        count = len(rows.batch)
        layout = replace(rows.layout, value=SNAPSHOTS[BooleanSerializer]().restore_serializer())
        columns = {VALUE: pa.array([True] * count, pa.bool_()),
                   RAW_VALUE: pa.nulls(count, pa.binary())}  # fmt: skip
        return replace(rows, layout=layout, batch=with_columns(rows, layout, columns))


@dataclass(frozen=True)
class MovedKeys(Transform):
    """Give rows of Flink SQL's state and its timers other keys, and these their key groups.

    Attributes:
        before: The old key serializer, as Flink writes it.
        key: The new one.
        columns: The old column of each column of the new key; -1 where it is NULL.
        max_parallelism: The number of key groups.
        names: The names of the columns of the new key.
        numbers: Of grouping sets the old numbers of those that stay, and the new ones; empty
            without. Rows of others are left out.
        number: The old column with that number.
    """

    before: bytes
    key: bytes
    columns: tuple[int, ...]
    max_parallelism: int
    names: tuple[str, ...] = ()
    numbers: tuple[tuple[int, int], ...] = ()
    number: int = -1

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the keys.

        Raises:
            EncodeError: Of a key only the exact bytes are known.
            KeyGroupError: A key is not in the key group of its hash.
        """
        assert isinstance(rows, StateRows)  # noqa: S101 - Flink SQL's rows are keyed state
        batch = rows.batch
        check_key_groups(rows, self.max_parallelism)
        if self.numbers:
            olds = pa.array([old for old, _ in self.numbers], pa.int64())
            stays = pc.is_in(batch.column(KEY).field(self.number), olds)
            rows = replace(rows, batch=batch.filter(stays))
            batch = rows.batch
        layout = replace(rows.layout, key=_key_of(self.key, self.names))
        constants = (None,) * len(self.columns)
        change = RowChange(
            self.columns, constants, (False,) * len(constants), (-1,) * len(constants)
        )
        keys = self._renumbered(change.rebuilt(batch.column(KEY), layout.schema.field(KEY).type))
        columns = {KEY: keys, RAW_KEY: pa.nulls(len(batch), pa.binary())}
        moved = replace(rows, layout=layout, batch=with_columns(rows, layout, columns))
        columns[RAW_KEY] = self._exact(rows, moved)
        moved = replace(moved, batch=with_columns(rows, layout, columns))
        return rehash_rows(moved, self.max_parallelism)

    def _renumbered(self, keys: pa.StructArray) -> pa.StructArray:
        """Return keys with the new numbers of their grouping sets."""
        if not self.numbers:
            return keys
        olds, news = (pa.array(each, pa.int64()) for each in zip(*self.numbers, strict=True))
        fields = list(keys.type)
        children = [keys.field(at) for at in range(len(fields))]
        at = self.columns.index(self.number)
        children[at] = news.take(pc.index_in(children[at], olds))
        return pa.StructArray.from_arrays(children, fields=fields)

    def _exact(self, rows: StateRows, moved: StateRows) -> pa.Array:
        """Return the bytes of new keys that typed columns do not tell; null for all others."""
        raw, kinds = rows.batch.column(RAW_KEY), _key_types(self.key)
        keys = moved.batch.column(KEY)
        special = raw.is_valid()
        for at, kind in enumerate(kinds):
            if reserved_bytes(kind):
                special = pc.or_(special, keys.field(at).is_null())
        chosen = pc.indices_nonzero(special)
        exact: list[bytes | None] = [None] * len(raw)
        if not len(chosen):
            return pa.nulls(len(raw), pa.binary())
        before = replace(rows, batch=rows.batch.take(chosen))
        nulls = {RAW_KEY: pa.nulls(len(chosen), pa.binary())}
        before = replace(before, batch=with_columns(before, before.layout, nulls))
        old_kinds = _key_types(self.before)
        head = TIME_BYTES if rows.layout.kind is StateKind.TIMERS else 0
        after = moved.layout.key_writer(moved.batch.take(chosen)).to_binary()
        typed = zip(before.layout.key_writer(before.batch).to_binary(), after, strict=True)
        for row, (was, now) in zip(chosen.to_pylist(), typed, strict=True):
            _, new, rest = _cut(now.as_py(), head)
            if raw[row].is_valid:
                (_, old, _), (_, held, rest) = _cut(was.as_py(), head), _cut(raw[row].as_py(), head)
                if held not in (old, projected_row(old, old_kinds)):
                    raise EncodeError(
                        "a key of which only the exact bytes are known",
                        place=f"state {rows.name!r}",
                    )
            new = projected_row(new, kinds)
            exact[row] = now.as_py()[:head] + struct.pack(">i", len(new)) + new + rest
        return pa.array(exact, pa.binary())


def _cut(key: bytes, head: int) -> tuple[bytes, bytes, bytes]:
    """Return the time of a timer's key bytes, its row, and what follows that."""
    begin = head + LENGTH_BYTES
    end = begin + int.from_bytes(key[head:begin], "big")
    return key[:head], key[begin:end], key[end:]


@lru_cache(maxsize=64)  # each piece of a table has the same
def _key_types(key: bytes) -> tuple[LogicalType, ...]:
    return tuple(each.type for each in row_in(parse_key_serializer(key).snapshot).types)


@dataclass(frozen=True)
class MergedGroups(Transform):
    """Merge rows of groups that have become one, and timers that have become equal.

    Attributes:
        columns: How each column of the value is merged: `sum`, `min`, `max`, or `first` if all are
            equal; None of timers.
        inexact: As in `SqlRows`.
    """

    columns: tuple[str, ...] | None
    inexact: bool = False

    def apply(self, rows: Rows) -> Rows:
        """Merge the rows of each key and namespace.

        Raises:
            EncodeError: Rows of a group can't be merged.
        """
        assert isinstance(rows, StateRows)  # noqa: S101 - Flink SQL's rows are keyed state
        batch = rows.batch
        keys = rows.layout.key_writer(batch).to_binary().dictionary_encode()
        if len(keys.dictionary) == len(batch):
            return rows
        groups = pa.table({"group": keys.indices, "row": np.arange(len(batch))})
        firsts = groups.group_by("group", use_threads=False).aggregate([("row", "min")])
        firsts = firsts.sort_by("row_min")  # in the order of key groups, as before
        taken = batch.take(firsts["row_min"].combine_chunks())
        merged = replace(rows, batch=taken)
        if self.columns is None:
            return merged
        if not self.inexact:
            refuse_inexact(rows, VALUE, OF_VALUES)
        # the place of each group in the result
        places = pc.index_in(keys.indices, firsts["group"].combine_chunks())
        value = batch.column(VALUE)
        try:
            fields = [
                merged_column(value.field(at), how, places, taken.column(VALUE).field(at))
                for at, how in enumerate(self.columns)
            ]
        except pa.ArrowException as error:
            raise EncodeError(
                f"groups can't be merged ({error})", place=f"state {rows.name!r}"
            ) from error
        if not fields:
            return merged
        values = pa.StructArray.from_arrays(fields, fields=list(value.type))
        return replace(merged, batch=with_columns(merged, rows.layout, {VALUE: values}))


@lru_cache(maxsize=64)  # each piece of a table has the same
def _key_of(key: bytes, names: tuple[str, ...]) -> TypeSerializer:
    return restore_key(with_row_names(parse_key_serializer(key).snapshot, names))


@lru_cache(maxsize=64)  # each piece of a table has the same
def _parsed(meta_info: bytes) -> tuple[TypeSerializerSnapshot, TypeSerializerSnapshot | None]:
    """Return the serializer snapshots of a state's values, and of its map's keys."""
    return value_type(meta_info), key_parts(meta_info).get(USER_KEY)


def _rebuilt(
    values: pa.Array, kind: pa.DataType, before: TypeSerializerSnapshot, change: RowChange
) -> pa.Array:
    """Return values with the new columns in their row, which lists and tuples may hold."""
    if isinstance(before, RowDataSerializerSnapshot):
        return change.rebuilt(values, kind)
    assert isinstance(before, CompositeTypeSerializerSnapshot)  # noqa: S101 - by row_in
    mask = values.is_null() if values.null_count else None
    if isinstance(before, ListSerializerSnapshot):
        inner = _rebuilt(values.values, kind.value_type, before.nested[0], change)
        offsets = values.offsets
        return type(values).from_arrays(offsets, inner, type=kind, mask=mask)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    first = _rebuilt(values.field(0), fields[0].type, before.nested[0], change)
    others = [values.field(index) for index in range(1, len(fields))]
    return pa.StructArray.from_arrays([first, *others], fields=fields, mask=mask)


# --------------------------------------------------------------------------- the plan of an upgrade


@dataclass(frozen=True)
class StateUpgrade:
    """What becomes of a state in a snapshot.

    Attributes:
        state: Its name.
        name: Its name in the new job.
        meta_info: The meta info of its rows in the new job, with the old name and time to live.
        changes: What becomes of its rows, by place; empty if they stay.
        merges: Whether rows may become equal.
        ttl: Whether time to live is switched on or off; None if it stays.
        names: The names that the new plan gives to the fields of its rows.
        merged: How columns of groups that become one are merged: `sum`, `min`, `max` or `first`;
            None if groups stay.
        bits: Of a set of distinct values, what becomes of its bits; empty if they stay.
        marks: Whether its rows become marks that they were there.
    """

    state: str
    name: str
    meta_info: bytes = field(repr=False)
    changes: Mapping[ValuePlace, RowChange] = field(default_factory=dict)
    merges: bool = False
    ttl: bool | None = None
    names: RowNames = field(default=NO_NAMES, repr=False)  # which are in no digest
    merged: tuple[str, ...] | None = field(default=None, repr=False)  # as the old keys tell
    bits: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    marks: bool = field(default=False, repr=False)  # as the type tells


@dataclass(frozen=True)
class Identity:
    """The id of an operator, and its uid; a job without a compiled plan has none."""

    operator_id: str
    uid: str = ""


@dataclass(frozen=True)
class OperatorUpgrade:
    """What becomes of an operator with state.

    Attributes:
        match: The operators in both plans.
        operators: The operators of the snapshot that the old node is, with what they become.
        states: The states that go on; others of these operators are left out.
        keys: The key serializers of operators whose keys have other types, or another order.
        entries: The entries of the old operator.
        fate: What becomes of its state, held to the snapshot.
        why: Reasons, each a sentence.
        folds: What is computed in full, by the id of the operator.
    """

    match: OperatorMatch
    operators: Mapping[str, Identity] = field(default_factory=dict)
    states: tuple[StateUpgrade, ...] = ()
    keys: Mapping[str, bytes] = field(default_factory=dict)
    entries: int = 0
    fate: Fate = Fate.KEEPS
    why: tuple[str, ...] = ()
    folds: Mapping[str, FoldUpgrade] = field(default_factory=dict)

    @property
    def worst(self) -> Fate:
        """The worst of its fate and those of its columns."""
        return worst([self.fate, self.match.worst])


@dataclass(frozen=True)
class SqlUpgradePlan:
    """What becomes of every operator with state of a snapshot of a Flink SQL job."""

    plans: PlanMatch
    operators: tuple[OperatorUpgrade, ...]

    def digest(self) -> str:
        """Return the digest of what becomes of each operator and state that goes on."""
        digest = hashlib.sha256()
        for each in self.operators:
            digest.update(
                repr([sorted(each.operators.items()), sorted(each.keys.items())]).encode()
            )
            if each.match.keys:
                digest.update(repr(each.match.keys).encode())
            if each.match.sets:
                digest.update(repr(sorted(each.match.sets.items())).encode())
            if each.folds:
                digest.update(repr(sorted(each.folds.items(), key=lambda of: of[0])).encode())
            for state in each.states:
                digest.update(repr(state).encode() + state.meta_info)
                if state.bits:
                    digest.update(repr(state.bits).encode())
        return digest.hexdigest()


def plan_sql_upgrade(
    record: SnapshotRecord,
    match: PlanMatch,
    like: Snapshot | None = None,
    *,
    no_uids: NoUids = False,
) -> SqlUpgradePlan:
    """Hold a match of two plans to a snapshot.

    Args:
        record: The snapshot.
        match: The match of the old job's plan and the new one's.
        like: A snapshot of the new job, whose types are taken; None without one.
        no_uids: Whether both jobs run without a compiled plan, so that their operators have no
            uids; `old` if the old one alone does.

    Raises:
        EncodeError: `no_uids` is another word.
        IncompatibleError: The snapshot is not of the old plan.
    """
    if no_uids not in (False, True, OLD):
        raise EncodeError(f"no_uids={no_uids!r}", remedy="say True, for both jobs, or 'old'")
    if no_uids == OLD:
        named = _named_anew(record, match, like)
    else:
        named = (_named_by_topology if no_uids else _named_by_uid)(record, match)
    match = with_held(match, named.old)
    liked = _liked(like, match, named)
    as_bytes = ids_kept_as_bytes(record)
    upgrades = [
        _operator_upgrade(record, each, named, liked, match.new.flink, as_bytes)
        for each in match.operators
    ]
    return SqlUpgradePlan(match, tuple(upgrades))


def with_numbers_of(record: SnapshotRecord, plan: Plan) -> Plan:
    """Return the plan of a snapshot's job, with the numbers that its nodes have there.

    Raises:
        IncompatibleError: They are unknown.
    """
    uids = {each.operator_id: each.uid for each in record.operators}
    return numbered_as(
        plan,
        {each.operator_id: uids.get(each.operator_id) or each.uid
         for each in unmanaged_metadata(record).operators},
    )  # fmt: skip


def _liked(like: Snapshot | None, match: PlanMatch, named: Named) -> dict[str, Operator]:
    """Return the operators of a snapshot of the new job, by the ids that those will have.

    Raises:
        IncompatibleError: It is no snapshot of the new job.
    """
    found = {each.operator_id: each for each in (like.operators if like is not None else ())
             if each.keyed_states}  # fmt: skip
    if not found or not named.new:
        return found
    shape = shape_in(match.new, found)  # its connectors may be others, such as empty tables
    if shape is None:
        raise IncompatibleError(
            "the ids of the operators of --like do not follow from the new plan",
            place=match.new.place, remedy="name a savepoint of the new job, without uids",
        )  # fmt: skip
    ids = operator_ids_of(match.new, shape)
    return {
        operator_id: found[ids[node]]
        for node, operator_id in named.new.items()
        if ids.get(node) in found
    }


@dataclass(frozen=True)
class Named:
    """The operators of both jobs.

    Attributes:
        old: The snapshot's operators with state, by the number of their node: id, and name in it.
        new: The ids of the new job's, by number and name; empty if uids make them.
        connectors: The uids of operators of sources and sinks of the new job that have state, as
            far as a savepoint of it tells them, by number.
    """

    old: Mapping[int, Mapping[str, str]]
    new: Mapping[tuple[int, str], str] = field(default_factory=dict)
    connectors: Mapping[int, str] = field(default_factory=dict)

    def identity(self, node: PlanNode, name: str) -> Identity | None:
        """Return the identity of an operator of the new job; None if it has none of that name."""
        if not self.new:
            uid = self.connectors.get(node.id) or node.own_uid or f"{node.id}_{name}"
            return (
                Identity(operator_id_of_uid(uid), uid)
                if name or node.id in self.connectors
                else None
            )
        operator_id = self.new.get((node.id, name))
        return None if operator_id is None else Identity(operator_id)


def _with_state(record: SnapshotRecord) -> dict[str, str]:
    """Return the operators of a snapshot that have state, with their uids."""
    tables = {each.operator_id: each.uid for each in record.operators}
    return {
        # Flink would hold an operator without state to its maximum parallelism
        each.operator_id: tables.get(each.operator_id) or each.uid
        for each in unmanaged_metadata(record).operators
        if has_state(each, set(tables))
    }


def _named_by_topology(record: SnapshotRecord, match: PlanMatch) -> Named:
    """Return the operators of jobs that run without compiled plans.

    Raises:
        IncompatibleError: The snapshot's ids are not those of the old plan's topology.
    """
    shape, nodes = _by_topology(record, match.old)
    return Named(nodes, operator_ids_of(match.new, shape))


def _named_anew(record: SnapshotRecord, match: PlanMatch, like: Snapshot | None) -> Named:
    """Return the operators of a job without a compiled plan, and of one that has it.

    Args:
        record: The snapshot of the old one.
        match: The plans of both.
        like: A snapshot of the new one, which tells the uids of its connectors; None without one.

    Raises:
        IncompatibleError: The snapshot's ids are not those of the old plan's topology.
    """
    shape, nodes = _by_topology(record, match.old)
    named = {
        number: {each: name_in_uid(match.old, number, name, shape) for each, name in held.items()}
        for number, held in nodes.items()
    }
    held = {} if like is None else {
        each.operator_id: each.uid for each in like.operators
        if each.uid and (each.total_bytes or each.operator_states)
    }  # fmt: skip
    found: dict[int, list[str]] = {}
    for operator_id, (number, _) in nodes_by_uid(match.new, held)[0].items():
        if match.new.nodes[number].kind == SOURCE:
            found.setdefault(number, []).append(held[operator_id])
    return Named(
        named, connectors={number: uids[0] for number, uids in found.items() if len(uids) == 1}
    )


def _by_topology(record: SnapshotRecord, plan: Plan) -> tuple[Shape, dict[int, dict[str, str]]]:
    """Return the operators of a job without a compiled plan: their shape, and those with state.

    Raises:
        IncompatibleError: The snapshot's ids are not those of the plan's topology.
    """
    held = _with_state(record)
    every = [each.operator_id for each in unmanaged_metadata(record).operators]
    keyed = [each.operator_id for each in record.operators if each.states]
    shape = shape_in(plan, held, every, keyed)
    if shape is None:
        raise IncompatibleError(
            "the ids of the snapshot's operators do not follow from the old plan",
            place=plan.place,
            remedy="compile the plan of the SQL that the job ran, in the same Flink and with the"
            " same settings; a job that runs a compiled plan has uids: leave out --no-uids",
        )
    nodes: dict[int, dict[str, str]] = {}
    for (node, name), operator_id in operator_ids_of(plan, shape).items():
        if operator_id in held:
            nodes.setdefault(node, {})[operator_id] = name
    return shape, nodes


def _named_by_uid(record: SnapshotRecord, match: PlanMatch) -> Named:
    """Return the operators of jobs that run compiled plans.

    Raises:
        IncompatibleError: An operator with state is of no node.
    """
    plan = match.old
    found: dict[int, dict[str, str]] = {}
    nodes, others = nodes_by_uid(plan, _with_state(record))
    if others:
        unknown = list(others.values())
        raise IncompatibleError(
            f"{', '.join(unknown[:5])} of the snapshot {'are' if len(unknown) > 1 else 'is'} no"
            f" operator of the old plan",
            place=plan.place,
            remedy="give the plan of the job that took the savepoint. If it ran without a compiled"
            " plan, say --no-uids. A savepoint of Flink 1 has hashes alone: name the uids of its"
            " sources and sinks, --uid 1_orders",
        )
    for operator_id, (node, name) in nodes.items():
        found.setdefault(node, {})[operator_id] = name
    return Named(found)


def _operator_upgrade(
    record: SnapshotRecord,
    match: OperatorMatch,
    named: Named,
    like: Mapping[str, Operator],
    flink: tuple[int, int],
    as_bytes: AbstractSet[str],
) -> OperatorUpgrade:
    old, new = match.old, match.new
    held = {} if old is None else named.old.get(old.node.id, {})
    records = [each for each in record.operators if each.operator_id in held]
    entries = sum(state.entries for each in records for state in each.all_states if _is_kept(state))
    # of bytes nobody knows the entries, and they are state all the same
    kept = {each: Identity(each) for each in held if each in as_bytes}
    if old is None or new is None:
        fate = Fate.LOST if kept else _new_fate(match, held, records)
        return OperatorUpgrade(match, kept, entries=entries, fate=fate, why=match.why)
    if match.fate is Fate.LOST:
        return OperatorUpgrade(match, kept, entries=entries, fate=Fate.LOST, why=match.why)
    identities = _identities(named, held, old.node, new.node)
    nameless = {each for each, name in held.items() if not name} - identities.keys()
    states: list[StateUpgrade] = []
    keys: dict[str, bytes] = {}
    folds: dict[str, FoldUpgrade] = {}
    than, said = _without_tables(match, held, records, as_bytes)
    why, fate = [*match.why, *said], worst([match.fate, than])
    if nameless:
        fate = worst([fate, Fate.UNKNOWN])
        why.append(f"its connector gives a uid to what has state, and no plan says which: {_LIKE}")
    for operator in records:
        identity = identities.get(operator.operator_id)
        if operator.operator_id in nameless:
            continue
        if identity is None:
            fate = worst([fate, Fate.LOST])
            why.append(f"the new job has no operator for {operator.name or operator.operator_id}")
            continue
        try:
            key = _new_key(operator.key_serializer, match) if operator.states else None
        except StateError as error:
            fate = worst([fate, Fate.UNKNOWN])
            why.append(f"its key: {str(error).removeprefix(': ')}")
            continue
        if key is not None:
            keys[operator.operator_id] = key
        for state in operator.states:
            try:
                upgrade = _state_upgrade(state, match, identity.operator_id, like, flink)
                if upgrade is not None and upgrade.changes and match.fold is not None:
                    source = _holding(record, named, match.fold, operator)
                    if source is not None:
                        folds[operator.operator_id] = _fold_upgrade(source, match, upgrade)
            except StateError as error:
                fate = worst([fate, Fate.UNKNOWN])
                if not match.misses:  # whose types are not asked for
                    name = state_title(repr(state.name), view_names(old, state.name).alias)
                    why.append(f"its state {name}: {str(error).removeprefix(': ')}")
                continue
            if upgrade is not None:
                states.append(upgrade)
    return OperatorUpgrade(match, identities, tuple(states), keys, entries, fate, tuple(why), folds)


def _without_tables(
    match: OperatorMatch,
    held: Collection[str],
    records: Sequence[OperatorRecord],
    as_bytes: AbstractSet[str],
) -> tuple[Fate, list[str]]:
    """Return what becomes of keyed state that has no tables, with a message for each."""
    assert match.old is not None  # noqa: S101 - by the caller
    if as_bytes.isdisjoint(held):
        missing = not records and match.old.states
        said = f"the snapshot has no state of {match.old.node.label}"
        return Fate.KEEPS, [said] if missing else []
    if _stays(match):
        return Fate.KEEPS, []
    return Fate.UNKNOWN, [f"it has {KEYED}, of which nothing can be rewritten"]


def _stays(match: OperatorMatch) -> bool:
    """Return whether nothing of an operator's keys, states and time to live is another."""
    assert match.new is not None and match.old is not None  # noqa: S101, PT018 - by the caller
    return (
        not match.keys
        and match.old.key_types == match.new.key_types
        and all(
            state.same and match.old.has_ttl(state.old.index) == match.new.has_ttl(state.new.index)
            for state in match.states
        )
    )


def _identities(
    named: Named, held: Mapping[str, str], old: PlanNode, new: PlanNode
) -> dict[str, Identity]:
    """Return the identities in the new job of a node's operators, as far as they are known."""
    found = {
        operator_id: named.identity(new, new.kind if name == old.kind else name)
        for operator_id, name in held.items()
    }
    return {operator_id: identity for operator_id, identity in found.items() if identity}


def _new_fate(
    match: OperatorMatch, held: Mapping[str, str], records: Sequence[OperatorRecord]
) -> Fate:
    """Return what becomes of an operator that only one of both jobs has."""
    if match.old is not None and match.fate is Fate.KEEPS and records:
        return Fate.LOST
    if match.old is not None and not records and match.fate is Fate.LOST and not held:
        return Fate.KEEPS
    return match.fate


def _holding(
    record: SnapshotRecord, named: Named, fold: Fold, operator: OperatorRecord
) -> OperatorRecord | None:
    """Return the operator whose rows are added up; None if there are neither these nor groups.

    Raises:
        IncompatibleError: What it holds is not all that the aggregate has counted.
    """
    for carried in unmanaged_metadata(record).operators:
        if any(part.inputs or part.outputs for part in (carried.subtasks or {}).values()):
            raise IncompatibleError(
                "rows are in flight between operators, which some have counted and others not",
                remedy="take a savepoint",
            )
    names = {side.state for side in fold.sides}
    for each in record.operators:
        held = {state.name: state for state in each.states}
        if each.operator_id in named.old.get(fold.node, {}) and names <= set(held):
            for name in names:
                if has_ttl(parse_state_meta_info(held[name].meta_info)):
                    raise IncompatibleError(
                        f"{fold.label} has a time to live: what has expired is not known"
                    )
            return each
    if operator.entries:
        raise IncompatibleError(f"the snapshot has no state of {fold.label}")
    return None


def _fold_upgrade(
    source: OperatorRecord, match: OperatorMatch, upgrade: StateUpgrade
) -> FoldUpgrade:
    """Return what of an aggregate's rows is computed from those that another operator holds.

    Raises:
        IncompatibleError: The aggregate has a time to live, or has no view of another form.
    """
    assert match.fold is not None and match.new is not None  # noqa: S101, PT018 - by the caller
    info = parse_state_meta_info(upgrade.meta_info)
    if has_ttl(info) or upgrade.ttl:
        raise IncompatibleError("it has a time to live: what has expired is not known")
    (matches,) = (state.columns[ValuePlace.VALUE] for state in match.states)
    columns = []
    for index, each in enumerate(matches):
        adds = each.column.adds
        if each.fate is not Fate.FULL or adds is None:
            continue
        if not each.column.view:
            columns.append(FoldedColumn(index, adds))
            continue
        if info.kind is not BackendStateType.KEY_VALUE:
            raise IncompatibleError("its views are held by asynchronous state, of another form")
        view = serializer_entry(extreme_map(each.column.of[0]))
        name = f"{each.column.view}map"
        made = replace(
            info, name=f"{name} {NEW}", options={KEYED_STATE_TYPE: "MAP"},
            serializers={**info.serializers, VALUE_SERIALIZER: view},
        )  # fmt: skip
        alias = view_names(match.new, name).alias
        columns.append(FoldedColumn(index, adds, name, meta_info_bytes(made), alias))
    (count,) = (at for at, each in enumerate(matches) if each.column.text == ALL_ROWS)
    return FoldUpgrade(source.operator_id, match.fold, tuple(columns), count)


def _new_key(written: bytes, match: OperatorMatch) -> bytes | None:
    """Return the key serializer for keys that move, or have other types of the same bytes.

    None if neither is the case.

    Raises:
        IncompatibleError: The snapshot's keys are not those of the old plan.
    """
    assert match.new is not None and match.old is not None  # noqa: S101, PT018 - by the caller
    before, after = match.old.key_types, match.new.key_types
    same = before == after and not match.keys
    if same and not (before and written):
        return None
    row = row_in(parse_key_serializer(written).snapshot)
    refuse_other_types(row, list(map(known_type, before)))
    if same:
        return None
    new = RowDataSerializerSnapshot.of(*after)
    if match.keys and not all(
        isinstance(each.restore_serializer(), RowDataSerializer) for each in (row, new)
    ):
        raise IncompatibleError(f"it moves, and a column of it can't be read: {row.type_name}")
    return serializer_entry(new).encoded


def _is_kept(state: Any) -> bool:
    return not isinstance(state, StateRecord) or state.kind != "timers"


def _state_upgrade(
    state: StateRecord,
    match: OperatorMatch,
    operator_id: str,
    like: Mapping[str, Operator],
    flink: tuple[int, int],
) -> StateUpgrade | None:
    """Return what becomes of a state of a matched operator; None if it is left out."""
    new = match.new
    assert new is not None and match.old is not None  # noqa: S101, PT018 - by the caller
    found = next((each for each in match.states if each.old.name == state.name), None)
    if state.kind == "timers":
        return StateUpgrade(state.name, state.name, state.meta_info)
    if found is None:
        name, view = _view_name(state.name, match)
        if name is None:
            return None
        if match.merges:
            raise IncompatibleError("its groups merge, and how this merges is not known")
        known = bool(new.states) and not new.identity
        ttl = _switched(state.meta_info, new, 0) if known else None
        names = view_names(new, name)
        bits = _moved_bits(state, view)
        return StateUpgrade(state.name, name, state.meta_info, ttl=ttl, names=names, bits=bits)
    _refuse_other_types(state, found)
    ttl = _switched(state.meta_info, new, found.new.index)
    names = row_names(new, found.new)
    merged = None
    if match.merges and has_ttl(parse_state_meta_info(state.meta_info)):
        raise IncompatibleError(
            "its groups merge, and it has a time to live: what had expired would be missing"
        )
    if match.merges:
        merged = tuple(
            "first" if each.old is None else merged_by(each.column)
            for each in found.columns[ValuePlace.VALUE]
        )
    if found.marks:
        after = with_value_bytes(state.meta_info, SNAPSHOTS[BooleanSerializer]())
        return StateUpgrade(state.name, found.new.name, after, ttl=ttl, names=names, marks=True)
    if found.same:
        return StateUpgrade(state.name, found.new.name, state.meta_info, ttl=ttl, names=names,
                            merged=merged)  # fmt: skip
    target = _meta_info_like(like, operator_id, found.new.name)
    after = state.meta_info
    for place, matches in found.columns.items():
        before = row_at(state.meta_info, place)
        wanted = None if target is None else row_at(target, place)
        row = _new_row(before, matches, found.old.rows[place], wanted, flink)
        if place is ValuePlace.USER_KEY:
            user_key = key_parts(after).get(USER_KEY)
            assert user_key is not None  # noqa: S101 - by _row_at
            after = with_key_parts(after, {USER_KEY: with_row(user_key, row)})
        else:
            after = with_value_bytes(after, with_row(value_type(after), row))
    changes = {place: RowChange.of(matches) for place, matches in found.columns.items()}
    merges = set(found.columns) == {ValuePlace.USER_KEY}
    return StateUpgrade(state.name, found.new.name, after, changes, merges, ttl, names, merged)


def _switched(meta_info: bytes, new: NodeStates, index: int) -> bool | None:
    """Return whether time to live is switched on or off; None if it stays."""
    wanted = new.has_ttl(index)
    return None if wanted == has_ttl(parse_state_meta_info(meta_info)) else wanted


def _moved_bits(state: StateRecord, view: ColumnMatch | None) -> tuple[tuple[int, ...], ...]:
    """Return what becomes of the bits of a set of distinct values; empty if they stay.

    Raises:
        IncompatibleError: It holds no number for each value.
    """
    if view is None or all(bits == (at,) for at, bits in enumerate(view.bits)):
        return ()
    if state.value_type != "Long":
        raise IncompatibleError(f"its calls change, and it holds {state.value_type} for each value")
    return view.bits


def _view_name(name: str, match: OperatorMatch) -> tuple[str | None, ColumnMatch | None]:
    """Return the new name of a data view's state, None if its call is gone; and its column.

    A state of the operator that is no view, such as a counter of its own, stays.
    """
    assert match.old is not None  # noqa: S101 - by the caller
    olds = [column for held in match.old.states for row in held.rows.values() for column in row]
    mine = next((column for column in olds if column.owns(name)), None)
    if mine is None:
        return name, None
    for state in match.states:
        for place, matches in state.columns.items():
            for each in matches:
                if each.old is not None and state.old.rows[place][each.old] is mine:
                    return each.column.view + name.removeprefix(mine.view), each
    return None, None


def _refuse_other_types(state: StateRecord, match: StateMatch) -> None:
    """Refuse a state whose types are not those that the old plan predicts.

    Raises:
        IncompatibleError: They differ.
    """
    for place, columns in match.old.rows.items():
        refuse_other_types(row_at(state.meta_info, place), [each.type for each in columns])


def _new_row(
    before: RowDataSerializerSnapshot,
    matches: Sequence[ColumnMatch],
    columns: Sequence[StateColumn],
    wanted: RowDataSerializerSnapshot | None,
    flink: tuple[int, int],
) -> RowDataSerializerSnapshot:
    """Return the snapshot of the new rows.

    Raises:
        IncompatibleError: The type of a new column is not known.
    """
    if wanted is not None and len(wanted.types) != len(matches):
        raise IncompatibleError(
            f"the savepoint of --like has {len(wanted.types)} columns, and the new plan"
            f" {len(matches)}",
            remedy=_LIKE,
        )
    types: list[WrittenType] = []
    nested: list[TypeSerializerSnapshot] = []
    for index, match in enumerate(matches):
        kind = match.column.type
        if wanted is not None:
            types.append(wanted.types[index])
            nested.append(wanted.nested[index])
        elif match.old is not None and (kind is None or columns[match.old].type in (None, kind)):
            types.append(before.types[match.old])
            nested.append(before.nested[match.old])
        elif isinstance(kind, RawType):
            types.append(map_view_type())
            nested.append(map_view_serializer())
        elif kind is not None:
            types.append(WrittenType.of(kind))
            nested.append(internal_snapshot(kind))
        elif match.fate is Fate.FULL and match.column.adds is not None:
            written, serializer = extreme_row(match.column.adds.function, match.column.of[0], flink)
            types.append(written)
            nested.append(serializer)
        else:
            raise IncompatibleError(f"the type of {match.column.name} is in no plan", remedy=_LIKE)
    row = RowDataSerializerSnapshot()
    row.types, row.nested = tuple(types), tuple(nested)
    return row


def _meta_info_like(like: Mapping[str, Operator], operator_id: str, name: str) -> bytes | None:
    """Return the meta info of a state in a snapshot of the new job; None if it has none."""
    states = like[operator_id].keyed_states if operator_id in like else ()
    return next((each.meta_info for each in states if each.name == name), None)


# --------------------------------------------------------------------------- the upgrade


class _SqlUpgrade(Derivation):
    """An upgrade, by the id of each operator."""

    origin = "migrate"

    def __init__(self, lake: Catalog, plan: SqlUpgradePlan, *, inexact: bool) -> None:
        self.lake = lake
        self.inexact = inexact
        self.applied = plan.digest()
        self.identities = {
            operator_id: identity
            for each in plan.operators
            for operator_id, identity in each.operators.items()
        }
        self.labels = {
            operator_id: (each.match.old.node, each.match.new.node)
            for each in plan.operators
            for operator_id in each.operators
            if each.match.old is not None and each.match.new is not None
        }
        self.states = {
            (operator_id, state.state): state
            for each in plan.operators
            for operator_id in each.operators
            for state in each.states
        }
        self.keys = {name: key for each in plan.operators for name, key in each.keys.items()}
        self.moves = {
            name: MovedKeys(
                b"", key, each.match.keys, 0, plain_names(each.match.new.key_names),
                tuple(each.match.sets.items()),
                each.match.old.keys.index(SET_NUMBER) if each.match.sets else -1,
            )
            for each in plan.operators
            for name, key in each.keys.items()
            if each.match.keys and each.match.new is not None and each.match.old is not None
        }  # fmt: skip
        self.merging = {name: each.match.merges for each in plan.operators for name in each.keys}
        self.folds = {name: fold for each in plan.operators for name, fold in each.folds.items()}
        self.folded: dict[str, TableChange] = {}  # by table
        self.rewriter: TableRewriter | None = None
        self.now = time.time_ns() // 1_000_000

    def begin(
        self, record: SnapshotRecord, rewriter: TableRewriter | None = None
    ) -> Sequence[OperatorRecord]:
        """Leave out operators and states that do not go on."""
        self.metadata = unmanaged_metadata(record)
        going = {each.operator_id for each in self.metadata.operators} - set(self.identities)
        refuse_cut_channels(self.metadata.operators, going)
        self.metadata.operators = [
            each for each in self.metadata.operators if each.operator_id in self.identities
        ]
        going_on = [
            # the tables of keys that move are read with the old ones
            each if each.operator_id in self.moves else self._keyed(each)
            for each in record.operators
            if each.operator_id in self.identities
        ]
        kept = [
            operator.with_states(
                [each for each in operator.states
                 if (operator.operator_id, each.name) in self.states],
                operator.operator_states,
            )
            for operator in going_on
        ]  # fmt: skip
        self.rewriter = rewriter
        if rewriter is None:
            return kept
        moved = [self._moved(operator, rewriter) for operator in kept]
        return [
            self._folding(operator, record, rewriter)
            if operator.operator_id in self.folds
            else operator
            for operator in moved
        ]

    def _folding(
        self, operator: OperatorRecord, record: SnapshotRecord, rewriter: TableRewriter
    ) -> OperatorRecord:
        """Add up the rows for an aggregate's new columns; return it with their views."""
        fold = self.folds[operator.operator_id]
        (state,) = (each for each in operator.states if each.name == ACCUMULATORS)
        table = operator.table_of(state)
        change = self._changed(operator, table, state)
        assert change is not None  # noqa: S101 - it has new columns
        target = change.layout
        assert isinstance(target, KeyGroupLayout)  # noqa: S101 - of keyed state
        pieces = [replace(each, staged=None) for each in target.new_pieces(table.units)]
        if not pieces:  # without rows
            pieces = [Piece(FileSpan(NO_PARTITION, 0, operator.max_parallelism - 1), ())]
        views = []
        for each in fold.views:
            operator, layout = self._with_view(operator, each, table)
            views.append(layout)
        (source,) = (each for each in record.operators if each.operator_id == fold.source)
        held = {each.name: each for each in source.states}
        sources = [
            table_rows(
                self.lake.location, source, source.table_of(held[side.state])
            ).only(held[side.state])
            for side in fold.fold.sides
        ]  # fmt: skip
        added, entries = stage_folded(rewriter, fold, sources, target, views, pieces)
        spans = tuple(each.span for each in pieces)
        rows = FoldedRows(fold, target, tuple(views), spans, added, tuple(entries))
        self.folded[table.path] = TableChange(
            target, [each for each in pieces if each.files], [*change.transforms, rows]
        )
        for layout, parts in zip(views, entries, strict=True):
            staged = [staged_piece(*each) for each in zip(spans, parts, strict=True) if each[1]]
            self.folded[layout.after.path] = TableChange(layout, staged, [MergedCounts()])
        return operator

    def _with_view(
        self, operator: OperatorRecord, column: FoldedColumn, beside: TableRecord
    ) -> tuple[OperatorRecord, KeyGroupLayout]:
        """Return the operator with a state for the view of a new column, and its layout."""
        names = RowNames(tuple(operator.key_names) if operator.node else ())
        kind, _ = parse_keyed_state(column.meta_info, operator.key_serializer, names=names)
        path = f"{posixpath.dirname(beside.path)}/{path_segment(column.view)}"
        table = replace(beside, path=path, version=0, units=[])
        present = self.lake.table(path).open()
        partitioned = [beside.partition_by] if beside.partition_by else []
        if present is not None and present.metadata().partition_columns != partitioned:
            table = replace(table, path=path_beside(path, table))
        state = StateRecord(
            kind.name, kind.kind.value, table.path, kind.namespace_type, kind.value_type,
            kind.user_key_type, kind.with_ttl, kind.meta_info,
        )  # fmt: skip
        self.states[operator.operator_id, state.name] = StateUpgrade(
            state.name, column.view, state.meta_info, names=RowNames(alias=column.alias)
        )
        operator = replace(
            operator, states=[*operator.states, state], tables=[*operator.tables, table]
        )
        layout = layout_of(self.lake, operator, table)
        assert isinstance(layout, KeyGroupLayout)  # noqa: S101 - of keyed state
        return operator, layout

    def _keyed(self, operator: OperatorRecord) -> OperatorRecord:
        """Return the operator with its new key serializer, which its timers have, too."""
        key = self.keys.get(operator.operator_id)
        if key is None:
            return operator
        states = [
            replace(each, meta_info=self._with_key(operator, each)) for each in operator.states
        ]
        names = operator.key_names
        if operator.operator_id in self.moves and operator.node:
            names = list(self.moves[operator.operator_id].names)
        return replace(
            operator, key_serializer=key, key_type=_key_of(key, ()).name, key_names=names,
            states=states,
        )  # fmt: skip

    def _with_key(self, operator: OperatorRecord, state: StateRecord) -> bytes:
        """Return the meta info of a state whose operator has another key serializer."""
        if state.kind != "timers":
            return state.meta_info
        return with_timer_key(state.meta_info, self.keys[operator.operator_id])

    def paths(self, record: SnapshotRecord) -> list[str]:
        """Return the tables that the upgrade may write."""
        paths = []
        for operator in self.begin(record):
            paths += [table.path for table in operator.tables]
            for state in self._to_move(operator):
                path = self._path(operator, state)
                paths += [path, path_beside(path, operator.table_of(state))]
            fold = self.folds.get(operator.operator_id)
            for column in () if fold is None else fold.views:
                (state,) = (each for each in operator.states if each.name == ACCUMULATORS)
                path = f"{posixpath.dirname(state.table)}/{path_segment(column.view)}"
                paths += [path, path_beside(path, operator.table_of(state))]
        return paths

    def _to_move(self, operator: OperatorRecord) -> list[StateRecord]:
        """Return the states with other names, whose tables have their names."""
        states = self.states
        return [
            each for each in operator.states
            if states[operator.operator_id, each.name].name != each.name
        ]  # fmt: skip

    def _path(self, operator: OperatorRecord, state: StateRecord) -> str:
        name = self.states[operator.operator_id, state.name].name
        return f"{posixpath.dirname(state.table)}/{path_segment(name)}"

    def _moved(self, operator: OperatorRecord, rewriter: TableRewriter) -> OperatorRecord:
        """Return the operator with the tables of renamed states under their new names."""
        snapshot_id = rewriter.attempt.claim.snapshot_id
        going = {each.table: self._path(operator, each) for each in self._to_move(operator)}
        tables = {
            table.path: copy_table(self.lake, snapshot_id, table, going[table.path],
                                   rewriter.token, list(going.values()))
            if table.path in going else table
            for table in operator.tables
        }  # fmt: skip
        states = [replace(each, table=tables[each.table].path) for each in operator.states]
        return replace(operator, tables=list(tables.values()), states=states)

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table whose rows change."""
        if table.path in self.folded:
            return self.folded[table.path]
        held = operator.states_in(table)
        if not isinstance(held[0], StateRecord):
            return None
        move = self.moves.get(operator.operator_id)
        if move is not None:
            return self._moving(operator, table, move)
        if len(held) != 1:  # timers
            return None
        return self._changed(operator, table, held[0])

    def _moving(self, operator: OperatorRecord, table: TableRecord, move: MovedKeys) -> TableChange:
        """Return the change of a table whose keys move: of their other states, and of timers."""
        held = [each for each in operator.states if each.table == table.path]
        change = None if held[0].kind == "timers" else self._changed(operator, table, held[0])
        layout = layout_of(self.lake, operator, table) if change is None else change.layout
        assert isinstance(layout, KeyGroupLayout)  # noqa: S101 - of keyed state
        names = move.names if operator.node else ()
        states = tuple(
            (
                index,
                TableState(
                    with_timer_key(each.meta_info, move.key)
                    if held[0].kind == "timers"
                    else each.meta_info,
                    replace(each.names, key=names),
                ),
            )
            for index, each in layout.after.states
        )
        after = replace(layout.after, key_serializer=move.key, states=states)
        keys = replace(
            move, before=operator.key_serializer, max_parallelism=operator.max_parallelism,
            names=names,
        )  # fmt: skip
        transforms = () if change is None else change.transforms
        merged = self.states[operator.operator_id, held[0].name].merged
        if self.merging[operator.operator_id]:
            merges: list[Transform] = [MergedGroups(merged, self.inexact)]
        else:
            merges = []
        return TableChange(
            replace(layout, after=after), pieces_of(table), merges, (*transforms, keys)
        )

    def _changed(
        self, operator: OperatorRecord, table: TableRecord, state: StateRecord
    ) -> TableChange | None:
        """Return the change of a table whose rows get other columns, or a time to live."""
        upgrade = self.states[operator.operator_id, state.name]
        transforms: list[Transform] = [MovedBits(upgrade.bits)] if upgrade.bits else []
        after = state.meta_info
        if upgrade.changes:
            names = upgrade.names if operator.node else NO_NAMES
            transforms.append(
                SqlRows(
                    after, upgrade.meta_info, upgrade.changes, upgrade.merges, names, self.inexact
                )
            )
            after = upgrade.meta_info
        if upgrade.marks:
            transforms.append(MarkedKeys())
            after = upgrade.meta_info
        if upgrade.ttl is not None:
            transforms.append(SwitchedTtl(upgrade.ttl, self.now))
            after = with_ttl_bytes(after, on=upgrade.ttl)
        if not transforms:
            return None
        layout = layout_of(self.lake, operator, table)
        assert isinstance(layout, KeyGroupLayout)  # noqa: S101 - of keyed state
        # rows that stay as they are keep the names that they have in the files
        new = replace(upgrade.names, key=tuple(operator.key_names)) if operator.node else NO_NAMES
        layout = layout.with_meta_info(after, new if upgrade.changes else None)
        return TableChange(layout, pieces_of(table), transforms)

    def finish(self, record: SnapshotRecord) -> SnapshotRecord:
        """Give operators their new uids, and states their new names."""
        for table in record.tables:
            if table.path in self.folded and self.rewriter is not None:
                self.rewriter.delete_staged(table)
        operators = [self._renamed(operator) for operator in record.operators]
        self.metadata.operators = [self._renamed_metadata(each) for each in self.metadata.operators]
        metadata = write_metadata(self.metadata)
        return replace(record, operators=operators, metadata=metadata, applied=self.applied)

    def _renamed(self, operator: OperatorRecord) -> OperatorRecord:
        if operator.operator_id in self.moves:
            operator = self._keyed(operator)
        states, renamed_in = [], set()
        for state in operator.states:
            upgrade = self.states[operator.operator_id, state.name]
            name = upgrade.name
            if name != state.name:
                renamed_in.add(state.table)
                info = replace(parse_state_meta_info(state.meta_info), name=name)
                state = replace(state, name=name, meta_info=meta_info_bytes(info))  # noqa: PLW2901
            states.append(replace(state, alias=upgrade.names.alias if operator.node else ""))
        new = self.identities[operator.operator_id]
        name = self._name(operator.operator_id, operator.name)
        # fingerprints have the names of states in them: the next import writes such files anew
        tables = [
            replace(table, units=[replace(file, fingerprint=b"", parts=[]) for file in table.units])
            if table.path in renamed_in else table
            for table in operator.tables
        ]  # fmt: skip
        renamed = replace(
            operator, uid=new.uid, operator_id=new.operator_id, name=name, states=states,
            tables=tables,
        )  # fmt: skip
        if not operator.node:  # it was imported without a plan
            return renamed
        node = self.labels[operator.operator_id][1]
        return replace(renamed, node=node.label, query=node.title[:LONGEST_QUERY])

    def _renamed_metadata(self, operator: OperatorMetadata) -> OperatorMetadata:
        new = self.identities[operator.operator_id]
        return replace(
            operator, operator_id=new.operator_id, uid=new.uid if operator.uid else "",
            name=self._name(operator.operator_id, operator.name),
        )  # fmt: skip

    def _name(self, operator_id: str, name: str) -> str:
        old, new = self.labels[operator_id]
        return name.replace(old.label, new.label).replace(f"[{old.id}]", f"[{new.id}]")


def upgrade_sql(
    lake: Catalog,
    job: str,
    parent: str,
    snapshot_id: str,
    plan: SqlUpgradePlan,
    *,
    inexact: bool = False,
    note: str = "",
    engine: Engine | str = "auto",
    progress: Progress | None = None,
) -> SnapshotRecord:
    """Register a snapshot from which the job of the new plan goes on.

    Args:
        lake: The lake.
        job: The job.
        parent: The snapshot of the old plan.
        snapshot_id: The name of the new one.
        plan: What becomes of each operator, as `plan_sql_upgrade` returns it.
        inexact: Whether rows are rewritten by what columns show of values that they don't hold in
            full.
        note: Kept with it.
        engine: `auto`, `spark`, `local`, or an engine.
        progress: Called with (done, total) after each task of a table.

    Raises:
        ConflictError: There is a snapshot of that name.
        EncodeError: A row can't be rewritten; nothing was registered.
    """
    upgrade = _SqlUpgrade(lake, plan, inexact=inexact)
    record = lake.snapshot(job, parent)
    paths = list(dict.fromkeys(upgrade.paths(record)))
    return derive(
        lake, job, record, snapshot_id, upgrade, note=note, paths=paths, engine=engine,
        progress=progress,
    ).record  # fmt: skip
