"""The columns that an accumulator row has for data views, whose content is a state of its own.

Flink's planner puts `RAW(MapView, NullSerializer)` there, whatever the view holds. Its logical type
contains Java classes, so that its bytes can't be made from text: they are those that Flink 1.18 to
2.3 write.

The least and greatest of rows that may be retracted are objects with such a view: of each value how
often it is there. Since Flink 2.1 their type names its class as text, too, and has another way to
be compared.

Source: `DataViewUtils.adjustDataViews`, `MaxWithRetractAggFunction`, `MinWithRetractAggFunction`.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from functools import cache

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.java_stream import (
    JavaClassLiteral,
    JavaObject,
    JavaString,
    read_java_stream,
    write_java_stream,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.composite.collections import MapSerializerSnapshot
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.sql.row_data import (
    RowDataSerializerSnapshot,
    internal_snapshot,
)
from statelake.state_core.serializers.sql.table_views import ExternalSerializerSnapshot
from statelake.state_core.serializers.sql.types.logical_type_objects import (
    LOGICAL_SIGNATURE,
    JavaTypes,
    java_class,
    java_object,
)
from statelake.state_core.serializers.sql.types.logical_type_streams import (
    WrittenType,
    list_items,
    read_logical_type,
)
from statelake.state_core.serializers.sql.types.logical_types import LogicalType, SimpleType

_TYPE = (
    "rO0ABXNyACxvcmcuYXBhY2hlLmZsaW5rLnRhYmxlLnR5cGVzLmxvZ2ljYWwuUmF3VHlwZQAAAAAAAAABAgACTAAF"
    "Y2xhenp0ABFMamF2YS9sYW5nL0NsYXNzO0wACnNlcmlhbGl6ZXJ0ADZMb3JnL2FwYWNoZS9mbGluay9hcGkvY29t"
    "bW9uL3R5cGV1dGlscy9UeXBlU2VyaWFsaXplcjt4cgAwb3JnLmFwYWNoZS5mbGluay50YWJsZS50eXBlcy5sb2dp"
    "Y2FsLkxvZ2ljYWxUeXBlAAAAAAAAAAECAAJaAAppc051bGxhYmxlTAAIdHlwZVJvb3R0ADZMb3JnL2FwYWNoZS9m"
    "bGluay90YWJsZS90eXBlcy9sb2dpY2FsL0xvZ2ljYWxUeXBlUm9vdDt4cAF+cgA0b3JnLmFwYWNoZS5mbGluay50"
    "YWJsZS50eXBlcy5sb2dpY2FsLkxvZ2ljYWxUeXBlUm9vdAAAAAAAAAAAEgAAeHIADmphdmEubGFuZy5FbnVtAAAA"
    "AAAAAAASAAB4cHQAA1JBV3ZyACtvcmcuYXBhY2hlLmZsaW5rLnRhYmxlLmFwaS5kYXRhdmlldy5NYXBWaWV3AAAA"
    "AAAAAAAAAAB4cHNyAC5vcmcuYXBhY2hlLmZsaW5rLnRhYmxlLmRhdGF2aWV3Lk51bGxTZXJpYWxpemVytVC6SrNj"
    "rF8CAAB4cgBCb3JnLmFwYWNoZS5mbGluay5hcGkuY29tbW9uLnR5cGV1dGlscy5iYXNlLlR5cGVTZXJpYWxpemVy"
    "U2luZ2xldG9ueamHqscud0UCAAB4cgA0b3JnLmFwYWNoZS5mbGluay5hcGkuY29tbW9uLnR5cGV1dGlscy5UeXBl"
    "U2VyaWFsaXplcgAAAAAAAAABAgAAeHA="
)
_SERIALIZER = (
    "AF5vcmcuYXBhY2hlLmZsaW5rLnRhYmxlLnJ1bnRpbWUudHlwZXV0aWxzLlJhd1ZhbHVlRGF0YVNlcmlhbGl6ZXIk"
    "UmF3VmFsdWVEYXRhU2VyaWFsaXplclNuYXBzaG90AAAAAwAN5wQAAAAAABRX/QAAAAEAAAABAEVvcmcuYXBhY2hl"
    "LmZsaW5rLnRhYmxlLmRhdGF2aWV3Lk51bGxTZXJpYWxpemVyJE51bGxTZXJpYWxpemVyU25hcHNob3QAAAAD"
)
_EXTREME = (
    "eNq9VMtSE0EUvUlAECwkWJYLt+y0enygC7MKIWCoETEPKdlQzaQzNM6j7b5DAgu27vwOH+wsXfgDfo3/4O0J5CWpiljl"
    "LKZnuvvce859nf2CaaPhcax9xhX3DgRrBTJ6y5DvB4LhsRKGBbEvPR6wGurEw0SLZp32oftksnBtFxakqUQGeYTSAl2Y"
    "44ha7icoDMKie8iPuJOgDBxXGiy4cN0LuDFbPBQIS93jgEe+Qz5k5NOFOS8OFdfSxBHCpksEnS5BJyXopASdlKBzTtAZ"
    "Jrjc/y31bJHlWzJUgQhFhBxlHJUsEYT8AIl0y5I0iRLa2kJ4chUKhY6GlYli2zBCr4mWjEaDm9uFGWnWZcQDF+abwnha"
    "Ksv7HZxC1oXFeP9QeFhpkh7ZkkIjPBxH1ePIyaHzcgRiaT6YiKbbXYcpZndhTpqtJAi6uZ+1mGocI8LTyaI2YNbiCh2V"
    "OZ00ciPYc1qwBECqFmxSmU0qK0dJOHioEG7W6tVGqd6oltf26m+2yxmlMtQN+RRkq5WV4iCoCb3z4cv3Z3c/5nOQqUAO"
    "ud9RVnp7it45QmxcoX8GyrN40SsDab802VMRNczFN6Z1+eivI0zRJe25kHeIuTMR81XpVyIczjp0LJHZzKld5hGurVY2"
    "Klt1Y3/z5GAm5KomT0S6cTtj33d6h+Rdkff7E3mv8vZIwbkwTfPj5MSam6JZQc0jeUDO9KUlx5V0aJyEcZRGxWbWONZk"
    "rYcrjKjJVYs7RxrujSFIFlmTuulIijZ7wdVrWqH/dKw4Ngbbw9mO6TP4tv1j86t3tpdNC3f1D7B12RXBeiLYPjeCDSup"
    "0fwMBMbR8af3n3+ydrlrcGUyg8O2BrOtOgitMZJ0QpMkpL0k8my5GsZ9Xwufo6DodHYkHlQFau5h0ffXzy8tj5x4XhIm"
    "AcdYU+8//7eO6g/8wZa3ub1BlVp+1Si6NUrvf9IzVBnqN5Mhfq4="
)
_EXTREME_TO_2_0 = (
    "eNqlVT1TFEEQ7eX4Ei1BUKsoSyM0kZoVRRMiPg4860Tq7pCSQGrYG5bB2dl1phcOAkojM3MDf4CWmWXiHzAw83dobGJg"
    "zx7el1KeuMHu7cz2e69fd8+9+wZ91sCt2ISMJzzYFmxLSf2EId9UguF+IixTcSgDrlgZTRpgakS1QutQv7we6FuHs9IW"
    "tEWuUbrAIgxxRCM3UxQWYaS4w3e5n6JUflFanKH9II4SbqSNNcK9IvH7dX4/4/czfj/j94/4/Xb+iebrfAOLkMdklCgR"
    "CY0cZaznFbck4VxdguI69LMl+vKUTRNhHBbC7ZNImKkZmO7KulUrzILYkrrTu9w6DEi7KDVXRThdFTYwMnG6EUZbJBOv"
    "1CFpHok3d0SAhSrlJ7ekMAhTx0kPOHIS4D/oCHGyb3Qlu1h/tkvuWYchaZdTpeqlHnQxpThGhDvdudgC6+Jmaol32K2T"
    "HbFHsmAUgLI66xxjzjGW12nUupkgDJcrpdX5ymopv7BRebSS95LEo+a/lgW55mTzsVJkFdlvJ1Z1FFfJryxJatofw1en"
    "Pnx9OdIDXhF6Fa08hUPwiHXy7wDN9fE5ePb58fcrGYwXIFxsGY7mZ+QJSRtrIs8aw/edjtrzL5dffeKvc+AVoNfKA1FL"
    "KMfcXq+7U9DSCYa5ZZhmfw1uS5O2t6bLu5880DwSv35jNkU3/7n+lCdVJhfxGin3u1I+J8OCxvaehJoTMugdusdphP65"
    "wlJhuWLd6wUiGIh4UiarsoVxz90vNTaJ3Zk92RV7ie91jEMR+gLFDw4cHDk1RKMuuSIy88eB4In06fCLYp254oprfQdZ"
    "bsTNdGSTK82u7Rq4foxAQmRVmvVdKfbYfZ48pCc0r6yT2DGxjTg3z00FH1Y+3nsfvNvoycZq7rdgR1lPgjWSYJvcCtae"
    "SZlOLSUw1vtvXrz9xPbydcDp7gDbsVqrnWQOnadT4+7/dXvzr6P1sHDgZxB6lx8s58n4rWM4TEonakRrqa7PPONhaETI"
    "UVAdamsSt0sCDQ9wNgwXjz6a6NgJgjRKFcfYtNUs+QnYDYpw"
)
# the one byte that the column has in every row
EMPTY_VIEW = b"\x00"


@cache
def map_view_type() -> WrittenType:
    """Return the column's logical type."""
    return read_logical_type(DataInput(base64.b64decode(_TYPE), "the type of a map view"))


