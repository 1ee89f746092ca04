"""All of Dagster: assets, checks, jobs, schedules, sensors, and what its UI shows.

====================  ===============================================================
`definitions`         everything, wired together
`resources`           where the lake and the savepoints are
`partitions`          a partition a snapshot
`assets`              snapshots, plans, exports
`checks`              checks of assets
`ops`, `jobs`         work that is no asset
`schedules`           when; `sensors` on what
`metadata`            what the UI shows; `pictures` draws
====================  ===============================================================

A new asset goes into `assets`, its check into `checks`.
"""

from state_core.extras import require_extra

require_extra("dagster")
