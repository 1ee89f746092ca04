"""statelake around the library: the lake, Spark, Dagster and the `statelake` command.

=================  ==================================================================
`lake/`            Delta tables of state
`spark/`           the only place with PySpark
`runtime/`         jobs of process functions, run on new input of their sources
`requests/`        what can be asked: one struct for each operation
`bootstrap/`       the first state of a job, from tables
`find/`            snapshots below a directory: found, copied, their orphans, their growth
`sql_jobs/`        jobs that real Flink compiles or starts here: plans, types, upgrades of SQL
`live/`            live Flink clusters, and what is done to their jobs
`report/`          a snapshot as a page of HTML
`ui/`              pages in the browser, which only read
`orchestration/`   the only place with Dagster
`cli/`             the `statelake` command
`api`              a lake, its jobs and snapshots, for Python programs and all faces
`engine`           where slices of work run: in this process, or elsewhere
`engine_choice`    that engine or Spark, by name or as configured
`java`             the user's Java, and how it is run
`keys`             keys as text, and the state of one key in a savepoint
`times`            the time that an operation spent on what
`shown`            values as text for people, and as JSON
`yaml_lines`       users' YAML, with the lines of its keys
=================  ==================================================================
"""
