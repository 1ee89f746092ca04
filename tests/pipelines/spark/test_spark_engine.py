"""Slices on Spark do what slices in this process do, and fail as they fail."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql import SparkSession

from statelake.pipelines.cli.main import main
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.lake.tables import file_spans as units
from statelake.pipelines.lake.tables.records import SnapshotRecord
from statelake.pipelines.requests.imports import Import
from statelake.pipelines.spark.engine import SparkEngine
from statelake.state_core.errors import CorruptSnapshotError, StateError
from tests.support.lakes import assert_whole
from tests.support.savepoints.golden_cases import GoldenCase, golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.thinned(2)]

CASES = [
    case
    for case in golden_cases("wordcount", "kinds", "windows", form="canonical")
    if case.name
    in {
        "kinds-rocksdb-canonical-snappy-p3-m128-flink2.3.0",
        "windows-hashmap-canonical-p2-m128-flink2.3.0",
        "wordcount-hashmap-canonical-p2-m1024-flink2.3.0",
        "wordcount-hashmap-canonical-inline-p2-m128-flink2.3.0",
    }
]
MINE = {"path", "size", "version", "imported_at", "written_bytes", "slices"}
FILE_NAME = re.compile(rb"(?:[0-9a-f]{8}-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    """Spark as an engine."""
    return SparkEngine(spark)


def described(record: SnapshotRecord) -> Any:
    """What the catalog knows, but for random names, times that pass, and the slices."""

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {k: without(v) for k, v in value.items() if k not in MINE}
            return kept | ({"path": value["path"]} if "units" in value else {})
        return [without(item) for item in value] if isinstance(value, list) else value

    return without(asdict(record))


def tables(lake: Catalog, record: SnapshotRecord) -> dict[str, list[str]]:
    """The rows of every table of a snapshot."""
    return {
        table.path: sorted(
            map(
                repr,
                DeltaTable(lake.table(table.path).uri, table.version)
                .to_pyarrow_table()
                .to_pylist(),
            )
        )
        for operator in record.operators
        for table in operator.tables
    }


def files(savepoint: str | Path) -> list[bytes]:
    """`_metadata` and what it names, in its order, without the random names."""
    metadata = (Path(savepoint) / "_metadata").read_bytes()
    names = [name.decode() for name in FILE_NAME.findall(metadata)]
    named = [Path(savepoint) / name for name in names if (Path(savepoint) / name).is_file()]
    return [FILE_NAME.sub(b"-", metadata), *(path.read_bytes() for path in named)]


class TestMap:
    """`map` is the function of every task, in order."""

    def test_results_come_in_the_order_of_the_tasks(self, engine: SparkEngine) -> None:
        """One result a task, and progress ends with all of them."""
        told: list[tuple[int, int]] = []
        found = engine.map(lambda number: 2 * number, range(20), lambda *one: told.append(one))
        assert found == [2 * number for number in range(20)]
        assert told[-1] == (20, 20)
        assert all(done <= total == 20 for done, total in told)

    def test_each_is_a_task_of_sparks(self, engine: SparkEngine) -> None:
        """However many there are: none waits behind another in one partition."""

        def partition(_: int) -> int:
            context = TaskContext.get()
            return -1 if context is None else context.partitionId()

        for count in (1, 7, 50):
            assert sorted(engine.map(partition, range(count))) == list(range(count))

    def test_no_tasks_need_no_job(self, engine: SparkEngine) -> None:
        """Nothing in, nothing out."""
        assert engine.map(lambda number: number, []) == []

    def test_an_error_of_ours_arrives_whole(self, engine: SparkEngine) -> None:
        """Its class, place, problem and remedy: the first of the tasks that fail."""

        def refuse_odd(number: int) -> int:
            if number % 2:
                raise CorruptSnapshotError("odd", place=f"file {number}", remedy="take an even one")
            return number

        with pytest.raises(CorruptSnapshotError) as failed:
            engine.map(refuse_odd, [2, 5, 4, 7])
        assert str(failed.value) == "file 5: odd; take an even one"
        assert (failed.value.place, failed.value.remedy) == ("file 5", "take an even one")

    def test_a_mistake_is_no_state_error(self, engine: SparkEngine) -> None:
        """What nobody foresaw is told as Spark tells it, with its trace."""
        with pytest.raises(Exception, match="ZeroDivisionError") as failed:
            engine.map(lambda number: 1 / number, [1, 0])
        assert not isinstance(failed.value, StateError)


class TestImport:
    """An import on Spark is the import."""

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_it_equals_the_local_one(
        self,
        engine: SparkEngine,
        case: GoldenCase,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The same rows, key groups, counts and fingerprints, however many slices there are."""
        local, spark = Catalog(str(tmp_path / "local")), Catalog(str(tmp_path / "spark"))
        expected = import_snapshot(
            local, str(case.snapshot), "job", Import(partitions=128), engine="local"
        )
        monkeypatch.setattr(units, "SLICE_BYTES", 4000)
        monkeypatch.setattr(units, "SMALL_SLICE_BYTES", 4000)
        found = import_snapshot(
            spark, str(case.snapshot), "job", Import(partitions=128), engine=engine
        )
        assert (expected.engine, found.engine) == ("local", "spark")
        assert found.written_files == expected.written_files > 0
        assert described(found.record) == described(expected.record)
        assert tables(spark, found.record) == tables(local, expected.record)

    def test_what_did_not_change_is_kept(
        self, engine: SparkEngine, counts: Path, tmp_path: Path
    ) -> None:
        """A second snapshot with the same content writes no file, whichever engine wrote it."""
        lake = Catalog(str(tmp_path / "lake"))
        import_snapshot(lake, str(counts), "job", snapshot_id="one", engine="local")
        again = import_snapshot(lake, str(counts), "job", snapshot_id="two", engine=engine)
        assert (again.new, again.written_files, again.record.written_bytes) == (True, 0, 0)
        assert again.kept_files > 0

    @pytest.mark.parametrize("name", ["local", "spark"])
    def test_a_directory_that_was_replaced_is_read_anew(
        self, spark: SparkSession, name: str, tmp_path: Path
    ) -> None:
        """Workers outlive an import; what they opened must not be taken for what is there now."""
        first, second = (case for case in CASES if case.name.startswith("wordcount"))
        source, lake = tmp_path / "latest", Catalog(str(tmp_path / "lake"))
        for number, case in enumerate((first, second, first)):
            shutil.rmtree(source, ignore_errors=True)
            shutil.copytree(case.snapshot, source)
            done = import_snapshot(lake, str(source), "job", snapshot_id=str(number), engine=name)
            assert done.record.entries == 300
            assert done.record.operators[0].max_parallelism == case.facts["max_parallelism"]


