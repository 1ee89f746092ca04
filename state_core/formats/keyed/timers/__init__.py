"""Timers that RocksDB jobs keep on the heap: `raw_timers`."""
