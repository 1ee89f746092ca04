"""Keys in the lake: what is held for one, now and through a job's snapshots, and the heavy ones.

==============  =====================================================================
`one_key`       all that a snapshot holds for a key
`key_history`   what changed of a key from snapshot to snapshot
`heavy_keys`    which keys of a snapshot are heavy
==============  =====================================================================

Files of tables are read by `pipelines.lake.tables.key_rows`, in which only those matter that may
hold the key's key group.
"""
