"""Which operator of a changed job goes on from which of the old one, and what its state keeps.

Operators of one family are paired if they have the same key, by meaning; among several, by the
share of equal columns. Each difference is a sentence that names it: nothing is paired by
a name, a place in the query or a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from statelake.state_core.errors import (
    DeclarationError,
    IncompatibleError,
    NotFoundError,
    did_you_mean,
)
from statelake.state_core.plans.folds import Fold, fold_of, passed_by
from statelake.state_core.plans.lineage import (
    PASSED,
    Relation,
    bare,
    conjuncts,
    function_name,
    in_words,
    lineage_of,
    table_of,
    understood,
    widens,
)
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import (
    COUNTED,
    FAST,
    NO_INITIAL,
    NodeState,
    NodeStates,
    StateColumn,
    ValuePlace,
    states_of,
    whole_node,
)
from statelake.state_core.plans.versions import (
    FILTERED_CHANGES,
    FIRST_ROWS,
    FIRST_ROWS_SENT,
    RETRACTING_SINKS,
    UNFILTERED,
)
from statelake.state_core.serializers.sql.binary.formats import LONG_DIGITS
from statelake.state_core.serializers.sql.binary.projected import reserved_bytes
from statelake.state_core.serializers.sql.types.logical_types import (
    DecimalType,
    LengthType,
    LogicalType,
)

MISSED = "it is new, and old rows that are retracted, or leave its window, would be taken from it"
TALLIED = "its set of values has a count for each call of the column, and these are others"


class Fate(Enum):
    """What becomes of an operator's state, or of a column of it, from the best to the worst."""

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
        """Whether several old groups become one."""
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
        seen: dict[str, ColumnMatch] = {}
        for state in self.states:
            for matches in state.columns.values():
                for match in matches:
                    seen.setdefault(match.column.text, match)
        return list(seen.values())


@dataclass(frozen=True)
class PlanMatch:
    """The match of two plans: every operator with state of both, the new ones first."""

    old: Plan
    new: Plan
    operators: tuple[OperatorMatch, ...]


def match_plans(old: Plan, new: Plan, said: Mapping[int, int] | None = None) -> PlanMatch:
    """Match the operators of two plans.

    Args:
        old: The plan of the job that took the savepoint.
        new: The plan of the job that is to go on from it.
        said: Pairs that the user gives, the old node's number to the new one's.

    Raises:
        DeclarationError: A plan can't be understood.
        NotFoundError: A given pair names no operator with state.
    """
    relations = lineage_of(new)
    before, after = states_of(old, lineage_of(old)), states_of(new, relations)
    pairs = dict(said or {})
    for number, count in Counter(pairs.values()).items():
        if count > 1:
            olds = ", ".join(str(each) for each, to in pairs.items() if to == number)
            raise DeclarationError(
                f"{olds} can't all go on as {number}", remedy="an operator has one state: say"
                " which one it is, --map OLD=NEW",
            )  # fmt: skip
    for number, (plan, states) in {
        **dict.fromkeys(pairs, (old, before)),
        **{value: (new, after) for value in pairs.values() if value not in after},
    }.items():
        if number not in states:
            labels = [each.node.label for each in states.values()]
            raise NotFoundError(
                f"no operator with state has the number {number}",
                place=plan.place,
                remedy=f"there are: {', '.join(labels)}{did_you_mean(str(number), labels)}",
            )
    free = {number: each for number, each in before.items() if number not in pairs}
    found: dict[int, OperatorMatch] = {
        new_: _match(before[old_], after[new_]) for old_, new_ in pairs.items()
    }
    _pair(after, free, found)
    for number in after:  # each after those that it reads
        folded = _folded(found[number], new, relations, found)
        started = _unmixed(_of_new_columns(folded, new, found), new, relations)
        found[number] = _passing(started, new, relations)
    ordered = [_begun(found[number], new, relations, found) for number in after]
    reached = _passed_to(old, lineage_of(old)), _passed_to(new, relations)
    ordered = [_sent(each, *reached, relations) for each in ordered]
    return PlanMatch(old, new, (*ordered, *(_gone(each) for each in free.values())))


def with_held(match: PlanMatch, numbers: Iterable[int]) -> PlanMatch:
    """Return a match of more old nodes: of such as keep no state in general, and have some.

    These are records that wait, for lookups in most cases: they go on in an equal node alone.

    Args:
        match: The match.
        numbers: The numbers of old nodes that have state in a snapshot.
    """
    missed = {*numbers} - {each.old.node.id for each in match.operators if each.old is not None}
    if not missed:
        return match
    kinds = {match.old.nodes[number].kind for number in missed}
    taken = {each.new.node.id for each in match.operators if each.new is not None}
    alike = {n for n, node in match.new.nodes.items() if node.kind in kinds and n not in taken}
    free, after = _whole(match.old, missed), _whole(match.new, alike)
    found: dict[int, OperatorMatch] = {}
    _pair(after, free, found)
    paired = (each for each in found.values() if each.old is not None)
    return replace(match, operators=(*match.operators, *paired, *map(_gone, free.values())))


def _whole(plan: Plan, numbers: Collection[int]) -> dict[int, NodeStates]:
    relations = lineage_of(plan)
    return {
        node.id: whole_node(node, relations[node.id], [relations[each] for each in node.inputs])
        for node in plan.nodes.values()
        if node.id in numbers
    }


