"""A server in a JVM on loopback that the tests start and stop, with a directory of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

__all__ = ["JvmServer", "free_ports"]


class JvmServer:
    """What its kinds share: where it lies, what it told, and its end.

    Args:
        prefix: Of its directory's name.
    """

    def __init__(self, prefix: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        self._root = Path(self._directory.name)

    def _start(self, command: list[str]) -> None:
        self._told = (self._root / "told").open("wb")
        self._process = self._begun(command)

    def _begun(self, command: list[str]) -> subprocess.Popen[bytes]:
        """A process that is killed when this one ends, even by a kill."""
        setpriv = shutil.which("setpriv")
        # who ended before the signal was asked for is not noticed by it: the shell looks
        alive = f'[ "$PPID" = {os.getpid()} ] && exec "$@"'
        bound = [setpriv, "--pdeathsig", "KILL", "sh", "-c", alive, "sh"] if setpriv else []
        return subprocess.Popen([*bound, *command], stdout=self._told, stderr=subprocess.STDOUT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._told.close()
        self._directory.cleanup()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for socket_ in sockets:
            socket_.bind(("127.0.0.1", 0))
        return [socket_.getsockname()[1] for socket_ in sockets]
    finally:
        for socket_ in sockets:
            socket_.close()
