"""The six kinds of declared state.

Each has a name, types, and a redistribution mode for changes of the parallelism:

============  ==================================  ===============================================
kind          modes                               place
============  ==================================  ===============================================
value         `NONE`                              with its partition: in keyed state
list          `NONE`, `REDISTRIBUTABLE`           in keyed state; in operator state: a split or a
                                                  union list
map           `NONE`                              in keyed state
reducing      `NONE`                              in keyed state
aggregating   `NONE`                              in keyed state
broadcast     `IDENTICAL`                         in broadcast state
============  ==================================  ===============================================

Flink 2.3 also lets a list be declared `IDENTICAL`, and then treats it as keyed state; here it is
refused, as such lists would not stay identical.

Source: `org.apache.flink.api.common.state.StateDeclaration` and its kinds (FLIP-433).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from statelake.state_core.errors import DeclarationError
from statelake.state_core.files.wire import encode_modified_utf8
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperatorState
from statelake.state_core.model.snapshot import TIMER_PREFIX
from statelake.state_core.runtime.declarations.functions import FunctionReference
from statelake.state_core.runtime.declarations.type_descriptors import TypeDescriptor

MAX_NAME_BYTES = 65535


class RedistributionMode(Enum):
    """The redistribution of a state between partitions when the job is rescaled."""

    NONE = "NONE"
    REDISTRIBUTABLE = "REDISTRIBUTABLE"
    IDENTICAL = "IDENTICAL"


class RedistributionStrategy(Enum):
    """The redistribution of a list: its elements are split evenly, or every partition gets all."""

    SPLIT = "SPLIT"
    UNION = "UNION"


class UpdateType(Enum):
    """The access that renews a value's time to live: `StateTtlConfig.UpdateType`."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


class StateVisibility(Enum):
    """The treatment of expired values in reads: `StateTtlConfig.StateVisibility`."""

    NEVER_RETURN_EXPIRED = "NeverReturnExpired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "ReturnExpiredIfNotCleanedUp"


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """The time to live of a state's values, in processing time.

    Attributes:
        millis: The time to live, in milliseconds.
        update_type: The access that renews it.
        visibility: Whether an expired value may still be returned.
    """

    millis: int
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED

    def __post_init__(self) -> None:
        if isinstance(self.millis, bool) or not isinstance(self.millis, int) or self.millis <= 0:
            raise DeclarationError(
                f"the time to live {self.millis!r} ms is not a positive number", remedy="set one"
            )


@dataclass(frozen=True)
class StateDeclaration:
    """The base of declarations; `uses_states` of a process function returns a set of them.

    Attributes:
        stored_type: The attribute with the type of what is stored: a value, an element.
        name: The name, unique within the function's operator.
        ttl: The time to live of its values; only for keyed state.
    """

    kind: ClassVar[str] = ""
    stored_type: ClassVar[str] = "type"
    name: str
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.kind:
            raise DeclarationError(
                "the base class declares no state", remedy=f"use a class of {list(KINDS)}"
            )
        if not isinstance(self.name, str) or not self.name:
            raise DeclarationError(f"a {self.kind} state has no name")
        if len(encode_modified_utf8(self.name)) > MAX_NAME_BYTES:
            raise DeclarationError(
                f"the name has more than {MAX_NAME_BYTES} bytes", place=self.place
            )
        if self.name.startswith(TIMER_PREFIX):
            raise DeclarationError("the name is reserved for timers, which are not declared",
                                   place=self.place)  # fmt: skip
        if self.ttl is not None and self.redistribution_mode is not RedistributionMode.NONE:
            raise DeclarationError(
                f"{self.redistribution_mode.value} state can't have a time to live",
                place=self.place,
                remedy="only state of mode NONE, which lies in keyed state, can have it",
            )

    @property
    def redistribution_mode(self) -> RedistributionMode:
        """Its redistribution mode; only lists have a choice."""
        return RedistributionMode.NONE

    def new_state(self) -> NewKeyedState | NewOperatorState:
        """Return the state that a new job with this declaration has, without rows."""
        value: TypeDescriptor = getattr(self, self.stored_type)
        key: TypeDescriptor | None = getattr(self, "key_type", None)
        types = value.snapshot(), "" if key is None else key.snapshot()
        if self.redistribution_mode is RedistributionMode.NONE:
            ttl = self.ttl is not None
            return NewKeyedState(self.name, (), self.kind, *types, with_ttl=ttl)
        mode = "broadcast"
        if isinstance(self, ListStateDeclaration):
            mode = self.redistribution_strategy.value.lower()
        return NewOperatorState(self.name, (), mode, *types)

    @property
    def place(self) -> str:
        """The name of the state in messages."""
        return f"state {self.name[:80]!r}"

    def __str__(self) -> str:
        return f"{self.kind} state {self.name!r} ({self.redistribution_mode.value})"


