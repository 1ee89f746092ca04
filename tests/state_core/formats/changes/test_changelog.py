"""Checkpoints of the changelog backend: what was materialized, with the changes in the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.errors import (
    CorruptSnapshotError,
    StateError,
    UnsupportedFormatError,
    UnwalkableError,
)
from statelake.state_core.files.compression import compress_snappy
from statelake.state_core.formats.keyed.changelog.change_tables import (
    ADD,
    CLEAR,
    MERGE_NS,
    SET_INTERNAL,
    UPDATE_ELEMENT,
)
from statelake.state_core.formats.keyed.changelog.changelog_file import ChangelogKeyedFile
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.formats.reader import Snapshot
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.model.entries import Entries
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
)
from statelake.state_core.model.key_groups import key_groups_of
from tests.support.command import run
from tests.support.savepoints.change_logs import CHECKPOINTS, rows_of, savepoint_of, unpack

pytestmark = pytest.mark.thinned(3)

LOGGED = "rocksdb/chk-1"  # of which nothing was materialized
every_checkpoint = pytest.mark.parametrize("name", CHECKPOINTS)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden checkpoints; nothing may write to them."""
    return unpack(tmp_path_factory.mktemp("changelog"))


def copied(golden: Path, name: str, to: Path) -> Path:
    """A checkpoint of its own, with its log beside it."""
    checkpoint = golden / name
    shutil.copytree(checkpoint, to / checkpoint.name)
    shutil.copytree(checkpoint.parent / "dstl", to / "dstl")
    return to / checkpoint.name


def logs_of(snapshot: Snapshot) -> list[ChangelogKeyedFile]:
    """Its files with logs."""
    files = [file for operator in snapshot.operators for file in operator.keyed_files]
    return [file for file in files if isinstance(file, ChangelogKeyedFile)]


def with_logs(
    checkpoint: Path, change: Callable[[ChangelogFileHandle], ChangelogFileHandle]
) -> Path:
    """The checkpoint with other handles of its logs."""
    path = checkpoint / "_metadata"
    metadata = read_metadata(path.read_bytes())
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            held = subtask.managed_keyed
            if isinstance(held, ChangelogHandle):
                changes = [
                    change(handle) if isinstance(handle, ChangelogFileHandle) else handle
                    for handle in held.changes
                ]
                subtask.managed_keyed = replace(held, changes=tuple(changes))
    path.write_bytes(write_metadata(metadata))
    return checkpoint


@every_checkpoint
@pytest.mark.full
def test_it_holds_what_the_savepoint_of_its_moment_holds(name: str, golden: Path) -> None:
    """Before, between and after materializations, and behind a restore at another parallelism."""
    found = rows_of(open_snapshot(golden / name))
    expected = rows_of(open_snapshot(savepoint_of(golden / name)))
    assert found == expected
    assert len(found) == 14


def test_the_golden_logs_have_every_operation_that_flink_writes(golden: Path) -> None:
    """On every kind of state; reducing states are set to what their windows merged to."""
    seen: dict[str, set[int]] = {}
    for name in CHECKPOINTS:
        for file in logs_of(open_snapshot(golden / name)):
            for group in file.log.group_bytes():
                changes = file.log.of_group(group)
                operations = changes.data[changes.starts].tolist()
                for state, operation in zip(changes.states.tolist(), operations, strict=True):
                    kind = file.log.states[state].options.get("KEYED_STATE_TYPE", "TIMERS")
                    seen.setdefault(kind, set()).add(operation)
    assert seen == {
        "VALUE": {0, 1}, "LIST": {0, 1, 3, 4, 5}, "MAP": {0, 3, 6, 7}, "REDUCING": {0, 2},
        "AGGREGATING": {0, 2}, "TIMERS": {5, 7},
    }  # fmt: skip


@every_checkpoint
@pytest.mark.full
def test_keys_and_checks_see_the_same(name: str, golden: Path) -> None:
    """All that is held for each key; and a check reads as many entries as in the savepoint."""
    opened, savepoint = open_snapshot(golden / name), open_snapshot(savepoint_of(golden / name))
    for state in ("notes", "items"):
        ours = opened.operator("changes").state(state)
        theirs = savepoint.operator("changes").state(state)
        for key in set(theirs.to_arrow().column("key").to_pylist()):
            drop = ["raw_key", "raw_value"]
            found = ours.get(key).drop_columns(drop).to_pylist()
            assert sorted(map(repr, found)) == sorted(
                map(repr, theirs.get(key).drop_columns(drop).to_pylist())
            )
    report, other = check_snapshot(golden / name), check_snapshot(savepoint_of(golden / name))
    assert report.sound
    assert report.unchecked == other.unchecked
    assert (report.checked.entries, report.checked.hashed) == (
        other.checked.entries, other.checked.hashed,
    )  # fmt: skip


