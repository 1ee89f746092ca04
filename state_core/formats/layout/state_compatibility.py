"""Check whether a job with declared states would restore from a snapshot's states.

Flink asks each serializer only when the running job first touches its state, which may be hours
after the restore. The same checks are made here before the deploy, state by state, with the
additional rules of the state backends: a key, a namespace and a map state's user key never change,
a state keeps its kind, and a missing operator stops the restore. Operator state is read into memory
with the old serializers, so the key of a broadcast state may be migrated, too.

Source: `StateSerializerProvider`, `RegisteredKeyValueStateBackendMetaInfo`,
`TtlAwareSerializerSnapshot`, `RocksDBKeyedStateBackend.updateRestoredStateMetaInfo`,
`DefaultOperatorStateBackend` (getListState, getBroadcastState), `OperatorStateRestoreOperation`,
`Checkpoints.loadAndValidateCheckpoint`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from statelake.state_core.errors import NotFoundError, did_you_mean
from statelake.state_core.formats.layout.keyed_states import as_key_value
from statelake.state_core.formats.layout.meta_info import (
    KEY_SERIALIZER,
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    UNKEYED,
    VALUE_SERIALIZER,
    BackendStateType,
    SerializerEntry,
    StateMetaInfo,
    parse_key_serializer,
    parse_state_meta_info,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.model.snapshot import Snapshot
from statelake.state_core.printable import JsonFields, Printed, Table
from statelake.state_core.serializers.composite.collections import (
    ListSerializerSnapshot,
    MapSerializerSnapshot,
)
from statelake.state_core.serializers.composite.wrappers import TtlSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    Verdict,
    as_is,
    incompatible,
    migrate,
    without_migration,
    worst_of,
)

UNKNOWN_TYPE = "UNKNOWN"
_OF_ELEMENTS = (ListSerializerSnapshot, MapSerializerSnapshot)
_ID = re.compile("[0-9a-f]{32}", re.ASCII)
_LISTS = "the mode of a list never changes: Flink refuses the state"
_APART = (
    "Flink does not refuse it: the new state begins empty beside the old one, and the next snapshot"
    " has two states of one name, and neither is restored as it was"
)


@dataclass(frozen=True)
class OperatorSchema:
    """The types of an operator's state.

    Attributes:
        label: The operator's uid, or otherwise its id.
        key: The key's serializer; None if it has no keyed state.
        states: Its keyed states by name.
        operator_states: Its lists and broadcast states by name.
        others: Its other state, which only the operator itself can read.
    """

    label: str
    key: TypeSerializerSnapshot | None
    states: Mapping[str, StateMetaInfo] = field(default_factory=dict)
    operator_states: Mapping[str, StateMetaInfo] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    @property
    def operator_id(self) -> str:
        """The id by which Flink finds it; before Flink 2.0 a snapshot has no uids."""
        return self.label if _ID.fullmatch(self.label) else operator_id_of_uid(self.label)

    @property
    def states_text(self) -> str:
        """The states of the operator in words; empty without state."""
        count = len(self.states) + len(self.operator_states)
        return ", ".join([f"{count} states"] * (count > 0) + list(self.others))


@dataclass(frozen=True)
class StateVerdict(JsonFields):
    """One line of the report.

    Attributes:
        operator: The operator's label.
        state: The state's name; empty for the operator as a whole and its key.
        result: The verdict and its reason.
    """

    JSON = ("operator", "state", "verdict=result.verdict.text", "reasons=result.reasons")

    operator: str
    state: str
    result: Compatibility

    @property
    def fault(self) -> bool:
        """Return whether Flink would refuse, or lose the state."""
        return self.result.verdict is Verdict.INCOMPATIBLE


class Verdicts(Printed, list[StateVerdict]):
    """The verdicts on all states of a snapshot."""

    JSON = ("compatible=!faults", "states=.")

    @property
    def faults(self) -> int:
        """The number of states that Flink would refuse, or lose."""
        return sum(each.fault for each in self)

    def table(self, title: str) -> Table:
        """Return them as a table, below a title."""
        rows = [
            (each.operator, each.state or "(key)", each.result.verdict.text,
             list(map(str, each.result.reasons)))
            for each in self
        ]  # fmt: skip
        return Table(title, ("<operator", "<state", "<verdict", "<why"), rows)

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: lines and tables."""
        unknown = sum(each.result.verdict is Verdict.UNKNOWN for each in self)
        yield self.table(f"{len(self)} checked, {self.faults} incompatible, {unknown} unknown")


