"""The states of each node of a plan, and what each column of them means.

A state is one or two rows, each in a place: the value, a map's key, an element of a list. Each
column of a row has the meaning of what it holds, by which columns of two plans are paired.
Types are those that Flink's planner derives; where only Java knows them, they are None.

Source: `AggregateUtil`, `AggFunctionFactory`, `JoinInputSideSpec`, `JoinRecordStateViews` and the
operators in `org.apache.flink.table.runtime.operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum
from typing import Any

from statelake.state_core.plans.data_views import BIGINT, EMPTY_VIEW, map_view_type, with_nullable
from statelake.state_core.plans.lineage import (
    Relation,
    aggregated,
    call_of,
    condition_of,
    grouping_of,
    grouping_sets,
    join_keys,
    join_spec,
    order_of,
    over_calls,
    over_input,
    rank_of,
    table_of,
    told_apart,
)
from statelake.state_core.plans.lineage import (
    normalized as normalized_rows,
)
from statelake.state_core.plans.meanings import (
    NOTHING,
    WHOLE_NUMBERS,
    Aggregate,
    Meaning,
    Series,
    bare,
    conjuncts,
    function_name,
    listed,
    ordered,
    phrase,
)
from statelake.state_core.plans.plan import Column, Plan, PlanNode, plan_type
from statelake.state_core.plans.versions import (
    FIRST_FILTERS,
    FIRST_ROWS,
    UNBOUNDED_OVER,
    VersionChange,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    DecimalType,
    LengthType,
    LogicalType,
    RowField,
    RowType,
    SimpleType,
)

STRING = LengthType("VARCHAR")
MOST_LONG, LEAST_LONG = (1 << 63) - 1, -(1 << 63)
MAX_DECIMAL = 38
ALL_ROWS = Aggregate("COUNT")  # of the column by which groups are known to be gone
# functions whose accumulator is one object of a class: one column, whatever it holds
TIMES = (ROWTIME, PROCTIME) = ("ROWTIME", "PROCTIME")
COUNTS_BY_SORT_KEY = "counts by sort key"
STRUCTURED = ("FIRST_VALUE", "LAST_VALUE")
FAST = ("AppendFast", "UpdateFast")  # strategies of a TopN that holds no more rows than it emits


class ValuePlace(Enum):
    """The place of a row in a state's entry; what comes in a list or tuple is within the value."""

    KEY = "the key"
    USER_KEY = "the map's key"
    VALUE = "the value"


class NoInitial(Enum):
    """The initial value of a column of which only Java knows it."""

    NONE = "none"


NO_INITIAL = NoInitial.NONE


@dataclass(frozen=True)
class Added:
    """A column of an accumulator to which rows add up.

    Attributes:
        function: `count`, `sum`, `min` or `max`.
        argument: The column of the rows; -1 if each row counts.
        only: The column that says whether a row counts; -1 if all do.
    """

    function: str
    argument: int
    only: int = -1


@dataclass(frozen=True)
class StateColumn:
    """A column of a row in state.

    Attributes:
        meaning: What it holds.
        name: What people call it: a column, or an accumulator such as `SUM(v)`.
        type: Its type; None if only Java knows it.
        initial: The value that it has before the first record; `NO_INITIAL` if that is not known.
        counts: Whether it counts from the first record on, rather than hold a column of rows.
        view: The states of a data view that belong to it, as the prefix of their names.
        of: The types of the view's content.
        column: What it is called in a table, as far as its name allows: `amount`, `sum_amount`.
        adds: What rows add up to it; None if more than a column of theirs does.
        unfiltered: Whether its Flink may count all rows, though it has a filter.
        call: The index of its aggregate call; -1 if it belongs to no call, or to several ones.
        bits: The calls that a set of distinct values has a bit for, in the order of the bits.
        tallies: Whether it has a count for each call in the place of a bit.
    """

    meaning: Meaning
    name: str
    type: LogicalType | None
    initial: Any = None
    counts: bool = False
    view: str = ""
    of: tuple[LogicalType, ...] = ()
    column: str = ""
    adds: Added | None = None
    unfiltered: bool = False
    call: int = -1
    bits: tuple[int, ...] = ()
    tallies: bool = False

    def owns(self, state: str) -> bool:
        """Return whether a state is its view, or a part of it: `distinctAcc_1_null_state`."""
        view = self.view
        return bool(view) and (
            state == view or state.startswith(view if view.endswith("$") else f"{view}_")
        )

    @property
    def is_view(self) -> bool:
        """Return whether it only stands for a view, whose content is a state of its own."""
        return bool(self.initial == EMPTY_VIEW)


