"""SQL over a lake on DuckDB, an engine within this process.

====================  ===============================================================
`table_names`         what `<job>.<operator>.<state>` stands for, for every engine
`table_datasets`      a table's files as a dataset, opened without leaving the lake
`catalog_tables`      `statelake.snapshots` and its likes
`session`             queries, and how DuckDB is confined and its errors are told
`key_group_function`  `key_group(key, max_parallelism)` in SQL
`literals`            what a statement says of values, and the statement without it
`statements`          DELETE, UPDATE and INSERT over some rows of a table
====================  ===============================================================

A new table of the catalog is a function in `catalog_tables`.
"""
