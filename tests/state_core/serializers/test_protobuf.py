"""Protobuf messages by Kryo: what real Flink wrote, and what Protobuf's own library says."""

from __future__ import annotations

import json
import lzma
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import statelake as sl
from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.kryo.decoding import declare_messages
from statelake.state_core.serializers.kryo.protobuf import MessageType, message_types
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from statelake.state_core.serializers.kryo.wire import KryoVersion
from tests.support.command import run
from tests.support.lakes import entries
from tests.support.savepoints.golden_cases import GOLDEN

pytest.importorskip("google.protobuf")

from google.protobuf import (  # type: ignore[import-untyped] # no stubs
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

pytestmark = pytest.mark.usefixtures("own_registry")

F = descriptor_pb2.FieldDescriptorProto


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """A message with each form of field."""
    file = descriptor_pb2.FileDescriptorProto(name="car.proto", package="acme", syntax="proto3")
    file.options.java_package = "com.acme"
    enum = file.enum_type.add(name="Fuel")
    enum.value.add(name="NONE", number=0)
    enum.value.add(name="GAS", number=1)
    car = file.message_type.add(name="Car")
    entry = car.nested_type.add(name="SeatsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=F.TYPE_SINT32, label=1)
    car.oneof_decl.add(name="_price")
    car.field.add(name="id", number=1, type=F.TYPE_INT64, label=1)
    car.field.add(name="name", number=2, type=F.TYPE_STRING, label=1)
    car.field.add(name="places", number=3, type=F.TYPE_INT32, label=3)
    car.field.add(name="fuel", number=4, type=F.TYPE_ENUM, type_name=".acme.Fuel", label=1)
    car.field.add(
        name="price", number=5, type=F.TYPE_DOUBLE, label=1, oneof_index=0, proto3_optional=True
    )
    car.field.add(name="towed", number=6, type=F.TYPE_MESSAGE, type_name=".acme.Car", label=1)
    car.field.add(
        name="seats", number=7, type=F.TYPE_MESSAGE, type_name=".acme.Car.SeatsEntry", label=3
    )
    return descriptor_pb2.FileDescriptorSet(file=[file])


def car_class() -> Any:
    """The class of Protobuf's own library."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptors().file[0])
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Car"))


CAR = car_class()
cars = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(max_size=5),
        "places": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
        "fuel": st.sampled_from(["NONE", "GAS"]),
        "price": st.none() | st.floats(allow_nan=False),
        "seats": st.dictionaries(st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=1),
    }
)


def vectors() -> tuple[bytes, list[dict[str, str]]]:
    """The descriptors, and what Flink 1.20 wrote: by `ProtobufVectors.java`."""
    text = lzma.decompress((GOLDEN / "vectors" / "protobuf-1.20.jsonl.xz").read_bytes())
    first, *lines = map(json.loads, text.splitlines())
    return bytes.fromhex(first["descriptors"]), lines


EXPECTED: dict[str, Any] = {
    "timestamp": {"seconds": -5, "nanos": 7},
    "nothing": {"seconds": 0, "nanos": 0},
    "duration": {"seconds": 1 << 40, "nanos": 0},
    "text": {"value": "größe ✓"},
    "mask": {"paths": ["a.b", "c"]},
}


@pytest.fixture
def car() -> MessageType:
    """The type of `Car`."""
    # the message has the name that the outer class would have
    types = message_types(descriptors().SerializeToString(), "cars.pb")
    assert list(types) == ["com.acme.CarOuterClass$Car"]
    return types["com.acme.CarOuterClass$Car"]


def test_what_flink_wrote() -> None:
    """Fields of messages, and the same bytes again, behind the class and the reference."""
    descriptors, lines = vectors()
    declare_messages(descriptors)
    assert len(lines) == 8
    for line in lines:
        snapshot = read_serializer_snapshot(DataInput(bytes.fromhex(line["snapshot"])))
        assert isinstance(snapshot, KryoSerializerSnapshot)
        values = snapshot.values(KryoVersion.FLINK_1)
        item = values.read(bytes.fromhex(line["value"]))
        assert item is not None
        assert item.value.hex() == line["message"]
        message = values.classes.messages[line["class"]]
        value = message.read(item.value)
        assert value == EXPECTED.get(line["name"], value)
        assert message.write(value).hex() == line["message"]
        assert values.write(item, KryoVersion.FLINK_1).hex() == line["value"]
        pa.array([value], message.arrow_type).validate(full=True)
    api = next(line for line in lines if line["name"] == "api")
    shown = values.classes.messages["com.google.protobuf.Api"].read(bytes.fromhex(api["message"]))
    assert [method["name"] for method in shown["methods"]] == ["buy", "sell"]
    assert shown["syntax"] == "SYNTAX_PROTO3"


def test_through_the_lake(tmp_path: Path) -> None:
    """A state of messages has columns with `--kryo`; without, it is exact bytes, both ways."""
    descriptors, lines = vectors()
    (tmp_path / "messages.pb").write_bytes(descriptors)
    (line,) = (line for line in lines if line["name"] == "timestamp")
    kryo = read_serializer_snapshot(DataInput(bytes.fromhex(line["snapshot"])))
    rows = pa.table({"key": [1], "value": [bytes.fromhex(line["value"])]})
    state = sl.NewKeyedState("at", rows, value=kryo)
    sl.write_snapshot(tmp_path / "sp", [sl.NewOperator("o", "Long", (state,), parallelism=1)])
    (operator,) = sl.open_snapshot(tmp_path / "sp").operators
    for name, options in (("typed", ("--kryo", tmp_path / "messages.pb")), ("plain", ())):
        lake = ("--lake", tmp_path / name, "--job", "j")
        assert run("import", tmp_path / "sp", *lake, "--snapshot", "s", *options).code == 0
        out = tmp_path / f"out-{name}"
        assert run("export", *lake, "--snapshot", "s", "--to", out, *options).code == 0
        assert entries(out) == entries(tmp_path / "sp")
    query = f'SELECT value.seconds, value.nanos FROM j."{operator.label}".at'
    shown = run("sql", "--lake", tmp_path / "typed", query, "--json")
    assert shown.lines == [{"seconds": -5, "nanos": 7}]


@pytest.mark.parametrize("flipped", range(8))
def test_a_damaged_message(flipped: int, car: MessageType) -> None:
    """Each byte with a flipped bit: a message that is written back, or an error."""
    body = CAR(id=300, name="vw", places=[4, -1], fuel="GAS", price=1.5, seats={"a": 3})
    data = body.SerializeToString(deterministic=True)
    for at in range(len(data)):
        damaged = bytes([*data[:at], data[at] ^ 1 << flipped, *data[at + 1 :]])
        with suppress(UnsupportedFormatError):
            assert car.write(car.read(damaged)) == damaged


@given(cars)
def test_round_trip(fields: dict[str, Any]) -> None:
    """What Protobuf wrote is read with equal values, and written back as the same bytes."""
    (car,) = message_types(descriptors().SerializeToString(), "cars.pb").values()
    message = CAR(**{name: value for name, value in fields.items() if value is not None})
    data = message.SerializeToString(deterministic=True)
    expected = {**fields, "towed": None, "seats": list(fields["seats"].items())}
    assert car.read(data) == expected
    assert car.write(expected) == data


def test_recursive_is_bytes(car: MessageType) -> None:
    """A message within itself stays bytes, which are exact."""
    data = CAR(id=1, towed=CAR(id=2)).SerializeToString()
    assert car.read(data)["towed"] == CAR(id=2).SerializeToString()


@pytest.mark.parametrize(
    "body", [b"\x08\x01\x78\x05", b"\x1a\x05\xff\xff\xff\xff\x7f"], ids=["unknown", "large"]
)
def test_what_would_be_lost_stays_bytes(body: bytes, car: MessageType) -> None:
    """A field that is not described, and a number that does not fit its type."""
    assert car.read(b"\x08\x01")["id"] == 1
    assert car.read(b"\x1a\x05\xff\xff\xff\xff\x07")["places"] == [2**31 - 1]
    with pytest.raises(UnsupportedFormatError):
        car.read(body)


@given(st.binary(max_size=60))
def test_any_bytes(body: bytes) -> None:
    """Whatever is read is written as the same bytes; all else is an error of ours."""
    (car,) = message_types(descriptors().SerializeToString(), "cars.pb").values()
    with suppress(UnsupportedFormatError):
        assert car.write(car.read(body)) == body


def test_no_descriptors() -> None:
    """Refused with the reason: other bytes, an import that is missing, no message."""
    with pytest.raises(EncodeError, match=r"x\.pb: no descriptors"):
        message_types(b"\x0a\x7f", "x.pb")
    with pytest.raises(EncodeError, match="descriptors without a message"):
        message_types(b"", "x.pb")
    lacking = descriptors()
    lacking.file[0].enum_type.pop()
    with pytest.raises(EncodeError, match=r"acme\.Car\.fuel is a \.acme\.Fuel, which is missing"):
        message_types(lacking.SerializeToString(), "x.pb")


def test_messages_that_unfold_without_end_are_bytes_within() -> None:
    """Thirty messages, each of which has the next one ten times: few bytes, 10^30 columns."""
    file = descriptor_pb2.FileDescriptorProto(name="fan.proto", package="fan", syntax="proto3")
    for number in range(30):
        message = file.message_type.add(name=f"M{number}")
        for index in range(10):
            each = message.field.add(name=f"x{index}", number=index + 1, label=F.LABEL_OPTIONAL)
            each.type = F.TYPE_MESSAGE if number < 29 else F.TYPE_INT32
            if number < 29:
                each.type_name = f".fan.M{number + 1}"
    types = message_types(
        descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "fan.pb"
    )
    assert len(types) == 30
    inner = b"\x08\x07"  # x0 of the last message is 7
    for _ in range(29):
        inner = b"\x0a" + bytes([len(inner)]) + inner
    (outermost,) = (each for name, each in types.items() if name.endswith("M0"))
    assert outermost.write(outermost.read(inner)) == inner


@pytest.mark.full
def test_empty_messages_with_many_fields_cost_no_more_than_their_bytes() -> None:
    """Two bytes are a message with a thousand absent fields: so many are left as bytes."""
    file = descriptor_pb2.FileDescriptorProto(name="of.proto", package="p", syntax="proto3")
    holder, wide = file.message_type.add(name="Holder"), file.message_type.add(name="Wide")
    holder.field.add(name="of", number=1, label=3, type=F.TYPE_MESSAGE, type_name=".p.Wide")
    for number in range(1, 1001):
        wide.field.add(name=f"f{number}", number=number, label=1, type=F.TYPE_INT32)
    described = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    message = message_types(described, "wide")["p.Of$Holder"]
    few = b"\n\0" * 60
    assert len(message.read(few)["of"]) == 60
    with pytest.raises(UnsupportedFormatError, match="fields that take no bytes"):
        message.read(few * 1000)


def described(**files: Any) -> descriptor_pb2.FileDescriptorProto:
    """A file without messages."""
    return descriptor_pb2.FileDescriptorProto(name="p.proto", package="p", syntax="proto3", **files)


def field_of(message: Any, name: str, number: int, kind: int = F.TYPE_INT32, **more: Any) -> None:
    """Add a field to a message."""
    message.field.add(name=name, number=number, type=kind, label=more.pop("label", 1), **more)


def entry_of(message: Any, *fields: tuple[str, int, int]) -> None:
    """Add a map with such an entry."""
    entry = message.nested_type.add(name="E")
    entry.options.map_entry = True
    for name, number, kind in fields:
        field_of(entry, name, number, kind)
    field_of(message, "map", 9, F.TYPE_MESSAGE, type_name=".p.M.E", label=3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda m: (field_of(m, "a", 1), field_of(m, "a", 2)), "two fields of one name"),
        (lambda m: (field_of(m, "a", 1), field_of(m, "b", 1)), "two fields of one number"),
        (lambda m: field_of(m, "a", 0), "a has number 0"),
        (lambda m: field_of(m, "a", 2**30), "a has number 1073741824"),
        (lambda m: entry_of(m, ("key", 1, F.TYPE_INT32)), "is no entry of a map"),
        (entry_of, "is no entry of a map"),
        (
            lambda m: entry_of(m, ("key", 1, F.TYPE_BYTES), ("value", 2, F.TYPE_INT32)),
            "is no entry of a map",
        ),
        (
            lambda m: (
                entry_of(m, ("key", 1, F.TYPE_INT32), ("value", 2, F.TYPE_INT32)),
                field_of(m, "one", 10, F.TYPE_MESSAGE, type_name=".p.M.E"),
            ),
            "one is one entry of a map",
        ),
    ],
)  # fmt: skip
def test_descriptors_that_protoc_does_not_write_are_refused(make: Any, says: str) -> None:
    """Not taken for columns in which values would hide each other."""
    file = described()
    make(file.message_type.add(name="M"))
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(EncodeError, match=says):
        message_types(data, "x.pb")


def test_a_type_that_is_not_known_and_a_message_twice_are_refused() -> None:
    """A later Protobuf's type has another encoding; of two messages one would hide."""
    file = described()
    field_of(file.message_type.add(name="M"), "a", 1)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(EncodeError, match="a has type 30, which is not known"):
        message_types(data.replace(b"\x28\x05", b"\x28\x1e"), "x.pb")
    with pytest.raises(EncodeError, match=r"\.p\.M is there twice"):
        message_types(data * 2, "x.pb")


def test_a_negative_value_of_an_enum_has_its_name() -> None:
    """It is ten bytes, in a descriptor as in a message."""
    file = described()
    enum = file.enum_type.add(name="Sign")
    for name, number in (("ZERO", 0), ("MINUS", -1)):
        enum.value.add(name=name, number=number)
    field_of(file.message_type.add(name="M"), "sign", 1, F.TYPE_ENUM, type_name=".p.Sign")
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (message,) = message_types(data, "x.pb").values()
    body = b"\x08" + b"\xff" * 9 + b"\x01"
    assert message.read(body) == {"sign": "MINUS"}
    assert message.write({"sign": "MINUS"}) == body


def test_a_number_beyond_its_type_is_refused() -> None:
    """A float that is too large for four bytes, in an edit."""
    file = described()
    field_of(file.message_type.add(name="M"), "a", 1, F.TYPE_FLOAT)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (message,) = message_types(data, "x.pb").values()
    with pytest.raises(EncodeError, match="too large"):
        message.write({"a": 1e300})


def test_messages_in_a_long_chain_are_read_in_proportion() -> None:
    """Each reaches all behind it, and the last one the first: one cycle of 3,000 messages."""
    file = described()
    for number in range(3000):
        message = file.message_type.add(name=f"M{number}")
        following = f".p.M{(number + 1) % 3000}"
        field_of(message, "next", 1, F.TYPE_MESSAGE, type_name=following)
        field_of(message, "outside", 2, F.TYPE_MESSAGE, type_name=".p.Leaf")
    field_of(file.message_type.add(name="Leaf"), "a", 1)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    types = message_types(data, "x.pb")
    arrow = types["p.P$M7"].arrow_type
    assert arrow == pa.struct([("next", pa.binary()), ("outside", pa.struct([("a", pa.int32())]))])


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_descriptors(at: int, byte: int) -> None:
    """Of real classes, with one byte changed: types whose values come back, or an error."""
    data = bytearray(vectors()[0])
    data[at % len(data)] = byte
    try:
        types = message_types(bytes(data), "x.pb")
    except EncodeError:
        return
    for message in types.values():
        with suppress(UnsupportedFormatError):
            pa.array([message.read(b"")], message.arrow_type).validate(full=True)
