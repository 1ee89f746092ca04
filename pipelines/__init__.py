"""statelake around the library: the lake, Spark, Dagster and the `statelake` command.

=================  ==================================================================
`lake/`            Delta tables of state
`spark/`           the only place with PySpark
`flink/`           live Flink clusters, by their REST API
`runtime/`         jobs of process functions, run on new input of their sources
`operations/`      whole operations that the command and Dagster both run
`report/`          a snapshot as a page of HTML
`ui/`              pages in the browser, which only read
`orchestration/`   the only place with Dagster
`cli/`             the `statelake` command
`api`              a lake, its jobs and snapshots, for Python programs and all faces
`engine`           where slices of work run: in this process, or on Spark
`java`             the user's Java, and how it is run
`keys`             keys as text, and the state of one key in a savepoint
`times`            the time that an operation spent on what
`shown`            values as text for people, and as JSON
`yaml_lines`       users' YAML, with the lines of its keys
=================  ==================================================================
"""
