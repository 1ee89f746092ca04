"""The lake: Delta tables of state, and what puts snapshots into it and takes them out.

==================  ==============================================================
`catalog`           the lake and its `snapshots` table
`records`           what the catalog knows of a snapshot
`tables`            one Delta table: files, and commits that name them exactly
`units`             how key groups are spread over files
`unit_writer`       rows into files
`table_rows`        files into rows
`names`             where things lie
`storage`           options of remote file systems
`attempts`          notes of work in progress, for recovery
`carrying`          what of a snapshot is not keyed state
`importing`         a snapshot into tables, by `import_slice`
`exporting`         tables into a savepoint, by `export_slice`
`committing`        edited tables become a snapshot
`dropping`          snapshots go, and the bytes that only they needed
`diffing`           what changed between two
`rescaling`         the plan of a rescale
`integrity`         does the lake hold what the snapshot held
==================  ==============================================================
"""
