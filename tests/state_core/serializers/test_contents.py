"""What texts and bytes hold: JSON of a shape, and Avro's messages of a registry; no byte lost."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.state_core.errors import EncodeError, IncompatibleError
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.basic.text import ByteArraySerializer, StringSerializer
from statelake.state_core.serializers.contents.avro_messages import AvroMessages
from statelake.state_core.serializers.contents.content import UnfitError
from statelake.state_core.serializers.contents.json_texts import (
    MAP_FROM,
    MOST_LEVELS,
    JsonTexts,
    shape_of,
)
from statelake.state_core.serializers.contents.sayings import content_of, holding
from tests.support.serializers.serializer_columns import decode, encode, read, write

TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@given(st.lists(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3), min_size=1, max_size=5))
def test_any_json_is_read_by_its_shape_and_written_as_it_was_or_kept(values: list[Any]) -> None:
    """A value that is exact is written as the same bytes, and all others are marked."""
    texts = [compact(value).decode() for value in values]
    shape = shape_of(text.encode() for text in texts)
    assert shape is not None
    serializer = holding(StringSerializer(), JsonTexts(shape).saying)
    encoded = [write(StringSerializer(), text) for text in texts]
    column, inexact = decode(serializer, encoded)
    again = encode(serializer, column)
    for text, written, wrong in zip(encoded, again, inexact, strict=True):
        assert wrong or written == text
    assert shape_of((text.encode() for text in texts), shape) == shape


SEEN: list[tuple[list[str], Any]] = [
    (['{"a":1}', '{"b":"x"}'], {"a": "long", "b": "string"}),
    (['{"a":1}', '{"a":1.5}'], {"a": "double"}),
    (['{"a":1}', '{"a":"x"}'], {"a": "json"}),
    (['{"a":null}'], {"a": "json"}),
    (['{"a":[]}'], {"a": ["json"]}),
    (['{"a":[]}', '{"a":[{"b":true}]}'], {"a": [{"b": "boolean"}]}),
    (['{"a":99999999999999999999}'], {"a": "json"}),
    (["[1,2]"], ["long"]),
    (['{"a":{}}'], {"a": "json"}),
    (['{"a":{"\\ud800":1}}'], {"a": "json"}),  # half of a character names no column
    (["no json", '{"a":1}'], {"a": "long"}),
    (["[[1],[2.5]]"], [["double"]]),
    ([json.dumps({f"k{i}": i for i in range(MAP_FROM)})], {"*": "long"}),
]


@pytest.mark.parametrize(("texts", "shape"), SEEN, ids=[texts[0][:20] for texts, _ in SEEN])
def test_a_shape_is_found(texts: list[str], shape: Any) -> None:
    """Of all values; what is not alike stays JSON."""
    assert shape_of(text.encode() for text in texts) == shape


def test_a_shape_grows_from_an_earlier_one() -> None:
    """Fields that no value has any more stay; a map stays a map."""
    before = {"a": "long", "m": {"*": "long"}, "l": [{"x": "string"}]}
    assert shape_of([b'{"b":1,"m":{"q":2.5},"l":[{"y":1}]}'], before) == {
        "a": "long", "m": {"*": "double"}, "l": [{"x": "string", "y": "long"}], "b": "long",
    }  # fmt: skip


def test_there_is_no_shape_without_json() -> None:
    """None, which the caller tells."""
    assert shape_of([b"no", b"null", b"\xff", b"NaN", b"[" * 100_000]) is None


EXACT = [
    ('{"id":1,"name":"ä","tags":["x"],"m":{"k":1.5}}', 0),
    ('{"id":1}', 0),
    ('{"id": 1}', 1),  # a space
    ('{"name":"x","id":1}', 1),  # another order
    ('{"id":null}', 1),
    ('{"id":1,"more":2}', 1),
    ('{"id":"1"}', 1),
    ('{"id":true}', 1),
    ('{"id":9223372036854775808}', 1),
    ('{"name":"\\u0041"}', 1),
    ('{"name":"\\ud800"}', 1),
    ('{"id":1,"id":2}', 1),
    ("null", 1),
    ("", 1),
    ("no json", 1),
    ('{"m":{"k":NaN}}', 1),
    ('{"m":{"k":1e400}}', 1),  # more than a double
    ('{"m":{"k":1' + 400 * "0" + "}}", 1),
]


@pytest.mark.parametrize(("text", "inexact"), EXACT, ids=[text[:30] for text, _ in EXACT])
def test_what_would_be_written_otherwise_keeps_its_bytes(text: str, inexact: int) -> None:
    """Marked as inexact, so that the table keeps them beside the columns."""
    said = {"id": "long", "name": "string", "tags": ["string"], "m": {"*": "double"}}
    serializer = holding(StringSerializer(), JsonTexts(said).saying)
    _, marked = decode(serializer, [write(StringSerializer(), text)])
    assert list(marked) == [inexact]


@pytest.mark.parametrize("text", ['{"m":{"k":1e400}}', '{"m":{"k":1' + 400 * "0" + "}}"])
def test_a_number_that_no_double_holds_is_in_no_column(text: str) -> None:
    """Not as infinity, which JSON does not have."""
    serializer = holding(StringSerializer(), 'json {"m":{"*":"double"}}')
    assert read(serializer, write(StringSerializer(), text)) is None


def _far_down(calls: int, text: bytes) -> bytes:
    """Read and write a text of JSON within so many calls."""
    content = JsonTexts({"a": "json"})
    return _far_down(calls - 1, text) if calls else content.write(content.read(text))


def test_what_is_read_is_written_however_deep_the_caller_is() -> None:
    """JSON of many levels is not one that only some callers can write."""
    fits = b'{"a":' + b"[" * (MOST_LEVELS - 1) + b"]" * (MOST_LEVELS - 1) + b"}"
    assert _far_down(300, fits) == fits
    flat = b'{"a":[' + b"[]," * (2 * MOST_LEVELS) + b"[]]}"
    assert _far_down(0, flat) == flat
    with pytest.raises(UnfitError, match="levels"):
        JsonTexts({"a": "json"}).read(fits.replace(b"[]", b"[[]]"))


def test_null_text_is_null_and_exact() -> None:
    """A `String` may be null in Flink; a `byte[]` may not."""
    serializer = holding(StringSerializer(), 'json {"a":"long"}')
    column, inexact = decode(serializer, [write(StringSerializer(), None)])
    assert column.to_pylist() == [None]
    assert list(inexact) == [0]
    assert encode(serializer, column) == [b"\0"]
    with pytest.raises(EncodeError, match="is null"):
        encode(holding(ByteArraySerializer(), 'json {"a":"long"}'), column)


def test_names_become_columns() -> None:
    """Each another one, whatever its case; JSON has them as they were."""
    serializer = holding(ByteArraySerializer(), 'json {"a b":"long","A_B":"long","":"json"}')
    text = b'{"a b":1,"A_B":2,"":{"x":[1]}}'
    value = read(serializer, write(ByteArraySerializer(), text))
    assert value == {"a_b": 1, "A_B_2": 2, "f2": '{"x":[1]}'}
    assert write(serializer, value) == write(ByteArraySerializer(), text)


def test_absent_fields_take_room_in_proportion() -> None:
    """Many empty objects of many fields are left as they are."""
    wide = JsonTexts([{f"f{i}": "long" for i in range(500)}])
    assert wide.read(b"[{},{}]") == [dict.fromkeys(f"f{i}" for i in range(500))] * 2
    with pytest.raises(UnfitError):
        wide.read(b"[" + b"{}," * 100_000 + b"{}]")


BAD = [
    ("xml <a/>", "no form of what"),
    ("json", "no shape of JSON"),
    ("json {}", "no shape of JSON"),
    ('json "text"', "no shape of JSON"),
    ("json [1]", "no shape of JSON"),
    ('json {"\\ud800":"long"}', "no shape of JSON"),
    ("json " + "[" * 200 + '"long"' + "]" * 200, "levels"),
    ("json " + json.dumps({f"f{i}": "long" for i in range(20_000)}), "columns"),
    ("avro {", "no schema of Avro"),
    ('avro {"seven":{"type":"string"}}', "not by number"),
    ('avro {"7":{"type":"nothing"}}', "is no type"),
    ('avro {"*":"string","7":"string"}', "beside others"),
    ("avro {}", "not by number"),
    (
        'avro {"type":"record","name":"T","fields":[{"name":"t","type":["null","T"]}]}',
        "contains itself",
    ),
]


@pytest.mark.parametrize(("saying", "why"), BAD, ids=[saying[:20] for saying, _ in BAD])
def test_what_says_nothing_is_refused(saying: str, why: str) -> None:
    """With the reason."""
    with pytest.raises(EncodeError, match=why):
        content_of(saying)


def test_only_text_and_bytes_hold_something() -> None:
    """A number does not."""
    with pytest.raises(IncompatibleError, match="its values are Long"):
        holding(LongSerializer(), 'json "json"')


# --------------------------------------------------------------------------- Avro

ORDER_1: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}],
}  # fmt: skip
ORDER_2: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "choice", "type": ["null", "int", "string"], "default": None},
    ],
}  # fmt: skip
ALL: dict[str, Any] = {
    "type": "record", "name": "All", "fields": [
        {"name": "b", "type": "boolean"}, {"name": "i", "type": "int"},
        {"name": "l", "type": "long"}, {"name": "f", "type": "float"},
        {"name": "d", "type": "double"}, {"name": "y", "type": "bytes"},
        {"name": "s", "type": "string"}, {"name": "n", "type": "null"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": 3}},
        {"name": "a", "type": {"type": "array", "items": ["long", "null"]}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "u", "type": ["null", "int", "string"]},
        {"name": "r", "type": {"type": "record", "name": "R", "fields": [
            {"name": "q", "type": "double"}]}},
    ],
}  # fmt: skip
ANY = st.fixed_dictionaries(
    {
        "b": st.booleans(), "i": st.integers(-(1 << 31), (1 << 31) - 1),
        "l": st.integers(-(1 << 63), (1 << 63) - 1), "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False), "y": st.binary(max_size=5), "s": TEXTS, "n": st.none(),
        "e": st.sampled_from("AB"), "x": st.binary(min_size=3, max_size=3),
        "a": st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "m": st.dictionaries(TEXTS, st.lists(st.integers(-9, 9), max_size=2), max_size=2),
        "u": st.none() | st.integers(-9, 9) | TEXTS,
        "r": st.fixed_dictionaries({"q": st.floats(allow_nan=False)}),
    }
)  # fmt: skip


def message(number: int, schema: Any, value: Any) -> bytes:
    """A message, by another implementation of Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


