"""The JARs that Delta needs in Spark, resolved once and then read from disk.

PySpark ships Apache Ivy. Called directly it resolves from the public registry into statelake's own
cache, so it neither needs Maven nor reads `~/.m2` (where a POM without its JAR, as Maven leaves
them, would make it fail).
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pyspark
from filelock import FileLock

from statelake.pipelines.java import (
    JavaError,
    cache_directory,
    java_command,
    make_cache,
    require_java,
    run_java,
)
from statelake.state_core.errors import StateError

__all__ = [
    "JavaError",
    "cache_directory",
    "delta_jars",
    "java_command",
    "require_java",
    "resolve_jars",
]

DELTA_VERSION = "4.4.0"
DELTA_JARS = tuple(
    f"io.delta:{name}:{DELTA_VERSION}" for name in ("delta-spark_4.2_2.13", "delta-storage")
)
# SHA-256 of what `sha256sum *.jar` prints: of what was tested, whatever the registry says
DELTA_DIGEST = "561c6c5ffbdbc2ed9f5b81639beefc811c126c81eee8beacd3c0a351be20b83a"
RETRY_SECONDS = (2.0, 10.0)
DOWNLOAD_SECONDS = 1800.0
IVY_ALONE = "ivy-alone"  # Ivy's own cache of JARs without their dependencies
# for JARs without their dependencies: Ivy requests no POM
WITHOUT_POMS = (
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true" usepoms="false"/>'
    "</resolvers></ivysettings>"
)


def delta_jars() -> list[str]:
    """Return the paths of Delta's JARs, downloaded at the first call.

    Raises:
        JavaError: There is no Java 17.
        StateError: The JARs can't be downloaded, or are others.
    """
    require_java()
    target = resolve_jars(f"jars/delta-{DELTA_VERSION}", alone=DELTA_JARS, digest=DELTA_DIGEST)
    return [str(path) for path in sorted(target.glob("*.jar"))]


def resolve_jars(
    name: str, with_others: Iterable[str] = (), alone: Iterable[str] = (), *, digest: str = ""
) -> Path:
    """Return a directory of JARs by their Maven coordinates, downloaded at the first call.

    Two processes can't share Ivy's own cache at once, so that only one downloads at a time; the
    directory appears when it is complete.

    Args:
        name: The name of the JARs' directory below the cache.
        with_others: `organisation:name:version` of JARs with all their dependencies.
        alone: Coordinates of JARs without their dependencies.
        digest: SHA-256 of the list that `sha256sum *.jar` prints; empty if it is not known.

    Returns:
        The directory.

    Raises:
        StateError: The JARs can't be downloaded, or are others: then nothing is kept.
    """
    target = cache_directory() / name
    if target.is_dir():
        return target
    make_cache(target.parent)
    with FileLock(cache_directory() / "ivy.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, suffix=".part") as part:
                modules = list(with_others)
                _retrieve(_ivy_module(modules, alone), Path(part), with_poms=bool(modules))
                if digest:
                    _check_digest(Path(part) / "jars", digest, target)
                (Path(part) / "jars").rename(target)
    return target


def _check_digest(jars: Path, digest: str, target: Path) -> None:
    """Require that JARs are known to the byte; otherwise Ivy's own copies go, too."""
    listed = "".join(
        f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n"
        for jar in sorted(jars.glob("*.jar"))
    )
    actual = hashlib.sha256(listed.encode()).hexdigest()
    if actual == digest:
        return
    shutil.rmtree(cache_directory() / IVY_ALONE, ignore_errors=True)
    raise StateError(
        f"the downloaded JARs are not those that statelake was tested with (SHA-256 {actual}, not"
        f" {digest}); nothing was kept",
        place=str(target),
        remedy="see whether somebody changes what comes from the registry of Java packages, and try"
        " again",
    )


def _ivy_module(with_others: Iterable[str], alone: Iterable[str]) -> str:
    """Return Ivy's `ivy.xml` with the JARs to resolve."""
    modules = [(module, "true") for module in with_others] + [(module, "false") for module in alone]
    lines = [
        '<dependency org="{}" name="{}" rev="{}" transitive="{}" conf="jars->default"/>'.format(
            *module.split(":"), transitive
        )
        for module, transitive in modules
    ]
    return "\n".join(
        [
            '<ivy-module version="2.0"><info organisation="statelake" module="jars"/>',
            '<configurations><conf name="jars"/></configurations><dependencies>',
            *lines,
            "</dependencies></ivy-module>",
        ]
    )


def _retrieve(module: str, part: Path, *, with_poms: bool) -> None:
    """Run Ivy, which puts all JARs into `part/jars`; up to three times, if a registry fails."""
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    ivy_file, settings = part / "ivy.xml", part / "ivysettings.xml"
    ivy_file.write_text(module, "utf-8")
    settings.write_text(WITHOUT_POMS, "utf-8")
    # JARs resolved without POMs have a cache of their own, where they seem to have no dependencies
    cache = str(cache_directory() / ("ivy" if with_poms else IVY_ALONE))
    words = [
        "-jar", str(ivy), "-cache", cache,
        *(() if with_poms else ("-settings", str(settings))),
        "-ivy", str(ivy_file), "-confs", "jars",
        "-retrieve", f"{part}/jars/[artifact]-[revision](-[classifier]).[ext]", "-warn",
    ]  # fmt: skip
    for pause in (*RETRY_SECONDS, None):
        try:
            done = run_java(words, timeout=DOWNLOAD_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise StateError(
                f"JARs are not downloaded in {DOWNLOAD_SECONDS / 60:.0f} min",
                remedy="check the network to the registry of Java packages, and try again",
            ) from error
        if not done.returncode:
            return
        shutil.rmtree(part / "jars", ignore_errors=True)
        if pause is not None:
            time.sleep(pause)
    output = (done.stdout + done.stderr).splitlines()
    missing = [line.strip(" :\t") for line in output if "not found" in line] or output[-1:]
    raise StateError(
        f"JARs can't be downloaded: {'; '.join(missing[:5])}",
        remedy="check the network to the registry of Java packages, and try again",
    )
