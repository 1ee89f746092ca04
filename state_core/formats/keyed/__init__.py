"""Files of keyed state: the unified format, the heap's, RocksDB's, and logs of changes.

========================  ===========================================================
`keyed_files`             opens the file of any handle
`unified`                 the unified format (canonical savepoints)
`heap_native`             the heap backend's own format
`heap_recovery`           ends of values whose class alone could walk them
`entry_walking`           entries without lengths, walked value by value
`rocksdb_native`          RocksDB's files; `rocksdb_tables` merges, `rocksdb_iterators` orders
`rocksdb_cuts`            divides RocksDB's files, within key groups too
`sst_file`                one SST table, and its blocks: `sst_blocks`
`raw_timers`              timers on the heap beside RocksDB
`changelog`               a materialized snapshot with its changes
`change_log`              one subtask's log, in `change_files`
`change_replay`           changes applied to their entries, in `change_tables`
`headed_file`             the common base of all of them
========================  ===========================================================

A new checkpoint format is a reader here, and a line in `keyed_files`.
"""
