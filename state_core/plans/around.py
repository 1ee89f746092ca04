"""The effect of the nodes around an operator of the new plan on the state that it keeps.

By itself a new column starts now, or is null in old rows. The state of a node below may compute it
in full; a node above may mix it with columns that have all rows, or let rows pass by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from statelake.state_core.errors import IncompatibleError
from statelake.state_core.plans.folds import fold_of, passed_by
from statelake.state_core.plans.kinds import kind_of, refuse_more_conditions
from statelake.state_core.plans.lineage import Relation, passed, table_of, understood
from statelake.state_core.plans.matches import MISSED, ColumnMatch, Fate, Fold, OperatorMatch
from statelake.state_core.plans.meanings import (
    Meaning,
    conjuncts,
    function_name,
    ordered,
    shortened,
)
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import NO_INITIAL


@dataclass(frozen=True)
class NodesAround:
    """The new plan, for the operators that are matched in it.

    Attributes:
        plan: The new plan.
        relations: What each of its nodes emits.
        found: The operators of the new plan by number, those below one as they were judged.
    """

    plan: Plan
    relations: Mapping[int, Relation]
    found: Mapping[int, OperatorMatch]

    def judged(self, match: OperatorMatch) -> OperatorMatch:
        """Return the match of any operator, with what the nodes around make of its columns."""
        if match.new is None or match.old is None:
            return match
        for step in (self._folded, self._of_new_columns, self._unmixed, self._passing):
            match = step(match, match.new.node)
        return match

    def _folded(self, match: OperatorMatch, node: PlanNode) -> OperatorMatch:
        """Return the match of an aggregate, with what is computed from the rows that it reads."""
        new = [each for each in match.column_matches if each.why == MISSED]
        if not new or not any(state.new.updates for state in match.states):
            return match
        judged: dict[Meaning, ColumnMatch] = {}
        fold: Fold | None = None
        with understood(self.plan, node):
            for each in new:  # each has its own reason
                try:
                    made = fold_of(match, each.column, self.plan, self.relations, self.found)
                except IncompatibleError as error:
                    why = f"{MISSED}, which never counted them. It can't be computed:"
                    judged[each.column.meaning] = replace(each, why=f"{why} {error.problem}")
                    continue
                fold = made if fold is None else fold.with_arguments(made.arguments)
                why = f"from the rows that {made.label} keeps"
                judged[each.column.meaning] = replace(each, fate=Fate.FULL, why=why)

        def of_meaning(each: ColumnMatch) -> ColumnMatch:
            if each.why != MISSED:
                return each
            return replace(judged[each.column.meaning], column=each.column)

        return replace(match.with_columns(of_meaning), fold=fold)

    def _of_new_columns(self, match: OperatorMatch, node: PlanNode) -> OperatorMatch:
        """Return the match of an aggregate, whose new calls of what is new below it start now.

        A SUM that starts now is NULL in every group that is there. What takes such a group back has
        this NULL in it, which no SUM, AVG or COUNT of that column had counted.
        """
        if not match.misses or match.fate.rank or match.new is None or match.new.family != "groups":
            return match
        (number,) = node.inputs
        why = "it is new, and NULL in all rows that came: it counts from now on"

        def begun(each: ColumnMatch) -> ColumnMatch:
            if not each.why.startswith(MISSED) or each.column.initial is NO_INITIAL:
                return each
            call = node.spec["aggCalls"][each.column.call] if each.column.call >= 0 else {}
            if each.column.adds is None or len(call.get("argList", ())) != 1:
                return each
            below = self._is_null_before(number, call["argList"][0])
            return replace(each, fate=Fate.STARTS_NOW, why=why) if below else each

        with understood(self.plan, node):
            return match.with_columns(begun)

    def _is_null_before(self, number: int, index: int) -> bool:
        """Return whether a column is NULL in all rows that an aggregate below has emitted yet."""
        while True:
            number = passed_by(self.plan, number)
            node = self.plan.nodes[number]
            if node.kind != "calc":
                break
            projected = node.spec["projection"][index]
            while projected.get("internalName") == "$CAST$1":
                (projected,) = projected["operands"]
            if projected.get("kind") != "INPUT_REF":
                return False
            index, (number,) = projected["inputIndex"], node.inputs
        match = self.found.get(number)
        if match is None or match.old is None or match.new is None or match.fate.rank or match.keys:
            return False
        at = index - len(node.spec.get("grouping", ()))
        if match.new.family != "groups" or at < 0:
            return False
        if function_name(node.spec["aggCalls"][at]).removeprefix("$") in ("COUNT", "SUM0"):
            return False  # which begin as 0
        fates = {each.fate for each in match.column_matches if each.column.call == at}
        return fates == {Fate.STARTS_NOW}

    def _unmixed(self, match: OperatorMatch, node: PlanNode) -> OperatorMatch:
        """Return the match of an aggregate, where no call that starts now is mixed with others.

        The planner makes an average of a sum and a count that are calls of their own: where one of
        them is new, it would be a sum of all rows by a count of those that come from now on. A job
        that divides by a count which begins as 0 fails with its first row.
        """
        matches = [each for state in match.states for each in state.matches]
        calls = {each.column.call for each in matches} - {-1}
        begun = {each.column.call for each in matches if each.fate is Fate.STARTS_NOW} & calls
        if not begun or begun == calls:
            return match
        passed = len(node.spec["grouping"] if "grouping" in node.spec else
                     self.relations[node.inputs[0]].columns)  # fmt: skip
        whys: dict[int, str] = {}
        for projected in self._computed(node, {call + passed for call in begun}):
            together = {index - passed for index in _referred(projected)} & calls
            if together & begun and together - begun:
                kept = {
                    each.column.name for each in matches if each.column.call in together - begun
                }
                of = f"of it and of {' and '.join(sorted(kept))}, which has all rows"
                why = f"it is new, and the query has a column or condition {of}"
                whys |= dict.fromkeys(together & begun, why)
            for divisor in _divisors(projected):
                by = {index - passed for index in _referred(divisor)} & begun
                why = "it is new, and the query divides by it, which fails at 0"
                whys |= dict.fromkeys(by, why)
        return match.with_columns(
            lambda each: (
                replace(each, fate=Fate.UNKNOWN, why=whys[each.column.call])
                if each.column.call in whys
                else each
            )
        )

    def _passing(self, match: OperatorMatch, node: PlanNode) -> OperatorMatch:
        """Return the match of rows that are held, which no new column keeps from passing.

        It is NULL in those that are there, whatever it had been: a condition on it would leave them
        out.
        """
        if all(each.fate is not Fate.NULL for each in match.column_matches):
            return match
        emitted = list[Meaning | None]()
        for at, number in enumerate(node.inputs):
            of_input = match.states if len(node.inputs) == 1 else match.states[at : at + 1]
            rows = [row for state in of_input for row in state.columns.values()]
            width = len(self.relations[number].columns)
            row = next((each for each in rows if len(each) == width), ())
            emitted += [
                each.column.meaning if each.fate is Fate.NULL else None for each in row
            ] or [None] * width  # fmt: skip
        conditions = [above.spec.get("condition") for above in self._calcs_above(node)]
        referred = {index for each in conditions for index in _referred(each)}
        passing = {emitted[index] for index in referred if index < len(emitted)} - {None}
        why = "it is new, and the query has a condition on it, which rows that are there would not"
        return match.with_columns(
            lambda each: (
                replace(each, fate=Fate.UNKNOWN, why=f"{why} pass")
                if each.fate is Fate.NULL and each.column.meaning in passing
                else each
            )
        )

    def _calcs_above(self, node: PlanNode) -> Iterator[PlanNode]:
        """Yield the calcs that read a node."""
        for above in self.plan.nodes.values():
            if above.kind == "calc" and node.id in above.inputs:
                yield above

    def _computed(self, node: PlanNode, begun: Collection[int]) -> Iterator[object]:
        """Yield the expressions right above a node; with a condition on what is new all at once."""
        for above in self._calcs_above(node):
            projection, condition = above.spec["projection"], above.spec.get("condition")
            yield from projection
            if not {*_referred(condition)}.isdisjoint(begun):
                yield [condition, *projection]

    def begun(self, match: OperatorMatch) -> OperatorMatch:
        """Return the match of a new operator, with what it misses of rows that came before it."""
        new = match.new
        if match.old is not None or new is None or not (new.states or new.identity):
            return match
        above = list(new.node.inputs)
        for number in above:
            above += [each for each in self.plan.nodes[number].inputs if each not in above]
        if not any(self.found[each].old is not None for each in above if each in self.found):
            return match
        if any(self.relations[each].updates for each in new.node.inputs):
            why = (
                "it is new, and what it reads is updated: rows would be retracted that it never had"
            )
            return replace(match, fate=Fate.UNKNOWN, why=(why,))
        return replace(match, why=("it is new, and has what comes from now on",))

    def sent(
        self,
        match: OperatorMatch,
        before: Mapping[int, Mapping[str, frozenset[Meaning]]],
        after: Mapping[int, Mapping[str, frozenset[Meaning]]],
    ) -> OperatorMatch:
        """Return a match with what becomes of rows that its tables have, or do not have.

        No operator holds what a HAVING lets pass: what is sent is told by the group as it was and
        is.

        Args:
            match: The match of any operator.
            before: To which tables rows of the old nodes come, and by which conditions.
            after: The same of the new nodes.
        """
        old, new = match.old, match.new
        if old is None or new is None or not new.states:
            return match
        if not self.relations[new.node.id].updates:
            return match
        why = []
        for table, now in after[new.node.id].items():
            was = before[old.node.id].get(table)
            if was is None or was == now:
                continue
            name = table.rpartition(".")[2].strip("`")
            if now - was:
                only = ", ".join(map(shortened, ordered(now - was)))
                why.append(
                    f"{name} gets only {only} now: rows that it has and that do not pass stay"
                    " there, as nothing takes them back"
                )
            if was - now:
                only = ", ".join(map(shortened, ordered(was - now)))
                why.append(
                    f"{name} gets no longer only {only}: rows that did not pass come as they"
                    " change, and a delete of one comes that never came before"
                )
        return replace(match, why=(*match.why, *why))


def conditions_passed(
    plan: Plan, relations: Mapping[int, Relation]
) -> dict[int, dict[str, frozenset[Meaning]]]:
    """Return the conditions that rows of each node pass on the way to each table, by number.

    Of nodes from which rows come as they are, or by their columns alone.
    """
    reached: dict[int, dict[str, frozenset[Meaning]]] = {number: {} for number in plan.nodes}
    count = 0
    for node in reversed(list(plan.nodes.values())):
        to = reached[node.id]
        if node.kind == "sink":
            to = {table_of(node): frozenset[Meaning]()}
        elif node.kind not in ("calc", "union") and kind_of(node).emits is not passed:
            to = {}
        for number in node.inputs:
            condition = node.spec.get("condition") if node.kind == "calc" else None
            fields = relations[number].fields
            more = frozenset() if condition is None else conjuncts(condition, fields)
            for table, conditions in to.items():
                # of several ways a row that passes one is there
                known = reached[number].get(table)
                all_of = conditions | more
                reached[number][table] = all_of if known is None else known & all_of
                count += 1 + len(all_of)
                refuse_more_conditions(plan, count)
    return reached


def _divisors(expression: object) -> Iterator[object]:
    """Yield by what an expression divides where no NULL comes before a 0."""
    for part in _parts(expression):
        name = str(part.get("internalName", "")).strip("$").partition("$")[0]
        if name in ("/", "MOD", "%") and str(part.get("type", "")).endswith(" NOT NULL"):
            yield part["operands"][1]


def _referred(expression: object) -> Iterator[int]:
    """Yield the columns that an expression refers to."""
    for part in _parts(expression):
        if part.get("kind") == "INPUT_REF":
            yield part["inputIndex"]


def _parts(expression: object) -> Iterator[Mapping[str, Any]]:
    """Yield an expression and all within it."""
    pending = [expression]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            yield part
            pending += part.values()
        elif isinstance(part, list):
            pending += part