def _pair(
    after: Mapping[int, NodeStates],
    free: dict[int, NodeStates],
    found: dict[int, OperatorMatch],
) -> None:
    """Match new operators with old ones, which are taken from those that are free.

    Args:
        after: The new operators, by number.
        free: The old operators that no new one continues yet.
        found: The matches, by the number of the new operator; those that are there stay.
    """
    wanted = [number for number in after if number not in found]
    # the surest pairs first: an operator that is not sure takes what these have left
    for number, candidates in sorted(
        ((number, _candidates(after[number], free)) for number in wanted),
        key=lambda each: -max((score for score, _ in each[1]), default=0),
    ):
        left = [(score, old_) for score, old_ in candidates if old_ in free]
        if not left:
            found[number] = OperatorMatch(None, after[number], fate=Fate.STARTS_NOW)
            continue
        best = max(score for score, _ in left)
        ties = [old_ for score, old_ in left if score == best]
        matches = [_match(free[old_], after[number]) for old_ in ties]
        match = matches[0]
        alike = len({free[old_].use for old_ in ties}) == 1
        if len(ties) > 1 and not (alike and all(map(_exact, matches))):
            fitting = " and ".join(free[each].node.label for each in ties)
            why = f"{fitting} fit alike: say which one it is, --map OLD={number}"
            found[number] = replace(match, fate=Fate.UNKNOWN, why=(*match.why, why))
        else:
            found[number] = match
        del free[ties[0]]


def _folded(
    match: OperatorMatch,
    plan: Plan,
    relations: Mapping[int, Relation],
    found: Mapping[int, OperatorMatch],
) -> OperatorMatch:
    """Return the match of an aggregate, with what is computed from the rows that it reads."""
    new = [each for each in match.column_matches if _is_missed(each)]
    if not new or match.new is None or not any(state.new.updates for state in match.states):
        return match
    said: dict[str, ColumnMatch] = {}
    fold: Fold | None = None
    with understood(plan, match.new.node):
        for each in new:  # each has its own reason
            try:
                made = fold_of(match, each.column, plan, relations, found)
            except IncompatibleError as error:
                why = f"{MISSED}, which never counted them. It can't be computed: {error.problem}"
                said[each.column.text] = replace(each, why=why)
                continue
            fold = made if fold is None else fold.with_arguments(made.arguments)
            why = f"from the rows that {made.label} keeps"
            said[each.column.text] = replace(each, fate=Fate.FULL, why=why)
    states = [
        replace(
            state,
            columns={
                place: tuple(
                    replace(said[each.column.text], column=each.column)
                    if _is_missed(each)
                    else each
                    for each in matches
                )
                for place, matches in state.columns.items()
            },
        )
        for state in match.states
    ]
    return replace(match, states=tuple(states), fold=fold)


def _is_missed(match: ColumnMatch) -> bool:
    return match.why == MISSED


def _of_new_columns(
    match: OperatorMatch, plan: Plan, found: Mapping[int, OperatorMatch]
) -> OperatorMatch:
    """Return the match of an aggregate, whose new calls of what is new below it start now.

    A SUM that starts now is NULL in every group that is there. What takes such a group back has
    this NULL in it, which no SUM, AVG or COUNT of that column had counted.

    Args:
        match: The match of any operator.
        plan: The new plan.
        found: The operators of the new plan by number, those below it as they were matched.
    """
    if not match.misses or match.fate.rank or match.new is None or match.new.family != "groups":
        return match
    node = match.new.node
    (number,) = node.inputs
    if node.kind == "global-group-aggregate":  # whose calls read what the local one reads
        (number,) = plan.nodes[passed_by(plan, number)].inputs
    why = "it is new, and NULL in all rows that came: it counts from now on"

    def begun(each: ColumnMatch) -> ColumnMatch:
        if not each.why.startswith(MISSED) or each.column.initial is NO_INITIAL:
            return each
        call = node.spec["aggCalls"][each.column.call] if each.column.call >= 0 else {}
        if each.column.adds is None or len(call.get("argList", ())) != 1:
            return each
        below = _is_null_before(plan, number, call["argList"][0], found)
        return replace(each, fate=Fate.STARTS_NOW, why=why) if below else each

    with understood(plan, node):
        states = tuple(
            replace(state, columns={
                place: tuple(map(begun, row)) for place, row in state.columns.items()
            })
            for state in match.states
        )  # fmt: skip
    return replace(match, states=states)


def _is_null_before(
    plan: Plan, number: int, index: int, found: Mapping[int, OperatorMatch]
) -> bool:
    """Return whether a column is NULL in all rows that an aggregate below has emitted until now."""
    while True:
        number = passed_by(plan, number)
        node = plan.nodes[number]
        if node.kind != "calc":
            break
        projected = node.spec["projection"][index]
        while projected.get("internalName") == "$CAST$1":
            (projected,) = projected["operands"]
        if projected.get("kind") != "INPUT_REF":
            return False
        index, (number,) = projected["inputIndex"], node.inputs
    match = found.get(number)
    if match is None or match.old is None or match.new is None or match.fate.rank or match.keys:
        return False
    at = index - len(node.spec.get("grouping", ()))
    if match.new.family != "groups" or at < 0:
        return False
    if function_name(node.spec["aggCalls"][at]).removeprefix("$") in ("COUNT", "SUM0"):
        return False  # which begin as 0
    fates = {each.fate for each in match.column_matches if each.column.call == at}
    return fates == {Fate.STARTS_NOW}


