"""What contradicts itself is refused when it is opened, and both places are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statelake import open_snapshot
from statelake.state_core.errors import CorruptSnapshotError
from statelake.state_core.files.wire import DataInput, DataOutput
from statelake.state_core.formats.layout.meta_info import (
    read_state_meta_infos,
    write_state_meta_info,
)
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
)
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from statelake.state_core.model.handles import DistributionMode, IncrementalHandle, KeyGroupsHandle
from statelake.state_core.model.key_groups import operator_id_of_uid
from tests.support.lakes import entries, golden
from tests.support.savepoints.contradicting import (
    CONTRADICTIONS,
    Contradiction,
    contradict,
    subtask_twice,
)
from tests.support.savepoints.damaged import damaged
from tests.support.savepoints.heap_timers import heap_timers

WORDS = "wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0"
every_contradiction = pytest.mark.parametrize(
    "contradiction",
    [pytest.param(contradiction, id=contradiction.name) for contradiction in CONTRADICTIONS],
)


@every_contradiction
def test_it_is_not_opened(contradiction: Contradiction, tmp_path: Path) -> None:
    """The message names the file, both places, and what to do."""
    snapshot = contradict(contradiction, tmp_path / "snapshot")
    with pytest.raises(CorruptSnapshotError) as refused:
        open_snapshot(snapshot)
    assert str(refused.value).startswith(str(snapshot / "_metadata"))
    for words in contradiction.says:
        assert words in str(refused.value)
    assert refused.value.remedy


@every_contradiction
def test_it_is_a_fault(contradiction: Contradiction, tmp_path: Path) -> None:
    """A check of integrity says the same, and what is salvaged contradicts itself no more."""
    snapshot = contradict(contradiction, tmp_path / "snapshot")
    faults = check_snapshot(snapshot).faults
    said = [str(fault) for fault in faults if fault.kind.value == contradiction.kind]
    assert any(all(words in text for words in contradiction.says) for text in said), said
    salvage_snapshot(snapshot, tmp_path / "salvaged")
    open_snapshot(tmp_path / "salvaged")


def test_a_subtask_twice(tmp_path: Path) -> None:
    """Which of the two states is the subtask's nobody can tell."""
    snapshot = subtask_twice(tmp_path / "snapshot").path
    with pytest.raises(CorruptSnapshotError, match=r"subtask 0 of operator 0da0.* a second time"):
        open_snapshot(snapshot)
    (fault,) = check_snapshot(snapshot).faults
    assert "a second time" in fault.problem


def test_a_state_twice_in_one_file() -> None:
    """A header names each state once, each of its options and each of its serializers."""
    (operator,) = (
        operator
        for operator in open_snapshot(golden(WORDS).snapshot).operators
        if operator.keyed_states
    )
    meta_info = operator.keyed_states[0].meta_info
    (state,) = read_state_meta_infos(DataInput(meta_info), 1)
    with pytest.raises(CorruptSnapshotError, match="state 'count' a second time"):
        read_state_meta_infos(DataInput(meta_info + meta_info), 2)
    with pytest.raises(CorruptSnapshotError, match="state 'count' a second time"):
        read_state_meta_infos(DataInput(meta_info), 1, (state,))
    out = DataOutput()
    write_state_meta_info(replace(state, options={"a": "1", "b": "2"}), out)
    with pytest.raises(CorruptSnapshotError, match="option 'a' a second time"):
        read_state_meta_infos(DataInput(out.to_bytes().replace(b"b", b"a")), 1)
    out = DataOutput()
    entry = next(iter(state.serializers.values()))
    write_state_meta_info(replace(state, serializers={"A_B": entry, "C_D": entry}), out)
    with pytest.raises(CorruptSnapshotError, match="serializer 'A_B' a second time"):
        read_state_meta_infos(DataInput(out.to_bytes().replace(b"C_D", b"A_B")), 1)


def test_operator_state_of_two_modes(tmp_path: Path) -> None:
    """A handle says how elements are redistributed, and so does the file."""
    snapshot = damaged(golden("operator-hashmap-canonical-p2-m128-flink2.3.0"), tmp_path / "bad")
    handle = snapshot.operator_handle(0)
    states = {
        name: replace(part, mode=DistributionMode.UNION) for name, part in handle.states.items()
    }
    snapshot.set_operator_state(0, replace(handle, states=states))
    with pytest.raises(CorruptSnapshotError, match="is UNION in `_metadata`, and SPLIT_DIST"):
        open_snapshot(snapshot.path)
    assert not check_snapshot(snapshot.path).sound


def test_operator_state_twice_in_one_handle(tmp_path: Path) -> None:
    """Its elements are those of one list of offsets."""
    snapshot = damaged(golden("operator-hashmap-canonical-p2-m128-flink2.3.0"), tmp_path / "bad")
    handle = snapshot.operator_handle(0)
    other = {**handle.states, "unio2": handle.states["union"]}
    snapshot.set_operator_state(0, replace(handle, states=other))
    path = snapshot.path / "_metadata"
    path.write_bytes(path.read_bytes().replace(b"unio2", b"union"))
    with pytest.raises(CorruptSnapshotError, match="state 'union' a second time in one handle"):
        open_snapshot(snapshot.path)
    assert not check_snapshot(snapshot.path).sound


