"""Builders of declarations, and shortcuts to them.

::

    from statelake.state_core.runtime.declarations import RedistributionStrategy, StateDeclarations

    COUNT = StateDeclarations.value_state("count", int)
    OFFSETS = (
        StateDeclarations.list_state_builder("offsets", "Tuple2<String, Long>")
        .redistribute_by(RedistributionStrategy.UNION)
        .build()
    )
    RULES = StateDeclarations.map_state_builder("rules", str, Rule).broadcast().build()

A builder is a value: each of its methods returns another one.

Source: `org.apache.flink.api.common.state.StateDeclarations` (FLIP-433). The functions of reducing
and aggregating states come after the type, as in Flink 2.3; the aggregating state's types are taken
from the function's hints if they are left out, as in the FLIP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar, get_type_hints

from typing_extensions import Self

from statelake.state_core.errors import DeclarationError
from statelake.state_core.runtime.declarations.functions import FunctionReference
from statelake.state_core.runtime.declarations.states import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    ReducingStateDeclaration,
    StateDeclaration,
    StateTtlConfig,
    ValueStateDeclaration,
)
from statelake.state_core.runtime.declarations.type_descriptors import TypeDescriptor, TypeLike

__all__ = ["ListStateDeclarationBuilder", "StateDeclarationBuilder", "StateDeclarations"]

Declared = TypeVar("Declared", bound=StateDeclaration)
Function: TypeAlias = "Callable[..., Any] | FunctionReference | str"


@dataclass(frozen=True)
class StateDeclarationBuilder(Generic[Declared]):
    """A builder of a declaration.

    Attributes:
        declared: The declaration as built so far.
    """

    declared: Declared

    def with_state_ttl(self, ttl: StateTtlConfig | timedelta) -> Self:
        """Let values expire; a duration alone takes Flink's defaults.

        Raises:
            DeclarationError: The mode of the state is not `NONE`.
        """
        if isinstance(ttl, timedelta):
            ttl = StateTtlConfig(ttl // timedelta(milliseconds=1))
        return replace(self, declared=replace(self.declared, ttl=ttl))

    def build(self) -> Declared:
        """Return the declaration."""
        return self.declared


@dataclass(frozen=True)
class ListStateDeclarationBuilder(StateDeclarationBuilder[ListStateDeclaration]):
    """A builder of a list state's declaration."""

    def redistribute_by(self, strategy: RedistributionStrategy) -> ListStateDeclarationBuilder:
        """Let the list be redistributed, with this strategy."""
        mode = RedistributionMode.REDISTRIBUTABLE
        declaration = replace(self.declared, mode=mode, redistribution_strategy=strategy)
        return replace(self, declared=declaration)

    def redistribute_with_mode(self, mode: RedistributionMode) -> ListStateDeclarationBuilder:
        """Set whether the list is redistributed; the strategy is `SPLIT` unless set otherwise."""
        return replace(self, declared=replace(self.declared, mode=mode))


@dataclass(frozen=True)
class MapStateDeclarationBuilder(StateDeclarationBuilder[MapStateDeclaration]):
    """A builder of a map state's declaration."""

    def broadcast(self) -> StateDeclarationBuilder[BroadcastStateDeclaration]:
        """Make it a broadcast state, of which every partition has the same copy."""
        state = self.declared
        return StateDeclarationBuilder(
            BroadcastStateDeclaration(state.name, state.key_type, state.value_type, ttl=state.ttl)
        )

    def build_broadcast(self) -> BroadcastStateDeclaration:
        """Return the declaration of a broadcast state: Flink 2.3's name for both steps."""
        return self.broadcast().build()