def _unmixed(match: OperatorMatch, plan: Plan, relations: Mapping[int, Relation]) -> OperatorMatch:
    """Return the match of an aggregate, without a call that starts now and is mixed with others.

    The planner makes an average of a sum and a count that are calls of their own: where one of them
    is new, it would be a sum of all rows by a count of those that come from now on. A job that
    divides by a count which begins as 0 fails with its first row.

    Args:
        match: The match of any operator.
        plan: The new plan.
        relations: What each of its nodes emits.
    """
    if match.new is None or match.old is None:
        return match
    node = match.new.node
    matches = [each for state in match.states for row in state.columns.values() for each in row]
    calls = {each.column.call for each in matches} - {-1}
    begun = {each.column.call for each in matches if each.fate is Fate.STARTS_NOW} & calls
    if not begun or begun == calls:
        return match
    passed = len(node.spec["grouping"] if "grouping" in node.spec else
                 relations[node.inputs[0]].columns)  # fmt: skip
    said: dict[int, str] = {}
    for projected in _computed(plan, node, {call + passed for call in begun}):
        together = {index - passed for index in _referred(projected)} & calls
        if together & begun and together - begun:
            kept = {each.column.name for each in matches if each.column.call in together - begun}
            of = f"of it and of {' and '.join(sorted(kept))}, which has all rows"
            why = f"it is new, and the query has a column or condition {of}"
            said |= dict.fromkeys(together & begun, why)
        for divisor in _divisors(projected):
            by = {index - passed for index in _referred(divisor)} & begun
            said |= dict.fromkeys(by, "it is new, and the query divides by it, which fails at 0")
    states = [
        replace(state, columns={
            place: tuple(
                replace(each, fate=Fate.UNKNOWN, why=said[each.column.call])
                if each.column.call in said else each
                for each in row
            )
            for place, row in state.columns.items()
        })
        for state in match.states
    ]  # fmt: skip
    return replace(match, states=tuple(states))


def _passing(match: OperatorMatch, plan: Plan, relations: Mapping[int, Relation]) -> OperatorMatch:
    """Return the match of rows that are held, of which no new column is one that lets them pass.

    It is NULL in those that are there, whatever it had been: a condition on it would leave them
    out.

    Args:
        match: The match of any operator.
        plan: The new plan.
        relations: What each of its nodes emits.
    """
    if match.new is None or all(each.fate is not Fate.NULL for each in match.column_matches):
        return match
    node, emitted = match.new.node, list[str]()
    for at, number in enumerate(node.inputs):
        held = match.states if len(node.inputs) == 1 else match.states[at : at + 1]
        rows = [row for state in held for row in state.columns.values()]
        width = len(relations[number].columns)
        row = next((each for each in rows if len(each) == width), ())
        emitted += [
            each.column.text if each.fate is Fate.NULL else "" for each in row
        ] or [""] * width  # fmt: skip
    told: set[str] = set()
    for above in plan.nodes.values():
        if above.kind == "calc" and node.id in above.inputs:
            referred = _referred(above.spec.get("condition"))
            told |= {emitted[index] for index in referred if index < len(emitted)}
    told.discard("")
    why = "it is new, and the query has a condition on it, which rows that are there would not pass"
    states = [
        replace(state, columns={
            place: tuple(
                replace(each, fate=Fate.UNKNOWN, why=why)
                if each.fate is Fate.NULL and each.column.text in told else each
                for each in row
            )
            for place, row in state.columns.items()
        })
        for state in match.states
    ]  # fmt: skip
    return replace(match, states=tuple(states)) if told else match


def _computed(plan: Plan, node: PlanNode, begun: Collection[int]) -> Iterator[object]:
    """Yield the expressions right above a node; with a condition on what is new all at once."""
    for above in plan.nodes.values():
        if above.kind == "calc" and node.id in above.inputs:
            projection, condition = above.spec["projection"], above.spec.get("condition")
            yield from projection
            if not {*_referred(condition)}.isdisjoint(begun):
                yield [condition, *projection]


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


def _begun(
    match: OperatorMatch,
    plan: Plan,
    relations: Mapping[int, Relation],
    found: Mapping[int, OperatorMatch],
) -> OperatorMatch:
    """Return the match of a new operator, with what it misses of rows that came before it."""
    new = match.new
    if match.old is not None or new is None or not (new.states or new.identity):
        return match
    above = list(new.node.inputs)
    for number in above:
        above += [each for each in plan.nodes[number].inputs if each not in above]
    if not any(found[each].old is not None for each in above if each in found):
        return match
    if any(relations[each].updates for each in new.node.inputs):
        why = "it is new, and what it reads is updated: rows would be retracted that it never had"
        return replace(match, fate=Fate.UNKNOWN, why=(why,))
    return replace(match, why=("it is new, and has what comes from now on",))


def _passed_to(
    plan: Plan, relations: Mapping[int, Relation]
) -> dict[int, dict[str, frozenset[str]]]:
    """Return the conditions that rows of each node pass on the way to each table, by number.

    Of nodes from which rows come as they are, or by their columns alone.
    """
    reached: dict[int, dict[str, frozenset[str]]] = {number: {} for number in plan.nodes}
    for node in reversed(list(plan.nodes.values())):
        to = reached[node.id]
        if node.kind == "sink":
            to = {table_of(node): frozenset[str]()}
        elif node.kind not in ("calc", "union", *PASSED):
            to = {}
        for number in node.inputs:
            condition = node.spec.get("condition") if node.kind == "calc" else None
            more = frozenset() if condition is None else conjuncts(condition, relations[number])
            for table, conditions in to.items():
                # of several ways a row that passes one is there
                known = reached[number].get(table)
                passed = conditions | more
                reached[number][table] = passed if known is None else known & passed
    return reached