class TestExport:
    """An export on Spark is the export."""

    @pytest.mark.parametrize(
        ("parallelism", "max_parallelism", "compression"),
        [(None, None, None), (3, None, "none"), (5, 1000, "snappy")],
    )
    @pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
    def test_it_equals_the_local_one(
        self,
        engine: SparkEngine,
        case: GoldenCase,
        tmp_path: Path,
        parallelism: int | None,
        max_parallelism: int | None,
        compression: str | None,
    ) -> None:
        """Byte for byte, but for the names of files: as it was, rescaled, and re-hashed."""
        lake = Catalog(str(tmp_path / "lake"))
        import_snapshot(lake, str(case.snapshot), "job", snapshot_id="one", engine="local")
        done = [
            export_snapshot(
                lake,
                "job",
                "one",
                tmp_path / str(index),
                parallelism=parallelism,
                max_parallelism=max_parallelism,
                compression=compression,
                engine=chosen,
            )
            for index, chosen in enumerate(("local", engine))
        ]
        expected, found = (files(result.path) for result in done)
        assert [result.engine for result in done] == ["local", "spark"]
        assert len(found) > done[1].files >= 2
        assert found == expected
        assert (done[0].files, done[0].size) == (done[1].files, done[1].size)


class TestFailure:
    """A slice that fails on an executor says what it would say here."""

    @pytest.fixture
    def damaged(self, counts: Path, tmp_path: Path) -> Path:
        """A savepoint with a state file whose second half is zeros."""
        copy = shutil.copytree(counts, tmp_path / "savepoint")
        file = max(copy.iterdir(), key=lambda path: path.stat().st_size)
        half = file.stat().st_size // 2
        file.write_bytes(file.read_bytes()[:half] + bytes(half))
        return copy

    def test_the_sentence_is_the_same(
        self, engine: SparkEngine, damaged: Path, tmp_path: Path
    ) -> None:
        """The class and the sentence that the local engine raises, and nothing in the lake."""
        said = []
        for chosen in ("local", engine):
            lake = Catalog(str(tmp_path / "lake"))
            with pytest.raises(CorruptSnapshotError) as failed:
                import_snapshot(lake, str(damaged), "job", engine=chosen)
            said.append(str(failed.value))
            assert_whole(lake)
            assert lake.summaries() == []
        assert said[0] == said[1]
        assert "offset" in said[0]
        assert str(damaged) in said[0]

    def test_the_command_says_it_on_one_line(
        self, spark: SparkSession, damaged: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Exit code 3 and one line, without a trace of Java or Python."""
        with pytest.raises(SystemExit) as left:
            main(f"import {damaged} --lake {tmp_path}/lake --job job --engine spark".split())
        said = capfd.readouterr().err.strip()
        assert left.value.code == 3
        assert re.fullmatch(rf"error: {damaged}/\S+, .*offset \d+: .*; .*", said)
        assert not re.search(r"Traceback|java|py4j", said)
