"""Standard output of a command. A closed pipe does not stop it.

`statelake migrate ... | head -1` would else stop half way, and `statelake check ... | head` would
say yes where the answer is no.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Heard(io.FileIO):
    """A file of which the rest is lost when its reader leaves."""

    def write(self, data: Any) -> int:
        """Write, or lose it."""
        try:
            return super().write(data)
        except BrokenPipeError:
            lose(self.fileno())
            return len(data)


def lose(number: int) -> None:
    """Let what is printed to a descriptor go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


def print_to_the_end() -> None:
    """Open the standard files that are closed, as others would get their numbers; lose no errors.

    What a reader does not want any more is lost, and no error.
    """
    for number in range(3):
        if not _is_open(number):
            lose(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        if before is not None:
            before.flush()
        text = io.TextIOWrapper(
            io.BufferedWriter(_Heard(number, "w", closefd=False)),
            encoding=getattr(before, "encoding", "utf-8"),
            errors=getattr(before, "errors", "backslashreplace"),
            line_buffering=getattr(before, "line_buffering", False),
        )
        setattr(sys, name, text)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def cut_off() -> None:
    """Let a reader that leaves be an error again, for what would be long, and says no more."""
    if sys.__stdout__ is not None:
        sys.stdout = sys.__stdout__
