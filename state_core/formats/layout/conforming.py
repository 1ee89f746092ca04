"""A user's column, cast to the type of a state's column without loss.

Integers may be of other widths, strings and lists of Arrow's other layouts, timestamps of other
units; struct fields go by their names, or those of their columns. A text is never parsed to a
number, and a number is never cut to fit.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from statelake.state_core.errors import EncodeError
from statelake.state_core.nested import field_name, is_list, same_lists, struct_column

_FAMILIES = {
    "integer": pa.types.is_integer,
    "float": pa.types.is_floating,
    "decimal": pa.types.is_decimal,
    "string": lambda kind: (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ),
    "binary": lambda kind: (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    ),
    "timestamp": pa.types.is_timestamp,
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "duration": pa.types.is_duration,
}
_WIDER = {("integer", "float"), ("integer", "decimal")}


def conform(column: pa.Array, wanted: pa.DataType, place: str) -> pa.Array:
    """Return the column as another type.

    Args:
        column: The values to convert.
        wanted: The type.
        place: The column's name in messages.

    Raises:
        EncodeError: The column is of another kind, or a value would be changed.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type.equals(wanted):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), wanted)
    if pa.types.is_struct(wanted):
        return _struct(column, wanted, place)
    if pa.types.is_list(wanted):
        return _list(column, wanted, place)
    if pa.types.is_map(wanted):
        return _map(column, wanted, place)
    family, needed = _family(column.type), _family(wanted)
    if not family or (family != needed and (family, needed) not in _WIDER):
        raise _unlike(column.type, wanted, place)
    try:
        converted = column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise EncodeError(f"{error}", place=place, remedy=f"it is to be {wanted}") from error
    if family == "float" and not _same(column, converted.cast(column.type)):
        raise EncodeError(
            f"a {column.type} that {wanted} can't hold", place=place, remedy="round it first"
        )
    return converted


def to_millis(column: pa.Array, place: str) -> pa.Array:
    """Return points in time as milliseconds since 1970: integers as they are, timestamps converted.

    Raises:
        EncodeError: The column is neither, or finer than a millisecond.
    """
    if pa.types.is_timestamp(column.type):
        try:
            return column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise EncodeError(str(error), place=place, remedy="round it to milliseconds") from error
    return conform(column, pa.int64(), place)


def _family(kind: pa.DataType) -> str:
    return next((name for name, is_one in _FAMILIES.items() if is_one(kind)), "")


def _same(left: pa.Array, right: pa.Array) -> bool:
    unequal = pc.and_(pc.not_equal(left, right), pc.invert(pc.is_nan(left)))
    return not pc.any(unequal).as_py()


def _unlike(kind: pa.DataType, target: pa.DataType, place: str) -> EncodeError:
    return EncodeError(f"a column of {kind}", place=place, remedy=f"it is to be {target}")


def _struct(column: pa.Array, target: pa.DataType, place: str) -> pa.Array:
    if not pa.types.is_struct(column.type):
        raise _unlike(column.type, target, place)
    columns = {field_name(field): field.name for field in target}
    names = [columns.get(field.name, field.name) for field in column.type]
    needed = [field.name for field in target]
    if sorted(names) != sorted(needed):
        raise EncodeError(
            f"fields {', '.join(names)}", place=place, remedy=f"give the fields {', '.join(needed)}"
        )
    parts = [
        conform(column.field(names.index(field.name)), field.type, f"{place}.{field.name}")
        for field in target
    ]
    if not parts:
        return pa.array([None if value is None else {} for value in column.to_pylist()], target)
    return struct_column(target, parts, column)


def _list(column: pa.Array, target: pa.DataType, place: str) -> pa.Array:
    kind = column.type
    if not is_list(kind):
        raise _unlike(kind, target, place)
    plain = column.cast(pa.list_(kind.value_type))
    values = conform(plain.values, target.value_type, f"{place} element")
    return same_lists(target, plain, [values])


def _map(column: pa.Array, target: pa.DataType, place: str) -> pa.Array:
    if not pa.types.is_map(column.type):
        raise _unlike(column.type, target, place)
    keys = conform(column.keys, target.key_type, f"{place} key")
    items = conform(column.items, target.item_type, f"{place} value")
    return same_lists(target, column, [keys, items])
