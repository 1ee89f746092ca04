"""POJOs and Java records: named fields, each of which may be null, and subclasses of them.

A value begins with flags. For the state's own class its fields follow, a null flag before each; for
a subclass a tag or the class name, and then a whole value of the subclass's serializer.

The column is a struct of the class's own fields. A value of a subclass fills those, and its exact
bytes, which have its other fields, are kept beside it. If the snapshot does not describe a subclass
(the heap backend may find one only while it writes), the end of the value is not known: the row is
null, with all its bytes beside it.

Source: `org.apache.flink.api.java.typeutils.runtime.PojoSerializer`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import EncodeError, UnknownEndError
from statelake.state_core.files.wire import DataInput, DataOutput, encode_modified_utf8
from statelake.state_core.kernels import encode, pojo, skip
from statelake.state_core.nested import field_name
from statelake.state_core.serializers.composite.structs import StructSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer, named
from statelake.state_core.serializers.framework.columns import (
    Cursor,
    I32Array,
    I64Array,
    Target,
    U8Array,
    fixed_sizes,
    null_rows,
    written_rows,
)
from statelake.state_core.serializers.framework.layouts import sequence, when

MAX_TAGS = 128


class SubclassValue(dict[str, Any]):
    """A value of a subclass: the fields of the base class, and the subclass's own value.

    Args:
        fields: The fields of the base class.
        java_class: The subclass.
        value: The whole value, from the subclass's serializer.
        tag: The index among the registered subclasses; None if it is written by name.
    """

    __slots__ = ("java_class", "tag", "value")

    def __init__(
        self, fields: Mapping[str, Any], java_class: str, value: Any, tag: int | None
    ) -> None:
        super().__init__(fields)
        self.java_class = java_class
        self.value = value
        self.tag = tag


class PojoSerializer(StructSerializer):
    """A POJO.

    Args:
        java_class: Its class.
        fields: Each field's name and serializer, in the order in which they are written.
        registered: Each registered subclass and its serializer, by tag; None for a serializer
            that could not be restored.
        non_registered: Each subclass that is written by name, with its serializer or None.
        boxed: Fields that are `Integer` rather than `int`, and so on. Snapshots do not contain it;
            it matters only for new fields.
    """

    min_length = 1
    name = named("{java_class}")

    def __init__(
        self,
        java_class: str,
        fields: list[tuple[str, TypeSerializer]],
        registered: Mapping[str, TypeSerializer | None] | None = None,
        non_registered: Mapping[str, TypeSerializer | None] | None = None,
        boxed: Collection[str] = (),
    ) -> None:
        super().__init__(fields)
        self.java_class = java_class
        self.registered = dict(registered or {})
        self.non_registered = dict(non_registered or {})
        self.boxed = frozenset(boxed)
        if len(self.registered) > MAX_TAGS:
            raise EncodeError(f"{java_class} with more than {MAX_TAGS} registered subclasses")

    # ------------------------------------------------------------------- a value at a time

    def read(self, source: DataInput) -> dict[str, Any] | None:
        """Read one POJO: a dict of its fields, a `SubclassValue`, or None."""
        flags = source.read_unsigned_byte()
        if flags & skip.IS_NULL:
            return None
        if flags & skip.IS_SUBCLASS:
            java_class = source.read_utf()
            return self._read_subclass(java_class, None, self.subclass(java_class), source)
        if flags & skip.IS_TAGGED:
            tag = source.read_unsigned_byte()
            if tag >= len(self.registered):
                raise source.fault(f"subclass {tag} of {self.java_class}, which has not so many")
            java_class, serializer = list(self.registered.items())[tag]
            return self._read_subclass(java_class, tag, serializer, source)
        if not flags & skip.IS_EXACT:
            raise source.fault(f"a {self.java_class} with flags {flags}")
        return {
            name: None if source.read_boolean() else field_serializer.read(source)
            for name, field_serializer in self.fields
        }

    def subclass(self, java_class: str, tag: int | None = None) -> TypeSerializer | None:
        """Return the serializer of a subclass, by tag or name; None if it is not known."""
        if tag is not None:
            return self.registered.get(java_class)
        return self.non_registered.get(java_class, self.registered.get(java_class))

    def _read_subclass(
        self, java_class: str, tag: int | None, serializer: TypeSerializer | None, source: DataInput
    ) -> SubclassValue:
        if serializer is None or not serializer.self_delimiting:
            raise UnknownEndError(
                f"a {java_class}, of which the snapshot of {self.java_class} says nothing",
                place=source.place,
                remedy="register the subclass in the job and take a new savepoint",
            )
        value = serializer.read(source)
        source.has_more = True
        fields = named_values(serializer, value)
        own = {
            column: fields.get(name)
            for name, (column, _) in zip(self.names, self.fields, strict=True)
        }
        return SubclassValue(own, java_class, value, tag)

    def write(self, value: Any, out: DataOutput) -> None:
        """Write one POJO, from a dict of its fields, a `SubclassValue`, or None."""
        if value is None:
            out.write_byte(skip.IS_NULL)
        elif isinstance(value, SubclassValue):
            self._write_subclass(value, out)
        else:
            out.write_byte(skip.IS_EXACT)
            for (_, serializer), field_value in zip(
                self.fields, self._by_position(value), strict=True
            ):
                out.write_boolean(field_value is None)
                if field_value is not None:
                    serializer.write(field_value, out)

    def _write_subclass(self, value: SubclassValue, out: DataOutput) -> None:
        tagged = value.tag is not None and value.tag < len(self.registered)
        java_class = value.java_class
        serializer = self.subclass(java_class, value.tag if tagged else None)
        if serializer is None or not serializer.self_delimiting:
            raise EncodeError(f"{self.java_class} does not know its subclass {java_class}")
        if tagged:
            out.write_byte(skip.IS_TAGGED)
            out.write_byte(list(self.registered).index(java_class))
        else:
            out.write_byte(skip.IS_SUBCLASS)
            out.write_utf(java_class)
        serializer.write(value.value, out)

    def skip_program(self) -> tuple[int, ...] | None:
        """Return the program that walks null flags and fields, and those of the subclasses."""
        own = sequence(*(when(serializer) for _, serializer in self.fields)).skip_program()
        if own is None:
            return None
        bodies = [own, *(_program(subclass) for subclass in self._subclasses)]
        names = [encode_modified_utf8(name) for name in self._names]
        indexes = [
            word
            for name, index in zip(names, self._names.values(), strict=True)
            for word in (1 + index, len(name))
        ]
        words = [word for part in (*bodies, *names) for word in part]
        counts = (len(self.registered), len(bodies), len(names))
        return (skip.POJO, *counts, *map(len, bodies), *indexes, *words)

    @property
    def _subclasses(self) -> list[TypeSerializer | None]:
        """The serializers of the known subclasses, those with tags first."""
        return [*self.registered.values(), *self.non_registered.values()]

    @cached_property
    def _names(self) -> dict[str, int]:
        """Each class that may be written by name, with its index among the subclasses."""
        classes = [*self.registered, *self.non_registered]
        return {name: index for index, name in enumerate(classes)}

    @cached_property
    def _name_table(self) -> tuple[I32Array, U8Array, I32Array]:
        """Offsets and bytes of those names, and the index of each one's subclass."""
        names = [encode_modified_utf8(name) for name in self._names]
        bounds = np.cumsum([0, *map(len, names)]).astype(np.int32)
        places = np.array(list(self._names.values()), np.int32)
        return bounds, np.frombuffer(b"".join(names), np.uint8), places

    # ------------------------------------------------------------------ a column at a time

    def decode(self, cursor: Cursor) -> pa.Array:
        """Read the flags, then the fields of all rows of this class itself, then each subclass."""
        kind = np.empty(cursor.rows, np.int16)
        nulls, subclasses, unknown = self._read_heads(cursor, kind)
        if unknown:
            cursor.lose(np.flatnonzero(kind == pojo.UNKNOWN))
        within = cursor
        if nulls or subclasses or unknown:
            within = cursor.only((kind == pojo.EXACT).astype(np.uint8))
        columns = [_decode_field(serializer, within) for _, serializer in self.fields]
        if subclasses:
            columns = self._add_subclasses(cursor, kind, columns)
        present = cursor.present
        if nulls:
            valued = (kind >= pojo.EXACT).astype(np.uint8)
            present = valued if present.size == 0 else valued & present
        return self._struct(present, columns, cursor.rows)

    def _read_heads(self, cursor: Cursor, kind: npt.NDArray[np.int16]) -> tuple[int, int, int]:
        totals = np.zeros(3, np.int64)
        failed = pojo.read_heads(
            cursor.data, cursor.position, cursor.end, cursor.present,
            len(self.registered), *self._name_table, kind, cursor.inexact, totals,
        )  # fmt: skip
        cursor.check(failed, f"a {self.java_class}")
        nulls, subclasses, unknown = totals.tolist()
        return nulls, subclasses, unknown

    def _add_subclasses(
        self, cursor: Cursor, kind: npt.NDArray[np.int16], columns: list[pa.Array]
    ) -> list[pa.Array]:
        """Return the field columns, with the rows of subclasses put in their places."""
        parts = [[column] for column in columns]
        take = np.arange(cursor.rows)
        behind = cursor.rows
        subclasses = self._subclasses
        for index in np.unique(kind[kind > pojo.EXACT]).tolist():
            rows = np.flatnonzero(kind == index)
            serializer = subclasses[index - 1]
            if serializer is None or not serializer.self_delimiting:
                cursor.lose(rows)
                continue
            values = _decode_rows(serializer, cursor, rows)
            for part, name, (_, field) in zip(parts, self.names, self.fields, strict=True):
                part.append(_field_of(values, name, field.arrow_type))
            take[rows] = behind + np.arange(len(rows))
            behind += len(rows)
        indices = pa.array(take)
        return [pa.concat_arrays(part).take(indices) for part in parts]

    def sizes(self, values: pa.Array, present: U8Array) -> I64Array:
        """Return the size of the flags, and of the fields of rows that are not null."""
        within = written_rows(values, present)
        sizes = fixed_sizes(len(values), 1, present)
        count = len(self.fields)
        sizes += within * np.int64(count) if within.size else count
        for (_, serializer), column in zip(self.fields, self._columns(values), strict=True):
            sizes += serializer.sizes(column, written_rows(column, within))
        return sizes

    def encode(self, values: pa.Array, target: Target) -> None:
        """Write the flags, then field after field."""
        flags = np.where(null_rows(values), skip.IS_NULL, skip.IS_EXACT).astype(np.uint8)
        encode.write_fixed8(flags, target.present, target.out, target.position)
        within = target.valued(values)
        for part, column in zip(self.parts, self._columns(values), strict=True):
            nulls = null_rows(column).astype(np.uint8)
            encode.write_fixed8(nulls, within.present, within.out, within.position)
            part.encode(column, within.valued(column))


