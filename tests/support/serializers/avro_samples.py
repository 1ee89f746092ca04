"""Avro's schemas, and the bytes that their values can have in Flink's encoding of them.

Like the other samples these are written from the description of the format, not with our code.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.support.serializers.serializer_samples import (
    NO_BYTES,
    Encoded,
    Sample,
    fixed,
    i32,
    joined,
    string,
    utf,
    varint,
)

__all__ = ["AVRO", "avro_samples", "avro_values"]

Typed = tuple[Any, Encoded]

SNAPSHOT = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"
OLDER = "org.apache.flink.formats.avro.typeutils.AvroSerializer$AvroSchemaSerializerConfigSnapshot"
GENERIC = "org.apache.avro.generic.GenericRecord"
texts = st.text(max_size=5).map(str.encode) | st.binary(max_size=4)

PRIMITIVES: dict[str, Encoded] = {
    "null": NO_BYTES,
    "boolean": st.sampled_from([b"\0", b"\1"]),
    "int": fixed(4),
    "long": fixed(8),
    "float": fixed(4) | st.sampled_from([b"\x7f\xc0\0\1", b"\x80\0\0\0"]),
    "double": fixed(8),
    "bytes": st.binary(max_size=5).map(lambda data: i32(len(data)) + data),
    "string": texts.map(lambda data: i32(len(data)) + data),
}
KINDS = ("enum", "fixed", "record", "array", "map", "optional", "union")


def sample(schema: Any, encoded: Encoded, java_class: str = SNAPSHOT) -> Sample:
    """The serializer of a schema."""
    text = json.dumps(schema, separators=(",", ":"))
    snapshot = utf(java_class) + i32(3) + string(GENERIC) + string(text)
    return Sample(f"Avro {text}", snapshot, encoded, java_class)


def blocks(item: Encoded) -> Encoded:
    """Items in blocks of a count each; Flink writes at most one, and reads any number."""
    counted = st.lists(item, min_size=1, max_size=3)
    block = counted.map(lambda held: varint(len(held)) + b"".join(held))
    one = st.just(b"\0") | block.map(lambda data: data + b"\0")
    return one | st.lists(block, min_size=2, max_size=3).map(lambda held: b"".join(held) + b"\0")


def indexed(branches: list[Encoded]) -> Encoded:
    """The index of a branch, and its value."""
    return st.one_of(
        *(
            branch.map(lambda data, index=index: i32(index) + data)
            for index, branch in enumerate(branches)
        )
    )


@st.composite
def avro_values(draw: st.DrawFn, depth: int = 2, name: str = "R") -> Typed:
    """A schema and its values; `name` makes the names within it unique."""
    kind = draw(st.sampled_from([*PRIMITIVES, *KINDS] if depth else [*PRIMITIVES, "enum"]))
    if kind in PRIMITIVES:
        written = draw(st.sampled_from([kind, {"type": kind, "logicalType": "acme"}]))
        return written, PRIMITIVES[kind]
    if kind == "enum":
        indexes = st.integers(0, 2).map(i32)
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, indexes
    if kind == "fixed":
        size = draw(st.integers(1, 5))
        return {"type": "fixed", "name": name, "namespace": "acme", "size": size}, fixed(size)
    return draw(_made_of(kind, depth - 1, name))


@st.composite
def _made_of(draw: st.DrawFn, kind: str, depth: int, name: str) -> Typed:
    """A type with others inside."""
    if kind == "record":
        held = [draw(avro_values(depth, f"{name}{i}")) for i in range(draw(st.integers(0, 3)))]
        fields = [{"name": f"x{i}", "type": schema} for i, (schema, _) in enumerate(held)]
        encoded = joined(*(values for _, values in held)) if held else NO_BYTES
        return {"type": "record", "name": name, "namespace": "acme", "fields": fields}, encoded
    if kind == "union":
        return draw(_unions(depth, name))
    schema, encoded = draw(avro_values(depth, f"{name}i"))
    if kind == "array":
        return {"type": "array", "items": schema}, blocks(encoded)
    if kind == "map":
        return {"type": "map", "values": schema}, blocks(joined(PRIMITIVES["string"], encoded))
    if isinstance(schema, list) or schema in ("null", {"type": "null"}):
        schema, encoded = "long", PRIMITIVES["long"]
    branches = [(schema, encoded), ("null", NO_BYTES)]
    if draw(st.booleans()):
        branches.reverse()
    return [branch for branch, _ in branches], indexed([values for _, values in branches])


@st.composite
def _unions(draw: st.DrawFn, depth: int, name: str) -> Typed:
    """Primitives, and a record behind them."""
    kinds = draw(st.lists(st.sampled_from(sorted(PRIMITIVES)), min_size=1, max_size=3, unique=True))
    record, encoded = draw(_made_of("record", depth, f"{name}u"))
    branches = [(kind, PRIMITIVES[kind]) for kind in kinds] + [(record, encoded)]
    return [branch for branch, _ in branches], indexed([values for _, values in branches])


def _itself() -> Sample:
    """A record that contains itself: a chain of a few."""
    fields = [{"name": "x", "type": "int"}, {"name": "next", "type": ["null", "Q"]}]
    links = st.lists(fixed(4), min_size=1, max_size=4)
    return sample(
        {"type": "record", "name": "Q", "namespace": "acme", "fields": fields},
        links.map(lambda held: i32(1).join(held) + i32(0)),
    )


def avro_samples() -> st.SearchStrategy[Sample]:
    """A serializer of any schema."""
    return avro_values().map(lambda held: sample(*held))


AVRO = [
    *(sample(kind, encoded) for kind, encoded in PRIMITIVES.items()),
    sample(["null", "string"], indexed([NO_BYTES, PRIMITIVES["string"]])),
    sample(["int", "string"], indexed([PRIMITIVES["int"], PRIMITIVES["string"]])),
    sample({"type": "array", "items": "long"}, blocks(PRIMITIVES["long"])),
    sample({"type": "array", "items": "null"}, blocks(NO_BYTES)),
    sample({"type": "map", "values": "double"}, blocks(joined(PRIMITIVES["string"], fixed(8)))),
    sample({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.integers(0, 1).map(i32)),
    sample({"type": "fixed", "name": "F", "size": 3}, fixed(3)),
    sample({"type": "record", "name": "N", "fields": []}, NO_BYTES),
    sample("long", PRIMITIVES["long"], OLDER),
    _itself(),
]
