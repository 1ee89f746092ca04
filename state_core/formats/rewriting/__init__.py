"""Savepoints and values made into others, without a lake.

========================  ===========================================================
`value_migration`         a state's values as another serializer writes them
`kryo_upgrade`            values of Flink 1's Kryo as Flink 2's writes them
`key_bytes`               keys alone, by which rows are chosen
`recompression`           a savepoint with another compression
========================  ===========================================================

Another change of a whole savepoint is a module beside `recompression`.
"""
