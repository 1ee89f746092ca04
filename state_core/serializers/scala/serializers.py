"""Types of Flink's Scala API (flink-scala, up to Flink 1.20).

A case class is a struct `f0`, `f1`, ... (a snapshot has no names of fields), an `Option` its value
or null, an `Either` like Java's, a `Try` the same with Kryo's bytes of the exception, and any
collection, maps too, a list of its elements.

Keys of Scala jobs are assigned to key groups by Scala's hash codes of tuples. In these, equal
numbers of different types have the same hash code: 1, 1L and 1.0.

Source: `org.apache.flink.api.scala.typeutils`; `scala.util.hashing.MurmurHash3.productHash` and
`scala.runtime.Statics.anyHash` of Scala 2.12.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.basic.numbers import (
    DoubleSerializer,
    FloatSerializer,
    LongSerializer,
)
from statelake.state_core.serializers.basic.values import ConstantSerializer
from statelake.state_core.serializers.composite.arrays import GenericArraySerializer
from statelake.state_core.serializers.composite.evolution import (
    ElementRule,
    LabelledRule,
    PositionRule,
    ValueRule,
    evolves,
)
from statelake.state_core.serializers.composite.optionals import (
    EitherSerializer,
    NullableSerializer,
)
from statelake.state_core.serializers.composite.structs import TupleSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, named, to_int32
from statelake.state_core.serializers.framework.columns import I32Array
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    composite_snapshot,
    simple_snapshot,
)

TUPLE = re.compile(r"scala\.Tuple\d+(\$mc\w+\$sp)?")
NUMBERS = (LongSerializer, FloatSerializer, DoubleSerializer)
PRODUCT_SEED = 0xCAFEBABE
MASK = 0xFFFFFFFF
LONGS = -(1 << 63), (1 << 63) - 1
SCALA = "org.apache.flink.api.scala.typeutils."


class CaseClassSerializer(TupleSerializer):
    """A case class or a Scala tuple: its fields, consecutively.

    Args:
        case_class: Its Java class.
        elements: The fields' serializers.
    """

    name = named("{case_class}<{part_names}>")

    def __init__(self, case_class: str, elements: list[TypeSerializer]) -> None:
        super().__init__(elements)
        self.case_class = case_class

    hash_codes = TypeSerializer.hash_codes

    def _combined(self, codes: Iterable[int]) -> int:
        """Return the hash code of a Scala tuple; raise for a case class with its own."""
        if not TUPLE.fullmatch(self.case_class):
            return TypeSerializer.hash_code(self, None)
        return product_hash([*codes])

    def _field_code(self, part: TypeSerializer, value: Any) -> int:
        """Return Scala's hash code of a field."""
        if type(part) in NUMBERS:
            return number_hash(part, value)
        if value is None and not isinstance(part, OptionSerializer):
            return 0
        return part.hash_code(value)

    def _field_code_at(self, part: TypeSerializer, source: DataInput) -> int:
        """Return Scala's hash code of the next field, from its bytes."""
        if type(part) in NUMBERS:
            return number_hash(part, part.read(source))
        return part.hash_code_at(source)


