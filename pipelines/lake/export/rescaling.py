"""The plan of a rescale: which key groups go to which subtask, and how evenly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from statelake.pipelines.lake.tables.describing import group_totals
from statelake.pipelines.lake.tables.records import OperatorRecord, SnapshotRecord
from statelake.state_core.model.handles import DistributionMode
from statelake.state_core.model.redistribution import (
    StateShare,
    SubtaskPlan,
    plan_key_groups,
    plan_operator_state,
    skew_of,
    spread_evenly,
)
from statelake.state_core.printable import Printed, Table

SHOWN_SUBTASKS = 16  # to people


@dataclass(frozen=True)
class OperatorPlan(Printed):
    """The plan of one operator.

    Attributes:
        operator: The operator's uid or id.
        old: Its parallelism and max parallelism.
        new: Its parallelism and max parallelism afterwards.
        estimated: Whether sizes are estimates: another max parallelism gives keys new key groups,
            which are only known when the keys are read.
        skew: The largest subtask's bytes over the mean; 1 is even.
        subtasks: The subtasks, in order.
        operator_states: By operator state, how many elements each subtask gets; every subtask gets
            all of a union or broadcast state.
    """

    operator: str
    old: tuple[int, int]
    new: tuple[int, int]
    estimated: bool
    skew: float
    subtasks: list[SubtaskPlan]
    operator_states: dict[str, list[int]] = field(default_factory=dict)

    def table(self, title: str, most: int) -> Table:
        """Return the first subtasks as a table."""
        columns = (
            ">subtask", "<key groups=groups_text", ">entries:,", ">bytes=state_bytes:B",
            ">from other subtasks=moved_bytes:B",
        )  # fmt: skip
        return Table.of(title, columns, self.subtasks[:most])

    def lines(self) -> Iterator[str | Table]:
        """Yield the text form: the first subtasks, and the elements of operator state."""
        (old, old_groups), (new, groups) = self.old, self.new
        about = " (estimated: keys get new key groups)" if self.estimated else ""
        title = (
            f"{self.operator}: parallelism {old} → {new}, max parallelism {old_groups} → {groups},"
            f" skew {self.skew:.3f}{about}"
        )
        if any(subtask.entries for subtask in self.subtasks) or not self.operator_states:
            yield self.table(title, SHOWN_SUBTASKS)
            if len(self.subtasks) > SHOWN_SUBTASKS:
                yield f"… and {len(self.subtasks) - SHOWN_SUBTASKS} more (--json shows all)"
        else:
            yield title
        for name, counts in self.operator_states.items():
            shown = ", ".join(map("{:,}".format, counts[:SHOWN_SUBTASKS]))
            more = ", …" if len(counts) > SHOWN_SUBTASKS else ""
            yield f"  operator state {name}: {shown}{more} elements by subtask"


def plan_rescale(
    record: SnapshotRecord, parallelism: int, max_parallelism: int | None = None
) -> list[OperatorPlan]:
    """Plan a rescale of every operator with state; max parallelism 1 keeps one subtask.

    Raises:
        KeyGroupError: The parallelism is out of range.
    """
    return [_plan(operator, parallelism, max_parallelism) for operator in record.operators]


def _plan(operator: OperatorRecord, parallelism: int, max_parallelism: int | None) -> OperatorPlan:
    alone = operator.max_parallelism == 1
    groups = 1 if alone else max_parallelism or operator.max_parallelism
    parallelism = 1 if alone else parallelism
    totals = group_totals(operator.states)
    estimated = groups != operator.max_parallelism
    if estimated and totals.size:
        totals = np.stack([np.arange(groups), *(spread_evenly(row, groups) for row in totals[1:])])
    shares = shares_of(operator) if operator.operator_states else []
    elements = plan_operator_state(shares, parallelism)
    before = None if estimated else operator.parallelism
    subtasks = plan_key_groups(totals, groups, parallelism, before)
    return OperatorPlan(
        operator.label,
        (operator.parallelism, operator.max_parallelism),
        (parallelism, groups),
        estimated,
        skew_of([subtask.state_bytes for subtask in subtasks]),
        subtasks,
        {
            state.name: [sum(map(len, subtask.get(state.name, []))) for subtask in elements]
            for state in operator.operator_states
        },
    )


def shares_of(operator: OperatorRecord) -> list[dict[str, StateShare]]:
    """Return what each subtask has of each operator state, as handles of a savepoint say it.

    They name each list, also without elements, and a broadcast state of which there is a copy.
    """
    states = [
        (state.name, DistributionMode[state.mode], {part.subtask: part for part in state.subtasks})
        for state in operator.operator_states
    ]
    return [
        {
            name: StateShare(mode, parts[index].elements if index in parts else 0)
            for name, mode, parts in states
            if index in parts or mode is not DistributionMode.BROADCAST
        }
        for index in range(operator.parallelism)
    ]
