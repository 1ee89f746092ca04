"""A class data archive of Spark's classes, which makes Spark's start shorter.

`python -m statelake.pipelines.spark.class_archive` makes that file (190 MB, a minute), once for
each version of Java, Spark and Delta. Without a usable file Spark starts as usual.

Source: "Class Data Sharing" in the JDK's guide, `-XX:ArchiveClassesAtExit`.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

from statelake.pipelines.java import cache_directory, java_command
from statelake.pipelines.spark.jars import delta_jars

SECONDS = 300
QUIET = "-Xlog:disable", "-Xlog:all=error:stderr"  # an unusable file is ignored


def class_archive() -> Path:
    """Return the path of the file, whether it exists or not."""
    java = Path(java_command()).resolve()
    release = java.parent.parent / "release"
    java_release = release.read_bytes() if release.exists() else bytes(java)
    names = [pyspark.__version__, *(Path(jar).name for jar in delta_jars())]
    digest = hashlib.sha256(b"\0".join([java_release, *map(str.encode, names)])).hexdigest()
    return cache_directory() / f"spark-classes-{digest[:16]}.jsa"


def sharing_options() -> tuple[str, ...]:
    """Return the options by which a JVM uses the file, if it exists."""
    archive = class_archive()
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.exists() else ()


def make_class_archive() -> None:
    """Make a JVM of Spark archive its classes after it has read and written a table."""
    from statelake.pipelines.spark.session import open_session  # noqa: PLC0415 - which uses this module

    archive = class_archive()
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        part = Path(directory) / archive.name
        session = open_session(java_options=(f"-XX:ArchiveClassesAtExit={part}", *QUIET))
        table = str(Path(directory) / "table")
        session.range(100).selectExpr("id AS key", "id % 4 AS part").write.format("delta").save(
            table
        )
        session.sql(f"SELECT count(*), sum(key) FROM delta.`{table}` WHERE part > 1").collect()  # noqa: S608 - ours
        frame = session.read.format("delta").load(table)
        frame.mapInArrow(lambda batches: batches, frame.schema).count()
        jvm: Any = session.sparkContext._gateway  # noqa: SLF001 - nothing else has the process
        session.stop()
        jvm.shutdown()
        jvm.proc.stdin.close()  # the JVM ends when its input does
        try:
            jvm.proc.wait(SECONDS)
        except subprocess.TimeoutExpired:
            jvm.proc.kill()
            return
        with suppress(FileNotFoundError):  # the JVM may have made no archive
            part.replace(archive)


if __name__ == "__main__":
    make_class_archive()
