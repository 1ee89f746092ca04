"""Hostile parts of lakes: what is carried, Delta's own logs, and catalogs that are none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from statelake.state_core.formats.metadata.checkpoint_metadata import read_metadata, write_metadata
from statelake.state_core.formats.metadata.stream_map import map_streams
from statelake.state_core.model.handles import FileHandle, RelativeHandle, StreamHandle
from tests.adversary.cases.lakes import (
    BOOTSTRAP,
    COMMIT,
    DROP,
    EDIT,
    EXPORT,
    IMPORT,
    KEYS,
    LIST,
    LOOK,
    MERGE,
    RUN,
    TABLE,
)
from tests.adversary.cases.queries import OF_BAD, sql
from tests.adversary.makers.lake import (
    filled,
    in_turn,
    lake_of,
    link,
    log_action,
    put,
    row,
    table_at,
    write,
)
from tests.adversary.makers.scene import Maker, Scene
from tests.adversary.playing import Case, over

__all__ = ["LAKE_PART_CASES"]

ABOVE = "../" * 5
Row = dict[str, Any]

# where a carried file may be said to go, and to come from
CARRIED = {
    "parent": "../victim/secret.txt",
    "absolute": "{victim}/secret.txt",
    "new-absolute": "{victim}/planted",
    "new-parent": "../victim/planted",
    "blob-of-victim": "../../../victim/_statelake/carried/{victim_blob}",
    "uri": "file://{victim}/planted",
    "through": "a/../../victim/planted",
    "encoded": "%2e%2e/victim/planted",
    "empty": "",
    "dot": ".",
    "dot-dot": "..",
    "metadata": "_metadata",
    "below": "sub/planted",
    "null-byte": "a\0",
    "no-digest": "authorized_keys",
    "escape": "\x1b[2J",
    "other-digest": "0" * 64,
}


def carried(path: str, stream: Callable[[str, int], StreamHandle] = RelativeHandle) -> Maker:
    """A row whose `_metadata` names its carried file otherwise; the catalog agrees."""

    def change(row: Row, scene: Scene) -> None:
        name = filled(path, scene)
        metadata = read_metadata(row["metadata"])
        moved = map_streams(metadata, lambda handle: stream(name, handle.size))
        row["metadata"] = write_metadata(moved)
        row["carried"] = [{**carried, "blob": name} for carried in row["carried"]]

    return row(change)


def carried_blob(blob: str) -> Maker:
    """A row whose list of carried files has another name, its `_metadata` the right one."""
    return put("carried/0/blob", blob)


def swapped_blob(scene: Scene) -> None:
    """The carried file is another one: as long, and not what its name says."""
    for path in (lake_of(scene) / "_statelake/carried").iterdir():
        path.write_bytes(b"x" * path.stat().st_size)


def added(path: str, **more: Any) -> Callable[[Row, Scene], None]:
    """Actions whose files are elsewhere."""

    def change(action: Row, scene: Scene) -> None:
        if "add" in action:
            action["add"] |= {"path": filled(path, scene), **filled(more, scene)}

    return change


def removed(path: str) -> Callable[[Row, Scene], None]:
    """A commit which says that a file elsewhere was removed long ago."""

    def change(action: Row, scene: Scene) -> None:
        if "commitInfo" in action:
            action.clear()
            action["remove"] = {
                "path": filled(path, scene), "deletionTimestamp": 1, "dataChange": True,
                "extendedFileMetadata": False, "partitionValues": {},
            }  # fmt: skip

    return change


def torn_log(text: str) -> Maker:
    """A table whose newest version is no version."""

    def make(scene: Scene) -> None:
        newest = max((lake_of(scene) / TABLE / "_delta_log").glob("*.json"))
        newest.write_text(text)

    return make


def deletion_vector(path: str) -> Callable[[Row, Scene], None]:
    """A file whose rows are deleted by a vector elsewhere."""
    vector = {
        "storageType": "p", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 40,
        "cardinality": 1,
    }  # fmt: skip
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }  # fmt: skip

    def change(action: Row, scene: Scene) -> None:
        if "add" in action:
            action["add"]["deletionVector"] = filled(vector, scene)
        elif "commitInfo" in action:
            action.clear()
            action["protocol"] = protocol

    return change


def without(column: str) -> Maker:
    """A row whose file has no such column."""

    def change(row: Row, _: Scene) -> pa.Table:
        return pa.Table.from_pylist([{k: v for k, v in row.items() if k != column}])

    return row(change)


def typed(column: str, value: Any) -> Maker:
    """A row whose file has a column of another type."""

    def change(row: Row, _: Scene) -> pa.Table:
        return pa.Table.from_pylist([{**row, column: value}])

    return row(change)


def twice(scene: Scene) -> None:
    """Two rows of one job and id, one of which contradicts itself: the other stays good."""

    def change(row: Row, _: Scene) -> pa.Table:
        return pa.Table.from_pylist([row, {**row, "operators": [], "digest": "0" * 64}])

    row(change)(scene)


def spare(scene: Scene) -> None:
    """A column of a version to come."""

    def change(row: Row, _: Scene) -> pa.Table:
        return pa.Table.from_pylist([{**row, "hue": "red"}])

    row(change)(scene)


def catalog_file(data: bytes) -> Maker:
    """A file of the catalog's that is no Parquet."""

    def make(scene: Scene) -> None:
        for path in (lake_of(scene) / "snapshots" / "job=orders").iterdir():
            path.write_bytes(data)

    return make


