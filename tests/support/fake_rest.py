"""A server on loopback that answers as it is told to: slow, wrong, or not at all.

For faults only: what Flink really answers is tested with Flink.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from typing_extensions import Self

__all__ = ["Answer", "FakeRest"]


@dataclass(frozen=True)
class Answer:
    """What is answered.

    Attributes:
        body: As JSON, where it is no text or bytes.
        status: Of HTTP.
        delay: Seconds before it.
        dripping: Seconds between two bytes of it.
        headers: Beside its length.
    """

    body: Any = ""
    status: int = 200
    delay: float = 0
    dripping: float = 0
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The body's bytes."""
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


class FakeRest:
    """Answers one call after another; the last one from then on.

    Args:
        answers: In their order, or a function of method and path.
        tls: For https.

    Attributes:
        asked: Each call: method, path, headers, body.
    """

    def __init__(
        self,
        answers: Iterable[Answer] | Callable[[str, str], Answer],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self._answers = answers if callable(answers) else list(answers)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.path, dict(self.headers), body))
                outer._answer(self)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815 - as http.server calls

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        if callable(self._answers):
            answer = self._answers(handler.command, handler.path)
        else:
            answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        time.sleep(answer.delay)
        try:
            handler.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.data)), **answer.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            if not answer.dripping:
                handler.wfile.write(answer.data)
                return
            for byte in answer.data:
                handler.wfile.write(bytes([byte]))
                time.sleep(answer.dripping)
        except OSError:  # who asked has gone
            handler.close_connection = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
