"""A lake in a real S3 API: imported from there, exported to there, and jobs run in it."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import csv

from statelake import NewKeyedState, NewOperator, open_snapshot, write_snapshot
from statelake.pipelines.bootstrap.bootstrapping import bootstrap
from statelake.pipelines.engine import Engine
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.ingest.large_slice_tasks import PieceTask
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.verify.verified_savepoints import (
    keep_savepoints,
    take_savepoint,
    verify_savepoint,
)
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.runtime.sources import Split, batches_of, latest_offset, splits_between
from statelake.state_core.errors import ChangedFileError, ConflictError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.storage_options import storage_options
from statelake.state_core.integrity import check_snapshot
from statelake.state_core.runtime.process.jobs import SourceNode
from tests.integration.s3.proxy import KEY, SECRET, S3Proxy
from tests.support.command import run
from tests.support.engines import Interrupted, Noting
from tests.support.jobs.alert_orders import EXAMPLE, RULES, expected, orders_of
from tests.support.lakes import DEMO, LOCAL, WORDS, entries, golden, tiny_pieces, unit_paths

pytestmark = [pytest.mark.s3, pytest.mark.full, pytest.mark.thinned(2)]

OPERATORS = "operator-hashmap-canonical-p2-m128-flink2.3.0"


@pytest.fixture
def directory(s3: S3Proxy) -> Directory:
    """A directory of its own."""
    return Directory(s3.location(f"tests/{uuid.uuid4().hex[:12]}"))


def put(source: Path, directory: Directory) -> str:
    """Copy files from here; where they are then."""
    for path in source.rglob("*"):
        if path.is_file():
            directory.write(path.relative_to(source).as_posix(), path.read_bytes())
    return directory.location


@pytest.mark.full
def test_there_and_back(directory: Directory, tmp_path: Path) -> None:
    """A savepoint in S3, a lake in S3, a savepoint in S3: the same entries, rescaled too."""
    source = put(WORDS, directory.child("savepoint"))
    lake = Catalog(directory.child("lake").location)
    assert not lake.exists()
    done = import_snapshot(lake, source, "words", snapshot_id="one", engine=LOCAL)
    assert done.record.source == directory.child("savepoint").uri
    again = import_snapshot(lake, source, "words", snapshot_id="one", engine=LOCAL)
    assert (done.new, again.new) == (True, False)
    for name, options in {"same": {}, "three": {"parallelism": 3}}.items():
        target = directory.child(name).location
        savepoint = export_snapshot(lake, "words", "one", target, engine=LOCAL, **options)
        assert savepoint.path == target
        assert entries(target) == entries(WORDS)
        assert check_snapshot(target).sound
    rescaled = directory.child("wide").location
    export_snapshot(lake, "words", "one", rescaled, max_parallelism=256, engine=LOCAL)
    local = Catalog(tmp_path / "lake")
    import_snapshot(local, str(WORDS), "words", snapshot_id="one", engine=LOCAL)
    export_snapshot(local, "words", "one", tmp_path / "wide", max_parallelism=256, engine=LOCAL)
    assert entries(rescaled) == entries(tmp_path / "wide")


def test_a_file_that_is_replaced_during_an_import(directory: Directory) -> None:
    """By one as long: the import names it; when it is put right, the same process imports it."""
    source, savepoint = put(WORDS, directory.child("savepoint")), directory.child("savepoint")
    lake = Catalog(directory.child("lake").location)
    size, path = max((size, path) for path, size in savepoint.files_below())
    right = savepoint.read(path)
    engine = Interrupted(after=lambda: savepoint.write(path, bytes(size)))
    with pytest.raises(ChangedFileError, match=path):
        import_snapshot(lake, source, "words", snapshot_id="one", engine=engine)
    assert lake.summaries() == []
    assert not [path for path, _ in directory.files_below("lake") if "/_data/" in path]
    savepoint.write(path, right)
    import_snapshot(lake, source, "words", snapshot_id="one", engine=LOCAL)
    export_snapshot(lake, "words", "one", directory.child("out").location, engine=LOCAL)
    assert entries(directory.child("out").location) == entries(WORDS)


@pytest.mark.parametrize("fails", [False, True])
def test_two_exports_to_one_place(directory: Directory, tmp_path: Path, fails: bool) -> None:
    """Each removes its own files alone: the savepoint is whole, be it that one of them fails."""
    lake = Catalog(tmp_path / "lake")
    import_snapshot(lake, str(WORDS), "words", snapshot_id="one", engine=LOCAL)
    target = directory.child("both").location
    begun, written = threading.Event(), threading.Event()
    with ThreadPoolExecutor() as pool:

        def export(engine: Engine) -> object:
            return export_snapshot(lake, "words", "one", target, engine=engine)

        def begin_other() -> None:
            other = Interrupted(before=lambda: (begun.set(), written.wait(60)))
            others.append(pool.submit(export, other))
            assert begun.wait(60)

        def end_other() -> None:
            written.set()
            others[0].result()
            if fails:
                raise ConflictError("lost")

        others: list[Future[object]] = []
        with pytest.raises(ConflictError, match="lost") if fails else nullcontext():
            export(Interrupted(begin_other, end_other))
    assert entries(target) == entries(WORDS)


def test_a_large_slice_in_pieces(
    directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes a file, which the snapshot names in their order; nothing else is left."""
    monkeypatch.setattr(units, "SLICE_BYTES", 1)
    rows = pa.table({"key": [7] * 2000, "user_key": range(2000), "value": range(2000)})
    state = NewKeyedState("hot", rows, kind="map", user_key="Long", value="Long")
    source, there, engine = str(tmp_path / "savepoint"), directory.child("lake"), Noting()
    write_snapshot(source, [NewOperator("op", "Long", (state,))])
    lake = Catalog(there.location)
    with tiny_pieces():
        record = import_snapshot(lake, source, "job", snapshot_id="one", engine=engine).record
    assert 1 < engine.count(PieceTask) == len(unit_paths(record))
    assert {path for path, _ in there.files_below() if "/_data/" in path} == unit_paths(record)
    export_snapshot(lake, "job", "one", tmp_path / "out", engine=LOCAL)
    assert entries(tmp_path / "out") == entries(source)


