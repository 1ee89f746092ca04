"""Flink's state without Flink: bytes, types and rules, in Arrow's terms.

Open a savepoint or checkpoint, and look::

    from state_core import open_snapshot

    snapshot = open_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f")
    table = snapshot.operator("counter").state("count").to_arrow()   # a pyarrow.Table

Write one, of nothing but rows::

    from state_core import NewKeyedState, NewOperator, write_snapshot

    count = NewKeyedState("count", table, value="Long")        # columns key, value
    write_snapshot("savepoint-0", [NewOperator("counter", "String", (count,), parallelism=2)])

===============  ====================================================================
`files/`         bytes and files
`kernels/`       the loops over bytes, compiled
`serializers/`   Flink's serializers
`model/`         what a snapshot is, once it is read
`formats/`       Flink's snapshot formats, read and written
`connectors/`    what sources keep: offsets, positions, splits
`declarations/`  what a job declares of its state
`checks/`        legality, restorability, integrity
`backends/`      working state: heap and RocksDB
`process/`       process functions that run on it
`commit/`        commits of state in two phases (SEP-28)
`bounds`         how much of what a snapshot declares is read
`errors`         the one tree of errors
`printable`      names out of data, as people may read them
`extras`         packages that only some features need
===============  ====================================================================

Nothing here imports Spark or Dagster. Nothing in a snapshot is ever executed: no pickle, no Java
deserialization; a path or a length in it is data to be checked, not a command.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_core.errors import StateError
    from state_core.formats.reader import open_snapshot
    from state_core.formats.writing.new_snapshot import write_snapshot
    from state_core.formats.writing.new_states import NewKeyedState, NewOperator, NewOperatorState
    from state_core.model.handles import KeyGroupRange
    from state_core.model.snapshot import KeyedState, Operator, Snapshot, StateKind

__all__ = [
    "KeyGroupRange",
    "KeyedState",
    "NewKeyedState",
    "NewOperator",
    "NewOperatorState",
    "Operator",
    "Snapshot",
    "StateError",
    "StateKind",
    "open_snapshot",
    "write_snapshot",
]

# imported when first used: every module of this package imports the package, few need all of this
_MODULES = {
    "state_core.errors": ("StateError",),
    "state_core.formats.reader": ("open_snapshot",),
    "state_core.formats.writing.new_snapshot": ("write_snapshot",),
    "state_core.formats.writing.new_states": ("NewKeyedState", "NewOperator", "NewOperatorState"),
    "state_core.model.handles": ("KeyGroupRange",),
    "state_core.model.snapshot": ("KeyedState", "Operator", "Snapshot", "StateKind"),
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
