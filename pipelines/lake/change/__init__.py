"""Snapshots whose values, types or queries change.

==================  ===============================================================
`migrations`        one snapshot migrated or upgraded, and its outcome
`migrating`         the transform by which values become those of other serializers
`changes`           the file in which a user says what types become
`field_words`       the same in words: fields added, renamed, dropped
`kryo_upgrading`    what Flink 1's Kryo wrote, for Flink 2
`sql_upgrading`     Flink SQL's state, for a changed query
`sql_operators`     which of its operators are which nodes of a plan
`folding`           new columns of an aggregate, computed from the rows that another node holds
`sql_rows`          the transform of its rows: columns, keys, and rows that become one
==================  ===============================================================

All of it works with the transforms of `edit/`.
"""
