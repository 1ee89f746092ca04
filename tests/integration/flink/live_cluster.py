"""A real Flink cluster on loopback: a JobManager and TaskManagers in JVMs that the tests start.

Its JARs, and those of Flink's own example jobs, come from Maven Central.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path

from typing_extensions import Self

from statelake import open_snapshot
from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.connection import ConnectionSettings
from statelake.pipelines.spark.jars import require_java, resolve_jars
from statelake.state_core.errors import StateError
from tests.integration.flink.distribution import JAVA_SOURCES, compiled
from tests.integration.jvm_server import JvmServer, free_ports
from tests.support.java import java

VERSION = "2.3.0"
SECONDS = 120
MODULES = (
    "flink-runtime",
    "flink-runtime-web",
    "flink-clients",
    "flink-streaming-java",
    "flink-statebackend-rocksdb",
    "flink-connector-files",
    "flink-connector-datagen",
)
LOGGING = ("slf4j-impl", "core")
LOGGING_VERSION = "2.24.3"
PACKAGES = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.util", "java.util.concurrent",
    "java.util.concurrent.atomic", "java.util.concurrent.locks", "java.net", "java.io", "java.nio",
    "java.math", "java.time", "java.text", "sun.nio.ch",
)  # fmt: skip
# without Flink's shell scripts every piece of a TaskManager's memory has to be named
CONFIGURATION = """jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
rest.bind-port: "{rest}"
blob.server.port: "0"
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: 4
taskmanager.cpu.cores: 4
taskmanager.memory.task.heap.size: 256m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.managed.size: 128m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.jvm-metaspace.size: 192m
taskmanager.memory.jvm-overhead.min: 128m
taskmanager.memory.jvm-overhead.max: 128m
web.upload.dir: {root}/upload
io.tmp.dirs: {root}/tmp
execution.checkpointing.interval: 2s
execution.checkpointing.dir: file://{root}/checkpoints
execution.checkpointing.savepoint-dir: file://{root}/savepoints
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 2
restart-strategy.fixed-delay.delay: 1s
"""
SAVEPOINTS = "state.savepoints.dir"  # before 1.20
LOG4J = """rootLogger.level = WARN
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c{1} %m%n
"""
JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGERS = 2
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"


def cluster_jars(version: str = VERSION, extra: Collection[str] = ()) -> Path:
    """The directory with a cluster's JARs, downloaded at the first call.

    Args:
        version: Of Flink.
        extra: Modules beside those that every cluster needs.
    """
    require_java()
    modules = [f"org.apache.flink:{module}:{version}" for module in (*MODULES, *extra)]
    modules += [f"org.apache.logging.log4j:log4j-{name}:{LOGGING_VERSION}" for name in LOGGING]
    return resolve_jars("-".join(["flink-cluster", version, *extra]), modules)


def examples_jar(version: str = VERSION) -> Path:
    """Flink's own streaming jobs, which nobody here wrote."""
    name = f"org.apache.flink:flink-examples-streaming:{version}"
    (jar,) = resolve_jars(f"flink-examples-{version}", alone=[name]).glob("*.jar")
    return jar


class LiveFlink(JvmServer):
    """A cluster with a session for any jobs.

    Args:
        version: Of Flink.
        extra: As for `cluster_jars`.

    Attributes:
        url: Its REST API.
        root: Its directory: `savepoints` and `checkpoints` are in it.
    """

    def __init__(self, version: str = VERSION, extra: Collection[str] = ()) -> None:
        super().__init__("flink-")
        rest, rpc = free_ports(2)
        self.url = f"http://127.0.0.1:{rest}"
        self.root = self._root
        conf = self._root / "conf"
        for folder in (conf, self._root / "tmp", self._root / "upload"):
            folder.mkdir()
        text = CONFIGURATION.format(rest=rest, rpc=rpc, root=self._root)
        if version.startswith("1.18."):  # it has names of its own, and its parser knows no quotes
            old = text.replace('"', "").replace("execution.checkpointing.savepoint-dir", SAVEPOINTS)
            (conf / "flink-conf.yaml").write_text(old, "utf-8")
        else:
            (conf / "config.yaml").write_text(text, "utf-8")
        (conf / "log4j.properties").write_text(LOG4J, "utf-8")
        self._java = java(
            "512m", [f"{cluster_jars(version, extra)}/*"],
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in PACKAGES),
            f"-Dlog4j.configurationFile=file:{conf}/log4j.properties",
        )  # fmt: skip
        self._configured = ["--configDir", str(conf)]
        self._start([*self._java, JOB_MANAGER, *self._configured])
        self._workers = [
            self._begun([*self._java, TASK_MANAGER, *self._configured])
            for _ in range(TASK_MANAGERS)
        ]

    def client(self) -> FlinkCluster:
        """What is tested."""
        return FlinkCluster(ConnectionSettings(self.url), poll_seconds=0.1)

    def __enter__(self) -> Self:
        try:
            self.await_workers()
        except RuntimeError:
            self.__exit__(None, None, None)
            raise
        return self

    def await_workers(self) -> None:
        """Wait until all TaskManagers are there.

        Raises:
            RuntimeError: They are not; the message is the end of what they told.
        """
        until = time.monotonic() + SECONDS
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > until:
                told = (self._root / "told").read_text("utf-8", "replace")[-2000:]
                raise RuntimeError(f"Flink does not come up: {told}")
            time.sleep(0.2)

    def _is_up(self) -> bool:
        with self.client() as cluster:
            try:
                return bool(cluster.connection.get("/overview")["taskmanagers"] == TASK_MANAGERS)
            except StateError:
                return False

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        super().__exit__(None, None, None)


def counter_jar(directory: Path, name: str = "counter.jar", main: str = "LiveCounter") -> Path:
    """The JAR of the job that counts, made in a directory.

    Args:
        directory: Where.
        name: Its own.
        main: Its class: `LiveCounter`, or `TextCounter`, which can't use the state of the former.
    """
    return jar_of(sorted((JAVA_SOURCES / "live").glob("*.java")), directory / name, main)


def jar_of(sources: Iterable[Path], jar: Path, main: str, extra: Collection[str] = ()) -> Path:
    """Compile sources for a cluster, and return the JAR that they are put into.

    Args:
        sources: Java files.
        jar: The JAR.
        main: Its class.
        extra: As for `cluster_jars`.
    """
    jars = sorted(cluster_jars(extra=extra).glob("*.jar"))
    classes = compiled(sources, jars, "-".join(["live", VERSION, *extra]))
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {main}\n")
        for file in sorted(classes.glob("*.class")):
            archive.write(file, file.name)
    return jar


def counted(savepoint: str) -> dict[int, int]:
    """How many numbers each key of `LiveCounter` has seen, if none was lost or came twice."""
    operator = open_snapshot(savepoint).operator("counter")
    counts, last = (
        {row["key"]: row["value"] for row in operator.state(name).to_arrow().to_pylist()}
        for name in ("count", "last")
    )
    assert counts.keys() == last.keys()
    expected = {key: (last[key] - key) // 50 + 1 for key in last}
    assert {key: int(count) for key, count in counts.items()} == expected
    return expected