def product_hash(codes: Sequence[int], *prefix: int) -> int:
    """Return the hash code of a Scala tuple with fields of these hash codes.

    Since Scala 2.13 the hash code of the class's name is mixed in before.
    """
    code = PRODUCT_SEED
    for field_hash in (*prefix, *codes):
        code ^= _rotated(field_hash * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        code = _rotated(code, 13) * 5 + 0xE6546B64 & MASK
    code ^= len(codes)
    code = (code ^ code >> 16) * 0x85EBCA6B & MASK
    code = (code ^ code >> 13) * 0xC2B2AE35 & MASK
    return to_int32(code ^ code >> 16)


def number_hash(serializer: TypeSerializer, value: Any) -> int:
    """Return the Scala hash code of a Long, Float or Double."""
    if isinstance(value, int):
        return _long_hash(value)
    if math.isfinite(value):
        integer = min(max(int(value), LONGS[0]), LONGS[1])  # as in a cast to long
        if float(integer) == value:
            return _long_hash(integer)
    if isinstance(serializer, DoubleSerializer) and _is_float(value):
        return FloatSerializer().hash_code(value)
    return serializer.hash_code(value)


def _long_hash(value: int) -> int:
    return value if to_int32(value) == value else LongSerializer().hash_code(value)


def _is_float(value: float) -> bool:
    """Return whether a float holds exactly this value; false for NaN, which equals nothing."""
    try:
        (rounded,) = struct.unpack(">f", struct.pack(">f", value))
    except OverflowError:
        return False
    return bool(rounded == value)


def _rotated(code: int, by: int) -> int:
    return (code << by | code >> 32 - by) & MASK


class OptionSerializer(NullableSerializer):
    """`Option`: a flag that is true for a value, then the value; a null inside is no value.

    The exact bytes of `Some(null)` and `Some(None)` are kept beside the null.
    """

    name = named("Option<{value}>")

    def __init__(self, value: TypeSerializer) -> None:
        super().__init__(value, null_flag=False)

    def hash_code_at(self, source: DataInput) -> int:
        """Raise an error: not even the hash code of `None` can be derived."""
        return self.hash_code(None)

    def hash_codes(self, values: pa.Array) -> I32Array:
        """Raise an error: the hash code can't be derived."""
        self.hash_code(None)
        return super().hash_codes(values)


class TrySerializer(EitherSerializer):
    """`Try`: a flag that is true for success, then the value or the exception.

    An exception is written by Kryo: bytes up to the end of the entry.
    """

    java_name = "Try"
    labels = ("is_success", "value", "failure")

    def __init__(self, value: TypeSerializer, failure: TypeSerializer) -> None:
        super().__init__(value, failure)
        self.self_delimiting = failure.self_delimiting


class TraversableSerializer(GenericArraySerializer):
    """A collection: a count, then each element behind a flag that is false for null."""

    name = named("TraversableOnce<{component}>")


class UnitSerializer(ConstantSerializer):
    """`Unit`: one zero byte."""

    java_name, content = "Unit", b"\x00"


class NothingSerializer(TypeSerializer):
    """`Nothing`, the type without values, such as the elements of an empty list."""

    name = "Nothing"
    arrow_type = pa.bool_()

    def read(self, source: DataInput) -> Any:
        """Raise an error: this type has no values."""
        raise source.fault("a value of type Nothing")

    def write(self, value: Any, out: DataOutput) -> None:
        """Raise an error: this type has no values."""
        raise EncodeError(f"{value!r}, and there are no values of type Nothing")


evolves(CaseClassSerializer)(PositionRule)
evolves(OptionSerializer)(ValueRule)
evolves(TrySerializer)(LabelledRule)
evolves(TraversableSerializer)(ElementRule)

simple_snapshot(f"{SCALA}UnitSerializer$UnitSerializerSnapshot", UnitSerializer)
simple_snapshot(f"{SCALA}NothingSerializerSnapshot", NothingSerializer)


class _NamedSnapshot(CompositeTypeSerializerSnapshot):
    """A composite snapshot whose outer payload is a text, which must stay the same."""

    outer_versions = range(1, 3)
    outer = ("text",)
    rule: ClassVar[str]
    text: str = ""

    def resolve_outer_schema_compatibility(self, old: _NamedSnapshot) -> Compatibility:
        """Return as is for the same text, else incompatible."""
        return as_is() if self.text == old.text else incompatible(old.text, self.text, self.rule)


@register
class ScalaCaseClassSerializerSnapshot(_NamedSnapshot):
    """`ScalaCaseClassSerializerSnapshot`: the class, and the snapshots of the fields."""

    java_class = f"{SCALA}ScalaCaseClassSerializerSnapshot"
    unnamed = "f{}"
    rule = "the case class is another one"

    @property
    def opaque_name(self) -> str:
        """The case class."""
        return self.text

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a case class; one of bytes if it has no fields."""
        if not nested:
            return OpaqueSerializer(self.text)
        return CaseClassSerializer(self.text, list(nested))


@register
class Tuple2CaseClassSerializerSnapshot(ScalaCaseClassSerializerSnapshot):
    """`Tuple2CaseClassSerializerSnapshot`, for `scala.Tuple2` and its specialized subclasses."""

    java_class = f"{SCALA}Tuple2CaseClassSerializerSnapshot"
    arity = 2


@register
class TraversableSerializerSnapshot(_NamedSnapshot):
    """`TraversableSerializerSnapshot`: the code that builds the collection, and the element."""

    java_class = f"{SCALA}TraversableSerializerSnapshot"
    arity = 1
    nested_names = ("element",)
    opaque_name = "scala.collection.TraversableOnce"
    rule = "the collection is built by other code"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of a collection of these elements."""
        return TraversableSerializer(self.text, *nested)


composite_snapshot(
    f"{SCALA}ScalaOptionSerializerSnapshot",
    OptionSerializer,
    arity=1,
    nested_names=("value",),
    opaque_name="scala.Option",
    outer_versions=range(1, 3),
)
composite_snapshot(
    f"{SCALA}ScalaEitherSerializerSnapshot",
    EitherSerializer,
    arity=2,
    nested_names=("left", "right"),
    opaque_name="scala.util.Either",
)
composite_snapshot(
    f"{SCALA}ScalaTrySerializerSnapshot",
    TrySerializer,
    arity=2,
    nested_names=("value", "failure"),
    delimited=slice(1),
    opaque_name="scala.util.Try",
    outer_versions=range(1, 3),
)
