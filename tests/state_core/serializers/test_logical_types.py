"""Logical types: their text, their equality, and streams from strangers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import CorruptSnapshotError, EncodeError, StateError
from statelake.state_core.files.java_stream import (
    JavaArray,
    JavaClass,
    JavaClassLiteral,
    JavaObject,
    JavaString,
    read_java_stream,
    write_java_stream,
)
from statelake.state_core.files.wire import DataInput
from statelake.state_core.serializers.sql.types.logical_type_objects import (
    JavaTypes,
    java_class,
    java_object,
)
from statelake.state_core.serializers.sql.types.logical_type_parser import parse_logical_type
from statelake.state_core.serializers.sql.types.logical_type_streams import (
    WrittenType,
    list_items,
    logical_type_of,
    read_logical_type,
    summary,
)
from statelake.state_core.serializers.sql.types.logical_types import (
    ArrayType,
    DecimalType,
    LogicalType,
    RawType,
    RowField,
    RowType,
    SimpleType,
    TypeDifference,
    UnknownType,
    type_differences,
)

INT = SimpleType("INTEGER")
NOWHERE = DataInput(b"", "a test")


class TestText:
    """SQL text that people write."""

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("int", "INT"),
            ("INTEGER NULL", "INT"),
            ("double precision not null", "DOUBLE NOT NULL"),
            ("string", "VARCHAR(2147483647)"),
            ("BYTES", "VARBINARY(2147483647)"),
            ("CHAR", "CHAR(1)"),
            ("NUMERIC(5)", "DECIMAL(5, 0)"),
            ("DEC", "DECIMAL(10, 0)"),
            ("TIME WITHOUT TIME ZONE", "TIME(0)"),
            ("TIMESTAMP WITHOUT TIME ZONE", "TIMESTAMP(6)"),
            ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
            ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
            ("INT NOT NULL ARRAY NOT NULL", "ARRAY<INT NOT NULL> NOT NULL"),
            ("INT MULTISET", "MULTISET<INT>"),
            ("ROW(a INT, b ROW<c DATE>)", "ROW<`a` INT, `b` ROW<`c` DATE>>"),
            ("ROW<`a``b` INT 'it''s'>", "ROW<`a``b` INT 'it''s'>"),
            ("  MAP < INT , STRING >  ", "MAP<INT, VARCHAR(2147483647)>"),
            ("STRUCTURED<'acme.A'>", "STRUCTURED<'acme.A'>"),
            ("INTERVAL DAY TO SECOND", "INTERVAL DAY(2) TO SECOND(6)"),
        ],
    )
    def test_what_it_means(self, text: str, meant: str) -> None:
        """Short forms mean the full ones, which mean themselves."""
        found = parse_logical_type(text)
        assert str(found) == meant
        assert parse_logical_type(meant) == found

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "the end"),
            ("WHATEVER", "is no SQL type"),
            ("`INT`", "is no SQL type"),
            ("INT INT", "behind a complete type"),
            ("DECIMAL(39, 0)", "a number from 1 to 38"),
            ("DECIMAL(5, 6)", "a number from 0 to 5"),
            ("VARCHAR(0)", "a number from 1"),
            ("TIMESTAMP(10)", "a number from 0 to 9"),
            ("ARRAY<INT", "'>' expected"),
            ("MAP<INT>", "',' expected"),
            ("ROW<a INT b INT>", "',' expected"),
            ("ROW<a INT, a INT>", "two fields 'a'"),
            ("ROW<5 INT>", "the name of a field expected"),
            ("INTERVAL WEEK", "no unit"),
            ("INTERVAL SECOND TO DAY", "behind a complete type"),
            ("INTERVAL MINUTE TO HOUR", "INTERVAL MINUTE TO HOUR"),
            ("STRUCTURED<acme.A, a INT>", "single quotes"),
            ("RAW('java.util.List', 'x')", "is no SQL type that can be written down"),
            ("ROW<`a INT>", "is no part of a type"),
        ],
    )
    def test_what_it_does_not(self, text: str, problem: str) -> None:
        """Anything else is refused, with the text and what is wrong with it."""
        with pytest.raises(EncodeError, match=problem) as caught:
            parse_logical_type(text)
        assert repr(text) in str(caught.value) or not text

    def test_depth(self) -> None:
        """Types nested without end are refused, before Python's stack is."""
        with pytest.raises(EncodeError, match="more than 60 deep"):
            parse_logical_type("ARRAY<" * 5000 + "INT" + ">" * 5000)

    @given(st.text(max_size=30))
    def test_noise(self, text: str) -> None:
        """No text makes it fail in another way."""
        try:
            found = parse_logical_type(text)
        except EncodeError:
            return
        assert parse_logical_type(str(found)) == found


