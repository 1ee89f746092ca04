"""Java as the tests run it: many programs, each for seconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statelake.pipelines.java import java_command

__all__ = ["QUICK", "java"]

# the better compiler takes more than it gives, and so does verification
QUICK = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)  # fmt: skip


def java(heap: str, path: Iterable[str | Path], *words: str) -> list[str]:
    """The command that runs Java: its heap, its class path, its options and its class."""
    return [java_command(), f"-Xmx{heap}", *QUICK, "-cp", ":".join(map(str, path)), *words]
