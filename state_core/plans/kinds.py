"""The kinds of nodes of a plan: of each what it emits, what it keeps, and when that stays.

A new kind is one entry of `KINDS`. Of a kind without one, all of a node's content says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from statelake.state_core.errors import DeclarationError
from statelake.state_core.plans import lineage, states
from statelake.state_core.plans.lineage import Relation, passed, table_of, understood, unknown_rows
from statelake.state_core.plans.meanings import NOTHING, Meaning, Series, ordered, phrase
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import (
    NodeState,
    NodeStates,
    ValuePlace,
    is_session,
    names_of,
    row_columns,
)

NO_ROWS = Relation(NOTHING, frozenset(), (), (), updates=False)
KNOWN_AS_A_WHOLE = "what it holds is known as a whole alone"
WAITING = "it holds records that wait for lookups, none if its sources had been idle"
MOST_CONDITIONS = 1 << 19  # and tables, each counted at every node that it reaches
Inputs: TypeAlias = Sequence[Relation]
Spec: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class NodeKind:
    """A kind of node.

    Attributes:
        emits: Returns the rows that it emits; None if all of its content says what they are.
        keeps: Returns its states, one by one; None if they are known as a whole, or not there.
        stateless: Whether it keeps nothing.
        inserts: Whether it reads inserts alone, by its JSON.
        as_read: Whether it reads inserts alone where those that read it do.
        key: Of a node that is known as a whole, returns the input and its fields that are its key.
        rows: And the states of which rows are known.
        why: And why they stay only if nothing of the node changes.
    """

    emits: Callable[[PlanNode, Inputs], Relation] | None = None
    keeps: Callable[[Plan, PlanNode, Inputs], NodeStates] | None = None
    stateless: bool = False
    inserts: Callable[[Spec], bool] = lambda _: False
    as_read: bool = False
    key: Callable[[Spec], tuple[int, Sequence[int]]] = lambda _: (0, ())
    rows: Callable[[PlanNode, Inputs], tuple[NodeState, ...]] = lambda _, __: ()
    why: str = KNOWN_AS_A_WHOLE


def kind_of(node: PlanNode) -> NodeKind:
    """Return the kind of a node."""
    return KINDS.get(node.kind, UNKNOWN)


def lineage_of(plan: Plan) -> dict[int, Relation]:
    """Return the relation of each node of a plan.

    Raises:
        DeclarationError: A node refers to a field that its input does not have, or conditions are
            too many.
    """
    relations: dict[int, Relation] = {}
    conditions = 0
    inserts = _insert_only(plan)
    for node in plan.nodes.values():
        inputs = [relations[each] for each in node.inputs]
        # before they are put together: an input may be read any number of times
        conditions += sum(len(each.filters) + len(each.tables) for each in inputs)
        refuse_more_conditions(plan, conditions)
        with understood(plan, node):
            emits = None if _reads_incremental(node, inputs) else kind_of(node).emits
            relation = (emits or unknown_rows)(node, inputs)
            tables = tuple(table for each in inputs for table in each.tables) or relation.tables
            updates = relation.updates and node.id not in inserts
            # a local aggregate has rows as they were
            columns = node.columns if relation.grouped is None else relation.columns
            relations[node.id] = replace(relation, columns=columns, tables=tables, updates=updates)
    return relations


def refuse_more_conditions(plan: Plan, count: int) -> None:
    """Refuse a plan whose conditions would fill memory at all nodes that they reach.

    Raises:
        DeclarationError: There are more.
    """
    if count > MOST_CONDITIONS:
        problem = (
            f"more than {MOST_CONDITIONS:,} conditions and tables, each counted at every node that"
            " it reaches"
        )
        raise DeclarationError(problem, place=plan.place, remedy="make several jobs of it")


def _insert_only(plan: Plan) -> frozenset[int]:
    """Return the nodes whose output has inserts alone, as the nodes that read it demand.

    A plan does not say which changes a table gets, but Flink compiles some nodes for inserts alone.
    """
    ids: set[int] = set()
    for node in reversed(list(plan.nodes.values())):
        kind = kind_of(node)
        with understood(plan, node):
            if kind.inserts(node.spec) or (node.id in ids and kind.as_read):
                ids |= set(node.inputs)
    return frozenset(ids)


def _reads_incremental(node: PlanNode, inputs: Inputs) -> bool:
    """Return whether a node reads what an incremental aggregate has added up."""
    return node.kind == "global-group-aggregate" and any(each.incremental for each in inputs)


def states_of(plan: Plan, relations: Mapping[int, Relation]) -> dict[int, NodeStates]:
    """Return the nodes of a plan that keep state, by number.

    Args:
        plan: The plan.
        relations: What each of its nodes emits, as `lineage_of` returns it.
    """
    kept = {}
    for node in plan.nodes.values():
        inputs, kind = [relations[each] for each in node.inputs], kind_of(node)
        if kind.stateless and not node.spec.get("requireUpsertMaterialize"):
            continue
        with understood(plan, node):
            if kind.keeps is not None and not _reads_incremental(node, inputs):
                kept[node.id] = kind.keeps(plan, node, inputs)
            else:
                kept[node.id] = whole_node(node, relations[node.id], inputs)
    for number, use in _uses(plan, relations).items():
        kept[number] = replace(kept[number], use=use)
    return kept


def _uses(
    plan: Plan, relations: Mapping[int, Relation]
) -> dict[int, tuple[frozenset[Hashable], frozenset[Hashable]]]:
    """Return the use of each source and sink of a plan, by number."""
    # of each node whose rows pass, the sources that they come from
    sources: dict[int, frozenset[int]] = {}
    uses: dict[int, tuple[set[Hashable], set[Hashable]]] = {}
    for node in plan.nodes.values():
        if node.kind == "table-source-scan":
            sources[node.id] = frozenset((node.id,))
            uses[node.id] = (set(), set())
            continue
        if kind_of(node).stateless or kind_of(node).emits is passed:
            sources[node.id] = frozenset().union(
                *(sources.get(e, frozenset()) for e in node.inputs)
            )
            if node.kind != "union":
                continue
        for index, each in enumerate(node.inputs):
            read, made = relations[each], relations[node.id]
            at = -1 if node.kind == "union" else index
            to = node.kind, at, table_of(node), made.rows
            used = [uses[number] for number in sources.get(each, ())]
            if node.kind == "sink":
                used.append(uses.setdefault(node.id, (set(), set())))
            for rough, exact in used:
                rough.add(to)
                exact.add((to, read.fields, read.filters))
    return {number: (frozenset(one), frozenset(other)) for number, (one, other) in uses.items()}


def whole_node(node: PlanNode, emitted: Relation, inputs: Inputs) -> NodeStates:
    """Return a node whose state stays if all of the node is equal: only that tells what it means.

    Args:
        node: The node.
        emitted: What it emits.
        inputs: What it reads.
    """
    kind = kind_of(node)
    reads = tuple(map(_typed_rows, inputs))
    filters = frozenset().union(*(each.filters for each in inputs))
    times = [
        not str(each.get("ttl")).startswith("0 ") for each in node.spec.get("state") or ()
        if each.get("ttl")
    ]  # fmt: skip
    at, keys = kind.key(node.spec)
    read = inputs[at] if inputs else NO_ROWS
    own = Series(ordered(emitted.filters - filters), " and ")
    settings: dict[str, Meaning] = {
        "content": phrase("{} ({}) WHERE {}", emitted.rows, Series(emitted.fields), own),
        "key": Series(ordered(read.named(keys))), "time to live": phrase("{}", str(times)),
    }  # fmt: skip
    return NodeStates(
        node, node.kind, reads, filters, (), settings, kind.rows(node, inputs), identity=True,
        key_names=names_of(read, keys),
    )  # fmt: skip


def _typed_rows(read: Relation) -> Meaning:
    pairs = zip(read.fields, read.columns, strict=True)
    columns = Series(tuple(phrase("{} {}", field, str(column.type)) for field, column in pairs))
    groups = Series(read.named(read.grouped or ()))
    return phrase("{} ({}) BY [{}]" if read.grouped else "{} ({})", read.rows, columns, groups)


# --------------------------------------------------------------------------- known as a whole


def _table_key(spec: Spec) -> tuple[int, Sequence[int]]:
    """Return by what the state of a process table function is kept."""
    tables = (each for each in spec["functionCall"]["operands"] if each.get("partitionKeys"))
    return next(((each["inputIndex"], each["partitionKeys"]) for each in tables), (0, ()))


def _lookup_key(spec: Spec) -> tuple[int, Sequence[int]]:
    """Return by what a lookup's results are kept: in Flink 1 by what is looked up."""
    indexes = [each["index"] for each in spec["lookupKeys"].values() if "index" in each]
    return 0, spec.get("inputUpsertKey") or indexes


