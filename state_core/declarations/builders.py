"""How states are declared: builders, and shortcuts to them.

::

    from state_core.declarations import RedistributionStrategy, StateDeclarations

    COUNT = StateDeclarations.value_state("count", int)
    OFFSETS = (
        StateDeclarations.list_state_builder("offsets", "Tuple2<String, Long>")
        .redistribute_by(RedistributionStrategy.UNION)
        .build()
    )
    RULES = StateDeclarations.map_state_builder("rules", str, Rule).broadcast().build()

A builder is a value: each of its methods gives another one.

Source: `org.apache.flink.api.common.state.StateDeclarations` (FLIP-433). The functions of reducing
and aggregating states are given where Flink 2.3 wants them, after the type; the aggregating
state's types are read off the function's hints where they are left out, as the FLIP has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar, get_type_hints

from typing_extensions import Self

from state_core.declarations.functions import FunctionReference
from state_core.declarations.states import (
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
from state_core.declarations.type_descriptors import TypeDescriptor, TypeLike
from state_core.errors import DeclarationError

__all__ = ["ListStateDeclarationBuilder", "StateDeclarationBuilder", "StateDeclarations"]

Declared = TypeVar("Declared", bound=StateDeclaration)
Function: TypeAlias = "Callable[..., Any] | FunctionReference | str"


@dataclass(frozen=True)
class StateDeclarationBuilder(Generic[Declared]):
    """On the way to a declaration.

    Attributes:
        declared: The declaration as it would be by now.
    """

    declared: Declared

    def with_state_ttl(self, ttl: StateTtlConfig | timedelta) -> Self:
        """Let values expire; a duration alone takes Flink's defaults.

        Raises:
            DeclarationError: The state is not of mode `NONE`.
        """
        if isinstance(ttl, timedelta):
            ttl = StateTtlConfig(ttl // timedelta(milliseconds=1))
        return replace(self, declared=replace(self.declared, ttl=ttl))

    def build(self) -> Declared:
        """The declaration."""
        return self.declared


@dataclass(frozen=True)
class ListStateDeclarationBuilder(StateDeclarationBuilder[ListStateDeclaration]):
    """On the way to a list's."""

    def redistribute_by(self, strategy: RedistributionStrategy) -> ListStateDeclarationBuilder:
        """Let it move, and say how."""
        mode = RedistributionMode.REDISTRIBUTABLE
        made = replace(self.declared, mode=mode, redistribution_strategy=strategy)
        return replace(self, declared=made)

    def redistribute_with_mode(self, mode: RedistributionMode) -> ListStateDeclarationBuilder:
        """Say whether it moves; by `SPLIT` if nothing else is said."""
        return replace(self, declared=replace(self.declared, mode=mode))


@dataclass(frozen=True)
class MapStateDeclarationBuilder(StateDeclarationBuilder[MapStateDeclaration]):
    """On the way to a map's."""

    def broadcast(self) -> StateDeclarationBuilder[BroadcastStateDeclaration]:
        """Make it a broadcast state, of which every partition has the same copy."""
        held = self.declared
        return StateDeclarationBuilder(
            BroadcastStateDeclaration(held.name, held.key_type, held.value_type, ttl=held.ttl)
        )

    def build_broadcast(self) -> BroadcastStateDeclaration:
        """The same at once, as Flink 2.3 calls it."""
        return self.broadcast().build()


