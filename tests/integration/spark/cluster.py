"""A standalone cluster of Spark's whose workers share nothing with this process but the machine.

Their environment is empty but for Java, Spark and a plain Python: no statelake, another home
directory, another working directory. A server of Spark Connect can run on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyspark
from typing_extensions import Self

from statelake.pipelines.spark.jars import delta_jars, java_command
from tests.integration.jvm_server import JvmServer, free_ports

__all__ = ["SparkCluster"]

PATIENCE = 120.0
HOST = "127.0.0.1"


class SparkCluster(JvmServer):
    """A master and two workers of one core each; use it in `with`."""

    def __init__(self) -> None:
        super().__init__("spark-cluster-")
        self._port, self._connect_port = free_ports(2)
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        self._told = (self._root / "told").open("wb")
        self._run("master", "org.apache.spark.deploy.master.Master", "--host", HOST,
                  "--port", str(self._port), "--webui-port", "0")  # fmt: skip
        self._wait("master", "New state: ALIVE")
        for name in ("first", "second"):
            self._run(name, "org.apache.spark.deploy.worker.Worker", "--host", HOST, "--cores", "1",
                      "--memory", "1500m", "--webui-port", "0", "--work-dir", ".",
                      self.master)  # fmt: skip
            self._wait(name, "Successfully registered")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            process.wait()
        self._told.close()
        self._directory.cleanup()

    def connect(self) -> str:
        """Start a server of Spark Connect on the cluster: its address, for `--master`."""
        delta = {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.connect.grpc.binding.port": str(self._connect_port),
            "spark.connect.grpc.binding.address": HOST,
            "spark.ui.enabled": "false",
        }
        settings = [word for key, value in delta.items() for word in ("--conf", f"{key}={value}")]
        self._run(
            "connect", "org.apache.spark.deploy.SparkSubmit",
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--master", self.master, "--jars", ",".join(delta_jars()), *settings, "spark-internal",
        )  # fmt: skip
        self._wait("connect", "Spark Connect server started")
        return f"sc://{HOST}:{self._connect_port}"

    @property
    def executors(self) -> list[Path]:
        """The directories in which executors ran."""
        return sorted(self._root.glob("*/app-*/*"))

    @property
    def executor_processes(self) -> list[int]:
        """The processes of executors that run at this moment."""
        ours = {process.pid for process in self._started}
        processes = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                state, parent = path.read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
                # the launcher that Spark's script ran before it became a worker is no executor
                if int(parent) in ours and state != "Z":
                    processes.append(int(path.parent.name))
        return processes

    def _run(self, name: str, *words: str) -> None:
        """Start one of Spark's classes in a directory and an environment of its own."""
        folder = self._root / name
        folder.mkdir()
        spark = Path(pyspark.__file__).parent
        environment = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).resolve().parent}:{os.defpath}",
            "JAVA_HOME": str(Path(java_command()).resolve().parents[1]),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": HOST,
        }
        with (folder / "log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    [str(spark / "bin" / "spark-class"), *words],
                    cwd=folder,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _wait(self, name: str, line: str) -> None:
        """Wait until its log has a line."""
        log = self._root / name / "log"
        until = time.monotonic() + PATIENCE
        while line not in log.read_text("utf-8", "replace"):
            if time.monotonic() > until or self._started[-1].poll() is not None:
                raise TimeoutError(f"{name} did not start: {log.read_text('utf-8')[-2000:]}")
            time.sleep(0.2)
