"""The form of each logical type in Flink SQL's binary format.

Source: `org.apache.flink.table.data.writer.BinaryWriter`, `InternalSerializers`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from statelake.state_core.serializers.sql.binary.columns import timestamp_type
from statelake.state_core.serializers.sql.binary.sections import (
    ArrayFormat,
    MapFormat,
    ReferenceFormat,
    RowFormat,
    SectionFormat,
)
from statelake.state_core.serializers.sql.binary.slots import (
    BinaryFormat,
    BooleanFormat,
    DateFormat,
    NumberFormat,
    SlotFormat,
    SmallDecimalFormat,
    SmallTimestampFormat,
    StringFormat,
    WideDecimalFormat,
    WideTimestampFormat,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    ArrayType,
    DecimalType,
    DistinctType,
    IntervalType,
    LengthType,
    LogicalType,
    MapType,
    MultisetType,
    RowType,
    SimpleType,
    StructuredType,
    TimestampType,
    TimeType,
)

LONG_DIGITS = 18
MILLI_DIGITS = 3
_PLAIN_NAME = re.compile(r"[^\s ,;{}()=.`\x00-\x1f]+")
_NUMBERS = {
    "TINYINT": (pa.int8(), 1),
    "SMALLINT": (pa.int16(), 2),
    "INTEGER": (pa.int32(), 4),
    "BIGINT": (pa.int64(), 8),
    "FLOAT": (pa.float32(), 4),
    "DOUBLE": (pa.float64(), 8),
    "TIME_WITHOUT_TIME_ZONE": (pa.int32(), 4),
    "INTERVAL_YEAR_MONTH": (pa.int32(), 4),
    "INTERVAL_DAY_TIME": (pa.int64(), 8),
}


def slot_format(type_: LogicalType) -> SlotFormat | None:
    """Return the form of a type in a slot; None if it is not known, or never in state."""
    if isinstance(type_, DistinctType):
        return slot_format(type_.source)
    if isinstance(type_, SimpleType | TimeType | IntervalType):
        return _simple_format(type_.root)
    if isinstance(type_, LengthType):
        return StringFormat() if "CHAR" in type_.name else BinaryFormat(inline=True)
    if isinstance(type_, DecimalType):
        small = type_.precision <= LONG_DIGITS
        build = SmallDecimalFormat if small else WideDecimalFormat
        return build(type_.precision, type_.scale)
    if isinstance(type_, TimestampType):
        return _timestamp_format(type_)
    if type_.root == "RAW":  # any class may have that root
        return BinaryFormat(inline=False)
    section = section_format(type_)
    return None if section is None else ReferenceFormat(section)


def _simple_format(root: str) -> SlotFormat | None:
    if root == "BOOLEAN":
        return BooleanFormat()
    if root == "DATE":
        return DateFormat()
    if root in ("VARIANT", "BITMAP"):
        return BinaryFormat(inline=False)
    number = _NUMBERS.get(root)
    return None if number is None else NumberFormat(*number)


def _timestamp_format(type_: TimestampType) -> SlotFormat | None:
    if type_.name == "TIMESTAMP_WITH_TIME_ZONE":
        return None
    kind = timestamp_type(local=type_.name == "TIMESTAMP_WITH_LOCAL_TIME_ZONE")
    build = SmallTimestampFormat if type_.precision <= MILLI_DIGITS else WideTimestampFormat
    return build(kind)


def section_format(type_: LogicalType) -> SectionFormat | None:
    """Return the form of an array, map or row; None for another type, or unknown parts."""
    if isinstance(type_, DistinctType):
        return section_format(type_.source)
    if isinstance(type_, RowType):
        return row_format(type_.children, [field.name for field in type_.fields])
    if isinstance(type_, StructuredType):
        return row_format(type_.children, [all_field.name for all_field in type_.all_fields])
    if isinstance(type_, ArrayType):
        element = slot_format(type_.element)
        return None if element is None else ArrayFormat(element)
    if not isinstance(type_, MapType | MultisetType):
        return None
    if isinstance(type_, MapType):
        key, value = slot_format(type_.key), slot_format(type_.value)
    else:
        key, value = slot_format(type_.element), _simple_format("INTEGER")
    return None if key is None or value is None else MapFormat(key, value)


def row_format(types: Sequence[LogicalType], names: Sequence[str] = ()) -> RowFormat | None:
    """Return the form of a row of these types; None if one of them is not known.

    Args:
        types: The types of the fields.
        names: The names of the fields; `f0`, `f1`, ... by default, or if Delta and Spark do not
            allow these names.
    """
    fields = [slot_format(type_) for type_ in types]
    if any(field is None for field in fields):
        return None
    plain = all(_PLAIN_NAME.fullmatch(name) for name in names)
    if not plain or len({name.lower() for name in names}) != len(types):
        names = [f"f{index}" for index in range(len(types))]
    return RowFormat(names, [field for field in fields if field is not None])
