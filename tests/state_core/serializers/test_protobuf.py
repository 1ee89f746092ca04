"""Protobuf messages under Kryo: compared with Protobuf's own Python library."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import EncodeError
from statelake.state_core.serializers.framework.decoders import decoder_of
from statelake.state_core.serializers.protobuf import register_messages

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


def framed(body: bytes) -> bytes:
    """As chill writes a message of fewer than 128 bytes."""
    assert len(body) < 128
    return bytes([len(body)]) + body


@pytest.fixture
def decoder() -> Any:
    """The decoder of `Car`."""
    # the message has the name that the outer class would have
    assert register_messages(descriptors().SerializeToString()) == ("com.acme.CarOuterClass$Car",)
    return decoder_of("com.acme.CarOuterClass$Car")


def test_round_trip(decoder: Any) -> None:
    """What Protobuf wrote is read with equal values, and written back as the same bytes."""

    @given(cars)
    def check(car: dict[str, Any]) -> None:
        message = CAR(**{name: value for name, value in car.items() if value is not None})
        data = framed(message.SerializeToString(deterministic=True))
        expected = {**car, "towed": None, "seats": list(car["seats"].items())}
        assert decoder.decode(data) == expected
        assert decoder.encode(expected) == data
        assert decoder.length(memoryview(data + b"more")) == len(data)

    check()


def test_recursive_is_bytes(decoder: Any) -> None:
    """A message within itself stays bytes, which are exact."""
    data = framed(CAR(id=1, towed=CAR(id=2)).SerializeToString())
    assert decoder.decode(data)["towed"] == CAR(id=2).SerializeToString()


def test_unknown_field_keeps_bytes(decoder: Any) -> None:
    """A value that could not be written back is not decoded."""
    assert decoder.decode(framed(b"\x08\x01")) is not None
    assert decoder.decode(framed(b"\x08\x01\x78\x05")) is None


def test_any_bytes(decoder: Any) -> None:
    """Whatever is decoded encodes to exactly the same bytes; nothing fails."""

    @given(st.binary(max_size=60))
    def check(body: bytes) -> None:
        value = decoder.decode(framed(body))
        assert value is None or decoder.encode(value) == framed(body)

    check()


def test_no_descriptors() -> None:
    """Refused with the reason."""
    with pytest.raises(EncodeError, match="no descriptor set"):
        register_messages(b"\x0a\x7f")


def test_number_too_large_keeps_bytes(decoder: Any) -> None:
    """A number that does not fit the column's type is not decoded."""
    assert decoder.decode(framed(b"\x1a\x05\xff\xff\xff\xff\x07")) is not None  # 2**31 - 1
    assert decoder.decode(framed(b"\x1a\x05\xff\xff\xff\xff\x7f")) is None
