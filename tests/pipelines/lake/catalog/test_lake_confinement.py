"""Nothing that is written in a lake leads out of it: rows, notes, logs, links, carried files.

Each attack is put into a lake that has honest snapshots too, and commands are called on it. What
lies beside the lake stays as it is, byte for byte, and what is honest is exported as before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake.api import Lake
from pipelines.lake.catalog.dropping import drop_snapshots
from pipelines.lake.edit.changes import ValueChange
from pipelines.lake.edit.committing import commit_snapshot
from pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from pipelines.lake.edit.migrating import migrate_snapshot
from pipelines.lake.export.exporting import export_snapshot
from pipelines.lake.export.rescaling import plan_rescale
from pipelines.lake.verify.diffing import diff_snapshots
from pipelines.lake.verify.integrity import stored_faults
from state_core.errors import DamagedLakeError, StateError, UnsafePathError
from state_core.files.confinement import ConfinedTree
from state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from state_core.model.handles import RelativeHandle
from state_core.serializers.type_spec import parse_type
from tests.support.forged_lakes import (
    NAME,
    TOKEN,
    Scene,
    every_place,
    forged,
    make_scene,
    places_of,
)
from tests.support.lakes import LOCAL, Contents, entries, exported, import_as
from tests.support.steps import do_at

Command = Callable[[Scene], object]

WIDER = parse_type({"pojo": "acme.Profile", "fields": {"name": "String", "city": "String"}})
EXPIRED = SnapshotEdit(drop_states=["counter/total"])
READ: dict[str, Command] = {
    "export": lambda it: export_snapshot(it.lake, "orders", "bad", it.root / "out", engine=LOCAL),
    "diff": lambda it: diff_snapshots(it.lake, "orders", "good", "bad", engine=LOCAL),
    "check": lambda it: stored_faults(it.lake, it.lake.snapshot("orders", "bad")),
    "rescale": lambda it: plan_rescale(it.lake.snapshot("orders", "bad"), 2),
}
WRITTEN: dict[str, Command] = {
    "commit": lambda it: commit_snapshot(it.lake, "orders", "new", "bad", engine=LOCAL),
    "edit": lambda it: edit_snapshot(it.lake, "orders", "bad", "new", EXPIRED, engine=LOCAL),
    "merge": lambda it: edit_snapshot(
        it.lake, "clean", "good", "new", SnapshotEdit(merge=[("orders", "bad")]), engine=LOCAL
    ),
    "migrate": lambda it: migrate_snapshot(
        it.lake, "orders", "bad", "new",
        ValueChange("counter", "profile", WIDER),
        engine=LOCAL,
    ),
}  # fmt: skip
KEEP: Command = lambda it: drop_snapshots(it.lake, "orders", keep=1)  # noqa: E731
DROP: Command = lambda it: drop_snapshots(it.lake, "orders", snapshot_ids=["bad"])  # noqa: E731
IMPORT: Command = lambda it: import_as(it.lake, it.source, "next")  # noqa: E731
EVERY = {**READ, **WRITTEN, "keep": KEEP, "drop": DROP, "import": IMPORT}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The scene that each test has a copy of."""
    return make_scene(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="module")
def good(prepared: Scene) -> Contents:
    """What the honest snapshot holds."""
    return entries(prepared.root / "good")


@pytest.fixture
def scene(prepared: Scene, tmp_path: Path) -> Iterator[Scene]:
    """A copy, whose victim is as it was in the end, with nothing new beside it."""
    for name in ("lake", "victim", "next"):
        shutil.copytree(prepared.root / name, tmp_path / name, symlinks=True)
    made = Scene(tmp_path)
    before = every_place(made.victim)
    yield made
    assert every_place(made.victim) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"lake", "victim", "next", "out", "honest"}


def still_whole(scene: Scene, good: Contents) -> None:
    """The honest snapshots are exported as ever, and the other job can go on."""
    assert scene.good("honest") == good
    assert exported(scene.lake, "good", scene.root / "out", "clean") == good


