"""A `java` that does what a script of the shell says, and one that compiles SQL to known plans."""

from __future__ import annotations

from pathlib import Path

__all__ = ["VERSION", "fake_compiler", "fake_flink", "fake_java", "sql_script"]

VERSION = 'test "$1" = -version && { echo \'openjdk version "17.0.9"\' >&2; exit 0; }\n'
# the words behind: SqlScript compile REAL STATEMENTS PLAN
COMPILE = """
case "$*" in *com.sun.tools.javac.Main*) exit 0;; esac
for word; do before=$last; last=$word; done
plan=$(tr '\\0' '\\n' < "$before" | sed -n "s/^SET 'plan' = '\\(.*\\)'$/\\1/p")
if test -e "$plan"; then cat "$plan" > "$last"; echo "PLAN $last"; exit; fi
echo "PROBLEM line 1: $(tr '\\0\\n' '  ' < "$before")"; exit 1
"""


def fake_java(folder: Path, script: str) -> Path:
    """A `java` that does what the script says; its home."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return folder


def fake_compiler(folder: Path) -> Path:
    """A `java` that compiles what `sql_script` writes; of others it repeats all in its message."""
    return fake_java(folder, f"{VERSION}echo \"$@\" >> '{folder}/ran'\n{COMPILE}")


def fake_flink(to: Path, *jars: str) -> Path:
    """A directory of Flink that is enough to be named."""
    (to / "lib").mkdir(parents=True)
    for name in jars or ("flink-dist-2.3.0.jar", "flink-table-planner-loader-2.3.0.jar"):
        (to / "lib" / name).touch()
    return to


def sql_script(to: Path, plan: Path) -> Path:
    """A script of which `fake_compiler` makes that plan."""
    to.write_text(f"SET 'plan' = '{plan}';")
    return to
