"""Functions that walk and rebuild nested types and columns of Arrow.

Masks, searches, comparisons and checks all see the same parts of a type or an array: the fields of
a struct, the elements of a list of any layout, the keys and values of a map. The path to a part
consists of steps: a field's name, and `[]` for elements or entries.

A table can't have two columns whose names differ only in case, as fields of a Java class may. Of
`id` and `ID` one keeps its name as a column, and the other gets a number: `ID_2`. The metadata of
the Arrow field has the name in Flink, and so have the columns of tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelake.state_core.errors import PluginError

Steps: TypeAlias = tuple[str, ...]
I64Array: TypeAlias = npt.NDArray[np.int64]

ELEMENTS = "[]"
_LISTS = {
    pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, pa.lib.Type_FIXED_SIZE_LIST, pa.lib.Type_LIST_VIEW,
    pa.lib.Type_LARGE_LIST_VIEW,
}  # fmt: skip
_WITH_OFFSETS = {pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, pa.lib.Type_MAP}


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of any layout; a map is not a list."""
    return kind.id in _LISTS


def parts_of(kind: pa.DataType) -> list[tuple[Steps, pa.Field]]:
    """Return the fields directly below a type, each with the steps to it; empty for a leaf."""
    if pa.types.is_struct(kind):
        return [((field.name,), field) for field in kind]
    if pa.types.is_map(kind):
        return [((ELEMENTS, "key"), kind.key_field), ((ELEMENTS, "value"), kind.item_field)]
    return [((ELEMENTS,), kind.value_field)] if is_list(kind) else []


def leaf_types(kind: pa.DataType) -> Iterator[tuple[Steps, pa.DataType]]:
    """Yield the leaf types of a type, each with the steps to it; a leaf type yields itself."""
    parts = parts_of(kind)
    if not parts and not pa.types.is_struct(kind):
        yield (), kind
    for way, field in parts:
        for steps, leaf in leaf_types(field.type):
            yield (*way, *steps), leaf