def _rows(*names: str, index: int = 0) -> Callable[[PlanNode, Inputs], tuple[NodeState, ...]]:
    """Return states that hold rows as they are read."""
    return lambda _, inputs: tuple(
        NodeState(name, "rows", {ValuePlace.VALUE: row_columns(inputs[0])}, index) for name in names
    )


def _sides(node: PlanNode, inputs: Inputs) -> tuple[NodeState, ...]:
    """Return the states of a join of several tables."""
    places = [
        ValuePlace.VALUE if unique else ValuePlace.USER_KEY for unique in
        node.spec["inputUniqueKeys"]
    ]  # fmt: skip
    return tuple(
        NodeState(f"multi-join-input-{at}", "rows", {places[at]: row_columns(read)}, at)
        for at, read in enumerate(inputs)
    )


def _results(node: PlanNode, inputs: Inputs) -> tuple[NodeState, ...]:
    """Return the state of what lookups have found."""
    if not node.spec.get("requireUpsertMaterialize"):
        return ()
    columns = tuple(
        states.StateColumn(phrase("{}", each.name), each.name, each.type, column=each.name)
        for each in node.columns[len(inputs[0].columns) :]
    )
    rows = {ValuePlace.VALUE: columns}
    if node.spec.get("lookupKeyContainsPrimaryKey"):
        return (NodeState("unique-value", "row", rows),)
    return (NodeState("values", "list of rows", rows),)


