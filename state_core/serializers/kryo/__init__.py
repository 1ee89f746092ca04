"""Kryo without a JVM: what Flink's `KryoSerializer` writes, for classes whose form is known.

====================  ===============================================================
`wire`                numbers and text as Kryo 2.24 (Flink 1) and 5.6 (Flink 2) write them
`java_types`          types of Java as declarations have them, and classes of users
`graph`               objects: classes, references, and what reads and writes them
`forms`               values that have no objects within: numbers, text, dates, arrays of numbers
`containers`          collections, maps, arrays of objects
`objects`             objects field by field, and the table of all forms
`columns`             objects as Arrow's values, and back
`json_values`         objects as JSON, where no type says what they are
`decoding`            the decoder of a class, and which Kryo wrote its bytes
`snapshot`            `KryoSerializerSnapshot`: the classes that a job has registered
====================  ===============================================================

A class of the JDK is a line in `forms`, `containers` or `objects`; a class of a user is declared in
a file (`--kryo`). Nothing is deserialized as Java does it: what is not known stays bytes.

Source: `com.esotericsoftware.kryo` 2.24.0 and 5.6.2, `com.twitter.chill.java` 0.7.6, and Flink's
`KryoSerializer`, `KryoUtils` and `FlinkChillPackageRegistrar` of 1.20 and 2.3.
"""
