"""The JARs that Delta needs in Spark, resolved once and then read from disk.

PySpark ships Apache Ivy. Called directly it resolves from the public registry into statelake's own
cache, so it neither needs Maven nor reads `~/.m2` (where a POM without its JAR, as Maven leaves
them, would make it fail).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from statelake.state_core.errors import StateError
from statelake.state_core.extras import require_extra

DELTA_VERSION = "4.4.0"
DELTA_JARS = tuple(
    f"io.delta:{name}:{DELTA_VERSION}" for name in ("delta-spark_4.2_2.13", "delta-storage")
)
MINIMUM_JAVA = 17
RETRY_SECONDS = (2.0, 10.0)
VERSION_SECONDS, DOWNLOAD_SECONDS = 60.0, 1800.0
# for JARs without their dependencies: Ivy requests no POM
WITHOUT_POMS = (
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true" usepoms="false"/>'
    "</resolvers></ivysettings>"
)


class JavaError(StateError):
    """Java is missing, or too old."""


def cache_directory() -> Path:
    """Return the directory of JARs: `STATELAKE_CACHE`, or below the user's cache directory."""
    given = os.environ.get("STATELAKE_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "statelake"


def make_cache(directory: Path | None = None) -> None:
    """Make the directory of JARs, or one below it.

    Raises:
        StateError: It can't be written.
    """
    for each in (cache_directory(), directory or cache_directory()):
        reason = ""
        try:
            each.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f" ({error.strerror})"
        if reason or not os.access(each, os.W_OK | os.X_OK):
            raise StateError(
                f"the cache can't be written{reason}", place=str(each),
                remedy="name another directory, STATELAKE_CACHE",
            )  # fmt: skip


def delta_jars() -> list[str]:
    """Return the paths of Delta's JARs, downloaded at the first call.

    Raises:
        JavaError: There is no Java 17.
        StateError: The JARs can't be downloaded.
    """
    require_java()
    target = resolve_jars(f"jars/delta-{DELTA_VERSION}", alone=DELTA_JARS)
    return [str(path) for path in sorted(target.glob("*.jar"))]


def resolve_jars(name: str, whole: Iterable[str] = (), alone: Iterable[str] = ()) -> Path:
    """Return a directory of JARs by their Maven coordinates, downloaded at the first call.

    Two processes can't share Ivy's own cache at once, so that only one downloads at a time; the
    directory appears when it is complete.

    Args:
        name: The name of the JARs' directory below the cache.
        whole: `organisation:name:version` of JARs with all their dependencies.
        alone: Coordinates of JARs without their dependencies.

    Returns:
        The directory.

    Raises:
        StateError: The JARs can't be downloaded.
    """
    target = cache_directory() / name
    if target.is_dir():
        return target
    make_cache(target.parent)
    require_extra("spark")
    from filelock import FileLock  # noqa: PLC0415 - of that extra

    with FileLock(cache_directory() / "ivy.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, suffix=".part") as part:
                modules = list(whole)
                _retrieve(_ivy_module(modules, alone), Path(part), with_poms=bool(modules))
                (Path(part) / "jars").rename(target)
    return target


def _ivy_module(whole: Iterable[str], alone: Iterable[str]) -> str:
    """Return Ivy's `ivy.xml` with the JARs to resolve."""
    modules = [(module, "true") for module in whole] + [(module, "false") for module in alone]
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
    import pyspark  # noqa: PLC0415 - only here: who names a Flink needs none

    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    ivy_file, settings = part / "ivy.xml", part / "ivysettings.xml"
    ivy_file.write_text(module, "utf-8")
    settings.write_text(WITHOUT_POMS, "utf-8")
    # JARs resolved without POMs have a cache of their own, where they seem to have no dependencies
    cache = str(cache_directory() / ("ivy" if with_poms else "ivy-alone"))
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


def java_command() -> str:
    """Return the `java` of `JAVA_HOME` or of the PATH; empty without one."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java") or ""


def run_java(
    words: Sequence[str], *, timeout: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Java in a process group of its own, of which nothing is left if this is interrupted.

    Args:
        words: What stands behind `java`.
        timeout: The seconds that it has.
        environment: Its environment; that of this process by default.

    Raises:
        subprocess.TimeoutExpired: It has not ended in time; it was killed.
    """
    command = [java_command(), *words]
    with subprocess.Popen(  # noqa: S603 - the user's own Java
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="replace", env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, told = process.communicate(timeout=timeout)
        except BaseException:  # also Ctrl-C
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, told)


def require_java(user: str = "Spark") -> None:
    """Require Java 17 or later.

    Args:
        user: What needs it, for messages.

    Raises:
        JavaError: There is no Java, or it is older.
    """
    command = java_command()
    if not command:
        raise JavaError(
            f"no Java found, and {user} needs one",
            remedy="install Java 17 and put it on the PATH, or set JAVA_HOME",
        )
    try:
        text = run_java(["-version"], timeout=VERSION_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise JavaError(
            f"{command} -version has not ended in {VERSION_SECONDS:.0f} s",
            remedy="put a Java that runs on the PATH, or set JAVA_HOME",
        ) from error
    first = text.stderr.partition('"')[2].partition('"')[0]
    major = first.split(".")[0]
    if not major.isdigit() or int(major) < MINIMUM_JAVA:
        raise JavaError(
            f"Java {first or '?'} at {command}, and {user} needs {MINIMUM_JAVA} or later",
            remedy="install Java 17 and put it on the PATH, or set JAVA_HOME",
        )
