"""What is called to see that the limits hold: each goes beyond one of them."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

__all__ = ["allocate", "ask_for", "fill_the_disk", "leave_behind", "panic", "print_words", "sleep"]

BLOCK = 64 << 20


def print_words(words: list[str]) -> None:
    """Print them, and leave with the first as exit code."""
    sys.stdout.write(" ".join(words))
    sys.stderr.write("beside")
    sys.exit(int(words[0]))


def ask_for(words: list[str]) -> None:
    """Ask for so many bytes at once, and touch none."""
    np.empty(int(words[0]), np.uint8)


def allocate(words: list[str]) -> None:
    """Fill so many bytes of memory that no limit of this process counts: it is shared."""
    memory = mmap.mmap(-1, int(words[0]))
    for at in range(0, int(words[0]), BLOCK):
        memory[at : at + BLOCK] = b"\1" * BLOCK


def sleep(words: list[str]) -> None:
    """Wait so many seconds."""
    time.sleep(float(words[0]))


def panic(_: list[str]) -> None:
    """End as a library does that finds itself broken."""
    ctypes.CDLL(None).abort()


def leave_behind(words: list[str]) -> None:
    """Start a process, print its id, and end before it."""
    child = subprocess.Popen(["sleep", words[0]])
    sys.stdout.write(str(child.pid))


def fill_the_disk(words: list[str]) -> None:
    """Write so many bytes into one file."""
    with Path("filled").open("wb") as file:
        file.truncate(int(words[0]))
