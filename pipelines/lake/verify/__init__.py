"""Checks of a lake's snapshots, and differences between two of them.

====================  ===============================================================
`integrity`           compare the lake with the snapshot, and with its catalog
`lake_checking`       compare every byte of a lake with digests
`legality`            compare the snapshot with the declarations of a job
`compatibility`       check that a job with other types would restore it
`diffing`             compare two snapshots; `operator_diffing`: their operator
                      state
====================  ===============================================================

A new check before a deploy goes into `state_core/checks`; here it is applied to a lake.
"""
