"""Savepoints and values made into others, without a lake.

========================  ===========================================================
`value_migration`         a keyed state's values as another serializer writes them
`operator_migration`      the same for operator state
`recompression`           a savepoint with another compression
========================  ===========================================================

Another change of a whole savepoint is a module beside `recompression`.
"""
