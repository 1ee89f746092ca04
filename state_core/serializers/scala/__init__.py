"""Types of the Scala APIs.

====================  ===============================================================
`serializers`         Flink's own: case classes, options, `Either`, `Try`, collections, hash codes
`enums`               Flink's own: Scala's enumerations
`flinkx`              flink-scala-api's: case classes, collections, mapped types
`flinkx_simple`       flink-scala-api's: times, durations, orderings, UUIDs
`sealed`              flink-scala-api's: sealed traits, Scala 3 enums
`flinkx_parts`        what flink-scala-api's snapshots have in common
`flinkx_snapshots`    flink-scala-api's snapshots
====================  ===============================================================

A new Scala type goes into `serializers` or `flinkx`; if it can be a key, with its hash code.
"""