def refused(scene: Scene, command: Command, kind: type[StateError] = StateError) -> StateError:
    """A command raises, leaves the lake as it is, and says what to do."""
    before = every_place(scene.path)
    with pytest.raises(kind) as raised:
        command(scene)
    assert every_place(scene.path) == before
    assert not (scene.root / "out").exists()
    assert raised.value.remedy
    return raised.value


def tried(scene: Scene, command: Command) -> None:
    """A command goes well, or says what to do."""
    try:
        command(scene)
    except StateError as error:
        raised = error
    else:
        return
    assert raised.remedy


# --------------------------------------------------------------------------- rows: tables and files

TABLES = [
    "../victim/lake/orders/keyed/counter/name", "{victim}/lake/orders/keyed/counter/name",
    "file://{victim}/lake/orders/keyed/counter/name", "s3://bucket/name", "", ".", "..", "/",
    "orders/../../victim/lake/orders/keyed/counter/name", "%2e%2e/victim",
    "..%2fvictim", "orders/keyed/counter/name/", "orders//keyed/counter/name",
    "orders/./keyed/counter/name", "..\\victim", "orders/keyed/counter/name\0",
    "clean/keyed/counter/name", "snapshots", "_statelake/attempts",
    "orders/keyed/counter", "orders/keyed/counter/total",
    "orders/timers/counter", "orders/operator/counter/name", "orders/keyed/counter/.hidden",
]  # fmt: skip


def put_table(scene: Scene, path: str) -> None:
    """Let the bad snapshot have its table at another path."""

    def change(row: dict[str, Any]) -> None:
        for held, key in list(places_of(row, NAME)):
            held[key] = scene.fill(path)

    forged(scene, change)


@pytest.mark.parametrize("path", TABLES)
def test_a_table_elsewhere_is_not_exported(path: str, scene: Scene, good: Contents) -> None:
    """Wherever a row says that a table is, but for its own place; the message names the row."""
    put_table(scene, path)
    error = refused(scene, READ["export"], DamagedLakeError)
    assert "job 'orders', snapshot 'bad'" in str(error)
    assert "drop --job 'orders' --snapshot 'bad'" in str(error)
    still_whole(scene, good)


@pytest.mark.parametrize(
    "command", [*READ.values(), *WRITTEN.values(), KEEP], ids=[*READ, *WRITTEN, "keep"]
)
@pytest.mark.parametrize("path", [TABLES[0], TABLES[1], "clean/keyed/counter/name"])
def test_a_table_elsewhere_is_nobodys(
    path: str, command: Command, scene: Scene, good: Contents
) -> None:
    """Every command that needs the row refuses before it has done anything."""
    put_table(scene, path)
    refused(scene, command, DamagedLakeError)
    still_whole(scene, good)


@pytest.mark.parametrize("path", TABLES)
def test_a_bad_row_can_be_dropped_by_its_name(path: str, scene: Scene, good: Contents) -> None:
    """What it says counts for nothing, and the lake is as good as before it."""
    put_table(scene, path)
    assert drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"]).kept == ["good"]
    assert scene.lake.bad_rows("orders") == []
    assert [summary.snapshot_id for summary in scene.lake.summaries()] == ["good", "good"]
    import_as(scene.lake, scene.source, "next")
    drop_snapshots(scene.lake, "orders", keep=2)
    still_whole(scene, good)


def test_a_job_with_a_bad_row_goes_on(scene: Scene, good: Contents) -> None:
    """The next snapshot is imported, though it shares no file; the other job knows nothing."""
    put_table(scene, TABLES[0])
    record = import_as(scene.lake, scene.source, "next")
    assert exported(scene.lake, "next", scene.root / "out") == entries(scene.source)
    shutil.rmtree(scene.root / "out")
    assert record.operators
    edit_snapshot(scene.lake, "orders", "good", "edited", EXPIRED, engine=LOCAL)
    drop_snapshots(scene.lake, "clean", snapshot_ids=[])
    still_whole(scene, good)


