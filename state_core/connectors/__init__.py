"""What connectors keep in a snapshot: where sources go on, and what sinks have still to commit.

====================  ===============================================================
`versioned`           the bytes of a class, with the version that wrote them
`elements`            the elements of operator state that are such bytes
`kafka`               Kafka's sources, old and new
`files`               the file source
`sequences`           number sequences, and generators of data
`sources`             the sources of a snapshot: splits of readers and enumerators
`offsets`             other offsets for partitions of Kafka
`sinks`               the sinks of a snapshot: transactions, and what is to be committed
====================  ===============================================================

Another source is a module here, and a line in `sources`. Whatever is not known, or is of another
version, stays bytes and is carried as they are.
"""