@dataclass(frozen=True)
class NodeState:
    """A state of a node.

    Attributes:
        name: Its name in a snapshot.
        form: How its rows are held; a state goes on from another of the same form alone.
        by: What they are sorted by, or unique in; nothing of other forms.
        rows: Its rows, by place.
        index: Which of the plan's times to live it has; -1 for none.
        updates: Whether rows that came to it may be updated or deleted, or leave its window.
    """

    name: str
    form: str
    rows: Mapping[ValuePlace, tuple[StateColumn, ...]] = field(default_factory=dict)
    index: int = 0
    updates: bool = False
    by: Meaning = NOTHING


@dataclass(frozen=True)
class NodeStates:
    """A node that keeps state.

    Attributes:
        node: The node.
        family: The kinds of nodes that may go on from each other have the same.
        reads: The rows of each input.
        filters: The conditions on its input.
        keys: The columns of its key; empty if all rows have one.
        settings: What else must be equal, by its name.
        states: Its states; others of the operator, and timers, stay as they are.
        kept: The ranks of rows that a TopN keeps; empty of other nodes.
        identity: Whether its state is no more than its own, so that all must be equal.
        key_types: The types of its key.
        key_names: The names of the columns of its key.
        use: What becomes of a source's rows, or what comes to a sink, by which two of one table
            are told apart: as far as rows go, and with their columns and filters.
        change: The change of a version of Flink by which its states are others; None without.
        withheld: Conditions of the node that reads it, which rows in its state may not pass.
        sets: The grouping sets of an aggregate, by the number that is in its key; empty without.
    """

    node: PlanNode
    family: str
    reads: tuple[Meaning, ...]
    filters: frozenset[Meaning]
    keys: tuple[Meaning, ...]
    settings: Mapping[str, Meaning]
    states: tuple[NodeState, ...]
    kept: str = ""
    identity: bool = False
    key_types: tuple[LogicalType, ...] = ()
    key_names: tuple[str, ...] = ()
    use: tuple[frozenset[Hashable], frozenset[Hashable]] = (frozenset(), frozenset())
    change: VersionChange | None = None
    withheld: frozenset[Meaning] = frozenset()
    sets: Mapping[int, frozenset[Meaning]] = field(default_factory=dict)

    def has_ttl(self, index: int) -> bool | None:
        """Return whether states have a time to live; None if the plan does not say it.

        Args:
            index: Which of the plan's times it is, as in `NodeState.index`.
        """
        times = [
            each["ttl"]
            for each in self.node.spec.get("state") or ()
            if isinstance(each, Mapping) and each.get("index") == index and each.get("ttl")
        ]
        return not str(times[0]).startswith("0 ") if times else None


def _made(
    node: PlanNode,
    family: str,
    inputs: Sequence[Relation],
    keys: Sequence[int] | None,
    states: Sequence[NodeState],
    settings: Mapping[str, Meaning] | None = None,
    kept: str = "",
) -> NodeStates:
    """Return a node with state; its keys are fields of its first input."""
    filtered = told_apart(inputs) if len(inputs) == 2 else inputs  # the sides of a join
    return NodeStates(
        node, family, tuple(each.rows for each in inputs),
        frozenset().union(*(each.filters for each in filtered)),
        tuple(map(bare, inputs[0].named(keys or ()))), settings or {}, tuple(states), kept,
        key_types=_types(inputs[0], keys or ()), key_names=names_of(inputs[0], keys or ()),
    )  # fmt: skip


def is_session(node: PlanNode) -> bool:
    """Return whether a node's windows are those of sessions."""
    return "Session" in str(_window(node).get("type"))


def _window(node: PlanNode) -> Mapping[str, Any]:
    return (node.spec.get("windowing") or {}).get("window") or {}


