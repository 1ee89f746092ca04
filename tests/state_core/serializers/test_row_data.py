"""The binary format of Flink SQL: round trips, other legal layouts, and bytes that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CorruptSnapshotError, EncodeError, StateError
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.framework.columns import Target
from statelake.state_core.serializers.sql.binary.formats import row_format
from statelake.state_core.serializers.sql.row_data import (
    RowDataSerializerSnapshot,
    internal_snapshot,
)
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from statelake.state_core.serializers.sql.types.logical_type_streams import WrittenType
from statelake.state_core.serializers.sql.types.logical_types import (
    ArrayType,
    LogicalType,
    MapType,
    SimpleType,
    UnknownType,
)
from tests.support.serializers.serializer_columns import (
    cursor_over,
    decode,
    encode,
    read,
    walked,
    write,
)

EXACT = Context(prec=60)
FINER = datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc)
LEAVES = [
    "CHAR(3)", "STRING NOT NULL", "BOOLEAN", "BINARY(4)", "BYTES", "DECIMAL(5, 2)",
    "DECIMAL(18, 18)", "DECIMAL(19, 0)", "DECIMAL(38, 5)", "TINYINT", "SMALLINT", "INT NOT NULL",
    "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(0)", "TIMESTAMP_LTZ(9)", "INTERVAL YEAR", "INTERVAL DAY", "VARIANT", "BITMAP",
]  # fmt: skip


def serializer(sql: str) -> TypeSerializer:
    """The serializer of an SQL type."""
    return internal_snapshot(parse_logical_type(sql)).restore_serializer()


@st.composite
def sql_types(draw: st.DrawFn, depth: int = 2) -> str:
    """An SQL type, nested up to some depth."""
    kind = draw(st.sampled_from(["leaf", "leaf", "array", "map", "multiset", "row"]))
    if depth == 0 or kind == "leaf":
        return draw(st.sampled_from(LEAVES))
    if kind == "row":
        fields = draw(st.lists(sql_types(depth - 1), min_size=0, max_size=3))
        return f"ROW<{', '.join(f'c{index} {field}' for index, field in enumerate(fields))}>"
    if kind == "map":
        return f"MAP<{draw(sql_types(depth - 1))}, {draw(sql_types(depth - 1))}>"
    return f"{kind.upper()}<{draw(sql_types(depth - 1))}>"


@st.composite
def row_types(draw: st.DrawFn) -> str:
    """The SQL type of a row."""
    fields = draw(st.lists(sql_types(), min_size=0, max_size=3))
    return f"ROW<{', '.join(f'c{index} {field}' for index, field in enumerate(fields))}>"


def values(kind: pa.DataType, *, nulls: bool = True) -> st.SearchStrategy[Any]:
    """What a column of an Arrow type may hold."""
    found = _values(kind)
    return st.none() | found if nulls else found


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        if [field.name for field in kind] == ["empty"]:
            return st.just({"empty": None})
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    if pa.types.is_map(kind):
        pair = st.tuples(values(kind.key_type, nulls=False), values(kind.item_type))
        return st.lists(pair, max_size=3)
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=40 if kind.num_fields else 3)
    if pa.types.is_decimal(kind):
        top = 10**kind.precision - 1
        return st.integers(-top, top).map(lambda number: Decimal(number).scaleb(-kind.scale, EXACT))
    if pa.types.is_timestamp(kind):
        zone = timezone.utc if kind.tz else None
        first = datetime(1970, 1, 1, tzinfo=zone)
        millis = st.integers(-62_135_596_800_000, 253_402_300_799_999)
        return millis.map(lambda count: first + timedelta(milliseconds=count))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        pa.string(): st.text(max_size=12),
        pa.binary(): st.binary(max_size=12),
        pa.bool_(): st.booleans(),
        pa.date32(): st.dates(),
        pa.float32(): st.floats(width=32),
        pa.float64(): st.floats(),
    }
    if kind in simple:
        return simple[kind]
    half = 1 << kind.bit_width - 1
    return st.integers(-half, half - 1)


@st.composite
def columns(draw: st.DrawFn) -> tuple[TypeSerializer, pa.Array]:
    """A serializer of rows, and a column for it."""
    made = serializer(draw(row_types()))
    rows = draw(st.lists(values(made.arrow_type, nulls=False), min_size=1, max_size=4))
    return made, pa.array(rows, made.arrow_type)


class TestRoundTrips:
    """Columns into bytes and back."""

    @given(columns())
    def test_columns(self, case: tuple[TypeSerializer, pa.Array]) -> None:
        """What is encoded decodes to the same, exactly, and encodes to the same again."""
        made, column = case
        data = encode(made, column)
        found, inexact = decode(made, data)
        assert not any(inexact)
        assert repr(found.to_pylist()) == repr(column.to_pylist())
        assert encode(made, found) == data
        assert walked(made, data) == [len(encoded) for encoded in data]

    @given(columns())
    def test_one_by_one(self, case: tuple[TypeSerializer, pa.Array]) -> None:
        """A value at a time is written as a column is, and read as a column is."""
        made, column = case
        data = encode(made, column)
        assert [write(made, value) for value in column.to_pylist()] == data
        assert repr([read(made, encoded) for encoded in data]) == repr(column.to_pylist())

    @given(columns(), st.data())
    def test_only_some_rows(
        self, case: tuple[TypeSerializer, pa.Array], data: st.DataObject
    ) -> None:
        """Rows that are not to be written take no bytes, and leave the others as they are."""
        made, column = case
        rows = len(column)
        present = np.array(data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
        present = present.astype(np.uint8)
        whole = encode(made, column)
        bounds = np.concatenate(([0], np.cumsum(made.sizes(column, present))))
        out = np.zeros(int(bounds[-1]), np.uint8)
        made.encode(column, Target(out, bounds[:-1].copy(), present))
        wanted = [value for value, held in zip(whole, present, strict=True) if held]
        assert out.tobytes() == b"".join(wanted)
        cursor = cursor_over(
            [encoded if held else b"" for encoded, held in zip(whole, present, strict=True)]
        )
        cursor.present = present
        found = made.decode(cursor).to_pylist()
        kept = [
            value if held else None for value, held in zip(column.to_pylist(), present, strict=True)
        ]
        assert repr(found) == repr(kept)

    @given(columns(), st.integers(0, 2), st.integers(1, 3))
    def test_slices(self, case: tuple[TypeSerializer, pa.Array], first: int, count: int) -> None:
        """A slice of a column is written as its rows are."""
        made, column = case
        assert (
            encode(made, column.slice(first, count)) == encode(made, column)[first : first + count]
        )


class TestDamage:
    """Bytes that Flink did not write."""

    @given(columns(), st.data())
    def test_any_byte(self, case: tuple[TypeSerializer, pa.Array], data: st.DataObject) -> None:
        """Changed bytes are refused, or marked, or come back as they are."""
        made, column = case
        raw = bytearray(encode(made, column)[0])
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(
                st.sampled_from([0, 1, 7, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
            )
        try:
            found, inexact = decode(made, [bytes(raw)])
        except StateError:
            return
        found.to_pylist()
        if not any(inexact):
            assert encode(made, found) == [bytes(raw)]

    @given(columns(), st.data())
    def test_cut_short(self, case: tuple[TypeSerializer, pa.Array], data: st.DataObject) -> None:
        """Fewer bytes than a value takes are refused."""
        made, column = case
        raw = encode(made, column)[0]
        with pytest.raises(StateError):
            decode(made, [raw[: data.draw(st.integers(0, len(raw) - 1))]])

    @given(row_types(), st.binary(max_size=120))
    def test_anything(self, sql: str, noise: bytes) -> None:
        """Noise behind a right length is refused, or marked, or comes back as it is."""
        made = serializer(sql)
        raw = len(noise).to_bytes(4, "big") + noise
        try:
            found, inexact = decode(made, [raw])
        except StateError:
            return
        found.to_pylist()
        if not any(inexact):
            assert encode(made, found) == [raw]

    def test_many_slots_of_one_value(self) -> None:
        """A small array whose elements all claim the same bytes can't fill the memory."""
        made = serializer("ARRAY<STRING>")
        text = 1 << 12
        (raw,) = encode(made, pa.array([["x" * text] + ["y" * text] * 999], made.arrow_type))
        body = bytearray(raw)
        slots = 4 + 4 + 1000 // 32 * 4 + 4
        first = body[slots : slots + 8]
        body[slots : slots + 8000] = first * 1000
        shorter = body[: slots + 8000 + text + 8]
        shorter[:4] = (len(shorter) - 4).to_bytes(4, "big")
        with pytest.raises(CorruptSnapshotError, match="leads out of its row or array"):
            decode(made, [bytes(shorter)])

    def test_place(self) -> None:
        """A message names the place and what should be there."""
        made = serializer("ROW<a BIGINT>")
        with pytest.raises(CorruptSnapshotError, match="a row of 1 fields does not fit") as caught:
            decode(made, [bytes.fromhex("00000008") + bytes(8)])
        assert "byte 4" in str(caught.value)