@pytest.mark.parametrize("only", [0, 1, 2])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.full
def test_a_part_of_what_another_parallelism_left(
    backend: str, only: int, golden: Path, tmp_path: Path
) -> None:
    """Where the last key group of a part ends no handle says, if others have materialized anew."""
    name = f"{backend}/rescaled/chk-1"
    checkpoint = copied(golden, name, tmp_path / "copied")
    metadata = read_metadata((checkpoint / "_metadata").read_bytes())
    for operator in metadata.operators:
        for index, subtask in (operator.subtasks or {}).items():
            if index != only:
                subtask.managed_keyed = None
    (checkpoint / "_metadata").write_bytes(write_metadata(metadata))
    own = key_groups_of(only, 128, 3)
    expected = {
        state: kept
        for state, rows in rows_of(open_snapshot(golden / name)).items()
        if (kept := [row for row in rows if int(row.split(":")[1].split(",")[0]) in own])
    }
    assert rows_of(open_snapshot(checkpoint)) == expected


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_parts_without_changes_are_checked(backend: str, golden: Path, tmp_path: Path) -> None:
    """Of a file that several subtasks share each checks its own key groups, and finds no fault."""
    checkpoint = copied(golden, f"{backend}/rescaled/chk-1", tmp_path / "copied")
    metadata = read_metadata((checkpoint / "_metadata").read_bytes())
    for operator in metadata.operators:
        for subtask in (operator.subtasks or {}).values():
            if isinstance(subtask.managed_keyed, ChangelogHandle):
                subtask.managed_keyed = replace(subtask.managed_keyed, changes=())
    (checkpoint / "_metadata").write_bytes(write_metadata(metadata))
    rows = rows_of(open_snapshot(checkpoint))
    report = check_snapshot(checkpoint)
    assert report.faults == ()
    assert report.checked.entries == sum(map(len, rows.values())) > 0


@pytest.mark.parametrize("name", ["hashmap/rescaled/chk-1", "rocksdb/chk-2"])
def test_it_is_imported_and_exported(name: str, golden: Path, tmp_path: Path) -> None:
    """As a canonical savepoint of another parallelism."""
    lake, to = Catalog(tmp_path / "lake"), tmp_path / "export"
    import_snapshot(lake, str(golden / name), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", to, parallelism=5, engine="local")
    assert rows_of(open_snapshot(to)) == rows_of(open_snapshot(savepoint_of(golden / name)))


def test_a_command_on_a_log_elsewhere(golden: Path, tmp_path: Path) -> None:
    """Its directory is allowed by name, as any that lies outside the snapshot."""
    checkpoint = copied(golden, LOGGED, tmp_path / "copied")
    log = (tmp_path / "copied" / "dstl").rename(tmp_path / "log")
    with_logs(
        checkpoint,
        lambda handle: replace(
            handle,
            streams=tuple(
                (offset, replace(stream, uri=f"file:{log}/{stream.uri.rpartition('/')[2]}"))
                for offset, stream in handle.streams
            ),
        ),
    )
    ran = run("inspect", checkpoint)
    assert (ran.code, f"--allow-external {log}" in ran.err) == (3, True)
    shown = run("inspect", checkpoint, "--allow-external", log, "--json").json
    uids = [operator["operator-uid"] for operator in shown["operators"]]
    assert {"changes", "sums", "lists"} <= set(uids)


def test_a_compressed_log(golden: Path, tmp_path: Path) -> None:
    """One Snappy stream behind the first byte; offsets are those of its content."""
    checkpoint = copied(golden, LOGGED, tmp_path / "copied")
    for path in (tmp_path / "copied" / "dstl").iterdir():
        content = path.read_bytes()
        assert content[:1] == b"\0"
        path.write_bytes(b"\1" + bytes(compress_snappy(content[1:])))
    opened = open_snapshot(checkpoint)
    assert rows_of(opened) == rows_of(open_snapshot(golden / LOGGED))
    place = logs_of(opened)[0].log.of_group(next(iter(logs_of(opened)[0].log.group_bytes())))
    assert "when decompressed" in place.place(0)


def test_a_file_of_the_log_that_is_missing(golden: Path, tmp_path: Path) -> None:
    """It is named, and what to copy with the checkpoint."""
    checkpoint = copied(golden, LOGGED, tmp_path / "copied")
    shutil.rmtree(tmp_path / "copied" / "dstl")
    with pytest.raises(StateError, match="no state file"):
        open_snapshot(checkpoint)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda handle: replace(handle, streams=((1 << 40, handle.streams[0][1]),)), "outside the"),
        (lambda handle: replace(handle, streams=((-7, handle.streams[0][1]),)), "outside the"),
    ],
    ids=["behind the end", "before the begin"],
)
def test_offsets_that_can_not_be(
    change: Callable[[ChangelogFileHandle], ChangelogFileHandle],
    problem: str,
    golden: Path,
    tmp_path: Path,
) -> None:
    """They are refused, with the file."""
    checkpoint = with_logs(copied(golden, LOGGED, tmp_path / "copied"), change)
    with pytest.raises(CorruptSnapshotError, match=problem) as found:
        open_snapshot(checkpoint)
    assert "dstl" in found.value.place