# --------------------------------------------------------------------------- the kinds


def _always(_: Spec) -> bool:
    return True


def _never_updated(spec: Spec) -> bool:
    return spec.get("needRetraction") is False


def _appended(spec: Spec) -> bool:
    return bool(spec["rankStrategy"]["type"] == "AppendFast")


UNKNOWN = NodeKind()
_PASSED = NodeKind(passed, stateless=True, as_read=True)
_LOCAL = NodeKind(lineage.partial, stateless=True, inserts=_never_updated)
_AGGREGATE = NodeKind(lineage.groups, states.accumulated, inserts=_never_updated)
_GLOBAL = NodeKind(lineage.groups, states.accumulated)
_RANK = NodeKind(lineage.ranked, states.ranked, inserts=_appended)
_OPAQUE = NodeKind(stateless=True)
KINDS: Mapping[str, NodeKind] = {
    "table-source-scan": NodeKind(lineage.scanned, states.connector),
    "sink": NodeKind(
        keeps=states.connector, inserts=lambda spec: spec.get("inputChangelogMode") == ["INSERT"]
    ),
    "calc": NodeKind(lineage.computed, stateless=True, as_read=True),
    "async-calc": NodeKind(lineage.computed),
    "python-calc": _OPAQUE,
    "correlate": NodeKind(stateless=True, as_read=True),
    "python-correlate": _OPAQUE,
    "values": _OPAQUE,
    "union": NodeKind(lineage.united, stateless=True, as_read=True),
    "expand": NodeKind(lineage.expanded, stateless=True),
    "exchange": _PASSED,
    "watermark-assigner": _PASSED,
    "mini-batch-assigner": _PASSED,
    "drop-update-before": _PASSED,
    "sort": NodeKind(passed, as_read=True),
    "temporal-sort": NodeKind(passed, states.time_sorted, as_read=True),
    "changelog-normalize": NodeKind(lineage.normalized, states.normalized, as_read=True),
    "local-group-aggregate": _LOCAL,
    "local-window-aggregate": _LOCAL,
    "group-aggregate": _AGGREGATE,
    "global-group-aggregate": _GLOBAL,
    "window-aggregate": _AGGREGATE,
    "global-window-aggregate": _GLOBAL,
    "group-window-aggregate": _AGGREGATE,
    "over-aggregate": NodeKind(lineage.over, states.over, inserts=_always),
    "join": NodeKind(lineage.joined, states.joined, as_read=True),
    "interval-join": NodeKind(
        lineage.joined,
        states.sides("IntervalJoinLeftCache", "IntervalJoinRightCache", "lists of rows by time"),
        inserts=_always,
    ),
    "window-join": NodeKind(
        lineage.joined, states.sides("left-records", "right-records", "list of rows"),
        inserts=_always,
    ),
    "temporal-join": NodeKind(lineage.joined, states.sides("left", "right", "rows by time")),
    "multi-join": NodeKind(
        key=lambda spec: (0, spec["inputProperties"][0]["requiredDistribution"].get("keys", ())),
        rows=_sides,
        why="a join of several tables holds the rows of each for the conditions as they were",
    ),
    "delta-join": NodeKind(why=WAITING),
    "lookup-join": NodeKind(
        lineage.looked_up, stateless=True, key=_lookup_key, rows=_results, why=WAITING
    ),
    "rank": _RANK,
    "sort-limit": _RANK,
    "limit": _RANK,
    "deduplicate": NodeKind(lineage.ranked, states.deduplicated, inserts=_always),
    "window-rank": NodeKind(lineage.ranked, states.window_ranked, inserts=_always),
    "window-deduplicate": NodeKind(lineage.ranked, states.window_deduplicated, inserts=_always),
    "window-table-function": NodeKind(
        lineage.windowed,
        key=lambda spec: (0, spec["windowing"]["window"].get("partition_key_indices") or ()),
        rows=lambda node, inputs: (
            _rows("session-window-tvf-acc", index=-1)(node, inputs) if is_session(node) else ()
        ),
    ),
    "match": NodeKind(
        key=lambda spec: (0, spec["matchSpec"]["partition"]["fields"]),
        rows=_rows("eventQueuesStateName", "sharedBuffer-events"),
        why="matches that have begun stand for places in MATCH_RECOGNIZE as it was",
    ),
    "process-table-function": NodeKind(
        key=_table_key, why="what a process table function holds is its own, by its call"
    ),
}  # fmt: skip
