"""Keys in the lake: the changes of one key through snapshots, and the heaviest keys.

==============  =====================================================================
`key_history`   the changes of a key from snapshot to snapshot
`heavy_keys`    the heaviest keys of a snapshot
==============  =====================================================================

Tables are read by `pipelines.lake.tables.key_rows`: only files that may hold the key's key group.
"""
