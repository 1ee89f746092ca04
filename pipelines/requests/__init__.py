"""The requests to a lake, a job or a snapshot: one frozen struct for each operation.

=============  =====================================================================
`request`      `Request`: fields with a type, a default, a placeholder and help
`shared`       fields that several requests have
`changes`      snapshots with new types, for Flink 2, or for a changed query
`savepoints`   savepoints that are written
`bootstrap`    the first savepoint of a new job
`find`         snapshots below a directory: a scan, copies
`reading`      what a snapshot holds, of which key, what differs, what grows, pages
`edit`         changes of a snapshot as a whole
`erase`        erasures
`checkpoints`  logs of the checkpoints of running tasks
`imports`      imports of savepoints and checkpoints
`runs`         runs of jobs of process functions
`checks`       checks before a deploy
`arguments`    requests as arguments of tools, and as settings of Dagster
=============  =====================================================================

From a struct's fields follow the options of its command, the keywords of its method and their
documentation, and its settings in Dagster. An option is added here, and nowhere else.
"""
