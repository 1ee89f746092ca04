"""Serializers made of others: collections, tuples, rows, POJOs, optional values.

====================  ===============================================================
`collections`         lists and maps
`arrays`              arrays and sets
`structs`             tuples, rows, and Flink's own Java objects
`optionals`           values that may be null, and `Either`
`pojo`                POJOs and Java records; `pojo_snapshot` and `pojo_compatibility`
`null_fields`         null fields that Flink can't restore, as they may be primitive
`wrappers`            values with a time to live, timers; windows, and the absence of one
`evolution`           old values as new ones, a column at a time
====================  ===============================================================

A new composite's snapshot class defines the nested serializers and their order.
"""