def connector(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a source or a sink: its state is the connector's, and goes with the table."""
    settings: dict[str, Meaning] = {"table": phrase("{}", table_of(node))}
    if inputs and node.spec.get("requireUpsertMaterialize"):
        named, (read,) = _primary_key(node), inputs
        columns = _physical(node)
        if len(columns) == len(read.columns):  # rows have the types of the table by now
            read = replace(read, columns=columns)
        names = [column.name for column in read.columns]
        keys = [names.index(name) for name in named] if set(named) <= set(names) else None
        pairs = zip(row_columns(inputs[0]), read.columns, strict=True)
        rows = {ValuePlace.VALUE: tuple(replace(one, type=column.type) for one, column in pairs)}
        state = NodeState("values", "list of rows", rows, updates=True)
        made = _made(node, node.kind, [read], keys, [state], settings)
        return replace(made, key_names=named)
    return NodeStates(node, node.kind, (), frozenset(), (), settings, ())


def _schema(node: PlanNode) -> Mapping[str, Any]:
    """Return the schema of a sink's table; empty if the plan has none."""
    table = node.spec["dynamicTableSink"]["table"].get("resolvedTable") or {}
    return table.get("schema") or {}


def _primary_key(node: PlanNode) -> tuple[str, ...]:
    """Return the columns of the primary key of a sink's table; none if the plan has no schema."""
    key = _schema(node).get("primaryKey") or {}
    return tuple(str(column) for column in key.get("columns") or ())


def _physical(node: PlanNode) -> tuple[Column, ...]:
    """Return the physical columns of a sink's table; none if the plan has no schema."""
    columns = []
    for each in _schema(node).get("columns") or ():
        kind = each.get("dataType")
        if "kind" not in each and kind is not None:
            text = kind.get("logicalType", kind) if isinstance(kind, Mapping) else kind
            columns.append(Column(str(each["name"]), plan_type(text)))
    return tuple(columns)


def row_columns(read: Relation) -> tuple[StateColumn, ...]:
    """Return the columns of the rows of a relation, as state holds them: null where it is new."""
    return tuple(
        StateColumn(field, column.name, column.type, column=column.name)
        for field, column in zip(read.fields, read.columns, strict=True)
    )


def _chosen(read: Relation, indexes: Sequence[int]) -> tuple[StateColumn, ...]:
    columns = row_columns(read)
    return tuple(columns[index] for index in indexes)


# --------------------------------------------------------------------------- aggregates


def accumulated(plan: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return an aggregate, which holds accumulators."""
    (read,) = inputs
    keys, window = aggregated(node, read)
    grouping = grouping_of(node, read)
    windowed = window is not NOTHING
    spec = node.spec
    retracts = bool(spec.get("needRetraction"))
    counted = retracts or _window(node).get("type") == "HoppingWindow"  # which may be empty
    needs = spec.get("aggCallNeedRetractions") or [retracts] * len(spec["aggCalls"])
    columns = accumulators(spec["aggCalls"], needs, read, hidden_count=counted)
    if plan.flink >= FIRST_FILTERS:
        columns = [replace(each, unfiltered=False) for each in columns]
    state = NodeState("window-aggs" if windowed else "accState", "accumulators",
                      {ValuePlace.VALUE: tuple(columns)}, updates=retracts)  # fmt: skip
    made = _made(
        node, _family(node), inputs, grouping, [state],
        {"window": window} if windowed else {},
    )  # fmt: skip
    sets = grouping_sets(node, read)
    own = {read.sets.rows} if sets and read.sets else frozenset()
    return replace(made, keys=tuple(map(bare, keys)), sets=sets, filters=made.filters - own)


def _family(node: PlanNode) -> str:
    """Return the family of an aggregate."""
    if node.kind == "group-window-aggregate":
        return "group windows"
    return "windows" if node.kind.endswith("window-aggregate") else "groups"


def accumulators(
    calls: Sequence[Mapping[str, Any]],
    needs: Sequence[bool],
    source: Relation,
    *,
    hidden_count: bool,
) -> list[StateColumn]:
    """Return the columns of an accumulator row.

    Args:
        calls: The aggregate calls.
        needs: Whether each must retract.
        source: What they read.
        hidden_count: Whether all rows are counted, even if no call does.
    """
    views = _views(calls, source, bits=not hidden_count)  # which is how Flink tells, too
    columns: list[StateColumn] = []
    for index, (call, retracts) in enumerate(zip(calls, needs, strict=True)):
        # what a distinct one has counted stands in its view
        of = views[tuple(call["argList"])].meaning if call.get("distinct") else None
        made = _accumulator(call, source, index, of, retracts=retracts)
        if call.get("filterArg", -1) == 0:
            made = [replace(column, unfiltered=True) for column in made]
        columns += made
    if hidden_count and ALL_ROWS not in [call_of(call, source) for call in calls]:
        columns.append(
            StateColumn(ALL_ROWS, "COUNT(*)", BIGINT, 0, counts=True, column="count",
                        adds=Added("count", -1))
        )  # fmt: skip
    return [*columns, *views.values()]


def _accumulator(
    call: Mapping[str, Any],
    source: Relation,
    index: int,
    view: Meaning | None = None,
    *,
    retracts: bool,
) -> list[StateColumn]:
    function, made = function_name(call), call_of(call, source)
    made = made if view is None else made.marked(phrase(" OVER {}", view))
    name = _call_name(call, source)
    result = plan_type(call["type"])
    value = with_nullable(result, nullable=True)
    argument = source.columns[call["argList"][0]].type if call["argList"] else result
    words = ["distinct"] if call.get("distinct") else []
    words += names_of(source, call["argList"])
    words += ["filtered"] if call.get("filterArg", -1) >= 0 else []

    plain = not call.get("distinct") and len(call["argList"]) < 2
    of_rows, only = call["argList"][0] if call["argList"] else -1, call.get("filterArg", -1)

    def counted(
        made_by: str, kind: LogicalType | None, initial: Any, part: Aggregate = made
    ) -> StateColumn:
        column = "_".join([made_by, *words])
        known = plain and made_by in ("count", "sum", "min", "max")
        return StateColumn(part, name, kind, initial, counts=True, column=column, call=index,
                           adds=Added(made_by, of_rows, only) if known else None)  # fmt: skip

    def count() -> StateColumn:
        return counted("count", BIGINT, 0, made.called("COUNT"))

    if function == "COUNT":
        return [count()]
    if function == "$SUM0":
        return [counted("sum", value, _zero(result), made.called("SUM0"))]
    if function == "SUM":
        total = counted("sum", value, None)
        return [total, count()] if retracts else [total]
    if function == "AVG":
        kind = _sum_type(argument)
        initial = _zero(kind) if kind else NO_INITIAL
        return [counted("sum", kind, initial, made.called("SUM0")), count()]
    if function in ("MIN", "MAX") and not retracts:
        # of text of any length Flink holds a STRING
        kind = STRING if result.root in ("CHAR", "VARCHAR") else value
        return [counted(function.lower(), kind, None)]
    if function in STRUCTURED and not retracts:
        first = function == "FIRST_VALUE"
        names = ("firstValue", "firstOrder") if first else ("lastValue", "lastOrder")
        row = RowType((RowField(names[0], value), RowField(names[1], BIGINT)))
        begin = MOST_LONG if first else LEAST_LONG
        return [counted(function.lower(), row, {names[0]: None, names[1]: begin})]
    if function == "LISTAGG" and not retracts and len(call["argList"]) == 1:
        return [
            counted("delimiter", None, NO_INITIAL, made.marked(phrase(" delimiter"))),
            counted("listagg", None, NO_INITIAL),
        ]
    # an object of a class, which may have data views of its own, named after the call's position
    made = made.marked(phrase(" retracting")) if retracts else made
    types = _types(source, call["argList"])
    column = "_".join([function.rpartition(".")[2].lower(), *words])
    extreme = plain and retracts and function in ("MIN", "MAX")
    return [
        StateColumn(made, name, None, NO_INITIAL, True, f"agg{index}$", types, column,
                    Added(function.lower(), of_rows, only) if extreme else None, call=index)
    ]  # fmt: skip


def names_of(read: Relation, indexes: Sequence[int]) -> tuple[str, ...]:
    """Return the names of some columns."""
    return tuple(read.columns[index].name for index in indexes)


def _types(read: Relation, indexes: Sequence[int]) -> tuple[LogicalType, ...]:
    return tuple(read.columns[index].type for index in indexes)


def _views(
    calls: Sequence[Mapping[str, Any]], source: Relation, *, bits: bool
) -> dict[tuple[int, ...], StateColumn]:
    """Return the column of each set of distinct values: one for each list of arguments.

    A value is held with a bit for each of the calls, in their order; where all rows are counted, as
    they may be taken back or windows hop, with a count, or an array of counts for several calls.
    """
    places: dict[tuple[int, ...], list[int]] = {}
    filters: dict[tuple[int, ...], tuple[Meaning, ...]] = {}
    for index, call in enumerate(calls):
        if call.get("distinct"):
            arguments, only = tuple(call["argList"]), call_of(call, source).only or NOTHING
            places.setdefault(arguments, []).append(index)
            filters[arguments] = *filters.get(arguments, ()), only
    return {
        arguments: StateColumn(
            Aggregate("DISTINCT", source.named(arguments), marks=() if bits else of),
            f"DISTINCT {', '.join(source.columns[each].name for each in arguments)}",
            map_view_type().type, EMPTY_VIEW, True, f"distinctAcc_{number}",
            _types(source, arguments), "_".join(["distinct", *names_of(source, arguments)]),
            unfiltered=not bits and source.fields[0] in of,
            bits=tuple(places[arguments]),
            tallies=not bits,
        )
        for number, (arguments, of) in enumerate(filters.items())
    }  # fmt: skip


def _call_name(call: Mapping[str, Any], source: Relation) -> str:
    names = ", ".join(source.columns[index].name for index in call["argList"])
    distinct = "DISTINCT " if call.get("distinct") else ""
    function = function_name(call).removeprefix("$")
    condition = call.get("filterArg", -1)
    only = f" FILTER ({source.fields[condition]})" if condition >= 0 else ""
    text = f"{function}({distinct}{names or '*'}){only}"
    alias = str(call.get("name", ""))
    return text if "$" in alias or not alias else f"{alias} = {text}"


def _sum_type(kind: LogicalType) -> LogicalType | None:
    """Return the type in which AVG adds values up; None if it has none."""
    if isinstance(kind, DecimalType):
        return DecimalType(MAX_DECIMAL, kind.scale)
    if kind.root in WHOLE_NUMBERS:
        return BIGINT
    return SimpleType("DOUBLE") if kind.root in ("FLOAT", "DOUBLE") else None


def _zero(kind: LogicalType) -> Any:
    if isinstance(kind, DecimalType):
        return Decimal(0).scaleb(-kind.scale)
    return 0.0 if kind.root in ("FLOAT", "DOUBLE") else 0


def over(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return an OVER, which holds accumulators and rows."""
    (read,) = inputs
    source = over_input(node, read)
    calls = over_calls(node, read)
    over = node.spec["overSpec"]
    windows = ordered({window for window, _ in calls})
    bounded = any(group["lowerBound"]["kind"] == "BOUNDED_WINDOW" for group in over["groups"])
    columns = accumulators(
        [call for _, call in calls], [bounded] * len(calls), source, hidden_count=bounded
    )
    states = [
        # a row that leaves a bounded window is taken from what was added up
        NodeState("accState", "accumulators", {ValuePlace.VALUE: tuple(columns)}, updates=bounded),
        NodeState("inputState", "lists of rows by time", {ValuePlace.VALUE: row_columns(read)}),
    ]
    settings: dict[str, Meaning] = {"window": Series(windows, " ")}
    made = _made(node, node.kind, inputs, over["partition"]["fields"], states, settings)
    kinds = {_time_kind(read, group["orderBy"]["fields"]) for group in over["groups"]}
    if not kinds <= set(TIMES):  # in the order of values: other states, of which no column is known
        content = Series((*read.fields, *(call_of(call, source) for _, call in calls)))
        return replace(made, states=(), identity=True, settings={**settings, "content": content})
    later = not bounded and ROWTIME in kinds and node.spec.get("unboundedOverVersion", 1) > 1
    return replace(made, change=UNBOUNDED_OVER if later else None)


def _time_kind(read: Relation, fields: Sequence[Mapping[str, Any]]) -> str:
    """Return the time by which rows are ordered; empty if they are not ordered by time."""
    return str(getattr(read.columns[fields[0]["index"]].type, "kind", "")) if fields else ""


# --------------------------------------------------------------------------- joins


def joined(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a join, which holds the rows of both sides."""
    spec = node.spec["joinSpec"]
    kind = spec["joinType"]
    outer = {"left": kind not in ("INNER", "RIGHT"), "right": kind in ("RIGHT", "FULL")}
    states = [
        _side(f"{side}-records", inputs[at], spec[f"{side}Keys"],
              node.spec.get(f"{side}UpsertKeys") or (), outer=outer[side], index=at)
        for at, side in enumerate(("left", "right"))
    ]  # fmt: skip
    return _join_states(node, inputs, states)


def _join_states(
    node: PlanNode, inputs: Sequence[Relation], states: Sequence[NodeState]
) -> NodeStates:
    spec = join_spec(node)
    settings = {"condition": condition_of(node, inputs)}
    made = _made(node, node.kind, inputs, spec["leftKeys"], states, settings)
    return replace(made, keys=join_keys(spec, inputs))


def _side(
    name: str,
    read: Relation,
    keys: Sequence[int],
    unique: Sequence[Sequence[int]],
    *,
    outer: bool,
    index: int,
) -> NodeState:
    """Return the state of one side of a join, which depends on what is unique in its rows."""
    rows = row_columns(read)
    row_form = "row and matches" if outer else "row"
    if not unique:
        form = f"rows with counts{' and matches' if outer else ''}"
        return NodeState(name, form, {ValuePlace.USER_KEY: rows}, index, read.updates)
    if any(set(each) <= set(keys) for each in unique):
        return NodeState(name, row_form, {ValuePlace.VALUE: rows}, index, read.updates)
    shortest = min(unique, key=len)
    return NodeState(
        name, f"{row_form} by unique key",
        {ValuePlace.USER_KEY: _chosen(read, shortest), ValuePlace.VALUE: rows}, index, read.updates,
        listed(read.named(shortest)),
    )  # fmt: skip


def sides(
    left: str, right: str, form: str
) -> Callable[[Plan, PlanNode, Sequence[Relation]], NodeStates]:
    """Return what a join keeps that holds all of both sides for some time."""

    def kept(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
        states = [
            NodeState(name, form, {ValuePlace.VALUE: row_columns(read)}, -1)
            for name, read in zip((left, right), inputs, strict=True)
        ]
        return _join_states(node, inputs, states)

    return kept


# --------------------------------------------------------------------------- ranks


def deduplicated(plan: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a deduplication, which holds a row of each key, or that there was one."""
    (read,) = inputs
    spec = node.spec
    rows = {ValuePlace.VALUE: row_columns(read)}
    change = None
    if spec["keepLastRow"]:
        states = [NodeState("deduplicate-state", "row", rows)]
    elif not spec["isRowtime"]:
        states = [NodeState("deduplicate-state", "whether a row came")]
    elif spec.get("outputInsertOnly") and plan.flink >= FIRST_ROWS.since:
        change = FIRST_ROWS
        states = [
            NodeState("waiting-to-emit-on-timer", "row", rows),
            NodeState("already-emitted-state-boolean", "whether a row was emitted"),
        ]
    else:
        states = [NodeState("deduplicate-state", "first row", rows)]
    settings = {"order": rank_of(node, read)}
    made = _made(node, node.kind, inputs, spec["uniqueKeys"], states, settings)
    return replace(made, change=change)


def ranked(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a TopN, which holds the rows that it emits, or all."""
    (read,) = inputs
    spec = node.spec
    kind, order = spec["rankStrategy"]["type"], spec["orderBy"]["fields"]
    sorted_rows = _by_sort_key(read, order)
    rows = {ValuePlace.VALUE: sorted_rows[ValuePlace.VALUE]}
    if kind == "AppendFast" and _is_as_rows_come(read, order):
        states = [NodeState("counterState", "the number of rows that came")]
    elif kind in FAST and _is_one(spec["rankRange"]):
        states = [NodeState("Top1-Rank-State", "row", rows)]
    elif kind == "AppendFast":
        states = [NodeState("data-state-with-append", "lists of rows by sort key", sorted_rows)]
    elif kind == "UpdateFast":
        unique = _chosen(read, spec["rankStrategy"]["primaryKeys"])
        by_key = {ValuePlace.USER_KEY: unique, **rows}
        states = [NodeState("data-state-with-update", "rows with ranks by unique key", by_key)]
    else:
        types = ", ".join(str(column.type) for column in sorted_rows[ValuePlace.USER_KEY])
        by, form = phrase("{} of {}", order_of(order, read), types), "lists of rows by sort key"
        states = [
            NodeState("data-state", form, sorted_rows, updates=read.updates),
            NodeState("sorted-map", COUNTS_BY_SORT_KEY, by=by),
        ]
    return _made(
        node, f"{node.kind} {kind}", inputs, spec["partition"]["fields"], states,
        {"order": rank_of(node, read)}, _range_text(spec["rankRange"]),
    )  # fmt: skip


def _by_sort_key(
    read: Relation, order: Sequence[Mapping[str, Any]]
) -> dict[ValuePlace, tuple[StateColumn, ...]]:
    """Return the rows of a map of rows by what they are sorted by."""
    sort_key = _chosen(read, [each["index"] for each in order])
    return {ValuePlace.USER_KEY: sort_key, ValuePlace.VALUE: row_columns(read)}


def time_sorted(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a sort by time, which holds rows until it is their turn."""
    (read,) = inputs
    order = node.spec["orderBy"]["fields"]
    rows = {ValuePlace.VALUE: row_columns(read)}
    states = [NodeState("sortState", "list of rows", rows, -1)]
    if _time_kind(read, order) == ROWTIME:
        states = [
            NodeState("dataState", "lists of rows by time", rows, -1),
            NodeState("lastTriggeringTsState", "the time of the last rows", index=-1),
        ]
    return _made(node, node.kind, inputs, None, states, {"order": order_of(order, read)})


def _is_as_rows_come(read: Relation, order: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the first rows of a key are those that come first, which are not held."""
    return len(order) == 1 and order[0]["isAscending"] and _time_kind(read, order) == PROCTIME


def _is_one(kept: Mapping[str, Any]) -> bool:
    """Return whether a TopN keeps one row of each key."""
    return kept.get("type") == "Constant" and kept["start"] == kept["end"] == 1


def _range_text(kept: Mapping[str, Any]) -> str:
    """Return the ranks that a TopN keeps: `1 to 3`."""
    if kept.get("type") == "Constant":
        return f"{kept['start']} to {kept['end']}"
    return ", ".join(f"{name} {value}" for name, value in sorted(kept.items()))


def window_ranked(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a TopN of each window."""
    (read,) = inputs
    spec = node.spec
    rows = _by_sort_key(read, spec["sortSpec"]["fields"])
    state = NodeState("window_rank", "lists of rows by sort key", rows, -1)
    return _made(
        node, node.kind, inputs, spec["partitionSpec"]["fields"], [state],
        {"order": rank_of(node, read)}, _range_text(spec["rankRange"]),
    )  # fmt: skip


def window_deduplicated(_: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return a deduplication of each window."""
    (read,) = inputs
    state = NodeState("window_deduplicate", "row", {ValuePlace.VALUE: row_columns(read)}, -1)
    keys = node.spec["partitionKeys"]
    return _made(node, node.kind, inputs, keys, [state], {"order": rank_of(node, read)})


def normalized(plan: Plan, node: PlanNode, inputs: Sequence[Relation]) -> NodeStates:
    """Return the normalization of a table's changes, which holds the last row of each key."""
    (read,) = inputs
    state = NodeState("deduplicate-state", "row", {ValuePlace.VALUE: row_columns(read)})
    # what its own filter held back, or let pass, was told by the old one
    passed = normalized_rows(node, inputs)
    made = _made(node, node.kind, [passed], node.spec["uniqueKeys"], [state])
    conditions = [
        each.spec["condition"] for each in plan.nodes.values()
        if each.kind == "calc" and node.id in each.inputs and each.spec.get("condition")
    ]  # fmt: skip
    return replace(
        made, withheld=frozenset().union(*(conjuncts(each, passed.fields) for each in conditions))
    )
