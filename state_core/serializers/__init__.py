"""Flink's serializers: bytes of one type, a value or a column at a time, and their snapshots.

===============  ==================================================================
`framework/`     base classes, columns, snapshots, the registry, users' plugins
`basic/`         numbers, text, dates and times, enums
`composite/`     collections, tuples, rows, POJOs, optional values, windows
`opaque/`        Kryo and its like: carried as bytes, decoded by users' code only
`avro/`          Avro, in Flink's encoding
`scala/`         types of the Scala API
`sql/`           Flink SQL's rows and types: logical types, the binary format
`operators/`     what Flink's own operators keep: CEP, joins, sinks, asynchronous I/O
`type_spec`      types as people write them: `Tuple2<Long, String>`
===============  ==================================================================

Importing this package registers them all. A new serializer goes into the room of its kind; its
module is named in the imports below. Users add theirs with `register` (a snapshot class) and
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
