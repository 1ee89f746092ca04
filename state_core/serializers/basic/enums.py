"""Enums: the ordinal that a constant had when the state was written.

The snapshot has the constants in that order, so that a job whose enum was reordered or extended
keeps the old ordinals, with the new constants behind them.

Source: `org.apache.flink.api.common.typeutils.base.EnumSerializer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import Self

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput, check_names
from statelake.state_core.serializers.basic.numbers import IntSerializer
from statelake.state_core.serializers.framework.base import (
    TypeSerializer,
    TypeSerializerSnapshot,
    named,
)
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I64Array,
    Target,
    U8Array,
    require_values,
)
from statelake.state_core.serializers.framework.compatibility import (
    Compatibility,
    as_is,
    incompatible,
    reconfigured,
)
from statelake.state_core.serializers.framework.registry import register

_INT = IntSerializer()


class EnumSerializer(TypeSerializer):
    """An enum's constants, shown by name.

    Args:
        enum_class: Its Java class.
        constants: The names of the constants, by ordinal.

    Attributes:
        word: What a constant is called, for messages.
    """

    word: ClassVar[str] = "constant"
    length = 4
    arrow_type = pa.string()
    name = named("Enum<{enum_class}>")

    def __init__(self, enum_class: str, constants: Iterable[str]) -> None:
        self.enum_class = enum_class
        self.constants = list(constants)
        check_names(dict.fromkeys(self.constants), f"a {self.word} of {enum_class}")

    def read(self, source: DataInput) -> str:
        """Read one constant's name."""
        ordinal = source.read_int()
        if not 0 <= ordinal < len(self.constants):
            raise source.fault(self._no_constant(ordinal))
        return self.constants[ordinal]

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one constant."""
        if value not in self.constants:
            raise EncodeError(f"{value!r} is no {self.word} of {self.enum_class}")
        out.write_int(self.constants.index(value))

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the names of the constants."""
        ordinals = cursor.read_int32(f"an ordinal of {self.enum_class}")
        there = cursor.there
        bad = there & ((ordinals < 0) | (ordinals >= len(self.constants)))
        cursor.refuse(bad, lambda row: self._no_constant(int(ordinals[row])))
        indices = pa.array(ordinals, mask=None if there.all() else ~there)
        return pa.array(self.constants, pa.string()).take(indices)

    def _no_constant(self, ordinal: int) -> str:
        return f"{self.word} {ordinal} of {self.enum_class}, which has {len(self.constants)}"

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return four bytes for every present row."""
        return _INT.sizes(self._ordinals(values, present), present)

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the ordinals of the constants."""
        _INT.encode(self._ordinals(values, target.present), target)

    def _ordinals(self, values: pa.Array, present: U8Array) -> pa.Array:
        require_values(values, present, f"{self.word} of {self.enum_class}")
        ordinals = pc.index_in(values, value_set=pa.array(self.constants, pa.string()))
        unknown = pc.and_(ordinals.is_null(), values.is_valid())
        if present.size:  # what a null struct hides is any text
            unknown = pc.and_(unknown, pa.array(present != 0))
        row = pc.index(unknown, pa.scalar(True)).as_py()
        if row >= 0:
            raise EncodeError(
                f"{values[row].as_py()!r} is no {self.word} of {self.enum_class}",
                remedy=f"it has: {', '.join(self.constants)}",
            )
        return ordinals.fill_null(0)


@register
class EnumSerializerSnapshot(TypeSerializerSnapshot):
    """`EnumSerializer$EnumSerializerSnapshot`: the class and its constants, in order."""

    java_class = "org.apache.flink.api.common.typeutils.base.EnumSerializer$EnumSerializerSnapshot"
    versions = range(2, 4)

    def __init__(self) -> None:
        self.enum_class = ""
        self.constants: tuple[str, ...] = ()

    @classmethod
    def of(cls, enum_class: str, constants: Iterable[str]) -> Self:
        """Return the snapshot of a new job's serializer."""
        snapshot = cls()
        snapshot.enum_class = enum_class
        snapshot.constants = tuple(constants)
        return snapshot

    def read_snapshot(self, version: int, source: DataInput) -> None:
        """Read class, count and names."""
        self.check_version(version, source)
        self.enum_class = source.read_utf()
        count = source.read_members("enum constants", 2)
        self.constants = tuple(source.read_utf() for _ in range(count))
        twice = [name for name, times in Counter(self.constants).items() if times > 1]
        if twice:
            raise source.fault(f"constant {twice[0]!r} of {self.enum_class} a second time")

    def write_snapshot(self, out: DataOutput) -> None:
        """Write class, count and names."""
        out.write_utf(self.enum_class)
        out.write_int(len(self.constants))
        for name in self.constants:
            out.write_utf(name)

    def restore_serializer(self) -> EnumSerializer:
        """Return the serializer with those constants."""
        return EnumSerializer(self.enum_class, self.constants)

    def resolve_schema_compatibility(self, old: TypeSerializerSnapshot) -> Compatibility:
        """Return reconfigured if constants were added or moved; incompatible if one is missing."""
        if not isinstance(old, EnumSerializerSnapshot) or old.enum_class != self.enum_class:
            return incompatible(old.type_name, self.type_name, "the enum class is another one")
        if old.constants == self.constants:
            return as_is()
        before, after = ", ".join(old.constants), ", ".join(self.constants)
        gone = [name for name in old.constants if name not in self.constants]
        if gone:
            rule = f"constants are gone: {', '.join(gone)}"
            return incompatible(before, after, rule)
        new = [name for name in self.constants if name not in old.constants]
        snapshot = type(self).of(self.enum_class, (*old.constants, *new))
        return reconfigured(snapshot, before, after, "old ordinals stay, new constants come behind")