def test_a_change_set_that_two_parts_share(golden: Path, tmp_path: Path) -> None:
    """Restored with more subtasks, then with fewer: Flink makes its changes twice, we say why not.

    Its parts come together in one subtask only if nothing was materialized between.
    """
    checkpoint = copied(golden, "hashmap/rescaled/chk-1", tmp_path / "copied")
    metadata = read_metadata((checkpoint / "_metadata").read_bytes())
    for operator in metadata.operators:
        subtasks = operator.subtasks or {}
        parts = [subtask.managed_keyed for _, subtask in sorted(subtasks.items())]
        logged = [part for part in parts if isinstance(part, ChangelogHandle)]
        if len(logged) == 3:
            first, second, third = logged
            subtasks[0].managed_keyed = replace(
                first,
                count=first.count + second.count,
                materialized=first.materialized + second.materialized,
                changes=first.changes + second.changes,
            )
            subtasks[1].managed_keyed = third
            del subtasks[2]
            operator.parallelism = 2
    (checkpoint / "_metadata").write_bytes(write_metadata(metadata))
    with pytest.raises(UnsupportedFormatError, match="for the second time") as found:
        open_snapshot(checkpoint)
    assert "dstl" in found.value.place
    assert "take a savepoint" in found.value.remedy


# --------------------------------------------------------------------------- changes made anew

Changes = list[tuple[int, bytes]]


def inlined(golden: Path, to: Path, change: Callable[[str, Changes], Changes]) -> Path:
    """The checkpoint with its changes in `_metadata`, those of each operator as `change` wants."""
    opened = open_snapshot(golden / LOGGED)
    to.mkdir()
    metadata = read_metadata((golden / LOGGED / "_metadata").read_bytes())
    for state, operator in zip(metadata.operators, opened.operators, strict=True):
        files = iter(logs_of(replace(opened, operators=(operator,))))
        for _, subtask in sorted((state.subtasks or {}).items()):
            held = subtask.managed_keyed
            if isinstance(held, ChangelogHandle):
                file = next(files)
                (only,) = file.log.sets
                changes = [(-1, described) for _, described in only.file.metadata(only.at)]
                for group in file.log.group_bytes():
                    there = file.log.of_group(group)
                    changes += [
                        (group, there.content[start:end])
                        for start, end in zip(there.starts, there.ends, strict=True)
                    ]
                said = tuple(change(operator.label, changes))
                log = ChangelogByteHandle(held.first, held.count, 0, len(said), said, "id")
                subtask.managed_keyed = replace(held, changes=(log,))
    (to / "_metadata").write_bytes(write_metadata(metadata))
    return to


def test_changes_in_metadata(golden: Path, tmp_path: Path) -> None:
    """`state.changelog.storage: memory`: a list of changes in the handle."""
    checkpoint = inlined(golden, tmp_path / "inlined", lambda _, changes: changes)
    assert rows_of(open_snapshot(checkpoint)) == rows_of(open_snapshot(golden / LOGGED))


def test_keys_that_nothing_describes(golden: Path, tmp_path: Path) -> None:
    """A log alone of an operator that set no timers: it says what to do, and does not guess."""

    def without_timers(_: str, changes: Changes) -> Changes:
        queues = {change[-3:-1] for group, change in changes if group == -1 and change[-1] == 3}
        return [
            (group, change)
            for group, change in changes
            if (change[-3:-1] if group == -1 else change[1:3]) not in queues
        ]

    with pytest.raises(UnsupportedFormatError, match="does not have the type of the keys") as found:
        open_snapshot(inlined(golden, tmp_path / "inlined", without_timers))
    assert "savepoint" in found.value.remedy
    assert "operator sums, subtask 0" in found.value.place


