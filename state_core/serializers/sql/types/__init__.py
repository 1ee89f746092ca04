"""Logical types of Flink SQL, in each form in which a snapshot has them.

==========================  =========================================================
`logical_types`             the types themselves, and where two of them differ
`logical_type_parser`       from their text
`logical_type_streams`      from Java streams, as old snapshots have them
`logical_type_objects`      what those streams hold, object by object
`serializer_streams`        serializers in Java streams
==========================  =========================================================

A new logical type is a class in `logical_types`, its text in the parser, its fields in the streams.
"""