class TestLayouts:
    """Bytes with the same meaning that Flink's `RowDataSerializer` would not write."""

    def test_row_kinds(self) -> None:
        """A row that is not +I is read, and keeps its bytes beside."""
        made = serializer("ROW<a BIGINT>")
        (raw,) = encode(made, pa.array([{"f0": 5}], made.arrow_type))
        kinds = [raw[:4] + bytes([kind]) + raw[5:] for kind in range(4)]
        column, inexact = decode(made, kinds)
        assert column.to_pylist() == [{"f0": 5}] * 4
        assert inexact == [False, True, True, True]

    def test_longer_values_in_another_order(self) -> None:
        """Strings that lie in another order are read, and their rows marked."""
        made = serializer("ROW<a STRING, b STRING>")
        (raw,) = encode(made, pa.array([{"f0": "a" * 8, "f1": "b" * 8}], made.arrow_type))
        head, slots, first, second = raw[:12], raw[12:28], raw[28:36], raw[36:44]
        swapped = slots[:4] + slots[12:16] + slots[8:12] + slots[4:8]
        column, inexact = decode(made, [head + swapped + second + first])
        assert column.to_pylist() == [{"f0": "a" * 8, "f1": "b" * 8}]
        assert inexact == [True]

    def test_a_short_string_outside_its_slot(self) -> None:
        """Up to 7 bytes belong into the slot; elsewhere they are read, and marked."""
        made = serializer("ROW<a STRING>")
        slot = (16 << 32 | 3).to_bytes(8, "little")
        raw = (24).to_bytes(4, "big") + bytes(8) + slot + b"abc" + bytes(5)
        column, inexact = decode(made, [raw])
        assert (column.to_pylist(), inexact) == ([{"f0": "abc"}], [True])

    def test_more_decimal_digits_than_the_type_has(self) -> None:
        """Such a number is null in the column, and its bytes stay."""
        made = serializer("ROW<a DECIMAL(3, 1)>")
        wide = serializer("ROW<a BIGINT>")
        data = encode(wide, pa.array([{"f0": 999}, {"f0": 1000}, {"f0": -1000}], wide.arrow_type))
        column, inexact = decode(made, data)
        assert column.to_pylist() == [{"f0": Decimal("99.9")}, {"f0": None}, {"f0": None}]
        assert inexact == [False, True, True]

    def test_no_utf8(self) -> None:
        """Bytes that are no UTF-8 become U+FFFD and are marked."""
        made, raw = serializer("ROW<a STRING, b STRING>"), serializer("ROW<a BYTES, b BYTES>")
        rows = [{"f0": b"ok", "f1": b"\xed\xa0\x80 lone"}, {"f0": b"\xc3\xa4", "f1": b"\xff"}]
        column, inexact = decode(made, encode(raw, pa.array(rows, raw.arrow_type)))
        assert column.to_pylist() == [
            {"f0": "ok", "f1": "\ufffd\ufffd\ufffd lone"}, {"f0": "ä", "f1": "\ufffd"},
        ]  # fmt: skip
        assert inexact == [True, True]

    def test_null_keys(self) -> None:
        """A map with a null key is null in the column, its neighbours are not."""
        made, twin = serializer("MAP<INT, INT>"), serializer("ARRAY<INT>")
        keys = [
            encode(twin, pa.array([value], twin.arrow_type))[0] for value in ([1, None], [1, 2])
        ]
        items = keys[1][4:]
        data = []
        for key in keys:
            body = (len(key) - 4).to_bytes(4, "little") + key[4:] + items
            data.append(len(body).to_bytes(4, "big") + body)
        column, inexact = decode(made, data)
        assert column.to_pylist() == [None, [(1, 1), (2, 2)]]
        assert inexact == [True, False]
        assert encode(made, column.slice(1)) == data[1:]


