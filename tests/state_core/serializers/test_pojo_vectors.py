"""POJOs against Flink: pairs of classes, what its serializers wrote, said, and made of it."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.serializers.composite.evolution import migrate_column, migrate_value
from statelake.state_core.serializers.composite.pojo import PojoSerializer, SubclassValue
from statelake.state_core.serializers.composite.pojo_snapshot import PojoSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Verdict
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.opaque.optional_map import OptionalEntry
from tests.support.savepoints.golden_cases import GOLDEN
from tests.support.serializers.serializer_columns import decode, encode, read, walked, write

Pair = dict[str, Any]

PAIRS: list[Pair] = [
    json.loads(line) for line in (GOLDEN / "vectors" / "pojo.jsonl").read_text("utf-8").splitlines()
]
# Flink sees that a class is gone from the job; two snapshots do not say it
GONE = {"registered subclass gone", "subclass by name gone"}
# a constructor's initialiser is in the job's code only; and we don't drop what Flink can't find
OUR_OWN_VALUES = {"added with an initialiser", "field moved down"}
BOXED = {"boxed added": "nbc", "record component added": ["more"]}

every_pair = pytest.mark.parametrize("pair", PAIRS, ids=[pair["name"] for pair in PAIRS])


def snapshot_bytes(pair: Pair, key: str) -> bytes:
    """A snapshot of the pair; the file leaves out repetitions."""
    defaults = {"restored": "old", "written_with": "new", "reconfigured": "written_with"}
    while key not in pair:
        key = defaults[key]
    return zlib.decompress(base64.b64decode(pair[key]))


def snapshot(pair: Pair, key: str) -> PojoSerializerSnapshot:
    """The same, read."""
    found = read_serializer_snapshot(DataInput(snapshot_bytes(pair, key)))
    assert isinstance(found, PojoSerializerSnapshot)
    return found


def serializer(pair: Pair, key: str) -> PojoSerializer:
    """Its serializer."""
    found = snapshot(pair, key).restore_serializer()
    assert isinstance(found, PojoSerializer)
    return found


def values(pair: Pair) -> list[bytes]:
    """What the old serializer wrote."""
    return [bytes.fromhex(value) for value in pair["values"]]


def as_json(value: Any) -> Any:
    """A value as the Java program prints it: maps as objects, bytes as hex."""
    if isinstance(value, SubclassValue):
        return as_json(value.value)
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return {key: as_json(item) for key, item in value}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def without_empty(value: Any) -> Any:
    """An empty map of a column prints like an empty list."""
    if isinstance(value, dict):
        return {name: without_empty(item) for name, item in value.items()} or []
    return [without_empty(item) for item in value] if isinstance(value, list) else value


@every_pair
def test_snapshots_are_written_back(pair: Pair) -> None:
    """Every snapshot comes back byte for byte, and so does its serializer's own, made anew."""
    for key in ("old", "new", "restored", "reconfigured", "written_with"):
        if key in pair and pair["name"] != "no longer a POJO":
            out = DataOutput()
            write_serializer_snapshot(snapshot(pair, key), out)
            assert out.to_bytes() == snapshot_bytes(pair, key)


@every_pair
def test_contents_are_what_flink_printed(pair: Pair) -> None:
    """Values read one by one are Flink's, and the column holds the same, but for subclasses."""
    ours = serializer(pair, "old")
    column, _ = decode(ours, values(pair))
    for data, expected, row in zip(values(pair), pair["contents"], column.to_pylist(), strict=True):
        found = read(ours, data)
        assert found == row
        assert without_empty(as_json(found)) == without_empty(expected)


@every_pair
def test_values_are_written_back(pair: Pair) -> None:
    """Byte for byte, from a column and one by one; only subclasses need their exact bytes."""
    ours = serializer(pair, "old")
    column, inexact = decode(ours, values(pair))
    for data, again, marked in zip(values(pair), encode(ours, column), inexact, strict=True):
        found = read(ours, data)
        assert write(ours, found) == data
        assert marked == has_subclass(found)
        assert marked or again == data
    assert walked(ours, values(pair)) == [len(value) for value in values(pair)]


def has_subclass(value: Any) -> bool:
    """Whether a value is of a subclass, or holds one that is."""
    if isinstance(value, SubclassValue):
        return True
    if isinstance(value, dict):
        return any(has_subclass(item) for item in value.values())
    return isinstance(value, list | tuple) and any(has_subclass(item) for item in value)


