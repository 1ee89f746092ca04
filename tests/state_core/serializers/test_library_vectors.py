"""What Flink's libraries keep, against Flink: bytes, values, hash codes, verdicts.

`libraries.jsonl` is of Flink 2.3, `scala.jsonl` of 1.20, the last that has a Scala API.
"""

from __future__ import annotations

import json
import lzma
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statelake.state_core.errors import EncodeError, KeyGroupError, StateError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.keyed_states import layout_of
from statelake.state_core.formats.layout.meta_info import (
    KEYED_STATE_TYPE,
    NAMESPACE_SERIALIZER,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.formats.layout.state_compatibility import OperatorSchema, check_operators
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from statelake.state_core.serializers.composite.evolution import migrate_column, migrate_value
from statelake.state_core.serializers.framework.base import TypeSerializer, TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Compatibility, Verdict
from statelake.state_core.serializers.framework.opaque_values import OpaqueSerializer
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.operators.cep import LockableSerializer
from statelake.state_core.serializers.operators.stream_elements import StreamElementSerializer
from statelake.state_core.serializers.scala.flinkx_parts import UNCOMPARED
from statelake.state_core.serializers.scala.flinkx_snapshots import RENUMBERED
from statelake.state_core.serializers.scala.serializers import TrySerializer
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.serializers.serializer_columns import decode, encode, read, walked, write

Line = dict[str, Any]


def lines(name: str) -> list[Line]:
    """A file of vectors, each line with the file that it is of."""
    path = GOLDEN / "vectors" / f"{name}.jsonl"
    packed = path.with_name(f"{path.name}.xz")
    data = lzma.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    text = data.decode()
    return [{"file": name, **json.loads(line)} for line in text.splitlines()]


FLINKX = ("flinkx-1.2.4", "flinkx-1.2.9", "flinkx-2.2.4")
LINES = [line for name in ("libraries", "scala", *FLINKX) for line in lines(name)]
TYPES = {(line["file"], line["type"]): line for line in LINES if "type" in line}
VALUED = [line for line in TYPES.values() if line["values"]]
PAIRS = [line for line in LINES if "old" in line]
# typed values that say less than their bytes: a null inside of Some
HIDDEN = {("Option<String>", "0100"), ("Option<Option<String>>", "0100")}
# a case class that is null: in 2.2 the least number, while the one of 1.2.8 is read by all
LONGER = {(file, "Either<Long, Double>") for file in FLINKX[:2]}  # it got a length later
CASE_CLASSES = {
    "Tuple2<String, Long>", "Tuple2<Int, Double>", "Click", "Purchase", "Nobody", "Visit", "Visits",
}  # fmt: skip
HASHES = "Flink compares nested serializers only; as keys they are in other key groups"
BYTES = "as Flink, but for the exception it throws"
# where our verdict is another one, on purpose
OURS = {
    ("Either<String, Long>", "Java's Either<String, Long>"): (Verdict.INCOMPATIBLE, HASHES),
    ("Java's Either<String, Long>", "Either<String, Long>"): (Verdict.INCOMPATIBLE, HASHES),
}


def title(line: Line) -> str:
    """A line's name in a report."""
    name = line.get("type") or f"{line['old']} to {line['new']}"
    return f"{name}{' in a backend' if 'backend' in line else ''}"


def snapshot(file: str, name: str) -> TypeSerializerSnapshot:
    """The snapshot of that type, which takes all bytes."""
    source = DataInput(bytes.fromhex(TYPES[file, name]["snapshot"]))
    found = read_serializer_snapshot(source)
    assert source.remaining == 0
    return found


def serializer_of(line: Line) -> TypeSerializer:
    """The type's serializer."""
    return snapshot(line["file"], line["type"]).restore_serializer()


def serializer(name: str) -> TypeSerializer:
    """The same by name."""
    return serializer_of(TYPES["libraries" if ("libraries", name) in TYPES else "scala", name])


def shown(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, tuple):
        return list(map(shown, value))
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def is_hidden(line: Line, encoded: bytes) -> bool:
    """Whether the typed value says less than the bytes."""
    null = line["file"] == "flinkx-2.2.4" and "80000000" in encoded.hex()
    return (line["type"], encoded.hex()) in HIDDEN or (null and line["type"] in CASE_CLASSES)


every_type = pytest.mark.parametrize("line", TYPES.values(), ids=title)
every_valued = pytest.mark.parametrize("line", VALUED, ids=title)


# ------------------------------------------------------------------------------------ vectors


@every_type
def test_snapshots_come_back(line: Line) -> None:
    """What a serializer writes of itself is written as it was read."""
    out = DataOutput()
    write_serializer_snapshot(snapshot(line["file"], line["type"]), out)
    assert out.to_bytes().hex() == line["snapshot"]


@every_valued
def test_values(line: Line) -> None:
    """Bytes are the values that Flink wrote, one by one and as a column, and come back."""
    serializer = serializer_of(line)
    data = [bytes.fromhex(value["bytes"]) for value in line["values"]]
    wanted = [value["value"] for value in line["values"]]
    assert [shown(read(serializer, encoded)) for encoded in data] == wanted
    column, inexact = decode(serializer, data)
    assert shown(column.to_pylist()) == wanted
    assert inexact == [is_hidden(line, encoded) for encoded in data]
    exact = [row for row, lost in enumerate(inexact) if not lost]
    assert encode(serializer, column.take(pa.array(exact, pa.int64()))) == [
        data[row] for row in exact
    ]
    assert [write(serializer, read(serializer, data[row])) for row in exact] == [
        data[row] for row in exact
    ]
    if (line["file"], line["type"]) not in LONGER:
        assert serializer.length == line["length"]
    if serializer.skip_program() is not None:
        assert walked(serializer, data) == [len(encoded) for encoded in data]


@every_valued
def test_hash_codes(line: Line) -> None:
    """Java's, where every JVM has the same: of a value, of its bytes, of a column."""
    serializer = serializer_of(line)
    for value in line["values"]:
        if "hash" in value:
            data = bytes.fromhex(value["bytes"])
            assert serializer.hash_code(read(serializer, data)) == value["hash"]
            assert serializer.hash_code_at(DataInput(data)) == value["hash"]
            assert serializer.hash_codes(decode(serializer, [data])[0]).tolist() == [value["hash"]]


@every_valued
def test_damaged_values(line: Line) -> None:
    """Cut anywhere or with any byte another: a value, or an error of ours."""
    serializer = serializer_of(line)
    for value in line["values"]:
        data = bytes.fromhex(value["bytes"])[:200]
        for at in range(len(data)):
            check_damaged(serializer, data[:at])
            check_damaged(serializer, data[:at] + bytes([data[at] ^ 0x81]) + data[at + 1 :])


def check_damaged(serializer: TypeSerializer, damaged: bytes) -> None:
    """The same outcome one by one and as a column."""
    try:
        value = read(serializer, damaged)
    except StateError:
        with pytest.raises(StateError):
            decode(serializer, [damaged])
        return
    column, (lost,) = decode(serializer, [damaged])
    assert lost or repr(shown(column.to_pylist())) == repr([shown(value)])  # NaN is NaN


@every_type
def test_damaged_snapshots(line: Line) -> None:
    """A snapshot that is cut is refused, one with a byte changed is read or refused."""
    data = bytes.fromhex(line["snapshot"])
    for at in range(len(data)):
        with pytest.raises(StateError):
            read_serializer_snapshot(DataInput(data[:at]))
        damaged = data[:at] + bytes([data[at] ^ 0x81]) + data[at + 1 :]
        with suppress(StateError):
            found = read_serializer_snapshot(DataInput(damaged)).restore_serializer()
            assert isinstance(found.arrow_type, pa.DataType)


# ------------------------------------------------------------------------------------ verdicts


def in_backend(old: TypeSerializerSnapshot, new: TypeSerializerSnapshot) -> Compatibility:
    """The question put of the value of a keyed state."""
    key = SNAPSHOTS[LongSerializer]()
    before, after = (
        OperatorSchema("operator", key, {"state": state_of(snapshot)}) for snapshot in (old, new)
    )
    (found,) = [
        check_operator
        for check_operator in check_operators([before], [after])
        if check_operator.state
    ]
    return found.result


def state_of(value: TypeSerializerSnapshot) -> StateMetaInfo:
    """A value state."""
    return StateMetaInfo(
        "state",
        BackendStateType.KEY_VALUE,
        {KEYED_STATE_TYPE: "VALUE"},
        {
            VALUE_SERIALIZER: serializer_entry(value),
            NAMESPACE_SERIALIZER: serializer_entry(SNAPSHOTS[LongSerializer]()),
        },
    )


@pytest.mark.parametrize("line", PAIRS, ids=title)
def test_verdicts(line: Line) -> None:
    """What may follow what is what Flink says, or what it throws."""
    old, new = snapshot(line["file"], line["old"]), snapshot(line["file"], line["new"])
    found = in_backend(old, new) if "backend" in line else new.resolve_schema_compatibility(old)
    texts = {verdict.text: verdict for verdict in Verdict}
    flinks = texts.get(line["verdict"], Verdict.INCOMPATIBLE)
    ours, _ = OURS.get((line["old"], line["new"]), (flinks, BYTES))
    if any(reason.rule in (UNCOMPARED, RENUMBERED) for reason in found.reasons):
        ours = Verdict.INCOMPATIBLE
    assert found.verdict is ours
    assert bool(found.reasons) == (ours is not Verdict.COMPATIBLE_AS_IS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("NFAState without previous timestamps", "NFAState"),
        ("TwoPhaseCommitState<String, Long> always open", "TwoPhaseCommitState<String, Long>"),
    ],
)
def test_migrations(before: str, after: str) -> None:
    """What Flink would migrate is read with the old serializer and written with the new."""
    old, new = serializer(before), serializer(after)
    data = [bytes.fromhex(value["bytes"]) for value in TYPES["libraries", before]["values"]]
    column = migrate_column(old, new, decode(old, data)[0])
    values = [migrate_value(old, new, read(old, encoded)) for encoded in data]
    assert encode(new, column) == [write(new, value) for value in values]
    assert shown(column.to_pylist()) == [
        value["value"] for value in TYPES["libraries", before]["values"]
    ]


