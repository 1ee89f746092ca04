"""Stores of a task on its disk, and how they survive a crash.

=====================  ==============================================================
`stores`               key-value stores with local checkpoints
`rocksdb_store`        one on RocksDB
`task_stores`          all stores of a task, their directories and markers
`local_disk`           names and removal of directories
`durable_writing`      files that are whole after a crash
=====================  ==============================================================

A new kind of store implements `Store` in `stores`.
"""
