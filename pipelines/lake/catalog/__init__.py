"""Which snapshots there are, what work is going on, and what may be deleted.

====================  ===============================================================
`catalog`             the lake and its `snapshots` table
`catalog_looks`       what one process has seen of it: in an object store each look costs
`catalog_rows`        rows of that table, read, replaced, changed and left out
`snapshot_names`      `latest`, a date or a prefix, for a snapshot's id
`claims`              what writers say of themselves in the catalog's log
`attempts`            work in progress, which anyone may take back
`processes`           which process says something of itself, and whether it is there
`unmanaged_state`     state without tables, kept as the bytes that it is
`recorded_channels`   records in flight of a snapshot
`recorded_sources`    sources and sinks of a snapshot, decoded
`recorded_states`     operators and states of a snapshot, read as those of a savepoint
`reading`             snapshots read as their records say, whatever happens meanwhile
`holds`               snapshots that may not be dropped, and why
`dropping`            snapshots are dropped, and the bytes that only they needed
`deletions`           files that nobody needs any more: named before, or found by a sweep
====================  ===============================================================

A new column of the catalog is a field of `SnapshotRecord` in `tables/records`.
"""
