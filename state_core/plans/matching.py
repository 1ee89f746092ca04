"""The assignment of a changed job's operators to those of the old job, and the state they keep.

Operators of one family are paired if they have the same key, by meaning; among several, by the
share of equal columns. Each difference is a sentence that names it: nothing is paired by
a name, a place in the query or a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from statelake.state_core.errors import (
    DeclarationError,
    NotFoundError,
    did_you_mean,
)
from statelake.state_core.plans.around import NodesAround, conditions_passed
from statelake.state_core.plans.kinds import kind_of, lineage_of, states_of, whole_node
from statelake.state_core.plans.lineage import understood, widens
from statelake.state_core.plans.matches import (
    MISSED,
    ColumnMatch,
    Fate,
    OperatorMatch,
    PlanMatch,
    StateMatch,
    worst,
)
from statelake.state_core.plans.meanings import (
    Aggregate,
    Call,
    Meaning,
    bare,
    ordered,
    shortened,
)
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import (
    FAST,
    NO_INITIAL,
    NodeState,
    NodeStates,
    StateColumn,
    ValuePlace,
    is_session,
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

PROCTIME = Call("PROCTIME")
TALLIED = "its set of values has a count for each call of the column, and these are others"


def match_plans(old: Plan, new: Plan, given: Mapping[int, int] | None = None) -> PlanMatch:
    """Match the operators of two plans.

    Args:
        old: The plan of the job that took the savepoint.
        new: The plan of the job that is to go on from it.
        given: Pairs that the user gives, the old node's number to the new one's.

    Raises:
        DeclarationError: A plan can't be understood.
        NotFoundError: A given pair names no operator with state.
    """
    was, relations = lineage_of(old), lineage_of(new)
    before, after = states_of(old, was), states_of(new, relations)
    pairs = dict(given or {})
    for number, count in Counter(pairs.values()).items():
        if count > 1:
            olds = ", ".join(str(each) for each, to in pairs.items() if to == number)
            raise DeclarationError(
                f"{olds} can't all go on as {number}", remedy="an operator has one state: say"
                " which one it is, --map OLD=NEW",
            )  # fmt: skip
    for numbers, plan, states in ((pairs, old, before), (pairs.values(), new, after)):
        for number in numbers:
            if number in states:
                continue
            labels = [each.node.label for each in states.values()]
            raise NotFoundError(
                f"no operator with state has the number {number}",
                place=plan.place,
                remedy=f"there are: {', '.join(labels)}{did_you_mean(str(number), labels)}",
            )
    free = {number: each for number, each in before.items() if number not in pairs}
    matches: dict[int, OperatorMatch] = {
        new_: _match(before[old_], after[new_]) for old_, new_ in pairs.items()
    }
    _pair(after, free, matches)
    around = NodesAround(new, relations, matches)
    for number in after:  # each after those that it reads
        matches[number] = around.judged(matches[number])
    reached = conditions_passed(old, was), conditions_passed(new, relations)
    ordered = [around.sent(around.begun(matches[number]), *reached) for number in after]
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
    matches: dict[int, OperatorMatch] = {}
    _pair(after, free, matches)
    paired = (each for each in matches.values() if each.old is not None)
    return replace(match, operators=(*match.operators, *paired, *map(_gone, free.values())))


def _whole(plan: Plan, numbers: Collection[int]) -> dict[int, NodeStates]:
    relations, states = lineage_of(plan), {}
    for node in plan.nodes.values():
        if node.id in numbers:
            inputs = [relations[each] for each in node.inputs]
            with understood(plan, node):
                states[node.id] = whole_node(node, relations[node.id], inputs)
    return states


def _pair(
    after: Mapping[int, NodeStates],
    free: dict[int, NodeStates],
    matched: dict[int, OperatorMatch],
) -> None:
    """Match new operators with old ones, which are taken from those that are free.

    Args:
        after: The new operators, by number.
        free: The old operators that no new one continues yet.
        matched: The matches, by the number of the new operator; those that are there stay.
    """
    wanted = [number for number in after if number not in matched]
    # the surest pairs first: an operator that is not sure takes what these have left
    for number, candidates in sorted(
        ((number, _candidates(after[number], free)) for number in wanted),
        key=lambda each: -max((score for score, _ in each[1]), default=0),
    ):
        left = [(score, old_) for score, old_ in candidates if old_ in free]
        if not left:
            matched[number] = OperatorMatch(None, after[number], fate=Fate.STARTS_NOW)
            continue
        best = max(score for score, _ in left)
        ties = [old_ for score, old_ in left if score == best]
        matches = [_match(free[old_], after[number]) for old_ in ties]
        match = matches[0]
        alike = len({free[old_].use for old_ in ties}) == 1
        if len(ties) > 1 and not (alike and all(map(_exact, matches))):
            fitting = " and ".join(free[each].node.label for each in ties)
            why = f"{fitting} fit alike: say which one it is, --map OLD={number}"
            matched[number] = replace(match, fate=Fate.UNKNOWN, why=(*match.why, why))
        else:
            matched[number] = match
        del free[ties[0]]


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
    was, now = _meanings(old), _meanings(new)
    shared = len(was & now) / max(len(was | now), 1) if was | now else 1.0
    other_keys = Counter(old.keys) != Counter(new.keys) and not _materializes_otherwise(old, new)
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


def _meanings(states: NodeStates) -> set[Meaning]:
    rows = [row for state in states.states for row in state.rows.values()]
    return {bare(column.meaning) for row in rows for column in row}


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
        if before_state is None or (before_state.form, before_state.by) != (state.form, state.by):
            had = "nothing like it" if before_state is None else _form(before_state)
            holds, had = shortened(_form(state), 600), shortened(had, 600)
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


def _form(state: NodeState) -> str:
    return f"{state.form} {state.by}"


def _changes(old: NodeStates, new: NodeStates) -> Iterator[tuple[Fate, str]]:
    """Yield what is not equal of two nodes beside their keys and states, and what comes of it."""
    if old.reads != new.reads and not _materializes_otherwise(old, new):
        yield Fate.LOST, _reads_text(old, new)
    for name, setting in new.settings.items():
        before = old.settings.get(name)
        if before is not setting:
            now, was = shortened(setting, 600), shortened(before or "none", 600)
            yield Fate.LOST, f"its {name} is another: {now}, and it was {was}"
    if old.filters != new.filters:
        yield Fate.FILTER, _filters_text(old, new)
    if new.filters - old.filters and old.withheld - new.withheld:
        yield Fate.UNKNOWN, str(FILTERED_CHANGES)
    if old.sets and new.sets:
        yield from _other_sets(old, new)
    if old.kept and new.kept and old.kept != new.kept:  # a pair that is given may have none
        than, because = limited(old.node, new.node)
        yield than, f"rows kept: {new.kept}, and it was {old.kept}: {because}"


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


def _shown_sets(sets: Iterable[frozenset[Meaning]]) -> str:
    shown = sorted(f"({', '.join(map(shortened, ordered(each)))})" for each in sets)
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
    if why := _not_held(pairs):
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
    types = [old.key_types[at] for at in keys]
    if why := _not_held([*zip(types, new.key_types, strict=True)]):
        return keys, Fate.LOST, why
    if len(keys) < len(old.keys):
        merged, why = _merged_groups(old, new)
        return keys, Fate.KEEPS if merged else Fate.LOST, why
    why = f"its key moves: it was ({_shown_key(old)}), and is ({_shown_key(new)}); each entry and"
    return keys, Fate.KEEPS, f"{why} timer goes to the key group of its new key"


def _moved_keys(old: NodeStates, new: NodeStates) -> tuple[int, ...] | None:
    """Return the old column of each column of a new key.

    None if there is not one for each; empty if keys keep their bytes.
    """
    if Counter(new.keys) - Counter(old.keys) or (old.keys and not new.keys):
        return None
    free = list(range(len(old.keys)))
    places = []
    for key in new.keys:
        at = next(each for each in free if old.keys[each] is key)
        free.remove(at)
        places.append(at)
    stay = places == list(range(len(old.keys)))
    stay = stay and all(map(same_bytes, old.key_types, new.key_types))
    return () if stay else tuple(places)


def _merged_groups(old: NodeStates, new: NodeStates) -> tuple[bool, str]:
    """Return whether groups that become one can be merged, and a sentence that says it."""
    was, now = _shown_key(old), _shown_key(new)
    if new.family not in ("groups", "windows"):
        return False, f"its key was ({was}), and is ({now}): only aggregates can be merged"
    if is_session(new.node):
        return False, f"its key was ({was}), and is ({now}): which sessions are one is not known"
    return True, (
        f"its groups merge: they were by ({was}), and are by ({now}); what each holds is added up"
    )


def merged_by(column: StateColumn) -> str:
    """Return how a column of groups that become one is merged: `sum`, `min`, `max`; or not."""
    call = column.meaning
    if column.type is None or not isinstance(call, Aggregate) or call.distinct:
        return ""
    return {"COUNT": "sum", "SUM": "sum", "SUM0": "sum", "MIN": "min", "MAX": "max"}.get(
        call.function, ""
    )


def _merged_state(match: StateMatch) -> StateMatch:
    """Return the match of a state whose groups merge, as far as its columns do."""
    why = "its groups merge, and what it holds of each does not tell what it is of all"

    def merged(each: ColumnMatch) -> ColumnMatch:
        if each.old is None or merged_by(each.column):
            return each
        return replace(each, fate=worst([each.fate, Fate.UNKNOWN]), why=each.why or why)

    return match.with_columns(merged)


def _rounding(match: StateMatch) -> list[str]:
    """Return a sentence if sums are added up that depend on the order; none otherwise."""
    sums = [each.column for each in match.matches if merged_by(each.column) == "sum"]
    if any(each.type is not None and each.type.root in ("FLOAT", "DOUBLE") for each in sums):
        return ["its sums of floating point are added in another order: last digits may differ"]
    return []


def _not_held(pairs: Sequence[tuple[LogicalType, LogicalType]]) -> str:
    """Return why columns of a key have other values in new types; empty if they have the same."""
    if all(same_bytes(*each) or widens(*each) for each in pairs):
        return ""
    was, now = (", ".join(str(pair[at]) for pair in pairs) for at in (0, 1))
    why = "does not hold all values of the old type as they are"
    if "FLOAT" in was:
        why = "may be another number: 0.1 as FLOAT is not 0.1 as DOUBLE"
    return f"its key was of the type {was}, and is {now}, which {why}"


def _shown_key(states: NodeStates) -> str:
    pairs = zip(states.keys, states.key_types, strict=True)
    return ", ".join(f"{shortened(key)} {kind}" for key, kind in pairs)


ALL_IN_ONE = "one for all rows"
MATERIALIZED = "it holds what lookups found, by which rows are taken back"


def _kept_whole(states: NodeStates) -> str:
    """Return why a node's state is kept only if nothing of it changes."""
    if states.node.spec.get("requireUpsertMaterialize"):
        return MATERIALIZED
    return kind_of(states.node).why


