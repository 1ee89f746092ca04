"""Operator state and `_metadata`, one kind of damage after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelake import open_snapshot
from statelake.state_core.errors import NotASnapshotError, SnapshotError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.operator_state.operator_file import open_operator_file
from statelake.state_core.formats.operator_state.operator_states import encode_operator_file
from statelake.state_core.integrity import check_snapshot, salvage_snapshot
from statelake.state_core.model.handles import DistributionMode, PartitionOffsets, RelativeHandle
from tests.support.judging import check_sound, said
from tests.support.lakes import golden
from tests.support.savepoints.damaged import Damaged, damaged

PLAIN = "operator-hashmap-canonical-p2-m128-flink2.3.0"
SNAPPY = "operator-hashmap-canonical-snappy-p3-m128-flink2.3.0"
WORDS = "wordcount-hashmap-canonical-p2-m128-flink1.20.0"

both = pytest.mark.parametrize("name", [PLAIN, SNAPPY])


def elements(snapshot: Path) -> dict[tuple[str, int], list[bytes]]:
    """Every element of operator state; of a broadcast state its entries, sorted."""
    found = {}
    for operator in open_snapshot(snapshot).operators:
        for state in operator.operator_states:
            for part in state.parts:
                held = part.encoded()
                if state.broadcast:
                    held = sorted(key + value for key, value in part.contents())
                found[state.name, part.subtask] = held
    return found


def rewrite(
    damaged: Damaged, subtask: int, state: str, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Write a subtask's file again, with other elements of one state."""
    handle = damaged.operator_handle(subtask)
    assert handle.stream is not None
    file = open_operator_file(StateFiles(Directory(damaged.path)).open(handle.stream), handle)
    held = []
    for info in file.states:
        found = file.elements(info.name)
        bounds = zip(found.starts.tolist(), found.ends.tolist(), strict=True)
        pieces = [file.content[start:end].tobytes() for start, end in bounds]
        pieces = change(pieces) if info.name == state else pieces
        held.append((info, pa.array(pieces, pa.large_binary())))
    data, offsets = encode_operator_file(file.header, held)
    damaged.operator_file(subtask).write_bytes(data)
    assert isinstance(handle.stream, RelativeHandle)
    stream = replace(handle.stream, size=len(data))
    damaged.set_operator_state(subtask, replace(handle, states=offsets, stream=stream))


def move(damaged: Damaged, subtask: int, state: str, offsets: tuple[int, ...]) -> None:
    """Give a state other offsets."""
    handle = damaged.operator_handle(subtask)
    moved = replace(handle.states[state], offsets=offsets)
    damaged.set_operator_state(subtask, replace(handle, states={**handle.states, state: moved}))


def saved(damaged: Damaged, **lost: int) -> None:
    """A salvage loses so many elements of the states of these names, and nothing else."""
    to = damaged.path.parent / "salvaged"
    done = salvage_snapshot(damaged.path, to)
    check_sound(to, done)
    counts: dict[str, int] = {}
    for loss in done.lost:
        assert loss.entries is not None
        counts[loss.where.state] = counts.get(loss.where.state, 0) + loss.entries
    assert counts == lost
    after = elements(to)
    for (name, subtask), held in elements(damaged.origin).items():
        found = after.get((name, subtask), [])
        if name in lost:
            assert set(found) <= set(held)
        else:
            assert found == held


@both
def test_a_copy_that_is_another(name: str, tmp_path: Path) -> None:
    """A broadcast state whose copies differ: the subtask is named, and gets the others'."""
    one = damaged(golden(name), tmp_path / "damaged", "rules")
    last = one.operator.parallelism - 1
    rewrite(one, last, "rules", lambda held: [held[0][:-1] + b"?"])
    report = check_snapshot(one.path)
    assert said(report) == [("broadcast", last, None)]
    (fault,) = report.faults
    assert fault.where.state == "rules"
    assert "1 entries lacking, 1 of its own" in fault.problem
    saved(one)


@both
def test_a_copy_that_is_damaged(name: str, tmp_path: Path) -> None:
    """It ends too soon; the others' takes its place, so nothing is lost."""
    one = damaged(golden(name), tmp_path / "damaged", "rules")
    rewrite(one, 0, "rules", lambda held: [held[0][:-3]])
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 0, None)]
    saved(one)


