"""Logical types of Flink SQL, in each of their forms in snapshots.

==========================  =========================================================
`logical_types`             the types themselves, and differences between two of them
`logical_type_parser`       from their text
`logical_type_streams`      from Java streams, in old snapshots
`logical_type_objects`      the objects in those streams
`serializer_streams`        serializers in Java streams
==========================  =========================================================

A new logical type is a class in `logical_types`, its text in the parser, its fields in the streams.
"""
