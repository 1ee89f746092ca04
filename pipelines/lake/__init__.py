"""The lake: Delta tables of state, and what puts snapshots into it and takes them out.

==============  =====================================================================
`tables/`       one table: names, records, files, rows
`catalog/`      which snapshots there are; work in progress; what is deleted
`query/`        SQL over tables, on DuckDB
`ingest/`       a snapshot into tables
`share/`        a sample of a snapshot, and its values masked
`export/`       tables into a savepoint, at any parallelism
`edit/`         snapshots made of others: committed, edited, purged, merged
`change/`       snapshots whose values, types or queries change
`erase/`        what is asked for goes out of all snapshots, and proof of it
`verify/`       integrity, legality, compatibility, differences
`keys/`         one key, and what changed of it
==============  =====================================================================

A new operation on rows is a module in `edit/`, and one on types or queries in `change/`. Nothing
here imports Spark or Dagster.
"""
