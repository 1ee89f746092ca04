"""Types of Flink's libraries as Flink writes them: pattern detection, the Scala API, sinks.

More rows of the table in `serializer_samples`, written from the description of the format too.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tests.support.serializers.serializer_samples import (
    BASE,
    FLINK,
    LEAVES,
    NO_BYTES,
    OF_ONE,
    OF_TWO,
    RUNTIME,
    Encoded,
    Sample,
    Wrapper,
    composite,
    counted,
    either,
    fixed,
    i32,
    joined,
    longs,
    nullable_strings,
    optional,
    padded_nullable,
    samples,
    sized,
    strings,
    utf,
    wrapper,
)

__all__ = ["LIBRARIES", "MORE_OF_ONE", "MORE_OF_TWO", "any_samples"]

NFA = f"{FLINK}cep.nfa."
BUFFER = f"{NFA}sharedbuffer."
SCALA = f"{FLINK}api.scala.typeutils."
SINKS = f"{FLINK}streaming.api.functions.sink."
KAFKA = f"{FLINK}streaming.connectors.kafka."
ELEMENTS = f"{FLINK}streaming.runtime.streamrecord."
flags = st.sampled_from([b"\0", b"\1"])
texts = st.text(max_size=5).map(utf)


def held(element: Encoded) -> Encoded:
    """A flag that is true for a value, and the value if there is one."""
    return optional(element, b"\0", b"\1")


def without_magic(java_class: str, _: int, payload: bytes, *nested: Sample) -> bytes:
    """A composite snapshot of Flink 1.7."""
    head = utf(java_class) + i32(2) + payload + i32(1333245) + i32(1) + i32(len(nested))
    return head + b"".join(serializer.snapshot for serializer in nested)


def of_class(name: str, java_class: str, encoded: Encoded) -> Sample:
    """A type that its class alone describes."""
    return Sample(name, utf(java_class) + i32(3), encoded, java_class)


def of_parts(
    name: str,
    java_class: str,
    encoded: Encoded,
    *nested: Sample,
    outer: int = 1,
    payload: bytes = b"",
) -> Sample:
    """A type made of certain others."""
    return Sample(name, composite(java_class, outer, payload, *nested), encoded, java_class)


# ------------------------------------------------------------------------------------ flink-cep


def cep() -> list[Sample]:
    """Every type of pattern detection but `Lockable`."""
    dewey = of_class(
        "DeweyNumber", f"{NFA}DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot",
        sized(4),
    )  # fmt: skip
    event = of_class(
        "EventId", f"{BUFFER}EventId$EventIdSerializer$EventIdSerializerSnapshot", fixed(12)
    )
    node_id = of_parts(
        "NodeId", f"{BUFFER}NodeId$NodeIdSerializer$NodeIdSerializerSnapshot",
        held(joined(fixed(12), nullable_strings)), event,
    )  # fmt: skip
    edge = of_parts(
        "SharedBufferEdge",
        f"{BUFFER}SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot",
        joined(node_id.encoded, dewey.encoded), node_id, dewey,
    )  # fmt: skip
    node = of_parts(
        "SharedBufferNode", f"{BUFFER}SharedBufferNodeSerializerSnapshotV2",
        counted(joined(fixed(4), edge.encoded)), edge,
    )  # fmt: skip
    edges = next(wrapper for wrapper in OF_ONE if wrapper(edge).name.startswith("List<"))(edge)
    old_node = of_parts(
        "SharedBufferNode without counts",
        f"{BUFFER}SharedBufferNode$SharedBufferNodeSerializer$SharedBufferNodeSerializerSnapshot",
        edges.encoded, edges,
    )  # fmt: skip
    states = [nfa_state(dewey, node_id, event, times) for times in (2, 1)]
    return [dewey, event, node_id, edge, node, old_node, *states]


def nfa_state(dewey: Sample, node_id: Sample, event: Sample, times: int) -> Sample:
    """`NFAState` with one or two timestamps in each computation state."""
    state = joined(strings, node_id.encoded, dewey.encoded, fixed(8 * times), held(event.encoded))
    return of_parts(
        f"NFAState with {times} times", f"{NFA}NFAStateSerializerSnapshot",
        joined(counted(state), counted(state)), dewey, node_id, event,
        outer=2, payload=bytes([times == 2]),
    )  # fmt: skip


# ------------------------------------------------------------------------------------ others


def scala() -> list[Sample]:
    """Types of the Scala API that are made of no others."""
    java_class = f"{SCALA}ScalaEnumSerializerSnapshot"
    values = {"RED": 0, "GREEN": 1, "BLUE": 2}
    payload = utf("acme.Color$") + i32(len(values))
    payload += b"".join(utf(name) + i32(number) for name, number in values.items())
    snapshot = utf(java_class) + i32(3) + payload
    numbers = st.sampled_from(sorted(values.values())).map(i32)
    unit = of_class("Unit", f"{SCALA}UnitSerializer$UnitSerializerSnapshot", st.just(b"\0"))
    return [unit, Sample("Enumeration", snapshot, numbers, java_class)]


def others() -> list[Sample]:
    """What Kafka's sinks and Python's jobs keep."""
    parts = {
        "TransactionState": joined(held(texts), fixed(10)),
        "ContextState": counted(texts),
        "NextTransactionalIdHint": fixed(12),
    }
    wrapped_bytes = of_class(
        "ByteArrayWrapper",
        f"{FLINK}streaming.api.utils.ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot",
        sized(1),
    )
    return [
        wrapped_bytes,
        *(
            of_class(
                f"{sink} {part}", f"{KAFKA}{sink}${part}Serializer${part}SerializerSnapshot", held
            )
            for sink in ("FlinkKafkaProducer", "FlinkKafkaProducer011")
            for part, held in parts.items()
        ),
    ]


def stream_elements(value: Encoded) -> Encoded:
    """Every kind of element, behind its tag."""
    kinds = [
        joined(fixed(8), value), value, fixed(8), fixed(28), fixed(4), flags, fixed(12),
    ]  # fmt: skip
    return st.one_of(
        *(kind.map(lambda data, tag=tag: bytes([tag]) + data) for tag, kind in enumerate(kinds))
    )


def transactions(handle: Encoded, context: Encoded) -> Encoded:
    """A sink's open transaction, those to commit, and its context."""
    holder = joined(handle, longs)
    return joined(held(holder), counted(holder), held(context))


