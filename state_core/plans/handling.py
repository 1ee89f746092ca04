"""Flink's own handling of a savepoint and a changed job: it compares only uids and types.

Flink restores state of equal types whatever its meaning, so that some results are silently wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from statelake.state_core.plans.matches import Fate, OperatorMatch, PlanMatch
from statelake.state_core.plans.matching import limited
from statelake.state_core.plans.states import (
    COUNTS_BY_SORT_KEY,
    NodeState,
    NodeStates,
    StateColumn,
)

CONNECTORS = ("table-source-scan", "sink")


@dataclass(frozen=True)
class Handling:
    """Flink's own handling of an operator.

    Attributes:
        text: The handling, as a sentence.
        wrong: Whether the job would run, with wrong results.
    """

    text: str
    wrong: bool = False


def flink_handling(match: PlanMatch) -> list[Handling]:
    """Return Flink's own handling of each operator of a match, in order."""
    before = {each.old.node.id: each.old for each in match.operators if each.old is not None}
    after = {each.new.node.id: each.new for each in match.operators if each.new is not None}
    return [_handling(each, before, after) for each in match.operators]


def _handling(
    each: OperatorMatch, before: dict[int, NodeStates], after: dict[int, NodeStates]
) -> Handling:
    new = each.new
    if new is None:
        if each.old is None or _is_taken(each.old, after):
            return Handling("its state goes to another operator, see there")
        return Handling(
            "refuses: cannot map its state; with --allowNonRestoredState its state is lost"
        )
    old = before.get(new.node.id)
    if old is None or old.node.kind != new.node.kind:
        if each.old is None:
            return Handling("begins empty")
        if _is_taken(each.old, after):
            return Handling("begins empty", wrong=True)
        return Handling(
            f"refuses: cannot map {each.old.node.label}; with --allowNonRestoredState begins empty"
        )
    if old.states and not new.states and new.family in CONNECTORS:
        return Handling("refuses: can't map the rows that it kept to choose one row for each key")
    if new.family in CONNECTORS:
        same = old.settings == new.settings
        return Handling("restores it" if same else "gives it the state of another table", not same)
    if new.identity and old.settings != new.settings:
        return Handling("restores what the old one held, if its types are equal", wrong=True)
    if not _same_types(old, new):
        return Handling("refuses: the new state serializer must not be incompatible")
    if old.keys != new.keys:
        return Handling(
            f"restores silently: groups of {_listed(old)} stay and are never read, groups"
            f" of {_listed(new)} begin at zero",
            wrong=True,
        )
    numbers = {number: new.sets.get(number, gone) for number, gone in old.sets.items()}
    if numbers != {**old.sets}:
        return Handling("restores silently groups of one grouping set as another's", wrong=True)
    if {*new.sets} - {*old.sets} and any(state.updates for state in new.states):
        return Handling(
            "continues; rows are retracted from groups of new grouping sets that never had them",
            wrong=True,
        )
    if each.old is not old and (each.old is None or _meaning(old) != _meaning(new)):
        return Handling(
            f"restores silently what {old.node.label} of the old job held, which is other state",
            wrong=True,
        )
    return _restored(old, new)


def _listed(states: NodeStates) -> str:
    return ", ".join(map(str, states.keys))


def _is_taken(old: NodeStates, after: dict[int, NodeStates]) -> bool:
    """Return whether an operator of the new job has the uid of an old one."""
    new = after.get(old.node.id)
    return new is not None and new.node.kind == old.node.kind


def _same_types(old: NodeStates, new: NodeStates) -> bool:
    if old.key_types != new.key_types:
        return False
    before = {state.name: state for state in old.states}
    return all(
        state.name not in before or _row_types(before[state.name]) == _row_types(state)
        for state in new.states
    )


def _row_types(state: NodeState) -> object:
    # types that only Java knows are the same for the same function; a unique key is no type
    rows = [
        (place, [column.type or column.meaning for column in row])
        for place, row in state.rows.items()
    ]
    return state.form, rows, state.by if state.form == COUNTS_BY_SORT_KEY else None


def _meaning(states: NodeStates) -> object:
    return (
        states.keys,
        states.reads,
        [
            (state.name, [column.meaning for row in state.rows.values() for column in row])
            for state in states.states
        ],
    )


def _restored(old: NodeStates, new: NodeStates) -> Handling:
    """Return the handling of state whose types are equal, with its fault, if it has one."""
    before = {state.name: state for state in old.states}
    if old.reads != new.reads:
        return Handling("restores silently state of other rows", wrong=True)
    unread = [state.name for state in new.states if state.name not in before]
    if unread:
        return Handling(
            f"restores silently without {', '.join(unread)}, which it looks for, and leaves"
            f" {', '.join(sorted(before))} unread: earlier rows are emitted again",
            wrong=True,
        )
    if old.change is not new.change:
        change = new.change or old.change
        return Handling(f"restores silently, though {change and change.what}", wrong=True)
    for state in new.states:
        for place, row in state.rows.items():
            old_row = before[state.name].rows.get(place, ())
            wrong = [
                (was, now)
                for was, now in zip(old_row, row, strict=False)
                if was.meaning is not now.meaning
            ]
            if wrong:
                return Handling(_exchanged(wrong), wrong=True)
            pairs = zip(old_row, row, strict=False)
            if any(was.unfiltered is not now.unfiltered for was, now in pairs):
                return Handling("continues; one of both jobs counts all rows", wrong=True)
    if old.kept != new.kept:
        fate, why = limited(old.node, new.node)
        if fate is Fate.UNKNOWN:
            return Handling(f"continues; {why}", wrong=True)
    if old.filters != new.filters:
        return Handling("continues with counts of the old filter", wrong=True)
    return Handling("restores it as it is")


def _exchanged(pairs: list[tuple[StateColumn, StateColumn]]) -> str:
    if {was.meaning for was, _ in pairs} == {now.meaning for _, now in pairs}:
        names = " and ".join(dict.fromkeys(was.name for was, _ in pairs))
        return f"restores silently, with {names} exchanged"
    was, now = pairs[0]
    return f"restores silently what was {was.name} as {now.name}"
