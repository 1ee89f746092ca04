"""The user's Java: which one it is, how it is run, and the cache of what it needs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from statelake.state_core.errors import StateError

MINIMUM_JAVA = 17
VERSION_SECONDS = 60.0


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
            printed, errors = process.communicate(timeout=timeout)
        except BaseException:  # also Ctrl-C
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, errors)


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
