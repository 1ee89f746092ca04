"""The lineage of each field of a plan, as text over the tables: `SUM(o.v) BY [o.g]`.

Two fields of different plans with the same text have the same values, as far as their nodes also
have the same rows: the text of a node's rows says of which tables, by which joins and groups, and
apart from that its filters are kept, since a changed filter changes what was counted. Names,
aliases and numbers of nodes are in none of these texts. Calcs are substituted, and two-phase
aggregates have the text of one. A column that is only cast to a wider type has its text, ` AS `
that type: its values are the same, so that groups and joins by it are those of the column.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Self

from statelake.state_core.errors import DeclarationError, StateError
from statelake.state_core.plans.plan import Column, Plan, PlanNode, plan_type
from statelake.state_core.serializers.sql.types.logical_types import (
    DecimalType,
    LengthType,
    LogicalType,
    RowType,
)

MAX_TEXT = 1 << 20  # nested expressions repeat what they read: the text of a field can explode
MAX_DEPTH = 200
WHOLE_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_PLAIN = re.compile(r"[A-Za-z_][\w.$-]*")
DIGITS = 12  # of the digest of a node of which no more is known
_DIGEST = re.compile(rf"<[0-9a-f]{{{DIGITS}}}>")
COMMUTATIVE = ("AND", "OR", "=", "<>", "+", "*")
# connectors, and formats of any connector but one, whose tables only get inserts
INSERTS = ("datagen", "faker", "socket")
INSERT_FORMATS = (
    "avro", "avro-confluent", "csv", "json", "orc", "parquet", "protobuf", "raw",
)  # fmt: skip
UPSERTS = "upsert-kafka"
PASSED = (
    "exchange", "watermark-assigner", "mini-batch-assigner", "drop-update-before",
    "sort", "temporal-sort",
)  # fmt: skip
NORMALIZE = "changelog-normalize"
SETS = "GROUPING SETS"
SET_NUMBER = "the number of the grouping set"
THROUGH = ("calc", "union", "join", "correlate")
INCREMENTAL = "incremental-group-aggregate"
RANKS = ("rank", "sort-limit", "limit")
LOCAL = ("local-group-aggregate", "local-window-aggregate")
AGGREGATES = (
    "group-aggregate", "global-group-aggregate", "window-aggregate", "global-window-aggregate",
    "group-window-aggregate",
)  # fmt: skip


@dataclass(frozen=True)
class GroupingSets:
    """The sets of `GROUPING SETS`, `ROLLUP` or `CUBE`, for each of which rows come once.

    Attributes:
        at: The index of the field that has the number of the set.
        absent: The fields that are NULL in each set, by its number.
        fields: The text of each field where it is not.
        text: All of it, as the filter that says which rows come.
    """

    at: int
    absent: Mapping[int, frozenset[int]]
    fields: tuple[str, ...]
    text: str

    def of(self, grouping: Sequence[int]) -> dict[int, frozenset[str]]:
        """Return the sets, by number; empty if some fields do not tell them.

        A field and its cast have one text, and are NULL in other sets.
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

    def among(self, grouping: Sequence[int]) -> GroupingSets | None:
        """Return the same of rows that have some of the fields; None if they tell no set."""
        if self.at not in grouping:
            return None
        absent = {
            number: frozenset(at for at, index in enumerate(grouping) if index in none)
            for number, none in self.absent.items()
        }
        fields = tuple(self.fields[index] for index in grouping)
        return GroupingSets(list(grouping).index(self.at), absent, fields, self.text)


@dataclass(frozen=True)
class Relation:
    """The rows that a node emits.

    Attributes:
        rows: Of what they are: equal texts are the same rows, but for filters and columns.
        filters: The conditions that rows passed.
        fields: The text of each field.
        columns: The fields' names and types.
        updates: Whether rows may be updated or deleted.
        before: What a local aggregate reads; None for other nodes.
        window: The text of a local aggregate's window.
        tables: The tables that are read, each as often as it is.
        sets: The grouping sets that rows come for; None without.
    """

    rows: str
    filters: frozenset[str]
    fields: tuple[str, ...]
    columns: tuple[Column, ...]
    updates: bool
    before: Relation | None = None
    window: str = ""
    tables: tuple[str, ...] = ()
    sets: GroupingSets | None = None

    def named(self, indexes: Sequence[int]) -> tuple[str, ...]:
        """Return the texts of some fields."""
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