def from_lake(maker: Maker) -> Maker:
    """The same, and a spec of a savepoint that is made of it."""

    def make(scene: Scene) -> None:
        maker(scene)
        source = {"lake": str(scene.lake), "job": "orders", "snapshot": "bad",
                  "state": "counter/name"}  # fmt: skip
        state = {"type": "String", "source": source}
        spec = {"operators": {"counter": {"key_type": "String", "states": {"name": state}}}}
        (scene.work / "from_lake.json").write_text(json.dumps(spec))

    return make


def running(maker: Maker) -> Maker:
    """The same, and orders for a first run that begins with it, and has put out nothing yet."""

    def make(scene: Scene) -> None:
        scene.seed.copy("orders-data", scene.data)
        shutil.rmtree(scene.data / "kept")
        maker(scene)

    return make


def run_before(scene: Scene) -> None:
    """An honest lake, and orders of which a run of another lake's job has put out what it made."""
    lake_of(scene)
    scene.seed.copy("orders-data", scene.data)


def job_named(name: str) -> Maker:
    """A row of a job of that name: the name of a directory, and of a partition."""

    def make(scene: Scene) -> None:
        catalog = lake_of(scene) / "snapshots"
        name_there = filled(name, scene)

        def change(action: Row, _: Scene) -> None:
            if "add" in action:
                action["add"]["partitionValues"]["job"] = name_there

        newest = sorted((catalog / "_delta_log").glob("*.json"))[2]
        lines = [json.loads(line) for line in newest.read_text().splitlines()]
        for line in lines:
            change(line, scene)
        newest.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return make


OUTSIDE = {
    "absolute": f"{{victim}}/lake/{TABLE}/{{victim_unit}}",
    "uri": f"file://{{victim}}/lake/{TABLE}/{{victim_unit}}",
    "parent": f"{ABOVE}victim/lake/{TABLE}/{{victim_unit}}",
    "encoded": f"%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/victim/lake/{TABLE}/{{victim_unit}}",
    "through": f"_data/../{ABOVE}victim/lake/{TABLE}/{{victim_unit}}",
    "object-store": "s3://bucket/x.parquet",
}


def bombs(make: Callable[[pa.Schema], pa.Table]) -> Maker:
    """Files of a table that unpack to far more than their bytes."""

    def change(row: Row, scene: Scene) -> None:
        (table,) = (table for table in row["operators"][0]["tables"] if table["path"] == TABLE)
        for unit in table["units"]:
            path = scene.lake / TABLE / unit["path"]
            bomb = make(pq.read_schema(path))
            path.unlink()
            pq.write_table(bomb, path, compression="zstd", use_dictionary=False)
            unit["size"] = path.stat().st_size

    return row(change)


