"""Kryo without a JVM: values of Flink's `KryoSerializer`, for classes whose form is known.

====================  ===============================================================
`wire`                numbers and text of Kryo 2.24 (Flink 1) and 5.6 (Flink 2)
`java_types`          types of Java in declarations, and classes of users
`graph`               objects: classes, references, their reader and writer
`forms`               values without nested objects: numbers, text, dates, arrays of numbers
`containers`          collections, maps, arrays of objects
`objects`             objects field by field, and the table of all forms
`protobuf`            Protobuf messages, from their descriptors
`scalars`             objects without others within them as Arrow's values, and back
`columns`             all other objects likewise
`json_values`         objects as JSON, if their type is not declared
`decoding`            the decoder of a class, and the version of Kryo
`uuids`               UUIDs, a column at a time
`tables`              many objects at once, by kernels, and their bytes for both Flinks
`serializer`          values of Kryo within other types, whose ends only Kryo knows
`snapshot`            `KryoSerializerSnapshot`: the classes that a job has registered
====================  ===============================================================

A class of the JDK is a line in `forms`, `containers` or `objects`; a class of a user is declared in
a file (`--kryo`). Nothing is deserialized by Java's rules: values of unknown classes stay bytes.

Source: `com.esotericsoftware.kryo` 2.24.0 and 5.6.2, `com.twitter.chill.java` 0.7.6, and Flink's
`KryoSerializer`, `KryoUtils` and `FlinkChillPackageRegistrar` of 1.20 and 2.3.
"""
