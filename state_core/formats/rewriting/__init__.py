"""Conversions of savepoints and values, without a lake.

========================  ===========================================================
`value_migration`         a state's values for another serializer
`ttl_switch`              times of last access, added to values or removed
`kryo_parts`              the parts of values that Flink 1's Kryo wrote
`kryo_upgrade`            values of Flink 1's Kryo for Flink 2
`kryo_targets`            what Flink 2 has in their place, as columns
`recompression`           a savepoint with another compression
========================  ===========================================================

Another change of a whole savepoint is a module beside `recompression`.
"""
