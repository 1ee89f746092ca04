"""States as a snapshot of a declared job would hold them, and what a restore says of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from statelake import NewKeyedState, NewOperatorState
from statelake.state_core.files.wire import DataOutput
from statelake.state_core.formats.layout.meta_info import (
    StateMetaInfo,
    serializer_entry,
    write_state_meta_info,
)
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.runtime.declarations import (
    BroadcastStateDeclaration,
    JobDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    OperatorDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.declarations.findings import Finding
from statelake.state_core.runtime.legality.restore_checks import check_restore
from statelake.state_core.runtime.legality.stored_states import HeldOperator, StoredState
from statelake.state_core.serializers.type_spec import parse_type

__all__ = [
    "ALL",
    "check",
    "declared",
    "encoded",
    "held",
    "held_state",
    "moving",
    "said",
    "with_ttl",
]

SPLIT, UNION = RedistributionStrategy
of = StateDeclarations


def moving(name: str, type_: Any, strategy: RedistributionStrategy) -> ListStateDeclaration:
    """A list that is redistributed."""
    return of.list_state_builder(name, type_).redistribute_by(strategy).build()


def with_ttl(declared: StateDeclaration) -> StateDeclaration:
    """The same with time to live."""
    return of.value_state_builder(declared.name, "Long").with_state_ttl(timedelta(hours=1)).build()


def encoded(meta: StateMetaInfo) -> bytes:
    """As it stands in a file."""
    out = DataOutput()
    write_state_meta_info(meta, out)
    return out.to_bytes()


def held_state(declared: StateDeclaration, **more: Any) -> StoredState:
    """What a job with this declaration leaves."""
    if isinstance(declared, BroadcastStateDeclaration):
        new = NewOperatorState(
            declared.name, (), "broadcast", declared.value_type.spec, declared.key_type.spec
        )
        return StoredState(encoded(new.meta_info()), **more)
    if isinstance(declared, ListStateDeclaration) and declared.mode is not RedistributionMode.NONE:
        mode = declared.redistribution_strategy.value.lower()
        return StoredState(
            encoded(NewOperatorState(declared.name, (), mode, declared.type.spec).meta_info()),
            **more,
        )
    mapped = isinstance(declared, MapStateDeclaration)
    kind, value = declared.kind, getattr(declared, "value_type" if mapped else "type", None)
    keyed = NewKeyedState(
        declared.name,
        (),
        kind,
        (value or declared.accumulator_type).spec,  # type: ignore[attr-defined]
        declared.key_type.spec if isinstance(declared, MapStateDeclaration) else "",
        with_ttl=declared.ttl is not None,
    )
    return StoredState(encoded(keyed.meta_info(parse_type("String"))), **more)


def held(*states: StoredState, uid: str = "u", key: str = "String", **more: Any) -> HeldOperator:
    """An operator of two subtasks and 128 key groups."""
    serializer = serializer_entry(parse_type(key)).encoded if key else b""
    given = {"parallelism": 2, "max_parallelism": 128} | more
    return HeldOperator(
        operator_id_of_uid(uid), uid, key_serializer=serializer, states=states, **given
    )


def declared(
    *states: StateDeclaration,
    inputs: Any = (StreamKind.BROADCAST, StreamKind.KEYED),
    key: Any = str,
    **more: Any,
) -> OperatorDeclaration:
    """An operator that could have any state."""
    return declare_operator("u", "Function", inputs, states, key=key, **more)


def check(operator: OperatorDeclaration, *snapshot: HeldOperator, **more: Any) -> list[Finding]:
    """What is said of a job of one operator."""
    return check_restore(JobDeclaration("j", (operator,)), snapshot, **more)


def said(found: list[Finding]) -> list[tuple[str, str, str]]:
    """Severity, rule and state of each."""
    return [(finding.severity.value, finding.rule, finding.state) for finding in found]


ALL: list[StateDeclaration] = [
    of.value_state("value", "Tuple2<String, Long>"),
    of.list_state("list", int),
    of.map_state("map", str, int),
    of.reducing_state("reducing", int, "operator:add"),
    of.aggregating_state("aggregating", "a:b", "Row<Long, Double>"),
    moving("split", str, SPLIT),
    moving("union", str, UNION),
    of.broadcast_state("broadcast", str, int),
    with_ttl(of.value_state("ttl", int)),
]
