"""Nothing that is written in a lake leads out of it: rows, claims, logs, links, carried files.

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

from statelake.pipelines.lake.catalog import claims
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.catalog.claims import Claims
from statelake.pipelines.lake.catalog.dropping import drop_snapshots
from statelake.pipelines.lake.change.changes import ValueChange
from statelake.pipelines.lake.change.migrating import migrate_snapshot
from statelake.pipelines.lake.edit.committing import commit_snapshot
from statelake.pipelines.lake.edit.editing import SnapshotEdit, edit_snapshot
from statelake.pipelines.lake.edit.rewriting import ChildSnapshot
from statelake.pipelines.lake.erase.erasing import erase
from statelake.pipelines.lake.erase.requests import ErasureRequest
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.export.rescaling import plan_rescale
from statelake.pipelines.lake.verify.diffing import diff_snapshots
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.state_core.errors import DamagedLakeError, StateError, UnsafePathError
from statelake.state_core.files.confinement import ConfinedTree
from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.model.handles import RelativeHandle
from statelake.state_core.serializers.type_spec import parse_type
from tests.support.covering import values
from tests.support.forged_lakes import (
    DEAD,
    NAME,
    TOKEN,
    USUAL_CLAIMS,
    Scene,
    every_place,
    forged,
    make_scene,
    places_of,
)
from tests.support.lakes import LOCAL, Contents, entries, exported, forge_claim, import_as

pytestmark = pytest.mark.thinned(12, by=values)

Command = Callable[[Scene], object]

WIDER = parse_type({"pojo": "acme.Profile", "fields": {"name": "String", "city": "String"}})
EXPIRED = SnapshotEdit(drop_state=["counter/total"])


def of_bad(scene: Scene) -> ChildSnapshot:
    """Return a snapshot that is to be made from the bad one."""
    return ChildSnapshot(scene.lake, "orders", "bad", "new", engine=LOCAL)


READ: dict[str, Command] = {
    "export": lambda it: export_snapshot(it.lake, "orders", "bad", it.root / "out", engine=LOCAL),
    "diff": lambda it: diff_snapshots(it.lake, "orders", "good", "bad", engine=LOCAL),
    "check": lambda it: stored_faults(it.lake, it.lake.snapshot("orders", "bad")),
    "rescale": lambda it: plan_rescale(it.lake.snapshot("orders", "bad"), 2),
}
WRITTEN: dict[str, Command] = {
    "commit": lambda it: commit_snapshot(of_bad(it)),
    "edit": lambda it: edit_snapshot(of_bad(it), EXPIRED),
    "merge": lambda it: edit_snapshot(
        ChildSnapshot(it.lake, "clean", "good", "new", engine=LOCAL),
        SnapshotEdit(merge=[("orders", "bad")]),
    ),
    "migrate": lambda it: migrate_snapshot(
        of_bad(it), ValueChange("counter", "profile", WIDER)
    ),
}  # fmt: skip
KEEP: Command = lambda it: drop_snapshots(it.lake, "orders", keep=1)  # noqa: E731
DROP: Command = lambda it: drop_snapshots(it.lake, "orders", snapshot_ids=["bad"])  # noqa: E731
IMPORT: Command = lambda it: import_as(it.lake, it.source, "next")  # noqa: E731
CATALOG_LOG = "snapshots/_delta_log"
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


def refused(
    scene: Scene, command: Command, kind: type[StateError] = StateError, *, begins: bool = False
) -> StateError:
    """A command raises, leaves the lake as it is, and says what to do.

    One that `begins` has said so in the catalog's log, and that it has ended.
    """
    before, said = every_place(scene.path), scene.lake.version().properties
    with pytest.raises(kind) as raised:
        command(scene)
    after = every_place(scene.path)
    assert before == {path: after.get(path) for path in before}
    new = after.keys() - before.keys()
    assert not new or (begins and {path.rpartition("/")[0] for path in new} == {CATALOG_LOG})
    assert scene.lake.version().properties == said
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
    "clean/keyed/counter/name", "snapshots", "_statelake/alive",
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
    assert scene.lake.listed("orders")[1] == []
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
    edit_snapshot(ChildSnapshot(scene.lake, "orders", "good", "edited", engine=LOCAL), EXPIRED)
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
    refused(scene, WRITTEN["merge"], DamagedLakeError, begins=True)
    still_whole(scene, good)


def test_a_row_has_no_handles_of_state_with_tables(scene: Scene, good: Contents) -> None:
    """A `_metadata` of a savepoint elsewhere, in the place of what is carried, is refused."""

    def change(row: dict[str, Any]) -> None:
        row["metadata"] = (scene.source / "_metadata").read_bytes()

    forged(scene, change)
    assert "handles of managed state" in str(refused(scene, READ["export"], DamagedLakeError))
    still_whole(scene, good)


def carried_of(scene: Scene, snapshot_id: str) -> Path:
    """The only carried file of a snapshot."""
    (carried,) = scene.lake.snapshot("orders", snapshot_id).carried
    return scene.path / "_statelake" / "carried" / carried.blob


@pytest.mark.full
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


def test_a_carried_file_is_shared_only_while_it_is_whole(scene: Scene) -> None:
    """The next snapshot that has it gets its own, where the one before has lost it."""
    import_as(scene.lake, scene.source, "next")
    first = carried_of(scene, "next")
    import_as(scene.lake, scene.source, "same")
    assert carried_of(scene, "same") == first
    first.write_bytes(b"x" * first.stat().st_size)
    import_as(scene.lake, scene.source, "again")
    assert exported(scene.lake, "again", scene.root / "out") == entries(scene.source)


def test_a_carried_file_that_is_a_link_is_not_exported(scene: Scene, good: Contents) -> None:
    """No file elsewhere becomes part of a savepoint."""
    path = carried_of(scene, "bad")
    scene.link(f"_statelake/carried/{path.name}", scene.victim / "secret.txt")
    refused(scene, READ["export"], UnsafePathError)
    still_whole(scene, good)


# --------------------------------------------------------------------------- claims

CLAIMED: list[Any] = [
    ["../victim"], ["{victim}"], ["file://{victim}"], ["orders/../../victim"], ["%2e%2e/victim"],
    [""], ["."], [".."], ["/"], ["orders\0"], ["clean/keyed/counter/name"], ["snapshots"],
    ["_statelake"], [NAME, "../victim"], ["orders/keyed/counter"], [5], [None], [["../victim"]],
    "../victim", None, 7,
]  # fmt: skip
CHANGING = {"keep": KEEP, "drop": DROP, "import": IMPORT, **WRITTEN}


@pytest.mark.parametrize("command", [KEEP, IMPORT], ids=["drop", "import"])
@pytest.mark.parametrize("tables", CLAIMED, ids=repr)
def test_a_claim_removes_nothing_elsewhere(
    tables: Any, command: Command, scene: Scene, good: Contents
) -> None:
    """One of tables that are not the job's is refused by its name; with it gone, all is well."""
    scene.claim(tables=tables)
    assert TOKEN in str(refused(scene, command, DamagedLakeError))
    still_whole(scene, good)
    forge_claim(scene.path, f"statelake.attempt.{TOKEN}", None)
    command(scene)


