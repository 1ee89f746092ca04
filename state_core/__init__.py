"""Flink's state without Flink: bytes, types and rules, in Arrow's terms.

Open a savepoint or checkpoint, and look::

    from state_core import open_snapshot

    snapshot = open_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f")
    table = snapshot.operator("counter").state("count").to_arrow()   # a pyarrow.Table

Nothing here imports Spark or Dagster. Nothing in a snapshot is ever executed: no pickle, no Java
deserialization; a path or a length in it is data to be checked, not a command.
"""

from state_core.errors import StateError
from state_core.formats.reader import open_snapshot
from state_core.handles import KeyGroupRange
from state_core.snapshot import KeyedState, Operator, Snapshot, StateKind

__all__ = [
    "KeyGroupRange",
    "KeyedState",
    "Operator",
    "Snapshot",
    "StateError",
    "StateKind",
    "open_snapshot",
]
