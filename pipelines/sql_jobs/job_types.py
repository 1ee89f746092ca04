"""The types of a job that has never run: its JAR is started in real Flink, and reads nothing.

Java and the user's Flink are needed, and the job's own `main` runs in a process here: run only JARs
that you would deploy.
"""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from statelake.pipelines.sql_jobs.java_programs import flink_libraries, run_program
from statelake.state_core.errors import DeclarationError, MissingFileError
from statelake.state_core.formats.layout.state_types import StateTypes
from statelake.state_core.formats.reader import open_snapshot

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
    entry = entry_class or manifest_class(path)
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


def main_attributes(manifest: bytes) -> dict[str, str]:
    """Return the attributes of a manifest's main section, by their names in lower case.

    Args:
        manifest: The file: a line of more than 72 bytes goes on behind a space in the next.
    """
    lines = re.split(rb"\r\n|\n|\r", re.sub(rb"(\r\n|\n|\r) ", b"", manifest))
    section = takewhile(bool, lines)
    pairs = (line.decode("utf-8", "replace").partition(":") for line in section)
    return {name.lower(): value.strip() for name, separator, value in pairs if separator}


def manifest_class(jar: Path) -> str:
    """Return the class with `main` that a JAR's manifest names."""
    try:
        opened = jar.open("rb")
    except OSError as error:
        raise MissingFileError(f"it can't be read ({error.strerror})", place=str(jar)) from error
    try:
        with opened, zipfile.ZipFile(opened) as archive, archive.open(MANIFEST) as file:
            manifest = file.read(MAX_MANIFEST_BYTES)
    except KeyError:
        manifest = b""
    except Exception as error:  # of zlib, lzma and others
        raise DeclarationError(
            f"it is no JAR, or damaged: {error}", place=str(jar), remedy="build it again"
        ) from error
    names = main_attributes(manifest)
    for name in ENTRY_CLASSES:
        if names.get(name.lower()):
            return names[name.lower()]
    raise DeclarationError(
        "its manifest names no class with `main`", place=str(jar),
        remedy="name it, --entry-class com.acme.Job",
    )  # fmt: skip
