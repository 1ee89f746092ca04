"""Declarations of the jobs that left the golden savepoints, and one that could not have."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from statelake.state_core.runtime.declarations import (
    JobDeclaration,
    ListStateDeclaration,
    RedistributionStrategy,
    StateDeclarations,
    StreamKind,
    declare_operator,
)

__all__ = ["ILLEGAL", "KINDS", "OPERATORS", "RENAMED", "given", "not_a_job"]

_OF = StateDeclarations


def _moving(name: str, type_: str, strategy: RedistributionStrategy) -> ListStateDeclaration:
    return _OF.list_state_builder(name, type_).redistribute_by(strategy).build()


KINDS = JobDeclaration(
    "kinds",
    (
        declare_operator(
            "kinds",
            "Kinds",
            StreamKind.KEYED,
            [
                _OF.reducing_state("total", "Long", "operator:add"),
                _OF.aggregating_state("avg", "acme:Average", "Tuple2<Long, Long>"),
                _OF.value_state("triple", "Tuple3<Integer, String, Boolean>"),
                _OF.map_state("scores", "String", "Double"),
                _OF.value_state_builder("session", "String")
                .with_state_ttl(timedelta(hours=1))
                .build(),
                _OF.value_state("name", "String"),
                _OF.value_state("row", "Row<Long, String, Double>"),
                _OF.list_state("items", "Integer"),
            ],
            key="Long",
            parallelism=4,
        ),
    ),
)
OPERATORS = JobDeclaration(
    "operator",
    (
        declare_operator(
            "opstate",
            "Opstate",
            StreamKind.NON_KEYED,
            [
                _moving("offsets", "Tuple2<String, Integer>", RedistributionStrategy.SPLIT),
                _moving("split", "Long", RedistributionStrategy.SPLIT),
                _moving("union", "String", RedistributionStrategy.UNION),
            ],
        ),
        declare_operator(
            "rules",
            "Rules",
            [StreamKind.BROADCAST, StreamKind.NON_KEYED],
            [_OF.broadcast_state("rules", str, "int")],
        ),
    ),
)
RENAMED = JobDeclaration(
    "kinds",
    tuple(
        replace(operator, key_type=None, states=operator.states[1:]) for operator in KINDS.operators
    ),
)
ILLEGAL = JobDeclaration(
    "kinds",
    tuple(replace(operator, inputs=(StreamKind.NON_KEYED,)) for operator in KINDS.operators),
)


def given() -> JobDeclaration:
    """A function that declares a job."""
    return KINDS


def not_a_job() -> int:
    """A function that does not."""
    return 1 // 0
