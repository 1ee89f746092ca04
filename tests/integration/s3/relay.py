"""A relay on loopback before an S3 API: it counts requests, and by a plan spoils some of them.

Requests go on as they came, with their `Host`, so that their signatures hold. What a plan may do to
one is a `Fault`; a fault that loses the answer of a write has let the write happen.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from urllib.parse import parse_qs, urlencode, urlsplit

from typing_extensions import Self

__all__ = ["OPERATIONS", "Fault", "Plan", "Relay", "Request", "Traffic"]

OPERATIONS = ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")
DELAY_SECONDS = 0.1
SILENT_SECONDS = 2.0


class Fault(Enum):
    """What happens to a request."""

    DELAY = "answered late"
    CUT = "the body of the answer ends in its middle"
    ERROR = "500 InternalError, not carried out"
    UNAVAILABLE = "503 ServiceUnavailable, not carried out"
    SLOW_DOWN = "503 SlowDown, not carried out"
    RESET = "not carried out, and the connection is closed without an answer"
    LOST = "carried out, and the connection is closed without an answer"
    LOST_ERROR = "carried out, and answered with 500"
    TAKEN = "412 PreconditionFailed to a conditional write, not carried out"
    FORBIDDEN = "403 AccessDenied, not carried out"
    OTHER_ETAG = "carried out, and answered with another ETag"
    SILENT = "carried out, and answered when nobody waits any more"


@dataclass(frozen=True)
class Request:
    """What a client asked for.

    Attributes:
        operation: One of `OPERATIONS`: a GET of a bucket's keys is a LIST.
        path: Bucket and key.
        conditional: Whether it writes only what is not there.
        number: How many came before it.
    """

    operation: str
    path: str
    conditional: bool
    number: int


@dataclass
class Traffic:
    """What was asked between two moments.

    Attributes:
        requests: How many of each operation.
        sent: Bytes of bodies to the store.
        received: Bytes of bodies from it.
        asked: Each request, in words.
    """

    requests: Counter[str]
    sent: int
    received: int
    asked: list[str]

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.requests.values())


Plan = Callable[[Request], "Fault | None"]
NOT_CARRIED = frozenset({
    Fault.ERROR, Fault.UNAVAILABLE, Fault.SLOW_DOWN, Fault.TAKEN, Fault.RESET, Fault.FORBIDDEN,
})  # fmt: skip
_ERRORS = {
    Fault.ERROR: (500, "InternalError"),
    Fault.LOST_ERROR: (500, "InternalError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.TAKEN: (412, "PreconditionFailed"),
    Fault.FORBIDDEN: (403, "AccessDenied"),
}


class Relay:
    """A relay to a port of loopback.

    Args:
        port: Of the S3 API.

    Attributes:
        plan: Which fault a request has; none has one at first.
        faults: How many of each there were.
    """

    def __init__(self, port: int) -> None:
        self.plan: Plan = lambda _: None
        self.faults: Counter[Fault] = Counter()
        self.target = port
        self._lock = Lock()
        self._count = 0
        self._traffic = Traffic(Counter(), 0, 0, [])
        self._server = _Server(self)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def through(self, location: str) -> str:
        """A location of the S3 API, as it is reached through the relay."""
        parts = urlsplit(location)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        query["endpoint_override"] = f"127.0.0.1:{self.port}"
        return parts._replace(query=urlencode(query)).geturl()

    def taken(self) -> Traffic:
        """What was asked since this was last called."""
        with self._lock:
            taken, self._traffic = self._traffic, Traffic(Counter(), 0, 0, [])
        return taken

    def request(self, operation: str, path: str, *, conditional: bool) -> Request:
        """Number a request."""
        with self._lock:
            self._count += 1
            return Request(operation, path, conditional, self._count)

    def count(self, request: Request, sent: int, received: int, words: str) -> None:
        """Add a request to the traffic."""
        with self._lock:
            self._traffic.requests[request.operation] += 1
            self._traffic.sent += sent
            self._traffic.received += received
            self._traffic.asked.append(words)

    def fault(self, request: Request) -> Fault | None:
        """What is to happen to a request."""
        with self._lock:
            fault = self.plan(request)
            if fault is not None:
                self.faults[fault] += 1
        return fault


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.store = http.client.HTTPConnection("127.0.0.1", self.server.relay.target, timeout=60)

    def finish(self) -> None:
        self.store.close()
        super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is inherited
        """Say nothing."""

    def _carry(self) -> None:
        relay = self.server.relay
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            self._answer(411, [], b"")  # no client here sends one
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = relay.request(
            _operation(self.command, self.path),
            urlsplit(self.path).path,
            conditional=self.headers.get("If-None-Match") == "*",
        )
        fault = relay.fault(request)
        if fault is Fault.DELAY:
            time.sleep(DELAY_SECONDS)
        carried = fault not in NOT_CARRIED
        status, headers, data = self._ask(body) if carried else (0, [], b"")
        requested = self.headers.get("Range", "").removeprefix("bytes=")
        words = " ".join(filter(None, (request.operation, self.path, requested)))
        relay.count(request, len(body), len(data), words)
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            text = f"<Error><Code>{code}</Code><Message>a fault of the tests</Message></Error>"
            data = b"" if self.command == "HEAD" else text.encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))]
        if fault is Fault.OTHER_ETAG:
            headers = [each for each in headers if each[0].lower() != "etag"]
            headers.append(("ETag", f'"{request.number:032x}"'))
        if fault is Fault.SILENT:
            time.sleep(SILENT_SECONDS)
        if fault in {Fault.LOST, Fault.RESET} or (fault is Fault.CUT and len(data) < 2):
            self._hang_up()
            return
        self._answer(status, headers, data[: len(data) // 2] if fault is Fault.CUT else data)
        if fault is Fault.CUT:
            self._hang_up()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _carry  # noqa: N815 - as they are looked for

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask the store; once more on a new connection if it has closed this one."""
        try:
            answer, data = self._ask_once(body)
        except (http.client.HTTPException, OSError):
            self.store.close()
            answer, data = self._ask_once(body)
        headers = [
            (name, value)
            for name, value in answer.getheaders()
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}
        ]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        if answer.status != http.HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", length or str(len(data))))
        return answer.status, headers, data

    def _ask_once(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        self.store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in {"connection", "expect"}:
                self.store.putheader(name, value)
        self.store.endheaders(body or None)
        answer = self.store.getresponse()
        return answer, answer.read()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _operation(method: str, path: str) -> str:
    """A GET of a bucket, and not of a key in it, is a LIST."""
    key = urlsplit(path).path.lstrip("/").partition("/")[2]
    return "LIST" if method == "GET" and not key else method
