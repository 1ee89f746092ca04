"""Import of a snapshot into tables.

====================  ===============================================================
`importing`           plans the work, and commits every table; the catalog's row comes last
`import_slice`        one slice's work
`unchanged_slices`    slices whose bytes are those of the import before
`joined_files`        small files of several slices, which become one
`large_slices`        the same for a slice that is too large for one task, by several tasks
`large_slice_tasks`   the work of these tasks
`import_targets`      the tables of an import, and their files in the previous snapshot
====================  ===============================================================

How rows become files is `tables/data_files`.
"""
