"""Snapshots, work in progress, and files to delete.

====================  ===============================================================
`catalog`             the lake and its `snapshots` table
`catalog_reader`      a cache of the catalog in one process: reads of an object store are costly
`catalog_rows`        rows of that table: read, replace, change and delete
`lake_format`         the format of a lake: who may read it, and who may write it
`snapshot_names`      `latest`, a date or a prefix, for a snapshot's id
`claims`              the claims of writers in the catalog's log
`attempts`            work in progress, which any writer may take back
`processes`           the process that wrote a claim, and whether it is still running
`unmanaged_state`     state without tables, kept as bytes
`recorded_channels`   in-flight records of a snapshot
`recorded_sources`    sources and sinks of a snapshot, decoded
`recorded_states`     operators and states of a snapshot, read as those of a savepoint
`reading`             consistent reads of snapshots, while others erase and drop
`holds`               snapshots that may not be dropped, and why
`dropping`            drop snapshots, and delete the files that only they needed
`retention`           which snapshots a policy keeps
`run_log`             runs of process functions: planned, prepared and done
`deletions`           delete files that are no longer needed: named in the log, or found by a sweep
====================  ===============================================================

A new column of the catalog is a field of `SnapshotRecord` in `tables/records`, and a lake gets it
when its format is upgraded.
"""
