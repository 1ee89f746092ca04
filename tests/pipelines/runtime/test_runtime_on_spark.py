"""The same job on Spark: subtasks on executors, which load the job's module themselves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.state_core.serializers.framework.plugins import load_plugin
from tests.support.jobs.alert_orders import (
    EXAMPLE,
    expected,
    feed,
    orders_of,
    sink_rows,
    state_rows,
)

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.usefixtures("own_registry")]


def test_runs_add_up(tmp_path: Path) -> None:
    """As they do without it, at another parallelism each, in RocksDB and on the heap."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    for part, (parallelism, backend) in enumerate([(2, "heap"), (3, "rocksdb"), (1, "heap")]):
        feed(data, part)
        job = load_plugin(str(EXAMPLE)).alerts(str(data))
        options = RunOptions(parallelism=parallelism, backend=backend, engine="spark")
        assert run_job(job, lake, options).run == part + 1
    wanted, spent = expected(range(3))
    rows = sink_rows(data / "alerts")
    assert sorted((row["customer"], row["rule"], row["spent"]) for row in rows) == sorted(wanted)
    assert state_rows(lake, 3, "alert", "spent", tmp_path) == spent


def test_a_delta_table_is_read_version_by_version(tmp_path: Path) -> None:
    """Each version's rows once, whichever engine runs; the table may be partitioned."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    feed(data, 0)
    job = load_plugin(str(EXAMPLE)).alerts(str(data))
    source = job.sources["orders"]
    job.sources["orders"] = type(source)("orders", str(tmp_path / "table"), "delta", "at", 60_000)
    for part in range(3):
        rows = pa.Table.from_pylist([{**order, "day": part % 2} for order in orders_of(part)])
        write_deltalake(str(tmp_path / "table"), rows, mode="append", partition_by=["day"])
        engine = "local" if part % 2 else "spark"
        assert run_job(job, lake, RunOptions(parallelism=2, engine=engine)).records == (
            302 if not part else 300
        )
    assert state_rows(lake, 3, "alert", "spent", tmp_path) == expected(range(3))[1]