# ------------------------------------------------------------------------------------ details


def test_asynchronous_time_to_live_is_a_column() -> None:
    """Its value is the user's, and its time stands beside."""
    layout = layout_of(
        state_of(snapshot("libraries", "asynchronous TtlValue<String>")), LongSerializer()
    )
    assert layout.with_ttl
    assert layout.value.name == "String"
    assert "ttl" in layout.schema.names


def test_a_null_inside_of_some_is_not_none() -> None:
    """Its exact bytes are kept; only the real None is written from the typed null."""
    option = serializer("Option<Option<String>>")
    column, inexact = decode(option, [b"\1\0", b"\0"])
    assert (column.to_pylist(), inexact) == ([None, None], [True, False])
    assert write(option, None) == b"\0"


@pytest.mark.parametrize("name", ["Option<String>", "Some<String>", "Right<Long>"])
def test_hash_codes_that_are_not_derived(name: str) -> None:
    """An Option's is none of ours, not even that of None, nor is that of a case class."""
    one = serializer(name)
    data = bytes.fromhex(TYPES["scala", name]["values"][0]["bytes"])
    for refused in (
        lambda: one.hash_code(read(one, data)),
        lambda: one.hash_code_at(DataInput(data)),
        lambda: one.hash_codes(decode(one, [data])[0]),
    ):
        with pytest.raises(KeyGroupError, match="can't be derived"):
            refused()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (7, "is no StreamElement<String>"),
        ({"kind": "barrier"}, "its `kind` is one of record, watermark"),
        ({"kind": "watermark", "timestamp": 1, "value": "a"}, "a watermark has no `value`"),
        ({"kind": "watermark"}, "null, and a Long in Flink's state can't be"),
        ({"kind": "latency_marker", "timestamp": 1, "operator_id": "07"}, "no operator id"),
        ({"kind": "latency_marker", "timestamp": 1, "operator_id": "x" * 32}, "no operator id"),
    ],
)
def test_stream_elements_that_are_none(value: Any, problem: str) -> None:
    """A kind that does not exist, or a field that its kind has not."""
    with pytest.raises(EncodeError, match=problem):
        write(serializer("StreamElement<String>"), value)


