"""`KeyedState.get`: the rows of one key, out of its key group alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError, EncodeError
from statelake.state_core.formats.keyed.rocksdb.rocksdb_native import RocksDBFiles, RocksDBKeyedFile
from statelake.state_core.formats.layout.keys import decode_keys, keys_of
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import KeyGroupRange
from statelake.state_core.model.snapshot import KeyedState
from tests.support.rocksdb_databases import Settings, opened, tables_in, write
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases
from tests.support.savepoints.heap_timers import TIMER_KEYS, heap_timers
from tests.support.savepoints.keyed_types import KEYS, POJO, keyed_savepoint
from tests.support.savepoints.own_savepoint import FORMS, own_savepoint

SAMPLED = 4
# RocksDB's tables of these are one block, and inline state has no file: other tests see to both
WITH_FILES = [
    golden
    for golden in golden_cases("wordcount", "kinds")
    if "inline" not in golden.name and "rocksdb-native" not in golden.name
]


def states_of(snapshot: Snapshot) -> Iterator[KeyedState]:
    """All keyed states of a snapshot, timers included."""
    for operator in snapshot.operators:
        yield from operator.keyed_states


def sorted_rows(table: pa.Table) -> list[str]:
    """Rows as text, in an order of their own."""
    return sorted(map(str, table.to_pylist()))


def assert_gets(state: KeyedState, sampled: int = SAMPLED) -> None:
    """Some keys give just the rows that reading everything has of them, and so does another."""
    rows = state.to_arrow(threads=1)
    keys = rows.column("key").to_pylist()
    step = max(1, len(keys) // sampled)
    for key in keys[::step]:
        wanted = rows.filter(pa.array([other == key for other in keys], pa.bool_()))
        assert len(wanted)
        assert sorted_rows(state.get(key)) == sorted_rows(wanted)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("golden", golden_cases(), ids=lambda golden: golden.name)
@pytest.mark.full
def test_keys_of_what_flink_wrote(golden: GoldenCase) -> None:
    """Canonical, heap and RocksDB, compressed or not: as if everything had been read."""
    for state in states_of(open_snapshot(golden.snapshot)):
        assert_gets(state)


@pytest.mark.parametrize("case", TIMER_KEYS)
def test_timers_that_lie_beside_rocksdb(case: str, tmp_path: Path) -> None:
    """They are found where they lie, by the same key."""
    for state in states_of(open_snapshot(heap_timers(case, tmp_path / case))):
        assert_gets(state)


@pytest.mark.parametrize("form", FORMS)
def test_a_job_whose_serializers_nobody_knows(form: str, tmp_path: Path) -> None:
    """Its keys are known, or are the bytes that `to_arrow` shows."""
    for state in states_of(open_snapshot(own_savepoint(form, tmp_path / form))):
        assert_gets(state)


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type(name: str, tmp_path: Path) -> None:
    """Of each kind of state the one row; of a key that is not there none."""
    spec, keys = KEYS[name]
    kind = keyed_savepoint(tmp_path / "s", spec, keys[1:])
    for state in states_of(open_snapshot(tmp_path / "s")):
        assert_gets(state, len(keys))
        assert [len(state.get(key)) for key in keys] == [0] + [1] * (len(keys) - 1)
        assert len(state.get(pa.scalar(keys[1], kind))) == 1
        assert state.get(keys[0]).schema == state.schema


def test_a_hash_that_the_class_alone_knows(tmp_path: Path) -> None:
    """The key group is not known, and the key is found in whichever it is."""
    keys = KEYS["POJOs"][1]
    keyed_savepoint(tmp_path / "s", POJO, keys)
    operator = open_snapshot(tmp_path / "s").operator("op")
    assert operator.keyed_files[0].encode_key(keys[1]).key_group is None
    assert operator.state("count").get(keys[1]).column("key_group").to_pylist() == [40]


@pytest.mark.parametrize("key", ["1", 1.5, None, 2**63, {"f0": 1}])
def test_what_is_no_key_of_the_type(key: Any, tmp_path: Path) -> None:
    """The error names the type."""
    keyed_savepoint(tmp_path / "s", "Long", [1])
    state = open_snapshot(tmp_path / "s").operator("op").state("count")
    with pytest.raises(EncodeError, match="is not a key of type Long"):
        state.get(key)


def test_a_key_that_begins_another(tmp_path: Path) -> None:
    """Long keys that differ in one byte, wherever it is, are different keys."""
    keys = ["", "a" * 200, "b" + "a" * 199, "a" * 199 + "b", "a" * 199, "a" * 201]
    keyed_savepoint(tmp_path / "s", "String", keys)
    for state in states_of(open_snapshot(tmp_path / "s")):
        for key in keys:
            assert state.get(key).column("key").to_pylist() == [key]


@pytest.mark.parametrize("golden", WITH_FILES, ids=lambda golden: golden.name)
def test_other_key_groups_are_not_read(golden: GoldenCase, tmp_path: Path) -> None:
    """They may be damaged, all of them."""
    path = tmp_path / "s"
    shutil.copytree(golden.snapshot, path)
    whole = open_snapshot(path)
    state = next(state for state in states_of(whole) if len(state.to_arrow()))
    row = state.to_arrow().slice(0, 1).to_pylist()[0]
    (file,) = (file for file, _ in state.files if row["key_group"] in file.key_groups)
    spans = getattr(file, "spans", None) or file.file.spans  # type: ignore[attr-defined]
    data = bytearray(Path(file.name).read_bytes())
    for span in spans:
        if span.group != row["key_group"]:
            data[span.start + 4 : span.end] = b"\xee" * (span.end - span.start - 4)
    Path(file.name).write_bytes(data)
    damaged = open_snapshot(path).operator(whole.operators[0].label).state(state.name)
    with pytest.raises(CorruptSnapshotError):
        damaged.to_arrow()
    assert row in damaged.get(row["key"]).to_pylist()


# --------------------------------------------------------------------- RocksDB's own files


def rows_from(files: RocksDBFiles, group: int, begins: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of the entries that are found by what their keys begin with."""
    rows = []
    for entries in files.entries_from(0, group, begins):
        data = entries.data.tobytes()
        for at in range(len(entries)):
            bounds = (entries.key_start, entries.key_end, entries.value_end)
            start, middle, end = (int(bound[at]) for bound in bounds)
            assert int(entries.group_of[at]) == group
            rows.append((data[start:middle], data[middle:end]))
    return rows


