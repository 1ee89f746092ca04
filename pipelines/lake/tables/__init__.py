"""One table of the lake: its name, its files, its rows.

====================  ===============================================================
`names`               where each table lies, and ids of snapshots
`records`             what the catalog knows of a snapshot, by the rules of `record_rules`
`tables`              a Delta table, and commits that name its files exactly
`delta_commit`        new versions of tables: entries of their logs
`table_log`           where delta-rs finds a table's log, whatever is put in its way
`parquet_bounds`      what a file may unpack to, and files that are as long as that needs
`units`               how key groups are spread over files
`unit_writer`         rows into files
`joined_files`        several files made one, by their footers (`thrift_compact`)
`table_rows`          files into rows; `key_rows`, those of one key
`operator_tables`     tables of operator state
`describing`          what a snapshot holds, as `Snapshot.describe` says it of a savepoint
====================  ===============================================================

A new kind of table gets its name in `names` and its record in `records`.
"""
