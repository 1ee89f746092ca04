"""Create a savepoint from tables.

====================  ===============================================================
`bootstrapping`       the whole of it; Spark reads what only Spark can
`bootstrap_spec`      the file that maps tables to states
`sources`             Parquet, Delta, CSV and JSON lines, read in pieces
`bootstrap_columns`   their columns as a state's
`bootstrap_slice`     one slice's work
====================  ===============================================================

A new format of input is a class in `sources`.
"""
