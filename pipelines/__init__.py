"""statelake around the library: the lake, Spark, Dagster and the `statelake` command.

=================  ==================================================================
`lake/`            Delta tables of state
`spark/`           the only place with PySpark
`flink/`           live Flink clusters, by their REST API
`runtime/`         jobs of process functions, run on what their sources got
`operations/`      whole operations that the command and Dagster both run
`report/`          a snapshot as a page of HTML
`orchestration/`   the only place with Dagster
`cli/`             the `statelake` command
`api`              a lake, its jobs and snapshots, for Python programs and all faces
`engine`           where slices of work run: in this process, or on Spark
`keys`             keys as people write them, and what a savepoint holds for one
`times`            where the time of an operation went
`shown`            values as people, and JSON, read them
`yaml_lines`       YAML of users, with the lines that its keys are on
=================  ==================================================================
"""
