"""Process functions, which use declared state, record by record or a key group at a time.

==================  ================================================================
`functions`         the classes that users extend: one input, two inputs, two outputs, batches
`contexts`          the contexts of a function's calls: state, timers, the current key
`state_access`      `StateManager`: declared states, as far as FLIP-433 allows each side
`located_keys`      keys of a column, with their groups and bytes
`operators`         one subtask of an operator, with its function, its state, and that of batches
`jobs`              sources, streams, operators and sinks, checked when they are built
==================  ================================================================

Spec: FLIP-433, "State Access on DataStream API V2".
"""

from statelake.state_core.runtime.process.contexts import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    RuntimeContext,
)
from statelake.state_core.runtime.process.functions import (
    OneInputBatchProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from statelake.state_core.runtime.process.jobs import StreamJob
from statelake.state_core.runtime.process.operators import Backends, ProcessOperator
from statelake.state_core.runtime.process.state_access import StateManager

__all__ = [
    "Backends",
    "Collector",
    "NonPartitionedContext",
    "OneInputBatchProcessFunction",
    "OneInputStreamProcessFunction",
    "PartitionedContext",
    "ProcessFunction",
    "ProcessOperator",
    "RuntimeContext",
    "StateManager",
    "StreamJob",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputStreamProcessFunction",
]
