"""A snapshot into tables.

====================  ===============================================================
`importing`           plans the work, and commits every table; the catalog's row comes last
`import_slice`        one slice's work
`large_slices`        the same for one that is too large for one task, by several
`slice_sizes`         which is
`import_targets`      which table a state goes to, and what the snapshot before has of it
====================  ===============================================================

How rows become files is `tables/unit_writer`.
"""
