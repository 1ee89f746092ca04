"""The runtime of jobs of process functions: their declarations, state and commits.

===============  ======================================================================
`declarations/`  a job's declarations of its state
`legality/`      whether they are legal, and would restore from a snapshot
`backends/`      working state: heap and RocksDB
`process/`       process functions that run on it
`commit/`        commits of state in two phases (SEP-28)
===============  ======================================================================

`pipelines/runtime/` runs them over new input of their sources.
"""
