"""Checkpoints of real Flink with merged files, and with a log of changes, are read.

Merged files (FLIP-306) hold segments of many subtasks' files, in directories of their own within
`shared` and `taskowned`; a job without operator state has handles of nothing in them. The changelog
backend (FLIP-158) wraps the handles of another backend, with the changes since.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.formats.metadata.checkpoint_metadata import (
    CheckpointMetadata,
    read_metadata,
)
from statelake.state_core.model.handles import (
    ChangelogByteHandle,
    ChangelogFileHandle,
    ChangelogHandle,
    EmptySegmentHandle,
    IncrementalHandle,
    KeyGroupsHandle,
    SegmentHandle,
)
from tests.integration.flink.change_logs import changelog_options, run_generations
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.command import run
from tests.support.savepoints.change_logs import rows_of
from tests.support.savepoints.expected_contents import (
    contents_of,
    held_lines,
    same_lines,
    tables_of,
)

pytestmark = [pytest.mark.flink, pytest.mark.full, pytest.mark.thinned(4)]

KEYS, ALL_KEYS = 40, 70
MERGED = "execution.checkpointing.file-merging.enabled"
ACROSS = "execution.checkpointing.file-merging.across-checkpoint-boundary"
BACKENDS = ("hashmap", "rocksdb")


def some(cases: Iterable[tuple[str, ...]], in_every_run: set[tuple[str, ...]]) -> list[Any]:
    """Every case; `full` if not in every run."""
    return [
        pytest.param(*case, marks=[] if case in in_every_run else pytest.mark.full)
        for case in cases
    ]


def metadata_of(snapshot: Path) -> CheckpointMetadata:
    """What `_metadata` says."""
    return read_metadata((snapshot / "_metadata").read_bytes())


def keyed_handles(snapshot: Path) -> list[Any]:
    """The handles of keyed state."""
    return [
        subtask.managed_keyed
        for operator in metadata_of(snapshot).operators
        for subtask in (operator.subtasks or {}).values()
        if subtask.managed_keyed is not None
    ]


def operator_streams(snapshot: Path) -> list[Any]:
    """What the handles of operator state lead to."""
    return [
        subtask.managed_operator.stream
        for operator in metadata_of(snapshot).operators
        for subtask in (operator.subtasks or {}).values()
        if subtask.managed_operator is not None
    ]


def streams(handle: Any) -> list[Any]:
    """What a handle of keyed state leads to."""
    if isinstance(handle, KeyGroupsHandle):
        return [handle.stream]
    assert isinstance(handle, IncrementalHandle)
    return [handle.meta, *(stream for _, stream in (*handle.shared, *handle.private))]


def moved(checkpoints: list[Path], to: Path) -> list[Path]:
    """The checkpoints elsewhere, and no more where they were written."""
    shutil.copytree(checkpoints[0].parent, to)
    shutil.rmtree(checkpoints[0].parent)
    return [to / checkpoint.name for checkpoint in checkpoints]


@pytest.mark.parametrize(
    ("backend", "across"),
    some(product(BACKENDS, ("false", "true")), {("rocksdb", "true"), ("hashmap", "false")}),
)
def test_merged_files_of_keyed_state(
    backend: str, across: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Each checkpoint reads as Flink restores it, from segments of files that others share."""
    places = flink.checkpoints(
        "chain", tmp_path / "written", keys=KEYS, generations=3, backend=backend,
        **{MERGED: "true", ACROSS: across},
    )  # fmt: skip
    options = {"keys": ALL_KEYS, "backend": backend}
    contents = [held_lines(flink.restore("chain", place, **options)) for place in places]
    lake = Catalog(tmp_path / "lake")
    for place, expected in zip(moved(places, tmp_path / "moved"), contents, strict=True):
        handles = keyed_handles(place)
        assert all(isinstance(s, SegmentHandle) for handle in handles for s in streams(handle))
        if backend == "rocksdb":  # of the other, each subtask may have a file of its own
            assert any(s.start for handle in handles for s in streams(handle))
        assert EmptySegmentHandle() in operator_streams(place)
        same_lines(contents_of("chain", tables_of(open_snapshot(place))), expected)
        import_snapshot(lake, str(place), "job", snapshot_id=place.name, engine="local")
    files = [
        {
            stream.uri
            for handle in keyed_handles(tmp_path / "moved" / place.name)
            for stream in streams(handle)
        }
        for place in places
    ]
    if across == "true":
        assert files[0] & files[1]
    target = tmp_path / "export"
    export_snapshot(lake, "job", places[-1].name, target, parallelism=3, engine="local")
    lines = flink.restore("chain", target, keys=ALL_KEYS, parallelism=3, backend="hashmap")
    same_lines(held_lines(lines), contents[-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_merged_files_of_operator_state(backend: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Lists, broadcasts and keyed state of one operator; `inspect` lists them with their sizes."""
    (place,) = flink.checkpoints(
        "mixed", tmp_path / "written", keys=KEYS, backend=backend, **{MERGED: "true"}
    )
    options = {"keys": KEYS, "parallelism": 2}
    expected = flink.restore("mixed", place, **options, backend=backend)
    (place,) = moved([place], tmp_path / "moved")
    segments = [
        operator_stream
        for operator_stream in operator_streams(place)
        if isinstance(operator_stream, SegmentHandle)
    ]
    assert len(segments) == 4  # of two sources, and of the two subtasks of `mixed`
    shown = run("inspect", place, "--json").json
    (mixed,) = (operator for operator in shown["operators"] if operator["operator-uid"] == "mixed")
    assert ("length", KEYS) in [
        (keyed_state["name"], keyed_state["entries"]) for keyed_state in mixed["keyed_states"]
    ]
    modes = {
        operator_state["name"]: operator_state["mode"]
        for operator_state in mixed["operator_states"]
    }
    assert modes == {
        "split": "SPLIT_DISTRIBUTE", "offsets": "SPLIT_DISTRIBUTE", "union": "UNION",
        "lone": "SPLIT_DISTRIBUTE", "rare": "UNION", "rules": "BROADCAST",
    }  # fmt: skip
    size = sum(stream.size for handle in keyed_handles(place) for stream in streams(handle))
    assert shown["size_bytes"] >= size + sum(segment.size for segment in segments)
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(place), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "export", engine="local")
    lines = flink.restore("mixed", tmp_path / "export", **options, backend="hashmap")
    assert sorted_lines(map(unordered, lines)) == sorted_lines(map(unordered, expected))


def unordered(line: dict[str, Any]) -> dict[str, Any]:
    """A line whose lists are sorted: Flink's order of old subtasks depends on paths."""
    return {name: sorted(item) if isinstance(item, list) else item for name, item in line.items()}


@pytest.mark.parametrize(
    ("backend", "storage", "materialized"),
    some(
        product(BACKENDS, ("memory", "filesystem"), ("1 ms", "10 min")),
        {("rocksdb", "filesystem", "10 min"), ("hashmap", "filesystem", "1 ms")},
    ),
)
def test_the_changelog_backend(
    backend: str, storage: str, materialized: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Checkpoints hold what Flink restores of them, whatever is in the log, as savepoints do."""
    options = changelog_options(tmp_path / "log", materialized)
    *checkpoints, native, canonical = flink.checkpoints(
        "chain", tmp_path / "written", keys=KEYS, generations=2, backend=backend,
        savepoints="NATIVE CANONICAL", **{**options, "state.changelog.storage": storage},
    )  # fmt: skip
    again = {"keys": ALL_KEYS, "backend": backend}
    expected = [
        held_lines(flink.restore("chain", checkpoint, **again)) for checkpoint in checkpoints
    ]
    kind = ChangelogFileHandle if storage == "filesystem" else ChangelogByteHandle
    (log,) = {*(tmp_path / "log").glob("*/dstl")} or {tmp_path}
    for place, lines in zip(checkpoints, expected, strict=True):
        handles = keyed_handles(place)
        assert all(isinstance(handle, ChangelogHandle) for handle in handles)
        assert all(isinstance(change, kind) for handle in handles for change in handle.changes)
        opened = open_snapshot(place, allow_external=[str(log)])
        same_lines(contents_of("chain", tables_of(opened)), lines)
        assert run("check", "integrity", place, "--allow-external", log).code == 0
        if any(handle.changes for handle in handles) and storage == "filesystem":
            ran = run("inspect", place)
            assert (ran.code, "?" in ran.out) == (3, True)
            assert f"--allow-external {log}" in ran.err
    lake = Catalog(tmp_path / "lake")
    assert all(isinstance(keyed_handle, ChangelogHandle) for keyed_handle in keyed_handles(native))
    for place in (native, canonical):
        contents = contents_of("chain", tables_of(open_snapshot(place)))
        same_lines(contents, expected[-1])
    import_snapshot(lake, str(native), "job", snapshot_id="s", engine="local")
    export_snapshot(lake, "job", "s", tmp_path / "export", parallelism=3, engine="local")
    restored = flink.restore(
        "chain", tmp_path / "export", keys=ALL_KEYS, parallelism=3, backend="rocksdb"
    )
    same_lines(held_lines(restored), expected[-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_by_kryo_are_in_the_changelog_backend(
    backend: str, flink: FlinkOracle, tmp_path: Path
) -> None:
    """Of maps and of a stream, of which only Kryo tells where they end: as in the savepoint.

    Null in a map has another form in the log, which is beside the value.
    """
    options = changelog_options(tmp_path / "log", "10 min") | {"state.changelog.storage": "memory"}
    checkpoint, canonical = flink.checkpoints(
        "kryo-keys", tmp_path / "written", keys=12, backend=backend, savepoints="CANONICAL",
        inline=1_000_000, **options,
    )  # fmt: skip
    for uid, states in {"mapped": ("counts", "lists", "ids"), "counted": ("number",)}.items():
        for state in states:
            tables = [
                open_snapshot(place, uids=["mapped", "counted"])[uid][state].to_arrow()
                for place in (checkpoint, canonical)
            ]
            rows = [
                sorted(map(repr, table.drop_columns(["raw_value"]).to_pylist())) for table in tables
            ]
            assert rows[0] == rows[1]
            assert rows[0]


@pytest.mark.parametrize(
    ("backend", "compressed", "key_groups"),
    [*product(BACKENDS, ("false", "true"), (128,)), *product(BACKENDS, ("true",), (1024,))],
)
def test_every_kind_of_change(
    backend: str, compressed: str, key_groups: int, flink: FlinkOracle, tmp_path: Path
) -> None:
    """What Flink restores of an export is what it restores of the checkpoint with its log.

    All kinds of state, windows that merge, timers that fire; before a materialization and after
    some; moved to another place, and at another parallelism.
    """
    again = {"keys": ALL_KEYS, "backend": backend, "max": key_groups}
    for pause in (1500, 4500, 13500):  # a slow machine materializes before its first checkpoint
        written = tmp_path / f"written-{pause}"
        options = changelog_options(written, f"{pause * 2 // 5} ms")
        options["state.changelog.dstl.dfs.compression.enabled"] = compressed
        pairs = run_generations(
            flink, backend, written, keys=KEYS, generations=2, pause=pause,
            max=key_groups, **options,
        )  # fmt: skip
        handles = [handle for place, _ in pairs for handle in keyed_handles(place)]
        logged = [bool(handle.materialized) for handle in handles if handle.changes]
        if {*logged} == {False, True}:
            break
    else:
        pytest.fail("no two checkpoints before and after a materialization")
    expected = [sorted_lines(flink.restore("changes", place, **again)) for place, _ in pairs]
    same = [rows_of(open_snapshot(savepoint)) for _, savepoint in pairs]
    lake = Catalog(tmp_path / "lake")
    places = moved([place for place, _ in pairs], tmp_path / "moved")
    for place, rows, lines in zip(places, same, expected, strict=True):
        assert rows_of(open_snapshot(place)) == rows
        import_snapshot(lake, str(place), "job", snapshot_id=place.name, engine="local")
        export = tmp_path / "export" / place.name
        export_snapshot(lake, "job", place.name, export, parallelism=3, engine="local")
        restored = flink.restore(
            "changes", export, keys=ALL_KEYS, parallelism=3, backend=backend, max=key_groups
        )
        assert sorted_lines(restored) == lines


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_log_of_flink_1(backend: str, old_flink: FlinkOracle, tmp_path: Path) -> None:
    """Flink 1.20 writes its log as Flink 2 does."""
    options = changelog_options(tmp_path / "written", "600 ms")
    pairs = run_generations(
        old_flink, backend, tmp_path / "written", keys=KEYS, generations=2, pause=1500, **options
    )
    for checkpoint, savepoint in pairs:
        assert rows_of(open_snapshot(checkpoint)) == rows_of(open_snapshot(savepoint))
    assert any(handle.changes for place, _ in pairs for handle in keyed_handles(place))
