"""Upgrades of Flink SQL jobs: a snapshot from which a job of a changed query continues.

Two compiled plans are matched by meaning, and checked against the snapshot: its operators must be
those of the old plan, and their states of the predicted types. Then each state whose rows change is
rewritten, column by column; operators get the uids of the new plan. Operators and states without a
match are left out. Where the columns of a key have another order, or wider types, entries and
timers go to other key groups.
"""

from __future__ import annotations

import hashlib
import posixpath
import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import (
    KEYED,
    unmanaged_keyed_ids,
    unmanaged_metadata,
)
from statelake.pipelines.lake.change.folding import (
    FoldedColumn,
    FoldedRows,
    FoldUpgrade,
    stage_folded,
)
from statelake.pipelines.lake.change.migrating import SwitchedTtl, value_type
from statelake.pipelines.lake.change.sql_operators import (
    Identity,
    Named,
    liked_operators,
    named_anew,
    named_by_topology,
    named_by_uid,
)
from statelake.pipelines.lake.change.sql_rows import COUNTS, Bits, NewColumn, NewPart, Select
from statelake.pipelines.lake.edit.key_group_layout import KeyGroupLayout
from statelake.pipelines.lake.edit.merging import copy_table, path_beside
from statelake.pipelines.lake.edit.pieces import Piece
from statelake.pipelines.lake.edit.rewriting import (
    ChildSnapshot,
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
from statelake.state_core.errors import EncodeError, IncompatibleError, StateError
from statelake.state_core.formats.layout.keyed_layout import (
    USER_KEY,
)
from statelake.state_core.formats.layout.keyed_states import (
    has_ttl,
    key_parts,
    meta_info_bytes,
    parse_keyed_state,
    with_key_parts,
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
from statelake.state_core.model.snapshot import (
    NO_NAMES,
    Operator,
    RowNames,
    Snapshot,
    StateKind,
    state_title,
)
from statelake.state_core.nested import plain_names
from statelake.state_core.plans.data_views import (
    extreme_map,
    extreme_row,
    map_view_serializer,
    map_view_type,
)
from statelake.state_core.plans.lineage import SET_NUMBER
from statelake.state_core.plans.matches import (
    ColumnMatch,
    Fate,
    Fold,
    OperatorMatch,
    PlanMatch,
    worst,
)
from statelake.state_core.plans.matching import merged_by, with_held
from statelake.state_core.plans.naming import (
    LONGEST_QUERY,
    known_type,
    refuse_other_types,
    row_at,
    row_names,
    view_names,
)
from statelake.state_core.plans.plan import PlanNode
from statelake.state_core.plans.states import (
    ALL_ROWS,
    NO_INITIAL,
    NodeStates,
    StateColumn,
    ValuePlace,
)
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, BooleanSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import restore_key
from statelake.state_core.serializers.sql.row_data import (
    RowDataSerializerSnapshot,
    internal_snapshot,
    row_in,
    with_row,
)
from statelake.state_core.serializers.sql.section_data import RowDataSerializer
from statelake.state_core.serializers.sql.types.logical_type_streams import WrittenType
from statelake.state_core.serializers.sql.types.logical_types import RawType

ACCUMULATORS = "accState"
NEW = "(new)"  # for a new state, while another has its name
_LIKE = "name a savepoint of the new job, --like, also one without data"
NoUids: TypeAlias = bool | Literal["old"]  # of no job, of both, or of the old one
OLD: Literal["old"] = "old"


@dataclass(frozen=True)
class StateUpgrade:
    """The upgrade of a state in a snapshot.

    Attributes:
        state: Its name.
        name: Its name in the new job.
        meta_info: The meta info of its rows in the new job, with the old name and time to live.
        new_parts: The changes of its rows; empty if they stay.
        merged: How values of keys that become equal are merged, as for `Select`.
        ttl: Whether time to live is switched on (True) or off (False); None if it stays.
        names: The names that the new plan gives to the fields of its rows.
    """

    state: str
    name: str
    meta_info: bytes = field(repr=False)
    new_parts: Mapping[ValuePlace, NewPart] = field(default_factory=dict)
    merged: tuple[str, ...] | None = None
    ttl: bool | None = None
    names: RowNames = field(default=NO_NAMES, repr=False)  # not a part of the digest

    @property
    def has_new_rows(self) -> bool:
        """Return whether its rows get other columns."""
        return any(isinstance(part, tuple) for part in self.new_parts.values())

    def digested(self) -> bytes:
        """Return what is in the plan's digest, in a form that never changes: lakes keep digests."""
        rows = {place: part for place, part in self.new_parts.items() if isinstance(part, tuple)}
        changes = ", ".join(
            f"{place!r}: RowChange(old={tuple(each.old for each in row)!r},"
            f" initial={tuple(each.initial for each in row)!r},"
            f" filled={tuple(each.filled for each in row)!r},"
            f" counted={tuple(each.counted for each in row)!r})"
            for place, row in rows.items()
        )
        bits = [part.bits for part in self.new_parts.values() if isinstance(part, Bits)]
        text = (
            f"StateUpgrade(state={self.state!r}, name={self.name!r}, changes={{{changes}}},"
            f" merges={rows.keys() == {ValuePlace.USER_KEY}!r}, ttl={self.ttl!r})"
        )
        return text.encode() + self.meta_info + "".join(map(repr, bits)).encode()


@dataclass(frozen=True)
class OperatorUpgrade:
    """The upgrade of an operator with state.

    Attributes:
        match: The operators in both plans.
        operators: The operators of the snapshot that belong to the old node, with their new
            identities.
        states: The states that are kept; others of these operators are left out.
        keys: The new key serializers, by operator id, of keys with other types or another order.
        entries: The entries of the old operator.
        fate: The fate of its state, checked against the snapshot.
        reasons: Reasons, each a sentence.
        folds: The columns that are computed from other rows, by the id of the operator.
    """

    match: OperatorMatch
    operators: Mapping[str, Identity] = field(default_factory=dict)
    states: tuple[StateUpgrade, ...] = ()
    keys: Mapping[str, bytes] = field(default_factory=dict)
    entries: int = 0
    fate: Fate = Fate.KEEPS
    reasons: tuple[str, ...] = ()
    folds: Mapping[str, FoldUpgrade] = field(default_factory=dict)

    @property
    def worst(self) -> Fate:
        """Return the worst of its fate and those of its columns."""
        return worst([self.fate, self.match.worst])


@dataclass(frozen=True)
class SqlUpgradePlan:
    """The upgrades of all operators with state of a snapshot of a Flink SQL job."""

    plans: PlanMatch
    operators: tuple[OperatorUpgrade, ...]

    def digest(self) -> str:
        """Return the digest of the upgrades of all operators and states that are kept."""
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
                digest.update(state.digested())
        return digest.hexdigest()


def plan_sql_upgrade(
    record: SnapshotRecord,
    match: PlanMatch,
    like: Snapshot | None = None,
    *,
    no_uids: NoUids = False,
) -> SqlUpgradePlan:
    """Check a match of two plans against a snapshot, and return the upgrade.

    Args:
        record: The snapshot.
        match: The match of the old job's plan and the new one's.
        like: A snapshot of the new job, for its types; None without one.
        no_uids: Whether both jobs run without a compiled plan, so that their operators have no
            uids; `old` if only the old job does.

    Raises:
        EncodeError: `no_uids` has another value.
        IncompatibleError: The snapshot is not of the old plan.
    """
    if no_uids not in (False, True, OLD):
        raise EncodeError(f"no_uids={no_uids!r}", remedy="use True for both jobs, or 'old'")
    if no_uids == OLD:
        named = named_anew(record, match, like)
    else:
        named = (named_by_topology if no_uids else named_by_uid)(record, match)
    match = with_held(match, named.old)
    liked = liked_operators(like, match, named)
    as_bytes = unmanaged_keyed_ids(record)
    upgrades = [
        _operator_upgrade(record, each, named, liked, match.new.flink, as_bytes)
        for each in match.operators
    ]
    return SqlUpgradePlan(match, tuple(upgrades))


def _operator_upgrade(
    record: SnapshotRecord,
    match: OperatorMatch,
    named: Named,
    like: Mapping[str, Operator],
    flink: tuple[int, int],
    as_bytes: AbstractSet[str],
) -> OperatorUpgrade:
    old, new = match.old, match.new
    names = {} if old is None else named.old.get(old.node.id, {})
    records = [each for each in record.operators if each.operator_id in names]
    entries = sum(state.entries for each in records for state in each.all_states if _is_kept(state))
    # keyed state that is kept as bytes has no entries, but is state, too
    kept = {each: Identity(each) for each in names if each in as_bytes}
    if old is None or new is None:
        fate = Fate.LOST if kept else _new_fate(match, names, records)
        return OperatorUpgrade(match, kept, entries=entries, fate=fate, reasons=match.why)
    if match.fate is Fate.LOST:
        return OperatorUpgrade(match, kept, entries=entries, fate=Fate.LOST, reasons=match.why)
    identities = _identities(named, names, old.node, new.node)
    nameless = {each for each, name in names.items() if not name} - identities.keys()
    states: list[StateUpgrade] = []
    keys: dict[str, bytes] = {}
    folds: dict[str, FoldUpgrade] = {}
    fate, why = match.fate, [*match.why]

    def worse(than: Fate, because: str) -> None:
        nonlocal fate
        fate = worst([fate, than])
        why.extend([because] if because else ())

    worse(*_without_tables(match, names, records, as_bytes))
    if nameless:
        worse(Fate.UNKNOWN, "its connector sets the uid of an operator with state, and plans do not"
              f" have that uid: {_LIKE}")  # fmt: skip
    for operator in records:
        identity = identities.get(operator.operator_id)
        if operator.operator_id in nameless:
            continue
        if identity is None:
            named_so = operator.name or operator.operator_id
            worse(Fate.LOST, f"the new job has no operator for {named_so}")
            continue
        try:
            key = _new_key(operator.key_serializer, match) if operator.states else None
        except StateError as error:
            worse(Fate.UNKNOWN, f"its key: {str(error).removeprefix(': ')}")
            continue
        if key is not None:
            keys[operator.operator_id] = key
        for state in operator.states:
            try:
                upgrade = _state_upgrade(state, match, identity.operator_id, like, flink)
                if upgrade is not None and upgrade.has_new_rows and match.fold is not None:
                    source = _fold_source(record, named, match.fold, operator)
                    if source is not None:
                        folds[operator.operator_id] = _fold_upgrade(source, match, upgrade)
            except StateError as error:
                # no reason is needed if rows are missing anyway
                name = state_title(repr(state.name), view_names(old, state.name).alias)
                because = f"its state {name}: {str(error).removeprefix(': ')}"
                worse(Fate.UNKNOWN, "" if match.misses else because)
                continue
            states += [] if upgrade is None else [upgrade]
    return OperatorUpgrade(match, identities, tuple(states), keys, entries, fate, tuple(why), folds)


def _without_tables(
    match: OperatorMatch,
    ids: Collection[str],
    records: Sequence[OperatorRecord],
    as_bytes: AbstractSet[str],
) -> tuple[Fate, str]:
    """Return the fate of keyed state without tables, and the reason, if there is one."""
    assert match.old is not None  # noqa: S101 - by the caller
    if as_bytes.isdisjoint(ids):
        missing = not records and match.old.states
        return Fate.KEEPS, f"the snapshot has no state of {match.old.node.label}" if missing else ""
    if _stays(match):
        return Fate.KEEPS, ""
    return Fate.UNKNOWN, f"it has {KEYED}, which can't be rewritten"


def _stays(match: OperatorMatch) -> bool:
    """Return whether an operator's keys, states and times to live are unchanged."""
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
    named: Named, names: Mapping[str, str], old: PlanNode, new: PlanNode
) -> dict[str, Identity]:
    """Return the new identities of a node's operators, by their old ids, as far as known."""
    identities = {
        operator_id: named.identity(new, new.kind if name == old.kind else name)
        for operator_id, name in names.items()
    }
    return {operator_id: identity for operator_id, identity in identities.items() if identity}


def _new_fate(
    match: OperatorMatch, names: Mapping[str, str], records: Sequence[OperatorRecord]
) -> Fate:
    """Return the fate of an operator that only one of the two jobs has."""
    if match.old is not None and match.fate is Fate.KEEPS and records:
        return Fate.LOST
    if match.old is not None and not records and match.fate is Fate.LOST and not names:
        return Fate.KEEPS
    return match.fate


def _fold_source(
    record: SnapshotRecord, named: Named, fold: Fold, operator: OperatorRecord
) -> OperatorRecord | None:
    """Return the operator whose rows are added up; None if neither it nor the aggregate has rows.

    Raises:
        IncompatibleError: Its rows are not all the rows that the aggregate has counted.
    """
    for carried in unmanaged_metadata(record).operators:
        if any(part.inputs or part.outputs for part in (carried.subtasks or {}).values()):
            raise IncompatibleError(
                "rows are in flight between operators, which some have counted and others not",
                remedy="take a savepoint",
            )
    names = {side.state for side in fold.sides}
    for each in record.operators:
        states = {state.name: state for state in each.states}
        if each.operator_id in named.old.get(fold.node, {}) and names <= set(states):
            for name in names:
                if has_ttl(parse_state_meta_info(states[name].meta_info)):
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
    """Return the columns of an aggregate to compute from the rows of another operator.

    Raises:
        IncompatibleError: The aggregate has a time to live, or views of asynchronous state.
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
    (count,) = (at for at, each in enumerate(matches) if each.column.meaning is ALL_ROWS)
    return FoldUpgrade(source.operator_id, match.fold, tuple(columns), count)


def _new_key(written: bytes, match: OperatorMatch) -> bytes | None:
    """Return the new key serializer if keys move, or have other types with the same bytes.

    Return None if the keys do not change.

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
    """Return the upgrade of a state of a matched operator; None if it is left out."""
    new = match.new
    assert new is not None and match.old is not None  # noqa: S101, PT018 - by the caller
    matched = next((each for each in match.states if each.old.name == state.name), None)
    if state.kind == "timers":
        return StateUpgrade(state.name, state.name, state.meta_info)
    if matched is None:
        name, view = _view_name(state.name, match)
        if name is None:
            return None
        if match.merges:
            raise IncompatibleError("its groups merge, and how this merges is not known")
        known = bool(new.states) and not new.identity
        ttl = _switched(state.meta_info, new, 0) if known else None
        names = view_names(new, name)
        bits = _moved_bits(state, view)
        parts: dict[ValuePlace, NewPart] = {ValuePlace.VALUE: bits} if bits else {}
        return StateUpgrade(state.name, name, state.meta_info, parts, ttl=ttl, names=names)
    for place, columns in matched.old.rows.items():
        refuse_other_types(row_at(state.meta_info, place), [each.type for each in columns])
    ttl = _switched(state.meta_info, new, matched.new.index)
    names = row_names(new, matched.new)
    merged = None
    if match.merges and has_ttl(parse_state_meta_info(state.meta_info)):
        raise IncompatibleError(
            "its groups merge, and it has a time to live: values that had expired would be missing"
        )
    if match.merges:
        merged = tuple(
            "first" if each.old is None else merged_by(each.column)
            for each in matched.columns[ValuePlace.VALUE]
        )
    if matched.marks:
        after = with_value_bytes(state.meta_info, SNAPSHOTS[BooleanSerializer]())
        mark = {ValuePlace.VALUE: NewColumn(initial=True)}
        return StateUpgrade(state.name, matched.new.name, after, mark, ttl=ttl, names=names)
    if matched.same:
        return StateUpgrade(state.name, matched.new.name, state.meta_info, {}, merged, ttl, names)
    target = _meta_info_like(like, operator_id, matched.new.name)
    after = state.meta_info
    for place, matches in matched.columns.items():
        before = row_at(state.meta_info, place)
        wanted = None if target is None else row_at(target, place)
        row = _new_row(before, matches, matched.old.rows[place], wanted, flink)
        if place is ValuePlace.USER_KEY:
            user_key = key_parts(after).get(USER_KEY)
            assert user_key is not None  # noqa: S101 - by _row_at
            after = with_key_parts(after, {USER_KEY: with_row(user_key, row)})
        else:
            after = with_value_bytes(after, with_row(value_type(after), row))
    parts = {place: tuple(map(_new_column, matches)) for place, matches in matched.columns.items()}
    if set(parts) == {ValuePlace.USER_KEY}:  # equal rows are merged
        merged = COUNTS
    return StateUpgrade(state.name, matched.new.name, after, parts, merged, ttl, names)


def _new_column(match: ColumnMatch) -> NewColumn:
    """Return the new column of a row for a match of columns."""
    initial = None if match.column.initial is NO_INITIAL else match.column.initial
    old, counted = (-1 if each is None else each for each in (match.old, match.counted))
    return NewColumn(old, initial, match.filled, counted)


def _key_columns(match: OperatorMatch) -> tuple[NewColumn, ...]:
    """Return the new columns of a key that moves."""
    number = match.old.keys.index(SET_NUMBER) if match.sets and match.old is not None else None
    numbers = tuple(match.sets.items())
    return tuple(NewColumn(at, values=numbers if at == number else ()) for at in match.keys)


def _switched(meta_info: bytes, new: NodeStates, index: int) -> bool | None:
    """Return True or False if time to live is switched on or off; None if it stays."""
    wanted = new.has_ttl(index)
    return None if wanted == has_ttl(parse_state_meta_info(meta_info)) else wanted


def _moved_bits(state: StateRecord, view: ColumnMatch | None) -> Bits | None:
    """Return the new bits of a set of distinct values; None if they stay.

    Raises:
        IncompatibleError: The values of the state are not numbers.
    """
    if view is None or all(bits == (at,) for at, bits in enumerate(view.bits)):
        return None
    if state.value_type != "Long":
        raise IncompatibleError(f"its calls change, and it holds {state.value_type} for each value")
    return Bits(view.bits)


def _view_name(name: str, match: OperatorMatch) -> tuple[str | None, ColumnMatch | None]:
    """Return the new name of a data view's state, None if its call is gone; and its column.

    A state of the operator that is not a view, such as a counter of its own, keeps its name.
    """
    assert match.old is not None  # noqa: S101 - by the caller
    olds = [column for kept in match.old.states for row in kept.rows.values() for column in row]
    mine = next((column for column in olds if column.owns(name)), None)
    if mine is None:
        return name, None
    for state in match.states:
        for place, matches in state.columns.items():
            for each in matches:
                if each.old is not None and state.old.rows[place][each.old] is mine:
                    return each.column.view + name.removeprefix(mine.view), each
    return None, None


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
    pairs: list[tuple[WrittenType, TypeSerializerSnapshot]] = []
    for index, match in enumerate(matches):
        kind, old = match.column.type, match.old
        if wanted is not None:
            pairs.append((wanted.types[index], wanted.nested[index]))
        elif old is not None and (kind is None or columns[old].type in (None, kind)):
            pairs.append((before.types[old], before.nested[old]))
        elif isinstance(kind, RawType):
            pairs.append((map_view_type(), map_view_serializer()))
        elif kind is not None:
            pairs.append((WrittenType.of(kind), internal_snapshot(kind)))
        elif match.fate is Fate.FULL and match.column.adds is not None:
            pairs.append(extreme_row(match.column.adds.function, match.column.of[0], flink))
        else:
            raise IncompatibleError(f"the type of {match.column.name} is in no plan", remedy=_LIKE)
    row = RowDataSerializerSnapshot()
    row.types, row.nested = tuple(each for each, _ in pairs), tuple(each for _, each in pairs)
    return row


def _meta_info_like(like: Mapping[str, Operator], operator_id: str, name: str) -> bytes | None:
    """Return the meta info of a state in a snapshot of the new job; None without such a state."""
    states = like[operator_id].keyed_states if operator_id in like else ()
    return next((each.meta_info for each in states if each.name == name), None)


# --------------------------------------------------------------------------- the upgrade


class _SqlUpgrade(Derivation):
    """The rewriting of a snapshot for an upgrade, by the id of each operator."""

    origin = "migrate"

    def __init__(self, lake: Catalog, plan: SqlUpgradePlan, *, inexact: bool) -> None:
        self.lake = lake
        self.inexact = inexact
        self.applied = plan.digest()
        self.upgrades = {each: of for of in plan.operators for each in of.operators}
        self.states = {
            (operator_id, state.state): state
            for operator_id, of in self.upgrades.items()
            for state in of.states
        }
        self.folded: dict[str, TableChange] = {}  # by table
        self.rewriter: TableRewriter | None = None
        self.now = time.time_ns() // 1_000_000

    def begin(
        self, record: SnapshotRecord, rewriter: TableRewriter | None = None
    ) -> Sequence[OperatorRecord]:
        """Leave out operators and states that are not kept."""
        self.metadata = unmanaged_metadata(record)
        dropped_ids = {each.operator_id for each in self.metadata.operators} - set(self.upgrades)
        refuse_cut_channels(self.metadata.operators, dropped_ids)
        self.metadata.operators = [
            each for each in self.metadata.operators if each.operator_id in self.upgrades
        ]
        kept_operators = [
            # tables of keys that move are read with the old key serializers
            each if self.upgrades[each.operator_id].match.keys else self._keyed(each)
            for each in record.operators
            if each.operator_id in self.upgrades
        ]
        kept = [
            operator.with_states(
                [each for each in operator.states
                 if (operator.operator_id, each.name) in self.states],
                operator.operator_states,
            )
            for operator in kept_operators
        ]  # fmt: skip
        self.rewriter = rewriter
        if rewriter is None:
            return kept
        moved = [self._moved(operator, rewriter) for operator in kept]
        return [self._folding(operator, record, rewriter) for operator in moved]

    def _folding(
        self, operator: OperatorRecord, record: SnapshotRecord, rewriter: TableRewriter
    ) -> OperatorRecord:
        """Compute an aggregate's new columns, if any; return the operator with their views."""
        fold = self.upgrades[operator.operator_id].folds.get(operator.operator_id)
        if fold is None:
            return operator
        (state,) = (each for each in operator.states if each.name == ACCUMULATORS)
        table = operator.table_of(state)
        change = self._changed(operator, table)
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
        states = {each.name: each for each in source.states}
        sources = [
            table_rows(
                self.lake.location, source, source.table_of(states[side.state])
            ).only(states[side.state])
            for side in fold.fold.sides
        ]  # fmt: skip
        added, entries = stage_folded(rewriter, fold, sources, target, views, pieces)
        spans = tuple(each.span for each in pieces)
        rows = FoldedRows(fold, target, tuple(views), spans, added, tuple(entries))
        self.folded[table.path] = TableChange(
            target, [each for each in pieces if each.files], [*change.transforms, rows]
        )
        for layout, parts in zip(views, entries, strict=True):
            staged = [
                Piece(span, ()).with_staged(each)
                for span, each in zip(spans, parts, strict=True)
                if each
            ]
            merging = [Select(layout, merged=COUNTS)]
            self.folded[layout.after.path] = TableChange(layout, staged, merging)
        return operator

    def _with_view(
        self, operator: OperatorRecord, column: FoldedColumn, beside: TableRecord
    ) -> tuple[OperatorRecord, KeyGroupLayout]:
        """Return the operator with a state for the view of a new column, and the state's layout."""
        names = RowNames(tuple(operator.key_names) if operator.node else ())
        kind, _ = parse_keyed_state(column.meta_info, operator.key_serializer, names=names)
        path = _path_of(beside.path, column.view)
        table = replace(beside, path=path, version=0, units=[])
        present = self.lake.table(path).open()
        partitioned = [beside.partition_by] if beside.partition_by else []
        if present is not None and present.metadata().partition_columns != partitioned:
            table = replace(table, path=path_beside(path, table))
        state = StateRecord.of(kind, table.path)
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
        """Return the operator with its new key serializer, also in its timers."""
        of = self.upgrades[operator.operator_id]
        key = of.keys.get(operator.operator_id)
        if key is None:
            return operator
        states = [
            replace(each, meta_info=with_timer_key(each.meta_info, key))
            if each.kind == "timers" else each
            for each in operator.states
        ]  # fmt: skip
        return replace(
            operator, key_serializer=key, key_type=_key_of(key).name, states=states,
            key_names=self._key_names(operator),
        )  # fmt: skip

    def _key_names(self, operator: OperatorRecord) -> list[str]:
        """Return the names of the columns of a key, in the new order if that changes."""
        match = self.upgrades[operator.operator_id].match
        if not match.keys or match.new is None or not operator.node:
            return operator.key_names
        return list(plain_names(match.new.key_names))

    def paths(self, record: SnapshotRecord) -> list[str]:
        """Return the tables that the upgrade may write."""
        paths = []
        for operator in self.begin(record):
            paths += [table.path for table in operator.tables]
            new = list(self._new_paths(operator).items())
            fold = self.upgrades[operator.operator_id].folds.get(operator.operator_id)
            for column in () if fold is None else fold.views:
                (state,) = (each for each in operator.states if each.name == ACCUMULATORS)
                new.append((state.table, _path_of(state.table, column.view)))
            tables = {table.path: table for table in operator.tables}
            paths += [each for old, to in new for each in (to, path_beside(to, tables[old]))]
        return paths

    def _new_paths(self, operator: OperatorRecord) -> dict[str, str]:
        """Return the new paths of tables whose states are renamed, by the old paths."""
        names = {each.name: self.states[operator.operator_id, each.name].name
                 for each in operator.states}  # fmt: skip
        return {
            each.table: _path_of(each.table, names[each.name])
            for each in operator.states
            if names[each.name] != each.name
        }

    def _moved(self, operator: OperatorRecord, rewriter: TableRewriter) -> OperatorRecord:
        """Return the operator with the tables of renamed states under their new names."""
        snapshot_id = rewriter.attempt.claim.snapshot_id
        going = self._new_paths(operator)
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
        return self._changed(operator, table)

    def _changed(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table of a state, or of timers, as far as its rows change."""
        states = [each for each in operator.states if each.table == table.path]
        if not states:  # of operator state
            return None
        upgrade = self.states[operator.operator_id, states[0].name]
        of = self.upgrades[operator.operator_id]
        key = of.keys.get(operator.operator_id) if of.match.keys else None
        if not upgrade.new_parts and upgrade.ttl is None and key is None:
            return None
        layout = layout_of(self.lake, operator, table)
        assert isinstance(layout, KeyGroupLayout)  # noqa: S101 - of keyed state
        transforms: list[Transform] = []
        parts = dict(upgrade.new_parts)
        if parts:
            # rows that stay as they are keep the names that they have in the files
            names = replace(upgrade.names, key=tuple(operator.key_names))
            names = names if operator.node else NO_NAMES
            new = names if upgrade.has_new_rows else None
            layout = layout.with_meta_info(upgrade.meta_info, new)
        if upgrade.ttl is not None:
            transforms.append(SwitchedTtl(upgrade.ttl, self.now))
            layout = layout.with_meta_info(with_ttl_bytes(upgrade.meta_info, on=upgrade.ttl))
        merges = key is not None and of.match.merges  # after all of a group are in one place
        if key is not None:
            layout = _with_key(layout, key, self._key_names(operator))
            parts[ValuePlace.KEY] = _key_columns(of.match)
        if parts:
            merged = None if merges else upgrade.merged
            transforms.append(Select(layout, parts, merged, self.inexact))
        if key is None:
            return TableChange(layout, pieces_of(table), transforms)
        merging = [Select(layout, {}, upgrade.merged or (), self.inexact)] if merges else []
        return TableChange(layout, pieces_of(table), merging, transforms)

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
        of = self.upgrades[operator.operator_id]
        if of.match.keys:
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
        new = of.operators[operator.operator_id]
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
        if not operator.node:  # imported without a plan
            return renamed
        node = of.match.node
        return replace(renamed, node=node.label, query=node.title[:LONGEST_QUERY])

    def _renamed_metadata(self, operator: OperatorMetadata) -> OperatorMetadata:
        new = self.upgrades[operator.operator_id].operators[operator.operator_id]
        return replace(
            operator, operator_id=new.operator_id, uid=new.uid if operator.uid else "",
            name=self._name(operator.operator_id, operator.name),
        )  # fmt: skip

    def _name(self, operator_id: str, name: str) -> str:
        match = self.upgrades[operator_id].match
        assert match.old is not None  # noqa: S101 - by its states
        old, new = match.old.node, match.node
        return name.replace(old.label, new.label).replace(f"[{old.id}]", f"[{new.id}]")


def _path_of(beside: str, state: str) -> str:
    """Return the path of a state's table, beside that of another state."""
    return f"{posixpath.dirname(beside)}/{path_segment(state)}"


def _with_key(layout: KeyGroupLayout, key: bytes, names: Sequence[str]) -> KeyGroupLayout:
    """Return the layout of rows with another key."""
    states = [
        (
            index,
            TableState(
                with_timer_key(each.meta_info, key)
                if layout.after.parse(each)[0].kind is StateKind.TIMERS
                else each.meta_info,
                replace(each.names, key=tuple(names)),
            ),
        )
        for index, each in layout.after.states
    ]
    return replace(layout, after=replace(layout.after, key_serializer=key, states=tuple(states)))


@lru_cache(maxsize=64)  # the same for all operators of a node
def _key_of(key: bytes) -> TypeSerializer:
    return restore_key(parse_key_serializer(key).snapshot)


def upgrade_sql(
    child: ChildSnapshot, plan: SqlUpgradePlan, *, inexact: bool = False
) -> SnapshotRecord:
    """Register a snapshot from which the job of the new plan continues.

    Args:
        child: The new snapshot; its parent is of the old plan.
        plan: The upgrade of each operator, as `plan_sql_upgrade` returns it.
        inexact: Whether rows are rewritten from columns even where these can't represent a value
            exactly.

    Raises:
        ConflictError: There is a snapshot of that name.
        EncodeError: A row can't be rewritten; nothing was registered.
    """
    upgrade = _SqlUpgrade(child.lake, plan, inexact=inexact)
    record = child.parent_record
    return derive(child, record, upgrade, paths=[*dict.fromkeys(upgrade.paths(record))]).record
