"""Is the lake what it should be, and what is different between two snapshots.

====================  ===============================================================
`integrity`           does the lake hold what the snapshot held
`legality`            is the snapshot what a job declares
`compatibility`       would a job with other types restore it
`diffing`             what changed between two snapshots; `operator_diffing`: in
                      operator state
====================  ===============================================================

A new check before a deploy goes into `state_core/checks`; here it is asked of a lake.
"""