@pytest.mark.parametrize("command", CHANGING.values(), ids=CHANGING)
def test_a_claim_of_tables_elsewhere_stops_what_changes(
    command: Command, scene: Scene, good: Contents
) -> None:
    """Whoever writes reads the claims."""
    scene.claim(tables=["{victim}", "../victim"])
    refused(scene, command, DamagedLakeError)
    still_whole(scene, good)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "%2e%2e", "abc", "readme.txt", f"{TOKEN}.json", "../victim",
     "0123456789ABCDEF", f"{TOKEN}0"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["attempt", "deletion"])
def test_a_claim_is_called_by_its_token(kind: str, name: str, scene: Scene, good: Contents) -> None:
    """Its name is the name of the directory that goes."""
    scene.claim(kind, name)
    refused(scene, KEEP, DamagedLakeError)
    refused(scene, IMPORT, DamagedLakeError)
    still_whole(scene, good)


LIVE = f"_data/{TOKEN}/key-group-00000.parquet"
OUTSIDE = "../../../../victim/secret.txt"
DELETED: dict[str, dict[str, Any]] = {
    "files of a table elsewhere": {"files": {"../victim": [LIVE]}},
    "files of another job": {"files": {"clean/keyed/counter/name": [LIVE]}},
    "files of the catalog": {"files": {"snapshots": ["part-00000-a.parquet"]}},
    "a file elsewhere": {"files": {NAME: [OUTSIDE]}},
    "a file by its whole path": {"files": {NAME: ["{victim}/secret.txt"]}},
    "a file above": {"files": {NAME: [f"_data/{TOKEN}/../../key-group-00000.parquet"]}},
    "a staged file above": {"files": {NAME: [f"_data/{TOKEN}/staged/../../../x.parquet"]}},
    "a log's entry": {"files": {NAME: ["_delta_log/00000000000000000000.json"]}},
    "a directory": {"files": {NAME: ["_data"]}},
    "no list of files": {"files": {NAME: LIVE}},
    "no files by table": {"files": [NAME]},
    "no token": {"tokens": ["../victim"], "tables": [NAME]},
    "an empty token": {"tokens": [""], "tables": [NAME]},
    "a table elsewhere": {"tokens": [TOKEN], "tables": ["{victim}"]},
    "a table of another job": {"tokens": [TOKEN], "tables": ["clean/keyed/counter/name"]},
    "a carried file elsewhere": {"carried": ["../../victim/secret.txt"]},
    "no carried file": {"carried": ["readme.txt"]},
    "a shown table elsewhere": {"shown": ["../victim"]},
    "no job": {"job": 5},
    "another field": {"more": 5},
}


