"""Keyed state in five formats: what a handle names decides which one is read.

======================  =============================================================
`keyed_files`           opens the file of any handle, strictly or as far as possible
`headed_file`           the common base of all of them
`unified_file`          the unified format of canonical savepoints, which all backends restore
`heap/`                 the heap backend's own format
`rocksdb/`              RocksDB's own files
`changelog/`            a materialized snapshot with the changes since
`raw_timers`            timers on the heap beside RocksDB
======================  =============================================================

A new checkpoint format is a module or a folder here, and a line in `keyed_files`.
"""
