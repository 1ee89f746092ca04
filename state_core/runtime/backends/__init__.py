"""State backends: the working keyed state and operator state of a subtask.

==================  ================================================================
`states/`           value, list, map, reducing and aggregating state, timers, time to live
`backend`           `KeyedStateBackend`: the keyed state of one subtask
`heap`              working state in memory, snapshots by reference
`rocksdb`           working state in RocksDB
`batches`           many keys at once, as Arrow columns
`restoring`         restore from handles of any kind, rescaled or not
==================  ================================================================

Another backend is a module beside `heap`: a `Storage` of `states/registry`.

Spec: FLIP-41.
"""

from statelake.state_core.runtime.backends.backend import KeyedStateBackend
from statelake.state_core.runtime.backends.heap import heap_backend
from statelake.state_core.runtime.backends.restoring import restore_backend
from statelake.state_core.runtime.backends.rocksdb import rocksdb_backend
from statelake.state_core.runtime.backends.states.configuration import BackendConfiguration
from statelake.state_core.runtime.backends.states.descriptors import StateDescriptor
from statelake.state_core.runtime.backends.states.operator_state import (
    OperatorStateBackend,
    assign_operator_state,
)
from statelake.state_core.runtime.backends.states.snapshots import SnapshotTask
from statelake.state_core.runtime.backends.states.timers import InternalTimerService, Timer

__all__ = [
    "BackendConfiguration",
    "InternalTimerService",
    "KeyedStateBackend",
    "OperatorStateBackend",
    "SnapshotTask",
    "StateDescriptor",
    "Timer",
    "assign_operator_state",
    "heap_backend",
    "restore_backend",
    "rocksdb_backend",
]