class TestDifferences:
    """Where two types part."""

    @pytest.mark.parametrize(
        ("old", "new", "found"),
        [
            ("INT", "INT", []),
            ("INT", "INT NOT NULL", [("", "INT", "INT NOT NULL")]),
            ("ROW<a INT, b INT>", "ROW<a INT, b DATE>", [("b", "INT", "DATE")]),
            ("ROW<a INT>", "ROW<b INT>", [("", "ROW<`a` INT>", "ROW<`b` INT>")]),
            ("ROW<a INT 'x'>", "ROW<a INT>", [("", "ROW<`a` INT 'x'>", "ROW<`a` INT>")]),
            ("MAP<INT, ARRAY<INT>>", "MAP<DATE, ARRAY<DATE>>",
             [("key", "INT", "DATE"), ("value.[]", "INT", "DATE")]),
            ("ARRAY<INT>", "MULTISET<INT>", [("", "ARRAY<INT>", "MULTISET<INT>")]),
        ],
    )  # fmt: skip
    def test_places(self, old: str, new: str, found: list[tuple[str, str, str]]) -> None:
        """The innermost places, with both types."""
        pair = parse_logical_type(old), parse_logical_type(new)
        assert list(type_differences(*pair)) == [
            TypeDifference(*difference, certain=True) for difference in found
        ]

    def test_raw_types(self) -> None:
        """Only Java knows whether two serializers of one class are equal; of two, they are not."""
        one = RawType("acme.A", ("S", 1))
        (found,) = type_differences(ArrayType(one), ArrayType(replace(one, serializer=("S", 2))))
        assert not found.certain
        (found,) = type_differences(one, RawType("acme.B", ("S", 1)))
        assert found.certain
        unknown = UnknownType("acme.Type", "SYMBOL", 1)
        (found,) = type_differences(unknown, replace(unknown, content=2))
        assert not found.certain


def stream_of(type_: LogicalType) -> bytes:
    """The stream of a type."""
    return WrittenType.of(type_).stream


