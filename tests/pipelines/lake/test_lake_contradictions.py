"""What contradicts itself never gets into a lake: no row, no file; all else comes out whole."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.state_core.errors import StateError, UnsupportedFormatError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.formats.keyed.keyed_files import open_keyed
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorMetadata,
    SubtaskState,
    read_metadata,
    write_metadata,
)
from statelake.state_core.formats.metadata.state_files import StateFiles
from statelake.state_core.formats.operator_state.operator_file import open_operator_file
from statelake.state_core.formats.writing.new_snapshot import write_snapshot
from statelake.state_core.formats.writing.new_states import (
    NewKeyedState,
    NewOperator,
    NewOperatorState,
)
from statelake.state_core.model.handles import IncrementalHandle, KeyGroupsHandle
from tests.support.command import run
from tests.support.lakes import (
    LOCAL,
    add_row,
    entries,
    golden,
    import_as,
    kept_files,
    raw_savepoint,
)
from tests.support.savepoints.contradicting import CONTRADICTIONS, Contradiction, contradict
from tests.support.savepoints.damaged import damaged

pytestmark = pytest.mark.thinned(2)

ROCKSDB = "kinds-rocksdb-native-p2-m128-flink2.3.0"
every_contradiction = pytest.mark.parametrize(
    "contradiction",
    [pytest.param(contradiction, id=contradiction.name) for contradiction in CONTRADICTIONS],
)


# ------------------------------------------------------------------------------- the commands


@every_contradiction
def test_every_command_refuses_it(contradiction: Contradiction, tmp_path: Path) -> None:
    """Exit 3 and both places, wherever a snapshot is read; a check of integrity lists them."""
    snapshot = contradict(contradiction, tmp_path / "snapshot")
    lake, to = tmp_path / "lake", tmp_path / "to"
    for words in (
        ("inspect", snapshot),
        ("inspect", snapshot, "--json"),
        ("dump", snapshot),
        ("import", snapshot, "--lake", lake, "--job", "orders", "--engine", "local"),
        ("compress", snapshot, "--to", to),
    ):
        ran = run(*words)
        assert ran.code == 3, ran
        assert ran.out == ""
        for said in contradiction.says:
            assert said in ran.err
    assert not lake.exists()
    assert not to.exists()
    checked = run("check", "integrity", snapshot, "--json")
    assert checked.code == 1
    assert any(fault["kind"] == contradiction.kind for fault in checked.json["faults"])


def test_the_other_snapshots_of_the_lake_stay(tmp_path: Path) -> None:
    """A lake that has refused one is what it was, and is used on."""
    lake = Catalog(tmp_path / "lake")
    import_as(lake, golden(CONTRADICTIONS[0].case).snapshot, "good")
    before = kept_files(lake)
    for index, contradiction in enumerate(CONTRADICTIONS):
        snapshot = contradict(contradiction, tmp_path / f"bad-{index}")
        with pytest.raises(StateError):
            import_as(lake, snapshot, f"bad-{index}")
    assert kept_files(lake) == before
    assert [summary.snapshot_id for summary in lake.summaries()] == ["good"]


@pytest.mark.parametrize("name", [ROCKSDB, "operator-hashmap-canonical-p2-m128-flink2.3.0"])
def test_a_finished_subtask_that_got_state_in_the_lake(name: str, tmp_path: Path) -> None:
    """Its handle could not be written: the export says so, and loses nothing in silence."""
    lake = Catalog(tmp_path / "lake")
    record = import_as(lake, golden(name).snapshot, "a")
    metadata = read_metadata(record.metadata)
    for operator in metadata.operators:
        if operator.subtasks:
            operator.subtasks[1] = SubtaskState(finished=True)
    add_row(lake, replace(record, snapshot_id="b", metadata=write_metadata(metadata)))
    with pytest.raises(UnsupportedFormatError, match="subtask 1: the subtask had finished, and"):
        export_snapshot(lake, "orders", "b", tmp_path / "out", engine=LOCAL)
    assert not (tmp_path / "out").exists()


def test_a_finished_subtask_that_left_nothing(tmp_path: Path) -> None:
    """It stays finished, and what the others left is whole."""
    snapshot = damaged(
        golden("wordcount-rocksdb-canonical-snappy-p2-m128-flink2.3.0"), tmp_path / "sp"
    )

    def finish(_: CheckpointMetadata, operator: OperatorMetadata) -> None:
        assert operator.subtasks is not None
        operator.subtasks[1] = SubtaskState(finished=True)

    snapshot.edit(finish)
    lake = Catalog(tmp_path / "lake")
    import_as(lake, snapshot.path, "a")
    export_snapshot(lake, "orders", "a", tmp_path / "out", engine=LOCAL)
    (written,) = (
        operator
        for operator in read_metadata((tmp_path / "out" / "_metadata").read_bytes()).operators
        if operator.uid == "counter"
    )
    assert written.subtasks is not None
    assert written.subtasks[1].finished
    assert entries(tmp_path / "out") == entries(snapshot.path)


# ------------------------------------------------------------------------------- half an import


def damaged_entry(to: Path) -> Path:
    """The last key group of the last subtask can't be read."""
    snapshot = damaged(golden("kinds-hashmap-canonical-p2-m128-flink2.3.0"), to)
    group = snapshot.groups(1)[-1]
    snapshot.change_group(1, group, lambda data: bytes(data)[:-1] + b"\7")
    return snapshot.path


