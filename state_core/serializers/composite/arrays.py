"""Arrays and sets: a count, then the elements.

Primitive arrays and `String[]` have only their elements; an array of objects has a flag before
each, false for null; so does a `Set`, with true for null.

Source: the serializers in `org.apache.flink.api.common.typeutils.base.array`,
`GenericArraySerializer`, `SetSerializer`, `org.apache.flink.runtime.state.ArrayListSerializer`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import Self

from statelake.state_core.serializers.basic.numbers import NUMBERS
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.composite.collections import (
    ListSerializer,
    ListSerializerSnapshot,
)
from statelake.state_core.serializers.composite.evolution import ElementRule, evolves
from statelake.state_core.serializers.composite.optionals import NullableSerializer
from statelake.state_core.serializers.framework.base import (
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
    to_int32,
)
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
)
from statelake.state_core.serializers.framework.registry import register
from statelake.state_core.serializers.framework.snapshots import (
    CompositeTypeSerializerSnapshot,
    WithoutMagicSnapshot,
    composite_snapshot,
    simple_snapshot,
)

BASE = "org.apache.flink.api.common.typeutils.base."


class SimpleArraySerializer(ListSerializer):
    """An array whose class determines the type of its elements."""

    java_name: ClassVar[str]
    element_class: ClassVar[type[TypeSerializer]]
    name = named("{java_name}")

    def __init__(self) -> None:
        super().__init__(self.element_class())

    hash_code = TypeSerializer.hash_code  # unknown: that of an array is its identity


class GenericArraySerializer(ListSerializer):
    """An array of objects, each with a flag before it that is false for null."""

    name = named("{component}[]")

    def __init__(self, component_class: str, component: TypeSerializer) -> None:
        super().__init__(NullableSerializer(component, null_flag=False))
        self.component_class = component_class
        self.component = component

    hash_code = TypeSerializer.hash_code  # unknown: that of an array is its identity


class SetSerializer(ListSerializer):
    """A `Set`, each element with a flag before it that is true for null."""

    name = named("Set<{value}>")

    def __init__(self, value: TypeSerializer) -> None:
        super().__init__(NullableSerializer(value))
        self.value = value

    def hash_code(self, value: Any) -> int:
        """Return the sum of the elements' hash codes."""
        return to_int32(sum(0 if item is None else self.value.hash_code(item) for item in value))


evolves(GenericArraySerializer, SetSerializer)(ElementRule)


def _simple_array(java_name: str, element: type[TypeSerializer], java_class: str) -> None:
    """Make and register an array's serializer and snapshot."""
    kind = type(
        f"{java_class}Serializer",
        (SimpleArraySerializer,),
        {"java_name": java_name, "element_class": element, "__module__": __name__,
         "__doc__": f"`{java_name}`: a count, then the elements."},
    )  # fmt: skip
    name = f"{java_class}Serializer"
    simple_snapshot(f"{BASE}array.{name}${name}Snapshot", kind)


for _name, _element in NUMBERS.items():
    if _name != "Byte":  # byte arrays have their own serializer
        _simple_array(f"{_name.lower()}[]", _element, f"{_name}PrimitiveArray")
_simple_array("String[]", StringSerializer, "StringArray")


@register
class GenericArraySerializerSnapshot(CompositeTypeSerializerSnapshot):
    """`GenericArraySerializerSnapshot`: the component's class, and its snapshot."""

    java_class = f"{BASE}GenericArraySerializerSnapshot"
    arity = 1
    same_bytes = (f"{BASE}GenericArraySerializerConfigSnapshot",)
    outer = ("component_class",)
    component_class: str = ""

    @classmethod
    def of(cls, component_class: str, component: TypeSerializerSnapshot) -> Self:
        """Return the snapshot of a new job's serializer."""
        snapshot = cls.around(component)
        snapshot.component_class = component_class
        return snapshot

    def resolve_outer_schema_compatibility(
        self, old: GenericArraySerializerSnapshot
    ) -> Compatibility:
        """Return as is for the same component class, else incompatible."""
        if self.component_class == old.component_class:
            return as_is()
        return incompatible(
            f"{old.component_class}[]", f"{self.component_class}[]", "the component's class stays"
        )

    @property
    def opaque_name(self) -> str:
        """The class of the array."""
        return f"{self.component_class}[]"

    def compose(self, nested: tuple[TypeSerializer, ...]) -> TypeSerializer:
        """Return the serializer of an array of this component."""
        return GenericArraySerializer(self.component_class, *nested)


SetSerializerSnapshot = composite_snapshot(
    f"{BASE}SetSerializerSnapshot", SetSerializer, arity=1, nested_names=("element",)
)


@register
class ArrayListSerializerSnapshot(ListSerializerSnapshot):
    """`ArrayListSerializerSnapshot`: the bytes are those of a list."""

    java_class = "org.apache.flink.runtime.state.ArrayListSerializerSnapshot"
    nested_names = ("element",)
    same_bytes = (ListSerializerSnapshot.java_class,)


@register
class GenericArraySerializerConfigSnapshot(WithoutMagicSnapshot, GenericArraySerializerSnapshot):
    """`GenericArraySerializerConfigSnapshot`, which Flink 1.7 wrote instead."""

    java_class = f"{BASE}GenericArraySerializerConfigSnapshot"
