"""A table of the lake: its name, its files, its rows.

====================  ===============================================================
`names`               paths of tables, and ids of snapshots
`records`             the catalog's records of a snapshot, by the rules of `record_rules`
`tables`              a Delta table, and commits that name its files exactly
`delta_commit`        new versions of tables: entries of their logs
`table_log`           the log of a table for delta-rs, safe from links and oversized files
`log_entries`         the entries of logs, with digests
`parquet_seals`       digests of whole files, in their footers
`parquet_bounds`      bounds on the unpacked size of a file, and files that keep them
`file_spans`          the distribution of key groups over files
`data_files`          rows into files
`thrift_compact`      the heads of Parquet's pages
`table_rows`          files into rows; `key_rows`, those of one key
`operator_tables`     tables of operator state
`describing`          what a snapshot holds, as `Snapshot.describe` says it of a savepoint
====================  ===============================================================

A new kind of table gets its name in `names` and its record in `records`.
"""
