"""Types of Flink's Scala API.

====================  ===============================================================
`serializers`         case classes, options, `Either`, `Try`, collections
`enums`               Scala's enumerations
`hashes`              hash codes as Scala computes them, for keys
====================  ===============================================================

A new Scala type goes into `serializers`; if it can be a key, its hash code into `hashes`.
"""