class Widened(str):
    """The text of a column that is cast to a wider type, in which it has the same values.

    Attributes:
        column: The text of the column.
        to: That of the type.
    """

    __slots__ = ("column", "to")
    column: str
    to: str

    def __new__(cls, column: str, to: str) -> Self:
        """Return the text of both."""
        made = super().__new__(cls, f"{column} AS {to}")
        made.column, made.to = column, to
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override] # for copies
        """Return both."""
        return self.column, self.to


def bare(text: str) -> str:
    """Return the text of a column without the wider type that it is cast to."""
    return text.column if isinstance(text, Widened) else text


def lineage_of(plan: Plan) -> dict[int, Relation]:
    """Return the relation of each node of a plan.

    Raises:
        DeclarationError: A node refers to a field that its input does not have.
    """
    relations: dict[int, Relation] = {}
    inserts = insert_only(plan)
    for node in plan.nodes.values():
        inputs = [relations[each] for each in node.inputs]
        with understood(plan, node):
            tables = tuple(table for each in inputs for table in each.tables)
            if node.kind == "table-source-scan":
                tables = (table_of(node),)
            relation = replace(_relation(node, inputs), columns=node.columns, tables=tables)
            if node.id in inserts:
                relation = replace(relation, updates=False)
            relations[node.id] = relation
    return relations


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


def insert_only(plan: Plan) -> frozenset[int]:
    """Return the nodes whose output has inserts alone, as the nodes that read it demand.

    A plan does not say which changes a table gets, but Flink compiles some nodes for inserts alone.
    """
    ids: set[int] = set()
    for node in reversed(list(plan.nodes.values())):
        with understood(plan, node):
            reads = _reads_inserts(node)
        if reads or (node.id in ids and node.kind in (*THROUGH, *PASSED, NORMALIZE)):
            ids |= set(node.inputs)
    return frozenset(ids)


def _reads_inserts(node: PlanNode) -> bool:
    spec = node.spec
    if node.kind == "sink":
        return bool(spec.get("inputChangelogMode") == ["INSERT"])
    if node.kind in ("group-aggregate", *LOCAL, "window-aggregate", "group-window-aggregate"):
        return spec.get("needRetraction") is False
    if node.kind in RANKS:
        return bool(spec["rankStrategy"]["type"] == "AppendFast")
    return node.kind in ("deduplicate", "over-aggregate", "interval-join", "window-join",
                         "window-rank", "window-deduplicate")  # fmt: skip


