"""The command, while somebody exchanges a directory for a link as fast as can be."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

from statelake.pipelines.cli.main import main as command

__all__ = ["main"]

EXCHANGE, HERE = 2, -100  # of renameat2: swap both names at once
ROUNDS, SECONDS = 30, 1.0
ALLOWED = {0, 1, 3}  # done, faults were told, refused


def main(words: list[str]) -> None:
    """Run a command again and again, and leave with 0 if it always ended as it may.

    Args:
        words: Two paths that are exchanged, and the command's; `ROUND` in them is the number of
            the round.
    """
    first, second, *rest = words
    child = os.fork()
    if child == 0:
        exchange(first.encode(), second.encode())
    codes = []
    ends = time.monotonic() + SECONDS
    try:
        for number in range(ROUNDS):
            codes.append(run([word.replace("ROUND", str(number)) for word in rest]))
            if time.monotonic() > ends:
                break
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not set(codes) <= ALLOWED:
        sys.exit(f"exit codes {codes}")


def run(words: list[str]) -> int:
    """The command's exit code."""
    try:
        command(words)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def exchange(first: bytes, second: bytes) -> None:
    """Exchange two paths for ever."""
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    while rename(HERE, first, HERE, second, EXCHANGE) == 0:
        pass
    os._exit(1)