FILES = [
    "../../../../victim/secret.txt", "{victim}/secret.txt", "file://{victim}/secret.txt", "", ".",
    "..", "_data", "_data/../../total/x.parquet", "_data/%2e%2e/key-group-00000.parquet",
    "_delta_log/00000000000000000000.json", f"_data/{TOKEN}/../{TOKEN}/key-group-00000.parquet",
    f"_data/{TOKEN}/secret.txt", "_data/..../key-group-00000.parquet",
    f"_data/{TOKEN}/key-group-00000.parquet\n",
]  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_a_file_elsewhere_is_not_read(path: str, scene: Scene, good: Contents) -> None:
    """A row names files of our own pattern, or is none."""

    def change(row: dict[str, Any]) -> None:
        for table in row["operators"][0]["tables"]:
            table["units"][0]["path"] = scene.fill(path)

    forged(scene, change)
    refused(scene, READ["export"], DamagedLakeError)
    refused(scene, KEEP, DamagedLakeError)
    still_whole(scene, good)


# --------------------------------------------------------------------------- rows: what is carried

HANDLES = [
    "{victim}/authorized_keys", "../../victim/authorized_keys", "file://{victim}/x", "..", "a/b",
    "_metadata", "0" * 64,
]  # fmt: skip


@pytest.mark.parametrize("path", HANDLES)
def test_a_carried_handle_leads_nowhere_else(path: str, scene: Scene, good: Contents) -> None:
    """An export neither writes nor reads what a row's `_metadata` names, but for carried files."""

    def change(row: dict[str, Any]) -> None:
        metadata = read_metadata(row["metadata"])
        (handle,) = (
            subtask.raw_operator
            for subtask in (metadata.operators[0].subtasks or {}).values()
            if subtask.raw_operator
        )
        assert handle.stream is not None
        moved = replace(handle, stream=RelativeHandle(scene.fill(path), handle.stream.size))
        (metadata.operators[0].subtasks or {})[0].raw_operator = moved
        row["metadata"] = write_metadata(metadata)

    forged(scene, change)
    refused(scene, READ["export"], DamagedLakeError)
    refused(scene, WRITTEN["merge"], DamagedLakeError)
    still_whole(scene, good)


def test_a_row_has_no_handles_of_state_with_tables(scene: Scene, good: Contents) -> None:
    """A `_metadata` of a savepoint elsewhere, in the place of what is carried, is refused."""

    def change(row: dict[str, Any]) -> None:
        row["metadata"] = (scene.source / "_metadata").read_bytes()

    forged(scene, change)
    assert "state that has tables" in str(refused(scene, READ["export"], DamagedLakeError))
    still_whole(scene, good)


def carried_of(scene: Scene, snapshot_id: str) -> Path:
    """The only carried file of a snapshot."""
    (carried,) = scene.lake.snapshot("orders", snapshot_id).carried
    return scene.path / "_statelake" / "carried" / carried.blob


def test_a_carried_file_that_is_another_is_not_exported(scene: Scene, good: Contents) -> None:
    """Its bytes are held against the digest that is its name; an import puts the right ones."""
    path = carried_of(scene, "bad")
    path.write_bytes(b"x" * path.stat().st_size)
    assert path.name in str(refused(scene, READ["export"], DamagedLakeError))
    assert READ["check"](scene)
    still_whole(scene, good)
    import_as(scene.lake, scene.source, "next")
    later = carried_of(scene, "next")
    later.write_bytes(b"")
    drop_snapshots(scene.lake, "orders", snapshot_ids=["next"])
    later.write_bytes(b"put there before")
    import_as(scene.lake, scene.source, "next")
    shutil.rmtree(scene.root / "out")
    assert exported(scene.lake, "next", scene.root / "out") == entries(scene.source)


def test_a_carried_file_that_is_a_link_is_not_exported(scene: Scene, good: Contents) -> None:
    """No file elsewhere becomes part of a savepoint."""
    path = carried_of(scene, "bad")
    scene.link(f"_statelake/carried/{path.name}", scene.victim / "secret.txt")
    refused(scene, READ["export"], UnsafePathError)
    still_whole(scene, good)