def test_rocksdb_seeks_and_does_not_walk(tmp_path: Path) -> None:
    """A key in any of many blocks is found though all blocks but its own are damaged."""
    directory, settings = tmp_path / "db", Settings(block_size=256, compression="none")
    keys = [b"key-%05d" % number for number in range(2000)]
    write(directory, settings, [("put", 0, b"\x07" + key, key[::-1]) for key in keys])
    (table,) = tables_in(directory)
    sound = table.read_bytes()
    for wanted in (keys[0], keys[777], keys[-1]):
        data = bytearray(sound)
        at = sound.index(wanted[::-1])
        for near in (at - 3000, at + 1000):
            if sound.index(keys[0]) < near < sound.index(keys[-1][::-1]) - 2000:
                data[near : near + 2000] = b"\xee" * 2000
        table.write_bytes(data)
        files = opened(directory, settings)
        assert rows_from(files, 7, wanted) == [(wanted, wanted[::-1])]
        with pytest.raises(CorruptSnapshotError):
            rows_from(files, 7, b"")
        table.write_bytes(sound)


def test_what_rocksdb_finds_is_what_begins_so(tmp_path: Path) -> None:
    """Bytes of all ones, the last key group, other versions, deletions."""
    directory, settings = tmp_path / "db", Settings()
    steps = [
        ("put", 0, b"\xff" + b"\xff\xff" + tail, b"old")
        for tail in (b"", b"\x00", b"\xff", b"\xff\xff")
    ]
    steps += [("put", 0, b"\xff\xfe\xff", b"before"), ("put", 0, b"\xfe\xff\xff", b"other group")]
    steps += [("flush", 0, b"", b""), ("put", 0, b"\xff\xff\xff", b"new")]
    steps += [("delete", 0, b"\xff\xff\xff\x00", b"")]
    write(directory, settings, steps)
    files = opened(directory, settings)
    assert rows_from(files, 255, b"\xff\xff") == [
        (b"\xff\xff", b"new"), (b"\xff\xff\xff", b"old"), (b"\xff\xff\xff\xff", b"old")
    ]  # fmt: skip
    assert rows_from(files, 254, b"") == [(b"\xff\xff", b"other group")]
    assert rows_from(files, 3, b"") == []


def test_rocksdb_is_not_opened_for_a_key_of_another_subtask(tmp_path: Path) -> None:
    """Whoever asks all subtasks opens the instance of one."""
    directory, settings = tmp_path / "db", Settings()
    write(directory, settings, [("put", 0, b"\x01a", b"b")])
    (directory / "CURRENT").write_bytes(b"damaged")
    files = opened(directory, settings, groups=KeyGroupRange(0, 63))
    assert rows_from(files, 64, b"") == []
    with pytest.raises(CorruptSnapshotError):
        rows_from(files, 1, b"a")


@pytest.mark.parametrize(
    "golden", golden_cases("kinds", "pojo", "churn", "windows"), ids=lambda golden: golden.name
)
def test_keys_of_entries(golden: GoldenCase) -> None:
    """Cut out of entries and decoded they are the column of keys."""
    for operator in open_snapshot(golden.snapshot).operators:
        for file in operator.keyed_files:
            for entries in file.entries():
                for state in np.unique(entries.state_of).tolist():
                    assert_keys(file, state, entries.of_state(state))


def assert_keys(file: Any, state: int, entries: Entries) -> None:
    """The keys of entries of one state are those that decoding them all gives."""
    layout = file.layouts[state]
    cut, _ = decode_keys(layout, keys_of(layout, entries))
    assert cut.equals(file.decode(state, entries, ["key"]).column(0))


def test_all_states_of_rocksdb_are_read_at_once() -> None:
    """Timers too, whose keys stand behind their timestamps."""
    (golden,) = golden_cases("kinds", form="native")[-1:]
    operator = open_snapshot(golden.snapshot).operator("kinds")
    file = operator.keyed_files[0]
    assert isinstance(file, RocksDBKeyedFile) == (golden.facts["backend"] == "rocksdb")
    first = next(file.entries())
    key = file.decode(int(first.state_of[0]), first.of_state(int(first.state_of[0]))).column("key")
    names = {
        file.states[int(entries.state_of[0])].name
        for entries in file.entries_of_key(file.encode_key(key[0]))
    }
    assert any(name.startswith("_timer_state/") for name in names)
    assert len(names) > 5