def test_operator_state(directory: Directory) -> None:
    """Split, union and broadcast lists, at their parallelism and at another."""
    case = golden(OPERATORS)
    source = put(case.snapshot, directory.child("savepoint"))
    lake = Catalog(directory.child("lake").location)
    import_snapshot(lake, source, "job", snapshot_id="one", engine=LOCAL)
    for parallelism in (2, 3):
        target = directory.child(f"at-{parallelism}").location
        export_snapshot(lake, "job", "one", target, parallelism=parallelism, engine=LOCAL)
        assert elements(target) == elements(str(case.snapshot))


def elements(savepoint: str) -> dict[str, set[str]]:
    """The distinct elements of each operator state."""
    return {
        state.name: {json.dumps(row, default=repr) for row in rows_of(state)}
        for operator in open_snapshot(savepoint).operators
        for state in operator.operator_states
    }


def rows_of(state: Any) -> list[dict[str, Any]]:
    """An operator state's elements, whoever has them."""
    return [
        {name: row[name] for name in ("key", "value") if name in row}
        for row in state.to_arrow().to_pylist()
    ]


def test_a_catalog_has_one_snapshot_of_a_name(directory: Directory) -> None:
    """Two who import another savepoint under one id: the second is refused."""
    lake = Catalog(directory.location)
    import_snapshot(lake, str(WORDS), "words", snapshot_id="one", engine=LOCAL)
    other = min(DEMO.iterdir())
    with pytest.raises(ConflictError):
        import_snapshot(lake, str(other), "words", snapshot_id="one", engine=LOCAL)


