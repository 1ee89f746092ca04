"""Stores of a task on its disk, and their recovery after a crash.

=====================  ==============================================================
`stores`               key-value stores with local checkpoints
`task_stores`          all stores of a task, their directories and markers
`local_disk`           names and removal of directories
`durable_writing`      durable writing of whole files
=====================  ==============================================================

A new kind of store implements `KeyValueStore` in `stores`.
"""