class TestNames:
    """How the columns of nested rows are called."""

    @pytest.mark.parametrize(
        ("sql", "names"),
        [
            ("ROW<a ROW<id INT, `größe` INT>>", ["id", "größe"]),
            ("ROW<a ROW<`my id` INT, b INT>>", ["f0", "f1"]),
            ("ROW<a ROW<ID INT, id INT>>", ["f0", "f1"]),
            ("ROW<a STRUCTURED<'com.acme.P', x INT, y INT>>", ["x", "y"]),
        ],
    )
    def test_names(self, sql: str, names: list[str]) -> None:
        """Nested rows have the type's names, unless Delta and Spark could not tell them apart."""
        kind = serializer(sql).arrow_type
        assert [field.name for field in kind] == ["f0"]
        assert [field.name for field in kind.field("f0").type] == names

    def test_no_fields(self) -> None:
        """A row of no fields, the key of a global aggregate, is a struct that Parquet can hold."""
        made = serializer("ROW<>")
        assert made.arrow_type == pa.struct([pa.field("empty", pa.bool_())])
        data = [bytes.fromhex("00000008") + bytes(8)]
        column, inexact = decode(made, data)
        assert (column.to_pylist(), inexact) == ([{"empty": None}], [False])
        assert encode(made, column) == data