@given(ANY, st.integers(0, (1 << 31) - 1))
def test_messages_are_read_and_written_as_another_implementation_does(
    value: Any, number: int
) -> None:
    """Each type of Avro, byte for byte; in a column, too."""
    content = AvroMessages.parse(json.dumps(ALL))
    data = message(number, ALL, value)
    held = content.read(data)
    assert content.write(held) == data
    assert held["schema_id"] == number
    same = ("b", "i", "l", "f", "d", "y", "s", "e", "x")
    assert {name: held[name] for name in same} == {name: value[name] for name in same}
    assert (dict(held["m"]), held["r"]) == (value["m"], value["r"])
    serializer = holding(ByteArraySerializer(), content.saying)
    column, inexact = decode(serializer, [write(ByteArraySerializer(), data)])
    assert list(inexact) == [0]
    assert encode(serializer, column) == [write(ByteArraySerializer(), data)]


@given(ANY, st.data())
def test_a_damaged_message_is_kept_or_is_another_one(value: Any, draw: st.DataObject) -> None:
    """Any change of bytes is no message, or one that is marked unless it is written so."""
    content = AvroMessages.parse(json.dumps({"7": ALL}))
    data = bytearray(message(7, ALL, value))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] = draw.draw(st.integers(0, 255))
    cut = bytes(data[: draw.draw(st.integers(0, len(data)))])
    serializer = holding(ByteArraySerializer(), content.saying)
    for each in (bytes(data), cut):
        encoded = write(ByteArraySerializer(), each)
        column, inexact = decode(serializer, [encoded])
        assert inexact[0] or encode(serializer, column) == [encoded]


