"""A subtask's state as pairs: of real Flink's savepoints, there and back, and what differs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake.pipelines.runtime.subtask_store import (
    COUNT,
    ENTRY,
    HEADER,
    METADATA,
    OPERATOR,
    PAIRS,
    SubtaskFiles,
    SubtaskStore,
    _changes,
    changes_between,
)
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import write_metadata
from statelake.state_core.formats.reader import open_snapshot
from statelake.state_core.model.handles import FileHandle, KeyGroupsHandle, RelativeHandle
from statelake.state_core.runtime.commit import PosixDisk
from tests.support.savepoints.golden_cases import GOLDEN as FOLDER
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

GOLDEN = golden_cases(form="canonical")
WORDCOUNT = GoldenCase(FOLDER / "flink" / "wordcount-hashmap-canonical-p2-m128-flink1.20.0")


def subtasks_of(golden: GoldenCase) -> list[SubtaskFiles]:
    """Each subtask with state as a run writes it: unified keyed files, operator state."""
    directory = Directory(golden.snapshot).confined()
    found = []
    for operator in open_snapshot(golden.snapshot).metadata.operators:
        for index, subtask in (operator.subtasks or {}).items():
            keyed = subtask.managed_keyed
            handles = (keyed, subtask.managed_operator)
            streams = [getattr(handle, "stream", None) for handle in handles if handle is not None]
            if streams and all(isinstance(stream, RelativeHandle) for stream in streams):
                alone = replace(subtask, raw_keyed=None, raw_operator=None)
                found.append(SubtaskFiles(directory, replace(operator, subtasks={index: alone})))
    return found


def stored(path: Path, files: SubtaskFiles) -> SubtaskStore:
    """A store that holds a state."""
    store = SubtaskStore(PosixDisk(path), "state")
    store.hold(files)
    return store


@pytest.mark.thinned(3)
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_pairs_become_the_same_state_again(golden: GoldenCase, tmp_path: Path) -> None:
    """Every entry, the header and operator state, in files that a reader opens."""
    for number, files in enumerate(subtasks_of(golden)):
        pairs = dict(stored(tmp_path / "a", files).items())
        entries = sum(key[:1] == ENTRY for key in pairs)
        keyed = files.keyed()
        assert entries == (0 if keyed is None else sum(map(len, keyed.entries())))
        restored = SubtaskStore(PosixDisk(tmp_path / f"restored-{number}"), "state")
        restored.apply_all(pairs)
        restored.flush()
        again = dict(restored.items())
        assert {**again, METADATA: b""} == {**pairs, METADATA: b""}
        assert restored.files is not None
        assert [key for key, _ in changes_between(files, restored.files)] == [METADATA]
        opened = SubtaskStore(PosixDisk(tmp_path / f"restored-{number}"), "state")
        assert dict(opened.items()) == again


def test_the_golden_savepoints_have_such_states() -> None:
    """Of most of them; the others have their state in `_metadata` itself."""
    assert sum(bool(subtasks_of(golden)) for golden in GOLDEN) > len(GOLDEN) * 3 // 4


def test_subscribers_are_told_what_differs(tmp_path: Path) -> None:
    """Applied to the pairs of one subtask, they give those of the other."""
    first, second = subtasks_of(WORDCOUNT)[:2]
    store = stored(tmp_path, first)
    pairs = dict(store.items())
    told: dict[bytes, bytes | None] = {}
    store.subscribe(told.__setitem__)
    store.become(second)
    for key, value in told.items():
        if value is None:
            del pairs[key]
        else:
            assert pairs.get(key) != value
            pairs[key] = value
    assert pairs == dict(stored(tmp_path, second).items())
    told.clear()
    store.become(second)
    assert not told


def forged(files: SubtaskFiles, what: str) -> SubtaskFiles:
    """The same state, described as no run describes it."""
    operator, state = files.operator, files.subtask
    (index,) = operator.subtasks or {}
    keyed = state.managed_keyed
    assert isinstance(keyed, KeyGroupsHandle)
    subtasks = {
        "more key groups": {
            index: replace(state, managed_keyed=replace(keyed, offsets=(*keyed.offsets, 0)))
        },
        "other key groups": {1 - index: state},
        "a file elsewhere": {
            index: replace(state, managed_keyed=replace(keyed, stream=FileHandle("/a", 1)))
        },
        "raw state": {index: replace(state, raw_keyed=keyed)},
    }[what]
    return replace(files, operator=replace(operator, subtasks=subtasks))


@pytest.mark.parametrize(
    "what", ["more key groups", "other key groups", "a file elsewhere", "raw state"]
)
def test_a_description_that_no_run_writes_is_refused(what: str, tmp_path: Path) -> None:
    """In a store's files, and in pairs of a changelog."""
    files = subtasks_of(WORDCOUNT)[0]
    described = write_metadata(forged(files, what).metadata)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "_metadata").write_bytes(described)
    with pytest.raises(CorruptSnapshotError, match="handles that `statelake run` does not write"):
        SubtaskStore(PosixDisk(tmp_path), "state")
    store = SubtaskStore(PosixDisk(tmp_path / "restored"), "state")
    store.apply_all({**dict(stored(tmp_path / "a", files).items()), METADATA: described})
    with pytest.raises(CorruptSnapshotError, match="handles that `statelake run` does not write"):
        store.flush()