def operator_schema(
    label: str, key_serializer: bytes, meta_infos: Iterable[bytes], others: Iterable[str] = ()
) -> OperatorSchema:
    """Return the schema from the bytes in a snapshot or in the lake.

    Args:
        label: The operator's label.
        key_serializer: As in `KeyedFile.key_serializer`; empty if there is no keyed state.
        meta_infos: As in `KeyedState.meta_info` and `OperatorState.meta_info`.
        others: Its other state, as in `OperatorSchema`.
    """
    states = [parse_state_meta_info(meta_info) for meta_info in meta_infos]
    unkeyed = {state.name: state for state in states if state.kind in UNKEYED}
    if not key_serializer:
        return OperatorSchema(label, None, {}, unkeyed, tuple(others))
    key = parse_key_serializer(key_serializer).snapshot
    keyed = {state.name: state for state in states if state.kind not in UNKEYED}
    return OperatorSchema(label, key, keyed, unkeyed, tuple(others))


def schemas_of_snapshot(snapshot: Snapshot) -> list[OperatorSchema]:
    """Return the schemas of a savepoint."""
    return [
        operator_schema(
            operator.label,
            operator.key_serializer,
            [s.meta_info for s in operator.keyed_states]
            + [s.meta_info for s in operator.operator_states],
        )
        for operator in snapshot.operators
    ]


def named_operators(
    operators: Sequence[OperatorSchema], names: Sequence[str]
) -> Sequence[OperatorSchema]:
    """Return the operators of these uids or ids; all of them if none is named.

    Raises:
        NotFoundError: There is no such operator.
    """
    wanted, labels = set(names), [each.label for each in operators]
    for name in names:
        if not any(name in (each.label, each.operator_id) for each in operators):
            raise NotFoundError(
                f"no operator {name!r} has state",
                remedy=f"these have: {', '.join(labels) or 'none'}{did_you_mean(name, labels)}",
            )
    return [each for each in operators if not wanted or {each.label, each.operator_id} & wanted]


def check_operators(
    old: Iterable[OperatorSchema], new: Iterable[OperatorSchema], *, allow_missing: bool = False
) -> Verdicts:
    """Return a verdict for every operator and state of the old snapshot and of the new job.

    Args:
        old: The operators of the snapshot.
        new: The operators of the job.
        allow_missing: Whether an operator may be missing (`--allowNonRestoredState`).
    """
    declared = {operator.operator_id: operator for operator in new}
    verdicts = Verdicts()
    for before in old:
        after = declared.get(before.operator_id)
        if after is not None:
            verdicts += _check_keyed(before, after)
            # a list or broadcast state that is no longer declared is restored and kept
            states = before.operator_states, after.operator_states
            verdicts += _check_states(before.label, *states, check_operator_state)
        elif before.states_text:
            verdicts.append(StateVerdict(before.label, "", _missing(before, allow_missing)))
    return verdicts


def _missing(operator: OperatorSchema, allowed: bool) -> Compatibility:
    if allowed:
        return Compatibility(Verdict.COMPATIBLE_AS_IS)
    rule = "the operator is gone, and Flink restores without it only with --allowNonRestoredState"
    return incompatible(operator.states_text, "nothing", rule)


def check_operator_state(old: StateMetaInfo, new: StateMetaInfo) -> Compatibility:
    """Return the worst verdict of mode and serializers for a list or broadcast state.

    Args:
        old: The state as it was written.
        new: The state as the new job declares it.
    """
    if old.form != new.form:
        return incompatible(old.form, new.form, _LISTS if old.kind is new.kind else _APART)
    value = "value" if old.kind is BackendStateType.BROADCAST else "element"
    results = []
    for role, what in ((KEY_SERIALIZER, "key"), (VALUE_SERIALIZER, value)):
        before, after = _held(old, role), _held(new, role)
        if before is not None and after is not None:
            results.append(after.resolve_schema_compatibility(before).under(what))
    return worst_of(results)


