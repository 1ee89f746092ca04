"""Flink SQL's types and serializers against Flink: streams, snapshots, bytes, hashes, verdicts."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statelake.state_core.errors import EncodeError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.sql.row_data import internal_snapshot
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from statelake.state_core.serializers.sql.types.logical_type_streams import (
    WrittenType,
    read_logical_type,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    DistinctType,
    LogicalType,
    RawType,
    RowType,
    StructuredType,
    TimestampType,
)
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.serializers.serializer_columns import decode, encode, read, walked, write

Line = dict[str, Any]

LINES: list[Line] = [
    json.loads(line)
    for line in (GOLDEN / "vectors" / "table.jsonl").read_text("utf-8").splitlines()
]
TYPES = [line for line in LINES if line["what"] == "type"]
VALUES = {line["name"]: line for line in LINES if line["what"] == "values"}
PAIRS = [line for line in LINES if line["what"] == "pairs"]
PARSED = [line for line in TYPES if line["parsed"]]
# in the planner's own classes, which no SQL text names
UNNAMED = {name for name in VALUES if name.split()[0] in {"corners", "RAW", "a", "External"}} | {
    "BinaryRowData(2)", "LinkedList", "LinkedList without nulls", "SortedMap",
    "SortedMap of other code", "SortedMap descending", "WindowKey", "NullAwareMap", "MapView",
    "ListView", "Null", "SortedLong", "TimeWindow", "CountWindow", "GlobalWindow", "MetaSqnInfo",
    "RowSqnInfo", "Node", "RowDataKey", "ROW<a TIMESTAMP(3) *ROWTIME*>",
}  # fmt: skip
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999


def unpacked(text: str) -> bytes:
    """Bytes as the file has them."""
    return zlib.decompress(base64.b64decode(text))


def snapshot(name: str) -> TypeSerializerSnapshot:
    """The snapshot of that name, which must take all bytes."""
    source = DataInput(unpacked(VALUES[name]["snapshot"]))
    found = read_serializer_snapshot(source)
    assert source.remaining == 0
    return found


def written(snapshot: TypeSerializerSnapshot) -> bytes:
    """A snapshot's bytes."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    return out.to_bytes()


def serializer(name: str) -> TypeSerializer:
    """Its serializer."""
    return snapshot(name).restore_serializer()


def logical_type(line: Line) -> LogicalType:
    """The type of a stream, which must take all bytes."""
    source = DataInput(unpacked(line["stream"]))
    found = read_logical_type(source)
    assert source.remaining == 0
    assert found.stream == unpacked(line["stream"])
    return found.type


class TestTypes:
    """Logical types: their Java streams and their SQL text."""

    @pytest.mark.parametrize("line", PARSED, ids=[line["sql"] for line in PARSED])
    def test_streams_and_text(self, line: Line) -> None:
        """A stream says its SQL text; the text parses to the type; the type is that stream."""
        found = logical_type(line)
        assert str(found) == line["sql"]
        assert found.root == line["root"]
        parsed = parse_logical_type(line["sql"])
        assert parsed == found
        assert WrittenType.of(parsed).stream == unpacked(line["stream"])

    def test_time_attributes_are_no_part_of_a_type(self) -> None:
        """TIMESTAMP *ROWTIME* equals TIMESTAMP, and keeps its stream."""
        lines = [line for line in TYPES if "TIME*" in line["sql"]]
        assert len(lines) == 2
        for line in lines:
            found = logical_type(line)
            assert isinstance(found, TimestampType)
            assert found == TimestampType(3, found.name, nullable=found.nullable)
            assert found.kind != "REGULAR"
            assert WrittenType.of(found).stream == unpacked(line["stream"])

    def test_types_of_a_catalog(self) -> None:
        """Distinct types and structured types below others are built as Flink writes them."""
        names = {"`catalog`.`database`.`Euro` NOT NULL", "`c`.`d`.`Sub`"}
        lines = [line for line in TYPES if line["sql"] in names]
        assert len(lines) == 3
        for line in lines:
            found = logical_type(line)
            assert isinstance(found, DistinctType | StructuredType)
            assert str(found) == line["sql"]
            assert WrittenType.of(found).stream == unpacked(line["stream"])
        assert isinstance(found, StructuredType)
        assert [all_field.name for all_field in found.all_fields] == ["id", "more"]

    def test_a_class_of_a_users(self) -> None:
        """A structured type's class is known by name alone, which is all that Flink compares."""
        (line,) = (type_ for type_ in TYPES if "Order" in type_["sql"] and not type_["parsed"])
        found = logical_type(line)
        assert isinstance(found, StructuredType)
        assert found.class_name == "TableVectors$Order"
        assert found.comparison == "FULL"
        assert found.fields[1].description == "what"
        again = read_logical_type(DataInput(WrittenType.of(found).stream)).type
        assert again == found

    def test_raw_types_are_carried(self) -> None:
        """A RAW type keeps its serializer's objects as data, and can't be written anew."""
        lines = [line for line in TYPES if "RAW" in line["sql"]]
        found, row = (logical_type(line) for line in lines)
        assert isinstance(found, RawType)
        assert found.class_name == "java.util.LinkedList"
        assert "LinkedListSerializer" in repr(found.serializer)
        assert isinstance(row, RowType)
        assert row.children == (found,)
        with pytest.raises(EncodeError, match="only Java can write"):
            WrittenType.of(row)


