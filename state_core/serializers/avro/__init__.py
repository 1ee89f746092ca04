"""Avro values, in Flink's own encoding of them.

====================  ===============================================================
`serializer`          `AvroSerializer` and its snapshot
`schema_types`        the types of an Avro schema, and their bytes
`resolution`          Avro's rules for a reader's schema and a writer's
====================  ===============================================================

A new Avro type is a class in `schema_types`, and a row of the rules in `resolution`.
"""
