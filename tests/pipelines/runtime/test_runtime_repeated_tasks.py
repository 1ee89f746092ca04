"""A job whose tasks run more than once, as Spark's do where an executor seems lost or slow."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from statelake import open_snapshot
from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.runtime import RunOptions, run_job
from statelake.pipelines.runtime.exchange import ChannelWriter
from statelake.state_core.errors import ConflictError
from statelake.state_core.formats.metadata.stream_map import named_files
from tests.support.engines import Repeating
from tests.support.jobs.alert_orders import alerts_module, expected, feed, sink_rows, state_rows

alerts = alerts_module()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("written", [(pq.ParquetWriter, "write_batch"), (ChannelWriter, "close")])
@pytest.mark.parametrize("restore_from", ["lake", "blob", "changelog"])
@pytest.mark.full
def test_one_run_of_each_task_counts(
    restore_from: str, written: tuple[type, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output and state are as ever; neither the tables nor the state have files of other runs."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    engine = Repeating(monkeypatch, written)
    commit_to = (f"blob={tmp_path / 'blobs'}", f"changelog={tmp_path / 'changelogs'}")
    for part, parallelism in enumerate((2, 3)):
        feed(data, part)
        options = RunOptions(
            parallelism=parallelism, engine=engine, commit_to=commit_to, restore_from=restore_from
        )
        run_job(alerts.alerts(str(data)), lake, options)
    assert engine.lost
    wanted, spent = expected(range(2))
    rows = sink_rows(data / "alerts")
    assert sorted((row["customer"], row["rule"], row["spent"]) for row in rows) == sorted(wanted)
    assert state_rows(lake, 2, "alert", "spent", tmp_path) == spent
    for table in ("alerts", "alerts-by-rule"):
        named = set(DeltaTable(str(data / table)).file_uris())
        assert {str(path) for path in (data / table / "_data").rglob("*.parquet")} == named
    (savepoint,) = (tmp_path / "lake" / "alerts" / "_runs" / "00000002").glob("attempt-*/savepoint")
    named = named_files(open_snapshot(savepoint).metadata)
    assert {path.name for path in savepoint.iterdir()} == {"_metadata", *named}


def test_what_comes_after_the_commit_goes_with_the_next_run(tmp_path: Path) -> None:
    """An executor that was given up writes into a sink's table; what was committed stays."""
    lake, data = Catalog(tmp_path / "lake"), tmp_path / "data"
    job = alerts.alerts(str(data))
    feed(data, 0)
    run_job(job, lake, RunOptions(engine="local"))
    (attempt,) = (data / "alerts" / "_data").iterdir()
    (attempt / "alerts-alert-0-00000-late.parquet").write_bytes(b"late")
    before = sink_rows(data / "alerts")
    feed(data, 1)
    run_job(job, lake, RunOptions(engine="local"))
    named = set(DeltaTable(str(data / "alerts")).file_uris())
    assert {str(path) for path in (data / "alerts" / "_data").rglob("*.*")} == named
    assert [row for row in sink_rows(data / "alerts") if row in before] != []


def test_a_job_of_the_same_name_loses_nothing(tmp_path: Path) -> None:
    """Begun anew in another lake, with the same tables, it is refused: they are as they were."""
    data = tmp_path / "data"
    feed(data, 0)
    job = alerts.alerts(str(data))
    run_job(job, Catalog(tmp_path / "lake"), RunOptions(engine="local"))
    before = sink_rows(data / "alerts")
    with pytest.raises(
        ConflictError, match="run 1 of another job 'alerts' is in the table already"
    ):
        run_job(job, Catalog(tmp_path / "other"), RunOptions(engine="local"))
    assert before
    assert sink_rows(data / "alerts") == before
