"""What all serializers share: their base classes, columns, snapshots, and the registry.

====================  ===============================================================
`base`                `TypeSerializer` and `TypeSerializerSnapshot`
`columns`             `Cursor` and `Target`: columns between bytes and Arrow
`element_columns`     columns of lists and maps: where elements lie, which are written
`opaque_values`       values that are carried as bytes, since only their class understands them
`snapshots`           the simple and the composite family of snapshots
`restored`            serializers as tables can hold them: what is too wide or deep becomes bytes
`registry`            from class names that Flink writes to the classes that read them
`built_in`            which module has which of these classes
`config_snapshots`    the snapshots of before Flink 1.7
`compatibility`       what a new serializer makes of an old one's bytes
`plugins`             users' code: where it is found, how it reaches other processes
`row_equality`        which rows of two columns are equal
====================  ===============================================================

A new serializer is a class on `base`, its snapshot class on `snapshots` and registered, in a module
in the room of its kind, and a line in `built_in`.
"""
