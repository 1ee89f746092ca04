"""Upgrades from Flink 1 to 2: a snapshot of which Flink 2 restores what Flink 1's Kryo wrote.

Every state with Kryo at any depth of its values (elements, a map's values) is rewritten, all in one
snapshot; so are the snapshots of types of flink-scala-api before 1.2.7. All values are read first,
so that the plan says what can't be rewritten: values with classes whose form is not known, Kryo in
keys and namespaces, and records in flight, whatever they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.unmanaged_state import KEYED, unmanaged_metadata
from statelake.pipelines.lake.change.migrating import refuse_disagreeing, value_type
from statelake.pipelines.lake.edit.pieces import Rows
from statelake.pipelines.lake.edit.rewriting import (
    ChildSnapshot,
    Derivation,
    TableChange,
    Transform,
    derive,
    layout_of,
    pieces_of,
)
from statelake.pipelines.lake.tables.records import (
    AnyState,
    OperatorRecord,
    SnapshotRecord,
    StateRecord,
    TableRecord,
)
from statelake.state_core.errors import EncodeError, LakeError, NotFoundError, StateError
from statelake.state_core.formats.layout.keyed_states import (
    is_queue,
    key_parts,
    with_key_parts,
    with_value_bytes,
)
from statelake.state_core.formats.layout.meta_info import parse_key_serializer
from statelake.state_core.formats.metadata.checkpoint_metadata import SubtaskState
from statelake.state_core.formats.operator_state.operator_states import ElementRows
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.formats.rewriting.kryo_parts import kryo_places
from statelake.state_core.formats.rewriting.kryo_upgrade import (
    COLLECTIONS,
    ElementClasses,
    collection_of,
    declared_collection,
    find_collections,
    for_flink_2,
    targets_in,
    upgrade_keys,
    upgrade_rows,
)
from statelake.state_core.formats.writing.unified_encode import StateRows
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.kryo.decoding import declared_version
from statelake.state_core.serializers.kryo.snapshot import LACKED, MARK, KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from statelake.state_core.serializers.scala.flinkx_parts import FLINKX, is_older, renewed

NAME = KryoSerializerSnapshot.java_class.encode()
LATER = "Flink 2 wrote it"
STOPS = "as it is, Flink 2 restores nothing of the operator: drop the state or the operator"
IN_FLIGHT = "records in flight"
UNKNOWN = "no snapshot says whether they are Kryo's: export with --drop-channel-state"
AS_BYTES = "not all of its entries are found: take a savepoint in canonical format"
FIRST_OF_FLINK_2 = 5  # the version of `_metadata`
_AGAIN = (
    "a serializer's snapshot of an old Flink, which Flink 2 does not have: restore the"
    " savepoint in Flink 1.20, and take another one"
)
# classes of snapshots that Flink 2 lacks, with what to do
GONE = {
    b"org.apache.flink.api.scala.": "a type of Flink's Scala API, which Flink 2 does not have:"
    " migrate it to another type first",
    b"org.apache.flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction$": "state of an old"
    " sink, which Flink 2 does not have: drop its operator, once its transactions are committed",
    **{
        b"org.apache.flink." + name: _AGAIN
        for name in (
            b"api.common.typeutils.base.GenericArraySerializerConfigSnapshot",
            b"api.java.typeutils.runtime.EitherSerializerSnapshot",
            b"cep.nfa.NFA$", b"cep.nfa.SharedBuffer$", b"cep.nfa.sharedbuffer.SharedBufferNode$",
            b"formats.avro.typeutils.AvroSerializer$",
        )
    },
}  # fmt: skip


@dataclass(frozen=True)
class Upgraded:
    """The upgrade of a state with Kryo in it.

    Attributes:
        operator: The operator's uid or id.
        state: The state.
        entries: The state's entries.
        left: Why it stays as Flink 1 wrote it; empty if it is rewritten.
        types: The types of collections by Kryo for which Flink 2 has serializers of its own, as
            they were declared, or found in the values; by their paths.
        meta_info: Its meta info for Flink 2; empty if it stays.
        table: Its table in the lake.
        stops: Whether Flink 2 lacks a class that its snapshots name, so that it restores no other
            state of the operator, either.
    """

    JSON = ("*", "outcome")

    operator: str
    state: str
    entries: int
    left: str = ""
    types: dict[str, str] = field(default_factory=dict)
    meta_info: bytes = field(default=b"", repr=False)
    table: str = field(default="", repr=False)
    stops: bool = field(default=False, repr=False)

    @property
    def label(self) -> str:
        """`operator/state`."""
        return f"{self.operator}/{self.state}"

    @property
    def outcome(self) -> str:
        """How its values are written afterwards, in words."""
        return "as it was" if self.left else "for Flink 2"

    @property
    def words(self) -> str:
        """Why it stays, or else its types."""
        return self.left or "; ".join(
            f"{path or 'value'}: {kind}" for path, kind in self.types.items()
        )

    @property
    def place(self) -> tuple[str, str]:
        """Its table, and its name there: an operator may have two states of one name."""
        return self.table, self.state

    def leave(self, error: StateError) -> Upgraded:
        """Return it as that of a state which stays, and why."""
        return self.left_for(str(error).removeprefix(f"state {self.state!r}, "))

    def left_for(self, why: str) -> Upgraded:
        """Return it as that of a state which stays."""
        left = f"{why}; {STOPS}" if self.stops else why
        return replace(self, left=left, types={}, meta_info=b"")


@dataclass(frozen=True)
class NewTypes:
    """The known types of the new job.

    Attributes:
        collections: Types of collections, by `OPERATOR/STATE.PATH`, such as `List<String>`.
        like: A snapshot of the new job, in Flink 2; None without one.
    """

    collections: Mapping[str, str] = field(default_factory=dict)
    like: Snapshot | None = None

    def state_like(self, operator: OperatorRecord, state: AnyState) -> bytes:
        """Return the meta info of the same state in `like`; empty if it has none."""
        for other in () if self.like is None else self.like.operators:
            if other.operator_id != operator.operator_id:
                continue
            keyed = {stored.name: stored.meta_info for stored in other.keyed_states}
            others = {stored.name: stored.meta_info for stored in other.operator_states}
            return (keyed if isinstance(state, StateRecord) else others).get(state.name, b"")
        return b""


def new_types(
    to_flink: str, collections: Sequence[str], like: str | os.PathLike[str] | None
) -> NewTypes:
    """Return what is known of the new job's types, as a user says it.

    Args:
        to_flink: The Flink that is to restore the snapshot.
        collections: `OPERATOR/STATE.FIELD=List<String>`, each.
        like: A savepoint of the new job; None without one.

    Raises:
        EncodeError: It is not of Flink 2, or a collection can't be understood.
        SnapshotError: The savepoint can't be opened.
    """
    if to_flink.split(".", maxsplit=1)[0] != "2":
        raise EncodeError(
            f"Flink {to_flink}",
            remedy="an upgrade is to Flink 2, such as 2.3: within Flink 1, and from 2 on, Flink"
            " restores older snapshots itself",
        )
    pairs = [each.partition("=") for each in collections]
    for name, equals, kind in pairs:
        if not equals or "/" not in name:
            raise EncodeError(
                f"--collection {name}{equals}{kind}",
                remedy="write OPERATOR/STATE.FIELD=List<String>",
            )
    kinds = {name.strip(): kind.strip() for name, _, kind in pairs}
    return NewTypes(kinds, _of_flink_2(open_snapshot(like)) if like else None)


def _of_flink_2(like: Snapshot) -> Snapshot:
    """Return a savepoint of the new job, unless Flink 1 wrote it.

    Raises:
        EncodeError: Flink 1 wrote it, so that it does not have the new types.
    """
    metas = [state.meta_info for each in like.operators for state in each.keyed_states]
    metas += [state.meta_info for each in like.operators for state in each.operator_states]
    if like.metadata_version < FIRST_OF_FLINK_2 and not any(MARK in each for each in metas):
        raise EncodeError(
            "it is of Flink 1, and has the old types",
            place=like.location,
            remedy="take a savepoint of the new job in Flink 2, also without data",
        )
    return like


@dataclass(frozen=True)
class KryoUpgrade(Transform):
    """Rewrite values with Kryo in them as Flink 2 writes them.

    Attributes:
        name: The state, which may share its table with others.
        before: The state's meta info as Flink 1 wrote it.
        after: That for Flink 2.
        plain: Whether the table is written without the users' decoders of now.
    """

    keeps_count = True

    name: str
    before: bytes
    after: bytes
    plain: bool

    def apply(self, rows: Rows) -> Rows:
        """Rewrite the values of the state, and parts of its keys."""
        if rows.name != self.name:
            return rows
        if not is_queue(self.before):
            before, after = value_type(self.before), value_type(self.after)
            rows = upgrade_rows(rows, before, after, plain=self.plain)
        old, new = key_parts(self.before), key_parts(self.after)
        return cast("Rows", upgrade_keys(rows, old, new, plain=self.plain))


def plan_kryo_upgrade(
    lake: Catalog,
    record: SnapshotRecord,
    new: NewTypes | None = None,
    *,
    is_made: bool = False,
) -> list[Upgraded]:
    """Return the planned upgrade of each state of a snapshot that has Kryo in it.

    All values of these states are read, and written for a try.

    Args:
        lake: The lake.
        record: The snapshot.
        new: What is known of the new job's types.
        is_made: Whether an upgrade with these types made it, so that it has no collections by
            Kryo where it had some.

    Raises:
        NotFoundError: A declared collection is not there.
        LakeError: A file can't be read.
    """
    return _tried(lake, record, _planned_first(lake, record, new or NewTypes(), is_made=is_made))


def _planned_first(
    lake: Catalog, record: SnapshotRecord, new: NewTypes, *, is_made: bool = False
) -> list[Upgraded]:
    """Return the plan, for which all values are read; errors as in `plan_kryo_upgrade`."""
    known: set[str] = set()
    plan = [
        _planned(lake, record, operator, state, new, known)
        for operator in record.operators
        for state in operator.all_states
        if NAME in state.meta_info
        or _has_kryo_keys(operator, state)
        or _gone(operator, state)
        or _is_of_older_scala(state)
        or _has_older_keys(operator, state)
    ]
    missing = sorted(set(new.collections) - known)
    if missing and not is_made:
        raise NotFoundError(
            f"no collection by Kryo is at {', '.join(missing)}",
            place=f"snapshot {record.snapshot_id!r}",
            remedy=f"there are: {', '.join(sorted(known)) or 'none'}",
        )
    labels = {operator.operator_id: operator.label for operator in record.operators}

    def beside(what: str, why: str, has_state: Callable[[SubtaskState], object]) -> list[Upgraded]:
        return [
            Upgraded(labels.get(each.operator_id, each.operator_id), what, 0, why)
            for each in unmanaged_metadata(record).operators
            if any(map(has_state, (each.subtasks or {}).values()))
        ]

    if record.metadata_version < FIRST_OF_FLINK_2:
        plan += beside(KEYED, AS_BYTES, lambda subtask: subtask.managed_keyed)
    if all(upgrade.left == LATER for upgrade in plan):
        return plan
    return plan + beside(IN_FLIGHT, UNKNOWN, lambda subtask: subtask.inputs or subtask.outputs)


def _planned(
    lake: Catalog,
    record: SnapshotRecord,
    operator: OperatorRecord,
    state: AnyState,
    new: NewTypes,
    known: set[str],
) -> Upgraded:
    """Return the upgrade of a state, and add the names of its collections to `known`."""
    gone = _gone(operator, state)
    planned = Upgraded(
        operator.label, state.name, state.entries, table=state.table,
        stops=bool(gone) or _names(LACKED, operator, state),
    )  # fmt: skip
    left = planned.left_for
    timers = is_queue(state.meta_info)
    places = {} if timers else kryo_places(value_type(state.meta_info))
    collections = {
        path: ElementClasses(kryo.type_class)
        for path, kryo in places.items()
        if kryo.type_class in COLLECTIONS
    }
    label = f"{operator.label}/{state.name}"
    known |= {_named(label, path) for path in collections}
    if gone:
        return left(gone)
    if _has_kryo_keys(operator, state):
        return left(
            "Kryo is in its keys, and entries are found by the bytes of their keys: run the new"
            " job with keys of another type, and bootstrap this state"
        )
    if _has_older_keys(operator, state):
        return left(
            "its keys have snapshots of flink-scala-api before 1.2.7, which it does not read since"
            " 2.2.3: run the job with 1.2.9 to 2.2.2, and take another savepoint"
        )
    keys = key_parts(state.meta_info)
    in_keys = [kryo for snapshot in keys.values() for kryo in kryo_places(snapshot).values()]
    kryo = [*places.values(), *in_keys]
    if state.meta_info.count(NAME) > len(kryo):
        return left("Kryo is in a type whose parts are not known")
    if any(each.type_class in COLLECTIONS for each in in_keys):
        return left(
            "a collection by Kryo is in namespaces or in keys of a map, and its elements' types are"
            " not known"
        )
    if kryo and _is_of_flink_2(record, kryo):
        return left(LATER)
    try:
        new_keys = {name: for_flink_2(snapshot, {}) for name, snapshot in keys.items()}
        for rows in _rows_of(lake, operator, state):
            if not timers:
                find_collections(rows, value_type(state.meta_info), collections)
            upgrade_keys(rows, keys, new_keys, plain=True)
        after = state.meta_info
        types: dict[str, str] = {}
        if not timers:
            before = renewed(value_type(after))
            targets, types = _targets(label, state, operator, before, places, collections, new)
            after = with_value_bytes(after, for_flink_2(before, targets))
        if in_keys:
            after = with_key_parts(after, new_keys)
    except LakeError:
        raise
    except StateError as error:
        return planned.leave(error)
    return replace(planned, types=types, meta_info=after)


def _targets(
    label: str,
    state: AnyState,
    operator: OperatorRecord,
    before: TypeSerializerSnapshot,
    places: Mapping[str, KryoSerializerSnapshot],
    collections: Mapping[str, ElementClasses],
    new: NewTypes,
) -> tuple[dict[str, TypeSerializerSnapshot], dict[str, str]]:
    """Return what becomes of parts by Kryo, by their paths, and the types of collections.

    Raises:
        EncodeError: Nobody knows the type of a collection's elements.
    """
    like = new.state_like(operator, state)
    targets = targets_in(before, value_type(like)) if like else {}
    types = {path: "as in the new job" for path in collections if path in targets}
    for path, classes in collections.items():
        given = new.collections.get(_named(label, path))
        if path in targets and given is None:
            continue
        declared = classes.declared if given is None else declared_collection(
            classes.java_class, given
        )  # fmt: skip
        if declared is None:
            name = classes.java_class.rpartition(".")[2]
            kinds = sorted({each.rpartition(".")[2] for part in classes.parts for each in part})
            raise EncodeError(
                f"no value tells the type of the elements of the {name}"
                f" {path or 'itself'}" + (f", which has {', '.join(kinds[:5])}" if kinds else ""),
                remedy=f"say it, --collection '{_named(label, path)}={name}<...>', or name a"
                " savepoint of the new job, --like",
            )
        classes.check(declared)
        targets[path] = collection_of(places[path], declared)
        types[path] = str(declared)
    return targets, types


def _named(label: str, path: str) -> str:
    return f"{label}.{path}" if path else label


def _is_of_flink_2(record: SnapshotRecord, places: Iterable[KryoSerializerSnapshot]) -> bool:
    """Return whether Flink 2 wrote all parts by Kryo."""
    declared = declared_version()
    general = declared or (
        KryoVersion.FLINK_2 if record.metadata_version >= FIRST_OF_FLINK_2 else KryoVersion.FLINK_1
    )
    return all((kryo.kryo or general) is KryoVersion.FLINK_2 for kryo in places)


def _rows_of(
    lake: Catalog, operator: OperatorRecord, state: AnyState
) -> Iterator[StateRows | ElementRows]:
    """Yield the rows of a state, file by file."""
    layout = layout_of(lake, operator, table := operator.table_of(state))
    for piece in pieces_of(table):
        for rows in layout.read(piece):
            if rows.name == state.name:
                yield rows


def upgrade_kryo(
    child: ChildSnapshot, *, new: NewTypes | None = None, partly: bool = False
) -> tuple[SnapshotRecord, list[Upgraded]]:
    """Register a new snapshot whose values of Kryo are as Flink 2 writes them.

    Args:
        child: The new snapshot; its parent is one of Flink 1.
        new: What is known of the new job's types.
        partly: Whether to do so if some states stay as Flink 1 wrote them.

    Returns:
        The new snapshot, or the old one if there is nothing to rewrite, or not all of it can be;
        and the upgrade of each state with Kryo in it.

    Raises:
        ConflictError: The id is taken.
        StateError: The snapshot can't be made; nothing was registered.
    """
    lake, record = child.lake, child.parent_record
    plan = _planned_first(lake, record, new or NewTypes())

    def made(plan: list[Upgraded]) -> SnapshotRecord | None:
        """Return the new snapshot; None if there is nothing to make of the plan."""
        states = {each.place: each for each in plan if not each.left}
        if not states or not (partly or all(each.left in ("", LATER) for each in plan)):
            return None
        paths = list(dict.fromkeys(table for table, _ in states))
        return derive(child, record, _Upgrade(lake, states), paths=paths).record

    try:
        done = made(plan)
    except LakeError:
        raise
    except StateError:
        tried = _tried(lake, record, plan)
        if tried == plan:
            raise
        plan, done = tried, made(tried)
    else:
        plan = plan if done else _tried(lake, record, plan)
    return done or record, plan


def _tried(lake: Catalog, record: SnapshotRecord, plan: list[Upgraded]) -> list[Upgraded]:
    """Return the plan after a try: a state with a value that Flink 2 has no form for is left.

    Raises:
        LakeError: A file can't be read.
    """
    states = {
        (state.table, state.name): (operator, state)
        for operator in record.operators
        for state in operator.all_states
    }
    return [each if each.left else _try(lake, *states[each.place], each) for each in plan]


def _try(lake: Catalog, operator: OperatorRecord, state: AnyState, planned: Upgraded) -> Upgraded:
    """Return the upgrade of a state, or why it is left."""
    layout = layout_of(lake, operator, operator.table_of(state))
    change = KryoUpgrade(state.name, state.meta_info, planned.meta_info, layout.plain)
    try:
        refuse_disagreeing(operator, state)
        for rows in _rows_of(lake, operator, state):
            change.apply(cast("Any", rows))
    except LakeError:
        raise
    except StateError as error:
        return planned.leave(error)
    return planned


class _Upgrade(Derivation):
    """The upgrade of some states, which are given by table and name."""

    origin = "migrate"

    def __init__(self, lake: Catalog, states: Mapping[tuple[str, str], Upgraded]) -> None:
        self.lake = lake
        self.states = states

    def change(self, operator: OperatorRecord, table: TableRecord) -> TableChange | None:
        """Return the change of a table if its state is upgraded."""
        layout = layout_of(self.lake, operator, table)
        changes = []
        for state in operator.states_in(table):
            planned = self.states.get((state.table, state.name))
            if planned is not None:
                refuse_disagreeing(operator, state)
                after = planned.meta_info
                layout = layout.with_meta_info(after)
                changes.append(KryoUpgrade(state.name, state.meta_info, after, layout.plain))
        return TableChange(layout, pieces_of(table), changes) if changes else None


def _gone(operator: OperatorRecord, state: AnyState) -> str:
    """Return why Flink 2 lacks a serializer of a state; empty if it has all of them."""
    return next((why for name, why in GONE.items() if _names([name], operator, state)), "")


def _names(classes: Iterable[bytes], operator: OperatorRecord, state: AnyState) -> bool:
    """Return whether a state's snapshots name one of some classes."""
    keys = operator.key_serializer if isinstance(state, StateRecord) else b""
    return any(name in state.meta_info + keys for name in classes)


def _is_of_older_scala(state: AnyState) -> bool:
    """Return whether the values' snapshots are of flink-scala-api before 1.2.7."""
    named = FLINKX.encode() in state.meta_info and not is_queue(state.meta_info)
    return named and is_older(value_type(state.meta_info))


def _has_older_keys(operator: OperatorRecord, state: AnyState) -> bool:
    """Return whether the snapshots of what entries are found by are of before 1.2.7."""
    keys = operator.key_serializer if isinstance(state, StateRecord) else b""
    if FLINKX.encode() not in state.meta_info + keys:
        return False
    parts = list(key_parts(state.meta_info).values())
    return any(map(is_older, [*parts, parse_key_serializer(keys).snapshot] if keys else parts))


def _has_kryo_keys(operator: OperatorRecord, state: AnyState) -> bool:
    return isinstance(state, StateRecord) and NAME in operator.key_serializer
