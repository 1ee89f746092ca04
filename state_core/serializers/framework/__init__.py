"""The framework of all serializers: base classes, columns, snapshots, and the registry.

====================  ===============================================================
`base`                `TypeSerializer` and `TypeSerializerSnapshot`
`columns`             `Cursor` and `Target`: columns between bytes and Arrow
`element_columns`     columns of lists and maps: positions of elements, and the written ones
`opaque_values`       values that are carried as bytes, since only their class understands them
`snapshots`           the simple and the composite family of snapshots
`restored`            serializers within the limits of tables: too wide or deep ones become bytes
`registry`            Flink's class names, and the classes that read them
`built_in`            the module of each of these classes
`config_snapshots`    snapshots from before Flink 1.7
`compatibility`       compatibility of a new serializer with an old one's bytes
`plugins`             users' code, and its way to other processes
`row_equality`        equality of the rows of two columns
====================  ===============================================================

A new serializer is a class on `base`, its snapshot class on `snapshots` and registered, in a module
in the package of its kind, and a line in `built_in`.
"""
