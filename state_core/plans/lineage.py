"""The lineage of each field of a plan, as trees over the tables: `SUM(o.v) BY [o.g]`.

Two fields of different plans with the same meaning have the same values, as far as their nodes also
have the same rows: the meaning of a node's rows says of which tables, by which joins and groups,
and apart from that its filters are kept, since a changed filter changes what was counted. Names,
aliases and numbers of nodes are in none of these trees. Calcs are substituted, and two-phase
aggregates have the meaning of one. A column that is cast to a wider type is a `Cast` of it: its
values are the same, so that groups and joins by it are those of the column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.plans.meanings import (
    MAX_DEPTH,
    NOTHING,
    WHOLE_NUMBERS,
    Aggregate,
    Cast,
    Meaning,
    Phrase,
    Series,
    TableColumn,
    bare,
    conjuncts,
    expression,
    function_name,
    in_words,
    listed,
    marked,
    ordered,
    phrase,
)
from statelake.state_core.plans.plan import Column, Plan, PlanNode, plan_type
from statelake.state_core.serializers.sql.types.logical_types import (
    DecimalType,
    LengthType,
    LogicalType,
    RowType,
)

# connectors, and formats of any connector but one, whose tables only get inserts
INSERTS = ("datagen", "faker", "socket")
INSERT_FORMATS = (
    "avro", "avro-confluent", "csv", "json", "orc", "parquet", "protobuf", "raw",
)  # fmt: skip
UPSERTS = "upsert-kafka"
SET_NUMBER = phrase("the number of the grouping set")
NONE = phrase("none")
INCREMENTAL = "incremental-group-aggregate"


@dataclass(frozen=True)
class GroupingSets:
    """The sets of `GROUPING SETS`, `ROLLUP` or `CUBE`, for each of which rows come once.

    Attributes:
        at: The index of the field that has the number of the set.
        absent: The fields that are NULL in each set, by its number.
        fields: What each field is where it is not.
        rows: All of it, as the filter that says which rows come.
    """

    at: int
    absent: Mapping[int, frozenset[int]]
    fields: tuple[Meaning, ...]
    rows: Meaning

    def of(self, grouping: Sequence[int]) -> dict[int, frozenset[Meaning]]:
        """Return the sets, by number; empty if some fields do not tell them.

        A field and its cast are one column, and are NULL in other sets.
        """
        if self.at not in grouping:
            return {}
        present = [index for index in grouping if index != self.at]
        if len({bare(self.fields[index]) for index in present}) < len(present):
            return {}
        sets = {
            number: frozenset(bare(self.fields[index]) for index in present if index not in absent)
            for number, absent in self.absent.items()
        }
        return sets if len(set(sets.values())) == len(sets) else {}


@dataclass(frozen=True)
class Relation:
    """The rows that a node emits.

    Attributes:
        rows: What they are: equal trees are the same rows, but for filters and columns.
        filters: The conditions that rows passed.
        fields: The meaning of each field.
        columns: The fields' names and types.
        updates: Whether rows may be updated or deleted.
        grouped: The fields by which a local aggregate has grouped these rows; None of others.
        window: A local aggregate's window.
        tables: The tables that are read, each as often as it is.
        sets: The grouping sets that rows come for; None without.
        incremental: Whether an incremental aggregate has added up what they hold.
    """

    rows: Meaning
    filters: frozenset[Meaning]
    fields: tuple[Meaning, ...]
    columns: tuple[Column, ...]
    updates: bool
    grouped: tuple[int, ...] | None = None
    window: Meaning = NOTHING
    tables: tuple[str, ...] = ()
    sets: GroupingSets | None = None
    incremental: bool = False

    def named(self, indexes: Sequence[int]) -> tuple[Meaning, ...]:
        """Return the meanings of some fields."""
        return tuple(self.fields[index] for index in indexes)


def widens(old: LogicalType, new: LogicalType) -> bool:
    """Return whether a type has the values of another, and maybe more, each of them equal to it."""
    if old.root in WHOLE_NUMBERS and new.root in WHOLE_NUMBERS:
        return WHOLE_NUMBERS.index(old.root) <= WHOLE_NUMBERS.index(new.root)
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    if isinstance(old, LengthType) and isinstance(new, LengthType):
        return old.root == new.root == "VARCHAR" and old.length <= new.length
    return False


@contextmanager
def understood(plan: Plan, node: PlanNode) -> Iterator[None]:
    """Turn what fails at a node's JSON into an error that names the plan and the node.

    Raises:
        DeclarationError: The node has another content than is known.
    """
    try:
        yield
    except StateError as error:
        raise error.within(f"{plan.place}, {node.label}") from error
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DeclarationError(
            f"it can't be understood ({type(error).__name__}: {error})",
            place=f"{plan.place}, {node.label}",
            remedy="its Flink may be newer than this statelake: report it with the plan",
        ) from error


def unknown_rows(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the relation of a node without a rule, which its whole content identifies."""
    left_out = (
        "id", "type", "description", "inputProperties", "configuration", "outputType", "state",
    )  # fmt: skip
    spec = _without_defaults({name: e for name, e in node.spec.items() if name not in left_out})
    reads = [phrase("{} ({})", each.rows, Series(each.fields)) for each in inputs]
    content = json.dumps(spec, sort_keys=True)  # which is not shown
    rows = phrase("{} of {}", node.kind, Series(tuple(reads), " and "), content)
    fields = tuple(phrase("{}[{}]", rows, index) for index in range(len(node.columns)))
    filters = frozenset().union(*(each.filters for each in inputs))
    updates = any(each.updates for each in inputs)
    return Relation(
        rows, filters, fields, node.columns, updates, incremental=node.kind == INCREMENTAL
    )


