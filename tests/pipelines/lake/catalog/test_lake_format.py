"""A lake says which statelake may read it, and which may write it; those of before are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, TableFeatures

from statelake import Job, Lake
from statelake.pipelines.lake.catalog import catalog
from statelake.pipelines.lake.catalog.dropping import clean_lake
from statelake.pipelines.lake.catalog.lake_format import (
    FORMAT,
    FORMAT_KEY,
    READERS,
    LakeUpgrade,
    installed,
    own_format,
)
from statelake.pipelines.lake.tables.records import by_span
from statelake.pipelines.lake.verify.integrity import stored_faults
from statelake.state_core.errors import DamagedLakeError, LakeFormatError, UnreadableTableError
from tests.pipelines.lake.conftest import DEMO
from tests.support.command import run
from tests.support.golden_lakes import ERASED, FORMATS, HOT, JOB, golden_lake, held, said_of
from tests.support.lakes import forge_claim
from tests.support.savepoints.sql_jobs import unpack_sql_job, unpack_sql_plans


def forged(lake: Path, **values: Any) -> None:
    """Let a lake say another format."""
    own = json.loads(own_format().to_properties()[FORMAT_KEY])
    forge_claim(lake, FORMAT_KEY, json.dumps(own | values))


def writers(lake: Path) -> dict[str, Callable[[], Any]]:
    """What writes into a lake, by what it does."""
    opened = Lake(lake)
    job = opened.job(JOB, engine="local")
    return {
        "import": lambda: job.import_snapshot(str(DEMO / "monday"), "new"),
        "edit": lambda: job["monday"].edit("more").drop_state("counter/count").save(),
        "hold": lambda: job["monday"].hold("a case"),
        "drop": lambda: job.drop("monday"),
        "drop nothing": lambda: job.drop(keep=99),
        "clean": opened.clean,
        "erase": lambda: opened.erase("request-2", keys=[HOT]).execute(),
        "audit": lambda: opened.erase("request-1", keys=[ERASED]).audit(),
    }


def test_a_new_lake_says_its_format(tmp_path: Path) -> None:
    """Its number, its features, and the statelake that wrote it; nothing has to be upgraded."""
    lake = Lake(tmp_path / "lake")
    lake.job(JOB, engine="local").import_snapshot(str(DEMO / "monday"), "monday")
    assert lake.format == own_format()
    assert (lake.format.version, lake.format.written_by) == (FORMAT, installed())
    before = lake.catalog.version().number
    assert lake.upgrade() == lake.plan_upgrade() == LakeUpgrade(FORMAT, FORMAT, [], dict(READERS))
    assert lake.catalog.version().number == before
    lake.job(JOB, engine="local")["monday"].hold("a case")
    assert lake.format == own_format()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.full
def test_a_lake_of_each_format_is_read_exported_and_upgraded(number: int, tmp_path: Path) -> None:
    """It holds what it held then, before an upgrade and after it, and can be written again."""
    at = golden_lake(number, tmp_path)
    lake, expected = Lake(at), said_of(number)
    assert lake.format.version == number
    assert held(at, tmp_path / "before") == expected
    for record in lake.snapshots():
        assert stored_faults(lake.catalog, lake.catalog.snapshot(JOB, record.snapshot_id)) == []
    files = [len(units) for table in lake.catalog.snapshot(JOB, "tuesday").tables
             for units in by_span(table.units).values()]  # fmt: skip
    assert (max(files) > 1) == (number > 0)
    count = lake.catalog.version().number
    assert lake.upgrade().before == number
    assert lake.format.version == FORMAT
    assert lake.catalog.version().number == count + (number < FORMAT)
    assert held(at, tmp_path / "after") == expected
    job = lake.job(JOB, engine="local")
    job["monday"].edit("last").purge("counter/hot", f"key = {HOT}").save()
    job.drop("tuesday" if not expected["tuesday"]["holds"] else "fewer")
    assert lake.clean().files == 0
    assert held(at, tmp_path / "written")["monday"] == expected["monday"]


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.full
def test_a_lake_of_each_format_gets_snapshots_with_names(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is upgraded; those of before have none, and the catalog's files may be merged."""
    at = golden_lake(number, tmp_path)
    lake = Lake(at)
    lake.upgrade()
    savepoint = unpack_sql_job("shop", tmp_path / "shop")
    for name in ("one", "two"):
        job = lake.job("shop", engine="local")
        job.import_snapshot(savepoint, name, plan=unpack_sql_plans(tmp_path)[0])
        job[name].hold("a case")
    for name in ("one", "two"):
        names = [state.names.value for state in job[name]["GroupAggregate[4]"].keyed_states]
        assert ("count_amount", "sum_amount") in names
    job = lake.job(JOB, engine="local")
    job.import_snapshot(savepoint, "named", plan=tmp_path / "old.json")
    monkeypatch.setattr(catalog, "MANY_FILES", 2)
    lake.catalog.put_together(JOB)
    assert sum(file.job == JOB for file in lake.catalog.version().files) == 1
    assert job["named"]["GroupAggregate[4]"].query
    job.drop("named")
    assert held(at, tmp_path / "held") == said_of(number)


