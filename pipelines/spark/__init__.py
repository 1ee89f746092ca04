"""Modules that need PySpark.

=================  ==================================================================
`session`          the session, and its settings; `jars` fetches Delta's
`class_archive`    Spark's classes in a file, which shortens its start; `class_archiving` makes it
`engine`           slices of work as Spark tasks; `worker_daemon` starts workers with modules loaded
`packing`          statelake as an archive, for executors without it
`frames`           tables of a lake as data frames
`sql`              SQL over a lake's tables; `object_stores` has Spark open them in S3
`flink_savepoint`  `spark.read.format("flink_savepoint")`
=================  ==================================================================

A further data source is a module beside `flink_savepoint`.
"""

from statelake.state_core.extras import require_extra

require_extra("spark")
