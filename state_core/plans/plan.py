"""Plans as `COMPILE PLAN` and `CompiledPlan.asJsonString` write them: nodes and their edges.

The ids of nodes are counted by the JVM that compiled the plan, and have no other meaning. An
operator of the job has the uid `<id>_<name>`; one node may be several operators.

Source: `org.apache.flink.table.planner.plan.nodes.exec.serde`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

from statelake.state_core.errors import DeclarationError, MissingFileError, StateError
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from statelake.state_core.serializers.sql.types.logical_types import (
    LogicalType,
    RowField,
    RowType,
    TimestampType,
    UnknownType,
)

MAX_DEPTH = 40
MAX_PLAN_BYTES = 64 << 20
REMEDY = "give the JSON that Flink's COMPILE PLAN writes"
SHORT = 100  # letters of a type that is parsed once
_short_type = lru_cache(maxsize=1024)(parse_logical_type)
_NODE_TYPE = re.compile(r"stream-exec-([a-z0-9-]+)_(\d+)")


@dataclass(frozen=True)
class Column:
    """A field of a node's output; its type is unknown if the plan has no text for it."""

    name: str
    type: LogicalType


@dataclass(frozen=True)
class PlanNode:
    """A node of a plan.

    Attributes:
        id: Its number.
        kind: Its type without version, such as `group-aggregate`.
        version: The version of that type.
        spec: Its JSON.
        inputs: The numbers of its inputs, in order.
        columns: The fields of its output.
    """

    id: int
    kind: str
    version: int
    spec: Mapping[str, Any]
    inputs: tuple[int, ...]
    columns: tuple[Column, ...]

    @property
    def label(self) -> str:
        """`GroupAggregate[5]`, as Flink names the operator."""
        return f"{''.join(part.capitalize() for part in self.kind.split('-'))}[{self.id}]"

    @property
    def function_uid(self) -> str:
        """The operator's own uid, without the number: only process table functions have one."""
        return str(self.spec.get("uid") or "") if self.kind == "process-table-function" else ""

    @property
    def title(self) -> str:
        """Flink's description, in which users recognise their query, or the label."""
        return str(self.spec.get("description") or self.label)


@dataclass(frozen=True)
class Plan:
    """A compiled plan.

    Attributes:
        place: Where it was read.
        flink: The minor version of Flink that compiled it.
        nodes: The nodes by number, each after its inputs.
        numbered: Whether the numbers are those of the job. In a plan that was compiled again from
            the same SQL, they may begin with another number.
    """

    place: str
    flink: tuple[int, int]
    nodes: Mapping[int, PlanNode]
    numbered: bool = True

    def shifted(self, by: int) -> Plan:
        """Return the plan with its numbers shifted to those of a job."""
        nodes = {
            number + by: replace(node, id=number + by, inputs=tuple(i + by for i in node.inputs))
            for number, node in self.nodes.items()
        }
        return replace(self, nodes=nodes, numbered=True)


def read_plan(path: str | os.PathLike[str] | Plan) -> Plan:
    """Read a compiled plan from a file; a `Plan` is returned as it is.

    Raises:
        DeclarationError: It is no plan of Flink SQL.
        MissingFileError: It can't be read.
    """
    if isinstance(path, Plan):
        return path
    place = os.fspath(path)
    try:
        with open(place, "rb") as file:  # noqa: PTH123 - a path that the user gives, as it is
            data = file.read(MAX_PLAN_BYTES + 1)
    except OSError as error:
        raise MissingFileError(
            f"it can't be read ({error.strerror})", place=place, remedy=REMEDY
        ) from error
    if len(data) > MAX_PLAN_BYTES:
        raise DeclarationError(f"more than {MAX_PLAN_BYTES >> 20} MiB", place=place, remedy=REMEDY)
    return parse_plan(data, place)


def parse_plan(data: bytes | str, place: str) -> Plan:
    """Return the plan in a JSON text.

    Args:
        data: The text.
        place: Where it was read, for messages.

    Raises:
        DeclarationError: It is no plan of Flink SQL.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"not JSON ({error})", place=place, remedy=REMEDY) from error
    try:
        return _plan(content, place)
    except StateError as error:
        raise error.within(place) from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DeclarationError(
            f"not a plan of Flink SQL ({type(error).__name__}: {error})", place=place, remedy=REMEDY
        ) from error


def _plan(content: Any, place: str) -> Plan:
    if not isinstance(content, Mapping) or not isinstance(content.get("nodes"), list):
        raise DeclarationError("not a plan of Flink SQL: it has no `nodes`", remedy=REMEDY)
    major, minor = (int(part) for part in str(content["flinkVersion"]).split(".")[:2])
    inputs: dict[int, list[int]] = {}
    for edge in content.get("edges", ()):
        inputs.setdefault(int(edge["target"]), []).append(int(edge["source"]))
    nodes = {}
    for spec in content["nodes"]:
        node = _node(spec, inputs)
        if node.id in nodes:
            raise DeclarationError(f"two nodes have the number {node.id}", remedy=REMEDY)
        nodes[node.id] = node
    for node in nodes.values():
        missing = [each for each in node.inputs if each not in nodes]
        if missing:
            raise DeclarationError(f"node {node.id} reads {missing[0]}, which is missing")
    try:
        order = list(TopologicalSorter({id_: nodes[id_].inputs for id_ in nodes}).static_order())
    except CycleError as error:
        raise DeclarationError("its nodes form a cycle", remedy=REMEDY) from error
    return Plan(place, (major, minor), {id_: nodes[id_] for id_ in order})


def _node(spec: Mapping[str, Any], inputs: Mapping[int, Sequence[int]]) -> PlanNode:
    id_, named = int(spec["id"]), _NODE_TYPE.fullmatch(str(spec["type"]))
    if named is None:
        raise DeclarationError(
            f"node {id_} is a {spec['type']}", remedy="only plans of streaming jobs have state"
        )
    row = plan_type(spec["outputType"]) if "outputType" in spec else RowType(())
    if not isinstance(row, RowType):
        raise DeclarationError(f"the output of node {id_} is {row}", remedy=REMEDY)
    columns = tuple(Column(each.name, each.type) for each in row.fields)
    return PlanNode(id_, named[1], int(named[2]), spec, tuple(inputs.get(id_, ())), columns)


def plan_type(value: Any, depth: int = 0) -> LogicalType:
    """Return a logical type, which a plan has as text, or as an object if text is not enough.

    Source: `LogicalTypeJsonSerializer`.

    Raises:
        DeclarationError: Types are nested too deep.
    """
    if depth > MAX_DEPTH:
        raise DeclarationError(f"types nested more than {MAX_DEPTH} deep", remedy=REMEDY)
    if isinstance(value, str):
        try:
            return (_short_type if len(value) < SHORT else parse_logical_type)(value)
        except StateError:
            return UnknownType("", value)
    root, nullable = str(value["type"]), bool(value.get("nullable", True))
    if root in ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"):
        kind = str(value.get("kind", "REGULAR"))
        return TimestampType(int(value["precision"]), root, kind, nullable=nullable)
    if root == "ROW":
        fields = [
            RowField(str(each["name"]), plan_type(each["fieldType"], depth + 1))
            for each in value["fields"]
        ]
        return RowType(tuple(fields), nullable=nullable)
    return UnknownType("", root, nullable=nullable)
