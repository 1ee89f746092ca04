"""What a snapshot is, once it is read: plain values that no format and no engine knows.

=================  ==================================================================
`snapshot`         `Snapshot`, `Operator`, `KeyedState`: what users work with
`operator_state`   operator state: state without a key
`handles`          where state lies: the handles of `_metadata`
`channels`         channels with records in flight
`key_groups`       hashes, key groups, and their ranges per subtask
`operator_ids`     from a uid to an operator's id
`redistribution`   which subtask gets what at another parallelism
`pieces`           entries of a file that follow on each other, for one task
`measure`          counts, bytes and fingerprints of entries, by key group
`description`      what a snapshot holds, as one value that every face prints
`showing`          lines and tables of all that, as text and HTML
=================  ==================================================================

A new kind of handle goes into `handles`, and its bytes into `formats/metadata/handle_codec`.
"""
