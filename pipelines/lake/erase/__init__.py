"""Erasure of rows from all snapshots of a job, with the bytes that held them, and its proof.

====================  ===============================================================
`requests`            what to erase: keys, and predicates over single states
`matching`            the transforms that delete rows
`planning`            the search for rows, in files that snapshots share
`refusals`            the reasons to refuse a plan
`erasing`             the steps of an erasure
`log_rewriting`       Delta logs in which every version names the new files
`own_versions`        table versions for named snapshots, while others keep the files
`task_state`          state of runs and tasks outside of snapshots
`opaque_state`        state without tables, which can't be searched by its structure
`audit_records`       a table of erasures and audits, each record sealed by a hash
`needles`             a key in every form in which bytes may hold it
`searching`           search of bytes for needles: as stored, and unpacked
`parquet_pages`       the pages of a Parquet file, unpacked
`auditing`            search of every byte below a lake
====================  ===============================================================
"""