def _relation(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    rule = RULES.get(node.kind)
    if rule is not None and inputs and not reads_incremental(node, inputs):
        return rule(node, inputs)
    if node.kind == "table-source-scan":
        return _scan(node)
    if node.kind in PASSED and len(inputs) == 1:
        return inputs[0]
    return _unknown(node, inputs)


def reads_incremental(node: PlanNode, inputs: Sequence[Relation]) -> bool:
    """Return whether a node reads what an incremental aggregate has added up."""
    return node.kind == "global-group-aggregate" and any(
        each.rows.startswith(f"{INCREMENTAL}<") for each in inputs
    )


def _unknown(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the relation of a node without a rule, which its whole content identifies."""
    left_out = (
        "id", "type", "description", "inputProperties", "configuration", "outputType", "state",
    )  # fmt: skip
    spec = _said({name: value for name, value in node.spec.items() if name not in left_out})
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:DIGITS]
    reads = [f"{each.rows} ({', '.join((each.before or each).fields)})" for each in inputs]
    rows = _bounded(f"{node.kind}<{digest}> of {' and '.join(reads)}")
    fields = tuple(f"{rows}[{index}]" for index in range(len(node.columns)))
    filters = frozenset().union(*(each.filters for each in inputs))
    updates = any(each.updates for each in inputs)
    return Relation(rows, filters, fields, node.columns, updates)


def in_words(text: str) -> str:
    """Return a text of this module as people read it: without what only tells two nodes apart."""
    return _DIGEST.sub("", text)


def shortened(text: str, most: int = 160) -> str:
    """Return a text of this module as people read it, with its end left out if it is long."""
    text = in_words(text).strip()
    return text if len(text) <= most else f"{text[:most]}..."


def _said(value: Any, depth: int = 0) -> Any:
    """Return a JSON value without what versions of Flink leave out: empty, null, or false.

    Raises:
        DeclarationError: It is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return [_said(each, depth + 1) for each in value]
    if not isinstance(value, Mapping):
        return value
    parts = {name: _said(each, depth + 1) for name, each in value.items()}
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


def _scan(node: PlanNode) -> Relation:
    source = node.spec["scanTableSource"]
    table = table_of(node)
    short = table.rpartition(".")[2].strip("`")
    fields = tuple(f"{short}.{column.name}" for column in node.columns)
    filters = set()
    for ability in source.get("abilities") or ():
        if ability.get("type") == "FilterPushDown":
            full = _schema_fields(source, short) or fields
            filters |= {expression(each, full) for each in ability.get("predicates") or ()}
    options = source["table"].get("resolvedTable", {}).get("options", {})
    return Relation(table, frozenset(filters), fields, node.columns, not _only_inserts(options))


def _schema_fields(source: Mapping[str, Any], short: str) -> tuple[str, ...]:
    schema = source["table"].get("resolvedTable", {}).get("schema", {})
    return tuple(f"{short}.{each['name']}" for each in schema.get("columns", ()))


def _only_inserts(options: Mapping[str, Any]) -> bool:
    """Return whether a table is known to get inserts alone."""
    connector = str(options.get("connector", ""))
    formats = [str(options[name]) for name in ("format", "value.format") if name in options]
    if connector == UPSERTS or not formats:
        return connector in INSERTS
    return all(each in INSERT_FORMATS for each in formats)


def _calc(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    (read,) = inputs
    fields = tuple(_bounded(_field(each, read)) for each in node.spec["projection"])
    return replace(_filtered(read, node.spec.get("condition")), fields=fields, sets=None)


def _filtered(read: Relation, condition: Mapping[str, Any] | None) -> Relation:
    """Return the rows that pass a condition, if there is one."""
    if condition is None:
        return read
    return replace(read, filters=read.filters | conjuncts(condition, read))


def _expand(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
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
        texts = list(dict.fromkeys(_field(each, read) for each in column if not _is_null(each)))
        parts.append(texts[0] if len(texts) == 1 else " or ".join(texts))
    numbers = [[each.get("value") for each in column] for column in columns]
    at = next(
        (index for index in reversed(range(len(columns))) if _are_numbers(numbers[index])), -1
    )
    shown = [
        f"{number} without {', '.join(parts[index] for index in sorted(none)) or 'none'}"
        for number, none in zip(numbers[at], absent, strict=True)
    ]
    text = _bounded(f"{SETS} {'; '.join(sorted(shown))}")
    # a field that is NULL in some of them is another field than the one that never is
    fields = tuple(
        _bounded(marked(each, f" in {text}"))
        if index == at or any(index in none for none in absent)
        else _bounded(each)
        for index, each in enumerate(parts)
    )
    sets = None
    if at >= 0:
        sets = GroupingSets(at, dict(zip(numbers[at], absent, strict=True)), tuple(parts), text)
    rows, filters = f"{read.rows} FOR EACH SET", read.filters | {text}
    return replace(read, rows=rows, fields=fields, filters=filters, sets=sets, before=None)


def _is_null(projected: Mapping[str, Any]) -> bool:
    return projected.get("kind") == "LITERAL" and projected.get("value") is None


def _are_numbers(values: Sequence[Any]) -> bool:
    """Return whether values are whole numbers, each another one."""
    return all(type(each) is int for each in values) and len(set(values)) == len(values)


def _grouped(node: PlanNode, read: Relation) -> tuple[str, ...]:
    """Return the texts of the columns that an aggregate groups by, also if they are of sets."""
    grouping, sets = node.spec["grouping"], read.sets
    if sets is None or not sets.of(grouping):
        return read.named(grouping)
    return tuple(SET_NUMBER if each == sets.at else sets.fields[each] for each in grouping)


def normalized(node: PlanNode, read: Relation) -> Relation:
    """Return the rows of a table that changes, of which a filter may be left to its node."""
    return _filtered(read, node.spec.get("filterCondition"))


def _field(projected: Mapping[str, Any], read: Relation) -> str:
    """Return the text of a projected field; without a cast that only drops a time attribute."""
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
                return Widened(bare(read.fields[index]), to.text)
    return expression(projected, read.fields)


def _union(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    # in the same order in all fields: what comes of one table twice must not be mixed up
    ordered = sorted(inputs, key=lambda each: (_with_filters(each), each.fields))
    rows = " UNION ".join(map(_with_filters, ordered))
    fields = tuple(" | ".join(texts) for texts in zip(*(i.fields for i in ordered), strict=True))
    updates = any(each.updates for each in inputs)
    return Relation(_bounded(rows), frozenset(), fields, node.columns, updates)


def _with_filters(read: Relation) -> str:
    return f"{read.rows} WHERE {' AND '.join(sorted(read.filters))}" if read.filters else read.rows


def _local(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    (read,) = inputs
    grouping = node.spec["grouping"]
    keys = read.named(grouping)
    partial = ("a partial aggregate",) * (len(node.columns) - len(keys))
    window = window_text(node, read)
    sets = None if read.sets is None else read.sets.among(grouping)
    return replace(read, fields=(*keys, *partial), before=read, window=window, sets=sets)


def aggregated(node: PlanNode, read: Relation) -> tuple[Relation, tuple[str, ...], str]:
    """Return what an aggregate reads, before a local one; its keys' texts, and its window's."""
    keys = _grouped(node, read)
    if read.before is None:
        return read, keys, window_text(node, read)
    return read.before, keys, read.window


def grouping_sets(node: PlanNode, read: Relation) -> dict[int, frozenset[str]]:
    """Return the grouping sets of an aggregate, by number; empty if it has none."""
    return {} if read.sets is None else read.sets.of(node.spec["grouping"])


def _aggregate(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    source, keys, window = aggregated(node, inputs[0])
    by = f"BY [{', '.join(sorted(map(bare, keys)))}]"
    rows = _bounded(f"GROUP {source.rows} {by}{window}")
    calls = [f"{call_text(call, source)} {by}{window}" for call in node.spec["aggCalls"]]
    properties = [
        f"{each['property']['kind']}{window}" for each in node.spec.get("namedWindowProperties", ())
    ]
    if SET_NUMBER in keys:  # which is another one where the sets are
        keys = tuple(
            text if key == SET_NUMBER else key
            for key, text in zip(keys, inputs[0].named(node.spec["grouping"]), strict=True)
        )
    fields = tuple(map(_bounded, (*keys, *calls, *properties)))
    updates = node.kind in ("group-aggregate", "global-group-aggregate")
    return Relation(rows, source.filters, fields, node.columns, updates)


def _listed(read: Relation, indexes: Sequence[int]) -> str:
    """Return the texts of some fields whose order means nothing."""
    return f"({', '.join(sorted(map(bare, read.named(indexes))))})"


def window_text(node: PlanNode, read: Relation) -> str:
    """Return the text of a node's window, with the field of its time; empty without one."""
    spec = node.spec
    if "window" in spec:  # of the old group windows
        group = {k: v for k, v in spec["window"].items() if k not in ("alias", "timeField")}
        time = read.fields[spec["window"]["timeField"]["fieldIndex"]]
        return f" IN {_words(group)} of {time}"
    windowing = spec.get("windowing")
    if windowing is None:
        return ""
    given = {k: v for k, v in windowing["window"].items() if k != "partition_key_indices"}
    window = _words(given)
    if keys := windowing["window"].get("partition_key_indices"):  # of sessions
        window += f" per {_listed(read, keys)}"
    for name in ("timeAttributeIndex", "windowStart", "sliceEnd"):
        if name in windowing:
            index = windowing[name]
            return f" IN {window} of {read.fields[index] if index < len(read.fields) else name}"
    return f" IN {window}"


def call_text(call: Mapping[str, Any], read: Relation) -> str:
    """Return the text of an aggregate call: `SUM(DISTINCT o.v) FILTER (o.v > 3)`."""
    distinct = "DISTINCT " if call.get("distinct") else ""
    condition = call.get("filterArg", -1)
    only = f" FILTER ({read.fields[condition]})" if condition >= 0 else ""
    return f"{function_name(call)}({distinct}{', '.join(read.named(call['argList']))}){only}"


def function_name(call: Mapping[str, Any]) -> str:
    """Return the name of a function: `SUM`, or that of a user's function."""
    for name in ("internalName", "systemName", "catalogName", "class"):
        if name in call:
            return str(call[name]).removeprefix("$").removesuffix("$1")
    return _words({name: each for name, each in call.items() if name not in ("operands", "type")})


def join_spec(node: PlanNode) -> Mapping[str, Any]:
    """Return what is joined by a join of two inputs."""
    join: Mapping[str, Any] = node.spec.get("intervalJoinSpec", node.spec)["joinSpec"]
    return join


def join_keys(spec: Mapping[str, Any], inputs: Sequence[Relation]) -> tuple[str, ...]:
    """Return the texts of a join's keys, a pair of both sides each."""
    left, right = told_apart(inputs)
    pairs = zip(left.named(spec["leftKeys"]), right.named(spec["rightKeys"]), strict=True)
    return tuple(f"{bare(one)} = {bare(other)}" for one, other in pairs)


def join_text(spec: Mapping[str, Any], inputs: Sequence[Relation]) -> str:
    """Return the text of a join: its type, keys and other conditions."""
    left, right = told_apart(inputs)
    equal = sorted(join_keys(spec, inputs))
    condition = spec.get("nonEquiCondition")
    more = [] if condition is None else [expression(condition, (*left.fields, *right.fields))]
    return f"{spec['joinType']} ON {' AND '.join(equal + more)}"


def told_apart(inputs: Sequence[Relation]) -> tuple[Relation, Relation]:
    """Return both sides of a join; of a table that both read, those on the right are numbered."""
    left, right = inputs
    if not set(left.tables) & set(right.tables):
        return left, right
    # as many as the left has: joins in each side have numbered theirs with less
    mark = f" #{len(left.tables) + 1}"
    return left, replace(
        right, fields=tuple(marked(text, mark) for text in right.fields),
        filters=frozenset(f"{text}{mark}" for text in right.filters),
    )  # fmt: skip


def marked(text: str, mark: str) -> str:
    """Return the text of a column with a mark, before the wider type that it is cast to."""
    if isinstance(text, Widened):
        return Widened(f"{text.column}{mark}", text.to)
    return f"{text}{mark}"


def _join(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    join = join_spec(node)
    left, right = told_apart(inputs)
    text = f"{node.kind} {join_text(join, inputs)}{bounds_text(node, inputs)}"
    rows = _bounded(f"({left.rows}) {text} ({right.rows})")
    kind = join["joinType"]
    fields = (*left.fields, *right.fields) if kind not in ("SEMI", "ANTI") else left.fields
    if kind in ("LEFT", "RIGHT", "FULL"):  # null where nothing matches
        sides = [
            f" OR NULL BY {text}" if kind in (side, "FULL") else "" for side in ("RIGHT", "LEFT")
        ]
        pairs = [(left, sides[0]), (right, sides[1])]
        fields = tuple(marked(text, side) for read, side in pairs for text in read.fields)
    updates = left.updates or right.updates or kind not in ("INNER", "SEMI")
    if node.kind in ("interval-join", "window-join", "temporal-join"):
        updates = left.updates
    filters = left.filters | right.filters
    return Relation(rows, filters, tuple(map(_bounded, fields)), node.columns, updates)


def _lookup_join(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    """Return the rows of a join with a table that is asked for each row.

    A field of that table has the key by which it was found: two lookups find different rows.
    """
    (left,) = inputs
    spec, source = node.spec, node.spec["temporalTable"]["lookupTableSource"]
    table = str(source["table"]["identifier"])
    short = table.rpartition(".")[2].strip("`")
    row = plan_type(spec["temporalTable"]["outputType"])
    if not isinstance(row, RowType):  # of types that have no text
        return _unknown(node, inputs)
    columns = [f"{short}.{field.name}" for field in row.fields]
    equal = sorted(
        f"{columns[int(index)]} = {_lookup_key(key, left)}"
        for index, key in spec["lookupKeys"].items()
    )
    only = spec.get("filterOnTemporalTable")
    projected = spec.get("projectionOnTemporalTable")
    right = columns if projected is None else [expression(each, columns) for each in projected]
    conditions = [
        expression(spec[name], (*left.fields, *right))
        for name in ("joinCondition", "preFilterCondition", "remainingJoinCondition")
        if spec.get(name) is not None
    ]
    text = f"{node.kind} {spec['joinType']} ON {' AND '.join(equal)}"
    text += f" WHERE {expression(only, columns)}" if only is not None else ""
    text += f" AND {' AND '.join(conditions)}" if conditions else ""
    rows = _bounded(f"({left.rows}) {text} ({table})")
    fields = (*left.fields, *(_bounded(f"{each} BY {text}") for each in right))
    return Relation(rows, left.filters, fields, node.columns, left.updates)


def _lookup_key(key: Mapping[str, Any], left: Relation) -> str:
    """Return the text of a key of a lookup: a field, or a constant."""
    if "index" in key:
        return str(left.fields[key["index"]])
    return expression(key.get("literal", key), left.fields)


def bounds_text(node: PlanNode, inputs: Sequence[Relation]) -> str:
    """Return the text of an interval join's bounds, or of a temporal join's times."""
    left, right = inputs
    interval = node.spec.get("intervalJoinSpec")
    if interval is not None:
        bounds = dict(interval["windowBounds"])
        times = [
            relation.fields[bounds.pop(f"{side}TimeIndex")]
            for side, relation in (("left", left), ("right", right))
        ]
        return f" BETWEEN {_words(bounds)} of {' and '.join(times)}"
    for name, relation in (("left", left), ("right", right)):
        index = node.spec.get(f"{name}TimeAttributeIndex", -1)
        if index >= 0:
            return f" AS OF {relation.fields[index]}"
    return ""


def order_text(fields: Sequence[Mapping[str, Any]], read: Relation) -> str:
    """Return the text of an ORDER BY."""
    parts = [
        f"{bare(read.fields[each['index']])} {'ASC' if each['isAscending'] else 'DESC'}"
        f"{' NULLS LAST' if each['nullIsLast'] else ''}"
        for each in fields
    ]
    return f"ORDER BY {', '.join(parts)}"


def rank_text(node: PlanNode, read: Relation) -> str:
    """Return the text of a TopN or a deduplication, without the number of rows that it keeps."""
    spec = node.spec
    if node.kind == "deduplicate":
        which = "LAST" if spec["keepLastRow"] else "FIRST"
        time = "ROWTIME" if spec["isRowtime"] else "PROCTIME"
        return f"{which} BY {time} OF {_listed(read, spec['uniqueKeys'])}"
    if node.kind == "window-deduplicate":
        which = "LAST" if spec["keepLastRow"] else "FIRST"
        by = read.fields[spec["orderKey"]]
        of = _listed(read, spec["partitionKeys"])
        return f"{which} BY {by} OF {of}{window_text(node, read)}"
    partition = spec.get("partition", spec.get("partitionSpec"))["fields"]
    order = order_text((spec.get("orderBy") or spec["sortSpec"])["fields"], read)
    of = _listed(read, partition)
    return f"TOP {spec['rankType']} {order} OF {of}{window_text(node, read)}"


def _rank(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    (read,) = inputs
    text = f"{rank_text(node, read)} {_words(node.spec.get('rankRange', {}))}"
    rows = _bounded(f"{read.rows} {text}")
    fields = read.fields + (f"RANK {text}",) * (len(node.columns) - len(read.fields))
    inserts = node.kind.startswith("window-") or bool(node.spec.get("outputInsertOnly")) or (
        node.kind == "deduplicate"
        and not node.spec["keepLastRow"]
        and not node.spec["isRowtime"]
    )  # fmt: skip
    return Relation(rows, read.filters, tuple(map(_bounded, fields)), node.columns, not inserts)


def _over(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    (read,) = inputs
    fields = [*read.fields]
    for text, call in over_calls(node, read):
        fields.append(_bounded(f"{call_text(call, over_input(node, read))} {text}"))
    return Relation(read.rows, read.filters, tuple(fields), node.columns, read.updates)


def over_input(node: PlanNode, read: Relation) -> Relation:
    """Return what the calls of an OVER refer to: the fields, and then its constants."""
    constants = node.spec["overSpec"].get("constants") or ()
    texts = [expression(each, ()) for each in constants]
    columns = [
        Column(text, plan_type(each["type"])) for text, each in zip(texts, constants, strict=True)
    ]
    return replace(read, fields=(*read.fields, *texts), columns=(*read.columns, *columns))


def over_calls(node: PlanNode, read: Relation) -> list[tuple[str, Mapping[str, Any]]]:
    """Return each call of an OVER with the text of its window."""
    over = node.spec["overSpec"]
    known = over_input(node, read)
    of = f"OF {_listed(read, over['partition']['fields'])}"
    calls = []
    for group in over["groups"]:
        bounds = " TO ".join(_bound(group[name], known) for name in ("lowerBound", "upperBound"))
        order = order_text(group["orderBy"]["fields"], read)
        unit = "ROWS" if group["isRows"] else "RANGE"
        calls += [(f"OVER {unit} {bounds} {order} {of}", call) for call in group["aggCalls"]]
    return calls


def _bound(bound: Mapping[str, Any], known: Relation) -> str:
    offset = bound.get("offset")
    text = "" if offset is None else f" {expression(offset, known.fields)}"
    return f"{bound['kind']}{' PRECEDING' if bound.get('isPreceding') else ''}{text}"


def _window_function(node: PlanNode, inputs: Sequence[Relation]) -> Relation:
    (read,) = inputs
    window = window_text(node, read)
    added = [f"{column.name}{window}" for column in node.columns[len(read.fields) :]]
    return replace(
        read, rows=_bounded(f"{read.rows}{window}"), fields=(*read.fields, *map(_bounded, added)),
        sets=None,
    )  # fmt: skip


RULES: Mapping[str, Callable[[PlanNode, Sequence[Relation]], Relation]] = {
    "calc": _calc,
    "async-calc": _calc,
    "expand": _expand,
    "union": _union,
    NORMALIZE: lambda node, inputs: normalized(node, inputs[0]),
    **dict.fromkeys(AGGREGATES, _aggregate),
    **dict.fromkeys(LOCAL, _local),
    "join": _join,
    "interval-join": _join,
    "window-join": _join,
    "temporal-join": _join,
    "lookup-join": _lookup_join,
    **dict.fromkeys(RANKS, _rank),
    "deduplicate": _rank,
    "window-rank": _rank,
    "window-deduplicate": _rank,
    "over-aggregate": _over,
    "window-table-function": _window_function,
}


# --------------------------------------------------------------------------- expressions


def conjuncts(condition: Mapping[str, Any], read: Relation) -> frozenset[str]:
    """Return the texts of the parts of a condition, all of which must hold."""
    if condition.get("internalName") == "$AND$1":
        return frozenset().union(*(conjuncts(each, read) for each in condition["operands"]))
    return frozenset((expression(condition, read.fields),))


def expression(value: Any, fields: Sequence[str], depth: int = 0) -> str:
    """Return the text of an expression (a RexNode), its fields by their own texts.

    Raises:
        DeclarationError: It is nested too deep, or its text is too long.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"an expression nested more than {MAX_DEPTH} deep")
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind == "INPUT_REF":
        text = fields[value["inputIndex"]]
        return f"CAST({text})" if isinstance(text, Widened) else text
    if kind == "LITERAL":
        return _ranges(value["sarg"]) if "sarg" in value else _constant(value.get("value"))
    if kind == "CALL":
        name = function_name(value)
        operands = [expression(each, fields, depth + 1) for each in value.get("operands") or ()]
        if name in COMMUTATIVE:
            operands.sort()
        to = ""
        if "type" in value:
            kind = plan_type(value["type"])
            # of numbers too: an INT overflows where a BIGINT does not
            if name.endswith("CAST") or kind.root in (*WHOLE_NUMBERS, "DECIMAL"):
                to = f" AS {kind.text}"
        return _bounded(f"{name}({', '.join(operands)}{to})")
    if isinstance(value, Mapping):
        parts = [
            f"{name} {expression(each, fields, depth + 1)}" for name, each in sorted(value.items())
        ]
        return _bounded(f"({', '.join(parts)})")
    if isinstance(value, list):
        return _bounded(f"[{', '.join(expression(each, fields, depth + 1) for each in value)}]")
    return _constant(value)


def _constant(value: Any) -> str:
    """Return the text of a constant: a number, TRUE, NULL, or a text in quotes."""
    if isinstance(value, Mapping | list):
        return _words(value)
    if isinstance(value, str):
        return "'{}'".format(value.replace("'", "''"))
    return "NULL" if value is None else json.dumps(value).upper()


def _ranges(given: Mapping[str, Any]) -> str:
    """Return the text of ranges of constants: `1 or 5 or above 7 to 9, NULL as UNKNOWN`."""
    parts = []
    for each in given["ranges"]:
        lower, upper = each.get("lower"), each.get("upper")
        if lower and lower == upper:
            parts.append(_constant(lower["value"]))
            continue
        ends = []
        for end, word, closed in ((lower, "above", "from"), (upper, "below", "to")):
            if end:
                word = closed if end["boundType"] == "CLOSED" else word  # noqa: PLW2901
                ends.append(f"{word} {_constant(end['value'])}")
        parts.append(" ".join(ends) or "any")
    rest = {name: each for name, each in given.items() if name != "ranges"}
    return f"({' or '.join(parts)}; {_words(rest)})"


def _words(value: Any, depth: int = 0) -> str:
    """Return a JSON value of a plan in words: `TumblingWindow of size PT1M`.

    Values that differ have other words.

    Raises:
        DeclarationError: It is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return f"({', '.join(_words(each, depth + 1) for each in value)})"
    if not isinstance(value, Mapping):
        plain = isinstance(value, str) and _PLAIN.fullmatch(value)
        return str(value) if plain else _constant(value)
    kind = next((name for name in ("type", "kind") if isinstance(value.get(name), str)), None)
    parts = [
        f"{name} ({_words(each, depth + 1)})" if isinstance(each, Mapping)
        else f"{name} {_words(each, depth + 1)}"
        for name, each in sorted(value.items())
        if name != kind
    ]  # fmt: skip
    begin = "" if kind is None else _words(value[kind])
    return f"{begin}{' of ' if begin and parts else ''}{' and '.join(parts)}"


def _bounded(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise DeclarationError(f"the text of an expression has more than {MAX_TEXT:,} letters")
    return text
