"""Values that only their class understands: Kryo, unknown classes, and users' decoders.

====================  ===============================================================
`opaque_bytes`        serializers whose values are carried as exact bytes
`decoders`            users' functions that decode such values, or measure their length
`optional_map`        the map of names in snapshots of POJOs and Kryo
`unknown_classes`     where the snapshot of an unregistered class ends
====================  ===============================================================

A class of Flink's that can't be understood without its code is registered in `opaque_bytes`.
"""
