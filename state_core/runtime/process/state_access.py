"""`StateManager`: a function's access to its states, as far as FLIP-433 allows it for a side.

An undeclared state and an illegal access are errors. A declared, legal state of a partition is None
if there is no current partition.

Source: `org.apache.flink.datastream.api.context.StateManager`; the rules are `checks.legality`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from statelake.state_core.errors import LegalityError
from statelake.state_core.runtime.backends.states.operator_state import BroadcastState
from statelake.state_core.runtime.declarations.jobs import InputSide, OperatorDeclaration
from statelake.state_core.runtime.declarations.states import RedistributionMode, StateDeclaration
from statelake.state_core.runtime.legality.rules import Access, access, refusal


class StateManager:
    """The states of one side of one operator.

    Args:
        operator: The operator of the function.
        side: The input whose record is being processed.
        state_of: Returns a declared state: of the current key, or of the subtask.
        partitioned: Whether there is a current partition.
        in_apply: Whether this is for `apply_to_all_partitions`.
    """

    def __init__(
        self,
        operator: OperatorDeclaration,
        side: InputSide,
        state_of: Callable[[StateDeclaration], Any],
        *,
        partitioned: bool,
        in_apply: bool = False,
    ) -> None:
        self._operator = operator
        self._side = side
        self._state_of = state_of
        self._partitioned = partitioned
        self._in_apply = in_apply
        # by identity, which is faster than a hash; keeping the declaration keeps the identity
        # unique
        self._found: dict[int, tuple[StateDeclaration, Any]] = {}

    def get_state(self, declaration: StateDeclaration) -> Any:
        """Return the state of a declaration; the same object for all keys.

        Args:
            declaration: The declaration.

        Returns:
            The state, read-only if it may only be read; None without a current partition.

        Raises:
            LegalityError: The state was not declared, or this side may not use it here.
        """
        known = self._found.get(id(declaration))
        if known is None:
            known = self._found[id(declaration)] = declaration, self._resolve(declaration)
        return known[1]

    def _resolve(self, declaration: StateDeclaration) -> Any:
        refused = refusal(self._operator, self._side, declaration, Access.READ, self._in_apply)
        if refused is not None:
            raise refused
        mode = declaration.redistribution_mode
        if mode is RedistributionMode.NONE and not self._partitioned:
            return None
        state = self._state_of(declaration)
        if (
            mode is RedistributionMode.NONE
            or access(self._operator.inputs, self._side, mode, self._in_apply) is Access.WRITE
        ):
            return state
        return ReadOnlyBroadcastState(state, lambda: self._read_only(declaration))

    def _read_only(self, declaration: StateDeclaration) -> LegalityError:
        refused = refusal(self._operator, self._side, declaration, Access.WRITE, self._in_apply)
        return refused or LegalityError("the state is read-only", place=declaration.place)


class ReadOnlyBroadcastState(BroadcastState):
    """A broadcast state for the other input, which may only read it: Flink's class of that name."""

    def __init__(self, state: BroadcastState, error: Callable[[], LegalityError]) -> None:
        super().__init__(state.stored)
        self._error = error

    def keys(self) -> list[Any]:
        """Return all keys."""
        return [key for key, _ in self.entries()]

    def values(self) -> list[Any]:
        """Return all values."""
        return [value for _, value in self.entries()]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.entries())

    def put(self, *_: Any, **__: Any) -> None:
        """Refuse to write.

        Raises:
            LegalityError: Always.
        """
        raise self._error()

    put_all = remove = clear = put
