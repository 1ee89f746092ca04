"""The client on clusters of the line before: what they call otherwise, it does, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from statelake.pipelines.lake.catalog.catalog import Catalog
from statelake.pipelines.lake.ingest.importing import import_snapshot
from statelake.state_core.errors import ClusterError, FlinkJobError
from tests.integration.flink.live_cluster import LiveFlink, examples_jar
from tests.integration.live.test_live_flink import TOP_SPEED

pytestmark = [pytest.mark.flink, pytest.mark.full]


@pytest.mark.parametrize("version", ["1.18.1", pytest.param("1.20.0", marks=pytest.mark.nightly)])
def test_jobs_of_older_flink(version: str, tmp_path: Path) -> None:
    """Run, savepoints in both formats, stop, restore as one's own or not, failures, cleaned up."""
    with LiveFlink(version) as live, live.client() as cluster:
        assert cluster.version() == version
        jar = cluster.upload_jar(str(examples_jar(version)))
        first = cluster.run_jar(jar, entry_class=TOP_SPEED, parallelism=2)
        job = cluster.wait_until_running(first)
        assert (job.parallelism, job.max_parallelism) == (2, 128)
        target = f"file://{live.root}/taken"
        native = cluster.take_savepoint(first, target, form="native")
        imported = import_snapshot(
            Catalog(tmp_path), native.removeprefix("file:"), "cars", engine="local"
        )
        assert imported.record.entries > 0
        stopped = cluster.stop_with_savepoint(first, target)
        assert cluster.job(first).state == "FINISHED"
        with pytest.raises(FlinkJobError, match="the job is FINISHED"):
            cluster.take_savepoint(first)
        for mode in ("no_claim", "claim"):  # a job deletes what it claimed when it has its own
            again = cluster.run_jar(
                jar, entry_class=TOP_SPEED, parallelism=3, savepoint=stopped, claim_mode=mode
            )
            assert cluster.wait_until_running(again).parallelism == 3
            assert cluster.checkpoints(again).restored_from == stopped
            assert cluster.cancel(again) == "CANCELED"
        assert not Path(stopped.removeprefix("file:")).exists()
        with pytest.raises(ClusterError, match="max parallelism"):
            cluster.wait_until_running(
                cluster.run_jar(jar, entry_class=TOP_SPEED, savepoint=native, max_parallelism=300)
            )
        cluster.dispose_savepoint(native)
        cluster.delete_jar(jar)