# --------------------------------------------------------------------------- notes

NOTED: list[Any] = [
    ["../victim"], ["{victim}"], ["file://{victim}"], ["orders/../../victim"], ["%2e%2e/victim"],
    [""], ["."], [".."], ["/"], ["orders\0"], ["clean/keyed/counter/name"], ["snapshots"],
    ["_statelake"], [NAME, "../victim"], ["orders/keyed/counter"], [5], [None], [["../victim"]],
    "../victim", None, 7,
]  # fmt: skip
CHANGING = {"keep": KEEP, "drop": DROP, "import": IMPORT, **WRITTEN}
del CHANGING["merge"]  # into another job, whose notes are others


def renoted(scene: Scene, tables: Any) -> None:
    """A note of these tables, with the victim's place in them."""
    filled = (
        [scene.fill(table) if isinstance(table, str) else table for table in tables or []]
        if isinstance(tables, list)
        else tables
    )
    scene.note(tables=filled)


@pytest.mark.parametrize("command", [KEEP, IMPORT], ids=["drop", "import"])
@pytest.mark.parametrize("tables", NOTED, ids=repr)
def test_a_note_removes_nothing_elsewhere(
    tables: Any, command: Command, scene: Scene, good: Contents
) -> None:
    """A note of tables that are not the job's is refused by its name; with it gone, all is well."""
    renoted(scene, tables)
    assert TOKEN in str(refused(scene, command, DamagedLakeError))
    still_whole(scene, good)
    (scene.path / "_statelake" / "attempts" / f"{TOKEN}.json").unlink()
    command(scene)


@pytest.mark.parametrize("command", CHANGING.values(), ids=CHANGING)
def test_a_note_of_tables_elsewhere_stops_what_changes(
    command: Command, scene: Scene, good: Contents
) -> None:
    """Whoever recovers reads notes."""
    renoted(scene, ["{victim}", "../victim"])
    refused(scene, command, DamagedLakeError)
    still_whole(scene, good)


@pytest.mark.parametrize(
    "name",
    [".json", "..json", "...json", "..hidden.json", "%2e%2e.json", "abc.json", "readme.txt", TOKEN,
     f"{TOKEN}.json.json", "0123456789ABCDEF.json", f"{TOKEN}0.json"],
)  # fmt: skip
def test_an_attempt_is_called_by_its_token(name: str, scene: Scene, good: Contents) -> None:
    """The name of a note is the name of the directory that it removes."""
    scene.note(name)
    refused(scene, KEEP, DamagedLakeError)
    refused(scene, IMPORT, DamagedLakeError)
    still_whole(scene, good)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "5", "null", "{}", "[" * 100_000, '{"job": 1e999}', "\udcff", '{"a": NaN}'],
    ids=range(10),
)  # fmt: skip
def test_what_is_no_note(text: str, scene: Scene, good: Contents) -> None:
    """It is told, and no bug."""
    path = scene.path / "_statelake" / "attempts" / f"{TOKEN}.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert path.name in str(refused(scene, KEEP, DamagedLakeError))
    still_whole(scene, good)


@pytest.mark.parametrize(
    ("name", "value"),
    [("job", 5), ("job", None), ("leans_on", 7), ("leans_on", [7]), ("started", "x"),
     ("started", None), ("started", 1e300), ("started", float("nan")), ("process", "x"),
     ("process", 10**30), ("process", -1), ("process", 0), ("process", True), ("host", ["a"]),
     ("snapshot_id", None)],
)  # fmt: skip
def test_a_note_with_another_value(name: str, value: Any, scene: Scene, good: Contents) -> None:
    """The message names the field."""
    scene.note(**{name: value})
    assert f"{name}: " in str(refused(scene, KEEP, DamagedLakeError))
    still_whole(scene, good)