def damaged_element(to: Path) -> Path:
    """One element of operator state lies where nothing is."""
    snapshot = damaged(golden("operator-hashmap-canonical-p2-m128-flink2.3.0"), to)
    handle = snapshot.operator_handle(1)
    split = replace(handle.states["split"], offsets=(10**6,))
    snapshot.set_operator_state(1, replace(handle, states={**handle.states, "split": split}))
    return snapshot.path


def raw_state_gone(to: Path) -> Path:
    """What would only have been carried is not there."""
    snapshot = raw_savepoint(to)
    (snapshot / "opaque").unlink()
    return snapshot


@pytest.mark.parametrize("make", [damaged_entry, damaged_element, raw_state_gone])
def test_an_import_that_fails_leaves_nothing(make: Callable[[Path], Path], tmp_path: Path) -> None:
    """No table that no snapshot names, no file, no note: in a new lake, and in one that is used."""
    snapshot = make(tmp_path / "snapshot")
    lake = Catalog(tmp_path / "lake")
    with pytest.raises(StateError):
        import_as(lake, snapshot, "bad")
    assert kept_files(lake) == {}
    import_as(lake, golden("windows-hashmap-canonical-p2-m128-flink2.3.0").snapshot, "good")
    before = kept_files(lake)
    with pytest.raises(StateError):
        import_as(lake, snapshot, "bad")
    assert kept_files(lake) == before


# ------------------------------------------------------------------------------- any change

Counted = dict[tuple[str, str], list[Any]]


def small_savepoint(to: Path) -> Path:
    """Two operators at two subtasks, with keyed and operator state of all modes."""
    rows = pa.table({"key": [f"key-{n}" for n in range(60)], "value": list(range(60))})
    numbers = pa.table({"value": list(range(11))})
    rules = pa.table({"key": ["a", "b"], "value": [1, 2]})
    others = (
        NewOperatorState("list", numbers, "split", "Integer"),
        NewOperatorState("union", numbers, "union", "Integer"),
        NewOperatorState("rules", rules, "broadcast", "Integer", "String"),
    )
    states = (NewKeyedState("count", rows, value="Long"), NewKeyedState("sum", rows, value="Long"))
    operators = [
        NewOperator("one", "String", states, others, parallelism=2, max_parallelism=16),
        NewOperator("two", "String", states[:1], parallelism=3, max_parallelism=16),
    ]
    write_snapshot(to, operators, metadata_version=6)
    return to