@pytest.mark.parametrize("said", DELETED.values(), ids=DELETED)
def test_a_claim_deletes_nothing_elsewhere(
    said: dict[str, Any], scene: Scene, good: Contents
) -> None:
    """What it names is a file of ours in a table of its job, or it is refused by its name."""
    scene.claim("deletion", **said)
    for command in (KEEP, DROP, IMPORT):
        assert f"statelake.deletion.{TOKEN}" in str(refused(scene, command, DamagedLakeError))
    still_whole(scene, good)


FIELDS = {"path": LIVE, "partition": 0, "first": 0, "last": 0, "rows": 1, "size": 1}
ERASED: dict[str, dict[str, Any]] = {
    "a table elsewhere": {"replaced": {"../victim": {}}},
    "a table of another job": {"replaced": {"clean/keyed/counter/name": {}}},
    "a file elsewhere": {"replaced": {NAME: {LIVE: {**FIELDS, "path": OUTSIDE}}}},
    "a file without a size": {"replaced": {NAME: {LIVE: {"path": LIVE}}}},
    "a file with more": {"replaced": {NAME: {LIVE: {**FIELDS, "more": 1}}}},
    "a size that is text": {"replaced": {NAME: {LIVE: {**FIELDS, "size": "1"}}}},
    "no token": {"token": "../victim"},
    "no switch": {"switched": "yes"},
    "no jobs": {"jobs": "orders"},
    "no process": {"process": {"process": DEAD}},
}


@pytest.mark.parametrize("said", ERASED.values(), ids=ERASED)
def test_a_claim_of_an_erasure_names_files_of_ours(
    said: dict[str, Any], scene: Scene, good: Contents
) -> None:
    """Nobody goes on with what no erasure of ours has begun."""
    scene.claim("erasure", "gdpr-1", **{"switched": True, **said})
    for command in (KEEP, IMPORT, erase_one):
        assert "statelake.erasure.gdpr-1" in str(refused(scene, command, DamagedLakeError))
    still_whole(scene, good)


def erase_one(scene: Scene) -> None:
    """An erasure of the request that is claimed."""
    erase(scene.lake, ErasureRequest("gdpr-1", ["key-1"], carried="keep"), ["orders"])


