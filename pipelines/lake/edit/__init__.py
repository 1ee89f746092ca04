"""Snapshots made of others: edited tables committed, states renamed, purged, merged, migrated.

====================  ===============================================================
`committing`          edited tables become a snapshot
`editing`             a snapshot changed as a whole: rename, drop, keep
`purging`             rows that go: expired, or named
`merging`             two jobs' snapshots as one
`changes`             the file in which a user says what types become
`migrating`           values become those of other serializers: `keyed_migrating`,
                      `operator_migrating`; `operator_changes` commits operator state
`rewriting`           what all of these rewrite of a table
====================  ===============================================================

A new operation is a module here that rewrites tables by `rewriting`.
"""
