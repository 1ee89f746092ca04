"""The fate of an operator's state in a changed job, and of each column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from statelake.state_core.plans.expressions import Expression
from statelake.state_core.plans.meanings import Meaning
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import NodeState, NodeStates, StateColumn, ValuePlace
from statelake.state_core.serializers.sql.types.logical_types import LogicalType

MISSED = "it is new, and old rows that are retracted, or leave its window, would be taken from it"


class Fate(Enum):
    """The fates of an operator's state, or of a column of it, from the best to the worst."""

    KEEPS = "keeps"
    FULL = "computed in full"
    STARTS_NOW = "starts now"
    NULL = "null in old rows"
    FILTER = "counted by another filter"
    UNKNOWN = "unknown"
    LOST = "lost"

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return list(Fate).index(self)


def worst(fates: Iterable[Fate]) -> Fate:
    """Return the worst of some fates; `KEEPS` without any."""
    return max(fates, key=lambda fate: fate.rank, default=Fate.KEEPS)


@dataclass(frozen=True)
class ColumnMatch:
    """A column of a new state.

    Attributes:
        column: The column.
        old: The index of the old column that it continues; None if it is new.
        fate: What becomes of it.
        why: The reason, if it does not keep.
        filled: Whether its initial value stands where the old one is null.
        counted: The index of an old column: where it is 0, the new one is null.
        bits: Of a set of distinct values, for each new bit the old ones that must all be set: what
            calls from which its call goes on have counted. A bit without any begins as 0.
    """

    column: StateColumn
    old: int | None
    fate: Fate
    why: str = ""
    filled: bool = False
    counted: int | None = None
    bits: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class StateMatch:
    """A state of the new job, and the one from which it goes on.

    Attributes:
        new: The new state.
        old: The old one.
        columns: The columns of each of its rows.
        left_out: Columns of the old rows that no new one continues, by place.
        marks: Whether the new one says of each key that the old one has it, and no more.
    """

    new: NodeState
    old: NodeState
    columns: Mapping[ValuePlace, tuple[ColumnMatch, ...]] = field(default_factory=dict)
    left_out: tuple[StateColumn, ...] = ()
    marks: bool = False

    @property
    def matches(self) -> list[ColumnMatch]:
        """All columns of its rows."""
        return [match for row in self.columns.values() for match in row]

    def with_columns(self, change: Callable[[ColumnMatch], ColumnMatch]) -> StateMatch:
        """Return the match with each column changed."""
        columns = {place: tuple(map(change, row)) for place, row in self.columns.items()}
        return replace(self, columns=columns)

    @property
    def same(self) -> bool:
        """Whether its rows have the same columns, in the same order and of the same types."""
        return not self.left_out and not self.marks and all(
            match.old == index and match.fate is Fate.KEEPS
            and not match.filled and match.counted is None
            and _same_type(match.column.type, self.old.rows[place][index].type)
            for place, matches in self.columns.items()
            for index, match in enumerate(matches)
        )  # fmt: skip


def _same_type(new: LogicalType | None, old: LogicalType | None) -> bool:
    return new is None or old is None or new == old


@dataclass(frozen=True)
class FoldSide:
    """A state whose rows are emitted, or joined.

    Attributes:
        state: Its name.
        counted: Whether a row is there as often as the value says; its row is the map's key.
    """

    state: str
    counted: bool = False


@dataclass(frozen=True)
class Fold:
    """From what new columns of an aggregate are computed.

    Attributes:
        node: The number of the node of the old plan that holds the rows.
        label: What it is called.
        sides: Its states: one, or those of both sides of a join.
        not_null: The columns of a join's key that are equal to nothing where they are NULL.
        keys: The columns by which the aggregate groups.
        arguments: Those that it adds up, by their index in its input.
        conditions: The conditions that rows pass on the way to it.
    """

    node: int
    label: str
    sides: tuple[FoldSide, ...]
    not_null: tuple[int, ...]
    keys: tuple[Expression, ...]
    arguments: Mapping[int, Expression]
    conditions: tuple[Expression, ...]

    def with_arguments(self, more: Mapping[int, Expression]) -> Fold:
        """Return the same with more columns that are added up."""
        return replace(self, arguments={**self.arguments, **more})


@dataclass(frozen=True)
class OperatorMatch:
    """An operator with state, of the old job, the new one, or both.

    Attributes:
        old: The old one; None if the operator is new.
        new: The new one; None if no operator goes on from the old one.
        states: The states that go on.
        fate: What becomes of its state as a whole.
        why: Reasons, each a sentence.
        keys: The column of the old key that each of the new one is, or -1 for NULL; empty if keys
            keep their bytes. If there are less of them, groups merge, unless they have sets.
        sets: The new number of each grouping set that stays, by the old one; empty if there are
            none, or all keep theirs. Groups of others are left out.
        fold: From what columns are computed in full; None if none is.
    """

    old: NodeStates | None
    new: NodeStates | None
    states: tuple[StateMatch, ...] = ()
    fate: Fate = Fate.KEEPS
    why: tuple[str, ...] = ()
    keys: tuple[int, ...] = ()
    fold: Fold | None = None
    sets: Mapping[int, int] = field(default_factory=dict)

    @property
    def merges(self) -> bool:
        """Return whether several old groups become one."""
        less = self.keys and self.old and len(self.keys) < len(self.old.keys)
        return bool(less and not self.sets)

    @property
    def misses(self) -> bool:
        """Whether a new column would have to count rows that came before, and can't be computed."""
        return any(each.why.startswith(MISSED) for each in self.column_matches)

    @property
    def node(self) -> PlanNode:
        """The new operator's node, or the old one's."""
        one = self.new or self.old
        assert one is not None  # noqa: S101 - an operator is of one plan at least
        return one.node

    @property
    def label(self) -> str:
        """The new operator's label, or the old one's."""
        return self.node.label

    @property
    def labels(self) -> set[str]:
        """The labels of both, by which users name it."""
        return {each.node.label for each in (self.old, self.new) if each is not None}

    @property
    def worst(self) -> Fate:
        """The worst of the operator's fate and those of its columns."""
        return worst([self.fate, *(each.fate for each in self.column_matches)])

    @property
    def column_matches(self) -> list[ColumnMatch]:
        """The columns of all its states, the first of each meaning."""
        seen: dict[Meaning, ColumnMatch] = {}
        for match in (each for state in self.states for each in state.matches):
            seen.setdefault(match.column.meaning, match)
        return list(seen.values())

    def with_columns(self, change: Callable[[ColumnMatch], ColumnMatch]) -> OperatorMatch:
        """Return the match with each column of its states changed."""
        return replace(self, states=tuple(each.with_columns(change) for each in self.states))


@dataclass(frozen=True)
class PlanMatch:
    """The match of two plans: every operator with state of both, the new ones first."""

    old: Plan
    new: Plan
    operators: tuple[OperatorMatch, ...]