def test_a_lake_of_format_0_is_only_read_until_it_is_upgraded(tmp_path: Path) -> None:
    """Nothing that writes changes a file of it, and each says what to do."""
    at = golden_lake(0, tmp_path)
    before = {path: path.read_bytes() for path in at.rglob("*") if path.is_file()}
    for what, write in writers(at).items():
        with pytest.raises(LakeFormatError, match="statelake lake upgrade"):
            pytest.fail(f"{what}: {write()}")
    assert {path: path.read_bytes() for path in at.rglob("*") if path.is_file()} == before
    assert clean_lake(Lake(at).catalog, dry_run=True).files == 0


def test_a_lake_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    """With the statelake that it needs, and the feature."""
    at = golden_lake(1, tmp_path)
    forged(at, version=2, written_by="3.1.0", readers=READERS | {"codecs": "3.0.0", "b": "2.10"})
    needed = r"this lake needs statelake >= 3\.0\.0 \(feature b, codecs\)"
    for read in (lambda: Lake(at).format, Lake(at).snapshots, Lake(at).upgrade, Lake(at).jobs):
        with pytest.raises(LakeFormatError, match=needed):
            read()
    ran = run("snapshots", "--lake", at)
    assert ran.code == 3
    assert "needs statelake >= 3.0.0 (feature b, codecs)" in ran.err
    forged(at, version=2, written_by="3.1.0")
    with pytest.raises(LakeFormatError, match=r"needs statelake >= 3\.1\.0 \(format 2\)"):
        Lake(at).snapshots()


@pytest.mark.full
def test_an_unknown_feature_of_writers_is_refused_when_something_writes(tmp_path: Path) -> None:
    """All can be read."""
    at = golden_lake(1, tmp_path)
    forged(at, writers={"signed-rows": "2.0.0"})
    assert held(at, tmp_path / "exports") == said_of(1)
    for what, write in writers(at).items():
        with pytest.raises(LakeFormatError, match=r"statelake >= 2\.0\.0 \(feature signed-rows\)"):
            pytest.fail(f"{what}: {write()}")


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "{}", '{"version": "1"}', '{"version": true}', "[" * 100_000,
        json.dumps({"version": 1, "readers": {"x" * 101: "1"}, "writers": {}, "written_by": "1"}),
        json.dumps({"version": 1, "readers": {"x": 1}, "writers": {}, "written_by": "1"}),
    ],
)  # fmt: skip
def test_a_malformed_format_is_refused(text: str, tmp_path: Path) -> None:
    """As all that statelake did not write."""
    at = golden_lake(1, tmp_path)
    forge_claim(at, FORMAT_KEY, text)
    with pytest.raises(DamagedLakeError, match=r"statelake\.format"):
        Lake(at).snapshots()


def test_the_command_shows_the_plan_first(tmp_path: Path) -> None:
    """`statelake lake upgrade`; with --yes it is done, once."""
    at = golden_lake(0, tmp_path)
    ran = run("lake", "upgrade", "--lake", at)
    assert "--yes upgrades from format 0 to 1, in one commit" in ran.out
    assert Lake(at).format.version == 0
    ran = run("lake", "upgrade", "--lake", at, "--yes", "--json")
    assert ran.json == {
        "before": 0, "after": 1, "columns": ["operators", "taken_from"], "readers": dict(READERS),
        "upgraded": True,
    }  # fmt: skip
    assert "nothing to do" in run("lake", "upgrade", "--lake", at, "--yes").out
    assert run("lake", "upgrade", "--lake", at, "--yes", "--json").json["upgraded"] is False