def _decode_field(serializer: TypeSerializer, cursor: Cursor) -> pa.Array:
    """Read a null flag and, unless it is set, a value of every row."""
    null = cursor.read_flags("the null flag of a field")
    within = cursor.only((1 - null).astype(np.uint8)) if null.any() else cursor
    column = serializer.decode(within)
    within.expect_values(column)
    return column


def _decode_rows(
    serializer: TypeSerializer, cursor: Cursor, rows: npt.NDArray[np.intp]
) -> pa.Array:
    """Read some of the rows with another serializer; the cursor moves behind their values."""
    part = Cursor(cursor.data, cursor.position[rows], cursor.end[rows], cursor.place)
    column = serializer.decode(part)
    cursor.position[rows] = part.position
    if part.present.size:
        cursor.lose(rows[part.present == 0])
    return column


def named_values(serializer: TypeSerializer, value: Any) -> Mapping[str, Any]:
    """Return the values of the fields by their names in Flink; empty without fields."""
    if not isinstance(value, dict):
        return {}
    if not isinstance(serializer, StructSerializer):
        return value
    pairs = zip(serializer.names, serializer.fields, strict=True)
    return {name: value.get(column) for name, (column, _) in pairs}


def _field_of(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """Return a field of a struct column; nulls if no field has that name and type."""
    fields = list(values.type) if pa.types.is_struct(values.type) else []
    for index, field in enumerate(fields):
        if field_name(field) == name and field.type == kind:
            return values.field(index)
    return pa.nulls(len(values), kind)


def _program(serializer: TypeSerializer | None) -> tuple[int, ...]:
    """Return a subclass's program; empty if its values can't be walked."""
    program = None if serializer is None else serializer.skip_program()
    return program or ()