class TestStreams:
    """Streams that Flink did not write."""

    @given(st.data())
    def test_any_byte(self, data: st.DataObject) -> None:
        """Changed bytes are an error of ours, or a type that is written and read as itself."""
        text = "ROW<a DECIMAL(10, 2), b ARRAY<TIMESTAMP(3)>, c MAP<STRING, INTERVAL DAY>>"
        raw = bytearray(stream_of(parse_logical_type(text)))
        for _ in range(data.draw(st.integers(1, 3))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        try:
            written = read_logical_type(DataInput(bytes(raw)))
        except StateError:
            return
        assert written.stream == raw[: len(written.stream)]
        assert read_logical_type(DataInput(written.stream)) == written
        try:
            again = stream_of(written.type)
        except EncodeError:  # a user's class
            return
        assert read_logical_type(DataInput(again)).type == written.type

    @given(st.integers(0, 10_000))
    def test_cut_short(self, length: int) -> None:
        """A stream that ends too early is refused."""
        raw = stream_of(parse_logical_type("ROW<a INT, b ARRAY<STRING>>"))
        with pytest.raises(CorruptSnapshotError):
            read_logical_type(DataInput(raw[: length % len(raw)]))

    @pytest.mark.parametrize(
        ("field", "value"),
        [("precision", 39), ("precision", 0), ("scale", 11), ("precision", None), ("scale", "x")],
    )
    def test_numbers_out_of_range(self, field: str, value: object) -> None:
        """A DECIMAL that can't be is refused, not made."""
        made = JavaTypes().of(DecimalType(10, 2))
        made.values[field] = value  # type: ignore[assignment]
        with pytest.raises(CorruptSnapshotError):
            logical_type_of(made, NOWHERE)

    def test_a_type_within_itself(self) -> None:
        """A cycle is refused."""
        made = JavaTypes().of(ArrayType(INT))
        made.values["elementType"] = made
        with pytest.raises(CorruptSnapshotError, match="more than 60 deep"):
            logical_type_of(made, NOWHERE)

    def test_few_objects_of_many_types(self) -> None:
        """Twenty rows of four fields, each all of the next, are 4 to the 20 types: refused."""
        inner: LogicalType = INT
        for _ in range(20):
            inner = RowType(tuple(RowField(name, inner) for name in "abcd"))
        made = JavaTypes().of(inner)
        assert len(write_java_stream(made)) < 10_000
        with pytest.raises(CorruptSnapshotError, match="made of more than"):
            logical_type_of(made, NOWHERE)

    def test_unknown_classes(self) -> None:
        """A class that is not known is a type of its own, and compares by what it holds."""
        made = JavaTypes().of(DecimalType(10, 2))
        strange = JavaClass("acme.Type", 1, 2, made.java_class.fields, made.java_class.parent)
        found = logical_type_of(JavaObject(strange, made.values), NOWHERE)
        assert isinstance(found, UnknownType)
        assert str(found) == "DECIMAL('acme.Type')"
        other = logical_type_of(JavaObject(strange, {**made.values, "scale": 3}), NOWHERE)
        assert found != other

    def test_fields_of_one_name(self) -> None:
        """Two fields of one name are refused."""
        made = JavaTypes().of(RowType((RowField("a", INT), RowField("b", INT))))
        (array,) = {id(value): value for value in made.values["fields"].values.values()}.values()  # type: ignore[union-attr]
        array.extra["java.util.ArrayList"][2].values["name"] = "a"  # type: ignore[union-attr,index]
        with pytest.raises(CorruptSnapshotError, match="two fields of one name"):
            logical_type_of(made, NOWHERE)


class TestObjects:
    """What else is in Java streams here."""

    def test_strings_of_their_own(self) -> None:
        """Equal strings that were two objects are written as two, literals as one."""
        holder = java_class("[Ljava.lang.String;", -5921575005990323385)
        two = JavaArray(holder, [JavaString("a"), JavaString("a"), "b", "b"])
        raw = write_java_stream(two)
        assert raw.count(b"\x74\x00\x01a") == 2
        assert raw.count(b"\x74\x00\x01b") == 1
        again = read_java_stream(DataInput(raw))
        assert isinstance(again, JavaArray)
        assert again.items == ["a", "a", "b", "b"]
        assert write_java_stream(again) == raw

    def test_classes_as_values(self) -> None:
        """A `java.lang.Class` comes back as what it is."""
        described = java_class("java.lang.String", 5)
        holder = java_class("[Ljava.lang.Class;", 1)
        value = JavaClassLiteral(described)
        raw = write_java_stream(JavaArray(holder, [value, value]))
        again = read_java_stream(DataInput(raw))
        assert isinstance(again, JavaArray)
        first, second = again.items
        assert first is second
        assert isinstance(first, JavaClassLiteral)
        assert first.java_class.name == "java.lang.String"
        assert write_java_stream(again) == raw

    def test_summaries(self) -> None:
        """Objects are compared by what they hold, cycles and all."""
        described = java_class("acme.Node", 1, [("next", "Lacme/Node;"), ("id", "I")])
        rings = []
        for identifier in (1, 1, 2):
            node = java_object(described, id=identifier)
            node.values["next"] = node
            rings.append(summary(node))
        assert rings[0] == rings[1] != rings[2]


def test_an_object_that_contains_itself_is_read_to_an_end() -> None:
    """A list that is its own view is no list; a chain of references is compared up to a depth."""
    view = JavaObject(JavaClass("java.util.Collections$UnmodifiableList", 0, 2))
    view.values["list"] = view
    with pytest.raises(ValueError, match="a list of an unknown class"):
        list_items(view)
    chain = JavaObject(JavaClass("a.Link", 0, 2))
    for _ in range(10_000):
        chain = JavaObject(chain.java_class, {"next": chain})
    with pytest.raises(ValueError, match="nested too deep"):
        summary(chain)