def equal_rows(schema: pa.Schema) -> pa.Table:
    """Two million rows in a few kilobytes."""
    usual = {pa.int32(): 0, pa.string(): "a", pa.binary(): b"a"}
    columns = [pa.repeat(pa.scalar(usual[of.type], of.type), 2 << 20) for of in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def large_value(schema: pa.Schema) -> pa.Table:
    """One row whose key has 200 MiB."""
    usual = {pa.int32(): 0, pa.string(): "a" * (200 << 20), pa.binary(): b"a"}
    return pa.Table.from_pylist([{of.name: usual[of.type] for of in schema}], schema)


def bomb_of_rows(row: Row, _: Scene) -> pa.Table:
    """A row of the catalog two million times."""
    return pa.table({name: pa.nulls(2 << 20, pa.string()) for name in row})


READS = KEYS | EXPORT | {
    "diff": LOOK["diff"], "sql": sql("SELECT count(*) FROM counter.name", "--job orders --as-of bad"),
    "sql-edit": OF_BAD["sql-edit"],
}  # fmt: skip
PIPES = {
    "entry": f"{TABLE}/_delta_log/00000000000000000003.json",
    "hint": f"{TABLE}/_delta_log/_last_checkpoint",
    "catalog": "snapshots/_delta_log/00000000000000000009.json",
}
FURTHER_FILES = """{"checkpointMetadata": {"version": 0}}
{"sidecar": {"path": "PLACE", "sizeInBytes": 1, "modificationTime": 1}}
"""

LAKE_PART_CASES: list[Case] = [
    *(
        case
        for name, make in (("rows", equal_rows), ("value", large_value))
        for case in over(
            READS, f"bomb/{name}", bombs(make), says="of a lake", changes=True, honest=False,
        )
    ),
    *over(EXPORT, "bomb/catalog", row(bomb_of_rows), says="rows of one file of a lake"),
    *(
        case
        for name, place in (("absolute", "{victim}/secret.txt"), ("uri", "file://{victim}/secret.txt"))
        for case in over(
            COMMIT | {"sql": READS["sql"]}, f"sidecar/{name}",
            lambda scene, place=place: write(
                f"{TABLE}/_delta_log/{2:020}.checkpoint.0123.json",
                FURTHER_FILES.replace("PLACE", str(filled(place, scene))).encode(),
            )(scene),
            says="a checkpoint of another kind", honest=False,
        )
    ),
    *(
        case
        for name, path in PIPES.items()
        for case in over(
            COMMIT | {"sql": READS["sql"]}, f"pipe/{name}",
            lambda scene, path=path: os.mkfifo(lake_of(scene) / path),
            says="is no regular file", honest=False,
        )
    ),
    *(
        case
        for name, path in CARRIED.items()
        for case in over(EXPORT, f"carried/{name}", carried(path))
    ),
    *over(EXPORT, "carried/absolute-handle", carried("{victim}/secret.txt", FileHandle)),
    *over(EXPORT, "carried/swapped", swapped_blob, honest=False),
    *(
        case
        for name, blob in CARRIED.items()
        if name in ("parent", "absolute", "empty", "dot-dot", "no-digest")
        for case in over(
            EXPORT | DROP | MERGE | {"integrity": LOOK["integrity"]},
            f"carried/list/{name}", carried_blob(blob), {"drop": 0},
        )
    ),
    *(
        case
        for name in ("parent", "absolute", "blob-of-victim")
        for case in over(MERGE | EDIT, f"carried/{name}", carried(CARRIED[name]))
    ),
    *(
        case
        for name, path in OUTSIDE.items()
        for case in over(
            COMMIT | IMPORT | {"drop": DROP["drop-keep"], "integrity": LOOK["integrity"]},
            f"delta/add/{name}", log_action(TABLE, added(path)), {"integrity": 1}, changes=True,
        )
    ),
    *(
        case
        for name, path in OUTSIDE.items()
        if name in ("absolute", "uri", "parent", "encoded")
        for case in over({"drop": DROP["drop-keep"]}, f"delta/remove/{name}",
                         log_action(TABLE, removed(path)), code=0)
    ),
    *(
        case
        for name, path in (("absolute", "{victim}/secret.txt"), ("uri", "file://{victim}/secret.txt"))
        for case in over(COMMIT | {"integrity": LOOK["integrity"]}, f"delta/deletion-vector/{name}",
                         log_action(TABLE, deletion_vector(path)), {"integrity": 1})
    ),
    *(
        case
        for name, text in (
            ("text", '{"add": "x"}'),
            ("protocol", '{"protocol":{"minReaderVersion":99,"minWriterVersion":99}}'),
        )
        for case in over(COMMIT | IMPORT | {"drop": DROP["drop-keep"]}, f"delta/log/{name}",
                         torn_log(text), changes=True)
    ),
    *(  # an entry that was cut off is nobody's commit: the next one takes its place; others are damage
        case
        for name, text, code in (("no-json", "{", 0), ("list", "[]", 3), ("null", "null", 3), ("nested", "[" * 100_000, 3))
        for case in over(COMMIT | IMPORT | {"drop": DROP["drop-keep"]}, f"delta/log/{name}",
                         torn_log(text), code=code, changes=True)
    ),
    *over(EXPORT | LIST | IMPORT, "catalog/added-elsewhere",
          log_action("snapshots", added("{victim}/lake/snapshots/x.parquet")), {"export": 0, "import": 0}, honest=False),
    *over(EXPORT | LIST | IMPORT, "catalog/added-above",
          log_action("snapshots", added("../../victim/lake/snapshots/x.parquet")), {"export": 0, "import": 0}, honest=False),
    *over(EXPORT | LIST, "catalog/no-parquet", catalog_file(b"PAR1"), honest=False),
    *over(EXPORT | LIST, "catalog/empty-files", catalog_file(b""), honest=False),
    *over(EXPORT, "catalog/row-twice", twice, code=0),
    *over(EXPORT, "catalog/unknown-column", spare, code=0),
    *(Case(f"without/{column}", without(column), EXPORT["export"])
      for column in ("operators", "metadata", "snapshot_id", "taken_at", "carried")),
    *(Case(f"typed/{column}", typed(column, value), EXPORT["export"])
      for column, value in (
          ("operators", "x"), ("metadata", 5), ("entries", "many"), ("taken_at", "yesterday"),
          ("carried", [1]), ("compression", 5),
      )),
    *(
        case
        for name, job in (
            ("parent", "../victim"), ("absolute", "{victim}"), ("empty", ""), ("escape", "\x1b[31m"),
            ("right-to-left", "\u202ejob"), ("line-break", "a\nb"),
        )
        for case in over(LIST, f"catalog/job/{name}", job_named(job), code=0 if job else 3, honest=False)
    ),
    *(Case(f"catalog/says/{name}", put(place, value), LIST["snapshots"], 0)
      for name, place, value in (
          ("id-escape", "snapshot_id", "\x1b]0;evil\x07"), ("id-right-to-left", "snapshot_id", "\u202eid"),
          ("note-escape", "note", "\x1b[2Jnote"), ("note-break", "note", "a\nb\rc"),
          ("note-next-line", "note", "a\u0085b\u2028c"), ("parent-escape", "parent", "\x1b[31m"),
          ("format-escape", "format", "\x9b31m"), ("note-markup", "note", "[red]x[/red]"),
      )),
    *(
        case
        for name, maker in (
            ("table-parent", table_at(f"../victim/lake/{TABLE}")),
            ("table-absolute", table_at(f"{{victim}}/lake/{TABLE}")),
            ("file-parent", put("operators/0/tables/0/units/0/path",
                                f"{ABOVE}victim/lake/{TABLE}/{{victim_unit}}")),
            ("carried-absolute", carried("{victim}/planted")),
        )
        for case in (
            *over(RUN, f"restore/{name}", running(maker), changes=True),
            *(over(BOOTSTRAP, f"source/{name}", from_lake(maker)) if name != "carried-absolute" else []),
        )
    ),
    *over(BOOTSTRAP, "source/honest", from_lake(lake_of), code=0),
    *over(RUN, "restore/honest", running(lake_of), code=0),
    *over(RUN, "restore/run-before", run_before, code=3),
    *over(BOOTSTRAP, "source/delta-elsewhere",
          from_lake(log_action(TABLE, added(OUTSIDE["absolute"])))),
    *over(BOOTSTRAP, "source/link", from_lake(link(f"{TABLE}/_data", f"{{victim}}/lake/{TABLE}/_data")),
          honest=False),
    Case("stray/files", in_turn(write(f"{TABLE}/_data/README", "not ours"),
                                write("orders/keyed/counter/plain", "no table")),
         DROP["drop-keep"], 0),
]  # fmt: skip
