"""State in memory: tables that copy on write, and their checkpoints.

`heap_backend` is the backend, `tables` its tables, `checkpoints` Flink's heap format.
"""
