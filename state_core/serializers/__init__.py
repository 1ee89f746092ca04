"""Flink's serializers: bytes of one type, a value or a column at a time, and their snapshots.

==================  ==================================================================
`framework/`        base classes, columns, snapshots, the registry, users' plugins
`basic/`            numbers, text, dates and times, enums
`composite/`        collections, tuples, rows, POJOs, optional values, windows
`kryo/`             Kryo, for classes whose form is known
`contents/`         what a text or bytes hold, as users say: JSON, Avro of a registry
`opaque/`           values that only their class understands: kept as bytes, decoded by users' code
`avro/`             Avro, in Flink's encoding
`scala/`            types of the Scala API
`sql/`              Flink SQL's rows and types: logical types, the binary format
`operators/`        values of Flink's own operators: CEP, joins, sinks, asynchronous I/O
`type_spec`         types as people write them: `Tuple2<Long, String>`
`type_differences`  the differences of two such types, in words
==================  ==================================================================

A new serializer goes into the package of its kind, and its snapshot class into the table of
`framework/built_in`, from which it is imported when a snapshot names it. Users add theirs with
`register` (a snapshot class) and `register_decoder` (for values of a class that is not understood):
see `docs/types.md`.
"""

from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import Decoder, register_decoder
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    register,
    registered_classes,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    SimpleTypeSerializerSnapshot,
    simple_snapshot,
)

__all__ = [
    "CompositeTypeSerializerSnapshot",
    "Decoder",
    "SimpleTypeSerializerSnapshot",
    "TypeSerializer",
    "TypeSerializerSnapshot",
    "read_serializer_snapshot",
    "register",
    "register_decoder",
    "registered_classes",
    "simple_snapshot",
    "write_serializer_snapshot",
]