@both
def test_an_element_that_does_not_decode(name: str, tmp_path: Path) -> None:
    """Bytes behind a value, and a value that is too short: both, and no other of the state."""
    one = damaged(golden(name), tmp_path / "damaged", "opstate")
    rewrite(one, 1, "split", lambda held: [*held[:3], held[3] + b"x", *held[4:9], b"1", *held[10:]])
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 1, None)] * 2
    assert {fault.where.state for fault in report.faults} == {"split"}
    assert "1 bytes behind a complete value" in report.faults[0].problem
    saved(one, split=2)


@both
def test_an_offset_that_leads_nowhere(name: str, tmp_path: Path) -> None:
    """One element is not found, and the one before it has its bytes too."""
    one = damaged(golden(name), tmp_path / "damaged", "opstate")
    offsets = one.operator_handle(0).states["split"].offsets
    move(one, 0, "split", (*offsets[:5], 10**7, *offsets[6:]))
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 0, None)] * 2
    assert "an element at offset 10000000, where no state is" in report.faults[0].problem
    assert "8 bytes behind a complete value" in report.faults[1].problem
    saved(one, split=2)


@both
def test_two_elements_at_one_offset(name: str, tmp_path: Path) -> None:
    """One is one too many; the bytes of the other are taken for the one before."""
    one = damaged(golden(name), tmp_path / "damaged", "opstate")
    offsets = one.operator_handle(0).states["union"].offsets
    move(one, 0, "union", (offsets[0], offsets[0]))
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 0, None)] * 2
    assert f"2 elements at offset {offsets[0]}" in report.faults[0].problem
    saved(one, union=2)


@both
def test_bytes_before_the_first_element(name: str, tmp_path: Path) -> None:
    """The first element of all is not in the handle."""
    one = damaged(golden(name), tmp_path / "damaged", "opstate")
    handle = one.operator_handle(1)
    first = min((part.offsets[0], state) for state, part in handle.states.items())[1]
    count = len(handle.states[first].offsets)
    move(one, 1, first, handle.states[first].offsets[1:])
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 1, None)]
    assert "bytes before the first element" in report.faults[0].problem
    done = salvage_snapshot(one.path, tmp_path / "salvaged")
    assert len(elements(tmp_path / "salvaged")[first, 1]) == count - 1
    check_sound(tmp_path / "salvaged", done)


@both
def test_another_mode(name: str, tmp_path: Path) -> None:
    """The handle says that a list is united, and the file that it is split."""
    one = damaged(golden(name), tmp_path / "damaged", "opstate")
    handle = one.operator_handle(0)
    part = PartitionOffsets(DistributionMode.UNION, handle.states["split"].offsets)
    one.set_operator_state(0, replace(handle, states={**handle.states, "split": part}))
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 0, None)]
    assert "UNION in `_metadata`, and SPLIT_DISTRIBUTE in its file" in report.faults[0].problem
    saved(one)


@both
def test_a_state_that_the_file_lacks(name: str, tmp_path: Path) -> None:
    """A handle with a state that the header does not declare."""
    one = damaged(golden(name), tmp_path / "damaged", "opstate")
    handle = one.operator_handle(0)
    end = one.operator_file(0).stat().st_size
    part = PartitionOffsets(DistributionMode.UNION, (end,))
    one.set_operator_state(0, replace(handle, states={**handle.states, "other": part}))
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 0, None)]
    assert report.faults[0].where.state == "other"
    saved(one, other=1)


@both
@pytest.mark.parametrize("uid", ["opstate", "rules"])
def test_files_that_are_gone_or_cut(name: str, uid: str, tmp_path: Path) -> None:
    """Of lists what is in the file is lost; of a broadcast state every subtask has all."""
    one = damaged(golden(name), tmp_path / "damaged", uid)
    counts = {state: len(part.offsets) for state, part in one.operator_handle(0).states.items()}
    one.operator_file(0).unlink()
    report = check_snapshot(one.path)
    assert said(report) == [("file", 0, None)]
    saved(one, **({} if uid == "rules" else counts))


