"""The framework of all serializers: base classes, columns, snapshots, and the registry.

====================  ===============================================================
`base`                `TypeSerializer` and `TypeSerializerSnapshot`
`layouts`             how the bytes of a value follow each other, in one place
`columns`             `Cursor` and `Target`: columns between bytes and Arrow; equal rows of two
`opaque_values`       values carried as bytes: only their class understands them, or they are too
                      wide or too deep for a table; users' decoders of these
`exact_values`        values read with all that their columns can't hold, for people
`snapshots`           the simple and the composite family of snapshots
`registry`            Flink's class names, and the classes that read them
`built_in`            the module of each of these classes
`config_snapshots`    snapshots that are kept as bytes, and those from before Flink 1.7
`compatibility`       compatibility of a new serializer with an old one's bytes
`plugins`             users' code, and its way to other processes
====================  ===============================================================

A new serializer is a class on `base`, its snapshot class on `snapshots` and registered, in a module
in the package of its kind, and a line in `built_in`.
"""
