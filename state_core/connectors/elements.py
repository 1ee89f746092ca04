"""Elements of the operator states of sources and sinks, with bytes of connectors.

Source: `SimpleVersionedListState` in `org.apache.flink.api.connector.source.lib.util`,
`BytePrimitiveArraySerializer`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from statelake.state_core.connectors.records import VERSIONED, Sized
from statelake.state_core.connectors.versioned import encoded, read_exactly
from statelake.state_core.errors import StateError
from statelake.state_core.model.snapshot import Operator

_ELEMENT = Sized(VERSIONED)


@dataclass(frozen=True, slots=True)
class StateElement:
    """An element of an operator's list state.

    Attributes:
        state: The state's name.
        subtask: Its subtask.
        position: Its place in the subtask's list.
        data: Its bytes.
    """

    state: str
    subtask: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Element:
    """An element that is an array of bytes: a version, and the bytes of that version."""

    version: int
    data: bytes

    @classmethod
    def read(cls, data: bytes) -> Element | None:
        """Return the element in some bytes; None if they are not an element."""
        return read_exactly(lambda source: cls(**_ELEMENT.read(source)), data)

    def encode(self) -> bytes:
        """Return the element's bytes."""
        return encoded(_ELEMENT, (self.version, self.data))


def unread_of(operator: Operator, states: Collection[str]) -> list[str]:
    """Return why not all elements of some list states of an operator can be read."""
    return [
        each.problem for each in operator.unread if not each.is_keyed and {*each.states} & {*states}
    ]


def readable_elements(
    operator: Operator, states: Collection[str], *, partial: bool
) -> tuple[list[StateElement], list[str]]:
    """Return the elements of some list states of an operator, and why others can't be read.

    Args:
        operator: The operator.
        states: The names of the states.
        partial: Whether elements that can't be read are passed over.

    Raises:
        SnapshotError: An element can't be read, and is not passed over.
    """
    if not partial:
        return elements_of(operator, states), []
    elements: list[StateElement] = []
    problems = unread_of(operator, states)
    for state in operator.operator_states:
        for part in state.parts:
            alone = replace(operator, operator_states=(replace(state, parts=(part,)),))
            try:
                elements += elements_of(alone, states)
            except StateError as error:
                place = f"operator {operator.label}, subtask {part.subtask}, {state.name!r}"
                problems.append(str(error.within(place)))
    return elements, problems


def elements_of(operator: Operator, states: Collection[str]) -> list[StateElement]:
    """Return the elements of some list states of an operator, by state, subtask and position.

    Raises:
        SnapshotError: The state can't be read.
    """
    return [
        StateElement(state.name, part.subtask, position, data)
        for state in operator.operator_states
        if state.name in states and not state.broadcast
        for part in state.parts
        for position, data in enumerate(part.encoded())
    ]
