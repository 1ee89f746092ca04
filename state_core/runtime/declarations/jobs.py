"""Declarations of jobs: operators, their inputs, and the states that their functions use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from statelake.state_core.errors import DeclarationError
from statelake.state_core.model.key_groups import MAX_PARALLELISM_LIMIT
from statelake.state_core.runtime.declarations.states import StateDeclaration
from statelake.state_core.runtime.declarations.type_descriptors import TypeDescriptor, TypeLike

TWO = 2
USES_STATES = "uses_states"


class StreamKind(Enum):
    """The partitioning of an input's records."""

    GLOBAL = "Global"
    NON_KEYED = "Non-Keyed"
    KEYED = "Keyed"
    BROADCAST = "Broadcast"

    @property
    def short(self) -> str:
        """The abbreviation in tables: `NK`."""
        return {"Non-Keyed": "NK"}.get(self.value, self.value[0])


class InputSide(Enum):
    """The input whose record is being processed."""

    ONLY = "the only input"
    FIRST = "the first input"
    SECOND = "the second input"


def sides_of(inputs: tuple[StreamKind, ...]) -> tuple[InputSide, ...]:
    """Return the sides of a function with these inputs, in their order."""
    return (InputSide.ONLY,) if len(inputs) == 1 else (InputSide.FIRST, InputSide.SECOND)


@dataclass(frozen=True)
class OperatorDeclaration:
    """One process function in a job; `checks.legality` decides whether it is legal.

    Attributes:
        uid: The uid of the operator, by which its state is found in a savepoint.
        function: The function's name, for people.
        inputs: The kinds of its one or two inputs, the broadcast one first.
        states: The states that it uses, whichever side is processed.
        first_states: The states that only the processing of the first input uses.
        second_states: The states that only the processing of the second input uses.
        key_type: The type of the key, where an input is keyed; None if it is not known.
        parallelism: The parallelism of the run to restore; None if it is not known.
        max_parallelism: The number of its key groups; None if that is not set.
        outputs: The number of output streams; a function of two outputs has one input.
    """

    uid: str
    function: str
    inputs: tuple[StreamKind, ...]
    states: tuple[StateDeclaration, ...] = ()
    first_states: tuple[StateDeclaration, ...] = ()
    second_states: tuple[StateDeclaration, ...] = ()
    key_type: TypeDescriptor | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    outputs: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.uid, str) or not self.uid:
            raise DeclarationError(
                f"function {self.function!r} has no uid",
                remedy="set one: its state is found by it",
            )
        if self.parallelism is not None and self.parallelism < 1:
            raise DeclarationError(
                f"the parallelism {self.parallelism} is less than 1", place=self.label
            )
        groups = self.max_parallelism
        if groups is not None and not 1 <= groups <= MAX_PARALLELISM_LIMIT:
            raise DeclarationError(
                f"the max parallelism {groups} is out of range",
                place=self.label,
                remedy=f"set it between 1 and {MAX_PARALLELISM_LIMIT}",
            )
        if not 1 <= self.outputs <= TWO or (self.outputs == TWO and len(self.inputs) == TWO):
            raise DeclarationError(
                f"{self.outputs} outputs and {len(self.inputs)} inputs",
                place=self.label,
                remedy="a process function has one input and one or two outputs, or two and one",
            )

    @property
    def label(self) -> str:
        """The name in messages."""
        return f"operator {self.uid!r}"

    @property
    def declared(self) -> tuple[tuple[StateDeclaration, tuple[InputSide, ...]], ...]:
        """Return each declaration with its sides."""
        own = sides_of(self.inputs)
        groups = (self.states, own), (self.first_states, own[:1]), (self.second_states, own[1:])
        return tuple((state, sides) for states, sides in groups for state in states)

    @property
    def alone(self) -> bool:
        """Return whether an input is global, so that there is one partition."""
        return StreamKind.GLOBAL in self.inputs

    @property
    def streams(self) -> str:
        """Its inputs, abbreviated as in tables: `B + NK`; a single one in full."""
        if len(self.inputs) == 1:
            return self.inputs[0].value
        return " + ".join(input_.short for input_ in self.inputs) or "no input"


@dataclass(frozen=True)
class JobDeclaration:
    """The state that a job declares.

    Attributes:
        name: Its name.
        operators: Its stateful operators.
    """

    name: str
    operators: tuple[OperatorDeclaration, ...] = ()


def declare_operator(
    uid: str,
    function: object,
    inputs: StreamKind | Iterable[StreamKind],
    states: Iterable[StateDeclaration] | None = None,
    *,
    first_states: Iterable[StateDeclaration] = (),
    second_states: Iterable[StateDeclaration] = (),
    key: TypeLike | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    outputs: int = 1,
) -> OperatorDeclaration:
    """Declare an operator from sets of states, a function, and any form of type.

    Args:
        uid: The uid, by which its state is found.
        function: A process function, its class, or its name.
        inputs: The kinds of its one or two inputs, the broadcast one first.
        states: The states that it uses; by default those of the function's `uses_states`, if any.
        first_states: The states that only the processing of the first input uses.
        second_states: The states that only the processing of the second input uses.
        key: The type of the key, where an input is keyed.
        parallelism: The parallelism of the run to restore.
        max_parallelism: The number of its key groups.
        outputs: The number of output streams.

    Raises:
        DeclarationError: The key's type can't be parsed, or the uid is missing.
    """
    if states is None:
        uses_states = None if isinstance(function, type) else getattr(function, USES_STATES, None)
        states = () if uses_states is None else uses_states()
    name = function if isinstance(function, str) else _name_of(function)
    return OperatorDeclaration(
        uid,
        name,
        (inputs,) if isinstance(inputs, StreamKind) else tuple(inputs),
        _in_order(states),
        _in_order(first_states),
        _in_order(second_states),
        None if key is None else TypeDescriptor.of(key, f"operator {uid!r}, key"),
        parallelism,
        max_parallelism,
        outputs,
    )


def _in_order(states: Iterable[StateDeclaration]) -> tuple[StateDeclaration, ...]:
    """Return states without repetition, by name: sets have no order, and reports need one."""
    return tuple(sorted(dict.fromkeys(states), key=lambda state: (state.name, state.kind)))


def _name_of(function: object) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return str(getattr(named, "__qualname__", named))
