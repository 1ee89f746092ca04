"""Flink's snapshot formats: open one, and write one.

=================  =================================================================
`metadata`         the `_metadata` file, versions 2 to 6
`handle_codec`     the handles in it, and `stream_codec` the streams that they name
`state_files`      from handles to files, wherever the snapshot is now
`meta_info`        what a keyed file says of its states
`unified`          the unified format of keyed state, a window at a time
`heap_native`      the heap backend's own format
`raw_timers`       timers on the heap beside RocksDB
`rocksdb_native`   RocksDB's files: `rocksdb_tables` merges what `sst_file` reads of each
`keyed_layout`     entries to typed columns and back
`row_writer`       rows back into bytes
`keyed_states`     from meta info to layout
`reader`           `open_snapshot`
=================  =================================================================
"""

from state_core.formats.reader import open_snapshot

__all__ = ["open_snapshot"]