@pytest.mark.parametrize("part", ["1234", "0a1b2c3d"])
def test_a_note_that_is_being_written(part: str, scene: Scene) -> None:
    """It is none yet, and nobody waits for it."""
    path = scene.note(f"{TOKEN}.json.{part}.part")
    import_as(scene.lake, scene.source, "next")
    drop_snapshots(scene.lake, "orders", keep=1)
    assert path.exists()


def test_a_note_of_a_version_before(scene: Scene) -> None:
    """Which leaned on one snapshot, or on none."""
    scene.note(leans_on="good")
    drop_snapshots(scene.lake, "orders", keep=1)
    assert scene.lake.directory.names("_statelake/attempts") == []


def test_a_note_takes_no_files_of_a_snapshot(scene: Scene) -> None:
    """A note with the token of a snapshot's own attempt, for a snapshot that there is not."""
    record = scene.lake.snapshot("orders", "bad")
    paths = [table.path for table in record.operators[0].tables]
    for unit in (unit for table in record.operators[0].tables for unit in table.units):
        scene.note(f"{unit.path.split('/')[1]}.json", tables=paths)
    drop_snapshots(scene.lake, "orders", snapshot_ids=[])
    assert exported(scene.lake, "bad", scene.root / "out") == exported(
        Lake(scene.victim / "lake"), "bad", scene.root / "honest"
    )


# --------------------------------------------------------------------------- links

LINKS = {
    "own directory": "_statelake", "notes": "_statelake/attempts", "carried": "_statelake/carried",
    "catalog": "snapshots", "catalog's log": "snapshots/_delta_log",
    "rows": "snapshots/job=orders", "job": "orders", "area": "orders/keyed",
    "operator": "orders/keyed/counter", "table": NAME, "files": f"{NAME}/_data",
    "log": f"{NAME}/_delta_log", "version": f"{NAME}/_delta_log/00000000000000000000.json",
}  # fmt: skip
NOT_EXPORTED = ("own directory", "notes", "log", "version")  # which an export has no need of


@pytest.mark.parametrize("command", [KEEP, DROP, IMPORT], ids=["keep", "drop", "import"])
@pytest.mark.parametrize("link", LINKS)
def test_a_link_is_not_followed(link: str, command: Command, scene: Scene) -> None:
    """At any level: nothing behind it is read, written or removed."""
    scene.link(LINKS[link], scene.victim / "lake" / LINKS[link])
    tried(scene, command)


@pytest.mark.parametrize("link", [link for link in LINKS if link not in NOT_EXPORTED])
def test_nothing_behind_a_link_is_exported(link: str, scene: Scene) -> None:
    """Tables, files and carried files are read where they are."""
    scene.link(LINKS[link], scene.victim / "lake" / LINKS[link])
    with pytest.raises(StateError):
        READ["export"](scene)
    assert not (scene.root / "out").exists()


STRAY = {
    "table": ("orders/keyed/counter/stray", ""), "operator": ("orders/keyed/stray", ""),
    "timers": ("orders/timers/stray", ""), "attempt": (f"{NAME}/_data/{TOKEN}", TOKEN),
    "file": (f"{NAME}/_data/{TOKEN}/key-group-00000.parquet", "secret.txt"),
    "directory": (f"{NAME}/_data/{TOKEN}/deeper", TOKEN), "all": (f"{NAME}/_data/stray", "_data"),
    "carried": (f"_statelake/carried/{'0' * 64}", "secret.txt"),
    "loop": (f"{NAME}/_data/loop", "../lake"),
}  # fmt: skip


@pytest.mark.parametrize("link", STRAY)
def test_a_link_that_nothing_names_is_left_alone(link: str, scene: Scene) -> None:
    """A drop goes on, and nothing behind the link goes with it."""
    path, to = STRAY[link]
    scene.link(path, scene.victim / to)
    scene.note(tables=[NAME])
    assert drop_snapshots(scene.lake, "orders", keep=1).kept == ["bad"]
    assert (scene.path / path).is_symlink()
    assert exported(scene.lake, "bad", scene.root / "out") == exported(
        Lake(scene.victim / "lake"), "bad", scene.root / "honest"
    )