def test_what_only_kryo_understands_stands_last() -> None:
    """A record, an exception or a referenced event of Kryo's takes all bytes up to the end."""
    kryo = OpaqueSerializer("com.acme.Car")
    for tested, data in (
        (StreamElementSerializer(kryo), [b"\1any", b"\0" + bytes(8) + b"any", b"\2" + bytes(8)]),
        (TrySerializer(LongSerializer(), kryo), [b"\1" + bytes(8), b"\0any", b"\0"]),
        (LockableSerializer(kryo), [bytes(4) + b"any", bytes(4)]),
    ):
        assert not tested.self_delimiting
        column, inexact = decode(tested, data)
        assert not any(inexact)
        assert encode(tested, column) == data
        assert [write(tested, read(tested, value)) for value in data] == data
    with pytest.raises(StateError, match="1 bytes behind a complete value"):
        decode(TrySerializer(LongSerializer(), kryo), [b"\1" + bytes(9)])


def test_nothing_has_no_values() -> None:
    """A byte is refused, and so is a value; an Option of it is None."""
    nothing = serializer("Nothing")
    with pytest.raises(StateError, match="a value of type Nothing"):
        read(nothing, b"\0")
    with pytest.raises(EncodeError, match="no values of type Nothing"):
        write(nothing, True)
    with pytest.raises(StateError, match="a value of type Nothing"):
        decode(serializer("Option<Nothing>"), [b"\1\0"])
    assert decode(serializer("Option<Nothing>"), [b"\0"])[0].to_pylist() == [None]


