"""A savepoint of tables that someone has.

====================  ===============================================================
`bootstrap_spec`      the file that says which table becomes which state
`sources`             Parquet, Delta, CSV and JSON lines, read in pieces
`bootstrap_columns`   their columns as a state's
`bootstrap_slice`     one slice's work
====================  ===============================================================

A new format of input is a class in `sources`.
"""