def _sent(
    match: OperatorMatch,
    before: Mapping[int, Mapping[str, frozenset[str]]],
    after: Mapping[int, Mapping[str, frozenset[str]]],
    relations: Mapping[int, Relation],
) -> OperatorMatch:
    """Return a match with what becomes of rows that its tables have, or do not have.

    No operator holds what a HAVING lets pass: what is sent is told by the group as it was and is.

    Args:
        match: The match of any operator.
        before: To which tables rows of the old nodes come, and by which conditions.
        after: The same of the new nodes.
        relations: What each of the new nodes emits.
    """
    old, new = match.old, match.new
    if old is None or new is None or not relations[new.node.id].updates or not new.states:
        return match
    why = []
    for table, now in after[new.node.id].items():
        was = before[old.node.id].get(table)
        if was is None or was == now:
            continue
        name = table.rpartition(".")[2].strip("`")
        if now - was:
            only = ", ".join(map(_short, sorted(now - was)))
            why.append(
                f"{name} gets only {only} now: rows that it has and that do not pass stay there, as"
                " nothing takes them back"
            )
        if was - now:
            only = ", ".join(map(_short, sorted(was - now)))
            why.append(
                f"{name} gets no longer only {only}: rows that did not pass come as they change,"
                " and a delete of one comes that never came before"
            )
    return replace(match, why=(*match.why, *why))


def _exact(match: OperatorMatch) -> bool:
    return match.fate is Fate.KEEPS and all(state.same for state in match.states)


def _gone(old: NodeStates) -> OperatorMatch:
    what = "source" if old.family == "table-source-scan" else "state"
    if not old.states and not old.identity and what == "state":
        return OperatorMatch(old, None, fate=Fate.KEEPS)
    return OperatorMatch(
        old, None, fate=Fate.LOST, why=(f"no operator of the new job goes on from its {what}",)
    )


def _candidates(new: NodeStates, free: Mapping[int, NodeStates]) -> list[tuple[float, int]]:
    """Return the old operators that a new one may continue, with their scores above 0."""
    scored = [(_score(old, new), number) for number, old in free.items()]
    return [(score, number) for score, number in scored if score > 0]


def _score(old: NodeStates, new: NodeStates) -> float:
    """Return how well an operator fits: 0 if it can't."""
    if old.family != new.family:
        return 0.0
    if new.family in ("table-source-scan", "sink") and old.settings != new.settings:
        return 0.0
    texts, others = _texts(old), _texts(new)
    shared = len(texts & others) / max(len(texts | others), 1) if texts | others else 1.0
    other_keys = sorted(old.keys) != sorted(new.keys) and not _materializes_otherwise(old, new)
    if old.sets and new.sets:
        other_keys = not _kept_sets(old, new)
    if other_keys and not old.identity:
        if new.keys and Counter(new.keys) <= Counter(old.keys):  # groups that merge
            return 0.1 + 0.5 * shared + 0.3 * (old.reads == new.reads)
        return 0.01 if new.keys and set(old.keys) & set(new.keys) else 0.0
    equal = (old.reads == new.reads) + (old.settings == new.settings) + (
        old.filters == new.filters
    )  # fmt: skip
    uses = sum(one == other for one, other in zip(old.use, new.use, strict=True))
    return 1.0 + shared + equal + uses + (old.keys == new.keys) * 0.1


def _materializes_otherwise(old: NodeStates, new: NodeStates) -> bool:
    """Return whether only one of two sinks holds rows, by their keys."""
    return old.family == new.family == "sink" and bool(old.states) != bool(new.states)


def _texts(states: NodeStates) -> set[str]:
    rows = [row for state in states.states for row in state.rows.values()]
    return {bare(column.text) for row in rows for column in row}


# --------------------------------------------------------------------------- one operator


def _match(old: NodeStates, new: NodeStates) -> OperatorMatch:
    """Return what a new operator keeps of an old one."""
    fate, why = Fate.KEEPS, list[str]()

    def worse(than: Fate, because: str) -> None:
        nonlocal fate
        fate = worst([fate, than])
        why.append(because)

    if old.family != new.family:
        worse(Fate.LOST, f"it was {old.node.label}, which keeps other state")
    elif new.identity or old.identity:
        for because in _differences(old, new):
            worse(Fate.UNKNOWN, because)
    keys, key_fate, because = _moved(old, new)
    if _materializes_otherwise(old, new):
        worse(Fate.LOST, _materializes_text(new))
    elif because:
        worse(key_fate, because)
    if new.identity or old.identity:
        if fate is not Fate.KEEPS:
            worse(fate, f"{_kept_whole(new)}: make this edit in another part of the query, or begin"
                  f" anew what this one holds, --accept lost={new.node.label}")  # fmt: skip
        elif old.filters != new.filters:
            worse(Fate.FILTER, _filters_text(old, new))
        return OperatorMatch(old, new, (), fate, tuple(why))
    for than, because in _changes(old, new):
        worse(than, because)
    if fate is not Fate.LOST and new.change is FIRST_ROWS and old.change is None:
        worse(Fate.STARTS_NOW, FIRST_ROWS_SENT)
        marked = next(each for each in new.states if not each.rows)
        states = [StateMatch(marked, each, marks=True) for each in old.states]
        return OperatorMatch(old, new, tuple(states), fate, tuple(why), keys)
    if fate is not Fate.LOST and old.change is not new.change:
        worse(Fate.UNKNOWN, str(new.change or old.change))
        return OperatorMatch(old, new, (), fate, tuple(why))
    if fate is Fate.LOST:
        return OperatorMatch(old, new, (), fate, tuple(why))
    kept = _kept_sets(old, new) if keys else {}
    states = []
    for state in new.states:
        before_state = next((each for each in old.states if each.name == state.name), None)
        if before_state is None or before_state.form != state.form:
            had = "nothing like it" if before_state is None else before_state.form
            holds, had = _short(state.form, 600), _short(had, 600)
            worse(Fate.UNKNOWN, f"its state {state.name!r} holds {holds}, and there was {had}")
            continue
        matched = _state_match(before_state, state)
        if len(keys or new.keys) < len(old.keys) and not kept:
            matched = _merged_state(matched)
            why += _rounding(matched)
        states.append(matched)
    names = {each.name for each in new.states}
    for gone in old.states:
        if gone.name not in names:
            worse(Fate.UNKNOWN, f"its state {gone.name!r} is not read by the new job")
    return OperatorMatch(old, new, tuple(states), fate, tuple(why), keys, sets=kept)


