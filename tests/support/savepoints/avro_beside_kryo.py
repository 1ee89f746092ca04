"""Savepoints of Flink 1 with Avro's records, and Protobuf's messages, where Kryo wrote the rest.

Avro's are of a class by reflection, of a generated one, and generic ones: alone, in tuples before
and behind Kryo, in lists, maps, POJOs and operator state, and such as contain themselves.
"""

from __future__ import annotations

import json
import lzma
import re
import uuid
from collections import defaultdict
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import statelake as sl
from statelake.pipelines.lake.change.migrating import value_type
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.avro.serializer import (
    AvroSerializer,
    AvroSerializerSnapshot,
)
from statelake.state_core.serializers.composite.collections import ListSerializerSnapshot
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.composite.structs import TupleSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.opaque_values import undecoded
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.kryo.decoding import declare_messages
from statelake.state_core.serializers.kryo.graph import Item
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.savepoints.kryo_jobs import jdk_savepoint
from tests.support.savepoints.snapshot_damage import inlined

__all__ = ["AVRO_STATES", "avro_savepoint", "order", "other_schemas", "protobuf_savepoint"]

AVRO_STATES = ("back", "holder", "link", "linked", "listed", "many", "mapped", "order", "pair")
ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "com.acme",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string",
                                  "java-class": "java.util.List"}},
        {"name": "by", "type": {"type": "map", "values": "int"}},
        {"name": "tier", "type": {"type": "enum", "name": "Tier", "symbols": ["GOLD", "SILVER"]}},
        {"name": "sum", "type": ["int", "string", {"type": "fixed", "name": "Md5", "size": 4}]},
        {"name": "at", "type": {"type": "int", "java-class": "java.lang.Short"}},
    ],
}  # fmt: skip
LINK: dict[str, Any] = {
    "type": "record", "name": "Link", "namespace": "com.acme",
    "fields": [{"name": "x", "type": "int"}, {"name": "next", "type": ["null", "Link"]}],
}  # fmt: skip
KEYS = range(12)
_SCHEMA = re.compile(rb'{"type":"record".*?}]}(?=[^]},])')
_TOKENS = (
    (b'"int"', b'"map"'), (b'"long"', b'"null"'), (b'"string"', b'"double"'),
    (b'"string"', b'  "long"'), (b'"string"', b' "bytes"'), (b'"Link"', b'"long"'),
    (b'"Order"', b'"Link" '), (b'"array"', b'"error"'), (b'"enum"', b'"long"'),
    (b'"SILVER"', b'"GOLD"  '), (b'"size":4', b'"size":9'), (b'"size":4', b'"size":0'),
    (b'["null",', b'["int" ,'), (b'"id"', b'"at"'), (b'"note"', b'"tags"'),
)  # fmt: skip
TUPLE = "org.apache.flink.api.java.tuple.Tuple2"


def order(number: int) -> dict[str, Any]:
    """The record of that number."""
    branch = number % 3
    held = {"b0": number, "b1": f"s{number}", "b2": b"abcd"}
    return {
        "id": number, "note": None if branch else f"note {number}",
        "tags": [f"tag {at}" for at in range(number % 4)],
        "by": [(f"key {at}", at) for at in range(branch)],
        "tier": ("GOLD", "SILVER")[number % 2],
        "sum": {"branch": branch} | {
            name: value if name == f"b{branch}" else None for name, value in held.items()
        },
        "at": number,
    }  # fmt: skip


def _order(number: int) -> bytes:
    out = DataOutput()
    AvroSerializer(json.dumps(ORDER)).write(order(number), out)
    return out.to_bytes()


def _link(number: int) -> bytes:
    """A chain of a few records."""
    out = DataOutput()
    for place in range(number % 5):
        out.write_int(place)
        out.write_int(1)
    out.write_int(99)
    out.write_int(0)
    return out.to_bytes()


def _pair(first: TypeSerializerSnapshot, second: TypeSerializerSnapshot) -> TypeSerializerSnapshot:
    made = TupleSerializerSnapshot.around(first, second)
    made.tuple_class = TUPLE
    return made


def _list(items: list[bytes]) -> bytes:
    out = DataOutput()
    out.write_int(len(items))
    return out.to_bytes() + b"".join(items)


def _kryo(to: Path) -> KryoSerializerSnapshot:
    """A snapshot of Flink 1.20, of UUIDs."""
    jdk_savepoint(to)
    operators = sl.open_snapshot(to).operators
    states = {state.name: state for operator in operators for state in operator.keyed_states}
    (to / "_metadata").unlink()
    to.rmdir()
    held = value_type(states["ids"].meta_info)
    assert isinstance(held, KryoSerializerSnapshot)
    return held.of_class("java.util.UUID")


