"""Files of keyed state: the unified format, the heap's, RocksDB's, and logs of changes.

========================  ===========================================================
`keyed_files`             opens whichever of them a handle names
`unified`                 the unified format (canonical savepoints)
`heap_native`             the heap backend's own
`heap_recovery`           where values end that only their class could walk
`entry_walking`           entries without lengths, walked value by value
`rocksdb_native`          RocksDB's files; `rocksdb_tables` merges, `rocksdb_iterators` orders
`rocksdb_cuts`            where RocksDB's files can be divided, within key groups too
`sst_file`                one SST table, and its blocks: `sst_blocks`
`raw_timers`              timers on the heap beside RocksDB
`changelog`               what was materialized, with the changes made since
`change_log`              one subtask's log, in `change_files`
`change_replay`           changes made to the entries they touch, in `change_tables`
`headed_file`             what all of them share
========================  ===========================================================

A new checkpoint format is a reader here, and a line in `keyed_files`.
"""