@every_pair
def test_verdict_is_flinks(pair: Pair) -> None:
    """The new snapshot says of the old one what Flink's says, with a reason unless it is as is."""
    new = read_serializer_snapshot(DataInput(snapshot_bytes(pair, "new")))
    result = new.resolve_schema_compatibility(snapshot(pair, "old"))
    assert bool(result.reasons) == (result.verdict is not Verdict.COMPATIBLE_AS_IS)
    if pair["name"] in GONE:
        assert result.verdict is Verdict.COMPATIBLE_WITH_RECONFIGURED_SERIALIZER
        assert "Model$A must still be there as a class" in result.reasons[0].rule
    elif pair.get("unusable"):
        assert result.verdict is Verdict.INCOMPATIBLE
    else:
        assert result.verdict.text == pair["verdict"]


RECONFIGURED = [
    pair for pair in PAIRS if pair["verdict"] == "compatible_with_reconfigured_serializer"
]


@pytest.mark.parametrize("pair", RECONFIGURED, ids=[pair["name"] for pair in RECONFIGURED])
def test_reconfigured_serializer_is_flinks(pair: Pair) -> None:
    """Fields, tags and subclasses by name (in any order: Flink keeps a hash map) are Flink's."""
    result = snapshot(pair, "new").resolve_schema_compatibility(snapshot(pair, "old"))
    out = DataOutput()
    write_serializer_snapshot(result.reconfigured, out)
    ours = read_serializer_snapshot(DataInput(out.to_bytes()))
    theirs = snapshot(pair, "reconfigured")
    assert isinstance(ours, PojoSerializerSnapshot)
    assert ours.pojo.java_class == theirs.pojo.java_class
    assert names_of(ours.pojo.fields) == names_of(theirs.pojo.fields)
    assert names_of(ours.pojo.registered) == names_of(theirs.pojo.registered)
    assert sorted(names_of(ours.pojo.non_registered)) == sorted(
        names_of(theirs.pojo.non_registered)
    )
    if len(ours.pojo.non_registered) < 2 and not nested(pair):
        assert out.to_bytes() == snapshot_bytes(pair, "reconfigured")


def names_of(entries: tuple[OptionalEntry, ...]) -> list[str]:
    """The names in a map of fields or subclasses."""
    return [entry.name for entry in entries]


def nested(pair: Pair) -> bool:
    """Whether hash maps lie further in, too."""
    return pair["name"].startswith("nested") and "by name" in pair["name"]


MIGRATED = [
    pair
    for pair in PAIRS
    if pair["verdict"] != "incompatible"
    and not pair.get("unusable")
    and pair["name"] not in OUR_OWN_VALUES
]


@pytest.mark.parametrize("pair", MIGRATED, ids=[pair["name"] for pair in MIGRATED])
def test_old_values_become_flinks_new_ones(pair: Pair) -> None:
    """Columns and single values end in the bytes that Flink writes after a restore."""
    old = serializer(pair, "old")
    target = snapshot(pair, "written_with")
    target.boxed = frozenset(BOXED.get(pair["name"], ()))
    new = target.restore_serializer()
    column, inexact = decode(old, values(pair))
    moved = encode(new, migrate_column(old, new, column))
    expected = pair.get("migrated", pair["values"])
    for data, ours, marked, theirs in zip(values(pair), moved, inexact, expected, strict=True):
        if theirs is None:  # where Flink itself fails
            continue
        assert write(new, migrate_value(old, new, read(old, data))).hex() == theirs
        assert marked or ours.hex() == theirs


GROWN_OLD = [pair for pair in PAIRS if "restored" in pair]


@pytest.mark.parametrize("pair", GROWN_OLD, ids=[pair["name"] for pair in GROWN_OLD])
def test_fields_that_are_gone_still_lie_in_the_bytes(pair: Pair) -> None:
    """What Flink writes of a serializer with missing fields reads the old values all the same."""
    old, restored = serializer(pair, "old"), serializer(pair, "restored")
    column, _ = decode(old, values(pair))
    again, _ = decode(restored, values(pair))
    if pair["name"].startswith("nested"):
        assert "missing-field-at-1" in str(restored.arrow_type)
    else:
        assert any(name.startswith("missing-field-at-") for name, _ in restored.fields)
    assert unnamed(again.to_pylist()) == unnamed(column.to_pylist())
    assert encode(restored, again) == values(pair)


def unnamed(value: Any) -> Any:
    """A value without the names of its fields."""
    if isinstance(value, dict):
        return [unnamed(item) for item in value.values()]
    return [unnamed(item) for item in value] if isinstance(value, list | tuple) else value


def test_the_pairs_are_many_and_of_every_verdict() -> None:
    """The file covers each of Flink's four results, several times."""
    verdicts = [pair["verdict"] for pair in PAIRS]
    assert len(PAIRS) > 70
    assert min(verdicts.count(verdict) for verdict in set(verdicts)) >= 10
    assert len(set(verdicts)) == 4
