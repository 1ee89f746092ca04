"""State of connectors in a snapshot: positions of sources, and pending commits of sinks.

====================  ===============================================================
`versioned`           the bytes of a class, with their version
`records`             the order of fields, from which values are read and written
`elements`            elements of operator state with such bytes
`kafka`               Kafka's sources, old and new
`files`               the file source
`cdc`                 Flink CDC's sources: chunks of tables, and logs of databases
`kinesis`             Kinesis's sources, old and new
`pulsar`              Pulsar's source
`sequences`           number sequences, and generators of data
`sources`             the sources of a snapshot: splits of readers and enumerators
`offsets`             other offsets for partitions of Kafka, and logs of Flink CDC
`successors`          what old sources of Kafka and Kinesis held, as state of the new ones
`committables`        what committers of tables have pending: Iceberg, Paimon, Delta
`sinks`               the sinks of a snapshot: transactions, and pending commits
====================  ===============================================================

Another source is a module here, and a line in `sources`. Unknown state, or state of another
version, stays bytes and is carried unchanged.
"""
