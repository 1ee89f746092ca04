"""One Spark session, set up for Delta and for a machine of a few cores.

On a cluster the session is the cluster's own: settings of `spark-submit` or the environment win
over the defaults here. It runs on the configured master (`--master`).
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from statelake.pipelines.engine import SPARK_CONF, SPARK_PACK, cluster_configured, spark_master
from statelake.pipelines.java import cache_directory
from statelake.pipelines.spark.class_archive import sharing_options
from statelake.pipelines.spark.jars import delta_jars
from statelake.state_core.errors import MissingFileError, StateError
from statelake.state_core.extras import require_extra

GIVEN_BY_OTHERS = ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")
CONNECT = "sc://"
CONNECT_PORT, CONNECT_SECONDS = 15002, 20.0
UNPACKED = "statelake"  # the directory of the unpacked archive, below an executor's own
PYTHON = f"./{UNPACKED}/bin/python"
QUICK_TO_START = "-XX:TieredStopAtLevel=1"
JAVA_OPTIONS = (
    "-XX:+UseParallelGC",
    QUICK_TO_START,
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
)
EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def open_session(
    application: str = "statelake",
    *,
    ui: bool = False,
    slices: bool = False,
    java_options: Sequence[str] | None = None,
) -> SparkSession:
    """Return the active session, or a new one.

    Args:
        application: The application's name in Spark's UI.
        ui: Whether Spark's own web interface is started; on a cluster it always is.
        slices: Whether it runs slices in Python: executors' JVMs then only pass data on, and
            compile less of their own code.
        java_options: Further options of the JVM; by default those that shorten its start.

    Raises:
        JavaError: There is no Java 17.
        StateError: A server of Spark Connect can't be reached, or an archive does not exist.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    remote = os.environ.get("SPARK_REMOTE", "") or spark_master()
    if remote.startswith(CONNECT):
        return _connected(remote, application)
    cores = os.cpu_count() or 1
    settings = {
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.ui.enabled": str(ui or cluster_configured()).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": "statelake.pipelines.spark.worker_daemon",
        "spark.python.worker.reuse": "true",
        # over TCP, JVM and Python wait 40 ms in each task for an acknowledgement
        "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
        # a path of YARN's own temporary directory is too long for a socket
        "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 - sockets have random names
    }
    builder = SparkSession.builder.appName(application)
    if not any(name in os.environ for name in GIVEN_BY_OTHERS):
        settings |= _own_settings(sharing_options() if java_options is None else java_options)
        if slices:
            settings["spark.executor.extraJavaOptions"] = QUICK_TO_START
    for key, value in (settings | _given_settings()).items():
        builder = builder.config(key, value)
    with _errors_to_log():
        return builder.getOrCreate()


def _own_settings(java_options: Sequence[str]) -> dict[str, str]:
    """Return settings of this process's own JVM: master, JARs, memory, workers' Python."""
    settings = {
        "spark.master": spark_master() or f"local[{os.cpu_count() or 1}]",
        "spark.jars": ",".join(delta_jars()),
        "spark.driver.extraJavaOptions": " ".join((*JAVA_OPTIONS, *java_options)),
        # otherwise Spark makes an empty `spark-warehouse` in the working directory
        "spark.sql.warehouse.dir": (cache_directory().resolve() / "warehouse").as_uri(),
    }
    if not cluster_configured():  # a cluster's executors look for the driver by its own address
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    packed, python = _packed(), _given_settings().get("spark.pyspark.python", "")
    if packed:
        settings["spark.archives"] = f"{packed}#{UNPACKED}"
        python = python or PYTHON
    if python:
        os.environ["PYSPARK_PYTHON"] = python  # PySpark prefers it to the setting
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not {"", str(Path.cwd())} & {*sys.path}:
        # workers run as `python -m`, which would import from a stranger's working directory
        os.environ.setdefault("PYTHONSAFEPATH", "1")
    return settings


def _connected(remote: str, application: str) -> SparkSession:
    """Return a session of Spark Connect, whose server has Delta and settings of its own.

    Raises:
        MissingExtraError: The requirements of Spark Connect are not installed.
        MissingFileError: The archive for executors does not exist.
        StateError: The server can't be reached.
    """
    require_extra("connect")
    packed = _packed()
    shown = remote.partition("/;")[0]  # the rest may have a token
    builder = SparkSession.builder.appName(application).remote(remote)
    for key, value in _given_settings().items():
        builder = builder.config(key, value)
    try:
        _require_listener(shown)
        session: Any = builder.getOrCreate()
        if packed:
            session.addArtifacts(f"{packed}#{UNPACKED}", archive=True)
            session.conf.set("spark.sql.execution.pyspark.python", PYTHON)
    except (PySparkException, OSError, ValueError) as error:
        raise StateError(
            f"no session of Spark Connect ({' '.join(str(error).split())[:300]})",
            place=shown,
            remedy=f"check that the server runs at that address: sc://HOST:{CONNECT_PORT}",
        ) from error
    connected: SparkSession = session
    return connected


def _require_listener(remote: str) -> None:
    """Require that a server listens: the client itself would try for half an hour.

    Raises:
        OSError: No server listens.
        ValueError: The text is not an address.
    """
    parts = urlsplit(remote)
    address = (parts.hostname or "localhost", parts.port or CONNECT_PORT)
    socket.create_connection(address, timeout=CONNECT_SECONDS).close()


def _packed() -> str:
    """Return the archive for executors; empty without one.

    Raises:
        MissingFileError: The archive does not exist.
    """
    given = os.environ.get(SPARK_PACK, "")
    if given and "://" not in given:
        if not Path(given).is_file():
            raise MissingFileError(
                "there is no such archive", place=given,
                remedy="make it: `statelake spark pack --to FILE.tar.gz`",
            )  # fmt: skip
        return str(Path(given).resolve())
    return given


def _given_settings() -> dict[str, str]:
    """Return the settings of `--spark-conf`, which win over all others."""
    lines = os.environ.get(SPARK_CONF, "").splitlines()
    pairs = [line.partition("=") for line in lines if line.strip()]
    return {key.strip(): value.strip() for key, _, value in pairs}


@contextmanager
def _errors_to_log() -> Iterator[None]:
    """Redirect the standard error of a JVM that is started to a file."""
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