def merging(changes: Changes, *, with_result: bool) -> Changes:
    """The changes, and one by which two windows of each reducing state become one."""
    found = list(changes)
    for group in {group for group, _ in changes}:
        last: dict[bytes, dict[bytes, bytes]] = {}  # by id and key: windows, and their values
        for other, change in changes:
            if other == group and change[0] == SET_INTERNAL:
                last.setdefault(change[1:-24], {})[change[-24:-8]] = change[-8:]
            elif other == group and change[0] == CLEAR:
                last.get(change[1:-16], {}).pop(change[-16:], None)
        for head, windows in last.items():
            if len(windows) > 1:
                into, source = list(windows)[:2]
                merge = bytes([MERGE_NS]) + head + into + into + b"\0\0\0\1" + source
                found.append((group, merge))
                if with_result:
                    found.append((group, bytes([SET_INTERNAL]) + head + into + b"result!!"))
    return found


@pytest.mark.parametrize("with_result", [False, True], ids=["without", "with its result"])
def test_windows_that_a_function_merges(with_result: bool, golden: Path, tmp_path: Path) -> None:
    """What came of it is in the log, or else it is refused: only the job's function knows."""
    name = ("sums", "window-contents")
    checkpoint = inlined(
        golden,
        tmp_path / "inlined",
        lambda label, changes: (
            merging(changes, with_result=with_result) if label == "sums" else changes
        ),
    )
    opened = open_snapshot(checkpoint)
    if not with_result:
        with pytest.raises(UnsupportedFormatError, match="own function") as found:
            rows_of(opened)
        assert "state 'window-contents'" in found.value.place
        return
    before, after = rows_of(open_snapshot(golden / LOGGED))[name], rows_of(opened)[name]
    results = [row for row in after if str(int.from_bytes(b"result!!", "big")) in row]
    assert results
    assert len(after) == len(before) - len(results)


def test_a_null_in_a_map(golden: Path, tmp_path: Path) -> None:
    """`putAll` writes null flags; a later entry of the same user key takes its place."""
    nulled: Changes = []

    def with_nulls(label: str, changes: Changes) -> Changes:
        puts = [
            (group, change)
            for group, change in changes
            if group >= 0 and change[0] == UPDATE_ELEMENT
        ]
        if label != "changes":
            return changes
        made = [
            (group, bytes([ADD]) + change[1:12] + b"\0\0\0\1" + change[12:-8] + b"\1")
            for group, change in puts
        ]
        nulled.extend(made)
        return [*changes, *made]

    opened = open_snapshot(inlined(golden, tmp_path / "inlined", with_nulls))
    values = opened.operator("changes").state("notes").to_arrow().column("value")
    assert values.null_count > 0
    assert nulled


@pytest.mark.parametrize(
    ("operation", "error", "problem"),
    [
        (8, UnsupportedFormatError, "without being named"),
        (SET_INTERNAL, CorruptSnapshotError, "operation SET_INTERNAL on timers state"),
        (200, CorruptSnapshotError, "operation 200"),
    ],
)
def test_operations_that_can_not_be(
    operation: int, error: type[StateError], problem: str, golden: Path, tmp_path: Path
) -> None:
    """They are refused with their place and the state."""

    def other(_: str, changes: Changes) -> Changes:
        timers = {change[-3:-1] for group, change in changes if group == -1 and change[-1] == 3}
        return [
            (
                group,
                bytes([operation]) + change[1:] if change[1:3] in timers and group >= 0 else change,
            )
            for group, change in changes
        ]

    opened = open_snapshot(inlined(golden, tmp_path / "inlined", other))
    with pytest.raises(error, match=problem) as found:
        rows_of(opened)
    assert "inlined changes, offset" in found.value.place
    assert "_timer_state" in found.value.place


@given(data=st.data())
@pytest.mark.full
def test_mutated_logs(data: st.DataObject, golden: Path, tmp_path_factory: object) -> None:
    """An error of ours, or entries; never anything else."""
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    checkpoint = copied(golden, "hashmap/chk-3", tmp_path_factory.mktemp("mutated"))
    paths = sorted((checkpoint.parent / "dstl").iterdir())
    path = data.draw(st.sampled_from(paths))
    mutated = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(mutated)
    try:
        for operator in open_snapshot(checkpoint).operators:
            for state in operator.keyed_states:
                state.to_arrow()
    except StateError:
        return


def test_entries_that_are_not_found_below_a_log_are_missed_in_every_state(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read no further: no state may pass for whole, whichever the heap has lost."""
    file = next(each for each in logs_of(open_snapshot(golden / "hashmap/chk-3")) if each.bases)

    def found(*_: object) -> Iterator[Entries]:
        yield from ()
        raise UnwalkableError("an end that nobody knows", states=["one"])

    for base in file.bases:
        monkeypatch.setattr(type(base), "entries", found)
    with pytest.raises(UnwalkableError) as told:
        list(file.entries())
    assert told.value.states == {state.name for state in file.header.states}
