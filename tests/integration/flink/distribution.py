"""Real Flink: its JARs by their Maven coordinates, and our jobs compiled against them.

They are resolved by the Ivy that PySpark ships, into statelake's own cache: no Maven is needed, and
nobody's `~/.m2` is touched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyspark

from pipelines.spark.jars import cache_directory, java_command, require_java

JAVA_SOURCES = Path(__file__).parent / "java"
MODULES = (
    "flink-clients",
    "flink-streaming-java",
    "flink-statebackend-rocksdb",
    "flink-state-processor-api",
)
OPENS = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")
)
IVY = """<ivy-module version="2.0">
  <info organisation="statelake" module="flink-{version}"/>
  <configurations><conf name="flink"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""
DEPENDENCY = '<dependency org="org.apache.flink" name="{}" rev="{}" conf="flink->default"/>'


def flink_jars(version: str, extra: Iterable[str] = ()) -> list[Path]:
    """The JARs of one version of Flink, downloaded at the first call.

    Args:
        version: As it stands on Maven Central.
        extra: Modules beside those that every job here needs.
    """
    require_java()
    modules = (*MODULES, *extra)
    name = "-".join(["flink", version, *extra])
    target = cache_directory() / name
    if not target.is_dir():
        _resolve(version, modules, target)
    return sorted(target.glob("*.jar"))


def _resolve(version: str, modules: Iterable[str], target: Path) -> None:
    """Let Ivy resolve into a directory beside the target, which then appears whole."""
    cache = cache_directory()
    part = cache / f"{target.name}.{uuid.uuid4().hex[:8]}.part"
    part.mkdir(parents=True)
    settings = part / "ivy.xml"
    dependencies = "".join(DEPENDENCY.format(module, version) for module in modules)
    settings.write_text(IVY.format(version=version, dependencies=dependencies), "utf-8")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    done = subprocess.run(
        [
            java_command(), "-jar", str(ivy), "-cache", str(cache / "ivy"),
            "-ivy", str(settings), "-confs", "flink",
            "-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]", "-warn",
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        shutil.rmtree(part)
        last = " ".join((done.stdout + done.stderr).split()[-40:])
        raise RuntimeError(f"Flink {version} can't be downloaded: {last}")
    if target.is_dir():
        shutil.rmtree(part)
    else:
        part.rename(target)


def compiled(sources: Iterable[Path], jars: Iterable[Path], release: str) -> Path:
    """The directory with the classes of some sources, compiled once for each content.

    Args:
        sources: Java files, without packages.
        jars: What they need.
        release: Names what they are compiled against.
    """
    files = sorted(sources)
    digest = hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()[:16]
    target = cache_directory() / f"classes-{release}-{digest}"
    if target.is_dir():
        return target
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir(parents=True)
    compiler = str(Path(java_command()).with_name("javac")) if os.environ.get("JAVA_HOME") else ""
    found = compiler if compiler and Path(compiler).exists() else shutil.which("javac")
    if not found:
        raise RuntimeError("no javac: the tests with real Flink need a JDK 17, not only a JRE")
    command = [found, "-nowarn", "-cp", ":".join(map(str, jars)), "-d", str(part)]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(part)
        raise RuntimeError(f"the jobs do not compile against {release}:\n{done.stderr[-4000:]}")
    if target.is_dir():
        shutil.rmtree(part)
    else:
        part.rename(target)
    return target
