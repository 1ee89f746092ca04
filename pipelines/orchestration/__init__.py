"""All of Dagster: assets, checks, jobs, schedules, sensors, and what its UI shows.

====================  ===============================================================
`component`           `StateLake`: a lake and its jobs, as `defs.yaml` has them
`settings`            what may be said of a job there
`definitions`         the same for one job that the environment names
`state_job`           one job's names, places and partitions
`known_tables`        which tables it has, before anything runs
`resources`           where the lake and the savepoints are; `savepoints` finds those
`assets`              snapshots, their tables, plans, exports
`checks`              checks of assets
`ops`, `jobs`         work that is no asset
`flink_ops`           work on the cluster that a job runs on; `live_job` asks that
`erasure/`            what people ask to be erased: planned, approved, audited
`schedules`           when; `sensors` on what
`metadata`            what the UI shows
`history`             a snapshot beside those before it
`progress`            how far long work is, in a run's log
====================  ===============================================================

A new asset goes into `assets`, its check into `checks`: functions of a `StateJob`, so that every
job has it.
"""

from statelake.state_core.extras import require_extra

require_extra("dagster")
