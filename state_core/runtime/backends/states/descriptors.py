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
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """The time to live of values, by the backend's clock.

    Attributes:
        millis: The milliseconds after a value's last access.
        on_read: Whether reading renews the time too (`OnReadAndWrite`).
        return_expired: Whether expired values are returned until they are removed
            (`ReturnExpiredIfNotCleanedUp`).
    """

    millis: int
    on_read: bool = False
    return_expired: bool = False

    def expired(self, last_access: int, now: int) -> bool:
        """Return whether a value with that time of last access has expired."""
        return last_access + self.millis <= now


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
    ttl: TimeToLive | None = None
    reduce: Callable[[Any, Any], Any] | None = None
    aggregate: AggregateFunction | None = None

    def __post_init__(self) -> None:
        needs = {StateKind.REDUCING: self.reduce, StateKind.AGGREGATING: self.aggregate}
        if self.kind is StateKind.TIMERS or needs.get(self.kind, self) is None:
            raise DeclarationError(
                f"{self.kind.value} state without its function"
                if self.kind in needs
                else "timers, which are no state of a user's",
                place=f"state {self.name!r}",
            )

    @classmethod
    def from_declaration(cls, declaration: Any) -> StateDescriptor:
        """Return the descriptor of a declared keyed state.

        Args:
            declaration: A declaration of `state_core.runtime.declarations`, of mode `NONE`.

        Raises:
            DeclarationError: The declaration is not of keyed state, or its function can't be found.
        """
        kind = declaration.kind
        if declaration.redistribution_mode.value != "NONE":
            raise DeclarationError(
                f"a {kind} state that is redistributed is not keyed state",
                place=f"state {declaration.name!r}",
            )
        types = {
            "map": ("value_type", "key_type"),
            "aggregating": ("accumulator_type", ""),
        }.get(kind, ("type", ""))
        value, user_key = (
            getattr(declaration, type_).snapshot() if type_ else "" for type_ in types
        )
        ttl = None
        if declaration.ttl is not None:
            ttl = TimeToLive(
                declaration.ttl.millis,
                declaration.ttl.update_type.name == "ON_READ_AND_WRITE",
                declaration.ttl.visibility.name == "RETURN_EXPIRED_IF_NOT_CLEANED_UP",
            )
        reduce = declaration.function.reduce_function() if kind == "reducing" else None
        aggregate = declaration.function.aggregate_function() if kind == "aggregating" else None
        return cls(declaration.name, StateKind(kind), value, user_key, ttl, reduce, aggregate)

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
