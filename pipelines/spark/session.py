"""One Spark session, set up for Delta and for a machine of a few cores.

On a cluster the session is the cluster's own: whatever `spark-submit` or the environment sets
wins over the defaults here. A master that is configured (`--master`) is where it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.engine import cluster_configured, spark_master
from pipelines.spark.class_archive import sharing_options
from pipelines.spark.jars import cache_directory, delta_jars

__all__ = ["open_session"]

GIVEN_BY_OTHERS = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")
JAVA_OPTIONS = (
    "-XX:+UseParallelGC",
    "-XX:TieredStopAtLevel=1",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
)
EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def open_session(
    application: str = "statelake", *, ui: bool = False, java_options: Sequence[str] | None = None
) -> SparkSession:
    """The active session, or a new one.

    Args:
        application: Its name.
        ui: Whether Spark's own web interface is started; on a cluster it always is.
        java_options: More options of the JVM; by default those by which it starts sooner.

    Raises:
        JavaError: There is no Java 17.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    cores = os.cpu_count() or 1
    settings = {
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.ui.enabled": str(ui or cluster_configured()).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": "pipelines.spark.worker_daemon",
        "spark.python.worker.reuse": "true",
    }
    builder = SparkSession.builder.appName(application)
    if not any(name in os.environ for name in GIVEN_BY_OTHERS):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.master"] = spark_master() or f"local[{cores}]"
        if not cluster_configured():  # a cluster's executors look for the driver by its own address
            settings["spark.driver.host"] = "127.0.0.1"
            settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.jars"] = ",".join(delta_jars())
        more = sharing_options() if java_options is None else java_options
        settings["spark.driver.extraJavaOptions"] = " ".join((*JAVA_OPTIONS, *more))
        # or Spark makes an empty `spark-warehouse` wherever it is started
        warehouse = cache_directory().resolve() / "warehouse"
        settings["spark.sql.warehouse.dir"] = warehouse.as_uri()
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _errors_to_log():
        return builder.getOrCreate()


@contextmanager
def _errors_to_log() -> Iterator[None]:
    """Let the JVM that is started write its standard error to a file, and not between our lines."""
    if os.environ.get("STATELAKE_DEBUG"):
        yield
        return
    log = cache_directory() / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
