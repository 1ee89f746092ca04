"""Snapshots whose values, types or queries change.

==================  ===============================================================
`migrations`        one snapshot migrated or upgraded, and its outcome
`migrating`         the transform by which values become those of other serializers
`changes`           the file in which a user says what types become
`field_words`       the same in words: fields added, renamed, dropped
`kryo_upgrading`    what Flink 1's Kryo wrote, for Flink 2
`sql_upgrading`     Flink SQL's state, for a changed query
`folding`           new columns of an aggregate, computed from the rows that another node holds
`sql_rows`          rows of one key merged, and rows of which typed columns say all
==================  ===============================================================

All of it works with the transforms of `edit/`.
"""
