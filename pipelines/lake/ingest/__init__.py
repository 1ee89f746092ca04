"""A snapshot into tables.

====================  ===============================================================
`importing`           plans the work, and commits every table; the catalog's row comes last
`import_slice`        one slice's work
`import_targets`      which table a state goes to, and what the snapshot before has of it
====================  ===============================================================

How rows become files is `tables/unit_writer`.
"""
