"""All of Dagster: assets, checks, jobs, schedules, sensors, and what its UI shows.

====================  ===============================================================
`component`           `StateLake`: a lake and its jobs, as `defs.yaml` has them
`settings`            the settings of a job there
`definitions`         the same for one job that the environment names
`state_job`           one job's names, locations and partitions
`known_tables`        its tables, before anything runs
`resources`           the locations of the lake and the savepoints; `savepoints` lists those
`assets`              snapshots, their tables, plans, exports
`checks`              checks of assets
`ops`, `jobs`         work that does not produce an asset
`flink_ops`           work on a job's Flink cluster; `live_job` asks the cluster
`erasure/`            erasures on request: planned, approved, audited
`schedules`           schedules; `sensors`: sensors
`metadata`            metadata in the UI
`history`             a snapshot compared with earlier ones
`requests`            requests as the settings of a run
`progress`            progress in a run's log
====================  ===============================================================

A new asset goes into `assets`, its check into `checks`: functions of a `StateJob`, so that every
job has it.
"""

from statelake.state_core.extras import require_extra

require_extra("dagster")
