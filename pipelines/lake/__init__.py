"""The lake: Delta tables of state, and what puts snapshots into it and takes them out.

==============  =====================================================================
`tables/`       one table: names, records, files, rows
`catalog/`      which snapshots there are; work in progress; what is deleted
`query/`        SQL over tables, on DuckDB
`ingest/`       a snapshot into tables
`share/`        a sample of a snapshot, and its values masked
`export/`       tables into a savepoint, at any parallelism
`edit/`         snapshots made of others: committed, edited, purged, merged, migrated
`erase/`        what is asked for goes out of all snapshots, and proof of it
`verify/`       integrity, legality, compatibility, differences
`bootstrap/`    a savepoint of tables that someone has
`keys/`         one key, and what changed of it
`commits/`      what running tasks keep in a lake
==============  =====================================================================

A new operation on snapshots is a module in `edit/`. Nothing here imports Spark or Dagster.
"""