@cache
def map_view_serializer() -> TypeSerializerSnapshot:
    """Return the column's serializer snapshot."""
    source = DataInput(base64.b64decode(_SERIALIZER), "the serializer of a map view")
    return read_serializer_snapshot(source)


# --------------------------------------------------------------------------- least and greatest


EXTREMES = ("min", "max")
NAMES_CLASSES = (2, 1)  # the first version of Flink whose structured types have a class as text
BIGINT = SimpleType("BIGINT")
_NUMBER = java_class("java.lang.Number", -8742448824652078965)
_TIMESTAMP = "org.apache.flink.table.data.TimestampData"
# the class of the values of a type: its number, and the type of its field
_BOXES = {
    "TINYINT": ("java.lang.Byte", -7183698231559129828, "B"),
    "SMALLINT": ("java.lang.Short", 7515723908773894738, "S"),
    "INTEGER": ("java.lang.Integer", 1360826667806852920, "I"),
    "DATE": ("java.lang.Integer", 1360826667806852920, "I"),
    "TIME_WITHOUT_TIME_ZONE": ("java.lang.Integer", 1360826667806852920, "I"),
    "BIGINT": ("java.lang.Long", 4290774380558885855, "J"),
    "FLOAT": ("java.lang.Float", -2671257302660747028, "F"),
    "DOUBLE": ("java.lang.Double", -9172774392245257468, "D"),
    "BOOLEAN": ("java.lang.Boolean", -3665804199014368530, "Z"),
}
_DATA = {
    "CHAR": "org.apache.flink.table.data.StringData",
    "VARCHAR": "org.apache.flink.table.data.StringData",
    "DECIMAL": "org.apache.flink.table.data.DecimalData",
    "TIMESTAMP_WITHOUT_TIME_ZONE": _TIMESTAMP,
    "TIMESTAMP_WITH_LOCAL_TIME_ZONE": _TIMESTAMP,
}
_DATA_TYPE = java_class(
    "org.apache.flink.table.types.DataType",
    -4138822262654336147,
    [("conversionClass", "Ljava/lang/Class;"), ("logicalType", LOGICAL_SIGNATURE)],
)
_ATOMIC = java_class(
    "org.apache.flink.table.types.AtomicDataType", 1911869481579848498, (), _DATA_TYPE
)


