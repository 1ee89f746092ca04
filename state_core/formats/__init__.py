"""Flink's snapshot formats: open one, and write one.

==================  ================================================================
`metadata/`         the `_metadata` file, versions 2 to 6, and the files that it names
`layout/`           how a state's entries are laid out, whatever the file
`keyed/`            files of keyed state: unified, heap, RocksDB
`operator_state/`   files of operator state
`writing/`          savepoints written
`rewriting/`        savepoints and values made into others
`contradictions`    what a snapshot says of itself that can't all be true
`channels`          records in flight, of unaligned checkpoints
`key_weights`       which keys are heavy
`reader`            `open_snapshot`: where reading begins
==================  ================================================================

A new checkpoint format is a reader in `keyed/` and a line in `keyed/keyed_files`; a new version of
`_metadata` a row in `metadata/checkpoint_metadata`.
"""

from statelake.state_core.formats.reader import open_snapshot

__all__ = ["open_snapshot"]