def _without_defaults(value: Any, depth: int = 0) -> Any:
    """Return a JSON value without what versions of Flink leave out: empty, null, or false.

    Raises:
        DeclarationError: It is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return [_without_defaults(each, depth + 1) for each in value]
    if not isinstance(value, Mapping):
        return value
    parts = {name: _without_defaults(each, depth + 1) for name, each in value.items()}
    return {
        name: each
        for name, each in parts.items()
        if name == "value" or not (each is None or each is False or each in ([], {}))
    }


def table_of(node: PlanNode) -> str:
    """Return the name of the table that a scan reads, or a sink writes."""
    for name in ("scanTableSource", "dynamicTableSink"):
        if name in node.spec:
            return str(node.spec[name]["table"]["identifier"])
    return ""


def scanned(node: PlanNode, _: Sequence[Relation]) -> Relation:
    """Return the rows of a table, with the filters that its connector applies."""
    source = node.spec["scanTableSource"]
    table = table_of(node)
    fields = _table_columns(table, [column.name for column in node.columns])
    resolved = source["table"].get("resolvedTable", {})
    names = [each["name"] for each in resolved.get("schema", {}).get("columns", ())]
    filters = set()
    for ability in source.get("abilities") or ():
        if ability.get("type") == "FilterPushDown":
            all_fields = _table_columns(table, names) or fields
            filters |= {expression(each, all_fields) for each in ability.get("predicates") or ()}
    updates = not _only_inserts(resolved.get("options", {}))
    rows, conditions = phrase("{}", table), frozenset(filters)
    return Relation(rows, conditions, fields, node.columns, updates, tables=(table,))


def _table_columns(table: str, names: Sequence[str]) -> tuple[Meaning, ...]:
    short = table.rpartition(".")[2].strip("`")
    return tuple(TableColumn(short, str(name)) for name in names)


def _only_inserts(options: Mapping[str, Any]) -> bool:
    """Return whether a table is known to get inserts alone."""
    connector = str(options.get("connector", ""))
    formats = [str(options[name]) for name in ("format", "value.format") if name in options]
    if connector == UPSERTS or not formats:
        return connector in INSERTS
    return all(each in INSERT_FORMATS for each in formats)


def computed(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return rows whose fields are computed, of those that pass a condition."""
    (read,) = inputs
    fields = tuple(_field(each, read) for each in node.spec["projection"])
    return replace(_filtered(read, node.spec.get("condition")), fields=fields, sets=None)


def _filtered(read: Relation, condition: Mapping[str, Any] | None) -> Relation:
    """Return the rows that pass a condition, if there is one."""
    if condition is None:
        return read
    return replace(read, filters=read.filters | conjuncts(condition, read.fields))