TEXTS = [
    "", "{", "[]", "5", "null", "{}", "[" * 100_000, '{"job": 1e999}', '{"a": NaN}', "{" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("kind", ["attempt", "erasure", "deletion"])
def test_what_is_no_claim(kind: str, text: str, scene: Scene, good: Contents) -> None:
    """It is told, and no bug; what stands in properties of other names is nobody's."""
    forge_claim(scene.path, "statelake.colour.red", text)
    forge_claim(scene.path, f"else.{kind}.{TOKEN}", text)
    drop_snapshots(scene.lake, "orders", snapshot_ids=[])
    forge_claim(scene.path, f"statelake.{kind}.{TOKEN}", text)
    assert f"statelake.{kind}.{TOKEN}" in str(refused(scene, KEEP, DamagedLakeError))
    still_whole(scene, good)


def test_a_claim_is_so_long_at_most(
    scene: Scene, good: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer one is not even looked into."""
    scene.claim(snapshot_id="x" * 5000)
    monkeypatch.setattr(claims, "LONGEST", 5000)
    assert TOKEN in str(refused(scene, IMPORT, DamagedLakeError))
    still_whole(scene, good)


@pytest.mark.parametrize(
    ("name", "value"),
    [("job", 5), ("job", None), ("builds_on", 7), ("builds_on", [7]), ("builds_on", {"a": 7}),
     ("operation", 5), ("snapshot_id", None), ("process", None),
     *(("process", {**USUAL_CLAIMS["attempt"]["process"], field: wrong}) for field, wrong in [
         ("started", "x"), ("started", None), ("started", float("nan")), ("process", "x"),
         ("process", 10**30), ("process", -1), ("process", 0), ("process", True), ("host", ["a"]),
     ])],
)  # fmt: skip
def test_a_claim_with_another_value(name: str, value: Any, scene: Scene, good: Contents) -> None:
    """The message names the field."""
    scene.claim(**{name: value})
    told = str(refused(scene, KEEP, DamagedLakeError))
    assert f"{name}: " in told.replace("[...]", "")  # a value by a name that anyone chose
    still_whole(scene, good)


def test_an_entry_that_is_being_written(scene: Scene) -> None:
    """It is none yet, nobody waits for it, and what was left of one goes."""
    log = scene.path / "snapshots" / "_delta_log"
    part = log / f"{len(list(log.glob('*.json'))):020d}.json.0a1b2c3d.part"
    part.write_text('{"add": ')
    import_as(scene.lake, scene.source, "next")
    drop_snapshots(scene.lake, "orders", keep=1)
    assert not part.exists()


def test_a_claim_takes_no_files_of_a_snapshot(scene: Scene) -> None:
    """One with the token of a snapshot's own attempt, or that names the snapshot's files."""
    record = scene.lake.snapshot("orders", "bad")
    files = {table.path: [unit.path for unit in table.units] for table in record.tables}
    tokens = sorted({path.split("/")[1] for paths in files.values() for path in paths})
    carried = [file.blob for file in record.carried]
    for token in tokens:
        scene.claim(name=token, tables=[*files])
    scene.claim(
        "deletion", files=files, tokens=tokens, tables=[*files], shown=[*files], carried=carried
    )
    drop_snapshots(scene.lake, "orders", snapshot_ids=[])
    assert scene.lake.version().claims == Claims()
    assert exported(scene.lake, "bad", scene.root / "out") == exported(
        Catalog(scene.victim / "lake"), "bad", scene.root / "honest"
    )


# --------------------------------------------------------------------------- links

LINKS = {
    "own directory": "_statelake", "signs": "_statelake/alive", "carried": "_statelake/carried",
    "catalog": "snapshots", "catalog's log": "snapshots/_delta_log",
    "rows": "snapshots/job=orders", "job": "orders", "area": "orders/keyed",
    "operator": "orders/keyed/counter", "table": NAME, "files": f"{NAME}/_data",
    "log": f"{NAME}/_delta_log", "version": f"{NAME}/_delta_log/00000000000000000000.json",
}  # fmt: skip
NOT_EXPORTED = ("own directory", "signs", "log", "version")  # which an export has no need of


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
    scene.claim(tables=[NAME])
    scene.claim("deletion", "f" * 16, tokens=[TOKEN], tables=[NAME])
    assert drop_snapshots(scene.lake, "orders", keep=1).kept == ["bad"]
    assert (scene.path / path).is_symlink()
    assert exported(scene.lake, "bad", scene.root / "out") == exported(
        Catalog(scene.victim / "lake"), "bad", scene.root / "honest"
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

    remove = ConfinedTree.remove

    def swapped(tree: ConfinedTree, path: str) -> None:
        if f"{TOKEN}/" in path and not stray.is_symlink():
            scene.link(f"{NAME}/_data/{TOKEN}", scene.victim / "_data" / TOKEN)
        remove(tree, path)

    monkeypatch.setattr(ConfinedTree, "remove", swapped)
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
    assert len(scene.lake.listed("orders")[1]) == 1
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
