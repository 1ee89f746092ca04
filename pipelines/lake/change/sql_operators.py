"""The assignment of a snapshot's operators to nodes of a plan of Flink SQL, and their new ids.

A job that runs a compiled plan has uids with the numbers of its nodes; of one that runs without it
ids follow from the topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from statelake.pipelines.lake.catalog.unmanaged_state import unmanaged_metadata
from statelake.pipelines.lake.edit.merging import has_state
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.state_core.errors import IncompatibleError
from statelake.state_core.model.key_groups import operator_id_of_uid
from statelake.state_core.model.snapshot import Operator, Snapshot
from statelake.state_core.plans.matches import PlanMatch
from statelake.state_core.plans.naming import nodes_by_uid, numbered_as
from statelake.state_core.plans.plan import Plan, PlanNode
from statelake.state_core.plans.topology import (
    SOURCE,
    Shape,
    find_shape,
    operator_ids_of,
    uid_name,
)


@dataclass(frozen=True)
class Identity:
    """The id of an operator, and its uid; a job without a compiled plan has none."""

    operator_id: str
    uid: str = ""


@dataclass(frozen=True)
class Named:
    """The operators of both jobs.

    Attributes:
        old: The snapshot's operators with state, by the number of their node: id, and name in it.
        new: The ids of the new job's, by number and name; empty if uids make them.
        connectors: The uids of operators of sources and sinks of the new job that have state, as
            far as a savepoint of it tells them, by number.
    """

    old: Mapping[int, Mapping[str, str]]
    new: Mapping[tuple[int, str], str] = field(default_factory=dict)
    connectors: Mapping[int, str] = field(default_factory=dict)

    def identity(self, node: PlanNode, name: str) -> Identity | None:
        """Return the identity of an operator of the new job; None if it has none of that name."""
        if not self.new:
            uid = self.connectors.get(node.id) or node.function_uid or f"{node.id}_{name}"
            return (
                Identity(operator_id_of_uid(uid), uid)
                if name or node.id in self.connectors
                else None
            )
        operator_id = self.new.get((node.id, name))
        return None if operator_id is None else Identity(operator_id)


def _with_state(record: SnapshotRecord) -> dict[str, str]:
    """Return the operators of a snapshot that have state, with their uids."""
    tables = {each.operator_id: each.uid for each in record.operators}
    return {
        # Flink would hold an operator without state to its maximum parallelism
        each.operator_id: tables.get(each.operator_id) or each.uid
        for each in unmanaged_metadata(record).operators
        if has_state(each, set(tables))
    }


def named_by_topology(record: SnapshotRecord, match: PlanMatch) -> Named:
    """Return the operators of jobs that run without compiled plans.

    Raises:
        IncompatibleError: The snapshot's ids are not those of the old plan's topology.
    """
    shape, nodes = _by_topology(record, match.old)
    return Named(nodes, operator_ids_of(match.new, shape))


def named_anew(record: SnapshotRecord, match: PlanMatch, like: Snapshot | None) -> Named:
    """Return the operators of a job without a compiled plan, and of one that has it.

    Args:
        record: The snapshot of the old one.
        match: The plans of both.
        like: A snapshot of the new one, which tells the uids of its connectors; None without one.

    Raises:
        IncompatibleError: The snapshot's ids are not those of the old plan's topology.
    """
    shape, nodes = _by_topology(record, match.old)
    named = {
        number: {each: uid_name(match.old, number, name, shape) for each, name in by_id.items()}
        for number, by_id in nodes.items()
    }
    by_id = {} if like is None else {
        each.operator_id: each.uid for each in like.operators
        if each.uid and (each.total_bytes or each.operator_states)
    }  # fmt: skip
    connectors: dict[int, list[str]] = {}
    for operator_id, (number, _) in nodes_by_uid(match.new, by_id)[0].items():
        if match.new.nodes[number].kind == SOURCE:
            connectors.setdefault(number, []).append(by_id[operator_id])
    return Named(
        named, connectors={number: uids[0] for number, uids in connectors.items() if len(uids) == 1}
    )


def _by_topology(record: SnapshotRecord, plan: Plan) -> tuple[Shape, dict[int, dict[str, str]]]:
    """Return the operators of a job without a compiled plan: their shape, and those with state.

    Raises:
        IncompatibleError: The snapshot's ids are not those of the plan's topology.
    """
    stateful = _with_state(record)
    every = [each.operator_id for each in unmanaged_metadata(record).operators]
    keyed = [each.operator_id for each in record.operators if each.states]
    shape = find_shape(plan, stateful, every, keyed)
    if shape is None:
        raise IncompatibleError(
            "the ids of the snapshot's operators do not follow from the old plan",
            place=plan.place,
            remedy="compile the plan of the SQL that the job ran, in the same Flink and with the"
            " same settings; a job that runs a compiled plan has uids: leave out --no-uids",
        )
    nodes: dict[int, dict[str, str]] = {}
    for (node, name), operator_id in operator_ids_of(plan, shape).items():
        if operator_id in stateful:
            nodes.setdefault(node, {})[operator_id] = name
    return shape, nodes


def named_by_uid(record: SnapshotRecord, match: PlanMatch) -> Named:
    """Return the operators of jobs that run compiled plans.

    Raises:
        IncompatibleError: An operator with state is of no node.
    """
    plan = match.old
    names: dict[int, dict[str, str]] = {}
    nodes, others = nodes_by_uid(plan, _with_state(record))
    if others:
        unknown = list(others.values())
        raise IncompatibleError(
            f"{', '.join(unknown[:5])} of the snapshot {'are' if len(unknown) > 1 else 'is'} no"
            f" operator of the old plan",
            place=plan.place,
            remedy="give the plan of the job that took the savepoint. If it ran without a compiled"
            " plan, say --no-uids. A savepoint of Flink 1 has hashes alone: name the uids of its"
            " sources and sinks, --uid 1_orders",
        )
    for operator_id, (node, name) in nodes.items():
        names.setdefault(node, {})[operator_id] = name
    return Named(names)


def with_numbers_of(record: SnapshotRecord, plan: Plan) -> Plan:
    """Return the plan of a snapshot's job, with the numbers that its nodes have there.

    Raises:
        IncompatibleError: They are unknown.
    """
    uids = {each.operator_id: each.uid for each in record.operators}
    return numbered_as(
        plan,
        {each.operator_id: uids.get(each.operator_id) or each.uid
         for each in unmanaged_metadata(record).operators},
    )  # fmt: skip


def liked_operators(like: Snapshot | None, match: PlanMatch, named: Named) -> dict[str, Operator]:
    """Return the operators of a snapshot of the new job, by the ids that those will have.

    Raises:
        IncompatibleError: It is no snapshot of the new job.
    """
    operators = {each.operator_id: each for each in (like.operators if like is not None else ())
             if each.keyed_states}  # fmt: skip
    if not operators or not named.new:
        return operators
    shape = find_shape(match.new, operators)  # its connectors may be others, such as empty tables
    if shape is None:
        raise IncompatibleError(
            "the ids of the operators of --like do not follow from the new plan",
            place=match.new.place, remedy="name a savepoint of the new job, without uids",
        )  # fmt: skip
    ids = operator_ids_of(match.new, shape)
    return {
        operator_id: operators[ids[node]]
        for node, operator_id in named.new.items()
        if ids.get(node) in operators
    }
