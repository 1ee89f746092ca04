"""Flink's state without Flink: bytes, types and rules, in Arrow's terms.

===============  ====================================================================
`files/`         bytes and files
`kernels/`       the loops over bytes, compiled
`serializers/`   Flink's serializers
`model/`         the content of a snapshot
`formats/`       Flink's snapshot formats, read and written
`connectors/`    state of sources: offsets, positions, splits
`plans/`         compiled plans of Flink SQL: what their state means
`integrity/`     the check of a snapshot for damage, and its salvage
`runtime/`       jobs of process functions: declarations, legality, working state, commits
`bounds`         how much of what a snapshot declares is read
`nested`         the one walk over nested types and columns of Arrow, and names of columns
`errors`         the one tree of errors
`printable`      tables, and names out of data, escaped for display
`extras`         packages that only some features need
===============  ====================================================================

Nothing here imports Spark or Dagster. Nothing in a snapshot is ever executed: no pickle, no Java
deserialization; a path or a length in it is data to be checked, not a command.
"""
