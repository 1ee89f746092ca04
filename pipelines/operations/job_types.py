"""The types of a job that has never run: its JAR is started in real Flink, and reads nothing.

Java and the user's Flink are needed, and the job's own `main` runs in a process here: run only JARs
that you would deploy.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from statelake.pipelines.spark.jars import java_command, require_java
from statelake.state_core.errors import DeclarationError, FlinkJobError, MissingFileError
from statelake.state_core.formats import open_snapshot
from statelake.state_core.formats.layout.state_types import StateTypes

PROGRAM = Path(__file__).with_name("JobStates.java")
MANIFEST = "META-INF/MANIFEST.MF"
MAX_MANIFEST_BYTES = 1 << 20
ENTRY_CLASSES = ("program-class", "Main-Class")
START_SECONDS = 60  # of a JVM that compiles the program, beside the job's own
COMPILER = "jdk.compiler/com.sun.tools.javac.Main"
FOUND, PROBLEM = "SAVEPOINT ", "PROBLEM "
OPENS = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")
)


def job_types(
    jar: str | os.PathLike[str],
    flink_home: str | os.PathLike[str],
    *,
    entry_class: str = "",
    arguments: Sequence[str] = (),
    operator: str | Sequence[str] = (),
    timeout: float = 60.0,
) -> StateTypes:
    """Return the types of the states that a job registers when it starts.

    The job's `main` is run here, by Java, and what it submits first runs in one process with silent
    sources, and sinks that discard. Give only a JAR that you would deploy. States that are
    registered later, at a record, are not seen.

    Args:
        jar: The job's JAR.
        flink_home: The directory of Flink, whose `lib` has its JARs.
        entry_class: The class with `main`; by default that of the JAR's manifest.
        arguments: The program's arguments.
        operator: Only these operators, by uid or id.
        timeout: The seconds in which the job must start.

    Raises:
        MissingFileError: There is no such JAR, or no Flink.
        DeclarationError: The JAR names no class with `main`.
        FlinkJobError: The job can't be started.
    """
    require_java()
    path = Path(jar)
    entry = entry_class or _entry_class(path)
    libraries = sorted((Path(flink_home) / "lib").glob("*.jar"))
    if not libraries:
        raise MissingFileError(
            "no JARs of Flink in its `lib`", place=os.fspath(flink_home),
            remedy="name the directory of a Flink distribution, --flink-home",
        )  # fmt: skip
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        words = [os.fspath(path.absolute()), entry, Path(directory).as_uri(), f"{timeout:.0f}"]
        made = _run(libraries, [*words, *arguments], directory, timeout)
        wanted = [operator] if isinstance(operator, str) else operator
        return open_snapshot(made).types(wanted)


def _entry_class(jar: Path) -> str:
    """Return the class with `main` that a JAR's manifest names."""
    try:
        with zipfile.ZipFile(jar) as archive, archive.open(MANIFEST) as file:
            lines = file.read(MAX_MANIFEST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise MissingFileError(f"it can't be read ({error.strerror})", place=str(jar)) from error
    except (KeyError, zipfile.BadZipFile):
        lines = []
    names = dict(line.split(": ", 1) for line in lines if ": " in line)
    for name in ENTRY_CLASSES:
        if names.get(name):
            return names[name].strip()
    raise DeclarationError(
        "its manifest names no class with `main`", place=str(jar),
        remedy="name it, --entry-class com.acme.Job",
    )  # fmt: skip


def _run(libraries: Sequence[Path], words: Sequence[str], directory: str, timeout: float) -> str:
    """Run the program, and return where the savepoint is that it took."""
    classes = Path(directory) / "classes"
    path = os.pathsep.join(map(str, libraries))
    compiler = [java_command(), "-m", COMPILER, "-nowarn", "-cp", path, "-d", str(classes)]
    compiled = subprocess.run(  # noqa: S603 - the user's own Java and Flink
        [*compiler, str(PROGRAM)], capture_output=True, text=True, check=False
    )
    if compiled.returncode:
        raise FlinkJobError(
            f"it can't be made ready for this Flink: {compiled.stderr.strip()[-500:]}",
            place=str(libraries[0].parent),
            remedy="it takes a JDK, not a JRE, and Flink 1.19 or later",
        )
    command = [
        java_command(), f"-Djava.io.tmpdir={directory}", "-Xmx1g", *OPENS,
        "-cp", os.pathsep.join((str(classes), path)), PROGRAM.stem, *words,
    ]  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java, Flink and JAR
            command, capture_output=True, text=True, encoding="utf-8", errors="replace",
            timeout=timeout + START_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise FlinkJobError(
            f"it has not started in {timeout:.0f} s", place=words[1],
            remedy="give it longer, --timeout; sources and sinks that are not of Flink's new"
            " interfaces are started as they are, and may wait for their servers",
        ) from error  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith(FOUND):
            return line.removeprefix(FOUND).removeprefix("file:")
    problems = [line for line in done.stdout.splitlines() if line.startswith(PROBLEM)]
    why = problems[-1].removeprefix(PROBLEM) if problems else done.stderr.strip()[-500:]
    raise FlinkJobError(
        f"the job can't be started: {why}", place=words[1],
        remedy="the job must start in this Flink: name its own, --flink-home, and its arguments,"
        " --arg",
    )  # fmt: skip
