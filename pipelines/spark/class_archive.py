"""A class data archive of Spark's classes, which makes Spark's start shorter.

`python -m statelake.pipelines.spark.class_archiving` makes that file (190 MB, a minute), once for
each version of Java, Spark and Delta. Without a usable file Spark starts as usual.

Source: "Class Data Sharing" in the JDK's guide, `-XX:ArchiveClassesAtExit`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from statelake.pipelines.java import cache_directory, java_command
from statelake.pipelines.spark.jars import delta_jars

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
