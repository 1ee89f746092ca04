"""Declarations of state, made before it is used: kinds, types, builders, and jobs.

==================  ===============================================================
`states`            the six kinds of declarations
`type_descriptors`  their types, from text or from Python's hints
`functions`         functions of reducing and aggregating states, by name
`builders`          `StateDeclarations`: their builders
`jobs`              operators with their inputs and states, which `legality` checks
`json_forms`        all of it as JSON, and back
`findings`          violations of rules, with their place
==================  ===============================================================

Spec: FLIP-433, "State Access on DataStream API V2".
"""

from statelake.state_core.runtime.declarations.builders import StateDeclarations
from statelake.state_core.runtime.declarations.functions import AggregateFunction, FunctionReference
from statelake.state_core.runtime.declarations.jobs import (
    InputSide,
    JobDeclaration,
    OperatorDeclaration,
    StreamKind,
    declare_operator,
)
from statelake.state_core.runtime.declarations.json_forms import from_json, job_from_json, to_json
from statelake.state_core.runtime.declarations.states import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    ReducingStateDeclaration,
    StateDeclaration,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueStateDeclaration,
)
from statelake.state_core.runtime.declarations.type_descriptors import TypeDescriptor

__all__ = [
    "AggregateFunction",
    "AggregatingStateDeclaration",
    "BroadcastStateDeclaration",
    "FunctionReference",
    "InputSide",
    "JobDeclaration",
    "ListStateDeclaration",
    "MapStateDeclaration",
    "OperatorDeclaration",
    "RedistributionMode",
    "RedistributionStrategy",
    "ReducingStateDeclaration",
    "StateDeclaration",
    "StateDeclarations",
    "StateTtlConfig",
    "StateVisibility",
    "StreamKind",
    "TypeDescriptor",
    "UpdateType",
    "ValueStateDeclaration",
    "declare_operator",
    "from_json",
    "job_from_json",
    "to_json",
]