def _changes(old: NodeStates, new: NodeStates) -> Iterator[tuple[Fate, str]]:
    """Yield what is not equal of two nodes beside their keys and states, and what comes of it."""
    if old.reads != new.reads and not _materializes_otherwise(old, new):
        yield Fate.LOST, _reads_text(old, new)
    for name, setting in new.settings.items():
        before = old.settings.get(name)
        if before != setting:
            now, was = _short(setting, 600), _short(before or "none", 600)
            yield Fate.LOST, f"its {name} is another: {now}, and it was {was}"
    if old.filters != new.filters:
        yield Fate.FILTER, _filters_text(old, new)
    if new.filters - old.filters and old.withheld - new.withheld:
        yield Fate.UNKNOWN, str(FILTERED_CHANGES)
    if old.sets and new.sets:
        yield from _other_sets(old, new)
    for name, limit in new.limits.items():
        before = old.limits.get(name)
        if before != limit:
            than, because = limited(old.node, new.node)
            yield than, f"{name}: {limit}, and it was {before}: {because}"


def _kept_sets(old: NodeStates, new: NodeStates) -> dict[int, int]:
    """Return the new number of each grouping set that both aggregates have, by the old one."""
    numbers = {each: number for number, each in new.sets.items()}
    return {number: numbers[each] for number, each in old.sets.items() if each in numbers}


def _other_sets(old: NodeStates, new: NodeStates) -> Iterator[tuple[Fate, str]]:
    """Yield which grouping sets are new, and which are gone."""
    was, now = ({*each.sets.values()} for each in (old, new))
    begun = f"of {_shown_sets(now - was)} all groups are new"
    if now - was and any(state.updates for state in new.states):
        why = f"{begun}, and what it reads is updated: rows would be retracted that they never had"
        yield Fate.UNKNOWN, why
    elif now - was:
        yield Fate.STARTS_NOW, f"{begun}, and start now"
    if was - now and was & now:
        gone = _shown_sets(was - now)
        yield Fate.KEEPS, f"groups of {gone} are left out, and rows of them that came stay there"


def _shown_sets(sets: Iterable[frozenset[str]]) -> str:
    shown = sorted(f"({', '.join(map(_short, sorted(each)))})" for each in sets)
    return f"the grouping set{'s' if len(shown) > 1 else ''} {' and '.join(shown)}"


def _moved_sets(old: NodeStates, new: NodeStates) -> tuple[tuple[int, ...], Fate, str]:
    """Return what `_moved` does, of aggregates with grouping sets.

    What is in no old set is NULL in all old keys; what is in no new one goes with its groups.
    """
    kept = _kept_sets(old, new)
    if not kept:
        return (), Fate.LOST, "it has other grouping sets"
    keys = tuple(old.keys.index(each) if each in old.keys else -1 for each in new.keys)
    pairs = [(old.key_types[at], new.key_types[i]) for i, at in enumerate(keys) if at >= 0]
    if not all(_is_held(*each) for each in pairs):
        was, now = (", ".join(str(pair[at]) for pair in pairs) for at in (0, 1))
        why = f"its key was of the type {was}, and is {now}, which {_not_held(was)}"
        return keys, Fate.LOST, why
    same = keys == tuple(range(len(old.keys))) and all(same_bytes(*each) for each in pairs)
    if same and len(kept) == len(old.sets) and all(one == other for one, other in kept.items()):
        return (), Fate.KEEPS, ""
    why = "its keys move: each group goes to the number and the columns of its grouping set"
    return keys, Fate.KEEPS, why


