"""Real Flink: its JARs by their Maven coordinates, and our jobs compiled against them.

They come by the Ivy that PySpark ships, into our own cache: no Maven is needed, and nobody's
`~/.m2` is touched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from statelake.pipelines.spark.jars import cache_directory, java_command, require_java, resolve_jars

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


def flink_jars(version: str, extra: Iterable[str] = ()) -> list[Path]:
    """The JARs of one version of Flink, downloaded at the first call.

    Args:
        version: As it stands on Maven Central.
        extra: Modules beside those that every job here needs.
    """
    require_java()
    name = "-".join(["flink", version, *extra])
    modules = [f"org.apache.flink:{module}:{version}" for module in (*MODULES, *extra)]
    return sorted(resolve_jars(name, modules).glob("*.jar"))


def flink_home(version: str, to: Path, extra: Iterable[str] = ()) -> Path:
    """A directory of Flink, with the JARs of one version in its `lib`, and a planner in `opt`."""
    for jar in flink_jars(version, extra):
        place = to / ("opt" if "planner-loader" in jar.name else "lib") / jar.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(jar)
    return to


def compiled(
    sources: Iterable[Path],
    jars: Iterable[Path],
    release: str,
    services: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """The directory with the classes of some sources, compiled once for each content.

    Args:
        sources: Java files, without packages.
        jars: What they need.
        release: Names what they are compiled against.
        services: By interface, the classes that Java finds for it.
    """
    files = sorted(sources)
    digest = hashlib.sha256(
        b"".join(file.read_bytes() for file in files) + repr(sorted(services.items())).encode()
    ).hexdigest()[:16]
    target = cache_directory() / f"classes-{release}-{digest}"
    if target.is_dir():
        return target
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.part")
    part.mkdir(parents=True)
    compiler = str(Path(java_command()).with_name("javac")) if os.environ.get("JAVA_HOME") else ""
    javac = compiler if compiler and Path(compiler).exists() else shutil.which("javac")
    if not javac:
        raise RuntimeError("no javac: the tests with real Flink need a JDK 17, not only a JRE")
    command = [javac, "-nowarn", "-cp", ":".join(map(str, jars)), "-d", str(part)]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(part)
        raise RuntimeError(f"the jobs do not compile against {release}:\n{done.stderr[-4000:]}")
    for interface, classes in services.items():
        file = part / "META-INF" / "services" / interface
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(classes)
    try:
        part.rename(target)
    except OSError:
        # Another process compiled the same classes meanwhile: a directory with files stays.
        if not target.is_dir():
            raise
        shutil.rmtree(part)
    return target