def _check_keyed(old: OperatorSchema, new: OperatorSchema) -> list[StateVerdict]:
    if old.key is None or new.key is None:
        return []
    key = without_migration(new.key.resolve_schema_compatibility(old.key), "key")
    states = _check_states(old.label, old.states, new.states, _check_state)
    return [StateVerdict(old.label, "", key.under("key")), *states]


def _check_states(
    operator: str,
    old: Mapping[str, StateMetaInfo],
    new: Mapping[str, StateMetaInfo],
    check: Callable[[StateMetaInfo, StateMetaInfo], Compatibility],
) -> list[StateVerdict]:
    """Return a verdict for each old state; one that is no longer declared stays as it is."""
    return [
        StateVerdict(operator, name, check(before, new[name]) if name in new else as_is())
        for name, before in old.items()
    ]


def _check_state(old: StateMetaInfo, new: StateMetaInfo) -> Compatibility:
    """Return the worst verdict of kind, namespace and value, in either version of registration."""
    kinds = _kind(old), _kind(new)
    if kinds[0] != kinds[1] and UNKNOWN_TYPE not in kinds:
        return incompatible(*kinds, "a state keeps its kind")
    old, new = as_key_value(old), as_key_value(new)
    value = _check_value(_held(old, VALUE_SERIALIZER), _held(new, VALUE_SERIALIZER), kinds[1])
    results = [value.under("timer" if kinds[1] == "TIMERS" else "value")]
    before, after = _held(old, NAMESPACE_SERIALIZER), _held(new, NAMESPACE_SERIALIZER)
    if before is not None and after is not None:
        result = without_migration(after.resolve_schema_compatibility(before), "namespace")
        results.append(result.under("namespace"))
    return worst_of(results)


def _kind(state: StateMetaInfo) -> str:
    if state.kind is BackendStateType.PRIORITY_QUEUE:
        return "TIMERS"
    return state.options.get(KEYED_STATE_TYPE, UNKNOWN_TYPE)


def _held(state: StateMetaInfo, role: str) -> TypeSerializerSnapshot | None:
    entry: SerializerEntry | None = state.serializers.get(role)
    return None if entry is None else entry.snapshot


def _check_value(
    old: TypeSerializerSnapshot | None, new: TypeSerializerSnapshot | None, kind: str
) -> Compatibility:
    """Return the verdict for a value, a list's element, or a map's user key and value."""
    if old is None or new is None:
        return as_is()
    if kind == "TIMERS":
        return without_migration(new.resolve_schema_compatibility(old), "timer")
    if isinstance(old, ListSerializerSnapshot) and isinstance(new, ListSerializerSnapshot):
        return _with_ttl(old.nested[0], new.nested[0]).under("element")
    if (
        kind == "MAP"
        and isinstance(old, MapSerializerSnapshot)
        and isinstance(new, MapSerializerSnapshot)
    ):
        key = new.nested[0].resolve_schema_compatibility(old.nested[0])
        value = _with_ttl(old.nested[1], new.nested[1])
        return worst_of(
            (without_migration(key, "map state's key").under("key"), value.under("value"))
        )
    if isinstance(old, _OF_ELEMENTS) != isinstance(new, _OF_ELEMENTS):
        # Flink looks for the times in the elements, even if the whole list or map has or had TTL
        return incompatible(
            old.type_name, new.type_name, "a list can only follow a list, a map only a map"
        )
    return _with_ttl(old, new)


def _with_ttl(old: TypeSerializerSnapshot, new: TypeSerializerSnapshot) -> Compatibility:
    """Return the verdict for TTL, which may be switched on or off by a migration (since Flink 2.0).

    The TTL of the asynchronous state API can't: Flink recognises only the older class.
    """
    before = old.nested[1] if type(old) is TtlSerializerSnapshot else old
    after = new.nested[1] if type(new) is TtlSerializerSnapshot else new
    if (before is old) == (after is new):
        return new.resolve_schema_compatibility(old)
    result = after.resolve_schema_compatibility(before)
    if not result.usable:
        return result
    forms = ("without time to live", "with time to live")
    off_to_on = before is old
    switched = migrate(forms[not off_to_on], forms[off_to_on], "each value gains or loses its time")
    return worst_of((result, switched))