def limited(old: PlanNode, new: PlanNode) -> tuple[Fate, str]:
    """Return what becomes of a TopN that is to keep more rows of each key, or less, and why."""
    was, now = (each.spec["rankRange"].get("end") for each in (old, new))
    kind = (new.spec.get("rankStrategy") or {}).get("type")
    come = "rows that were not kept come as they change"
    if was is None or now is None:
        return Fate.STARTS_NOW, come
    if new.kind == "window-rank":
        fate = Fate.STARTS_NOW if now > was else Fate.KEEPS
        return fate, "windows that are open have no more than they held"
    if now > was:
        taken = "" if kind in FAST else (
            ". It holds all rows, and takes those up to the new end to be there: of one that goes,"
            " or moves, a delete comes that no row came before"
        )  # fmt: skip
        return Fate.STARTS_NOW, f"{come}{taken}"
    stay = f"rows beyond {now} that came stay where they came, as nothing takes them back"
    if kind in FAST and not new.spec.get("outputRankNumber"):
        return Fate.UNKNOWN, f"a key that has {was} goes on with {was}, and {stay}"
    again = "" if kind in FAST else ", and come again when they move up"
    return Fate.STARTS_NOW, f"{come}; {stay}{again}"


def _moved(old: NodeStates, new: NodeStates) -> tuple[tuple[int, ...], Fate, str]:
    """Return what `_moved_keys` does, what becomes of the state, and why; empty if keys stay."""
    if old.sets and new.sets:
        return _moved_sets(old, new)
    keys = None if old.sets or new.sets else _moved_keys(old, new)
    if keys is None:
        return (), Fate.LOST, _keys_text(old, new)
    if not keys:
        return (), Fate.KEEPS, ""
    types = [old.key_types[each] for each in keys]
    if not all(map(_is_held, types, new.key_types)):
        was, now = (", ".join(map(str, each)) for each in (types, new.key_types))
        why = f"its key was of the type {was}, and is {now}, which {_not_held(was)}"
        return keys, Fate.LOST, why
    if len(keys) < len(old.keys):
        merged, why = _merged_groups(old, new)
        return keys, Fate.KEEPS if merged else Fate.LOST, why
    return (
        keys,
        Fate.KEEPS,
        (
            f"its key moves: it was ({_shown_key(old)}), and is ({_shown_key(new)}); each entry and"
            " timer goes to the key group of its new key"
        ),
    )


def _moved_keys(old: NodeStates, new: NodeStates) -> tuple[int, ...] | None:
    """Return the old column of each column of a new key.

    None if there is not one for each; empty if keys keep their bytes.
    """
    if Counter(new.keys) - Counter(old.keys) or (old.keys and not new.keys):
        return None
    free = list(range(len(old.keys)))
    found = []
    for text in new.keys:
        at = next(each for each in free if old.keys[each] == text)
        free.remove(at)
        found.append(at)
    stay = found == list(range(len(old.keys)))
    stay = stay and all(map(same_bytes, old.key_types, new.key_types))
    return () if stay else tuple(found)


def _merged_groups(old: NodeStates, new: NodeStates) -> tuple[bool, str]:
    """Return whether groups that become one can be merged, and a sentence that says it."""
    was, now = _shown_key(old), _shown_key(new)
    if new.family not in ("groups", "windows"):
        return False, f"its key was ({was}), and is ({now}): only aggregates can be merged"
    if "Session" in new.settings.get("window", ""):
        return False, f"its key was ({was}), and is ({now}): which sessions are one is not known"
    return True, (
        f"its groups merge: they were by ({was}), and are by ({now}); what each holds is added up"
    )


def merged_by(column: StateColumn) -> str:
    """Return how a column of groups that become one is merged: `sum`, `min`, `max`; or not."""
    function, _, of = column.text.partition("(")
    if column.type is None or of.startswith("DISTINCT "):
        return ""
    return {"COUNT": "sum", "SUM": "sum", "SUM0": "sum", "MIN": "min", "MAX": "max"}.get(
        function, ""
    )


def _merged_state(match: StateMatch) -> StateMatch:
    """Return the match of a state whose groups merge, as far as its columns do."""
    why = "its groups merge, and what it holds of each does not tell what it is of all"
    columns = {
        place: tuple(
            replace(each, fate=worst([each.fate, Fate.UNKNOWN]), why=each.why or why)
            if each.old is not None and not merged_by(each.column)
            else each
            for each in matches
        )
        for place, matches in match.columns.items()
    }
    return replace(match, columns=columns)


def _rounding(match: StateMatch) -> list[str]:
    """Return a sentence if sums are added up that depend on the order; none otherwise."""
    matches = [each for row in match.columns.values() for each in row]
    sums = [each.column for each in matches if merged_by(each.column) == "sum"]
    if any(each.type is not None and each.type.root in ("FLOAT", "DOUBLE") for each in sums):
        return ["its sums of floating point are added in another order: last digits may differ"]
    return []


def _is_held(old: LogicalType, new: LogicalType) -> bool:
    return same_bytes(old, new) or widens(old, new)


def _not_held(was: str) -> str:
    if "FLOAT" in was:
        return "may be another number: 0.1 as FLOAT is not 0.1 as DOUBLE"
    return "does not hold all values of the old type as they are"


def _shown_key(states: NodeStates) -> str:
    pairs = zip(states.keys, states.key_types, strict=True)
    return ", ".join(f"{_short(text)} {kind}" for text, kind in pairs)


# the message for a node whose state concerns that node alone, by its kind
WHOLE = {
    "match": "matches that have begun stand for places in MATCH_RECOGNIZE as it was",
    "process-table-function": "what a process table function holds is its own, by its call",
    "multi-join": "a join of several tables holds the rows of each for the conditions as they were",
    "delta-join": "it holds records that wait for lookups, none if its sources had been idle",
    "lookup-join": "it holds records that wait for lookups, none if its sources had been idle",
}
MATERIALIZED = "it holds what lookups found, by which rows are taken back"


