"""A lake in Python: the lake, its jobs, their snapshots. What the command can, these can.

::

    import statelake as sl

    lake = sl.Lake("s3://bucket/lake", storage_options={"AWS_REGION": "eu-central-1"})
    orders = lake.job("orders")
    orders.import_snapshot("savepoint-5f1e2c-0a1b2c3d4e5f", name="monday")
    orders["latest"]["kinds"]["total"].to_arrow()
    orders["monday"].export("savepoints/wide", parallelism=12)

=============  =====================================================================
`lake`         `Lake`: its jobs, SQL, erasures, its upkeep
`jobs`         `Job`: imports, runs, growth, retention
`snapshots`    `LakeSnapshot`: reads, diffs, changes, exports
`editor`       `SnapshotEditor`: changes of a snapshot, made at once
`plans`        `Erasure` and `LiveRescale`: planned, then executed
`checkpoints`  `Checkpoints`: those of running tasks
`functions`    functions of savepoints, without a lake
`savepoints`   `SavepointAt`: those of one savepoint, and what a temporary lake gives it
=============  =====================================================================

Methods and parameters are called as the command's words are. A snapshot is named as on the command
line: by its id, `latest`, `latest~1`, a date, or the beginning of its id; to be dropped, erased
from, held, released or committed, by its whole id alone. Each raises a `StateError` that says what
is wrong and what to do, and leaves the lake as it was.
"""

import statelake as sl
from statelake.pipelines.api.checkpoints import Checkpoints
from statelake.pipelines.api.editor import SnapshotEditor
from statelake.pipelines.api.jobs import Job
from statelake.pipelines.api.lake import Lake
from statelake.pipelines.api.plans import Erasure, LiveRescale
from statelake.pipelines.api.snapshots import LakeSnapshot

__all__ = [
    "Checkpoints",
    "Erasure",
    "Job",
    "Lake",
    "LakeSnapshot",
    "LiveRescale",
    "SnapshotEditor",
]


def __getattr__(name: str) -> object:
    if name in sl.__all__:  # functions of savepoints: their modules are loaded when they are used
        return getattr(sl, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
