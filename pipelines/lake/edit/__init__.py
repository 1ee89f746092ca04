"""Snapshots made of others: edited tables committed, states renamed, purged, merged.

====================  ===============================================================
`rewriting`           the engine: `derive`, and tables rewritten piece by piece, through transforms
`pieces`              what the engine works on
`key_group_layout`    how keyed state and timers lie in files, and are counted
`subtask_layout`      the same for operator state
`committing`          tables that a user has edited become a snapshot
`editing`             a snapshot changed as a whole: rename, drop, keep, merge, purge
`edit_results`        what an edit did
`sql_editing`         DELETE, UPDATE and INSERT over a snapshot, and rows of a predicate, by DuckDB
`selecting`           states by the names that users give
`purging`             the transform by which what has expired goes
`keeping`             the transform by which only listed keys stay
`source_rows`         the transforms by which sources get other splits, or become new ones
`merging`             operators of another snapshot, or of another job
====================  ===============================================================

A new operation on rows is a module here with a `Transform`: what becomes of some rows of one state,
be it keyed state, timers or operator state. `editing` puts it among what is done to a snapshot.
"""