def _named(name: str) -> Callable[..., bytes]:
    return lambda *_: utf(name)


def field(number: int, content: Encoded) -> Encoded:
    """A field of a Protobuf message that has a length, which is short."""
    return content.map(lambda data: bytes([number << 3 | 2, len(data)]) + data)


def statefun() -> list[Sample]:
    """Messages, and values of remote functions."""
    core = f"{FLINK}statefun.flink.core."
    word = st.text("abc", min_size=1, max_size=3).map(str.encode)
    address = joined(field(1, word), field(2, word), field(3, word))
    payload = field(3, joined(field(2, word), field(3, st.binary(min_size=1, max_size=5))))
    barrier = field(4, st.integers(1, 127).map(lambda number: bytes([8, number])))
    body = st.one_of(payload, barrier, joined(payload, field(10, word)), NO_BYTES)
    envelope = st.one_of(
        NO_BYTES,
        joined(field(2, address), body),
        joined(field(1, address), field(2, NO_BYTES), body),
    )
    message = f"{core}message.MessageTypeSerializer$Snapshot"
    remote = f"{core}types.remote.RemoteValueSerializerSnapshot"
    named = utf("io.statefun.types") + utf("long")
    return [
        *(
            Sample(
                f"StateFun's Message of version {version}",
                utf(message) + i32(version) + utf("WITH_KRYO_PAYLOADS") + custom,
                envelope.map(lambda data: i32(len(data)) + data), message,
            )
            for version, custom in ((1, b""), (2, b"\0"), (2, b"\1" + utf("acme.Payloads")))
        ),
        Sample(
            "remote value of StateFun", utf(remote) + i32(1) + named, sized(1), remote
        ),
    ]  # fmt: skip


LIBRARIES = [*cep(), *scala(), *others(), *statefun()]
CODE = "implicitly[scala.collection.generic.CanBuildFrom[Seq[Any], Any, Seq[Any]]]"
MORE_OF_ONE: list[Wrapper] = [
    wrapper(
        "AsyncTtl",
        f"{FLINK}runtime.state.v2.ttl.TtlStateFactory$TtlSerializerSnapshot",
        2,
        lambda values: joined(fixed(8), values),
    ),
    wrapper(
        "StreamElement",
        f"{ELEMENTS}StreamElementSerializer$StreamElementSerializerSnapshot",
        2,
        stream_elements,
    ),
    wrapper(
        "Lockable",
        f"{BUFFER}LockableTypeSerializerSnapshot",
        1,
        lambda values: joined(fixed(4), values),
    ),
    wrapper("Option", f"{SCALA}ScalaOptionSerializerSnapshot", 2, held),
    wrapper(
        "Traversable",
        f"{SCALA}TraversableSerializerSnapshot",
        2,
        lambda values: counted(held(values)),
        _named(CODE),
    ),
    wrapper(
        "OldArray",
        f"{BASE}GenericArraySerializerConfigSnapshot",
        2,
        lambda values: counted(held(values)),
        _named("acme.Component"),
        without_magic,
    ),
]
MORE_OF_TWO: list[Wrapper] = [
    wrapper(
        "CaseClass", f"{SCALA}ScalaCaseClassSerializerSnapshot", 2, joined, _named("acme.Order")
    ),
    wrapper(
        "ScalaTuple2",
        f"{SCALA}Tuple2CaseClassSerializerSnapshot",
        2,
        joined,
        _named("scala.Tuple2$mcJJ$sp"),
    ),
    wrapper("ScalaEither", f"{SCALA}ScalaEitherSerializerSnapshot", 1, either),
    wrapper("Try", f"{SCALA}ScalaTrySerializerSnapshot", 2, either),
    wrapper("OldEither", f"{RUNTIME}EitherSerializerSnapshot", 2, either, around=without_magic),
    *(
        wrapper(
            f"Transactions{package}",
            f"{SINKS}{package}TwoPhaseCommitSinkFunction$StateSerializerSnapshot",
            4,
            transactions,
            lambda *_: b"\1",
        )
        for package in ("", "legacy.")
    ),
]


def any_samples(depth: int = 2) -> st.SearchStrategy[Sample]:
    """Any type of either table, and types made of such, up to so deep."""
    leaf = st.sampled_from([*LEAVES, padded_nullable(), *LIBRARIES])
    return samples(depth, leaf, [*OF_ONE, *MORE_OF_ONE], [*OF_TWO, *MORE_OF_TWO])