@pytest.mark.parametrize("lacks", [METADATA, HEADER, OPERATOR, COUNT])
def test_pairs_that_are_not_complete_are_refused(lacks: bytes, tmp_path: Path) -> None:
    """With an error that names the lack; nothing is half-written."""
    candidates = (files for golden in GOLDEN for files in subtasks_of(golden))
    for files in candidates:
        pairs = dict(stored(tmp_path, files).items())
        if pairs.pop(lacks, None) is not None:
            break
    store = SubtaskStore(PosixDisk(tmp_path / "restored"), "state")
    store.apply_all(pairs)
    name = lacks.decode(errors="replace").strip("\0")
    lack = "without a description" if lacks == METADATA else f"the pair {name!r} is missing"
    with pytest.raises(CorruptSnapshotError, match=re.escape(lack)):
        store.flush()


def test_entries_of_another_state_or_key_group_are_refused(tmp_path: Path) -> None:
    """As is a key that ends before its key group."""
    (files, *_) = subtasks_of(WORDCOUNT)
    pairs = dict(stored(tmp_path, files).items())
    (first, value) = next((key, value) for key, value in pairs.items() if key[:1] == ENTRY)
    end = 3 + int.from_bytes(first[1:3], "big")
    del pairs[first]
    elsewhere = first[:end] + b"\xff\xff" + first[end + 2 :]
    for number, key in enumerate((b"e\0\5other\0\0key", b"e\xff\xff", b"e", elsewhere)):
        store = SubtaskStore(PosixDisk(tmp_path / str(number)), "state")
        store.apply_all({**pairs, key: value})
        with pytest.raises(CorruptSnapshotError, match="that is not described"):
            store.flush()


def test_pairs_without_some_entries_are_refused(tmp_path: Path) -> None:
    """As of a topic that forgets what is old, instead of only what was replaced."""
    (files, *_) = subtasks_of(WORDCOUNT)
    pairs = dict(stored(tmp_path, files).items())
    del pairs[next(key for key in pairs if key[:1] == ENTRY)]
    store = SubtaskStore(PosixDisk(tmp_path / "restored"), "state")
    store.apply_all(pairs)
    with pytest.raises(CorruptSnapshotError, match="not as many as were committed"):
        store.flush()


CONTENT = st.dictionaries(st.binary(max_size=2), st.binary(max_size=2), max_size=12)


@given(old=CONTENT, new=CONTENT, kept=st.booleans(), chance=st.randoms())
def test_changes_lead_from_any_pairs_to_any_others(
    old: dict[bytes, bytes], new: dict[bytes, bytes], kept: bool, chance: Random
) -> None:
    """In any order; what is equal is no change."""
    items = list(({**old, **new} if kept else new).items())
    if not kept:
        chance.shuffle(items)
    tables = [
        pa.Table.from_pylist([{"key": key, "value": value} for key, value in pairs], PAIRS)
        for pairs in (old.items(), items)
    ]
    changes = list(_changes(*tables))
    assert len({key for key, _ in changes}) == len(changes)
    assert all(old.get(key) != value for key, value in changes)
    pairs = dict(old)
    for key, value in changes:
        if value is None:
            del pairs[key]
        else:
            pairs[key] = value
    assert pairs == dict(items)
