"""Flink's snapshot formats: open one, and write one.

==================  ================================================================
`metadata/`         the `_metadata` file, versions 2 to 6, and the files that it names
`layout/`           the layout of a state's entries in any file
`keyed/`            files of keyed state: unified, heap, RocksDB, changelog, timers
`operator_state/`   files of operator state
`writing/`          writers of savepoints
`rewriting/`        conversions of savepoints and values
`contradictions`    contradictions within `_metadata`
`channels`          records in flight, of unaligned checkpoints
`key_weights`       the heaviest keys
`description`       what a snapshot holds, as one value that every face prints; `describing` counts
`expiring`          what of its state has expired
`printed_rows`        what is printed of values that no column holds
`contents`          what texts and bytes hold, as users say
`reader`            `open_snapshot`, the entry point of reading, and the `Snapshot` of users
==================  ================================================================

A new checkpoint format is a folder in `keyed/` and a line in `keyed/keyed_files`; a new version of
`_metadata` a row in `metadata/checkpoint_metadata`.
"""