def test_the_history_of_a_table_names_snapshots(tmp_path: Path) -> None:
    """Each commit says whose content it is, and the table who made it."""
    at = golden_lake(1, tmp_path)
    tables = Lake(at).catalog.snapshot(JOB, "monday").tables
    (path,) = (table.path for table in tables if table.path.endswith("/count"))
    table = DeltaTable(at / path)
    for record in Lake(at).snapshots():
        whole = Lake(at).catalog.snapshot(JOB, record.snapshot_id)
        (version,) = (table.version for table in whole.tables if table.path == path)
        said = Lake(at).catalog.table(path).commit_info(version)
        assert said["userMetadata"] == record.snapshot_id
    assert "made by statelake" in table.metadata().configuration["statelake.note"]


def test_a_table_of_format_0_says_who_made_it_from_its_next_version_on(tmp_path: Path) -> None:
    """An upgrade changes no table."""
    at = golden_lake(0, tmp_path)
    Lake(at).upgrade()
    job = Lake(at).job(JOB, engine="local")
    job["monday"].edit("last").purge("counter/count", "value = 4").save()
    (path,) = (t.path for t in job["last"].record.tables if t.path.endswith("/count"))
    table = DeltaTable(at / path)
    assert "made by statelake" in table.metadata().configuration["statelake.note"]
    assert table.metadata().configuration["delta.enableExpiredLogCleanup"] == "false"
    assert table.history(1)[0]["userMetadata"] == "last"
    assert table.to_pyarrow_table().num_rows == job["last"].record.all_states[0].entries


@pytest.mark.full
def test_rows_of_the_catalog_that_delta_rs_updated_are_read_and_changed(tmp_path: Path) -> None:
    """It writes views of texts and bytes, which Arrow neither compares nor filters."""
    at = golden_lake(1, tmp_path)
    job = Lake(at).job(JOB, engine="local")
    note = {"note": "'by hand'"}
    DeltaTable(at / "snapshots").update(note, predicate="snapshot_id = 'monday'")
    assert job["monday"].record.note == "by hand"
    assert held(at, tmp_path / "exports") == said_of(1)
    assert len(job["monday"].hold("a case")) == 1
    assert job["monday"].release() == ["a case"]
    DeltaTable(at / "snapshots").update(note, predicate="snapshot_id = 'monday'")
    job.drop("monday")
    assert [record.snapshot_id for record in job.snapshots()] == ["tuesday", "fewer"]


@pytest.mark.parametrize(
    ("table", "use"),
    [
        ("snapshots", lambda job: job["monday"].hold("a case")),
        (f"{JOB}/keyed/counter/hot", lambda job: job.sql("SELECT * FROM counter.hot").read_all()),
    ],
    ids=["catalog", "state"],
)
def test_a_feature_that_hides_rows_is_refused_with_the_place_of_the_table(
    table: str, use: Callable[[Job], object], tmp_path: Path
) -> None:
    """Deletion vectors: whoever reads the message finds the table."""
    at = golden_lake(1, tmp_path)
    DeltaTable(at / table).alter.add_feature(TableFeatures.DeletionVectors, True)
    with pytest.raises(UnreadableTableError, match="deletionVectors") as caught:
        use(Lake(at).job(JOB, engine="local"))
    assert caught.value.place == str(at / table)


def test_other_programs_read_a_key_group_of_several_files(tmp_path: Path) -> None:
    """delta-rs, DuckDB over Arrow and Polars: at the version that the catalog says."""
    at = golden_lake(1, tmp_path)
    tables = Lake(at).catalog.snapshot(JOB, "monday").tables
    (table,) = (table for table in tables if table.path.endswith("/hot"))
    assert len(table.units) > len(by_span(table.units))
    opened = DeltaTable(at / table.path, version=table.version)
    read = opened.to_pyarrow_table(columns=["key", "user_key", "value"])
    rows = sorted(zip(*(column.to_pylist() for column in read.columns), strict=True))
    assert rows == sorted(
        tuple(json.loads(row)[1:4]) for row in said_of(1)["monday"]["rows"]["hot"]
    )
    hot = opened.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.sql("SELECT key, user_key, value FROM hot ORDER BY ALL").fetchall()
    assert found == rows
    polars = pytest.importorskip("polars")
    frame = polars.scan_delta(str(at / table.path), version=table.version)
    assert sorted(frame.select("key", "user_key", "value").collect().rows()) == rows