def _differences(old: NodeStates, new: NodeStates) -> Iterator[str]:
    """Yield what is not equal of two nodes whose state is no more than their own."""
    if old.reads != new.reads:
        yield _reads_text(old, new)
    if old.settings.get("key") != new.settings.get("key"):
        now, was = (shortened(each.settings.get("key", "")) for each in (new, old))
        yield f"its key is {now or ALL_IN_ONE}, and it was {was or ALL_IN_ONE}"
    if old.settings.get("time to live") != new.settings.get("time to live"):
        yield "its time to live is switched on or off"
    elif old.reads == new.reads and old.settings != new.settings:
        yield "its own part of the query is another"


def _keys_text(old: NodeStates, new: NodeStates) -> str:
    was, now = (", ".join(map(shortened, e.keys)) or ALL_IN_ONE for e in (old, new))
    return f"its key was {was}, and is {now}: what belongs to which key is not known"


def _reads_text(old: NodeStates, new: NodeStates) -> str:
    for before, after in zip(old.reads, new.reads, strict=False):
        if before is not after:
            now, was = shortened(after), shortened(before)
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


def _filters_text(old: NodeStates, new: NodeStates) -> str:
    added = ordered(new.filters - old.filters)
    gone = ordered(old.filters - new.filters)
    parts = [f"now only {', '.join(map(shortened, added))}"] if added else []
    parts += [f"no longer only {', '.join(map(shortened, gone))}"] if gone else []
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
    bits = []
    for call in match.column.bits:
        olds = [each.old for each in matches if each.column.call == call]
        known = [before[each].call for each in olds if each is not None]
        all_known = len(known) == len(olds) and set(known) <= set(old)
        bits.append(tuple(sorted({old.index(each) for each in known})) if all_known else ())
    if not any(bits):
        why = "all of its calls are new, and count from now on"
        return ColumnMatch(match.column, None, Fate.STARTS_NOW, why)
    if not match.column.tallies:
        return replace(match, bits=tuple(bits))
    return match if all(bits) else replace(match, fate=Fate.UNKNOWN, why=TALLIED)


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
    kind, stored = match.column.type, None if match.old is None else before[match.old].type
    if (
        kind is None or stored is None or match.column.counts or match.fate is not Fate.KEEPS
        or same_bytes(stored, kind) or not (kind.nullable and reserved_bytes(kind))
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
            if bare(old.meaning) is bare(column.meaning) and (index not in taken) is free:
                return _typed(column, index, old)
    if (converted := _other_sum(column, before)) is not None:
        return converted
    begun = _begun_column(column, state)
    if column.tallies and begun.fate is Fate.STARTS_NOW and any(
        old.tallies and _values(old) is _values(column) for old in before
    ):  # fmt: skip
        return replace(begun, fate=Fate.UNKNOWN, why=TALLIED)
    return begun


def _values(view: StateColumn) -> Meaning:
    """Return what a set of distinct values is of."""
    assert isinstance(view.meaning, Aggregate)  # noqa: S101 - as of all accumulators
    return replace(view.meaning, marks=())


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
    stored, call = [old.meaning for old in before], column.meaning
    other = {"SUM": "SUM0", "SUM0": "SUM"}.get(getattr(call, "function", ""))
    if not isinstance(call, Aggregate) or other is None:
        return None
    wanted, count = map(call.called, (other, "COUNT"))
    if wanted not in stored:
        return None
    index = stored.index(wanted)
    match = _typed(column, index, before[index])
    if other == "SUM":
        return replace(match, filled=True)
    # no value, or values that are 0 together?
    return replace(match, counted=stored.index(count)) if count in stored else None


def _new_column(column: StateColumn, state: NodeState) -> ColumnMatch:
    """Return what becomes of a column that rows in state do not have."""
    if column.meaning is PROCTIME:  # a mark in the type: rows hold nothing there
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
        if column.meaning.plain:
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
