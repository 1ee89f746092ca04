"""Rows go out of all snapshots of a job, with the bytes that held them; and proof of it.

====================  ===============================================================
`requests`            what is to go: keys, and predicates over single states
`matching`            the transforms by which it goes
`planning`            where it is found, in files that snapshots share
`refusals`            what stands against it
`erasing`             the steps
`log_rewriting`       Delta logs in which every version names the new files
`own_versions`        versions for snapshots that were named, where others keep the files
`task_state`          what runs and tasks keep beside snapshots
`pair_tables`         their tables of keys and values as bytes
`opaque_state`        what has no tables, and can't be searched by its structure
`audit_records`       a table of what was erased and audited, each row sealed by a hash
`needles`             a key in every form in which it may stand in bytes
`searching`           bytes searched for needles: as they are, and what they unpack to
`parquet_pages`       the pages of a Parquet file, unpacked
`auditing`            every byte below a lake, searched
====================  ===============================================================
"""
