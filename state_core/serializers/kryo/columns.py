"""Objects as Arrow's values, and back.

A class with known fields or elements is a struct, a list or a map; a value of any type is JSON. A
collection or a map is written back as the usual class (`ArrayList`, `HashSet`, `HashMap`) if its
field's type is an interface; if it was another class, its bytes stay beside the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.bounds import COLUMN_NESTING
from statelake.state_core.errors import EncodeError, UnsupportedFormatError
from statelake.state_core.nested import column_names, elements_of, struct_of
from statelake.state_core.serializers.composite.collections import (
    entries_of,
    list_array,
    offsets_of,
)
from statelake.state_core.serializers.framework.columns import (
    I64Array,
)
from statelake.state_core.serializers.kryo.containers import MapForm
from statelake.state_core.serializers.kryo.graph import Classes, Item
from statelake.state_core.serializers.kryo.java_types import PRIMITIVES, JavaType, component_of
from statelake.state_core.serializers.kryo.json_values import (
    JsonValues,
    json_of,
    plan_of_json,
)
from statelake.state_core.serializers.kryo.objects import (
    EnumForm,
    FieldForm,
    GenericForm,
    in_java_order,
)
from statelake.state_core.serializers.kryo.protobuf import MessageType
from statelake.state_core.serializers.kryo.scalars import (
    SCALARS,
    Scalar,
    ScalarColumn,
    keep_value,
    not_for,
    not_null,
    present_mask,
    show_value,
)
from statelake.state_core.serializers.kryo.tables import (
    LISTS,
    MAPS,
    MarkedTable,
    PlacedTable,
    TablePlan,
)

# the written class for a field whose type is an interface
_USUAL = {
    "List": "ArrayList", "Collection": "ArrayList", "Set": "HashSet", "Map": "HashMap",
    "SortedSet": "TreeSet", "NavigableSet": "TreeSet", "SortedMap": "TreeMap",
    "NavigableMap": "TreeMap", "Queue": "LinkedList", "Deque": "ArrayDeque",
}  # fmt: skip
_USUAL = {f"java.util.{name}": f"java.util.{usual}" for name, usual in _USUAL.items()}
_MAPS = {f"java.util.{name}" for name in (
    "Map", "HashMap", "LinkedHashMap", "TreeMap", "SortedMap", "NavigableMap", "Hashtable",
    "concurrent.ConcurrentHashMap", "concurrent.ConcurrentSkipListMap",
)}  # fmt: skip


@dataclass(frozen=True)
class EnumColumn(ScalarColumn):
    """Constants of an enum, including those with their own class."""

    java_class: str
    classes: Classes
    arrow_type = pa.string()

    def to_arrow(self, value: Any) -> Any:
        """Show the constant's name."""
        if value is None:
            return None
        if self.classes.enum_of(value.java_class) != self.java_class:
            raise not_for(value, self.java_class)
        return value.value

    def from_arrow(self, value: Any) -> Any:
        """Return the item."""
        return None if value is None else Item(self.java_class, value)

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many constants."""
        right = table.of_class(lines, self.java_class)
        places = np.where(right, table.parts.number[lines] - 1, 0)
        return self._constants.take(pa.array(places, mask=~right))

    @property
    def _constants(self) -> pa.Array:
        """The names of the constants, in order."""
        form = self.classes.form_of(self.java_class)
        return pa.array(form.constants if isinstance(form, EnumForm) else (), pa.string())

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many constants are written."""
        numbers = pc.index_in(values, value_set=self._constants)
        if numbers.null_count != values.null_count:
            raise EncodeError(f"no constant of {self.java_class}")
        rows = np.flatnonzero(present_mask(values))
        ids = numbers.fill_null(0).to_numpy()[rows].astype(np.int64) + 1

        def place(table: PlacedTable, lines: I64Array) -> None:
            table.put(lines[rows], self.java_class, ids)

        return TablePlan(np.ones(len(values), np.int64), place)


