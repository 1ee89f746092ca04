"""The state warehouse for stream processors: Flink's snapshots read, archived, changed, written.

Open a savepoint or checkpoint, and look::

    import statelake as sl

    snapshot = sl.open_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f")
    table = snapshot["counter"]["count"].to_arrow()                  # a pyarrow.Table

Write one from rows::

    count = sl.NewKeyedState("count", table, value="Long")     # columns key, value
    sl.write_snapshot("savepoint-0", [sl.NewOperator("counter", "String", (count,), parallelism=2)])

Keep all of them in a lake::

    lake = sl.Lake("/data/lake")
    orders = lake.job("orders")
    orders.import_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f", name="monday")
    table = orders["latest"]["counter"]["count"].to_arrow()

=============  =====================================================================
`state_core`   Flink's state without Flink: bytes, types and rules, in Arrow's terms
`pipelines`    the lake, Spark, Dagster and the `statelake` command
`dagster`      the component for Dagster projects
=============  =====================================================================

Public are the names below, `statelake.dagster`, and what `docs/python.md` lists. All else may
change.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statelake.pipelines.api import Checkpoints, Job, Lake, LakeSnapshot
    from statelake.pipelines.api.functions import (
        bootstrap,
        check_legality,
        check_sql,
        compress,
        diff,
        diff_types,
        growth,
        in_temporary_lake,
        orphans,
        report,
        sql_upgrade,
        upgrade,
        warm,
    )
    from statelake.pipelines.api.savepoints import open_snapshot
    from statelake.pipelines.find.copying import copy_checkpoints, copy_snapshot
    from statelake.pipelines.find.scanning import scan
    from statelake.pipelines.live.canary import drill
    from statelake.pipelines.live.cluster import FlinkCluster
    from statelake.pipelines.live.jars import JarRun
    from statelake.pipelines.sql_jobs.job_types import job_types
    from statelake.pipelines.sql_jobs.sql_scripts import compile_sql, sql_types
    from statelake.state_core.errors import StateError
    from statelake.state_core.formats.reader import Snapshot
    from statelake.state_core.formats.writing.new_snapshot import write_snapshot
    from statelake.state_core.formats.writing.new_states import (
        NewKeyedState,
        NewOperator,
        NewOperatorState,
    )
    from statelake.state_core.integrity import check_snapshot as check_integrity
    from statelake.state_core.integrity import salvage_snapshot as salvage
    from statelake.state_core.model.handles import KeyGroupRange
    from statelake.state_core.model.snapshot import KeyedState, Operator, StateKind

__all__ = [
    "Checkpoints",
    "FlinkCluster",
    "JarRun",
    "Job",
    "KeyGroupRange",
    "KeyedState",
    "Lake",
    "LakeSnapshot",
    "NewKeyedState",
    "NewOperator",
    "NewOperatorState",
    "Operator",
    "Snapshot",
    "StateError",
    "StateKind",
    "bootstrap",
    "check_integrity",
    "check_legality",
    "check_sql",
    "compile_sql",
    "compress",
    "copy_checkpoints",
    "copy_snapshot",
    "diff",
    "diff_types",
    "drill",
    "growth",
    "in_temporary_lake",
    "job_types",
    "open_snapshot",
    "orphans",
    "report",
    "salvage",
    "scan",
    "sql_types",
    "sql_upgrade",
    "upgrade",
    "warm",
    "write_snapshot",
]

# imported when first used: each module of this package imports the package, few need all of this
_MODULES = {
    "pipelines.live.cluster": ("FlinkCluster",),
    "pipelines.live.jars": ("JarRun",),
    "pipelines.live.canary": ("drill",),
    "pipelines.api": ("Checkpoints", "Job", "Lake", "LakeSnapshot"),
    "pipelines.api.functions": (
        "bootstrap", "check_legality", "check_sql", "compress", "diff", "diff_types", "growth",
        "in_temporary_lake", "orphans", "report", "sql_upgrade", "upgrade", "warm",
    ),
    "pipelines.find.copying": ("copy_checkpoints", "copy_snapshot"),
    "pipelines.find.scanning": ("scan",),
    "state_core.integrity": ("check_integrity", "salvage"),
    "pipelines.sql_jobs.job_types": ("job_types",),
    "pipelines.sql_jobs.sql_scripts": ("compile_sql", "sql_types"),
    "state_core.errors": ("StateError",),
    "state_core.formats.reader": ("Snapshot",),
    "state_core.formats.writing.new_snapshot": ("write_snapshot",),
    "state_core.formats.writing.new_states": ("NewKeyedState", "NewOperator", "NewOperatorState"),
    "state_core.model.handles": ("KeyGroupRange",),
    "state_core.model.snapshot": ("KeyedState", "Operator", "StateKind"),
}  # fmt: skip
_LONGER = {"check_integrity": "check_snapshot", "salvage": "salvage_snapshot"}


@cache
def _opener() -> object:
    """Return `open_snapshot` for snapshots with the methods of `SavepointAt`, loaded when used."""
    reader = import_module(f"{__name__}.state_core.formats.reader")
    place = f"{__name__}.pipelines.api.savepoints"
    return reader.placed(lambda: import_module(place).SavepointAt)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), _LONGER.get(name, name))
    if name == "open_snapshot":
        return _opener()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