class TestSnapshots:
    """Serializer snapshots."""

    @pytest.mark.parametrize("name", VALUES)
    def test_written_back(self, name: str) -> None:
        """A snapshot that is read is written back byte for byte, and knows its length."""
        found = snapshot(name)
        assert written(found) == unpacked(VALUES[name]["snapshot"])
        assert found.restore_serializer().length == VALUES[name]["length"]

    @pytest.mark.parametrize("name", [name for name in VALUES if name not in UNNAMED])
    def test_made_from_sql(self, name: str) -> None:
        """A snapshot made from the SQL type is what Flink writes, lambdas and all."""
        made = internal_snapshot(parse_logical_type(name))
        assert written(made) == unpacked(VALUES[name]["snapshot"])


# --------------------------------------------------------------------------- values


def shown(value: Any) -> Any:
    """A value of ours in the file's terms, where its type says all."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        since = value.replace(tzinfo=timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
        micros = (since.days * 86_400_000_000) + since.seconds * 1_000_000 + since.microseconds
        return f"{micros // 1000} {micros % 1000 * 1000}"
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):  # a row of no fields has a column of nulls, since it must have one
        return [shown(item) for name, item in value.items() if name != "empty"]
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return [[shown(item) for item, _ in value], [shown(item) for _, item in value]]
    if isinstance(value, list):
        return [shown(item) for item in value]
    return value


def alike(ours: Any, theirs: Any) -> bool:
    """Whether a value of ours is Flink's, as far as a column can hold it."""
    if theirs == "bytes":
        return isinstance(ours, str)
    if isinstance(theirs, list) and theirs == [[], []]:
        return ours in ([], theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        pairs = list(zip(ours, theirs, strict=False))
        return len(ours) == len(theirs) and all(alike(a, b) for a, b in pairs)
    if isinstance(ours, float) and isinstance(theirs, str):
        kinds = {4: ">f", 8: ">d"}
        return any(
            struct.pack(kind, ours) == bytes.fromhex(theirs.zfill(2 * size))
            for size, kind in kinds.items()
            if len(theirs) <= 2 * size
        )
    if isinstance(theirs, str) and isinstance(ours, str) and theirs.count(" ") == 1:
        return ours == theirs or _cut(theirs) == ours
    if ours is None and theirs is not None:
        return not _fits(theirs)
    return bool(ours == theirs)


def _cut(timestamp: str) -> str:
    """A timestamp without what microseconds can't hold."""
    millis, nanos = timestamp.split(" ")
    return f"{millis} {int(nanos) // 1000 * 1000}" if nanos.isdigit() else timestamp


def _fits(theirs: Any) -> bool:
    """Whether years of four digits hold a timestamp or date."""
    if isinstance(theirs, str) and theirs.count(" ") == 1:
        return FIRST <= int(theirs.split(" ")[0]) <= LAST
    if isinstance(theirs, int):
        return -719_162 <= theirs <= 2_932_896
    return not isinstance(theirs, list)


def is_exact(theirs: Any) -> bool:
    """Whether a column can hold Flink's value."""
    if isinstance(theirs, list):
        return all(is_exact(element) for element in theirs)
    if isinstance(theirs, str) and theirs.count(" ") == 1 and theirs.split(" ")[1].isdigit():
        return _cut(theirs) == theirs and _fits(theirs)
    return True


WITH_VALUES = [name for name in VALUES if VALUES[name]["values"]]
CORNERS = {
    "corners of rows": [1, 0, 0, 0, 0, 0, 0, 1, 1, 0],
    "corners of dates": [1, 0, 1, 0, 0],
    "corners of maps": [0, 1],
}


class TestValues:
    """What Flink's serializers wrote."""

    @pytest.mark.parametrize("name", WITH_VALUES)
    def test_columns(self, name: str) -> None:
        """Columns hold Flink's values, and give their bytes back wherever they say so."""
        made = serializer(name)
        lines = VALUES[name]["values"]
        data = [bytes.fromhex(line["bytes"]) for line in lines]
        column, inexact = decode(made, data)
        theirs = [line["value"] for line in lines]
        for ours, value in zip(column.to_pylist(), theirs, strict=True):
            assert alike(shown(ours), value), (ours, value)
        exact = [is_exact(value) for value in theirs]
        assert inexact == [not flag for flag in CORNERS.get(name, exact)]
        kept = [row for row, lossy in enumerate(inexact) if not lossy]
        assert encode(made, column.take(pa.array(kept, pa.int64()))) == [data[row] for row in kept]

    @pytest.mark.parametrize("name", WITH_VALUES)
    def test_one_by_one(self, name: str) -> None:
        """A value at a time is the same as a column of it; walking finds its end."""
        made = serializer(name)
        data = [bytes.fromhex(line["bytes"]) for line in VALUES[name]["values"]]
        column, inexact = decode(made, data)
        for encoded, value, lossy in zip(data, column.to_pylist(), inexact, strict=True):
            assert repr(read(made, encoded)) == repr(value)
            if not lossy:
                assert write(made, value) == encoded
            source = DataInput(encoded + b"more")
            made.skip(source)
            assert source.remaining == 4
        if made.skip_program() is not None:
            assert walked(made, data) == [len(encoded) for encoded in data]

    @pytest.mark.parametrize(
        "name", [name for name in WITH_VALUES if "hash" in VALUES[name]["values"][0]]
    )
    def test_hash_codes(self, name: str) -> None:
        """Hash codes are Java's: of exact bytes always, of a column where it is exact."""
        made = serializer(name)
        lines = VALUES[name]["values"]
        data = [bytes.fromhex(line["bytes"]) for line in lines]
        theirs = [line["hash"] for line in lines]
        assert [made.hash_code_at(DataInput(encoded)) for encoded in data] == theirs
        column, inexact = decode(made, data)
        if not any(inexact):
            assert made.hash_codes(column).tolist() == theirs
            assert [made.hash_code(value) for value in column.to_pylist()] == theirs


# --------------------------------------------------------------------------- verdicts

VERDICTS = {
    "as_is": Verdict.COMPATIBLE_AS_IS,
    "migrate": Verdict.COMPATIBLE_AFTER_MIGRATION,
    "incompatible": Verdict.INCOMPATIBLE,
    "reconfigured": Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER,
}


class TestVerdicts:
    """What a new snapshot says of an old one."""

    @pytest.mark.parametrize("line", PAIRS, ids=[line["names"][0] for line in PAIRS])
    def test_verdicts_are_flinks(self, line: Line) -> None:
        """Every pair of a family has Flink's verdict, and a reason where it is not as it was."""
        names = line["names"]
        for old, row in zip(names, line["verdicts"], strict=True):
            for new, verdict in zip(names, row, strict=True):
                found = snapshot(new).resolve_schema_compatibility(snapshot(old))
                assert found.verdict is VERDICTS[verdict], (old, new)
                assert bool(found.reasons) is (verdict != "as_is")

    def test_there_are_many(self) -> None:
        """The families have more than 400 pairs."""
        assert sum(len(line["names"]) ** 2 for line in PAIRS) > 400

    @pytest.mark.parametrize(
        ("old", "new", "path", "types"),
        [
            ("ROW<a BIGINT>", "ROW<a INT>", "f0", ("BIGINT", "INT")),
            ("ROW<a ROW<b INT>>", "ROW<a ROW<b BIGINT>>", "f0.b", ("INT", "BIGINT")),
            ("ROW<a ARRAY<INT>>", "ROW<a ARRAY<INT NOT NULL>>", "f0.[]", ("INT", "INT NOT NULL")),
            ("ARRAY<INT>", "ARRAY<BIGINT>", "[]", ("INT", "BIGINT")),
        ],
    )
    def test_reasons_name_the_place(
        self, old: str, new: str, path: str, types: tuple[str, str]
    ) -> None:
        """A reason has the path of the field and both types."""
        (reason,) = snapshot(new).resolve_schema_compatibility(snapshot(old)).reasons
        assert (reason.path, reason.old, reason.new) == (path, *types)