@pytest.mark.full
def test_credentials_in_locations(
    s3: S3Proxy, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the savepoint, of the lake, of the target; none gets into the lake's records."""
    put(WORDS, directory.child("savepoint"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    path = directory.root.partition("/")[2]
    given = Directory(s3.location(path, f"{KEY}:{SECRET}@"))
    lake = Catalog(given.child("lake").location)
    source = given.child("savepoint").location
    record = import_snapshot(lake, source, "words", snapshot_id="one", engine=LOCAL).record
    assert SECRET not in repr(record)
    target = given.child("back").location
    export_snapshot(lake, "words", "one", target, engine=LOCAL)
    assert entries(target) == entries(WORDS)


@pytest.mark.full
def test_savepoints_by_schedule(directory: Directory) -> None:
    """Exported, verified, and the older ones removed."""
    lake = Catalog(directory.child("lake").location)
    import_snapshot(lake, str(WORDS), "words", snapshot_id="one", engine=LOCAL)
    exports = directory.child("exports").location
    for _ in range(2):
        record, done = take_savepoint(lake, "words", exports, engine=LOCAL)
        assert verify_savepoint(lake, record, done.path, LOCAL).faults == []
    kept, gone, _ = keep_savepoints(exports, "words", 1)
    assert (len(kept), len(gone)) == (1, 1)
    assert done.path.partition("?")[0].endswith(kept[0])
    assert entries(done.path) == entries(WORDS)


# ------------------------------------------------------------------------------- bootstraps

ROWS = pa.table({"id": list(range(500)), "n": [index * 7 for index in range(500)]})


def source_of(form: str, directory: Directory) -> str | dict[str, str]:
    """The rows in S3: a source as a spec names it."""
    if form == "lake":
        lake = directory.child("lake").location
        state = NewKeyedState("s", ROWS.rename_columns(["key", "value"]), value="Long")
        location = directory.child("made").location
        write_snapshot(location, [NewOperator("op", "Long", (state,))])
        import_snapshot(
            Catalog(lake), location, "j", Import(uids=["op"]), snapshot_id="one", engine=LOCAL
        )
        return {"lake": lake, "job": "j", "snapshot": "one", "state": "op/s"}
    if form == "delta":
        table = directory.child("table")
        write_deltalake(table.uri, ROWS, storage_options=storage_options(table))
        return table.location
    write = pq.write_table if form == "parquet" else csv.write_csv
    with directory.open_output(f"rows.{form}") as file:
        write(ROWS, file)
    return directory.child(f"rows.{form}").location


@pytest.mark.parametrize(
    "form", ["csv", "parquet", "delta", pytest.param("lake", marks=pytest.mark.full)]
)
def test_a_bootstrap(form: str, directory: Directory, tmp_path: Path) -> None:
    """From sources in S3, to a savepoint in S3: what an Arrow table gives."""
    columns = ("key", "value") if form == "lake" else ("id", "n")
    target = directory.child("savepoint").location
    sources = {target: (source_of(form, directory), *columns), tmp_path / "sp": (ROWS, "id", "n")}
    for to, (source, key, value) in sources.items():
        state = {"type": "Long", "source": source, "key": key, "value": value}
        spec = {"operators": {"op": {"key_type": "Long", "states": {"s": state}}}}
        bootstrap(None, spec, to, parallelism=2, engine="local")
    assert entries(target) == entries(tmp_path / "sp")
    assert len(next(iter(entries(target).values()))) == 500


@pytest.mark.full
def test_credentials_by_place(
    s3: S3Proxy, directory: Directory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file of stores says them, for what lies there alone; nothing tells what they are."""
    put(WORDS, directory.child("savepoint"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    place = f"s3://{directory.root}"
    text = f'AWS_ENDPOINT_URL = "http://127.0.0.1:{s3.port}"\nAWS_REGION = "us-east-1"\n'
    text += f'AWS_ACCESS_KEY_ID = "{KEY}"\nAWS_ALLOW_HTTP = "true"\nAWS_SECRET_ACCESS_KEY ='
    file = tmp_path / "stores.toml"
    file.write_text(f'["{place}"]\n{text} "{SECRET}"\n["{place}/other"]\n{text} "x"\n', "utf-8")
    monkeypatch.setenv("STATELAKE_STORES", str(file))
    job = ("--lake", f"{place}/lake", "--job", "words")
    told = [
        run("import", f"{place}/savepoint", *job, "--snapshot", "one", "--engine", "local"),
        run("sql", *job, "SELECT count(*) FROM counter.count"),
        run("export", *job, "--snapshot", "one", "--to", f"{place}/back", "--engine", "local"),
    ]
    assert [ran.code for ran in told] == [0, 0, 0]
    assert entries(f"{place}/back") == entries(WORDS)
    _, export = take_savepoint(Catalog(f"{place}/lake"), "words", f"{place}/exports", engine=LOCAL)
    assert export.path.startswith(f"{place}/exports/words/")
    assert entries(export.path) == entries(WORDS)
    refused = [
        run("export", *job, "--snapshot", "one", "--to", f"{place}/other/x"),
        run("inspect", f"{place}/other/savepoint"),
        run("snapshots", "--lake", f"{place}/other/lake"),
    ]
    assert [ran.code for ran in refused] == [3, 3, 3], refused
    assert SECRET not in "".join(ran.out + ran.err for ran in (*told, *refused))
    lake = Directory(f"{place}/lake")
    assert not any(SECRET.encode() in lake.read(path) for path, _ in lake.files_below())


# ------------------------------------------------------------------------------- commands


def test_commands(directory: Directory) -> None:
    """Inspect, import, list, compare, export, check and drop, all by URIs."""
    source = put(WORDS, directory.child("savepoint"))
    lake = ("--lake", directory.child("lake").location)
    job = (*lake, "--job", "words")
    assert run("inspect", source, "--json").json["location"].startswith(f"{directory.scheme}://")
    for name in ("one", "two"):
        assert run("import", source, *job, "--snapshot", name, "--engine", "local").code == 0
    assert [row["snapshot_id"] for row in run("snapshots", *lake, "--json").json] == ["one", "two"]
    assert run("diff", *job, "one", "two", "--engine", "local").code == 0
    target = directory.child("back").location
    words = ("--snapshot", "two", "--to", target, "--engine", "local")
    assert run("export", *job, *words).code == 0
    assert entries(target) == entries(WORDS)
    assert run("check", "integrity", target).code == 0
    assert run("drop", *job, "--snapshot", "one", "--yes").code == 0
    assert [row["snapshot_id"] for row in run("snapshots", *lake, "--json").json] == ["two"]


# ------------------------------------------------------------------------------- runs


def test_a_source_is_one_file(directory: Directory) -> None:
    """Given by its URI with options; it is read on from where it ended."""
    directory.write("rows.jsonl", b'{"a": 1}\n{"a": 2}\n{"a"')
    source = SourceNode("rows", directory.child("rows.jsonl").location, "json")
    first = latest_offset(source)
    assert first == {"files": {"rows.jsonl": 18}}
    assert read(splits_between(source, {}, first)) == [1, 2]
    directory.write("rows.jsonl", b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert read(splits_between(source, first, latest_offset(source))) == [3]


def read(splits: list[Split]) -> list[int]:
    """The column of all rows."""
    return [
        row["a"] for split in splits for batch in batches_of(split) for row in batch.to_pylist()
    ]


def feed(data: Directory, part: int) -> None:
    """Add a part to the sources of the example."""
    for name, rows in (("orders", orders_of(part)), ("rules", RULES if part == 0 else [])):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        if rows:
            data.write(f"{name}/{part:03d}.jsonl", text.encode())


def alerts_of(data: Directory) -> set[tuple[int, str, int]]:
    """What is in the sink."""
    sink = data.child("alerts")
    table = DeltaTable(sink.uri, storage_options=storage_options(sink))
    rows = table.to_pyarrow_table().to_pylist()
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    return {(row["customer"], row["rule"], row["spent"]) for row in rows}


@pytest.mark.full
def test_runs_of_the_example(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources, sinks, lake and blob store in S3; restored from the lake, and from blobs alone."""
    data = directory.child("data")
    monkeypatch.setenv("ALERTS_DATA", data.location)
    lake = directory.child("lake")
    given = (
        "run", f"{EXAMPLE}:JOB", "--lake", lake.location, "--engine", "local", "--json",
        "--commit-to", f"blob={directory.child('blobs').location}",
    )  # fmt: skip
    options: tuple[tuple[str, ...], ...] = (
        (), ("--backend", "rocksdb"), ("--restore-from", "blob", "--parallelism", "3"),
    )  # fmt: skip
    for part, more in enumerate(options):
        feed(data, part)
        ran = run(*given, *more)
        assert ran.code == 0, ran.err
        assert ran.json["snapshot_id"] == f"run-{part + 1:08d}"
        assert alerts_of(data) == expected(range(part + 1))[0]
    target = directory.child("export").location
    export_snapshot(Catalog(lake.location), "alerts", "run-00000003", target, engine=LOCAL)
    table = open_snapshot(target).operator("alert").state("spent").to_arrow()
    values = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert values == expected(range(3))[1]
    assert run(*given).json["run"] == 0
