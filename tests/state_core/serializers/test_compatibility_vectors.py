"""What may follow what, against Flink: pairs of serializers that are neither POJO's nor SQL's."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import (
    KEYED_STATE_TYPE,
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.formats.layout.state_compatibility import OperatorSchema, check_operators
from statelake.state_core.serializers.basic.numbers import SNAPSHOTS, LongSerializer
from statelake.state_core.serializers.framework.base import TypeSerializerSnapshot
from statelake.state_core.serializers.framework.compatibility import Compatibility, Verdict
from statelake.state_core.serializers.framework.registry import (
    read_serializer_snapshot,
    write_serializer_snapshot,
)
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from tests.support.savepoints.golden_cases import GOLDEN

Pair = dict[str, Any]

PAIRS: list[Pair] = [
    json.loads(line)
    for line in (GOLDEN / "vectors" / "compatibility.jsonl").read_text("utf-8").splitlines()
]
SNAPSHOTS_OF: dict[str, bytes] = {
    pair[side]: bytes.fromhex(pair[f"{side}_snapshot"])
    for pair in PAIRS
    for side in ("old", "new")
    if f"{side}_snapshot" in pair
}

CODE = "whether the class reads what it wrote is in its code, which Flink trusts and we don't have"
COMPARATOR = "whether a comparator equals another is in its code, which Flink runs"
OTHER_BYTES = "Flink compares nested serializers only; these two write their values differently"
CLASS_GONE = "Flink looks for the old class in the new job; two snapshots do not say if it is there"
# where our verdict is another one, on purpose: by what the names begin with
OURS: dict[tuple[str, str], tuple[Verdict, str]] = {
    ("Kryo(Optional)", "Kryo(Optional)"): (Verdict.UNKNOWN, CODE),
    ("Kryo(UUID)", "Kryo(UUID)"): (Verdict.UNKNOWN, CODE),
    ("Value(Ours)", "Value(Ours)"): (Verdict.UNKNOWN, CODE),
    ("CopyableValue(LongValue)", "CopyableValue(LongValue)"): (Verdict.UNKNOWN, CODE),
    ("Tuple2(Kryo(UUID)", "Tuple2(Kryo(UUID)"): (Verdict.UNKNOWN, CODE),
    ("SortedMap by Ascending", "SortedMap by Ascending"): (Verdict.UNKNOWN, COMPARATOR),
    ("Tuple2(List(Long)", "Tuple2(Set(Long)"): (Verdict.INCOMPATIBLE, OTHER_BYTES),
    ("Avro class A", "Avro of class A"): (Verdict.COMPATIBLE_AS_IS, CLASS_GONE),
}


def title(pair: Pair) -> str:
    """The pair's name in a report."""
    return f"{pair['old']} to {pair['new']}{' in a backend' if 'backend' in pair else ''}"


every_pair = pytest.mark.parametrize("pair", PAIRS, ids=title)


def snapshot(name: str) -> TypeSerializerSnapshot:
    """The snapshot of that name, which takes all bytes."""
    source = DataInput(SNAPSHOTS_OF[name])
    found = read_serializer_snapshot(source)
    assert source.remaining == 0
    return found


def written(snapshot: TypeSerializerSnapshot) -> bytes:
    """A snapshot's bytes."""
    out = DataOutput()
    write_serializer_snapshot(snapshot, out)
    return out.to_bytes()


def resolve(pair: Pair) -> Compatibility:
    """What we say, as one snapshot of the other or as a state backend."""
    old, new = snapshot(pair["old"]), snapshot(pair["new"])
    return in_backend(old, new) if "backend" in pair else new.resolve_schema_compatibility(old)


def in_backend(old: TypeSerializerSnapshot, new: TypeSerializerSnapshot) -> Compatibility:
    """The same question put of the value of a keyed state."""
    key = SNAPSHOTS[LongSerializer]()
    schemas = [
        OperatorSchema("operator", key, {"state": StateMetaInfo(
            "state",
            BackendStateType.KEY_VALUE,
            {KEYED_STATE_TYPE: "MAP" if "Map" in old.java_class else "VALUE"},
            {VALUE_SERIALIZER: serializer_entry(key_snapshot)},
        )})
        for key_snapshot in (old, new)
    ]  # fmt: skip
    (found,) = [
        check_operator
        for check_operator in check_operators(schemas[:1], schemas[1:])
        if check_operator.state
    ]
    return found.result


def flinks(pair: Pair) -> Verdict:
    """Flink's verdict; that it can't read the old snapshot with the new classes is the worst."""
    texts = {verdict.text: verdict for verdict in Verdict}
    return texts.get(pair["verdict"], Verdict.INCOMPATIBLE)


def exception(pair: Pair) -> tuple[Verdict, str] | None:
    """Our own verdict with its reason, where it is not Flink's."""
    old, new = pair["old"], pair["new"]
    for (before, after), ours in OURS.items():
        if old.startswith(before) and new.startswith(after):
            return ours
    kinds = {type(snapshot(name)) for name in (old, new)}
    composite = all(issubclass(kind, CompositeTypeSerializerSnapshot) for kind in kinds)
    asked = "backend" not in pair and {old, new} != {"List(Long)", "ArrayList(Long)"}
    if asked and composite and len(kinds) == 2 and flinks(pair) is not Verdict.INCOMPATIBLE:
        return Verdict.INCOMPATIBLE, OTHER_BYTES
    return None


@every_pair
def test_snapshots_are_written_back(pair: Pair) -> None:
    """Both of them, byte for byte, and each gives a serializer that has a name and a type."""
    for name in (pair["old"], pair["new"]):
        found = snapshot(name)
        assert written(found) == SNAPSHOTS_OF[name]
        serializer = found.restore_serializer()
        assert serializer.name == found.type_name
        assert serializer.arrow_type is not None


@every_pair
def test_verdict_is_flinks(pair: Pair) -> None:
    """The new snapshot says of the old one what Flink's says, with a reason unless it is as is."""
    result = resolve(pair)
    known = exception(pair)
    assert result.verdict is (flinks(pair) if known is None else known[0])
    assert bool(result.reasons) == (result.verdict is not Verdict.COMPATIBLE_AS_IS)
    assert known is None or known[0] is not flinks(pair)


RECONFIGURED = [pair for pair in PAIRS if "reconfigured" in pair and exception(pair) is None]


@pytest.mark.parametrize("pair", RECONFIGURED, ids=title)
def test_reconfigured_serializer_is_flinks(pair: Pair) -> None:
    """What is written from then on is what Flink's reconfigured serializer writes, and stays so."""
    made = resolve(pair).reconfigured
    assert written(made).hex() == pair["reconfigured"]
    again = made.resolve_schema_compatibility(snapshot(pair["old"]))
    assert written(again.reconfigured or made) == written(made)


def test_the_pairs_are_many_and_of_every_verdict() -> None:
    """The file covers each of Flink's results, and most of it without an exception."""
    verdicts = Counter(flinks(pair) for pair in PAIRS)
    assert len(PAIRS) > 500
    assert min(verdicts.values()) >= 25
    assert set(verdicts) == set(Verdict) - {Verdict.UNKNOWN}
    assert sum(exception(pair) is not None for pair in PAIRS) < len(PAIRS) / 8
