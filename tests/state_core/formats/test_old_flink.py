"""Savepoints that real Flink 1.8, 1.12 and 1.17 wrote, with either backend, read as any other.

Before 1.13 a savepoint was in the backend's own format; before 1.18 operator state had version 5.
The job is `OldJobs.java` of the integration tests; what its state holds follows from the number.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from statelake import open_snapshot
from statelake.state_core.errors import UnsupportedFormatError
from statelake.state_core.files.filesystem import InlineSource
from statelake.state_core.files.wire import DataInput
from statelake.state_core.formats.keyed.headed_file import KeyGroupSpan
from statelake.state_core.formats.keyed.keyed_files import is_unified_group
from statelake.state_core.formats.layout.keyed_states import TIMERS, layout_of
from statelake.state_core.formats.layout.meta_info import (
    VALUE_SERIALIZER,
    BackendStateType,
    StateMetaInfo,
    serializer_entry,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import NewKeyedState, NewOperator
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.handles import DistributionMode, KeyGroupsHandle, KeyGroupsKind
from statelake.state_core.model.snapshot import Operator
from statelake.state_core.serializers.basic.numbers import LongSerializer
from statelake.state_core.serializers.framework.registry import read_serializer_snapshot
from statelake.state_core.serializers.framework.snapshots import CompositeTypeSerializerSnapshot
from statelake.state_core.serializers.kryo.snapshot import KryoSerializerSnapshot
from tests.support.savepoints.golden_cases import GOLDEN

OLD = sorted((GOLDEN / "old").iterdir())
KEYS = 60
FAR = 4_000_000_000_000
cases = pytest.mark.parametrize("savepoint", OLD, ids=lambda case: case.name)


def operator(savepoint: Path, uid: str) -> Operator:
    """An operator of the savepoint, by a uid that it holds only as a hash."""
    return open_snapshot(savepoint, uids=["keyed", "lists"]).operator(uid)


def values(savepoint: Path, state: str) -> dict[str, Any]:
    """Each key's value; of a map state, its entries."""
    found: dict[str, Any] = {}
    for row in operator(savepoint, "keyed").state(state).to_arrow().to_pylist():
        if "user_key" in row:
            found.setdefault(row["key"], {})[row["user_key"]] = row["value"]
        else:
            found[row["key"]] = row["value"]
    return found


def test_every_version_is_there() -> None:
    """Three releases, two backends each."""
    assert len(OLD) == 6


@cases
def test_keyed_state(savepoint: Path) -> None:
    """A value, a list and a map for each key, as the job filled them."""
    numbers = range(KEYS)
    assert values(savepoint, "count") == {f"word-{n}": n * 31 - 7 for n in numbers}
    assert values(savepoint, "items") == {
        f"word-{n}": [n * 10 + i for i in range(n % 4)] for n in numbers if n % 4
    }
    assert values(savepoint, "scores") == {
        f"word-{n}": {f"s{i}": n / 8 + i for i in range(n % 4)} for n in numbers if n % 4
    }


@cases
def test_timers(savepoint: Path) -> None:
    """One a key. RocksDB in 1.8 kept them on the heap, as raw state."""
    held = operator(savepoint, "keyed")
    timers = held.state("_timer_state/event_user-timers").to_arrow()
    assert sorted(timers.column("timestamp").cast("int64").to_pylist()) == [
        FAR + number for number in range(KEYS)
    ]


@cases
def test_operator_state(savepoint: Path) -> None:
    """Version 5, a split and a union list."""
    held = operator(savepoint, "lists")
    assert held.operator_state_version == 5
    split, union = held.operator_state("split"), held.operator_state("union")
    assert (split.mode, union.mode) == (DistributionMode.SPLIT_DISTRIBUTE, DistributionMode.UNION)
    assert sorted(split.to_arrow().column("value").to_pylist()) == list(range(KEYS))
    assert union.to_arrow().column("value").to_pylist() == [
        "subtask-0-0", "subtask-1-0", "subtask-1-1", "subtask-1-2",
    ]  # fmt: skip
    assert pc.all(pc.is_null(split.to_arrow().column("raw_value"))).as_py()


@pytest.mark.parametrize("kind", [KeyGroupsKind.LEGACY, KeyGroupsKind.NATIVE])
def test_a_full_checkpoint_of_rocksdb_with_one_key_group(
    kind: KeyGroupsKind, tmp_path: Path
) -> None:
    """It is not taken for one of the heap, as which it begins: by the number of key group 0."""
    rows = pa.table({"key": list(range(3000)), "value": list(range(3000))})
    states = (
        NewKeyedState("first", rows, value="Long"),
        NewKeyedState("last", rows.slice(2998), value="Long"),
    )
    operator = NewOperator("all", "Long", states, parallelism=1, max_parallelism=1)
    write_snapshot(tmp_path / "s", [operator], metadata_version=3)
    metadata = read_metadata((tmp_path / "s" / "_metadata").read_bytes())
    (subtask,) = (metadata.operators[0].subtasks or {}).values()
    assert isinstance(subtask.managed_keyed, KeyGroupsHandle)
    subtask.managed_keyed = replace(subtask.managed_keyed, kind=kind)
    (tmp_path / "s" / "_metadata").write_bytes(write_metadata(metadata))
    read = open_snapshot(tmp_path / "s").operators[0].state("first").to_arrow()
    assert sorted(read["value"].to_pylist()) == list(range(3000))
    report = check_snapshot(tmp_path / "s")
    assert (report.faults, report.checked.entries) == ((), 3002)


def test_a_heap_of_one_key_group_is_one() -> None:
    """Also with bytes that might be lengths, and with those at its end that end a key group."""
    for state, keys in ((0, ()), (1, ()), (1, (0, 1)), (256, (0, 255))):
        entries = b"".join(b"\0" + struct.pack(">qq", key, -1) for key in keys)
        data = struct.pack(">ihi", 0, state, len(keys)) + entries
        span = KeyGroupSpan(0, 0, len(data))
        assert not is_unified_group(InlineSource("heap", data), [span])


def test_timers_of_flink_1_7_are_to_be_restored_in_a_later_one() -> None:
    """Their serializer is a Java object; those of no serializer of timers can only be dropped."""
    for java_class, remedy in ((TIMERS, "restore it in Flink 1.8 to 1.16"), ("Own", "drop the")):
        lines = (GOLDEN / "vectors" / "scala.jsonl").read_text().splitlines()
        line = next(line for line in map(json.loads, lines) if line.get("type") == "Try<Long>")
        tried = read_serializer_snapshot(DataInput(bytes.fromhex(line["snapshot"])))
        assert isinstance(tried, CompositeTypeSerializerSnapshot)
        thrown = tried.nested[1]
        assert isinstance(thrown, KryoSerializerSnapshot)
        timer = {VALUE_SERIALIZER: serializer_entry(thrown.of_class(java_class))}
        state = StateMetaInfo("_timer_state/a", BackendStateType.PRIORITY_QUEUE, {}, timer)
        with pytest.raises(UnsupportedFormatError) as refused:
            layout_of(state, LongSerializer())
        assert refused.value.remedy.startswith(remedy)
