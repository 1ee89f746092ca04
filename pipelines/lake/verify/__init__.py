"""Checks of a lake's snapshots, and differences between two of them.

====================  ===============================================================
`integrity`           compare the lake with the snapshot, and with its catalog
`lake_checking`       compare every byte of a lake with digests
`legality`            compare the snapshot with the declarations of a job
`compatibility`       check that a job with other types would restore it
`diffing`             compare two snapshots
`verified_savepoints` export savepoints, restore them as a test, and prune the old ones
====================  ===============================================================

A new rule goes into `state_core/runtime/legality`; here it is applied to a lake.
"""