def counted(metadata: CheckpointMetadata, directory: Path) -> Counted:
    """Every entry and element that any handle leads to, as bytes: nothing is put together."""
    files = StateFiles(Directory(directory))
    found: Counted = {}
    for operator in metadata.operators:
        for index, subtask in (operator.subtasks or {}).items():
            handle, held = subtask.managed_keyed, subtask.managed_operator
            opened = None
            if handle is not None:
                opened = open_keyed(handle, files, operator.max_parallelism)
            for batch in opened.entries() if opened is not None else ():
                assert opened is not None
                data = batch.data.tobytes()
                places = (batch.key_start, batch.key_end, batch.value_start, batch.value_end)
                names = [opened.states[state].name for state in batch.state_of.tolist()]
                for name, group, *at in zip(names, batch.group_of.tolist(), *places, strict=True):
                    entry = (group, data[at[0] : at[1]], data[at[2] : at[3]])
                    found.setdefault((operator.operator_id, name), []).append(entry)
            if held is None or held.stream is None:
                continue
            file = open_operator_file(files.open(held.stream), held)
            for name in held.states:
                places = file.elements(name)
                for start, end in zip(places.starts.tolist(), places.ends.tolist(), strict=True):
                    element = (index, file.content[start:end].tobytes())
                    found.setdefault((operator.operator_id, f"operator state {name}"), []).append(
                        element
                    )
    return {name: sorted(entries) for name, entries in found.items()}


@st.composite
def changes(draw: st.DrawFn, metadata: CheckpointMetadata) -> str:
    """Change the structure of a snapshot in place, and say how."""
    operator: OperatorMetadata = draw(st.sampled_from(metadata.operators))
    other: OperatorMetadata = draw(st.sampled_from(metadata.operators))
    subtasks = operator.subtasks if operator.subtasks is not None else {}
    kind = draw(st.sampled_from(sorted(_CHANGES)))
    _CHANGES[kind](draw, metadata, operator, other, subtasks)
    return kind


def _copy(draw: Any, metadata: Any, operator: OperatorMetadata, _: Any, __: Any) -> None:
    copied = deepcopy(operator)
    copied.operator_id = draw(st.sampled_from([operator.operator_id, "ab" * 16, "cd" * 16]))
    copied.uid = draw(st.sampled_from([operator.uid, "", "new", "ab" * 16]))
    metadata.operators.append(copied)


def _rename(
    draw: Any, _: Any, operator: OperatorMetadata, other: OperatorMetadata, __: Any
) -> None:
    operator.uid = draw(st.sampled_from(["", other.uid, other.operator_id, "renamed"]))


def _new_id(
    draw: Any, _: Any, operator: OperatorMetadata, other: OperatorMetadata, __: Any
) -> None:
    operator.operator_id = draw(st.sampled_from([other.operator_id, "ef" * 16]))


def _parallelism(draw: Any, _: Any, operator: OperatorMetadata, __: Any, ___: Any) -> None:
    low = 1 + max(operator.subtasks or {0: 0})
    operator.parallelism = draw(st.integers(low, low + 4))


def _max_parallelism(draw: Any, _: Any, operator: OperatorMetadata, __: Any, ___: Any) -> None:
    operator.max_parallelism = draw(st.sampled_from([1, 8, 15, 17, 96, 127, 129, 256, 32768]))


def _subtask(draw: Any, subtasks: dict[int, SubtaskState]) -> SubtaskState:
    found: SubtaskState = subtasks[draw(st.sampled_from(sorted(subtasks)))]
    return found


def _exchange(draw: Any, _: Any, __: Any, other: OperatorMetadata, subtasks: Any) -> None:
    if subtasks and other.subtasks:
        first, second = _subtask(draw, subtasks), _subtask(draw, other.subtasks)
        what = draw(st.sampled_from(["managed_keyed", "managed_operator", "raw_keyed"]))
        if draw(st.booleans()):
            setattr(first, what, getattr(second, what))
        else:
            held = getattr(first, what), getattr(second, what)
            setattr(second, what, held[0])
            setattr(first, what, held[1])


def _take_out(draw: Any, _: Any, __: Any, ___: Any, subtasks: Any) -> None:
    if subtasks:
        index = draw(st.sampled_from(sorted(subtasks)))
        if draw(st.booleans()):
            del subtasks[index]
        else:
            subtasks[index] = SubtaskState(finished=True)


def _move(draw: Any, _: Any, operator: OperatorMetadata, __: Any, subtasks: Any) -> None:
    if subtasks:
        index = draw(st.sampled_from(sorted(subtasks)))
        subtasks[draw(st.integers(0, operator.parallelism - 1))] = deepcopy(subtasks[index])


def _raw(draw: Any, _: Any, __: Any, ___: Any, subtasks: Any) -> None:
    if subtasks:
        subtask = _subtask(draw, subtasks)
        subtask.raw_keyed = subtask.managed_keyed


