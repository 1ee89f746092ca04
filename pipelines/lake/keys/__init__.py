"""Keys in the lake: the state of one key, its changes through snapshots, and the heaviest keys.

==============  =====================================================================
`one_key`       the state of a key in a snapshot
`key_history`   the changes of a key from snapshot to snapshot
`heavy_keys`    the heaviest keys of a snapshot
==============  =====================================================================

Tables are read by `pipelines.lake.tables.key_rows`: only files that may hold the key's key group.
"""
