"""Types drawn at random, written by real Flink 1.20: upgraded, real Flink 2.3 restores all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import statelake as sl
from statelake.state_core.serializers.kryo.decoding import declare_classes
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
