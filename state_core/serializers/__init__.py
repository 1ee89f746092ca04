"""Flink's serializers: bytes of one type, a value or a column at a time, and their snapshots.

===============  ==================================================================
`base`           `TypeSerializer` and `TypeSerializerSnapshot`
`columns`        `Cursor` and `Target`: columns on their way between bytes and Arrow
`registry`       from the class names that Flink writes to the classes that read them;
                 `config_snapshots` for the form of before Flink 1.7, `unknown_classes`
                 for what nobody registered
`snapshots`      the simple and the composite family of snapshots
`numbers`        numbers, booleans, characters
`text`           strings, byte arrays, and bytes that are not understood
`big_numbers`    `BigInteger` and `BigDecimal`
`times`          dates and times; `fields` and `calendars` under them
`enums`          enums
`collections`    lists and maps; `element_columns` under them
`arrays`         arrays and sets
`optionals`      values that may be null, and `Either`
`values`         `IntValue` and its like, and types without a value
`joins`          what Flink's join operators keep
`stream_...`     `stream_elements`: what asynchronous I/O keeps
`sinks`          transactions of sinks
`cep`            pattern detection's partial matches; `objects` under it
`scala`          types of the Scala API; `scala_enums` and `scala_hashes` with them
`structs`        tuples and rows
`pojo`           POJOs and Java records; `pojo_snapshot` and `pojo_compatibility` with them
`avro`           Avro, in Flink's encoding: `avro_types`, and `avro_resolution` for its rules
`namespaces`     windows, and the absence of one
`wrappers`       time to live, timers
`opaque`         Kryo and its like: walked and carried, understood by `decoders` of users only
`plugins`        where users' code is found, and how it comes to other processes
`optional_map`   the maps of names that POJO and Kryo snapshots are made of
`evolution`      old values as new ones, a column at a time
`row_data`       Flink SQL's rows, arrays and maps; `section_data` has their values
`binary_...`     its binary format: `binary_slots` in `binary_sections`, by `binary_formats`
`table_...`      its other types: `table_data`, `table_timestamps`, `table_variants`,
                 `table_collections`, `table_structures`, `table_views`
`logical_...`    its logical types, their text, their Java streams and objects
===============  ==================================================================

Importing this package registers them all. Users add theirs with `register` (a snapshot class) and
`register_decoder` (for values of a class that is not understood): see `docs/types.md`.
"""

from state_core.serializers.avro import serializer as avro
from state_core.serializers.basic import big_numbers, enums, numbers, text, times, values
from state_core.serializers.composite import (
    arrays,
    collections,
    namespaces,
    optionals,
    pojo_snapshot,
    structs,
    wrappers,
)
from state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    register,
    registered_classes,
    write_serializer_snapshot,
)
from state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    SimpleTypeSerializerSnapshot,
    simple_snapshot,
)
from state_core.serializers.opaque import opaque_bytes as opaque
from state_core.serializers.opaque.decoders import Decoder, register_decoder
from state_core.serializers.operators import cep, joins, sinks, stream_elements
from state_core.serializers.scala import enums as scala_enums
from state_core.serializers.scala import serializers as scala
from state_core.serializers.sql import (
    row_data,
    table_collections,
    table_data,
    table_structures,
    table_timestamps,
    table_variants,
    table_views,
)

__all__ = [
    "CompositeTypeSerializerSnapshot",
    "Decoder",
    "SimpleTypeSerializerSnapshot",
    "TypeSerializer",
    "TypeSerializerSnapshot",
    "arrays",
    "avro",
    "big_numbers",
    "cep",
    "collections",
    "enums",
    "joins",
    "namespaces",
    "numbers",
    "opaque",
    "optionals",
    "pojo_snapshot",
    "read_serializer_snapshot",
    "register",
    "register_decoder",
    "registered_classes",
    "row_data",
    "scala",
    "scala_enums",
    "simple_snapshot",
    "sinks",
    "stream_elements",
    "structs",
    "table_collections",
    "table_data",
    "table_structures",
    "table_timestamps",
    "table_variants",
    "table_views",
    "text",
    "times",
    "values",
    "wrappers",
    "write_serializer_snapshot",
]
