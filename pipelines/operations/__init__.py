"""Whole operations that the command and Dagster both run.

`bootstrap` makes the first state of a new job, `migrations` migrates one snapshot and says how it
went, `verified_savepoints` exports a savepoint and proves that it can be restored.
"""
