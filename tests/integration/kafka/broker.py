"""A real Kafka of one node, on loopback, in a JVM that the tests start and stop."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from typing_extensions import Self

from pipelines.spark.jars import java_command, require_java, resolve_jars

VERSION = "4.1.0"
SECONDS = 120
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
PROPERTIES = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
auto.create.topics.enable=false
log.cleaner.backoff.ms=100
log.cleaner.min.cleanable.ratio=0.01
"""


def kafka_jars() -> Path:
    """The directory with Kafka's JARs, downloaded at the first call."""
    require_java()
    return resolve_jars(f"kafka-{VERSION}", [f"org.apache.kafka:kafka_2.13:{VERSION}"])


class KafkaBroker:
    """A broker that is its own controller.

    Attributes:
        servers: Where it listens.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True)
        root = Path(self._directory.name)
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        properties = root / "server.properties"
        properties.write_text(
            PROPERTIES.format(port=port, controller=controller, data=root / "data"), "utf-8"
        )
        java = [
            java_command(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-cp", f"{kafka_jars()}/*",
        ]  # fmt: skip
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)],
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        self._told = (root / "told").open("wb")
        self._process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)], stdout=self._told, stderr=subprocess.STDOUT
        )

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for _ in range(SECONDS):
            if self._process.poll() is not None:
                break
            if _answers(admin):
                return self
        self.__exit__(None, None, None)
        raise RuntimeError("Kafka does not come up")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._told.close()
        self._directory.cleanup()


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
