"""Make the archive of Spark's classes: `python -m statelake.pipelines.spark.class_archiving`."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from statelake.pipelines.spark.class_archive import QUIET, class_archive
from statelake.pipelines.spark.session import open_session

SECONDS = 300


def make_class_archive() -> None:
    """Make a JVM of Spark archive its classes after it has read and written a table."""
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
        jvm: Any = session.sparkContext._gateway  # noqa: SLF001 - nothing public has it
        session.stop()
        jvm.shutdown()
        jvm.proc.stdin.close()  # the JVM ends at the end of its input
        try:
            jvm.proc.wait(SECONDS)
        except subprocess.TimeoutExpired:
            jvm.proc.kill()
            return
        with suppress(FileNotFoundError):  # the JVM may not have made an archive
            part.replace(archive)


if __name__ == "__main__":
    make_class_archive()