def avro_savepoint(to: Path) -> Path:
    """Write one, of operator `o`, with `AVRO_STATES` and operator state `parts`."""
    kryo = _kryo(to)
    values = kryo.values(KryoVersion.FLINK_1)
    reflected = AvroSerializerSnapshot.of(ORDER, "com.acme.Order")
    generic = AvroSerializerSnapshot.of(ORDER)
    link = AvroSerializerSnapshot.of(LINK, "com.acme.Link")
    pair = _pair(reflected, kryo)

    def by_kryo(number: int) -> bytes:
        written = Item("java.util.UUID", str(uuid.UUID(int=number << 40)))
        return values.write(written, KryoVersion.FLINK_1)

    def paired(number: int) -> bytes:
        return _order(number) + by_kryo(number)

    def held(number: int) -> bytes:
        """A POJO, whose fields are in the order of their names."""
        fields = [_link(number), _order(number), by_kryo(number)]
        return b"\2" + b"".join(b"\0" + field for field in fields)

    def state(
        name: str, kind: Any, value: TypeSerializerSnapshot, rows: list[Any], **columns: Any
    ) -> sl.NewKeyedState:
        types = {"user_key": "String"} if "user_key" in columns else {}
        table = pa.table({"key": list(KEYS), **columns, "value": rows})
        return sl.NewKeyedState(name, table, kind, value=value, **types)

    holder = {"link": link, "order": reflected, "uid": kryo}
    many = [_list([paired(number + at) for at in range(number % 3)]) for number in KEYS]
    listed = [b",".join(paired(number + at) for at in range(1 + number % 3)) for number in KEYS]
    with undecoded():
        states = (
            state("back", "value", _pair(kryo, generic), [by_kryo(n) + _order(n) for n in KEYS]),
            state("holder", "value", PojoSerializerSnapshot.of("com.acme.Holder", holder),
                  [held(number) for number in KEYS]),
            state("link", "value", link, [_link(number) for number in KEYS]),
            state("linked", "value", _pair(link, kryo), [_link(n) + by_kryo(n) for n in KEYS]),
            state("listed", "list", pair, listed),
            state("many", "value", ListSerializerSnapshot.around(pair), many),
            state("mapped", "map", pair, [paired(number) for number in KEYS],
                  user_key=[f"key {number}" for number in KEYS]),
            state("order", "value", reflected,
                  pa.array([order(n) for n in KEYS], AvroSerializer(json.dumps(ORDER)).arrow_type)),
            state("pair", "value", pair, [paired(number) for number in KEYS]),
        )  # fmt: skip
        parts = pa.table({"value": [paired(number) for number in KEYS]})
        operator_state = sl.NewOperatorState("parts", parts, "split", pair)
        operator = sl.NewOperator("o", "Long", states, (operator_state,), parallelism=2)
        sl.write_snapshot(to, [operator])
    return _in_one_piece(to)


def protobuf_savepoint(to: Path) -> Path:
    """Write one, of operator `o`, with a state for each class of the messages of Flink 1.20.

    The messages are declared to this process.
    """
    text = lzma.decompress((GOLDEN / "vectors" / "protobuf-1.20.jsonl.xz").read_bytes())
    first, *lines = map(json.loads, text.splitlines())
    declare_messages(bytes.fromhex(first["descriptors"]))
    values: dict[str, list[bytes]] = defaultdict(list)
    for line in lines:
        values[line["snapshot"]].append(bytes.fromhex(line["value"]))
    with undecoded():
        states = tuple(
            sl.NewKeyedState(
                f"message{number}",
                pa.table({"key": list(range(len(rows) * 3)), "value": rows * 3}),
                value=read_serializer_snapshot(DataInput(bytes.fromhex(snapshot))),
            )
            for number, (snapshot, rows) in enumerate(values.items())
        )
        sl.write_snapshot(to, [sl.NewOperator("o", "Long", states, parallelism=2)])
    return _in_one_piece(to)


def other_schemas(data: bytes, random: Random) -> bytes:
    """A savepoint of `avro_savepoint` with a schema that is another one, in each copy of it."""
    schema = random.choice(sorted(set(_SCHEMA.findall(data))))
    new = schema
    for _ in range(random.randint(1, 3)):
        if random.random() < 0.5:
            at = random.randrange(len(new))
            new = new[:at] + bytes([random.choice(b'"{}[],:0149abelnrstu')]) + new[at + 1 :]
        else:  # of the same length, so that all lengths around it hold
            old, other = random.choice(_TOKENS)
            new = new.replace(old, other, random.randint(1, 2))
    return data.replace(schema, new)


def _in_one_piece(savepoint: Path) -> Path:
    """The savepoint with all its state in `_metadata`."""
    whole = inlined(SimpleNamespace(snapshot=savepoint))  # type: ignore[arg-type] # its directory
    for file in savepoint.iterdir():
        file.unlink()
    (savepoint / "_metadata").write_bytes(whole)
    return savepoint
