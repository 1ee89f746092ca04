"""Which snapshots there are, what work is going on, and what may be deleted.

====================  ===============================================================
`catalog`             the lake and its `snapshots` table
`catalog_looks`       what one process has seen of it: in an object store each look costs
`catalog_rows`        rows of that table, read, replaced, changed and left out
`snapshot_names`      `latest`, a date or a prefix, for a snapshot's id
`attempts`            notes of work in progress, for recovery after a crash
`unmanaged_state`     state without tables, kept as the bytes that it is
`recorded_channels`   records in flight of a snapshot
`recorded_sources`    sources and sinks of a snapshot, decoded
`holds`               snapshots that may not be dropped, and why
`dropping`            snapshots go, and the bytes that only they needed
====================  ===============================================================

A new column of the catalog is a field of `SnapshotRecord` in `tables/records`.
"""
