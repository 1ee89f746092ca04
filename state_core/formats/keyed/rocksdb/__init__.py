"""RocksDB's own files.

=====================  =======================================================
`rocksdb_native`       the files of one handle
`rocksdb_tables`       tables of a column family, merged
`rocksdb_iterators`    column families with rare features, read by RocksDB
`rocksdb_cuts`         the files in pieces, within key groups too
`sst_file`             one SST table
`sst_blocks`           the blocks of a table
=====================  =======================================================
"""
