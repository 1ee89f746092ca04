"""SQL over a lake with DuckDB, an engine within this process.

====================  ===============================================================
`table_names`         the table named by `<job>.<operator>.<state>`, for every engine
`table_datasets`      a table's files as a dataset, opened without leaving the lake
`catalog_tables`      `statelake.snapshots` and the other tables of the catalog
`session`             queries on a confined DuckDB, and its errors as statelake's
`limits`              what a query may take, and the watch that ends one
`literals`            the literals of a statement, and the statement without them
`statements`          DELETE, UPDATE and INSERT over some rows of a table
====================  ===============================================================

A new table of the catalog is a function in `catalog_tables`.
"""