@dataclass(frozen=True)
class _Primitive(ScalarColumn):
    """Primitives in an object's fields and in arrays, which are not items."""

    box: Scalar

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the boxed number."""
        return self.box.arrow_type

    def to_arrow(self, value: Any) -> Any:
        """Show the number."""
        return show_value(self.box.show, value)

    def from_arrow(self, value: Any) -> Any:
        """Return the number."""
        if value is None:
            raise EncodeError(f"null for a primitive of {self.box.java_class}")
        return keep_value(self.box.keep, value)

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many numbers."""
        return self.box.many(table, lines)

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many numbers are written."""
        if values.null_count:
            raise EncodeError(f"null for a primitive of {self.box.java_class}")
        return self.box.plan(values)


class JsonColumn(ScalarColumn):
    """Values of any class, as JSON."""

    arrow_type = pa.string()
    closed = False

    def __init__(self, classes: Classes) -> None:
        self.classes = classes

    def to_arrow(self, value: Any) -> Any:
        """Return the item as JSON."""
        return None if value is None else JsonValues(self.classes).text(value)

    def from_arrow(self, value: Any) -> Any:
        """Return the item of a JSON text."""
        return None if value is None else JsonValues(self.classes).item(str(value))

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the JSON of many objects, if they are of the usual classes."""
        return json_of(table, lines)

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which values of the usual classes are written."""
        return plan_of_json(values)


@dataclass(frozen=True)
class _Message(ScalarColumn):
    """Protobuf messages, field by field."""

    java_class: str
    message: MessageType

    @property
    def arrow_type(self) -> pa.DataType:
        """A struct."""
        return self.message.arrow_type

    def to_arrow(self, value: Any) -> Any:
        """Show the message."""
        if value is None:
            return None
        if value.java_class != self.java_class:
            raise not_for(value, self.java_class)
        return self.message.read(value.value)

    def from_arrow(self, value: Any) -> Any:
        """Return the item."""
        return None if value is None else Item(self.java_class, self.message.write(value))


@dataclass(frozen=True)
class ListColumn(ScalarColumn):
    """Collections, and arrays.

    Attributes:
        java_class: The class that is written; empty for any.
        element: The column of the elements.
        forms: The forms of kernels that it holds.
    """

    java_class: str
    element: ScalarColumn
    forms: frozenset[int] = LISTS

    @property
    def arrow_type(self) -> pa.DataType:
        """A list."""
        return pa.list_(self.element.arrow_type)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether the elements' type determines all nested values."""
        return self.element.closed

    def to_arrow(self, value: Any) -> Any:
        """Show the elements."""
        if value is None:
            return None
        if not isinstance(value.value, list):
            raise not_for(value, self.java_class or "a collection")
        of_objects = not isinstance(self.element, _Primitive)
        if any(isinstance(each, Item) != of_objects for each in value.value if each is not None):
            raise not_for(value, self.java_class or "a collection")
        return [self.element.to_arrow(element) for element in value.value]

    def from_arrow(self, value: Any) -> Any:
        """Return the items."""
        if value is None:
            return None
        return Item(self.java_class, [self.element.from_arrow(element) for element in value])

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many collections."""
        lines = table.of_forms(lines, self.forms, self.java_class)
        counts, elements = table.parts.elements(lines, self.forms)
        items = self.element.many(table, elements)
        return list_array(self.arrow_type, offsets_of(counts), table.present(lines), items)

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many collections are written."""
        if isinstance(self.element, _Primitive):
            raise EncodeError("an array of numbers, which is written by itself")
        present = present_mask(values)
        first, items = elements_of(values, present.astype(np.uint8))
        inner, counts = self.element.plan(items), np.diff(first)
        if self.java_class == "java.util.Optional" and (counts[present] != 1).any():
            raise EncodeError("an Optional without its value")
        before = offsets_of(inner.sizes)

        def place(table: PlacedTable, lines: I64Array) -> None:
            table.put(lines[present], self.java_class, counts[present])
            inner.place(table, _spread(lines + 1, first, before))

        return TablePlan(1 + before[first[1:]] - before[first[:-1]], place)


