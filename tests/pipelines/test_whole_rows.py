"""What `dump`, `get`, `find` and `diff` print of every type: all of a value, or bytes as well."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.pipelines.shown import json_text, plain, plain_rows
from statelake.state_core.errors import StateError
from statelake.state_core.formats.layout.keyed_layout import KeyedLayout
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.snapshot import StateKind
from statelake.state_core.serializers.basic.numbers import DoubleSerializer, LongSerializer
from statelake.state_core.serializers.basic.text import StringSerializer
from statelake.state_core.serializers.basic.times import InstantSerializer
from statelake.state_core.serializers.composite.collections import ListSerializer, MapSerializer
from statelake.state_core.serializers.composite.pojo import PojoSerializer
from statelake.state_core.serializers.composite.structs import RowSerializer, TupleSerializer
from statelake.state_core.serializers.composite.wrappers import VoidNamespaceSerializer
from statelake.state_core.serializers.framework.base import TypeSerializer
from statelake.state_core.serializers.scala.serializers import OptionSerializer
from statelake.state_core.serializers.sql.table_timestamps import TimestampDataSerializer
from tests.state_core.serializers.test_contract import TABLE, serializer_of
from tests.support.serializers.serializer_columns import write
from tests.support.serializers.serializer_samples import LEAVES, Sample, big_integer

LONG, TEXT, INSTANT = LongSerializer(), StringSerializer(), InstantSerializer()
VOID = VoidNamespaceSerializer()
FLIPS = 8  # of a value's bits
# the ends of numbers, NaNs with bits of their own, and what Flink writes for null
PATTERNS = [bytes(16), b"\xff" * 16, b"\x7f" + b"\xff" * 15, b"\x80" + bytes(15)] + [
    head + bytes(size) + tail
    for head in (b"\x7f\xf0", b"\xff\xf8", b"\x7f\x80", b"\x7f\xc0", b"\xff\xc0")
    for size, tail in ((1, b"\x01" * 13), (5, b"\x01" * 9), (14, b""))
]


def layout_of(
    kind: StateKind, value: TypeSerializer, user_key: TypeSerializer | None = None, **more: Any
) -> KeyedLayout:
    """A state by Long."""
    return KeyedLayout(kind, LONG, VOID, value, user_key, **more)


def printed(layout: KeyedLayout, key: bytes, value: bytes) -> dict[str, Any]:
    """An entry as `dump` prints it."""
    bounds = np.array([0, len(key), len(key) + len(value)], np.int64)
    entries = Entries(
        np.frombuffer(key + value, np.uint8), np.zeros(1, np.int16), np.zeros(1, np.int64),
        bounds[:1], bounds[1:2], bounds[1:2], bounds[2:], lambda at: f"byte {at}",
    )  # fmt: skip
    (row,) = plain_rows({}, layout.decode(entries), layout)
    return row


def of_value(serializer: TypeSerializer, data: bytes) -> dict[str, Any]:
    """A value state's entry."""
    return printed(layout_of(StateKind.VALUE, serializer), write(LONG, 1) + b"\0", data)


def of_user_key(serializer: TypeSerializer, data: bytes) -> dict[str, Any]:
    """A map state's entry with that key."""
    layout = layout_of(StateKind.MAP, LONG, serializer)
    return printed(layout, write(LONG, 1) + b"\0" + data, b"\0" + write(LONG, 2))


