"""The types of a job that has never run: its JAR is started in real Flink, and reads nothing.

Java and the user's Flink are needed, and the job's own `main` runs in a process here: run only JARs
that you would deploy.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from statelake.pipelines.operations.java_programs import flink_libraries, run_program
from statelake.state_core.errors import DeclarationError, MissingFileError
from statelake.state_core.formats import open_snapshot
from statelake.state_core.formats.layout.state_types import StateTypes

PROGRAM = ("JobStates.java", "Silent.java")
MANIFEST = "META-INF/MANIFEST.MF"
MAX_MANIFEST_BYTES = 1 << 20
ENTRY_CLASSES = ("program-class", "Main-Class")


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
    libraries = flink_libraries(flink_home)
    path = Path(jar)
    entry = entry_class or _entry_class(path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        words = [os.fspath(path.absolute()), entry, Path(directory).as_uri(), f"{timeout:.0f}"]
        made = run_program(
            PROGRAM, libraries, [*words, *arguments], directory, timeout=timeout, place=entry,
            problem="the job can't be started",
            remedy="the job must start in this Flink: name its own, --flink-home, and its"
            " arguments, --arg",
        ).removeprefix("file:")  # fmt: skip
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
