"""Java's hash codes, which put keys into key groups: against Flink's own, and of exact bytes.

Bytes may say more than a typed value does (nanoseconds, digits): such a key is hashed as its
bytes say, or it would land in another key group than Flink looks in.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelake.state_core.files.wire import DataInput
from statelake.state_core.model.key_groups import key_groups_of_hashes, subtask_of
from statelake.state_core.serializers.framework.base import TypeSerializer
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.serializers.serializer_columns import decode, write
from tests.support.serializers.serializer_samples import (
    LEAVES,
    OF_ONE,
    OF_TWO,
    Sample,
    big_integer,
    i32,
    string,
    utf,
    wrapped,
)

VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "vectors/keygroups.json").read_text("utf-8"))
BY_NAME = {leave.name: leave for leave in LEAVES}
WRAPPERS = {
    wrapped(row, *[BY_NAME["Int"]] * count).name.partition("<")[0]: row
    for count, rows in ((1, OF_ONE), (2, OF_TWO))
    for row in rows
}


def serializer(sample: Sample) -> TypeSerializer:
    """The sample's serializer."""
    return sample.read_snapshot().restore_serializer()


def of(wrapper: str, *names: str) -> TypeSerializer:
    """A type made of leaves."""
    return serializer(wrapped(WRAPPERS[wrapper], *(BY_NAME[name] for name in names)))


def i64(value: int) -> bytes:
    """Eight bytes."""
    return value.to_bytes(8, "big", signed=True)


NUMBERS = {"Integer": "Int", "Long": "Long", "Short": "Short", "Byte": "Byte"}
FLOATS = {"Float": (">f", 4), "Double": (">d", 8)}


def as_bytes(vector: dict[str, Any]) -> tuple[TypeSerializer, bytes] | None:
    """The key of a vector as Flink would write it; None for types that are tested elsewhere."""
    kind, key = vector["type"], vector["key"]
    if kind in NUMBERS:
        found = serializer(BY_NAME[NUMBERS[kind]])
        return found, int(key).to_bytes(found.length, "big", signed=True)
    if kind in FLOATS:
        return serializer(BY_NAME[kind]), struct.pack(FLOATS[kind][0], float(key))
    if kind == "Boolean":
        return serializer(BY_NAME[kind]), bytes([str(key).lower() == "true"])
    if kind == "Character":
        return serializer(BY_NAME["Char"]), key.encode("utf-16-be")
    if kind == "String":
        return serializer(BY_NAME[kind]), string(key)
    if kind == "BigInteger":
        return serializer(BY_NAME["BigInt"]), big_integer(int(key))
    return None


KNOWN = [(vector, *found) for vector in VECTORS if (found := as_bytes(vector)) is not None]


@pytest.mark.parametrize(
    ("vector", "found", "data"),
    KNOWN,
    ids=[f"{vector['type']}-{i}" for i, (vector, *_) in enumerate(KNOWN)],
)
def test_vectors_of_flink(vector: dict[str, Any], found: TypeSerializer, data: bytes) -> None:
    """Hash code, key group and subtask are those that Flink computed."""
    assert found.hash_code_at(DataInput(data)) == vector["hashCode"]
    column, (inexact,) = decode(found, [data])
    if not inexact:
        assert found.hash_codes(column).tolist() == [vector["hashCode"]]
    code = np.array([vector["hashCode"]], np.int32)
    for name in ("kg128", "kg32768", "kg100"):
        groups = key_groups_of_hashes(code, int(name.removeprefix("kg")))
        assert groups.tolist() == [vector[name]]
    assert subtask_of(vector["kg128"], 128, 3) == vector["op128p3"]


# type, the key's bytes, what Flink's vectors say of the key
TIMES = [
    ("Instant", i64(1714979289) + i32(123456789), "2024-05-06T07:08:09.123456789Z"),
    ("Instant", i64(0) + i32(0), "1970-01-01T00:00:00Z"),
    ("LocalDate", i32(2024) + bytes([2, 29]), "2024-02-29"),
    (
        "LocalDateTime",
        i32(2024) + bytes([2, 29, 12, 34, 56]) + i32(789),
        "2024-02-29T12:34:56.000000789",
    ),
]


@pytest.mark.parametrize(("kind", "data", "key"), TIMES, ids=[time[2] for time in TIMES])
def test_times_to_the_nanosecond(kind: str, data: bytes, key: str) -> None:
    """A timestamp column has microseconds; the hash code has all that the bytes have."""
    (vector,) = (vector for vector in VECTORS if (vector["type"], vector["key"]) == (kind, key))
    found = serializer(BY_NAME[kind])
    assert found.hash_code_at(DataInput(data)) == vector["hashCode"]


