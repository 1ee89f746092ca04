"""Real Samza 1.8: its JARs by their Maven coordinates, and a program that asks its classes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from statelake.pipelines.spark.jars import require_java, resolve_jars
from tests.integration.flink.distribution import compiled
from tests.support.java import java

VERSION = "1.8.0"
SOURCE = Path(__file__).parent / "java" / "SamzaOracle.java"
SECONDS = 300


def samza_jars() -> list[Path]:
    """Samza's JARs, downloaded at the first call."""
    require_java()
    # of the module for Kafka the serde of keys alone is needed
    target = resolve_jars(
        f"samza-{VERSION}",
        with_others=[f"org.apache.samza:samza-core_2.12:{VERSION}"],
        alone=[f"org.apache.samza:samza-kafka_2.12:{VERSION}"],
    )
    return sorted(target.glob("*.jar"))


def ask_samza(commands: Iterable[Iterable[str]]) -> list[list[str]]:
    """What Samza answers to each command; what it refuses begins with `error`."""
    jars = samza_jars()
    classes = compiled([SOURCE], jars, f"samza-{VERSION}")
    lines = ["\t".join(words) for words in commands]
    done = subprocess.run(
        java(
            "256m", [classes, *jars], "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8",
            "SamzaOracle",
        ),
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )  # fmt: skip
    told = done.stdout.decode().splitlines()
    answers = [line.split("\t")[1:] for line in told if line.startswith("answer\t")]
    if done.returncode or len(answers) != len(lines):
        raise RuntimeError(f"Samza ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return answers
