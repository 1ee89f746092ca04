"""Servers of the tests end with the process that started them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, signal
from tests.integration.jvm_server import JvmServer
server = JvmServer("ends-")
server._start(["sleep", "600"])
print(server._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def runs(process: int) -> bool:
    """Whether it has not ended; who has ended may wait for its parent."""
    try:
        status = Path(f"/proc/{process}/stat").read_text("ascii")
    except FileNotFoundError:
        return False
    return status.rpartition(") ")[2][0] != "Z"


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv, which Linux has")
def test_a_server_ends_with_a_process_that_is_killed_at_once(tmp_path: Path) -> None:
    """It would run on, and take time from the tests of others."""
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(4)
    ]  # fmt: skip
    servers = [int(starter.communicate()[0]) for starter in starters]
    for _ in range(600):
        if any(runs(server) for server in servers):
            time.sleep(0.05)
    assert not any(runs(server) for server in servers)
