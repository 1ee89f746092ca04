"""The neutral model of a snapshot: plain values that depend on no format and no engine.

=================  ==================================================================
`snapshot`         `Snapshot`, `Operator`, and their states: the objects of users
`entries`          entries of files of keyed state, and pieces of these for tasks
`handles`          the handles of `_metadata`, which lead to state
`channels`         channels with records in flight
`key_groups`       hashes, key groups, and their ranges per subtask; from a uid to an operator's id
`redistribution`   the assignment of state to subtasks at another parallelism
`measure`          counts, bytes and fingerprints of entries, by key group
`finding`          where a value is in the state of a snapshot
=================  ==================================================================

A new kind of handle goes into `handles`, and its bytes into `formats/metadata/handle_codec`.
"""
