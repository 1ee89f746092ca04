"""The ids of operators without uids, which Flink derives from the topology of the job.

A job that runs SQL without a compiled plan has no uids. Its operators are those of the plan that
the same Flink version compiles from the same SQL, except that the number of operators of a source
or a sink depends on its connector. These numbers are found by trial: with the right ones, the
derived ids are those in the snapshot.

Source: `StreamGraphHasherV2`; `StreamingJobGraphGenerator.isChainable`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from statelake.state_core.model.key_groups import murmur3_128
from statelake.state_core.plans.kinds import kind_of
from statelake.state_core.plans.lineage import understood
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.states import TIMES

SOURCE, SINK = "table-source-scan", "sink"
MOST_OPERATORS = 4  # of a source, or a sink
MOST_HASHES = 1 << 20  # of all shapes that are tried
TIMESTAMPS = "timestamp-inserter"  # before a pattern in the order of event time
# the names of sources whose connectors name them
SOURCES = {"kafka": "kafka", "upsert-kafka": "kafka"}
# nodes whose operator has the name of another kind
OPERATORS = {"sort-limit": "rank", "limit": "rank", "window-table-function": "window"}
VIRTUAL = ("exchange", "union")  # nodes without an operator


@dataclass(frozen=True)
class Shape:
    """The number of operators of the sources and sinks of each connector.

    Attributes:
        counts: The number of operators, by node kind and connector.
    """

    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, node: PlanNode) -> int:
        """Return the number of operators of a source or a sink."""
        return self.counts.get((node.kind, _connector(node)), 1)


def _connector(node: PlanNode) -> str:
    for name in ("scanTableSource", "dynamicTableSink"):
        if name in node.spec:
            table = node.spec[name]["table"].get("resolvedTable") or {}
            return str((table.get("options") or {}).get("connector", ""))
    return ""


def shapes_of(plan: Plan) -> Iterator[Shape]:
    """Yield the shapes that the connectors of a plan may have, the smallest first."""
    kinds = sorted(
        {(node.kind, _connector(node)) for node in plan.nodes.values()
         if node.kind in (SOURCE, SINK)}
    )  # fmt: skip
    counts = range(1, MOST_OPERATORS + 1)
    for number, chosen in enumerate(product(counts, repeat=len(kinds))):
        if number * len(plan.nodes) > MOST_HASHES:
            return
        yield Shape(dict(zip(kinds, chosen, strict=True)))


def find_shape(
    plan: Plan, ids: Collection[str], every: Collection[str] = (), keyed: Collection[str] = ()
) -> Shape | None:
    """Return the shape with which a plan's operators have all ids of a snapshot; None without one.

    An id depends only on the position in a chain: another shape may put another operator there.

    Args:
        plan: The plan.
        ids: The ids of operators with state: the plan must have all of them, at operators that may
            have state.
        every: The ids of all operators of the snapshot: the best shape has most of them.
        keyed: The ids of operators with keyed state.
    """
    best: Shape | None = None
    most, wanted = -1, set(every)
    for shape in shapes_of(plan):
        nodes = {operator_id: at for at, operator_id in operator_ids_of(plan, shape).items()}
        if not all(
            each in nodes and _may_have_state(plan, *nodes[each], keyed=each in keyed)
            for each in ids
        ):
            continue
        count = len(wanted & nodes.keys())
        if count == len(wanted):
            return shape
        if count > most:
            best, most = shape, count
    return best


def _may_have_state(plan: Plan, number: int, name: str, *, keyed: bool) -> bool:
    """Return whether an operator may have state."""
    node = plan.nodes[number]
    if node.kind == SOURCE:
        return not keyed
    may_wait = node.kind == "lookup-join"
    return name != TIMESTAMPS and (may_wait or not kind_of(node).stateless)


def operator_ids_of(plan: Plan, shape: Shape) -> dict[tuple[int, str], str]:
    """Return the ids of a job's operators without uids, by the number of the node and a name.

    Args:
        plan: The plan that Flink compiles from the job's SQL.
        shape: The operators of its connectors.

    Raises:
        DeclarationError: A node can't be understood.
    """
    graph = _Graph(plan, shape)
    return {graph.names[index]: hashed.hex() for index, hashed in graph.hashes().items()}


def uid_name(plan: Plan, number: int, name: str, shape: Shape) -> str:
    """Return an operator's name in the uids of a job of a compiled plan, `<number>_<name>`.

    It is empty if only the connector knows the name.

    Args:
        plan: The plan.
        number: The operator's node.
        name: Its name in `operator_ids_of`.
        shape: The operators of the plan's connectors.
    """
    node = plan.nodes[number]
    if node.kind == SOURCE:
        return "" if shape.of(node) > 1 else SOURCES.get(_connector(node), "source")
    if node.kind == SINK and name.startswith("sink-"):
        return "sink" if shape.of(node) == 1 else ""
    return OPERATORS.get(name, name)


def _is_by_rowtime(node: PlanNode, read: PlanNode) -> bool:
    """Return whether the rows of a pattern are in the order of event time."""
    order = node.spec["matchSpec"]["orderBy"]["fields"]
    kind = getattr(read.columns[order[0]["index"]].type, "kind", "") if order else ""
    return bool(kind == TIMES[0])


class _Graph:
    """The operators of a plan, in the order in which Flink makes them, and their edges.

    Attributes:
        names: The node and the name of each operator.
        inputs: The operators that each operator reads.
        outputs: The operators that read each operator, and whether they may be chained to it.
    """

    def __init__(self, plan: Plan, shape: Shape) -> None:
        self.plan = plan
        self.shape = shape
        self.names: list[tuple[int, str]] = []
        self.inputs: list[list[int]] = []
        self.outputs: list[list[tuple[int, bool]]] = []
        self._made: dict[int, list[tuple[int, bool]]] = {}
        read = {each for node in plan.nodes.values() for each in node.inputs}
        for number in sorted(plan.nodes):
            if number not in read:
                self._visit(number)

    def _visit(self, last: int) -> None:
        """Make the operators of a node and of all its inputs, inputs first."""
        stack = [last]
        while stack:
            number = stack[-1]
            missing = [each for each in self.plan.nodes[number].inputs if each not in self._made]
            if number in self._made or missing:
                stack.pop() if number in self._made else stack.append(missing[0])
                continue
            node = self.plan.nodes[number]
            reads = [each for before in node.inputs for each in self._made[before]]
            with understood(self.plan, node):
                self._made[number] = self._operators(node, reads)
            stack.pop()

    def _operators(self, node: PlanNode, reads: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
        """Add a node's operators, and return those that emit its rows, with whether they chain."""
        if node.kind == "exchange":
            return [(index, False) for index, _ in reads]
        if node.kind in VIRTUAL:
            return reads
        names = [node.kind]
        if node.kind == "match" and _is_by_rowtime(node, self.plan.nodes[node.inputs[0]]):
            names = [TIMESTAMPS, node.kind]
        if node.kind == "lookup-join" and node.spec.get("requireUpsertMaterialize"):
            names = ["lookup-join-materialize"]  # after an exchange of its own
            reads = [(index, False) for index, _ in reads]
        if node.kind == SOURCE:
            names = [f"source-{number}" for number in range(self.shape.of(node))]
        elif node.kind == SINK:
            columns = node.spec["dynamicTableSink"]["table"]["resolvedTable"]["schema"]["columns"]
            enforced = any("NOT NULL" in str(column.get("dataType")) for column in columns)
            names = ["constraint-enforcer"] * enforced
            names += ["upsert-materialize"] * bool(node.spec.get("requireUpsertMaterialize"))
            names += [f"sink-{number}" for number in range(self.shape.of(node))]
        for name in names:
            index = len(self.names)
            self.names.append((node.id, name))
            self.inputs.append([before for before, _ in reads])
            self.outputs.append([])
            for before, chains in reads:
                self.outputs[before].append((index, chains and len(reads) == 1))
            reads = [(index, True)]
        return reads

    def hashes(self) -> dict[int, bytes]:
        """Return the id of each operator, breadth first from the sources."""
        hashes: dict[int, bytes] = {}
        waiting = deque(index for index, reads in enumerate(self.inputs) if not reads)
        seen = set(waiting)
        while waiting:
            index = waiting.popleft()
            if any(before not in hashes for before in self.inputs[index]):
                seen.discard(index)  # it is visited again after its last input
                continue
            chained = sum(chains for _, chains in self.outputs[index])
            mixed = bytearray(murmur3_128(struct.pack("<i", len(hashes)) * (1 + chained)))
            for before in self.inputs[index]:
                for at, byte in enumerate(hashes[before]):
                    mixed[at] = mixed[at] * 37 & 0xFF ^ byte
            uid = self.plan.nodes[self.names[index][0]].function_uid
            hashes[index] = murmur3_128(uid.encode("utf-8")) if uid else bytes(mixed)
            for after, _ in self.outputs[index]:
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        return hashes