def test_a_chunk_that_is_damaged(tmp_path: Path) -> None:
    """A byte of one element's Snappy chunk: that element, and no other."""
    one = damaged(golden(SNAPPY), tmp_path / "damaged", "opstate")
    at = one.operator_handle(1).states["split"].offsets[4]

    def change(data: bytearray) -> None:
        data[at + 5] ^= 0x22

    one.change(one.operator_file(1), change)
    report = check_snapshot(one.path)
    assert said(report) == [("operator state", 1, None)]
    assert "Snappy" in report.faults[0].problem
    saved(one, split=1)


# --------------------------------------------------------------------------- `_metadata`


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: b"not a savepoint" + data, "this is no Flink `_metadata` file"),
        (lambda data: data[:4] + b"\0\0\0\7" + data[8:], "version 7"),
        (lambda data: data[: len(data) // 2], ""),
        (lambda data: data[:0], "this is no Flink `_metadata` file"),
    ],
    ids=["magic", "version", "cut", "empty"],
)
def test_metadata_that_can_not_be_read(
    change: Callable[[bytearray], bytes], problem: str, tmp_path: Path
) -> None:
    """One fault, and nothing to salvage; nothing is left behind of the attempt."""
    one = damaged(golden(WORDS), tmp_path / "damaged")
    one.change(one.path / "_metadata", change)
    report = check_snapshot(one.path)
    assert said(report) == [("metadata", None, None)]
    assert problem in report.faults[0].problem
    done = salvage_snapshot(one.path, tmp_path / "salvaged")
    assert done.path is None
    assert said(done.integrity) == [("metadata", None, None)]
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


def test_properties_that_end_too_soon(tmp_path: Path) -> None:
    """Flink would not restore it; all state is saved, with properties as Flink writes them."""
    one = damaged(golden("wordcount-hashmap-canonical-p2-m1024-flink2.3.0"), tmp_path / "damaged")
    one.change(one.path / "_metadata", lambda data: data[:-9])
    report = check_snapshot(one.path)
    assert said(report) == [("metadata", None, None)]
    assert "checkpoint properties" in report.faults[0].place
    done = salvage_snapshot(one.path, tmp_path / "salvaged")
    assert done.lost == ()
    check_sound(tmp_path / "salvaged", done)


def test_an_operator_twice(tmp_path: Path) -> None:
    """Two operators of one id."""
    one = damaged(golden(WORDS), tmp_path / "damaged")

    def change(metadata: CheckpointMetadata, operator: OperatorMetadata) -> None:
        metadata.operators.append(operator)

    one.edit(change)
    report = check_snapshot(one.path)
    assert said(report) == [("metadata", None, None)]
    assert "2 operators of id" in report.faults[0].problem
    done = salvage_snapshot(one.path, tmp_path / "salvaged")
    assert [loss.why for loss in done.lost] == ["another operator has its id"]
    check_sound(tmp_path / "salvaged", done)


def test_a_parallelism_that_can_not_be(tmp_path: Path) -> None:
    """More subtasks than key groups: that operator can't be used, the others can."""
    one = damaged(golden("windows-hashmap-canonical-p2-m128-flink2.3.0"), tmp_path / "damaged")

    def change(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        operator.max_parallelism = 1

    one.edit(change)
    report = check_snapshot(one.path)
    assert said(report) == [("metadata", None, None)]
    assert report.checked.entries > 0
    done = salvage_snapshot(one.path, tmp_path / "salvaged")
    assert done.entries == report.checked.entries
    assert [loss.where.operator for loss in done.lost] == [one.operator.uid]
    check_sound(tmp_path / "salvaged", done)


def test_no_snapshot_at_all(tmp_path: Path) -> None:
    """A directory without `_metadata` is no damaged snapshot but none."""
    with pytest.raises(NotASnapshotError):
        check_snapshot(tmp_path)
    with pytest.raises(NotASnapshotError):
        salvage_snapshot(tmp_path, tmp_path / "salvaged")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """A target with anything in it is refused, and stays as it is."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    with pytest.raises(SnapshotError, match="not empty"):
        salvage_snapshot(golden(WORDS).snapshot, tmp_path / "there")
    assert (tmp_path / "there" / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
