"""What Flink's libraries keep is what their classes say today, and none of them is unknown here."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from statelake.pipelines.spark.jars import resolve_jars
from statelake.state_core.serializers import registered_classes
from tests.integration.flink.distribution import JAVA_SOURCES, OPENS, compiled, flink_jars
from tests.support.java import java
from tests.support.savepoints.golden_cases import GOLDEN

pytestmark = [pytest.mark.flink, pytest.mark.full]

COMMON = ("flink-cep", "flink-python", "flink-avro", "flink-table-runtime")
MODULES = {"2.3.0": COMMON, "1.20.0": (*COMMON, "flink-scala_2.12")}
KAFKA = "flink-connector-kafka"
KAFKA_VERSION = "3.2.0-1.19"
# what no snapshot names, and why
LEFT_OUT = {
    "org.apache.flink.table.runtime.typeutils.serializers.python.": (
        "between a JVM and its Python workers, not in state"
    ),
    "org.apache.flink.queryablestate.client.": "between a client and a job, not in state",
    "org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshot": (
        "made for a comparison, never written"
    ),
    "org.apache.flink.api.common.typeutils.SingleThreadAccessCheckingTypeSerializer$": (
        "for Flink's own tests"
    ),
}


def jars(version: str) -> list[Path]:
    """Flink with its libraries, and Kafka's sink of Flink 1."""
    paths = flink_jars(version, MODULES[version])
    if version.startswith("1."):
        modules = [f"org.apache.flink:{KAFKA}:{KAFKA_VERSION}"]
        paths += sorted(resolve_jars(f"{KAFKA}-{KAFKA_VERSION}", modules).glob("*.jar"))
    return paths


def printed(version: str, programs: Sequence[str]) -> str:
    """What the first program prints, compiled with the others."""
    path = jars(version)
    sources = [JAVA_SOURCES / f"{name}.java" for name in programs]
    classes = compiled(sources, path, f"libraries-{version}")
    done = subprocess.run(
        java("2g", [classes, *path], *OPENS, programs[0]),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("version", "program", "kept"),
    [
        ("2.3.0", "LibraryVectors", "libraries"),
        pytest.param("1.20.0", "ScalaVectors", "scala", marks=pytest.mark.nightly),
    ],
)
def test_vectors(version: str, program: str, kept: str) -> None:
    """The program that wrote them writes them again, byte by byte."""
    golden = (GOLDEN / "vectors" / f"{kept}.jsonl").read_text("utf-8")
    assert printed(version, (program, "Vectors", "Json")) == golden


@pytest.mark.parametrize("version", list(MODULES))
def test_every_class_is_known(version: str) -> None:
    """Each class that can describe a serializer is registered, or left out for a reason."""
    classes = set(printed(version, ("SnapshotClasses",)).split())
    assert len(classes) > 100
    unknown = classes - set(registered_classes())
    assert {name for name in unknown if not name.startswith(tuple(LEFT_OUT))} == set()
