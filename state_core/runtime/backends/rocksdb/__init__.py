"""State in RocksDB: a column family for each state, and incremental checkpoints.

`rocksdb_backend` is the backend, `tables` its column families, `checkpoints` their files.
"""