@dataclass(frozen=True)
class ValueStateDeclaration(StateDeclaration):
    """A value state.

    Attributes:
        type: The type of the value.
    """

    kind: ClassVar[str] = "value"
    type: TypeDescriptor


@dataclass(frozen=True)
class ListStateDeclaration(StateDeclaration):
    """A list state.

    Attributes:
        type: The type of its elements.
        mode: `NONE` or `REDISTRIBUTABLE`.
        redistribution_strategy: Its strategy, if it is redistributed; otherwise `SPLIT`.
    """

    kind: ClassVar[str] = "list"
    type: TypeDescriptor
    mode: RedistributionMode = RedistributionMode.NONE
    redistribution_strategy: RedistributionStrategy = RedistributionStrategy.SPLIT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode is RedistributionMode.IDENTICAL:
            raise DeclarationError(
                "a list can't be IDENTICAL",
                place=self.place,
                remedy="REDISTRIBUTABLE by UNION gives every partition all elements once, on"
                " restore; a broadcast state stays the same everywhere",
            )
        if self.mode is RedistributionMode.NONE:
            # without a meaning then: two such declarations are equal
            object.__setattr__(self, "redistribution_strategy", RedistributionStrategy.SPLIT)

    @property
    def redistribution_mode(self) -> RedistributionMode:
        """The list's redistribution mode."""
        return self.mode


@dataclass(frozen=True)
class MapStateDeclaration(StateDeclaration):
    """A map state.

    Attributes:
        key_type: The type of its keys.
        value_type: The type of its values.
    """

    kind: ClassVar[str] = "map"
    stored_type: ClassVar[str] = "value_type"
    key_type: TypeDescriptor
    value_type: TypeDescriptor


@dataclass(frozen=True)
class ReducingStateDeclaration(StateDeclaration):
    """A reducing state: a function of two values combines the stored value with each added one.

    Attributes:
        type: The type of the value.
        function: The function, by name.
    """

    kind: ClassVar[str] = "reducing"
    type: TypeDescriptor
    function: FunctionReference


@dataclass(frozen=True)
class AggregatingStateDeclaration(StateDeclaration):
    """An aggregating state: an aggregate function adds each value to a stored accumulator.

    Attributes:
        accumulator_type: The type of the stored accumulator.
        function: The `AggregateFunction`, by name.
        in_type: The type of the added values, if known; they are not stored.
        out_type: The type of the result that is read, if known.
    """

    kind: ClassVar[str] = "aggregating"
    stored_type: ClassVar[str] = "accumulator_type"
    accumulator_type: TypeDescriptor
    function: FunctionReference
    in_type: TypeDescriptor | None = None
    out_type: TypeDescriptor | None = None


@dataclass(frozen=True)
class BroadcastStateDeclaration(StateDeclaration):
    """A broadcast state: a map of which every partition has the same copy.

    Attributes:
        key_type: The type of its keys.
        value_type: The type of its values.
    """

    kind: ClassVar[str] = "broadcast"
    stored_type: ClassVar[str] = "value_type"
    key_type: TypeDescriptor
    value_type: TypeDescriptor

    @property
    def redistribution_mode(self) -> RedistributionMode:
        """Always `IDENTICAL`."""
        return RedistributionMode.IDENTICAL


KINDS: dict[str, type[StateDeclaration]] = {
    declaration.kind: declaration
    for declaration in (
        ValueStateDeclaration,
        ListStateDeclaration,
        MapStateDeclaration,
        ReducingStateDeclaration,
        AggregatingStateDeclaration,
        BroadcastStateDeclaration,
    )
}