def _kept_whole(states: NodeStates) -> str:
    """Return why a node's state is kept only if nothing of it changes."""
    if states.node.spec.get("requireUpsertMaterialize"):
        return MATERIALIZED
    return WHOLE.get(states.family, "what it holds is known as a whole alone")


def _differences(old: NodeStates, new: NodeStates) -> Iterator[str]:
    """Yield what is not equal of two nodes whose state is no more than their own."""
    if old.reads != new.reads:
        yield _reads_text(old, new)
    if old.settings.get("key") != new.settings.get("key"):
        now, was = (_short(each.settings.get("key") or "one for all rows") for each in (new, old))
        yield f"its key is {now}, and it was {was}"
    if old.settings.get("time to live") != new.settings.get("time to live"):
        yield "its time to live is switched on or off"
    elif old.reads == new.reads and old.settings != new.settings:
        yield "its own part of the query is another"


def _keys_text(old: NodeStates, new: NodeStates) -> str:
    return (
        f"its key was {', '.join(map(_short, old.keys)) or 'one for all rows'}, and is"
        f" {', '.join(map(_short, new.keys)) or 'one for all rows'}: what belongs to which key is"
        " not known"
    )


def _reads_text(old: NodeStates, new: NodeStates) -> str:
    for before, after in zip(old.reads, new.reads, strict=False):
        if before != after:
            now, was = _short(after), _short(before)
            if now == was:
                return f"it reads other rows: {now}, of which something is not as it was"
            return f"it reads other rows: {now}, and it read {was}"
    return f"it has {len(new.reads)} inputs, and had {len(old.reads)}"


def _materializes_text(new: NodeStates) -> str:
    """Return what is wrong with a sink that holds rows, and did not, or the other way round."""
    if new.states:
        return "it settles which row of a key stays, and rows that came before are not known"
    text = "the old job settled which of several rows of a key stays, and the new one does not"
    retracts = "UPDATE_BEFORE" in new.node.spec.get("inputChangelogMode", ())
    return f"{text}. {RETRACTING_SINKS}" if retracts else text


def _short(text: str, most: int = 160) -> str:
    text = in_words(text).strip()
    return text if len(text) <= most else f"{text[:most]}..."


def _filters_text(old: NodeStates, new: NodeStates) -> str:
    added = sorted(new.filters - old.filters)
    gone = sorted(old.filters - new.filters)
    parts = [f"now only {', '.join(map(_short, added))}"] if added else []
    parts += [f"no longer only {', '.join(map(_short, gone))}"] if gone else []
    return f"another filter: {'; '.join(parts)}. What it holds was counted by the old one"


def _state_match(old: NodeState, new: NodeState) -> StateMatch:
    columns: dict[ValuePlace, tuple[ColumnMatch, ...]] = {}
    left_out: list[StateColumn] = []
    for place, row in new.rows.items():
        before = old.rows.get(place, ())
        taken: set[int] = set()
        matches: list[ColumnMatch] = []
        for column in row:
            match = _counted(_column_match(column, before, taken, new), before)
            if new.updates or (place is ValuePlace.USER_KEY and "with counts" not in new.form):
                match = _found_again(match, before)
            if match.old is not None:
                taken.add(match.old)
            matches.append(match)
        matches = [_with_bits(each, matches, before) for each in _whole_calls(matches, new)]
        taken = {each.old for each in matches if each.old is not None}
        columns[place] = tuple(matches)
        left_out += [column for index, column in enumerate(before) if index not in taken]
    return StateMatch(new, old, columns, tuple(left_out))


def _whole_calls(matches: Sequence[ColumnMatch], state: NodeState) -> list[ColumnMatch]:
    """Return matches, with all columns of a call new of which one is new.

    An average whose count begins now has nothing of its old sum. Where rows are updated, what is
    new is computed in full, or unknown.
    """
    if state.updates:
        return list(matches)
    begun = {each.column.call for each in matches if each.old is None} - {-1}
    return [
        _begun_column(each.column, state) if each.column.call in begun else each
        for each in matches
    ]  # fmt: skip


def _with_bits(
    match: ColumnMatch, matches: Sequence[ColumnMatch], before: Sequence[StateColumn]
) -> ColumnMatch:
    """Return the match of a set of distinct values with what becomes of its bits.

    Args:
        match: The match of any column.
        matches: Those of all columns of its row.
        before: The columns of the old row.
    """
    if match.old is None or not match.column.bits:
        return match
    old = before[match.old].bits
    found = []
    for call in match.column.bits:
        olds = [each.old for each in matches if each.column.call == call]
        known = [before[each].call for each in olds if each is not None]
        whole = len(known) == len(olds) and set(known) <= set(old)
        found.append(tuple(sorted({old.index(each) for each in known})) if whole else ())
    if not any(found):
        why = "all of its calls are new, and count from now on"
        return ColumnMatch(match.column, None, Fate.STARTS_NOW, why)
    if not match.column.tallies:
        return replace(match, bits=tuple(found))
    return match if all(found) else replace(match, fate=Fate.UNKNOWN, why=TALLIED)


def _counted(match: ColumnMatch, before: Sequence[StateColumn]) -> ColumnMatch:
    """Return the match of a column, of whose jobs one may not apply its filter."""
    if match.old is None or match.fate is not Fate.KEEPS:
        return match
    if match.column.unfiltered is before[match.old].unfiltered:
        return match
    whose = "new" if match.column.unfiltered else "old"
    return replace(match, fate=Fate.FILTER, why=f"{UNFILTERED}, as that of the {whose} job may")


