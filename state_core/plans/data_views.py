"""The column that an accumulator row has for a data view, whose content is a state of its own.

Flink's planner puts `RAW(MapView, NullSerializer)` there, whatever the view holds. Its logical type
contains Java classes, so that its bytes can't be made from text: they are those that Flink 1.18 to
2.3 write.

Source: `DataViewUtils.adjustDataViews`.
"""

from __future__ import annotations

import base64
from functools import cache

from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.sql.types.logical_type_streams import (
    WrittenType,
    read_logical_type,
)

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