class TestUnknownTypes:
    """Types of classes that are not known here."""

    def test_a_raw_type_of_another_class(self) -> None:
        """Whatever says that it is RAW has the form of RAW."""
        found = row_format([UnknownType("acme.RawType", "RAW")])
        assert found is not None
        assert found.arrow_type.field("f0").type == pa.binary()

    @pytest.mark.parametrize(
        "nest", [lambda inner: inner, ArrayType, lambda inner: MapType(inner, inner)]
    )
    def test_anything_else(self, nest: Callable[[LogicalType], LogicalType]) -> None:
        """A row with a field of no known form is bytes as a whole."""
        strange = UnknownType("acme.Type", "SYMBOL")
        assert row_format([nest(strange), SimpleType("BIGINT")]) is None
        made = RowDataSerializerSnapshot()
        made.types = (WrittenType(nest(strange), b""),)
        raw = bytes.fromhex("00000010") + bytes(16)
        column, inexact = decode(made.restore_serializer(), [raw])
        assert (column.to_pylist(), inexact) == ([bytes(16)], [False])


class TestRefusals:
    """Values that have no form."""

    @pytest.mark.parametrize(
        ("sql", "value", "message"),
        [
            ("ROW<a INT>", None, "is null"),
            ("ROW<a INT>", {"f0": "x"}, "is no RowData<INT>"),
            ("ROW<a TIMESTAMP(3)>", {"f0": FINER}, "holds milliseconds"),
            ("ROW<a DECIMAL(3, 1)>", {"f0": Decimal("123.4")}, "is no RowData"),
            ("ARRAY<TIMESTAMP(0)>", [FINER], "holds milliseconds"),
            ("STRING", 5, "is no StringData"),
            ("STRING", "\ud800", "is no StringData"),
            ("DECIMAL(3, 1)", Decimal("0.01"), "does not fit"),
            ("DECIMAL(20, 1)", Decimal(10**20), "does not fit"),
            ("TIMESTAMP(3)", FINER, "more digits"),
            ("TIMESTAMP(9)", date(2024, 1, 1), "is no TimestampData"),
        ],
    )
    def test_values(self, sql: str, value: Any, message: str) -> None:
        """The message says what the value is not."""
        with pytest.raises(EncodeError, match=message):
            write(serializer(sql), value)

    def test_missing_fields(self) -> None:
        """A column without a field of the type is refused."""
        made = serializer("ROW<a INT, b INT>")
        with pytest.raises(EncodeError, match="field 'f1' of a row is missing"):
            encode(made, pa.array([{"f0": 1}], pa.struct([("f0", pa.int32())])))


SCALARS = ["STRING", "DECIMAL(5, 2)", "DECIMAL(30, 4)", "TIMESTAMP(3)", "TIMESTAMP(9)", "VARIANT"]


class TestScalars:
    """Strings, decimals, timestamps and variants by themselves."""

    @given(st.sampled_from(SCALARS), st.data())
    def test_round_trip(self, sql: str, data: st.DataObject) -> None:
        """Column and value at a time agree, in both directions."""
        made = serializer(sql)
        kind = made.arrow_type
        one = values(kind, nulls=False) if sql != "VARIANT" else st.fixed_dictionaries(
            {"value": st.binary(max_size=9), "metadata": st.binary(max_size=9)}
        )  # fmt: skip
        rows = data.draw(st.lists(one, min_size=1, max_size=5))
        column = pa.array(rows, kind)
        raw = encode(made, column)
        assert [write(made, value) for value in rows] == raw
        found, inexact = decode(made, raw)
        assert found.to_pylist() == column.to_pylist() == [read(made, value) for value in raw]
        assert not any(inexact)

    @given(st.sampled_from(SCALARS), st.binary(max_size=30))
    def test_noise(self, sql: str, noise: bytes) -> None:
        """Noise is refused, or marked, or comes back as it is."""
        made = serializer(sql)
        try:
            found, inexact = decode(made, [noise])
        except StateError:
            return
        if not any(inexact):
            assert encode(made, found) == [noise]


@pytest.mark.parametrize(
    ("kind", "column", "is_refused"),
    [
        ("DECIMAL(38, 2)", pa.decimal128(38, 2), True),
        ("TIMESTAMP(6)", pa.timestamp("us"), True),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2), False),
        ("BIGINT", pa.int64(), False),
    ],
)
def test_a_new_key_whose_bytes_only_its_job_tells_is_refused(
    kind: str, column: pa.DataType, is_refused: bool, tmp_path: Path
) -> None:
    """Flink SQL would look for it in another key group."""
    keys = pa.StructArray.from_arrays([pa.nulls(1, column)], ["f0"])
    state = NewKeyedState("s", pa.table({"key": keys, "value": [1]}), value="Long")
    operator = NewOperator("o", {"row_data": [kind]}, (state,))
    with pytest.raises(EncodeError, match="a key with NULL in f0") if is_refused else nullcontext():
        write_snapshot(tmp_path / "savepoint", [operator])
