"""The types of MIN and MAX of rows that may be retracted, beside those that real Flink writes."""

from __future__ import annotations

import json
import lzma

from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.layout.meta_info import serializer_entry
from statelake.state_core.plans.data_views import extreme_map, extreme_row
from statelake.state_core.serializers.sql.types.logical_type_streams import read_logical_type
from statelake.state_core.serializers.sql.types.logical_types import StructuredType
from tests.integration.flink.sql_plans import EXTREMES, EXTREMES_OF


def test_objects_and_views_of_extremes_are_those_of_flink() -> None:
    """The serializers byte for byte; the type is equal, though its stream shares less."""
    lines = [json.loads(line) for line in lzma.decompress(EXTREMES.read_bytes()).splitlines()]
    assert len(lines) == 2 * 2 * len(EXTREMES_OF)
    for line in lines:
        stream, row, view = map(bytes.fromhex, line["bytes"])
        wanted = read_logical_type(DataInput(stream, "golden")).type
        assert isinstance(wanted, StructuredType)
        first = wanted.fields[0]
        major, minor, _ = map(int, line["flink"].split("."))
        written, made = extreme_row(first.name, first.type, (major, minor))
        assert written.type == wanted
        assert read_logical_type(DataInput(written.stream, "made")).type == wanted
        assert serializer_entry(made).encoded == row
        assert serializer_entry(extreme_map(first.type)).encoded == view
