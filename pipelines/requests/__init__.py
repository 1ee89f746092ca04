"""What can be asked of a lake, a job or a snapshot: one frozen struct for each operation.

============  =========================================================================
`request`     `Request`: fields with a type, a default, a placeholder and help
`changes`     snapshots with new types, for Flink 2, or for a changed query
`imports`     imports of savepoints and checkpoints
`runs`        runs of jobs of process functions
`shared`      fields that several have
============  =========================================================================

From a struct's fields follow the options of its command, the keywords of its method and their
documentation, and its settings in Dagster. An option is added here, and nowhere else.
"""
