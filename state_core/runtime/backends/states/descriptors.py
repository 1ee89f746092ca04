"""Descriptors of states: kind, name, types, functions, and time to live.

In a running job a declaration becomes a descriptor. Its types are text, or snapshots of
serializers; its functions are callables.

Source: `org.apache.flink.api.common.state.StateDescriptor` and its kinds, `StateTtlConfig`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from statelake.state_core.errors import DeclarationError
from statelake.state_core.formats.layout.meta_info import StateMetaInfo
from statelake.state_core.formats.writing.new_states import NewKeyedState, TypeOf
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.runtime.declarations.functions import AggregateFunction
from statelake.state_core.runtime.declarations.states import (
    AggregatingStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    StateTtlConfig,
)
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot


@dataclass(frozen=True)
class StateDescriptor:
    """One keyed state that a function uses.

    Attributes:
        name: The name, unique within the operator.
        kind: The kind; timers have no descriptor.
        value: The type of the value, a list's elements, a map's values, an accumulator.
        user_key: The type of a map's keys.
        ttl: The time to live of values; unlimited by default.
        reduce: The function of a reducing state, which combines two values.
        aggregate: The function of an aggregating state.
    """

    name: str
    kind: StateKind
    value: TypeOf
    user_key: TypeOf = ""
    ttl: StateTtlConfig | None = None
    reduce: Callable[[Any, Any], Any] | None = None
    aggregate: AggregateFunction | None = None

    def __post_init__(self) -> None:
        combines = self.kind in {StateKind.REDUCING, StateKind.AGGREGATING}
        if self.kind is StateKind.TIMERS or (combines and self.function is None):
            raise DeclarationError(
                f"{self.kind.value} state without its function"
                if combines
                else "timers, which are no state of a user's",
                place=f"state {self.name!r}",
            )

    @property
    def function(self) -> Any:
        """The function that combines values; None for kinds without one."""
        return self.reduce if self.kind is StateKind.REDUCING else self.aggregate

    @classmethod
    def from_declaration(cls, declaration: StateDeclaration) -> StateDescriptor:
        """Return the descriptor of a declared keyed state.

        Raises:
            DeclarationError: The declaration is not of keyed state, or its function can't be found.
        """
        state = declaration.new_state()
        if not isinstance(state, NewKeyedState):
            raise DeclarationError(
                f"a {declaration.kind} state that is redistributed is not keyed state",
                place=f"state {declaration.name!r}",
            )
        reduce = aggregate = None
        if isinstance(declaration, ReducingStateDeclaration):
            reduce = declaration.function.reduce_function()
        elif isinstance(declaration, AggregatingStateDeclaration):
            aggregate = declaration.function.aggregate_function()
        kind = StateKind(state.kind)
        return cls(
            state.name, kind, state.value, state.user_key, declaration.ttl, reduce, aggregate
        )

    def meta_info(self, key: TypeSerializerSnapshot, namespace: TypeOf) -> StateMetaInfo:
        """Return the meta info of the state, as in a snapshot.

        Raises:
            EncodeError: A type is missing or invalid.
        """
        new_state = NewKeyedState(
            self.name,
            (),
            self.kind.value,
            self.value,
            self.user_key,
            namespace,
            self.ttl is not None,
        )
        return new_state.meta_info(key)