def expanded(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows of grouping sets: each comes once for each, with NULL in what is not in it.

    A filter selects the rows: one set more is more rows, and all others stay.
    """
    (read,) = inputs
    projects: Sequence[Sequence[Mapping[str, Any]]] = node.spec["projects"]
    columns = list(zip(*projects, strict=True))
    absent = [
        frozenset(index for index, each in enumerate(projected) if _is_null(each))
        for projected in projects
    ]
    parts = []
    for column in columns:
        kinds = tuple(dict.fromkeys(_field(each, read) for each in column if not _is_null(each)))
        parts.append(kinds[0] if len(kinds) == 1 else Series(kinds, " or "))
    numbers = [[each.get("value") for each in column] for column in columns]
    at = next(
        (index for index in reversed(range(len(columns))) if _are_numbers(numbers[index])), -1
    )
    sets_by_number = ordered(
        phrase("{} without {}", number, Series(tuple(parts[i] for i in sorted(none)) or (NONE,)))
        for number, none in zip(numbers[at], absent, strict=True)
    )
    rows = phrase("GROUPING SETS {}", Series(sets_by_number, "; "))
    # a field that is NULL in some of them is another field than the one that never is
    fields = tuple(
        marked(each, phrase(" in {}", rows))
        if index == at or any(index in none for none in absent)
        else each
        for index, each in enumerate(parts)
    )
    sets = None
    if at >= 0:
        sets = GroupingSets(at, dict(zip(numbers[at], absent, strict=True)), tuple(parts), rows)
    return replace(
        read, rows=phrase("{} FOR EACH SET", read.rows), fields=fields,
        filters=read.filters | {rows}, sets=sets,
    )  # fmt: skip


def _is_null(projected: Mapping[str, Any]) -> bool:
    return projected.get("kind") == "LITERAL" and projected.get("value") is None


def _are_numbers(values: Sequence[Any]) -> bool:
    """Return whether values are whole numbers, each another one."""
    return all(type(each) is int for each in values) and len(set(values)) == len(values)


def grouping_of(node: PlanNode, read: Relation) -> Sequence[int]:
    """Return the fields that an aggregate groups by, of what it or a local one reads."""
    grouping: Sequence[int] = node.spec["grouping"]
    return grouping if read.grouped is None else [read.grouped[index] for index in grouping]


def _grouped(node: PlanNode, read: Relation) -> tuple[Meaning, ...]:
    """Return the columns that an aggregate groups by, also if they are of sets."""
    grouping, sets = grouping_of(node, read), read.sets
    if sets is None or not sets.of(grouping):
        return read.named(grouping)
    return tuple(SET_NUMBER if each == sets.at else sets.fields[each] for each in grouping)


def normalized(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows of a table that changes, of which a filter may be left to its node."""
    return _filtered(inputs[0], node.spec.get("filterCondition"))


def passed(_: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows that are read, as they are."""
    (read,) = inputs
    return read


def _field(projected: Mapping[str, Any], read: Relation) -> Meaning:
    """Return the meaning of a projected field; of a cast that only drops a time, the field's."""
    index: int
    if projected.get("kind") == "INPUT_REF":
        index = projected["inputIndex"]
        return read.fields[index]
    if projected.get("internalName") == "$CAST$1":
        (operand,) = projected["operands"]
        if operand.get("kind") == "INPUT_REF":
            index, to = operand["inputIndex"], plan_type(projected["type"])
            if read.columns[index].type.text == to.text:
                return read.fields[index]
            if widens(read.columns[index].type, to):
                return Cast(bare(read.fields[index]), to.text)
    return expression(projected, read.fields)


def united(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows of all inputs."""
    # in the same order in all fields: what comes of one table twice must not be mixed up
    by_rows = sorted(
        ((_with_filters(each), each) for each in inputs),
        key=lambda pair: [(each.text, id(each)) for each in (pair[0], *pair[1].fields)],
    )
    rows = Series(tuple(rows for rows, _ in by_rows), " UNION ")
    fields = tuple(
        Series(each, " | ") for each in zip(*(read.fields for _, read in by_rows), strict=True)
    )
    updates = any(each.updates for each in inputs)
    return Relation(rows, frozenset(), fields, node.columns, updates)


def _with_filters(read: Relation) -> Meaning:
    if not read.filters:
        return read.rows
    return phrase("{} WHERE {}", read.rows, Series(ordered(read.filters), " AND "))


def partial(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows that a local aggregate reads, as it has grouped them."""
    (read,) = inputs
    return replace(read, grouped=tuple(node.spec["grouping"]), window=window_of(node, read))


def aggregated(node: PlanNode, read: Relation) -> tuple[tuple[Meaning, ...], Meaning]:
    """Return the keys of an aggregate, and its window."""
    return _grouped(node, read), window_of(node, read) if read.grouped is None else read.window


def grouping_sets(node: PlanNode, read: Relation) -> dict[int, frozenset[Meaning]]:
    """Return the grouping sets of an aggregate, by number; empty if it has none."""
    return {} if read.sets is None else read.sets.of(grouping_of(node, read))


def groups(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return a row for each group."""
    (read,) = inputs
    keys, window = aggregated(node, read)
    groups = phrase(" BY [{}]{}", listed(keys), _in(window))
    calls = [call_of(call, read).marked(groups) for call in node.spec["aggCalls"]]
    properties = [
        phrase("{}{}", each["property"]["kind"], _in(window))
        for each in node.spec.get("namedWindowProperties", ())
    ]
    if SET_NUMBER in keys:  # which is another one where the sets are
        keys = tuple(
            field if key is SET_NUMBER else key
            for key, field in zip(keys, read.named(grouping_of(node, read)), strict=True)
        )
    updates = node.kind in ("group-aggregate", "global-group-aggregate")
    rows, fields = phrase("GROUP {}{}", read.rows, groups), (*keys, *calls, *properties)
    return Relation(rows, read.filters, fields, node.columns, updates)


def _listed(read: Relation, indexes: Sequence[int]) -> Meaning:
    """Return some fields whose order means nothing."""
    return phrase("({})", listed(read.named(indexes)))


def _in(window: Meaning) -> Meaning:
    """Return a window as a mark of what is in it."""
    return window if window is NOTHING else phrase(" IN {}", window)


def window_of(node: PlanNode, read: Relation) -> Meaning:
    """Return a node's window, with the field of its time; nothing without one."""
    spec = node.spec
    if "window" in spec:  # of the old group windows
        group = {k: v for k, v in spec["window"].items() if k not in ("alias", "timeField")}
        time = read.fields[spec["window"]["timeField"]["fieldIndex"]]
        return phrase("{} of {}", in_words(group), time)
    windowing = spec.get("windowing")
    if windowing is None:
        return NOTHING
    given = {k: v for k, v in windowing["window"].items() if k != "partition_key_indices"}
    window = phrase("{}", in_words(given))
    if keys := windowing["window"].get("partition_key_indices"):  # of sessions
        window = phrase("{} per {}", window, _listed(read, keys))
    for name in ("timeAttributeIndex", "windowStart", "sliceEnd"):
        if name in windowing:
            index = windowing[name]
            of = read.fields[index] if index < len(read.fields) else name
            return phrase("{} of {}", window, of)
    return window


def call_of(call: Mapping[str, Any], read: Relation) -> Aggregate:
    """Return the meaning of an aggregate call: `SUM(DISTINCT o.v) FILTER (o.v > 3)`."""
    condition = call.get("filterArg", -1)
    only = read.fields[condition] if condition >= 0 else None
    arguments = read.named(call["argList"])
    return Aggregate(function_name(call), arguments, bool(call.get("distinct")), only)


def join_spec(node: PlanNode) -> Mapping[str, Any]:
    """Return what is joined by a join of two inputs."""
    join: Mapping[str, Any] = node.spec.get("intervalJoinSpec", node.spec)["joinSpec"]
    return join


def join_keys(spec: Mapping[str, Any], inputs: Sequence[Relation]) -> tuple[Meaning, ...]:
    """Return a join's keys, a pair of both sides each."""
    left, right = told_apart(inputs)
    pairs = zip(left.named(spec["leftKeys"]), right.named(spec["rightKeys"]), strict=True)
    return tuple(phrase("{} = {}", bare(one), bare(other)) for one, other in pairs)


def condition_of(node: PlanNode, inputs: Sequence[Relation]) -> Phrase:
    """Return what a join is: its type, keys and other conditions, bounds or times."""
    left, right = told_apart(inputs)
    spec = join_spec(node)
    conditions = ordered(join_keys(spec, inputs))
    more = spec.get("nonEquiCondition")
    if more is not None:
        conditions = (*conditions, expression(more, (*left.fields, *right.fields)))
    of = Series(conditions, " AND ")
    return phrase("{} ON {}{}", spec["joinType"], of, _bounds(node, inputs))


def told_apart(inputs: Sequence[Relation]) -> tuple[Relation, Relation]:
    """Return both sides of a join; of a table that both read, those on the right are numbered."""
    left, right = inputs
    if not set(left.tables) & set(right.tables):
        return left, right
    # as many as the left has: joins in each side have numbered theirs with less
    mark = f" #{len(left.tables) + 1}"
    return left, replace(
        right, fields=tuple(marked(each, mark) for each in right.fields),
        filters=frozenset(marked(each, mark) for each in right.filters),
    )  # fmt: skip


def joined(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows of a join of two inputs.

    Raises:
        DeclarationError: It emits other fields than its inputs have, as a plan may that doubles
            them with each of its nodes.
    """
    kind = join_spec(node)["joinType"]
    read = inputs[:1] if kind in ("SEMI", "ANTI") else inputs
    if sum(len(each.fields) for each in read) != len(node.columns):
        raise DeclarationError("it emits other fields than its inputs have")
    left, right = told_apart(inputs)
    text = phrase("{} {}", node.kind, condition_of(node, inputs))
    rows = phrase("({}) {} ({})", left.rows, text, right.rows)
    fields = left.fields if len(read) == 1 else (*left.fields, *right.fields)
    if kind in ("LEFT", "RIGHT", "FULL"):  # null where nothing matches
        mark = phrase(" OR NULL BY {}", text)
        fields = tuple(
            marked(each, mark) if kind in (side, "FULL") else each
            for read, side in ((left, "RIGHT"), (right, "LEFT"))
            for each in read.fields
        )
    updates = left.updates or right.updates or kind not in ("INNER", "SEMI")
    if node.kind in ("interval-join", "window-join", "temporal-join"):
        updates = left.updates
    return Relation(rows, left.filters | right.filters, fields, node.columns, updates)


def looked_up(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows of a join with a table that is asked for each row.

    A field of that table has the key by which it was found: two lookups find different rows.
    """
    (left,) = inputs
    spec, source = node.spec, node.spec["temporalTable"]["lookupTableSource"]
    table = str(source["table"]["identifier"])
    row = plan_type(spec["temporalTable"]["outputType"])
    if not isinstance(row, RowType):  # of types that have no text
        return unknown_rows(node, inputs)
    columns = _table_columns(table, [field.name for field in row.fields])
    equal = ordered(
        phrase("{} = {}", columns[int(index)], _lookup_key(key, left))
        for index, key in spec["lookupKeys"].items()
    )
    only = spec.get("filterOnTemporalTable")
    projected = spec.get("projectionOnTemporalTable")
    right = columns if projected is None else [expression(each, columns) for each in projected]
    conditions = tuple(
        expression(spec[name], (*left.fields, *right))
        for name in ("joinCondition", "preFilterCondition", "remainingJoinCondition")
        if spec.get(name) is not None
    )
    text = phrase("{} {} ON {}", node.kind, spec["joinType"], Series(equal, " AND "))
    if only is not None:
        text = phrase("{} WHERE {}", text, expression(only, columns))
    if conditions:
        text = phrase("{} AND {}", text, Series(conditions, " AND "))
    rows = phrase("({}) {} ({})", left.rows, text, table)
    fields = (*left.fields, *(marked(each, phrase(" BY {}", text)) for each in right))
    return Relation(rows, left.filters, fields, node.columns, left.updates)


def _lookup_key(key: Mapping[str, Any], left: Relation) -> Meaning:
    """Return a key of a lookup: a field, or a constant."""
    if "index" in key:
        return left.named([key["index"]])[0]
    return expression(key.get("literal", key), left.fields)


def _bounds(node: PlanNode, inputs: Sequence[Relation]) -> Meaning:
    """Return an interval join's bounds, or a temporal join's times; nothing of other joins."""
    left, right = inputs
    interval = node.spec.get("intervalJoinSpec")
    if interval is not None:
        bounds = dict(interval["windowBounds"])
        times = [
            relation.fields[bounds.pop(f"{side}TimeIndex")]
            for side, relation in (("left", left), ("right", right))
        ]
        return phrase(" BETWEEN {} of {} and {}", in_words(bounds), *times)
    for name, relation in (("left", left), ("right", right)):
        index = node.spec.get(f"{name}TimeAttributeIndex", -1)
        if index >= 0:
            return phrase(" AS OF {}", relation.fields[index])
    return NOTHING


def order_of(fields: Sequence[Mapping[str, Any]], read: Relation) -> Meaning:
    """Return the meaning of an ORDER BY."""
    parts = [
        phrase(
            "{} {}{}", bare(read.fields[each["index"]]), "ASC" if each["isAscending"] else "DESC",
            " NULLS LAST" if each["nullIsLast"] else "",
        )
        for each in fields
    ]  # fmt: skip
    return phrase("ORDER BY {}", Series(tuple(parts)))


def rank_of(node: PlanNode, read: Relation) -> Meaning:
    """Return what a TopN or a deduplication is, but for the number of rows that it keeps."""
    spec = node.spec
    if node.kind == "deduplicate":
        which = "LAST" if spec["keepLastRow"] else "FIRST"
        time = "ROWTIME" if spec["isRowtime"] else "PROCTIME"
        return phrase("{} BY {} OF {}", which, time, _listed(read, spec["uniqueKeys"]))
    window = _in(window_of(node, read))
    if node.kind == "window-deduplicate":
        which = "LAST" if spec["keepLastRow"] else "FIRST"
        of = _listed(read, spec["partitionKeys"])
        return phrase("{} BY {} OF {}{}", which, read.fields[spec["orderKey"]], of, window)
    partition = spec.get("partition", spec.get("partitionSpec"))["fields"]
    order = order_of((spec.get("orderBy") or spec["sortSpec"])["fields"], read)
    of = _listed(read, partition)
    return phrase("TOP {} {} OF {}{}", spec["rankType"], order, of, window)


def ranked(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows that a TopN or a deduplication keeps."""
    (read,) = inputs
    text = phrase("{} {}", rank_of(node, read), in_words(node.spec.get("rankRange", {})))
    rows = phrase("{} {}", read.rows, text)
    fields = read.fields + (phrase("RANK {}", text),) * (len(node.columns) - len(read.fields))
    inserts = node.kind.startswith("window-") or bool(node.spec.get("outputInsertOnly")) or (
        node.kind == "deduplicate"
        and not node.spec["keepLastRow"]
        and not node.spec["isRowtime"]
    )  # fmt: skip
    return Relation(rows, read.filters, fields, node.columns, not inserts)


def over(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return rows with the results of an OVER."""
    (read,) = inputs
    known = over_input(node, read)
    calls = [call_of(call, known).marked(phrase(" {}", of)) for of, call in over_calls(node, read)]
    return Relation(read.rows, read.filters, (*read.fields, *calls), node.columns, read.updates)


def over_input(node: PlanNode, read: Relation) -> Relation:
    """Return what the calls of an OVER refer to: the fields, and then its constants."""
    constants = node.spec["overSpec"].get("constants") or ()
    fields = [expression(each, ()) for each in constants]
    columns = [
        Column(field.text, plan_type(each["type"]))
        for field, each in zip(fields, constants, strict=True)
    ]
    return replace(read, fields=(*read.fields, *fields), columns=(*read.columns, *columns))


def over_calls(node: PlanNode, read: Relation) -> list[tuple[Phrase, Mapping[str, Any]]]:
    """Return each call of an OVER with its window."""
    over = node.spec["overSpec"]
    known = over_input(node, read)
    of = _listed(read, over["partition"]["fields"])
    calls = []
    for group in over["groups"]:
        lower, upper = (_bound(group[name], known) for name in ("lowerBound", "upperBound"))
        order = order_of(group["orderBy"]["fields"], read)
        unit = "ROWS" if group["isRows"] else "RANGE"
        window = phrase("OVER {} {} TO {} {} OF {}", unit, lower, upper, order, of)
        calls += [(window, call) for call in group["aggCalls"]]
    return calls


def _bound(bound: Mapping[str, Any], known: Relation) -> Meaning:
    offset, preceding = bound.get("offset"), " PRECEDING" if bound.get("isPreceding") else ""
    of = NOTHING if offset is None else phrase(" {}", expression(offset, known.fields))
    return phrase("{}{}{}", bound["kind"], preceding, of)


def windowed(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return rows with the windows that they are in."""
    (read,) = inputs
    window = _in(window_of(node, read))
    added = [phrase("{}{}", each.name, window) for each in node.columns[len(read.fields) :]]
    return replace(
        read, rows=phrase("{}{}", read.rows, window), fields=(*read.fields, *added), sets=None
    )
