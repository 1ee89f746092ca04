"""A real HDFS: Hadoop's own small cluster, a name node and a data node in one JVM on loopback."""

from __future__ import annotations

import time
from pathlib import Path

from typing_extensions import Self

from statelake.pipelines.spark.jars import require_java, resolve_jars
from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.filesystem import Directory
from tests.integration.jvm_server import JvmServer, free_ports
from tests.support.java import java

VERSION = "3.4.1"
SECONDS = 120


def hadoop_jars() -> Path:
    """The directory with the JARs of Hadoop's small cluster, downloaded at the first call."""
    require_java()
    names = ("hadoop-client-minicluster", "hadoop-client-runtime", "hadoop-client-api")
    jars = [f"org.apache.hadoop:{name}:{VERSION}" for name in names]
    return resolve_jars(f"hadoop-{VERSION}", [*jars, "junit:junit:4.13.2"])


class Hdfs(JvmServer):
    """An HDFS with one data node.

    Attributes:
        port: Of loopback, where the name node answers.
    """

    def __init__(self) -> None:
        super().__init__("hdfs-")
        (self.port,) = free_ports(1)
        self._start(
            java(
                "384m", [f"{hadoop_jars()}/*"], f"-Dtest.build.data={self._root}/data",
                "org.apache.hadoop.test.MiniDFSClusterManager", "-nnport", str(self.port),
                "-datanodes", "1", "-format",
            )
        )  # fmt: skip

    def location(self, path: str) -> str:
        """The URI of something in it."""
        return f"hdfs://127.0.0.1:{self.port}/{path}"

    def __enter__(self) -> Self:
        until = time.monotonic() + SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            if self._answers():
                return self
            time.sleep(0.2)
        told = (self._root / "told").read_text("utf-8", "replace")
        self.__exit__(None, None, None)
        raise SnapshotError(f"HDFS does not answer: {told[-1000:]}")

    def _answers(self) -> bool:
        """Whether a file can be written: the name node answers before it has a data node."""
        try:
            Directory(self.location("")).write("ready", b"1")
        except SnapshotError:
            return False
        return True