class StateDeclarations:
    """Factories of declarations; a type is text or a Python type hint: see `type_descriptors`."""

    @staticmethod
    def value_state_builder(
        name: str, type_: TypeLike
    ) -> StateDeclarationBuilder[ValueStateDeclaration]:
        """Return a builder of a value state."""
        return StateDeclarationBuilder(ValueStateDeclaration(name, _type(name, type_)))

    @staticmethod
    def list_state_builder(name: str, type_: TypeLike) -> ListStateDeclarationBuilder:
        """Return a builder of a list state with elements of this type."""
        return ListStateDeclarationBuilder(ListStateDeclaration(name, _type(name, type_)))

    @staticmethod
    def map_state_builder(
        name: str, key_type: TypeLike, value_type: TypeLike
    ) -> MapStateDeclarationBuilder:
        """Return a builder of a map state."""
        key, value = _type(name, key_type, "key"), _type(name, value_type, "value")
        return MapStateDeclarationBuilder(MapStateDeclaration(name, key, value))

    @staticmethod
    def reducing_state_builder(
        name: str, type_: TypeLike, function: Function
    ) -> StateDeclarationBuilder[ReducingStateDeclaration]:
        """Return a builder of a reducing state, whose function combines two values."""
        reference = FunctionReference.of(function, f"state {name!r}")
        return StateDeclarationBuilder(
            ReducingStateDeclaration(name, _type(name, type_), reference)
        )

    @staticmethod
    def aggregating_state_builder(
        name: str,
        function: Function,
        accumulator_type: TypeLike | None = None,
        *,
        in_type: TypeLike | None = None,
        out_type: TypeLike | None = None,
    ) -> StateDeclarationBuilder[AggregatingStateDeclaration]:
        """Return a builder of an aggregating state, whose accumulator an `AggregateFunction` fills.

        Args:
            name: The name of the state.
            function: The class, or `module:name` of a class or an instance.
            accumulator_type: The type that is stored; by default what `create_accumulator` returns.
            in_type: The type of added values; by default what `add` takes.
            out_type: The type of the result; by default what `get_result` returns.

        Raises:
            DeclarationError: The type of the accumulator is not known.
        """
        reference = FunctionReference.of(function, f"state {name!r}")
        hinted = _types_of(function)
        stored = hinted.get("accumulator") if accumulator_type is None else accumulator_type
        if stored is None:
            raise DeclarationError(
                f"{reference} does not say the type of its accumulator",
                place=f"state {name!r}",
                remedy="pass accumulator_type, or annotate what create_accumulator returns",
            )
        wanted = hinted.get("in") if in_type is None else in_type
        given = hinted.get("out") if out_type is None else out_type
        return StateDeclarationBuilder(
            AggregatingStateDeclaration(
                name,
                _type(name, stored, "accumulator"),
                reference,
                None if wanted is None else _type(name, wanted, "input"),
                None if given is None else _type(name, given, "output"),
            )
        )

    @staticmethod
    def broadcast_state_builder(
        name: str, key_type: TypeLike, value_type: TypeLike
    ) -> StateDeclarationBuilder[BroadcastStateDeclaration]:
        """Return a builder of a broadcast state, of which every partition has a copy."""
        return StateDeclarations.map_state_builder(name, key_type, value_type).broadcast()

    @staticmethod
    def value_state(name: str, type_: TypeLike) -> ValueStateDeclaration:
        """Return the declaration of a value state."""
        return StateDeclarations.value_state_builder(name, type_).build()

    @staticmethod
    def list_state(name: str, type_: TypeLike) -> ListStateDeclaration:
        """Return the declaration of a list state that is not redistributed."""
        return StateDeclarations.list_state_builder(name, type_).build()

    @staticmethod
    def map_state(name: str, key_type: TypeLike, value_type: TypeLike) -> MapStateDeclaration:
        """Return the declaration of a map state."""
        return StateDeclarations.map_state_builder(name, key_type, value_type).build()

    @staticmethod
    def reducing_state(name: str, type_: TypeLike, function: Function) -> ReducingStateDeclaration:
        """Return the declaration of a reducing state, whose function combines two values."""
        return StateDeclarations.reducing_state_builder(name, type_, function).build()

    @staticmethod
    def aggregating_state(
        name: str, function: Function, accumulator_type: TypeLike | None = None
    ) -> AggregatingStateDeclaration:
        """Return the declaration of an aggregating state."""
        return StateDeclarations.aggregating_state_builder(name, function, accumulator_type).build()

    @staticmethod
    def broadcast_state(
        name: str, key_type: TypeLike, value_type: TypeLike
    ) -> BroadcastStateDeclaration:
        """Return the declaration of a broadcast state."""
        return StateDeclarations.broadcast_state_builder(name, key_type, value_type).build()


def _type(name: str, given: TypeLike, what: str = "") -> TypeDescriptor:
    return TypeDescriptor.of(given, f"state {name!r}{what and f', {what}'}")


def _types_of(function: Any) -> dict[str, Any]:
    """Return the types in the hints of an aggregate function's methods."""
    types: dict[str, Any] = {}
    places = {"accumulator": "create_accumulator", "in": "add", "out": "get_result"}
    for role, name in places.items():
        try:
            hints = get_type_hints(getattr(function, name, None), include_extras=True)
        except (TypeError, NameError):
            continue
        returned = hints.pop("return", None)
        if role == "in":
            types[role] = next(iter(hints.values()), None)
        else:
            types[role] = returned
    # `Any` has no information
    return {role: hint for role, hint in types.items() if hint is not Any}
