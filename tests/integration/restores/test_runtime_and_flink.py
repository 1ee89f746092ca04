"""State of real Flink's goes on in a job of process functions, and that job's in real Flink."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.export.exporting import export_snapshot
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.declarations import StateDeclaration, StateDeclarations
from statelake.state_core.process import (
    Collector,
    Job,
    OneInputStreamProcessFunction,
    PartitionedContext,
)
from tests.integration.flink.oracle import FlinkOracle, sorted_lines
from tests.support.savepoints.expected_contents import UIDS
from tests.support.savepoints.golden_cases import golden_cases

pytestmark = [pytest.mark.flink, pytest.mark.full]

COUNT = StateDeclarations.value_state("count", "Long")
CASES = golden_cases("wordcount")


class Adding(OneInputStreamProcessFunction):
    """Adds to a word's count."""

    def uses_states(self) -> Iterable[StateDeclaration]:
        """The count, as the Java job declares it."""
        return {COUNT}

    def process_record(self, record: Any, output: Collector, ctx: PartitionedContext) -> None:
        """So many more."""
        count = ctx.get_state(COUNT)
        count.update((count.value() or 0) + record["more"])


def job_over(data: Path, max_parallelism: int) -> Job:
    """The word count, over words and how many more."""
    job = Job("words", max_parallelism)
    schema = pa.schema({"word": pa.string(), "more": pa.int64()})
    words = job.source("words", str(data), format="json", schema=schema).key_by("word", "String")
    words.process(Adding(), uid="counter", output={"word": pa.string()})
    return job


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_there_and_back(backend: str, flink: FlinkOracle, tmp_path: Path) -> None:
    """Flink's counts, more of them here at 3, still more at 1; Flink has the sums, at 2."""
    golden = next(case for case in CASES if case.facts["backend"] == "rocksdb")
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "words"
    data.mkdir()
    import_snapshot(
        lake, str(golden.snapshot), "words", snapshot_id="flink", uids=UIDS.get("wordcount", ()),
        engine="local",
    )  # fmt: skip
    expected = {entry["key"]: entry for entry in golden.expected()}
    job = job_over(data, golden.facts["max_parallelism"])
    for run, parallelism in enumerate((3, 1)):
        lines = [json.dumps({"word": word, "more": run + 1}) for word in sorted(expected)[:50]]
        (data / f"{run}.jsonl").write_text("\n".join(lines) + "\n")
        options = RunOptions(parallelism, backend, "local", restore="flink")
        assert run_job(job, lake, options).records == 50
    for word in sorted(expected)[:50]:
        expected[word]["count"] += 3
    savepoint = tmp_path / "export"
    export_snapshot(lake, "words", "run-00000002", savepoint, parallelism=2, engine="local")
    restored = flink.restore("wordcount", savepoint, keys=golden.facts["keys"], parallelism=2)
    assert sorted_lines(restored) == sorted_lines(expected.values())