@dataclass(frozen=True)
class MapColumn(ScalarColumn):
    """Maps.

    Attributes:
        java_class: The class that is written; empty for any.
        key: The column of the keys.
        value: The column of the values.
    """

    java_class: str
    key: ScalarColumn
    value: ScalarColumn

    @property
    def arrow_type(self) -> pa.DataType:
        """A map."""
        return pa.map_(self.key.arrow_type, self.value.arrow_type)

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether the types of keys and values determine all nested values."""
        return self.key.closed and self.value.closed

    def to_arrow(self, value: Any) -> Any:
        """Show the entries."""
        if value is None:
            return None
        pairs = self.pairs(value)
        if any(key is None for key, _ in pairs):
            raise UnsupportedFormatError("a null key, which no column of maps holds")
        return pairs

    def pairs(self, item: Item) -> list[tuple[Any, Any]]:
        """Return the entries of a map, of which a key may be null."""
        if not isinstance(item.value, list) or not all(
            isinstance(pair, tuple) for pair in item.value
        ):
            raise not_for(item, self.java_class or "a map")
        return [(self.key.to_arrow(key), self.value.to_arrow(value)) for key, value in item.value]

    def from_arrow(self, value: Any) -> Any:
        """Return the items."""
        if value is None:
            return None
        pairs = [(self.key.from_arrow(key), self.value.from_arrow(item)) for key, item in value]
        return Item(self.java_class, pairs)

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many maps."""
        lines = table.of_forms(lines, MAPS, self.java_class)
        counts, keys, values = table.parts.entries(lines)
        key, kind = self.key.many(table, keys), self.arrow_type
        if key.null_count:
            raise EncodeError("a key that is null, or in no column")
        entries = pa.StructArray.from_arrays(
            [key, self.value.many(table, values)], fields=[kind.key_field, kind.item_field]
        )
        return list_array(kind, offsets_of(counts), table.present(lines), entries)

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many maps are written."""
        present = present_mask(values)
        first, keys, items = entries_of(values, present.astype(np.uint8))
        key, value, counts = self.key.plan(keys), self.value.plan(items), np.diff(first)
        before = offsets_of(key.sizes + value.sizes)

        def place(table: PlacedTable, lines: I64Array) -> None:
            table.put(lines[present], self.java_class, counts[present])
            entries = _spread(lines + 1, first, before)
            key.place(table, entries)
            value.place(table, entries + key.sizes)

        return TablePlan(1 + before[first[1:]] - before[first[:-1]], place)


@dataclass(frozen=True)
class StructColumn(ScalarColumn):
    """Objects with fields."""

    java_class: str
    names: tuple[str, ...]  # of the fields in Java
    fields: dict[str, ScalarColumn]  # by their columns
    by_kernels: bool = True

    @property
    def arrow_type(self) -> pa.DataType:
        """A struct."""
        return struct_of(self.names, (child.arrow_type for child in self.fields.values()))

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Return whether the types of the fields determine all nested values."""
        return all(field.closed for field in self.fields.values())

    def to_arrow(self, value: Any) -> Any:
        """Show the fields."""
        if value is None:
            return None
        if value.java_class != self.java_class:
            raise not_for(value, self.java_class)
        return {
            called: column.to_arrow(value.value[name])
            for name, (called, column) in zip(self.names, self.fields.items(), strict=True)
        }

    def from_arrow(self, value: Any) -> Any:
        """Return the items."""
        if value is None:
            return None
        fields = {
            name: column.from_arrow(value.get(called))
            for name, (called, column) in zip(self.names, self.fields.items(), strict=True)
        }
        return Item(self.java_class, fields)

    def many(self, table: MarkedTable, lines: I64Array) -> pa.Array:
        """Return the column of many objects."""
        right = table.of_class(lines, self.java_class)
        present = lines[right]
        if not present.size:
            return pa.nulls(len(lines), self.arrow_type)
        fields = table.parts.fields(present, self.java_class)
        columns = [
            column.many(table, fields[name])
            for name, column in zip(self.names, self.fields.values(), strict=True)
        ]
        structs = pa.StructArray.from_arrays(columns, fields=list(self.arrow_type))
        if right.all():
            return structs
        places = np.where(right, np.cumsum(right) - 1, 0)
        return structs.take(pa.array(places, mask=~right))

    def plan(self, values: pa.Array) -> TablePlan:
        """Return the plan by which many objects are written."""
        if not self.by_kernels:
            raise EncodeError(f"a {self.java_class}, which is written by itself")
        rows, present = not_null(values)
        called = dict(zip(self.names, self.fields, strict=True))
        columns = [called[name] for name in in_java_order(self.names)]
        plans = [self.fields[column].plan(present.field(column)) for column in columns]
        sizes = np.ones(len(values), np.int64)
        for plan in plans:
            sizes[rows] += plan.sizes

        def place(table: PlacedTable, lines: I64Array) -> None:
            table.put(lines[rows], self.java_class)
            at = lines[rows] + 1
            for plan in plans:
                plan.place(table, at)
                at = at + plan.sizes

        return TablePlan(sizes, place)