def neighbours(data: bytes) -> list[bytes]:
    """The same with one bit the other way, spread over all bytes."""
    step = max(1, 8 * len(data) // FLIPS)
    bits = islice(range(0, 8 * len(data), step), FLIPS)
    number = int.from_bytes(data, "big")
    return [(number ^ 1 << bit).to_bytes(len(data), "big") for bit in bits]


def check(serializer: TypeSerializer, values: list[bytes], show: Any, raw: str) -> None:
    """No two values look alike, and one that JSON does not say has its bytes beside it."""
    seen: dict[str, bytes] = {}
    for data in dict.fromkeys(each for value in values for each in (value, *neighbours(value))):
        try:
            row = show(serializer, data)
        except StateError:
            continue  # no value of that type
        if raw in row:
            assert base64.b64decode(row[raw]).endswith(data)
        text = json_text(row)
        assert seen.setdefault(text, data) == data, text


def edges(serializer: TypeSerializer, values: list[bytes]) -> list[bytes]:
    """Values, and patterns of bytes as long as every value is."""
    return values + [each[: serializer.length] for each in PATTERNS if 0 < serializer.length <= 16]


def sweep(sample: Sample, show: Any, raw: str) -> None:
    """Compare what is printed of drawn values, and of those at the edges of their type."""
    serializer = serializer_of(sample)

    @settings(max_examples=2, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(sample.encoded, min_size=1, max_size=2))
    def drawn(values: list[bytes]) -> None:
        check(serializer, edges(serializer, values), show, raw)

    drawn()


@pytest.mark.full
@pytest.mark.parametrize("sample", TABLE, ids=repr)
def test_no_two_values_look_alike(sample: Sample) -> None:
    """Of any type: bits that JSON does not say are there as bytes."""
    sweep(sample, of_value, "raw_value")


@pytest.mark.full
@pytest.mark.parametrize("sample", LEAVES, ids=repr)
def test_no_two_user_keys_look_alike(sample: Sample) -> None:
    """Nor keys of maps."""
    sweep(sample, of_user_key, "raw_key")


MAX = (31_556_889_864_403_199).to_bytes(8, "big") + (999_999_999).to_bytes(4, "big")
MAX_TEXT = "+1000000000-12-31T23:59:59.999999999+00:00"
POJO = PojoSerializer("acme.Order", [("at", INSTANT), ("id", LONG)], {})
NESTED: dict[str, tuple[TypeSerializer, bytes, Any]] = {
    "tuple": (TupleSerializer([INSTANT, LONG]), MAX + bytes(8), {"f0": MAX_TEXT, "f1": 0}),
    "row": (RowSerializer([INSTANT, LONG]), b"\x10" + MAX, {"f0": MAX_TEXT, "f1": None}),
    "list": (ListSerializer(INSTANT), b"\0\0\0\x01" + MAX, [MAX_TEXT]),
    "map": (MapSerializer(INSTANT, TEXT), b"\0\0\0\x01" + MAX + b"\0\2a", [[MAX_TEXT, "a"]]),
    "pojo": (POJO, b"\x02\0" + MAX + b"\0" + bytes(8), {"at": MAX_TEXT, "id": 0}),
    "option": (OptionSerializer(INSTANT), b"\x01" + MAX, MAX_TEXT),
    "sql": (
        TimestampDataSerializer(9),
        (1).to_bytes(8, "big") + (234_567).to_bytes(4, "big"),
        "1970-01-01T00:00:00.001234567",
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_values_within_others_are_whole(name: str) -> None:
    """In text, and so without bytes; lists and maps as any others."""
    serializer, data, shown = NESTED[name]
    assert of_value(serializer, data)["value"] == shown
    assert "raw_value" not in of_value(serializer, data)


def test_what_json_does_not_say_has_its_bytes_beside_it() -> None:
    """Bits of a NaN, null in two forms, the key null beside the text "null", an invalid time."""
    nan = b"\x7f\xf8\0\0\0\0\0\x01"
    entry = of_value(DoubleSerializer(), nan)
    assert (entry["value"], entry["raw_value"]) == ("nan", base64.b64encode(nan).decode())
    assert "raw_value" not in of_value(DoubleSerializer(), nan[:7] + b"\0")
    within = of_value(ListSerializer(DoubleSerializer()), b"\0\0\0\x01" + nan)
    assert base64.b64decode(within["raw_value"])[4:] == nan
    assert base64.b64decode(of_user_key(DoubleSerializer(), nan)["raw_key"])[9:] == nan

    layout = layout_of(StateKind.MAP, OptionSerializer(TEXT), LONG)
    key = write(LONG, 1) + b"\0" + write(LONG, 2)
    assert "raw_value" in printed(layout, key, b"\0\0")
    assert "raw_value" not in printed(layout, key, b"\1")

    nulls = MapSerializer(TEXT, TEXT)
    assert of_value(nulls, b"\0\0\0\x01" + b"\0" + b"\0\2a")["value"] == [[None, "a"]]
    assert of_value(nulls, b"\0\0\0\x01" + write(TEXT, "null") + b"\0\2a")["value"] == {"null": "a"}

    never = (1 << 62).to_bytes(8, "big") + bytes(4)  # Java has no such instant
    entry = of_value(INSTANT, never)
    assert entry["value"] is None
    assert base64.b64decode(entry["raw_value"]) == never


def test_times_of_last_access_stay() -> None:
    """Beside a whole value, and beside those of a list."""
    touched = (5).to_bytes(8, "big")
    key = write(LONG, 1) + b"\0"
    layout = layout_of(StateKind.VALUE, INSTANT, with_ttl=True)
    entry = printed(layout, key, touched + MAX)
    assert (entry["value"], entry["ttl"]) == (MAX_TEXT, 5)
    layout = layout_of(StateKind.LIST, INSTANT, with_ttl=True)
    entry = printed(layout, key, touched + MAX + b"," + touched + MAX)
    assert (entry["value"], entry["ttl"]) == ([MAX_TEXT, MAX_TEXT], [5, 5])


def test_keys_are_whole_too() -> None:
    """Between lengths where there are some, and with the times of timers."""
    lone = write(TEXT, "a\ud800")
    layout = KeyedLayout(StateKind.MAP, TEXT, TEXT, LONG, TEXT)
    data = lone + bytes([len(lone)]) + lone + bytes([len(lone)]) + lone
    entry = printed(layout, data, b"\0" + write(LONG, 2))
    assert [entry[name] for name in ("key", "namespace", "user_key")] == ["a\ud800"] * 3
    assert "raw_key" not in entry
    layout = KeyedLayout(StateKind.TIMERS, INSTANT, VOID)
    entry = printed(layout, b"\x80" + bytes(6) + b"\x07" + MAX + b"\0", b"")
    assert (entry["timestamp"], entry["key"]) == (7, MAX_TEXT)


def test_a_value_that_was_edited_is_what_its_column_says() -> None:
    """Exact bytes of the one before are nothing of it."""
    layout = layout_of(StateKind.VALUE, INSTANT)
    bounds = np.array([0, 9, 9 + len(MAX)], np.int64)
    entries = Entries(
        np.frombuffer(write(LONG, 1) + b"\0" + MAX, np.uint8), np.zeros(1, np.int16),
        np.zeros(1, np.int64), bounds[:1], bounds[1:2], bounds[1:2], bounds[2:], str,
    )  # fmt: skip
    batch = layout.decode(entries)
    at = batch.schema.get_field_index("value")
    value = batch.column(at).fill_null(1_000_000)
    (entry,) = plain_rows({}, batch.set_column(at, batch.schema.field(at), value), layout)
    assert entry["value"] == "1970-01-01T00:00:01+00:00"
    assert "raw_value" not in entry


def test_a_number_has_all_of_its_digits() -> None:
    """Up to the largest that is read; what is larger is bytes."""
    (sample,) = (each for each in LEAVES if each.name == "BigInt")
    serializer = serializer_of(sample)
    for number in (10**38, -(10**38), -(2**3000), 10**1500 + 1):
        row = of_value(serializer, big_integer(number))
        assert row["value"] == str(number)
        assert "raw_value" not in row
    huge = big_integer(10**9999)
    row = of_value(serializer, huge)
    assert row["value"] is None
    assert base64.b64decode(row["raw_value"]) == huge


def test_the_heaviest_keys_are_whole(tmp_path: Path) -> None:
    """And those of what has expired: text of all of a key, in place of a null or a cut time."""
    rows = pa.table(
        {
            "key": pa.array([None, 1_000_000], pa.timestamp("us", "UTC")),
            "raw_key": pa.array([MAX + b"\0", None], pa.binary()),
            "value": [[1], [2]],
            "ttl": [[3], [4]],
        }
    )
    state = NewKeyedState("of", rows, "list", value="Long", with_ttl=True)
    write_snapshot(tmp_path / "sp", [NewOperator("op", "Instant", (state,))], metadata_version=6)
    snapshot = open_snapshot(tmp_path / "sp")
    keys = {MAX_TEXT, "1970-01-01T00:00:01+00:00"}
    (weights,) = snapshot.top()["op"].values()
    for heavy in (weights.heaviest(), weights.busiest(), weights.longest()):
        assert {plain(each.key) for each in heavy} == keys
    at = datetime(2030, 1, 1, tzinfo=timezone.utc)
    (expired,) = snapshot.expired(timedelta(0), at=at, keys=True).states
    assert {plain(key) for key in expired.keys} == keys
