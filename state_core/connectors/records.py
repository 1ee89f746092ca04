"""Records of connectors: the order of the bytes of a value, from which it is read and written.

A record is drawn as its fields, in order::

    record(topic=UTF, partition=INT, offset=optional(LONG))

Lists are an i32 count and the elements; an optional value has a flag before it, true if it is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import (
    BooleanSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from statelake.state_core.serializers.basic.text import ByteArraySerializer, StringSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.composite.structs import ObjectSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, named
from statelake.state_core.serializers.operators.sinks import UtfSerializer

BOOLEAN, SHORT, INT, LONG = (
    BooleanSerializer(), ShortSerializer(), IntSerializer(), LongSerializer(),
)  # fmt: skip
UTF, TEXT, BYTES = UtfSerializer(), StringSerializer(), ByteArraySerializer()


def record(**fields: TypeSerializer) -> ObjectSerializer:
    """Return consecutive fields."""
    return ObjectSerializer("record", list(fields.items()))


def many(element: TypeSerializer) -> ListSerializer:
    """Return an i32 count, and so many elements."""
    return ListSerializer(element)


def optional(value: TypeSerializer, *, null_flag: bool = False) -> NullableSerializer:
    """Return a flag, and a value unless it is that of null."""
    return NullableSerializer(value, null_flag=null_flag)


VERSIONED = record(version=INT, data=BYTES)


class _WrappedValue(TypeSerializer):
    """A value in a form of its own.

    Args:
        value: The serializer of the value.
    """

    name = named("{value}")

    def __init__(self, value: TypeSerializer) -> None:
        self.value = value
        self.arrow_type = value.arrow_type

    def read(self, source: DataInput) -> Any:
        """Read one value."""
        return self.value.read(source)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        self.value.write(value, out)


class Sized(_WrappedValue):
    """An i32 length, and a value of so many bytes."""

    min_length = 4

    def read(self, source: DataInput) -> Any:
        """Read one value, which takes all of its bytes."""
        inner = DataInput(BYTES.read(source))
        value = self.value.read(inner)
        if inner.remaining:
            raise source.fault(f"{inner.remaining} bytes behind a value")
        return value

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        inner = DataOutput()
        self.value.write(value, inner)
        out.write_sized(inner.to_bytes())


class CheckedValue(_WrappedValue):
    """A value that is checked when it is read.

    Args:
        value: The serializer of the value.
        check: Takes a value, and raises `ValueError` if it can't be one.
    """

    def __init__(self, value: TypeSerializer, check: Callable[[Any], object]) -> None:
        super().__init__(value)
        self.check = check

    def read(self, source: DataInput) -> Any:
        """Read one value."""
        value = self.value.read(source)
        try:
            self.check(value)
        except ValueError as error:
            raise source.fault(str(error)) from error
        return value


class Code(_WrappedValue):
    """A number that stands for a value.

    Args:
        values: The values by their numbers, or in the order of their numbers from 0 on.
        number: The serializer of the number.
        others: Whether all other numbers stand for themselves; they are refused if not.
    """

    def __init__(
        self,
        values: Mapping[int, object] | Sequence[object],
        number: TypeSerializer = INT,
        *,
        others: bool = False,
    ) -> None:
        super().__init__(number)
        self.values = values if isinstance(values, Mapping) else dict(enumerate(values))
        self.numbers = {value: number for number, value in self.values.items()}
        self.others = others

    def read(self, source: DataInput) -> Any:
        """Read one value."""
        number = self.value.read(source)
        if number in self.values or self.others:
            return self.values.get(number, number)
        raise source.fault(f"number {number}, not one of {', '.join(map(str, self.values))}")

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one value."""
        if value not in self.numbers and not self.others:
            raise EncodeError(f"{value!r} has no number here")
        self.value.write(self.numbers.get(value, value), out)


def among(*numbers: int) -> Code:
    """Return an i32 that is one of some numbers."""
    return Code({number: number for number in numbers})


class VersionedList(TypeSerializer):
    """A list with the version of its elements: a pair of the version and the list.

    Args:
        elements: The elements by their versions.
        first: Whether the version is before the count, not behind it.
    """

    name = "list"
    min_length = 8

    def __init__(self, elements: Mapping[int, TypeSerializer], *, first: bool = False) -> None:
        self.lists = {version: many(element) for version, element in elements.items()}
        self.version = among(*elements)
        self.first = first
        self.arrow_type = next(iter(self.lists.values())).arrow_type

    def read(self, source: DataInput) -> tuple[int, list[Any]]:
        """Read one list."""
        if self.first:
            version = self.version.read(source)
            return version, self.lists[version].read(source)
        count, version = source.read_int(), self.version.read(source)
        element = self.lists[version].element
        if not 0 <= count * element.min_length <= source.remaining:
            raise source.fault(f"{count} elements")
        source.declare(count)
        return version, [element.read(source) for _ in range(count)]

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one list."""
        version, elements = value
        numbers = [len(elements), version]
        for number in reversed(numbers) if self.first else numbers:
            out.write_int(number)
        for element in elements:
            self.lists[version].element.write(element, out)


def later(fields: Mapping[str, TypeSerializer], lengths: Collection[int]) -> list[ObjectSerializer]:
    """Return the records of several versions, each of which has more of the fields."""
    return [record(**dict(list(fields.items())[:length])) for length in lengths]