def with_types(kind: pa.DataType, kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return a type with other types directly below it, in the order of `parts_of`."""
    fields = [part.with_type(new) for (_, part), new in zip(parts_of(kind), kinds, strict=True)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return (pa.large_list if pa.types.is_large_list(kind) else pa.list_)(fields[0])


class LeafColumn(NamedTuple):
    """The values of a leaf at any depth of a column.

    Attributes:
        steps: The steps to it.
        bounds: For each list or map on the path, from the outermost, the offsets at which the
            elements of each row begin, and the end of the last row's.
        values: The values; those within a null are null, or are left out.
    """

    steps: Steps
    bounds: tuple[I64Array, ...]
    values: pa.Array

    def rows(self, places: I64Array) -> tuple[I64Array, tuple[I64Array, ...]]:
        """Return the rows of some values, and their indexes in each of the lists on the path."""
        indexes: list[I64Array] = []
        for bounds in reversed(self.bounds):
            owners = np.searchsorted(bounds, places, "right") - 1
            indexes.insert(0, places - bounds[owners])
            places = owners
        return places, tuple(indexes)


def leaves(
    array: pa.Array,
    wanted: Callable[[pa.DataType], bool] = lambda _: True,
    steps: Steps = (),
    bounds: tuple[I64Array, ...] = (),
) -> Iterator[LeafColumn]:
    """Yield the leaves of an array.

    Args:
        array: The array.
        wanted: Returns whether to yield leaves of a type.
        steps: The steps to the array.
        bounds: The bounds of the lists around it.
    """
    parts = parts_of(array.type)
    if not parts and wanted(array.type):
        yield LeafColumn(steps, bounds, array)
    if not any(wanted(leaf) for _, field in parts for _, leaf in leaf_types(field.type)):
        return
    first, children = _children(array)
    bounds = bounds if first is None else (*bounds, first)
    for (way, _), child in zip(parts, children, strict=True):
        yield from leaves(child, wanted, (*steps, *way), bounds)


def changed(
    array: pa.Array, change: Callable[[Steps, pa.Array], pa.Array | None], steps: Steps = ()
) -> pa.Array:
    """Return an array of the same type with other values in some of its parts.

    Args:
        array: The array.
        change: Returns the new array at some steps, outermost first; None to walk into that part.
        steps: The steps to the array.
    """
    made = change(steps, array)
    parts = parts_of(array.type)
    if made is not None or not parts:
        return array if made is None else made
    first, children = _children(array)
    ways = zip(parts, children, strict=True)
    new = [changed(child, change, (*steps, *way)) for (way, _), child in ways]
    if first is None:
        return struct_column(array.type, new, array)
    return lists_of(array.type, first, new, array.is_null() if array.null_count else None)


def _children(array: pa.Array) -> tuple[I64Array | None, list[pa.Array]]:
    """Return the bounds of lists or maps, and the arrays directly below an array."""
    if pa.types.is_struct(array.type):
        return None, array.flatten()
    first, elements = elements_of(array)
    return first, elements.flatten() if pa.types.is_map(array.type) else [elements]


def elements_of(
    lists: pa.Array, present: npt.NDArray[np.uint8] | None = None
) -> tuple[I64Array, pa.Array]:
    """Return the bounds of lists or maps, from 0, and their elements, or entries.

    Null rows get no elements, though Arrow allows them; nor do absent ones.

    Args:
        lists: The lists or maps.
        present: One byte a row, 0 for absent rows; of size 0 or None if all are present.
    """
    kind = lists.type
    if kind.id not in _WITH_OFFSETS:
        lists = lists.cast(pa.list_(kind.value_field))
    if not len(lists):
        return np.zeros(1, np.int64), lists.values[:0]
    first: I64Array = lists.offsets.to_numpy().astype(np.int64)
    absent = None if present is None or present.size == 0 else present == 0
    if lists.null_count:
        null = lists.is_null().to_numpy(zero_copy_only=False)
        absent = null if absent is None else null | absent
    if absent is not None and np.diff(first)[absent].any():
        return elements_of(lists.take(pa.array(np.arange(len(lists)), mask=absent)))
    start = int(first[0])
    return first - start, lists.values.slice(start, int(first[-1]) - start)


def lists_of(
    kind: pa.DataType, bounds: I64Array, parts: Sequence[pa.Array], null: pa.Array | None = None
) -> pa.Array:
    """Return lists or maps.

    Args:
        kind: Their type.
        bounds: The offsets at which the elements of each row begin, and the end of the last row's.
        parts: The elements, or the keys and the values.
        null: The null rows; None without null rows.
    """
    plain = kind if pa.types.is_map(kind) else pa.list_(kind.value_field)
    valid = None
    if null is not None:
        bits = np.packbits(~null.to_numpy(zero_copy_only=False), bitorder="little")
        valid = pa.py_buffer(bits)
    buffers = [valid, pa.py_buffer(bounds.astype(np.int32))]
    made = pa.Array.from_buffers(plain, len(bounds) - 1, buffers, children=[_inner(kind, parts)])
    return made if plain == kind else made.cast(kind)


def same_lists(kind: pa.DataType, lists: pa.Array, parts: Sequence[pa.Array]) -> pa.Array:
    """Return lists or maps with the same bounds and nulls, and other content.

    Args:
        kind: Their new type.
        lists: Lists of 32-bit offsets, or maps.
        parts: The new `values`, or the new `keys` and `items`.
    """
    buffers, content = lists.buffers()[:2], _inner(kind, parts)
    return pa.Array.from_buffers(
        kind, len(lists), buffers, lists.null_count, lists.offset, children=[content]
    )


def _inner(kind: pa.DataType, parts: Sequence[pa.Array]) -> pa.Array:
    """Return the elements of lists, or the entries of maps."""
    if not pa.types.is_map(kind):
        return parts[0]
    return pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])


def struct_column(kind: pa.DataType, columns: Sequence[pa.Array], like: pa.Array) -> pa.Array:
    """Return a struct of these columns, null where `like` is null."""
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


LONGEST = 100
FIELD = b"statelake.field"
"""The metadata key of the field's name in Flink, if a column has another name."""
_NOT_PLAIN = re.compile(r"[^\w#@-]+")  # characters that Delta, Spark or a query refuse


def plain_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names that tables and queries accept, all different even without regard to case."""
    unique_names: list[str] = []
    taken: dict[str, int] = {}  # the last number after each name
    for index, name in enumerate(names):
        text = name.encode("utf-8", "replace").decode().replace("$", "")
        plain = _NOT_PLAIN.sub("_", text)[:LONGEST].strip("_") or f"f{index}"
        unique = plain
        while unique.lower() in taken:
            taken[plain.lower()] += 1
            unique = f"{plain}_{taken[plain.lower()]}"
        taken[unique.lower()] = 1
        unique_names.append(unique)
    return tuple(unique_names)


def column_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the column names of fields: their names, all different even without regard to case.

    Of names that differ only in case, the one with the fewest capital letters stays. No new name is
    that of another field. The order of the fields does not matter.
    """
    taken = {name.lower() for name in names}
    if len(taken) == len(names):
        return tuple(names)
    columns: dict[str, str] = {}
    last: dict[str, int] = {}  # the last number after each name in small letters
    for name in sorted(names, key=lambda name: (sum(map(str.isupper, name)), name)):
        column, folded = name, name.lower()
        while folded in last and column.lower() in taken:
            last[folded] += 1
            column = f"{name}_{last[folded]}"
        last.setdefault(folded, 1)
        taken.add(column.lower())
        columns[name] = column
    return tuple(columns[name] for name in names)


def struct_of(names: Sequence[str], kinds: Iterable[pa.DataType]) -> pa.StructType:
    """Return a struct type of fields with these names in Flink, under their column names."""
    return pa.struct(
        [
            pa.field(column, kind, metadata=None if column == name else {FIELD: name})
            for column, name, kind in zip(column_names(names), names, kinds, strict=True)
        ]
    )


def field_name(column: pa.Field) -> str:
    """Return the name in Flink of a column's field."""
    name: bytes = (column.metadata or {}).get(FIELD, column.name.encode())
    return name.decode()


def column_path(kind: pa.DataType, path: str) -> str:
    """Return the column path of a nested field, given names in Flink or names of columns."""
    steps = _fields_at(kind, path)
    return ".".join(name if column is None else column.name for name, column in steps)


def field_path(kind: pa.DataType, path: str) -> str:
    """Return the Flink path of a nested field, given names in Flink or names of columns."""
    steps = _fields_at(kind, path)
    return ".".join(name if column is None else field_name(column) for name, column in steps)


def _fields_at(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.Field | None]]:
    """Yield each name of a path, and its column; None if the type has no such field."""
    for name in path.split("."):
        inner = list(kind) if pa.types.is_struct(kind) else []
        field = next((each for each in inner if field_name(each) == name), None)
        field = field or next((each for each in inner if each.name == name), None)
        yield name, field
        kind = pa.null() if field is None else field.type


def twins(fields: Iterable[pa.Field]) -> tuple[str, ...]:
    """Return the first two names that differ only in case, at any depth; empty without such."""
    taken: dict[str, str] = {}
    for field in fields:
        kind = field.type
        nested = twins([kind.field(index) for index in range(kind.num_fields)])
        if nested:
            return nested
        if field.name.lower() in taken:
            return taken[field.name.lower()], field.name
        taken[field.name.lower()] = field.name
    return ()


def refuse_twins(fields: Iterable[pa.Field], place: str) -> None:
    """Refuse columns whose names differ only in case, as a user's decoder may return them.

    Args:
        fields: The columns.
        place: The place of the columns, for the message.

    Raises:
        PluginError: Two names differ only in case.
    """
    pair = twins(fields)
    if pair:
        raise PluginError(
            f"the fields {pair[0]!r} and {pair[1]!r} differ only in their case, and no table"
            " takes both",
            place=place,
            remedy="have the decoder, or the serializer, of your own give one of them another name",
        )
