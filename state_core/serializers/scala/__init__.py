"""Types of Flink's Scala API.

====================  ===============================================================
`serializers`         case classes, options, `Either`, `Try`, collections, hash codes
`enums`               Scala's enumerations
====================  ===============================================================

A new Scala type goes into `serializers`; if it can be a key, with its hash code.
"""
