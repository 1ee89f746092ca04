"""Values that only their class understands: unknown classes, and the map of names in snapshots.

====================  ===============================================================
`opaque_bytes`        serializers whose values are carried as exact bytes
`optional_map`        the map of names in snapshots of POJOs and Kryo
`unknown_classes`     the end of an unregistered class's snapshot
====================  ===============================================================

A class of Flink that can't be parsed without its code is registered in `opaque_bytes`.
"""
