"""The states of a snapshot, in the form for a comparison with declarations.

They come from a savepoint or from the lake: both have the meta infos that Flink wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from statelake.state_core.formats.layout.meta_info import (
    BackendStateType,
    StateMetaInfo,
    parse_key_serializer,
    parse_state_meta_info,
)
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot

_KEYED = (BackendStateType.KEY_VALUE, BackendStateType.KEY_VALUE_V2)


@dataclass(frozen=True)
class StoredState:
    """A state that a snapshot holds.

    Attributes:
        meta_info: Its meta info, as Flink wrote it.
        elements: For an operator state: elements of a list, or copies of a broadcast state.
        state_bytes: Their bytes, as stored.
        disagreeing: Subtasks whose copy of a broadcast state differs from the first one.
    """

    meta_info: bytes
    elements: int = 0
    state_bytes: int = 0
    disagreeing: tuple[int, ...] = ()

    @cached_property
    def meta(self) -> StateMetaInfo:
        """The parsed meta info."""
        return parse_state_meta_info(self.meta_info)

    @property
    def keyed(self) -> bool:
        """Return whether it is keyed state, and not a queue of timers."""
        return self.meta.kind in _KEYED

    @property
    def form(self) -> str:
        """Form of the state, as in declarations: `keyed value`, `UNION list`, `broadcast`."""
        return self.meta.form


@dataclass(frozen=True)
class HeldOperator:
    """An operator that a snapshot holds.

    Attributes:
        operator_id: 32 hex digits.
        label: Its uid, or otherwise its id.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.
        key_serializer: The snapshot of its key serializer, as Flink wrote it; empty without keyed
            state.
        states: All its states, timers included.
    """

    operator_id: str
    label: str
    parallelism: int
    max_parallelism: int
    key_serializer: bytes = b""
    states: tuple[StoredState, ...] = field(default=(), repr=False)

    @property
    def key(self) -> TypeSerializerSnapshot | None:
        """The snapshot of its key serializer."""
        if not self.key_serializer:
            return None
        return parse_key_serializer(self.key_serializer).snapshot


def held_operators(operators: Iterable[Operator]) -> list[HeldOperator]:
    """Return the operators of a snapshot; operator states of a savepoint are read to be counted."""
    return [_held(operator) for operator in operators]


def _held(operator: Operator) -> HeldOperator:
    states = [StoredState(keyed_state.meta_info) for keyed_state in operator.keyed_states]
    states += [
        StoredState(each.meta_info, each.elements, each.state_bytes, tuple(each.disagreeing()))
        for each in operator.operator_states
    ]
    return HeldOperator(
        operator.operator_id,
        operator.label,
        operator.parallelism,
        operator.max_parallelism,
        operator.key_serializer,
        tuple(states),
    )
