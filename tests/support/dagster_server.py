"""`dagster dev` with a home of its own: webserver, daemon, code server, as a user starts them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["dagster_dev"]

START_SECONDS = 180
STOP_SECONDS = 20
INSTANCE = """
telemetry: {enabled: false}
nux: {enabled: false}
concurrency:
  runs: {max_concurrent_runs: CONCURRENT}
  pools: {default_limit: 1, granularity: run}
"""


@contextmanager
def dagster_dev(
    project: Path, home: Path, *, concurrent_runs: int = 1, **environment: str
) -> Iterator[str]:
    """Dagster over a project: its address.

    Args:
        project: The directory in which a user would call `dagster dev`.
        home: Made for it; it has the log, too.
        concurrent_runs: So many at a time.
        environment: More variables.

    Raises:
        TimeoutError: It does not answer; the message is the end of its log.
    """
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE.replace("CONCURRENT", str(concurrent_runs)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = home / "dev.log"
    root = Path(__file__).resolve().parents[2]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "dagster", "dev", "--port", str(port)],
            cwd=project, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **environment, "DAGSTER_HOME": str(home),
                 "PYTHONPATH": os.pathsep.join([str(root), str(project)])},
        )  # fmt: skip
    try:
        _await_answer(f"http://127.0.0.1:{port}/server_info", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _end(process)


def _await_answer(address: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if _answers(address):
            return
        time.sleep(0.5)
    raise TimeoutError(log.read_text("utf-8", "replace")[-3000:])


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):  # noqa: S310 - of this machine
            return True
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """All processes of its session, politely at first."""
    os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
