"""The JARs that Delta needs in Spark, resolved once and then read from disk.

PySpark ships Apache Ivy. Asked directly it resolves from the public registry into a cache of our
own, so it neither needs Maven nor looks into `~/.m2` (where a POM without its JAR, as Maven leaves
them, would make it fail).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyspark

from state_core.errors import StateError

__all__ = ["JavaError", "cache_directory", "delta_jars", "require_java", "resolve_jars"]

DELTA_VERSION = "4.4.0"
DELTA_JARS = {
    "delta-spark_4.2_2.13": "io.delta",
    "delta-storage": "io.delta",
}
MINIMUM_JAVA = 17


class JavaError(StateError):
    """There is no usable Java."""


def cache_directory() -> Path:
    """Where JARs are kept: `STATELAKE_CACHE`, or below the user's cache directory."""
    given = os.environ.get("STATELAKE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "statelake"


def delta_jars() -> list[str]:
    """Paths of Delta's JARs, downloaded at the first call.

    Raises:
        JavaError: There is no Java 17.
        StateError: They can't be downloaded.
    """
    require_java()
    target = cache_directory() / "jars" / f"delta-{DELTA_VERSION}"
    wanted = [target / f"{name}-{DELTA_VERSION}.jar" for name in DELTA_JARS]
    for path, (name, organisation) in zip(wanted, DELTA_JARS.items(), strict=True):
        if not path.is_file():
            resolve_jars([f"{organisation}:{name}:{DELTA_VERSION}"], target, transitive=False)
    return [str(path) for path in wanted]


def resolve_jars(coordinates: list[str], target: Path, *, transitive: bool) -> None:
    """Download JARs by their Maven coordinates.

    Args:
        coordinates: `organisation:name:version`, one by one.
        target: The directory that they are to be in.
        transitive: Whether what they depend on comes too.

    Raises:
        StateError: One can't be had.
    """
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    for one in coordinates:
        command = [
            java_command(), "-jar", str(ivy),
            "-cache", str(cache_directory() / "ivy"),
            "-confs", "default",
            "-dependency", *one.split(":"),
            "-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]",
            "-warn",
        ]  # fmt: skip
        if not transitive:
            command.append("-notransitive")
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise StateError(
                f"{one} can't be downloaded ({' '.join(last)})",
                remedy="check the network to the registry of Java packages, and try again",
            )


def java_command() -> str:
    """The `java` to run: of `JAVA_HOME`, or on the path; empty if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java") or ""


def require_java() -> None:
    """Make sure of Java 17 or later.

    Raises:
        JavaError: There is none, or it is older.
    """
    command = java_command()
    if not command:
        raise JavaError(
            "no Java found, and Spark needs one",
            remedy="install Java 17 and put it on the PATH, or set JAVA_HOME",
        )
    text = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    first = text.stderr.partition('"')[2].partition('"')[0]
    major = first.split(".")[0]
    if not major.isdigit() or int(major) < MINIMUM_JAVA:
        raise JavaError(
            f"Java {first or '?'} at {command}, and Spark 4.2 needs {MINIMUM_JAVA} or later",
            remedy="install Java 17 and put it on the PATH, or set JAVA_HOME",
        )
