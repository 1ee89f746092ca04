"""`statelake ui` as its users start it: a process, until it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["served"]

PROGRAM = "from statelake.pipelines.cli.main import main; main()"


@contextmanager
def served(
    *words: str | Path, temporary: Path | None = None, program: str = PROGRAM
) -> Iterator[str]:
    """Serve pages; it ends well, and says nothing but its address.

    Args:
        words: What the command is given.
        temporary: Where its temporary files go.
        program: What runs the command.

    Yields:
        The address, with the token.
    """
    own = {} if temporary is None else {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, "ui", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **own},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r"open (http://127\.0\.0\.1:\d+/\?token=\S+)\n", said)
            assert found is not None, said
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("", "", 0)