class StateDeclarations:
    """Declare states; types are written, or Python's hints: see `type_descriptors`."""

    @staticmethod
    def value_state_builder(
        name: str, type_: TypeLike
    ) -> StateDeclarationBuilder[ValueStateDeclaration]:
        """A value."""
        return StateDeclarationBuilder(ValueStateDeclaration(name, _type(name, type_)))

    @staticmethod
    def list_state_builder(name: str, type_: TypeLike) -> ListStateDeclarationBuilder:
        """A list of elements of that type."""
        return ListStateDeclarationBuilder(ListStateDeclaration(name, _type(name, type_)))

    @staticmethod
    def map_state_builder(
        name: str, key_type: TypeLike, value_type: TypeLike
    ) -> MapStateDeclarationBuilder:
        """A map."""
        key, value = _type(name, key_type, "key"), _type(name, value_type, "value")
        return MapStateDeclarationBuilder(MapStateDeclaration(name, key, value))

    @staticmethod
    def reducing_state_builder(
        name: str, type_: TypeLike, function: Function
    ) -> StateDeclarationBuilder[ReducingStateDeclaration]:
        """A value that a function of two values grows."""
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
        """An accumulator that an `AggregateFunction` grows.

        Args:
            name: The state's.
            function: The class, or `module:name` of one, or of an instance.
            accumulator_type: Of what is stored; by default what `create_accumulator` returns.
            in_type: Of what is added; by default what `add` takes.
            out_type: Of what is read; by default what `get_result` returns.
        """
        reference = FunctionReference.of(function, f"state {name!r}")
        found = _types_of(function)
        stored = found.get("accumulator") if accumulator_type is None else accumulator_type
        if stored is None:
            raise DeclarationError(
                f"{reference} does not say the type of its accumulator",
                place=f"state {name!r}",
                remedy="give accumulator_type, or a hint of what create_accumulator returns",
            )
        wanted = found.get("in") if in_type is None else in_type
        given = found.get("out") if out_type is None else out_type
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
        """A map of which every partition has the same copy."""
        return StateDeclarations.map_state_builder(name, key_type, value_type).broadcast()

    @staticmethod
    def value_state(name: str, type_: TypeLike) -> ValueStateDeclaration:
        """A value."""
        return StateDeclarations.value_state_builder(name, type_).build()

    @staticmethod
    def list_state(name: str, type_: TypeLike) -> ListStateDeclaration:
        """A list of mode `NONE`; use `list_state_builder` for one that moves."""
        return StateDeclarations.list_state_builder(name, type_).build()

    @staticmethod
    def map_state(name: str, key_type: TypeLike, value_type: TypeLike) -> MapStateDeclaration:
        """A map."""
        return StateDeclarations.map_state_builder(name, key_type, value_type).build()

    @staticmethod
    def reducing_state(name: str, type_: TypeLike, function: Function) -> ReducingStateDeclaration:
        """A value that a function of two values grows."""
        return StateDeclarations.reducing_state_builder(name, type_, function).build()

    @staticmethod
    def aggregating_state(
        name: str, function: Function, accumulator_type: TypeLike | None = None
    ) -> AggregatingStateDeclaration:
        """An accumulator that an `AggregateFunction` grows."""
        return StateDeclarations.aggregating_state_builder(name, function, accumulator_type).build()

    @staticmethod
    def broadcast_state(
        name: str, key_type: TypeLike, value_type: TypeLike
    ) -> BroadcastStateDeclaration:
        """A map of which every partition has the same copy."""
        return StateDeclarations.broadcast_state_builder(name, key_type, value_type).build()


def _type(name: str, given: TypeLike, what: str = "") -> TypeDescriptor:
    return TypeDescriptor.of(given, f"state {name!r}{what and f', {what}'}")


def _types_of(function: Any) -> dict[str, Any]:
    """What the hints of an aggregate function's methods say."""
    found: dict[str, Any] = {}
    places = {"accumulator": "create_accumulator", "in": "add", "out": "get_result"}
    for role, name in places.items():
        try:
            hints = get_type_hints(getattr(function, name, None), include_extras=True)
        except (TypeError, NameError):
            continue
        returned = hints.pop("return", None)
        if role == "in":
            found[role] = next(iter(hints.values()), None)
        else:
            found[role] = returned
    # `Any` says nothing
    return {role: one for role, one in found.items() if one is not Any}
