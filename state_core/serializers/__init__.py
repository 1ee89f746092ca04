"""Flink's serializers: bytes of one type, a value or a column at a time, and their snapshots.

===============  ==================================================================
`base`           `TypeSerializer` and `TypeSerializerSnapshot`
`columns`        `Cursor` and `Target`: columns on their way between bytes and Arrow
`registry`       from the class names that Flink writes to the classes that read them
`snapshots`      the simple and the composite family of snapshots
`numbers`        numbers, booleans, characters
`text`           strings, byte arrays, and bytes that are not understood
`collections`    lists and maps
`structs`        tuples and rows
`pojo`           POJOs and Java records; `pojo_snapshot` and `pojo_compatibility` with them
`namespaces`     windows, and the absence of one
`wrappers`       time to live, timers
`opaque`         Kryo and its like: walked and carried, never understood
`optional_map`   the maps of names that POJO and Kryo snapshots are made of
`evolution`      old values as new ones, a column at a time
===============  ==================================================================

Importing this package registers them all.
"""

from state_core.serializers import (
    collections,
    namespaces,
    numbers,
    opaque,
    pojo_snapshot,
    structs,
    text,
    wrappers,
)
from state_core.serializers.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.registry import (
    read_serializer_snapshot,
    register,
    registered_classes,
    write_serializer_snapshot,
)

__all__ = [
    "TypeSerializer",
    "TypeSerializerSnapshot",
    "collections",
    "namespaces",
    "numbers",
    "opaque",
    "pojo_snapshot",
    "read_serializer_snapshot",
    "register",
    "registered_classes",
    "structs",
    "text",
    "wrappers",
    "write_serializer_snapshot",
]
