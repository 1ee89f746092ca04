"""A real Kafka of one node, on loopback, in a JVM that the tests start and stop."""

from __future__ import annotations

import subprocess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from typing_extensions import Self

from statelake.pipelines.spark.jars import require_java, resolve_jars
from tests.integration.jvm_server import JvmServer, free_ports
from tests.support.java import java

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
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.cleaner.backoff.ms=100
log.cleaner.min.cleanable.ratio=0.01
"""


def kafka_jars() -> Path:
    """The directory with Kafka's JARs, downloaded at the first call."""
    require_java()
    return resolve_jars(f"kafka-{VERSION}", [f"org.apache.kafka:kafka_2.13:{VERSION}"])


class KafkaBroker(JvmServer):
    """A broker that is its own controller.

    Attributes:
        servers: Where it listens.
    """

    def __init__(self) -> None:
        super().__init__("kafka-")
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        properties = self._root / "server.properties"
        properties.write_text(
            PROPERTIES.format(port=port, controller=controller, data=self._root / "data"), "utf-8"
        )
        command = java("512m", [f"{kafka_jars()}/*"])
        subprocess.run(
            [
                *command,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                CLUSTER_ID,
                "-c",
                str(properties),
            ],
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        self._start([*command, "kafka.Kafka", str(properties)])

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for _ in range(SECONDS):
            if self._process.poll() is not None:
                break
            if _answers(admin):
                return self
        self.__exit__(None, None, None)
        raise RuntimeError("Kafka does not come up")


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