def test_an_enumeration_has_its_own_numbers() -> None:
    """A number that no value has is refused, and so is a name."""
    code = serializer("Code")
    with pytest.raises(StateError, match="value 1 is not in ScalaVectors"):
        read(code, b"\0\0\0\1")
    with pytest.raises(StateError, match="value 1 is not in ScalaVectors"):
        decode(code, [b"\0\0\0\1"])
    with pytest.raises(EncodeError, match="'Worse' is no value of"):
        write(code, "Worse")


def test_a_time_that_would_be_lost_is_refused() -> None:
    """The old form of an NFAState has no place for the time of the previous event."""
    old, new = serializer("NFAState without previous timestamps"), serializer("NFAState")
    value = read(new, bytes.fromhex(TYPES["libraries", "NFAState"]["values"][2]["bytes"]))
    with pytest.raises(EncodeError, match="a previous timestamp 1500"):
        write(old, value)
    with pytest.raises(EncodeError, match="a previous timestamp 1500"):
        encode(old, pa.array([value], old.arrow_type))


@pytest.mark.parametrize("name", ["NFA of 1.5", "SharedBuffer of 1.5"])
def test_what_flink_never_writes_again_stays_bytes(name: str) -> None:
    """Its snapshot is known, so that what stands behind it can be read."""
    one = serializer(name)
    assert one.name.startswith("binary (org.apache.flink.cep.nfa.")
    assert read(one, b"any") == b"any"