def test_an_older_schema_is_resolved_and_its_bytes_are_kept() -> None:
    """The columns are those of the newest, which alone is written."""
    content = AvroMessages.parse(json.dumps({"10": ORDER_2, "9": ORDER_1}))
    data = message(9, ORDER_1, {"id": 5})
    value = content.read(data)
    nothing = {"branch": 0, "b0": None, "b1": None, "b2": None}
    assert value == {"id": 5, "note": None, "choice": nothing, "schema_id": 9}
    with pytest.raises(EncodeError, match="set schema_id to 10"):
        content.write(value)
    assert content.write({**value, "schema_id": 10}) == message(
        10, ORDER_2, {"id": 5, "note": None, "choice": None}
    )
    _, inexact = decode(
        holding(ByteArraySerializer(), content.saying), [write(ByteArraySerializer(), data)]
    )
    assert list(inexact) == [1]


def test_blocks_with_sizes_are_read_and_kept() -> None:
    """Another writer may write a block's bytes in front of it."""
    schema = {"type": "array", "items": "long"}
    content = AvroMessages.parse(json.dumps(schema))
    assert pa.types.is_struct(content.arrow_type)
    value = content.read(b"\0\0\0\0\7" + bytes([3, 4, 2, 4, 2, 6, 0]))
    assert value == {"value": [1, 2, 3], "schema_id": 7}
    with pytest.raises(UnfitError):
        content.read(b"\0\0\0\0\7" + b"\xff" * 20)


def test_a_map_with_a_name_twice_is_in_no_column() -> None:
    """SQL would refuse the whole table: such a message keeps its bytes alone."""
    content = AvroMessages.parse(json.dumps({"type": "map", "values": "int"}))
    with pytest.raises(UnfitError, match="twice"):
        content.read(b"\0\0\0\0\7" + b"\4\2a\2\2a\4\0")


def test_elements_without_bytes_are_bounded() -> None:
    """A count is not trusted."""
    content = AvroMessages.parse(json.dumps({"type": "array", "items": "string"}))
    with pytest.raises(UnfitError, match="a block of"):
        content.read(b"\0\0\0\0\7" + b"\xfe\xff\xff\xff\x0f" + b"\0")
