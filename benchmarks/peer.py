"""The peer: Flink's own State Processor API, run as a Java program."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pyspark

from statelake.pipelines.spark.jars import cache_directory
from tests.integration.flink.distribution import flink_jars

SOURCES = Path(__file__).parent / "java"
FLINK = "2.3.0"
PARQUET = (
    "parquet-*.jar",
    "jts-core-*.jar",
    "hadoop-client-*.jar",
    "snappy-java-*.jar",
    "commons-logging-*.jar",
)
OPENS = [
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")
]


class StateProcessor:
    """Flink's State Processor API on two cores; each call is a JVM of its own.

    Args:
        heap: Of that JVM.
        program: The class among `java/` that is run.
        modules: Modules of Flink that it needs beside the usual ones.
    """

    name = "State Processor API"

    def __init__(
        self,
        heap: str = "8g",
        program: str = "StateProcessorBench",
        modules: tuple[str, ...] = (),
    ) -> None:
        spark = Path(pyspark.__file__).parent / "jars"
        parquet = [str(jar) for pattern in PARQUET for jar in spark.glob(pattern)]
        jars = [str(jar) for jar in flink_jars(FLINK, modules)] + parquet
        self.program = program
        source = SOURCES / f"{program}.java"
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
        classes = cache_directory() / f"benchmark-{digest}"
        if not classes.is_dir():
            command = ["javac", "-nowarn", "-cp", ":".join(jars), "-d", str(classes), str(source)]
            subprocess.run(command, check=True, capture_output=True)
        self.command = ["java", f"-Xmx{heap}", *OPENS, "-cp", ":".join([*jars, str(classes)])]

    def run(self, command: str, **arguments: object) -> float:
        """Run one command of the program; the seconds that its job took."""
        words = [f"{name}={value}" for name, value in arguments.items()]
        whole = [*self.command, self.program, command, *words]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the peer failed at {command}: {done.stderr[-2000:]}")
        return float(done.stdout.split()[-1])