def test_a_link_in_the_place_of_an_edit(scene: Scene, good: Contents) -> None:
    """Where a Delta engine would write or remove by a path, there must be no link."""
    scene.link(f"{NAME}/key_group=1", scene.victim / "_data")
    refused(scene, KEEP, UnsafePathError)
    with pytest.raises(UnsafePathError):
        scene.lake.table(NAME).checked_directory()
    still_whole(scene, good)


def test_an_engine_gets_no_path_with_a_link_below(scene: Scene) -> None:
    """Before a path is given away, every file of the version is looked at."""
    table = scene.lake.table(NAME)
    assert table.checked_directory().uri == table.uri
    unit = table.files()[-1]
    scene.link(f"{NAME}/{unit.path}", scene.victim / "secret.txt")
    with pytest.raises(UnsafePathError):
        table.checked_directory()


def test_links_swapped_between_look_and_use(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that becomes a link after the files in it were listed is not followed."""
    stray = scene.path / NAME / "_data" / TOKEN
    shutil.copytree(scene.victim / "_data" / TOKEN, stray)

    def swap() -> None:
        if stray.is_dir() and not stray.is_symlink():
            scene.link(f"{NAME}/_data/{TOKEN}", scene.victim / "_data" / TOKEN)

    do_at(monkeypatch, (ConfinedTree, "remove", "before", 1), swap)
    with pytest.raises(UnsafePathError):
        drop_snapshots(scene.lake, "orders", snapshot_ids=["bad"])
    assert stray.is_symlink()


# --------------------------------------------------------------------------- Delta's own logs

ADDED = [
    "../../../../victim/secret.txt", "{victim}/secret.txt", "file://{victim}/secret.txt", "", ".",
    "%2e%2e/%2e%2e/%2e%2e/%2e%2e/victim/secret.txt", "..%2f..%2fvictim", "s3://bucket/x.parquet",
]  # fmt: skip


def added(scene: Scene, table: str, path: str) -> None:
    """A version in whose log there is one more file."""
    log = scene.path / table / "_delta_log"
    partition = {"job": "orders"} if table == "snapshots" else {"key_group_bucket": "1"}
    action = {
        "path": scene.fill(path), "size": 4, "partitionValues": partition,
        "modificationTime": 1, "dataChange": True, "stats": '{"numRecords": 1}',
    }  # fmt: skip
    name = f"{len(list(log.glob('*.json'))):020d}.json"
    (log / name).write_text(json.dumps({"add": action}), "utf-8")


@pytest.mark.parametrize("path", ADDED)
def test_a_log_names_no_file_elsewhere(path: str, scene: Scene, good: Contents) -> None:
    """What a log adds is looked at before it is read, committed again, or kept by a drop."""
    added(scene, NAME, path)
    refused(scene, WRITTEN["commit"])
    with pytest.raises(UnsafePathError):
        scene.lake.table(NAME).files()
    with pytest.raises(UnsafePathError):
        scene.lake.table(NAME).checked_directory()
    with pytest.raises(StateError):
        DROP(scene)
    still_whole(scene, good)


@pytest.mark.parametrize("path", ADDED)
def test_the_catalog_has_no_file_elsewhere(path: str, scene: Scene, good: Contents) -> None:
    """It is a file of rows that can't be read; the others can."""
    added(scene, "snapshots", path)
    assert len(scene.lake.bad_rows("orders")) == 1
    refused(scene, KEEP)
    still_whole(scene, good)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", '{"add": 5}', '{"commitInfo": 5}', "[" * 5000]
)
def test_a_log_that_is_none(text: str, scene: Scene, good: Contents) -> None:
    """A table's log that is damaged is told, and what needs no log goes on."""
    log = scene.path / NAME / "_delta_log"
    (log / f"{len(list(log.glob('*.json'))):020d}.json").write_text(text, "utf-8")
    sweep: Command = lambda it: drop_snapshots(it.lake, "orders", snapshot_ids=[])  # noqa: E731
    for command in (sweep, WRITTEN["commit"], IMPORT):
        tried(scene, command)
    still_whole(scene, good)
