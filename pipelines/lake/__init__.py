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
`importing`         a snapshot into tables, by `import_slice`; `import_targets`
`exporting`         tables into a savepoint, by `export_slice`
`committing`        edited tables become a snapshot
`editing`           a snapshot changed as a whole; `purging`, `merging`, `operator_changes`
`migrating`         a state's values become others
`rewriting`         what those three rewrite of a table
`bootstrap_spec`    a savepoint of tables; `bootstrap_columns`, `bootstrap_slice`
`dropping`          snapshots go, and the bytes that only they needed
`diffing`           what changed between two
`rescaling`         the plan of a rescale
`integrity`         does the lake hold what the snapshot held
`legality`          is it what a job declares; `compatibility`
`state_backend`     stores of running tasks as tables; `changelog`, `partition_files`
`checkpoint_log`    their checkpoints; `checkpoint_records`, `..._verifying`, `..._migrating`
`commit_measures`   what commits cost
==================  ==============================================================
"""