def _found_again(match: ColumnMatch, before: Sequence[StateColumn]) -> ColumnMatch:
    """Return the match of a column by which rows are found; unknown if they may not be."""
    kind, found = match.column.type, None if match.old is None else before[match.old].type
    if (
        kind is None or found is None or match.column.counts or match.fate is not Fate.KEEPS
        or same_bytes(found, kind) or not (kind.nullable and reserved_bytes(kind))
    ):  # fmt: skip
        return match
    why = f"NULL in {kind} has two forms, and a row that is there is only found by its own"
    return replace(match, fate=Fate.UNKNOWN, why=why)


def _column_match(
    column: StateColumn,
    before: Sequence[StateColumn],
    taken: set[int],
    state: NodeState,
) -> ColumnMatch:
    for free in (True, False):  # two columns of one meaning each take their own, if there are two
        for index, old in enumerate(before):
            if bare(old.text) == bare(column.text) and (index not in taken) is free:
                return _typed(column, index, old)
    if (converted := _other_sum(column, before)) is not None:
        return converted
    begun = _begun_column(column, state)
    counted, tallies, _ = column.text.partition(COUNTED)
    if tallies and begun.fate is Fate.STARTS_NOW and any(
        old.text.startswith(f"{counted}{tallies}") for old in before
    ):  # fmt: skip
        return replace(begun, fate=Fate.UNKNOWN, why=TALLIED)
    return begun


def _begun_column(column: StateColumn, state: NodeState) -> ColumnMatch:
    """Return what becomes of a column that no old one continues."""
    if column.counts and state.updates and (
        column.initial is not NO_INITIAL or column.adds is not None
    ):  # fmt: skip
        return ColumnMatch(column, None, Fate.UNKNOWN, MISSED)
    if column.initial is NO_INITIAL:
        return ColumnMatch(column, None, Fate.UNKNOWN, "only Java knows what it begins as")
    if not column.counts:
        return _new_column(column, state)
    return ColumnMatch(column, None, Fate.STARTS_NOW, "it is new, and counts from now on")


def _other_sum(column: StateColumn, before: Sequence[StateColumn]) -> ColumnMatch | None:
    """Return the match of a sum that begins with NULL and an old one that begins with 0, or back.

    Flink's planner holds the sums of a query with SUM, COUNT and AVG of one column as `$SUM0`.
    """
    texts = [old.text for old in before]
    function, _, of = column.text.partition("(")
    other = {"SUM": "SUM0", "SUM0": "SUM"}.get(function)
    if other is None or f"{other}({of}" not in texts:
        return None
    index = texts.index(f"{other}({of}")
    match = _typed(column, index, before[index])
    if function == "SUM0":
        return replace(match, filled=True)
    # no value, or values that are 0 together?
    count = f"COUNT({of}"
    return replace(match, counted=texts.index(count)) if count in texts else None


def _new_column(column: StateColumn, state: NodeState) -> ColumnMatch:
    """Return what becomes of a column that rows in state do not have."""
    if column.text == "PROCTIME()":  # a mark in the type: rows hold nothing there
        return ColumnMatch(column, None, Fate.KEEPS)
    if column.type is not None and not column.type.nullable:
        why = "it is new, and can't be null in the rows that are there"
        return ColumnMatch(column, None, Fate.UNKNOWN, why)
    if state.updates and state.form.startswith("rows with counts"):
        why = "it is new, and rows are found by all of their columns: a later update of a row that"
        return ColumnMatch(column, None, Fate.UNKNOWN, f"{why} is there would not find it")
    if state.updates and "sort key" in state.form:
        why = "it is new, and a later update of a row that is there would not find it"
        return ColumnMatch(column, None, Fate.UNKNOWN, why)
    return ColumnMatch(column, None, Fate.NULL, "it is new, and null in the rows that are there")


def _typed(column: StateColumn, index: int, old: StateColumn) -> ColumnMatch:
    """Return the match of a column that is there, whose type may have changed."""
    if column.of != old.of:
        was, now = (", ".join(map(str, each.of)) for each in (old, column))
        why = f"its state of its own holds {was}, and is to hold {now}"
        return ColumnMatch(column, index, Fate.LOST, why)
    if column.type is None or old.type is None or same_bytes(old.type, column.type):
        return ColumnMatch(column, index, Fate.KEEPS)
    if widens(old.type, column.type):
        function, call, _ = column.text.partition("(")
        if not call or function in ("MIN", "MAX"):
            return ColumnMatch(column, index, Fate.KEEPS)
        why = f"it was {old.type}, and is {column.type}: what was added up may have overflowed"
        return ColumnMatch(column, index, Fate.UNKNOWN, why)
    return ColumnMatch(column, index, Fate.LOST, f"it was {old.type}, and is {column.type}")


def same_bytes(old: LogicalType, new: LogicalType) -> bool:
    """Return whether values of a type have the same bytes in another one, if it can hold them."""
    if old.root != new.root:
        return False
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        # up to 18 digits it is a number of eight bytes, beyond a number of as many as it needs
        compact = [each.precision <= LONG_DIGITS for each in (old, new)]
        return old.scale == new.scale and len(set(compact)) == 1 and old.precision <= new.precision
    if isinstance(old, LengthType) and isinstance(new, LengthType):
        return old.root == "VARCHAR" or old.length == new.length
    return old.text == new.text