def extreme_row(
    function: str, kind: LogicalType, flink: tuple[int, int]
) -> tuple[WrittenType, RowDataSerializerSnapshot]:
    """Return the type and the serializer of the object that holds a least or greatest value.

    Args:
        function: `min` or `max`.
        kind: The type of the values.
        flink: The version of Flink that is to read it.
    """
    kind = with_nullable(kind, nullable=True)
    template = _EXTREME if flink >= NAMES_CLASSES else _EXTREME_TO_2_0
    source = DataInput(zlib.decompress(base64.b64decode(template)), "the type of an extreme")
    made = read_java_stream(source)
    assert isinstance(made, JavaObject)  # noqa: S101 - as Flink wrote it
    implementation = made.values["implementationClass"]
    assert isinstance(implementation, JavaClassLiteral)  # noqa: S101 - as Flink wrote it
    name = implementation.java_class.name.replace("Max", function.capitalize())
    described = replace(implementation.java_class, name=name)
    made.values["implementationClass"] = JavaClassLiteral(described)
    if "className" in made.values:
        made.values["className"] = JavaString(name)
    first = list_items(made.values["attributes"])[0]
    assert isinstance(first, JavaObject)  # noqa: S101 - as Flink wrote it
    first.values["name"], first.values["type"] = JavaString(function), JavaTypes().of(kind)
    written = read_logical_type(DataInput(write_java_stream(made), "the type of an extreme"))
    row = RowDataSerializerSnapshot.of(kind, BIGINT)
    row.types = (*row.types, map_view_type())
    row.nested = (*row.nested, map_view_serializer())
    return written, row


def extreme_map(kind: LogicalType) -> TypeSerializerSnapshot:
    """Return the serializer of the view that holds how often each value is there.

    Raises:
        EncodeError: No values of such a type are compared.
    """
    not_null = with_nullable(kind, nullable=False)
    keys = ExternalSerializerSnapshot.of(_data_type(not_null), internal_snapshot(not_null))
    counts = ExternalSerializerSnapshot.of(_data_type(BIGINT), internal_snapshot(BIGINT))
    return MapSerializerSnapshot.around(keys, counts)


def _data_type(kind: LogicalType) -> bytes:
    """Return the Java stream of the `DataType` of values in their internal form."""
    if kind.root in _BOXES:
        name, number, field = _BOXES[kind.root]
        parent = None if kind.root == "BOOLEAN" else _NUMBER
        described = java_class(name, number, [("value", field)], parent)
    elif kind.root in _DATA:
        described = java_class(_DATA[kind.root], 0, flags=0)
    else:
        raise EncodeError(f"{kind} has no order that is known here")
    made = java_object(
        _ATOMIC, conversionClass=JavaClassLiteral(described), logicalType=JavaTypes().of(kind)
    )
    return write_java_stream(made)


def with_nullable(kind: LogicalType, *, nullable: bool) -> LogicalType:
    """Return the same type, whose values may be NULL, or may not."""
    return kind if kind.nullable is nullable else type(kind)(**{**vars(kind), "nullable": nullable})