def test_timers_in_the_backend_and_on_the_heap(tmp_path: Path) -> None:
    """A queue of timers is in one of the two."""
    snapshot = damaged(golden("kinds-hashmap-canonical-p2-m128-flink2.3.0"), tmp_path / "bad")
    other = open_snapshot(heap_timers("kinds", tmp_path / "timers"))
    (timers,) = (
        operator
        for operator in other.metadata.operators
        if operator.operator_id == operator_id("kinds")
    )

    def change(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        for index, subtask in (operator.subtasks or {}).items():
            subtask.raw_keyed = timers.subtasks[index].raw_keyed

    snapshot.edit(change)
    with pytest.raises(CorruptSnapshotError, match=r"'_timer_state/event_.*in its raw keyed state"):
        open_snapshot(snapshot.path)
    report = check_snapshot(snapshot.path)
    assert {(fault.kind.value, fault.where.subtask) for fault in report.faults} == {
        ("header", 0), ("header", 1),
    }  # fmt: skip
    done = salvage_snapshot(snapshot.path, tmp_path / "salvaged")
    assert {loss.where.subtask for loss in done.lost} == {0, 1}
    assert entries(tmp_path / "salvaged") == entries(snapshot.origin)


def operator_id(uid: str) -> str:
    """The id of an operator with that uid."""
    return operator_id_of_uid(uid)


# ------------------------------------------------------------------------------- what is legal


def test_a_uid_that_is_given_twice(tmp_path: Path) -> None:
    """An operator may have an id of its own (`setUidHash`); `--uid` gives no two the same one."""
    snapshot = damaged(golden(WORDS), tmp_path / "snapshot")

    def rename(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        operator.operator_id = "cd" * 16

    snapshot.edit(rename)
    assert open_snapshot(snapshot.path).operator("counter").operator_id == "cd" * 16

    def nameless(metadata: CheckpointMetadata, operator: OperatorMetadata) -> None:
        metadata.operators.append(
            OperatorMetadata(operator_id_of_uid("counter"), 1, 128, subtasks=None)
        )
        assert operator.uid == "counter"

    snapshot.edit(nameless)
    assert len(open_snapshot(snapshot.path).operators) == 4
    with pytest.raises(CorruptSnapshotError, match="are both of uid 'counter'"):
        open_snapshot(snapshot.path, uids=["counter"])


def test_subtasks_in_another_order(tmp_path: Path) -> None:
    """Flink looks for key groups in all handles, whichever subtask's they are."""
    snapshot = damaged(golden(WORDS), tmp_path / "snapshot")
    first, second = snapshot.keyed(0), snapshot.keyed(1)
    snapshot.set_keyed(0, second)
    snapshot.set_keyed(1, first)
    assert check_snapshot(snapshot.path).sound
    assert entries(snapshot.path) == entries(snapshot.origin)
    snapshot.set_keyed(1, None)
    assert check_snapshot(snapshot.path).sound
    assert entries(snapshot.path)


@pytest.mark.parametrize("handle", ["key groups", "incremental"])
def test_a_handle_of_no_key_groups(handle: str, tmp_path: Path) -> None:
    """It claims nothing, so that it contradicts nothing."""
    snapshot = damaged(golden(WORDS), tmp_path / "snapshot")
    first = snapshot.keyed(1)
    empty: KeyGroupsHandle | IncrementalHandle = replace(first, first=5, offsets=())
    if handle == "incremental":
        empty = IncrementalHandle(1, "b", 5, 0, None, (), ())
    snapshot.set_keyed(1, empty)
    open_snapshot(snapshot.path)
    assert check_snapshot(snapshot.path).sound


def test_files_that_hold_more_than_is_claimed(tmp_path: Path) -> None:
    """After a rescaling two subtasks have one file, and each claims its own key groups of it."""
    snapshot = damaged(golden("kinds-rocksdb-native-p2-m128-flink2.3.0"), tmp_path / "snapshot")
    handle = snapshot.rocksdb(0)

    def split(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        assert operator.subtasks is not None
        operator.parallelism = 4
        parts = [replace(handle, first=first, count=32) for first in (0, 32)]
        operator.subtasks[2] = operator.subtasks[1]
        second = operator.subtasks[1].managed_keyed
        assert isinstance(second, IncrementalHandle)
        parts += [replace(second, first=first, count=32) for first in (64, 96)]
        for index, part in enumerate(parts):
            operator.subtasks[index] = replace(operator.subtasks[0], managed_keyed=part)

    snapshot.edit(split)
    assert check_snapshot(snapshot.path).sound
    assert entries(snapshot.path) == entries(snapshot.origin)


def test_salvage_of_unknown_types_that_overlap(tmp_path: Path) -> None:
    """They are carried whole or not at all: here none is, and that is said."""
    snapshot = contradict(CONTRADICTIONS[8], tmp_path / "snapshot")
    unknown = b"LongSerializer$LongSerializerSnapshot"
    for file in snapshot.iterdir():
        if file.name != "_metadata":
            file.write_bytes(file.read_bytes().replace(unknown, b"-" * len(unknown), 1))
    done = salvage_snapshot(snapshot, tmp_path / "salvaged")
    assert {loss.where.subtask for loss in done.lost} == {0, 1}
    assert all("in the handle of subtask 0 too" in loss.why for loss in done.lost)
    assert check_snapshot(tmp_path / "salvaged").sound