def _spread(lines: I64Array, first: I64Array, before: I64Array) -> I64Array:
    """Return the first line of each element of some collections.

    Args:
        lines: The line of the first element of each collection.
        first: The number of elements before those of each collection, and of all.
        before: The number of lines that all elements before each take.
    """
    spread: I64Array = np.repeat(lines - before[first[:-1]], np.diff(first)) + before[:-1]
    return spread


def column_of(
    kind: JavaType, classes: Classes, within: tuple[str, ...] = (), levels: int = 1
) -> ScalarColumn:
    """Return the column of a type.

    Args:
        kind: The type.
        classes: The known classes.
        within: The classes that contain it: a class that contains itself is JSON there.
        levels: The depth of the column; a deeper one than tables allow is JSON.
    """
    if levels >= COLUMN_NESTING.most:
        return JsonColumn(classes)
    if kind.name in PRIMITIVES:
        return _Primitive(Scalar(kind.box, *SCALARS[kind.box]))
    if kind.name in classes.messages and kind.name in classes.forms:
        return _Message(kind.name, classes.messages[kind.name])
    if kind.name in classes.enums:
        return EnumColumn(kind.name, classes)
    form = classes.forms.get(kind.name)
    if isinstance(form, FieldForm) and form.fields and kind.name not in within:
        typed = form.typed(kind.arguments) if isinstance(form, GenericForm) else form
        deeper = (*within, kind.name)
        names = tuple(typed.fields)
        columns = [column_of(field, classes, deeper, levels + 1) for field in typed.fields.values()]
        fields = dict(zip(column_names(names), columns, strict=True))
        return StructColumn(kind.name, names, fields, type(form) is FieldForm)
    if kind.name in SCALARS:
        return Scalar(kind.name, *SCALARS[kind.name])
    if kind.name.startswith("["):
        element = JavaType(component_of(kind.name))
        return ListColumn(kind.name, column_of(element, classes, within, levels + 1))
    nested = [column_of(argument, classes, within, levels + 1) for argument in kind.arguments]
    if len(nested) == 2 and kind.name in _MAPS:
        return MapColumn(_USUAL.get(kind.name, kind.name), *nested)
    usual = _USUAL.get(kind.name, kind.name)
    of_list = classes.forms.get(usual) if kind.name.startswith("java.util.") else None
    is_map = isinstance(of_list, MapForm) or usual.endswith("Map")
    if len(nested) == 1 and of_list is not None and not is_map:
        return ListColumn(usual, nested[0])
    return JsonColumn(classes)