@pytest.mark.parametrize(
    "kind", ["LocalTime", "java.util.Date(ms)", "java.sql.Timestamp(ms;nanos)"]
)
def test_times_of_day_and_milliseconds(kind: str) -> None:
    """Times of day hash by nanoseconds, dates of Java 1 by milliseconds, whatever their nanos."""
    (vector,) = (vector for vector in VECTORS if vector["type"] == kind)
    numbers = [int(digits) for digits in re.findall(r"\d+", str(vector["key"]))]
    if kind == "LocalTime":
        hour, minute, second, *nano = numbers
        fraction = str(vector["key"]).partition(".")[2]
        nanos = int(fraction.ljust(9, "0")) if nano else 0
        data, name = bytes([hour, minute, second]) + i32(nanos), "LocalTime"
    elif "sql" in kind:
        data, name = i64(numbers[0]) + i32(numbers[1]), "SqlTimestamp"
    else:
        data, name = i64(numbers[0]), "Date"
    assert serializer(BY_NAME[name]).hash_code_at(DataInput(data)) == vector["hashCode"]


def test_structures_hash_their_fields_bytes() -> None:
    """Within a tuple or a row, too; and a row's kind counts."""
    instant = i64(1714979289) + i32(123456789)
    (vector,) = (vector for vector in VECTORS if vector["key"] == "2024-05-06T07:08:09.123456789Z")
    code = vector["hashCode"]
    assert of("Tuple1", "Instant").hash_code_at(DataInput(instant)) == code
    pair = of("Tuple2", "Instant", "Int").hash_code_at(DataInput(instant + i32(5)))
    assert (pair - (31 * code + 5)) % 2**32 == 0
    row = of("Row", "Instant")
    for kind, bits in ((0, 0x00), (1, 0x80), (2, 0x40), (3, 0xC0)):
        found = row.hash_code_at(DataInput(bytes([bits]) + instant))
        assert (found - (31 * kind + 31 + 31 + code)) % 2**32 == 0
    assert row.hash_code_at(DataInput(b"\x20")) == 31


def test_rows_of_flink() -> None:
    """Rows of every kind that Flink hashed."""
    row = serializer(
        Sample(
            "Row",
            _row_snapshot(BY_NAME["String"], BY_NAME["Int"]),
            BY_NAME["Int"].encoded,
            "",
        )
    )
    codes = {
        vector["key"]: vector["hashCode"] for vector in VECTORS if vector["type"].startswith("Row")
    }
    assert row.hash_code_at(DataInput(b"\0" + string("a") + i32(1))) == codes["+I[a, 1]"]
    assert row.hash_code_at(DataInput(b"\xc0" + string("a") + i32(1))) == codes["-D[a, 1]"]


def _row_snapshot(*fields: Sample) -> bytes:
    name = "org.apache.flink.api.java.typeutils.runtime.RowSerializer$RowSerializerSnapshot"
    head = utf(name) + i32(3) + i32(911108) + i32(4) + b"\1"
    count = i32(1333245) + i32(1) + i32(len(fields))
    return head + count + b"".join(field.snapshot for field in fields)


def test_nulls_hash_to_zero() -> None:
    """As `Objects.hashCode` has it; also where a number is too large for its column."""
    big = serializer(BY_NAME["BigInt"])
    large = big_integer(10**50)
    column, (inexact,) = decode(big, [large])
    assert inexact
    assert column.to_pylist() == [None]
    assert big.hash_codes(column).tolist() == [0]
    assert big.hash_code_at(DataInput(large)) == big.hash_code(10**50) != 0
    assert big.hash_code_at(DataInput(i32(0))) == 0
    dates = serializer(BY_NAME["LocalDate"])
    assert dates.hash_code_at(DataInput(bytes.fromhex("800000008000"))) == 0
    lists = of("List", "BigInt")
    assert lists.hash_codes(pa.array([[None], [None, None]], lists.arrow_type)).tolist() == [
        31,
        961,
    ]
    assert lists.hash_code_at(DataInput(write(lists, [None]))) == 31


@pytest.mark.parametrize(
    "name",
    ["Date", "SqlDate", "SqlTime", "SqlTimestamp", "Instant", "LocalDate", "LocalTime",
     "LocalDateTime"],
)  # fmt: skip
def test_null_times_hash_to_zero(name: str) -> None:
    """By value, by bytes and by column, beside another one, and within a tuple."""
    times, pair = serializer(BY_NAME[name]), of("Tuple2", name, "Int")
    null, time = write(times, None), bytes(times.length - 1) + b"\1"
    assert times.hash_code_at(DataInput(null)) == times.hash_code(None) == 0
    column, _ = decode(times, [null, time])
    assert times.hash_codes(column)[0] == 0
    assert pair.hash_code_at(DataInput(null + i32(5))) == 5
    pairs, _ = decode(pair, [null + i32(5)])
    assert pair.hash_codes(pairs).tolist() == [5]
