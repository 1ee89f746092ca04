"""State of connectors that need servers, written by real Flink with their own serializers.

`python -m tests.integration.flink.connector_states DIRECTORY [NAME...]` writes golden savepoints.
Those of Kinesis and Delta were written by classes compiled from the connectors' sources, laid into
the cache as `connector-kinesis` and `connector-delta`: their coordinates here are untried.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from statelake.pipelines.spark.jars import resolve_jars
from tests.integration.flink.distribution import JAVA_SOURCES, compiled, flink_jars
from tests.integration.flink.oracle import answers_of, successes

__all__ = ["CONNECTORS", "answers", "written_states"]

VERSION = "1.20.0"
MODULES = ("flink-table-runtime", "flink-connector-base", "flink-connector-files")


@dataclass(frozen=True)
class Connector:
    """A connector, and what of its state there is.

    Attributes:
        program: The Java program that holds its state.
        jars: Its JARs by their Maven coordinates, without dependencies.
        states: The words of the program, by the name of the savepoint's directory.
    """

    program: str
    jars: tuple[str, ...]
    states: dict[str, str]


CONNECTORS = {
    "mysql-cdc": Connector(
        "MySqlStates",
        ("org.apache.flink:flink-sql-connector-mysql-cdc:3.5.0",),
        {
            "mysql-cdc-binlog-3.5": "binlog",
            "mysql-cdc-gtid-3.5": "gtid",
            "mysql-cdc-snapshot-3.5": "snapshot",
        },
    ),
    "postgres-cdc": Connector(
        "PostgresStates",
        ("org.apache.flink:flink-sql-connector-postgres-cdc:3.5.0",),
        {
            "postgres-cdc-stream-3.5": "stream",
            "postgres-cdc-initial-3.5": "initial",
            "postgres-cdc-snapshot-3.5": "snapshot",
        },
    ),
    "iceberg": Connector(
        "IcebergStates",
        ("org.apache.iceberg:iceberg-flink-runtime-1.20:1.9.2",),
        {"iceberg-committer-1.9": "committer", "iceberg-sink-1.9": "sink"},
    ),
    "paimon": Connector(
        "PaimonStates",
        ("org.apache.paimon:paimon-flink-1.20:1.0.1",),
        {"paimon-committer-1.0": "committer"},
    ),
    "delta": Connector(
        "DeltaStates",
        ("io.delta:delta-flink:0.6.0",),
        {"delta-files-0.6": "files", "delta-table-0.6": "table"},
    ),
    "kinesis": Connector(
        "KinesisStates",
        (
            "org.apache.flink:flink-connector-aws-kinesis-streams:5.1.0-1.20",
            "org.apache.flink:flink-connector-kinesis:5.1.0-1.20",
            "software.amazon.awssdk:kinesis:2.57.8",
            "software.amazon.awssdk:utils:2.57.8",
            "software.amazon.awssdk:sdk-core:2.57.8",
        ),
        {"kinesis-source-5.1": "source", "kinesis-consumer-5.1": "consumer"},
    ),
    "pulsar": Connector(
        "PulsarStates",
        (
            "org.apache.flink:flink-connector-pulsar:4.1.0-1.18",
            "org.apache.pulsar:pulsar-client-all:3.0.0",
            "org.apache.pulsar:pulsar-client-api:3.0.0",
            "org.apache.pulsar:pulsar-client-admin-api:3.0.0",
        ),
        {"pulsar-source-4.1": "source", "pulsar-sink-4.1": "sink"},
    ),
}


def written_states(name: str, to: Path) -> dict[str, Path]:
    """Write the savepoints of a connector's states into a directory: their paths by name."""
    states = CONNECTORS[name].states
    places = answers(name, [(word, (to / state).as_uri()) for state, word in states.items()])
    return {
        state: Path(place.removeprefix("file:"))
        for state, place in zip(states, places, strict=True)
    }


def answers(name: str, commands: Iterable[Iterable[object]]) -> list[str]:
    """What a connector's program says to some commands."""
    connector = CONNECTORS[name]
    jars = flink_jars(VERSION, MODULES)
    own = resolve_jars(f"connector-{name}", alone=connector.jars)
    jars = [*jars, *sorted(own.glob("*.jar"))]
    sources = [
        JAVA_SOURCES / f"{program}.java"
        for program in (connector.program, "HeldSource", "HeldSink", "Cluster", "Answers")
    ]
    classes = compiled(sources, jars, f"connector-{name}")
    return successes(answers_of(connector.program, classes, jars, commands, "768m"))


if __name__ == "__main__":
    golden = Path(sys.argv[1])
    for wanted in sys.argv[2:] or CONNECTORS:
        with tempfile.TemporaryDirectory() as made:
            for state, savepoint in written_states(wanted, Path(made)).items():
                (golden / state).mkdir(parents=True, exist_ok=True)
                data = (savepoint / "_metadata").read_bytes()
                (golden / state / "_metadata").write_bytes(data)