def _range(draw: Any, _: Any, __: Any, ___: Any, subtasks: Any) -> None:
    if not subtasks:
        return
    subtask = _subtask(draw, subtasks)
    handle = subtask.managed_keyed
    first, more = draw(st.integers(0, 16)), draw(st.integers(-4, 4))
    if isinstance(handle, KeyGroupsHandle):
        offsets = handle.offsets + (0,) * more if more > 0 else handle.offsets[: more or None]
        if draw(st.booleans()):
            offsets = tuple(draw(st.permutations(offsets))) if len(offsets) < 20 else offsets[::-1]
        first = draw(st.sampled_from([first, handle.first]))
        subtask.managed_keyed = replace(handle, first=first, offsets=offsets)
    elif isinstance(handle, IncrementalHandle):
        count = max(0, handle.count + draw(st.sampled_from([more, 64])))
        first = draw(st.sampled_from([first, handle.first]))
        subtask.managed_keyed = replace(handle, first=first, count=count)


def _operator_state(draw: Any, _: Any, __: Any, ___: Any, subtasks: Any) -> None:
    if not subtasks:
        return
    subtask = _subtask(draw, subtasks)
    handle = subtask.managed_operator
    if handle is None or not handle.states:
        return
    name = draw(st.sampled_from(sorted(handle.states)))
    states = dict(handle.states)
    part = states.pop(name)
    choice = draw(st.sampled_from(["drop", "rename", "mode", "twice", "offsets"]))
    if choice == "rename":
        states[draw(st.sampled_from([*handle.states, "other"]))] = part
    elif choice == "mode":
        states[name] = replace(part, mode=draw(st.sampled_from(type(part.mode))))
    elif choice == "twice":
        states[name] = replace(part, offsets=part.offsets + part.offsets)
    elif choice == "offsets":
        states[name] = replace(part, offsets=tuple(at + 1 for at in part.offsets))
    subtask.managed_operator = replace(handle, states=states)


_CHANGES: dict[str, Callable[..., None]] = {
    "copy": _copy, "rename": _rename, "new id": _new_id, "parallelism": _parallelism,
    "max parallelism": _max_parallelism, "exchange": _exchange, "take out": _take_out,
    "move": _move, "raw": _raw, "range": _range, "operator state": _operator_state,
}  # fmt: skip


@cache
def origin(name: str, to: Path) -> Path:
    """A snapshot that does not contradict itself."""
    if name == "small":
        return small_savepoint(to / name)
    return golden(name).snapshot


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where snapshots are made that others are copies of."""
    return tmp_path_factory.mktemp("origins")


@pytest.mark.parametrize("name", ["small", pytest.param(ROCKSDB, marks=pytest.mark.full)])
@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_refused_or_whole(name: str, origins: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is changed: an error of ours, or every entry in the lake and out of it again."""
    for old in tmp_path.iterdir():
        shutil.rmtree(old)
    snapshot, lake = tmp_path / "snapshot", Catalog(tmp_path / "lake")
    shutil.copytree(origin(name, origins), snapshot)
    metadata = read_metadata((snapshot / "_metadata").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(changes(metadata))
    (snapshot / "_metadata").write_bytes(written := write_metadata(metadata))
    metadata = read_metadata(written)  # which drops what a finished subtask can't have
    try:
        record = import_as(lake, snapshot, "a")
    except StateError:
        assert kept_files(lake) == {}
        return
    expected = per_state(counted(metadata, snapshot))
    held = {
        (operator.operator_id, state.name): state.entries
        for operator in record.operators
        for state in operator.states
        if state.entries
    }
    assert held == {
        name: sum(entries.values())
        for name, entries in expected.items()
        if not name[1].startswith("operator state")
    }
    export_snapshot(lake, "orders", "a", tmp_path / "out", engine=LOCAL)
    exported = read_metadata((tmp_path / "out" / "_metadata").read_bytes())
    assert per_state(counted(exported, tmp_path / "out")) == expected


def per_state(found: Counted) -> dict[tuple[str, str], Counter[Any]]:
    """Entries of the states that have any; every subtask gets a copy of a broadcast state."""
    return {
        name: Counter({copy for _, copy in entries}) if "rules" in name[1] else Counter(entries)
        for name, entries in found.items()
        if entries
    }
