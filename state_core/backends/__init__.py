"""Working state: keyed state backends, and the operator state of a subtask.

==================  ================================================================
`backend`           `KeyedStateBackend`: what an operator asks for state
`heap`              working state in memory, snapshots by reference
`rocksdb`           working state in RocksDB, checkpoints of its files
`descriptors`       what a state is asked for by
`states`, `ttl`     value, list, map, reducing and aggregating state; time to live
`expiry`            removing what has expired and nobody meets
`timers`            timers and their queues
`batches`           many keys at once, as Arrow columns
`snapshots`         strategies, resources, and the asynchronous part
`savepoints`        the unified format, of every backend
`restoring`         from handles of any kind, rescaled or not
`operator_state`    list, union and broadcast state of a subtask
==================  ================================================================

Spec: FLIP-41.
"""

from state_core.backends.backend import KeyedStateBackend
from state_core.backends.heap.heap_backend import heap_backend
from state_core.backends.restoring import restore_backend
from state_core.backends.rocksdb.rocksdb_backend import rocksdb_backend
from state_core.backends.states.configuration import BackendConfiguration
from state_core.backends.states.descriptors import StateDescriptor, TimeToLive
from state_core.backends.states.operator_state import OperatorStateBackend, assign_operator_state
from state_core.backends.states.snapshots import SnapshotTarget, SnapshotTask
from state_core.backends.states.timers import InternalTimerService, Timer

__all__ = [
    "BackendConfiguration",
    "InternalTimerService",
    "KeyedStateBackend",
    "OperatorStateBackend",
    "SnapshotTarget",
    "SnapshotTask",
    "StateDescriptor",
    "TimeToLive",
    "Timer",
    "assign_operator_state",
    "heap_backend",
    "restore_backend",
    "rocksdb_backend",
]
