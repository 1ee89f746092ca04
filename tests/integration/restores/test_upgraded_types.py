"""Types drawn at random, written by real Flink 1.20: upgraded, real Flink 2.3 restores all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import statelake as sl
from statelake.state_core.serializers.kryo.decoding import declare_classes
from tests.integration.flink.distribution import JAVA_SOURCES
from tests.integration.flink.generated_types import (
    LEAVES,
    RENEWED,
    Types,
    drawn_types,
    source_of,
)
from tests.integration.flink.oracle import FlinkError, FlinkOracle

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.usefixtures("own_registry")]

KEYS = 20
# the lines of each operator: one of each key, or one of each of its windows
WINDOWS_OF = {
    "types": 1, "sessions": 2, "hours": 2, "global": 1, "spans": 2, "listed": 2, "evicting": 2,
    "grouped": 4, "joined": 2, "reduced": 1,
}  # fmt: skip
REPORTED = {name: KEYS * windows for name, windows in WINDOWS_OF.items()}
UIDS = list(WINDOWS_OF)
# operators of all kinds, each of which says one line of each key
OPERATORS = ("both", "joined", "matched", "queued", "ruled", "states", "waiting")
POINTS = "List<PojoJobs$Point>"
CLASSES = {
    "PojoJobs$Own": {
        "fields": {"x": "int", "price": "java.math.BigDecimal", "points": POINTS}, "final": True,
    },
    "PojoJobs$Point": {"fields": {"x": "int", "y": "double"}, "final": True},
    "PojoJobs$Reading": {"fields": {"at": "long", "place": "String", "values": "List<Double>"}},
}  # fmt: skip


def oracle(version: str, types: Types, directory: Path) -> FlinkOracle:
    """Flink with the job of these types."""
    source = directory / "PojoJobs.java"
    source.write_text(source_of(types, KEYS), "utf-8")
    return FlinkOracle(version, changed=[source], modules=["flink-avro"])


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 40), pytest.param(2, 200, marks=pytest.mark.nightly)]
)
def test_types_are_upgraded(seed: int, count: int, tmp_path: Path) -> None:
    """Values of each are equal in both backends; as they were, Flink 2 refuses them."""
    types = drawn_types(seed, count, LEAVES | RENEWED)
    with oracle("1.20.0", types, tmp_path) as old:
        savepoint = old.generate("pojos", tmp_path / "old", keys=KEYS)
    plan = sl.upgrade(savepoint, uids=UIDS)
    (why,) = [state.left for state in plan.states if state.state == "library"]
    assert "a value of org.apache.commons.math3.complex.Complex, whose form is not known" in why
    assert "declare the class in a file for --kryo" in why
    declare_classes({"flink": 1, "classes": types.declared})
    with oracle("2.3.0", types, tmp_path) as new:
        like = new.generate("pojos", tmp_path / "like", keys=1)
        done = sl.upgrade(savepoint, tmp_path / "new", "2.3", like=like, uids=UIDS)
        assert {state.state: state.left for state in done.states if state.left} == {}
        for backend in ("hashmap", "rocksdb"):
            lines = new.restore("pojos", tmp_path / "new", keys=KEYS, backend=backend)
            assert [line for line in lines if line["wrong"]] == []
            assert Counter(line["of"] for line in lines) == REPORTED
        with pytest.raises(FlinkError):
            new.restore("pojos", savepoint, keys=KEYS)


@pytest.mark.nightly
def test_operators_of_all_kinds_are_upgraded(tmp_path: Path) -> None:
    """Their values are equal, of all classes, in another order of registrations and parallelism.

    What can't be upgraded is named; as it is, Flink 2 restores nothing of its operator.
    """
    changed = [JAVA_SOURCES / "upgraded" / "PojoJobs.java"]
    modules = ["flink-avro", "flink-cep"]
    forms = {
        "canonical": {"suffix": "refused"},
        "heap": {"format": "native"},
        "rocksdb": {"format": "native", "backend": "rocksdb", "suffix": "refused"},
    }
    with FlinkOracle("1.20.0", changed=changed, modules=modules) as old:
        savepoints = {
            name: old.generate("pojos", tmp_path / name, keys=KEYS, **words)
            for name, words in forms.items()
        }
    declare_classes({"flink": 1, "classes": CLASSES})
    uids = [*OPERATORS, "refused", "tokens"]
    with FlinkOracle("2.3.0", changed=changed, modules=modules) as new:
        like = new.generate("pojos", tmp_path / "like", keys=1)
        for form, savepoint in savepoints.items():
            to = tmp_path / f"{form}-new"
            done = sl.upgrade(savepoint, to, "2.3", like=like, uids=uids, partly=True)
            left = {f"{each.operator}/{each.state}": each.left for each in done.states if each.left}
            if form == "heap":
                assert left == {}
            else:
                assert left.keys() == {
                    "refused/day", "refused/fixed", "tokens/count",
                    "tokens/_timer_state/event_user-timers",
                    "tokens/_timer_state/processing_user-timers",
                }  # fmt: skip
                assert "a serializer of its own for it" in left["refused/day"]
                assert "UnmodifiableRandomAccessList, whose form" in left["refused/fixed"]
                assert all("Flink 2 restores nothing of the op" in why for why in left.values())
            for backend in ("hashmap", "rocksdb"):
                words = {"keys": KEYS, "parallelism": 3, "backend": backend}
                lines = new.restore("pojos", to, **words)
                assert [line for line in lines if line["wrong"]] == []
                assert Counter(line["of"] for line in lines) == dict.fromkeys(OPERATORS, KEYS)
        with pytest.raises(FlinkError, match="Missing value for the key"):
            new.restore("pojos", tmp_path / "canonical-new", keys=KEYS, suffix="refused")
